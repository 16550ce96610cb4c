//! The settings of a scrape job that change how bodies are parsed.

/// Options of a parser beyond the format, from the settings of a scrape job. All are off by
/// default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ParserSwitches {
    /// True if the type and unit of a family become the labels `__type__` and `__unit__`.
    pub type_and_unit_labels: bool,
    /// True if samples carry their start time. In OpenMetrics this removes the `name_created`
    /// samples that contain it.
    pub start_times: bool,
    /// True if native histograms are read as such (`scrape_native_histograms`). Otherwise only
    /// their classic buckets are read.
    pub native_histograms: bool,
    /// True if classic histograms are converted to native ones with custom buckets
    /// (`convert_classic_histograms_to_nhcb`).
    pub convert_classic_histograms: bool,
    /// True if classic histograms are read even if they are also native or converted
    /// (`always_scrape_classic_histograms`).
    pub always_classic_histograms: bool,
}

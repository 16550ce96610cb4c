//! What a config says about reading bodies.

/// How a body is read beyond what its format says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Switches {
    /// Whether a family's type and unit become the labels `__type__` and `__unit__`.
    pub type_and_unit_labels: bool,
    /// Whether samples carry the time since when they count. In OpenMetrics this takes out the
    /// samples that say so, `name_created`.
    pub start_times: bool,
    /// Whether native histograms are read as such (`scrape_native_histograms`). If not, only their
    /// classic buckets are.
    pub native_histograms: bool,
    /// Whether classic histograms become native ones with custom buckets
    /// (`convert_classic_histograms_to_nhcb`).
    pub convert_classic_histograms: bool,
    /// Whether classic histograms are read even if they are native or converted too
    /// (`always_scrape_classic_histograms`).
    pub always_classic_histograms: bool,
}

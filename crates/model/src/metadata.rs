//! What a metric is, as its source says.

/// The type of a metric family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MetricType {
    /// Not said, or said to be unknown.
    #[default]
    Unknown,
    /// A sum that only grows, until it starts over.
    Counter,
    /// A value that goes up and down.
    Gauge,
    /// Counts of observations in buckets, which only grow.
    Histogram,
    /// Counts of observations in buckets as they are now.
    GaugeHistogram,
    /// Quantiles computed by the source.
    Summary,
    /// Facts in labels; the value is 1.
    Info,
    /// One series for each state of a thing, 1 or 0.
    Stateset,
}

impl MetricType {
    /// The name that Prometheus's API and the text formats use.
    pub fn name(self) -> &'static str {
        match self {
            MetricType::Unknown => "unknown",
            MetricType::Counter => "counter",
            MetricType::Gauge => "gauge",
            MetricType::Histogram => "histogram",
            MetricType::GaugeHistogram => "gaugehistogram",
            MetricType::Summary => "summary",
            MetricType::Info => "info",
            MetricType::Stateset => "stateset",
        }
    }
}

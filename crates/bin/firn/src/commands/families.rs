//! Metric families of the text format, for `check metrics` and `push metrics`.
//!
//! Samples of a classic histogram or summary belong to the family without their suffix. Samples
//! with equal other labels belong to one of its metrics.

mod line;
mod text;

pub(super) use text::read;

use firn_model::metadata::MetricType;
use firn_model::sample::TimestampMs;
use std::collections::BTreeMap;

/// Labels of a metric by name, without the metric name.
pub(super) type LabelMap = BTreeMap<String, String>;

/// A metric family of a text: type, help and all metrics of one name.
#[derive(Debug, Default)]
pub(super) struct TextFamily {
    /// Type of the metrics, or unknown if the text has no type line.
    pub(super) kind: MetricType,
    /// Help text, or `None` if the text has no help line.
    pub(super) help: Option<String>,
    /// Metrics in the order of the text. Each has one sample, except for histograms and summaries.
    pub(super) metrics: Vec<TextMetric>,
}

/// A metric of a family: its labels, and one or more samples, which differ in suffix or bucket.
#[derive(Debug)]
pub(super) struct TextMetric {
    /// Labels of the metric, without `le` or `quantile`.
    pub(super) labels: LabelMap,
    /// Samples of the metric, in the order of the text.
    pub(super) samples: Vec<TextSample>,
}

/// A sample of a metric, parsed from one line of the text.
#[derive(Debug)]
pub(super) struct TextSample {
    /// Name of the sample in the text, including a suffix.
    pub(super) name: String,
    /// Label `le` or `quantile` of a part of a histogram or summary.
    pub(super) part: Option<(&'static str, String)>,
    /// Timestamp in milliseconds since the epoch, if the text has one.
    pub(super) time: Option<TimestampMs>,
    /// Value of the sample, possibly NaN.
    pub(super) value: f64,
}

/// Families of a text, sorted by name.
pub(super) type Families = BTreeMap<String, TextFamily>;

//! Metrics in the text format as families: what `check metrics` looks at and `push metrics` sends.
//!
//! Samples of a classic histogram or summary belong to the family without their suffix, and those
//! with the same other labels to one of its metrics.

mod line;
mod text;

pub(super) use text::read;

use firn_model::metadata::MetricType;
use firn_model::sample::TimestampMs;
use std::collections::BTreeMap;

/// Labels by name, the metric's name left out.
pub(super) type LabelMap = BTreeMap<String, String>;

/// A family.
#[derive(Debug, Default)]
pub(super) struct Family {
    /// Its type, if the text says one.
    pub(super) kind: MetricType,
    /// Its help, if the text has one.
    pub(super) help: Option<String>,
    /// Its metrics, in the order of the text; a sample each, but for histograms and summaries.
    pub(super) metrics: Vec<Metric>,
}

/// A metric: its labels but `le` or `quantile`, and its samples.
#[derive(Debug)]
pub(super) struct Metric {
    /// The labels.
    pub(super) labels: LabelMap,
    /// The samples.
    pub(super) samples: Vec<Sample>,
}

/// A sample.
#[derive(Debug)]
pub(super) struct Sample {
    /// The name that stands in the text.
    pub(super) name: String,
    /// The label that sets it apart in a histogram or a summary.
    pub(super) part: Option<(&'static str, String)>,
    /// The time, if the text has one.
    pub(super) time: Option<TimestampMs>,
    /// The value.
    pub(super) value: f64,
}

/// Families by name.
pub(super) type Families = BTreeMap<String, Family>;

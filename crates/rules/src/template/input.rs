//! What a template is given: the data of an alert or of a page, a way to ask queries, and bounds.

use firn_model::cancel::Cancel;
use firn_model::histogram::Histogram;
use firn_model::labels::Labels;
use firn_model::sample::TimestampMs;
use std::sync::Arc;

/// The value of a sample.
#[derive(Clone, Debug, PartialEq)]
pub enum SampleValue {
    /// A float.
    Float(f64),
    /// A native histogram.
    Histogram(Arc<Histogram>),
}

/// A sample that a query gave.
#[derive(Clone, Debug, PartialEq)]
pub struct QueriedSample {
    /// Its labels.
    pub labels: Labels,
    /// Its value.
    pub value: SampleValue,
}

/// Answers `query` at a time with an instant vector, or says why it cannot.
pub type QueryFn<'q> = dyn FnMut(&str, TimestampMs) -> Result<Vec<QueriedSample>, String> + 'q;

/// What the templates of one alert know.
#[derive(Clone, Debug)]
pub struct AlertData<'a> {
    /// The name of the rule.
    pub alert: &'a str,
    /// The labels of the sample.
    pub labels: &'a Labels,
    /// The value of the sample.
    pub value: SampleValue,
    /// `global.external_labels`
    pub external_labels: &'a Labels,
    /// The URL under which users reach the server.
    pub external_url: &'a str,
    /// The path of that URL.
    pub path_prefix: &'a str,
    /// When the rule is evaluated.
    pub time: TimestampMs,
}

/// A page that is made of a template.
#[derive(Clone, Debug)]
pub struct Console<'a> {
    /// What was asked for, with the slash before it.
    pub path: &'a str,
    /// The template.
    pub text: &'a str,
    /// Files with definitions, by their names; of two with one name the later counts.
    pub libraries: &'a [(String, String)],
    /// The parameters of the request, those of one name in their order.
    pub params: &'a [(String, String)],
    /// `global.external_labels`
    pub external_labels: &'a Labels,
    /// The URL under which users reach the server.
    pub external_url: &'a str,
    /// The path of that URL.
    pub path_prefix: &'a str,
    /// When the page is made.
    pub time: TimestampMs,
}

/// What the functions of every template know.
#[derive(Clone, Copy, Debug)]
pub(super) struct Around<'a> {
    pub external_url: &'a str,
    pub path_prefix: &'a str,
    pub time: TimestampMs,
}

/// How much a template may do, and until when. Upstream has no bounds but memory.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Actions, texts and iterations.
    pub steps_max: usize,
    /// Bytes that it may give.
    pub output_bytes_max: usize,
    /// Bytes that its functions may make, together.
    pub made_bytes_max: usize,
    /// Queries that it may ask.
    pub queries_max: usize,
    /// Templates within templates.
    pub depth_max: usize,
    /// Set when the evaluation is given up: the template ends with its next step.
    pub cancel: Cancel,
}

impl Default for Limits {
    /// A million steps take some 100 ms. A megabyte is far beyond what a notification can carry,
    /// and what is made on the way is some times that. A page of an alert's context asks a query
    /// or two for each row.
    fn default() -> Self {
        Self {
            steps_max: 1_000_000,
            output_bytes_max: 1 << 20,
            made_bytes_max: 16 << 20,
            queries_max: 1000,
            depth_max: 1000,
            cancel: Cancel::new(),
        }
    }
}

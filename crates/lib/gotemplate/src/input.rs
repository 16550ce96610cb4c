//! Inputs of a template: the data of an alert or of a console page, a callback for queries, and
//! limits.

use firn_model::cancel::CancelToken;
use firn_model::histogram::Histogram;
use firn_model::labels::Labels;
use firn_model::sample::TimestampMs;
use std::sync::Arc;

/// The value of a sample, as seen by templates: a float or a native histogram.
#[derive(Clone, Debug, PartialEq)]
pub enum TemplateSampleValue {
    /// A float sample.
    Float(f64),
    /// A native histogram.
    Histogram(Arc<Histogram>),
}

/// A sample in the result of a template's query, converted from an instant vector.
#[derive(Clone, Debug, PartialEq)]
pub struct QueriedSample {
    /// Labels of the sample, including the metric name if the query keeps it.
    pub labels: Labels,
    /// Value of the sample.
    pub value: TemplateSampleValue,
}

/// Callback that evaluates a PromQL expression at the given time. Returns an instant vector, or an
/// error message for the template.
pub type QueryFn<'q> = dyn FnMut(&str, TimestampMs) -> Result<Vec<QueriedSample>, String> + 'q;

/// Data for the templates of one alert, available to them as fields and as short variables.
#[derive(Clone, Debug)]
pub struct AlertData<'a> {
    /// Name of the alerting rule.
    pub alert: &'a str,
    /// Labels of the result series, available as `$labels`.
    pub labels: &'a Labels,
    /// Value of the result sample, available as `$value`.
    pub value: TemplateSampleValue,
    /// Value of `global.external_labels`, available to templates as `$externalLabels`.
    pub external_labels: &'a Labels,
    /// URL under which users access the server.
    pub external_url: &'a str,
    /// Path of the external URL, for links within the server.
    pub path_prefix: &'a str,
    /// Timestamp of the rule evaluation, at which queries run.
    pub time: TimestampMs,
}

/// A request for a console page, which is rendered from a template of the operator and its
/// libraries.
#[derive(Clone, Debug)]
pub struct ConsoleRequest<'a> {
    /// Requested path with its leading slash.
    pub path: &'a str,
    /// Text of the template, without the preamble that declares variables.
    pub text: &'a str,
    /// Library files by name, with definitions for all pages. If two define the same template, the
    /// later one is used.
    pub libraries: &'a [(String, String)],
    /// Parameters of the request. Values of the same name keep their order.
    pub params: &'a [(String, String)],
    /// Value of `global.external_labels`, available to templates as `$externalLabels`.
    pub external_labels: &'a Labels,
    /// URL under which users access the server.
    pub external_url: &'a str,
    /// Path of the external URL, for links within the server.
    pub path_prefix: &'a str,
    /// Time of the request, at which queries run.
    pub time: TimestampMs,
}

/// Server settings and time that template functions use, such as the path prefix of links.
#[derive(Clone, Copy, Debug)]
pub(super) struct TemplateEnvironment<'a> {
    pub external_url: &'a str,
    pub path_prefix: &'a str,
    pub time: TimestampMs,
}

/// Limits of one template execution, which fails as soon as one of them is exceeded. Upstream is
/// limited only by memory.
#[derive(Clone, Debug)]
pub struct TemplateLimits {
    /// Maximum number of executed actions, texts and loop iterations.
    pub steps_max: usize,
    /// Maximum size of the output in bytes.
    pub output_bytes_max: usize,
    /// Maximum total size of function results in bytes.
    pub made_bytes_max: usize,
    /// Maximum number of queries; a further one fails.
    pub queries_max: usize,
    /// Maximum nesting of template calls.
    pub depth_max: usize,
    /// Token that cancels the execution. It is checked at each step.
    pub cancel: CancelToken,
}

impl Default for TemplateLimits {
    /// Returns limits for an alert or page. A million steps take about 100 ms. One megabyte of
    /// output is far more than a notification can carry, and intermediate results may be several
    /// times larger. Pages may run one or two queries for each row of a table.
    fn default() -> Self {
        Self {
            steps_max: 1_000_000,
            output_bytes_max: 1 << 20,
            made_bytes_max: 16 << 20,
            queries_max: 1000,
            depth_max: 1000,
            cancel: CancelToken::new(),
        }
    }
}

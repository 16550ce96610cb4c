//! Results of queries. A result consists of series with labels and points.

use firn_model::budget::Reservation;
use firn_model::error::{Error, ErrorKind};
use firn_model::histogram::Histogram;
use firn_model::labels::Labels;
use firn_model::sample::TimestampMs;
use std::sync::Arc;

/// The value of one point: a float or a native histogram.
#[derive(Clone, Debug, PartialEq)]
pub enum QueryPointValue {
    /// A float value, which may be any NaN except the staleness marker.
    Float(f64),
    /// A native histogram with float counts, shared with the evaluation.
    Histogram(Arc<Histogram>),
}

/// One element of an instant vector: a series with a single point.
#[derive(Clone, Debug, PartialEq)]
pub struct VectorElement {
    /// The labels of the series, without the metric name if the query removed it.
    pub labels: Labels,
    /// The timestamp of the point in milliseconds: the evaluation time.
    pub time: TimestampMs,
    /// The value of the point: a float or a native histogram.
    pub value: QueryPointValue,
}

/// One series of a matrix. Floats and histograms are in time order, and no timestamp occurs in
/// both.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct MatrixSeries {
    /// The labels of the series, without the metric name if the query removed it.
    pub labels: Labels,
    /// The float points in time order, without duplicate timestamps.
    pub floats: Vec<(TimestampMs, f64)>,
    /// The histogram points in time order, without duplicate timestamps.
    pub histograms: Vec<(TimestampMs, Arc<Histogram>)>,
}

/// The value of a query, by type of the expression.
#[derive(Clone, Debug, PartialEq)]
pub enum QueryValue {
    /// A number at the evaluation time. Range queries return a matrix instead.
    Scalar(TimestampMs, f64),
    /// A string at the evaluation time, as raw bytes that need not be UTF-8.
    String(TimestampMs, Vec<u8>),
    /// An instant vector, in the same order as in Prometheus.
    Vector(Vec<VectorElement>),
    /// A matrix, sorted by labels. Range queries always return this type.
    Matrix(Vec<MatrixSeries>),
}

/// Statistics of the evaluation of one query, which the API returns on request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueryStats {
    /// Number of samples read from the store and passed to operators, counted like in Prometheus.
    pub samples_total: u64,
    /// Maximum number of samples held at one time, which the sample limit applies to.
    pub samples_peak: u64,
    /// Maximum number of bytes held at one time in the memory budget of the query.
    pub bytes_peak: u64,
}

/// Sample counts of a query as Prometheus would report them, although Firn does not evaluate step
/// by step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SampleCounts {
    /// Number of samples that all steps read together: a sample counts once for each window that
    /// contains it.
    pub total: u64,
    /// Number of samples that were read and that no earlier step had read.
    pub read: u64,
    /// Maximum number of samples held at one time, which Prometheus reports as `peakSamples`.
    pub peak: u64,
    /// The part of `total` at each step; one entry for each step of the query.
    pub total_at: Vec<u64>,
    /// The part of `read` at each step; one entry for each step of the query.
    pub read_at: Vec<u64>,
}

/// The result of a successful query, with annotations and statistics.
#[derive(Debug)]
pub struct QueryResult {
    /// The value of the query, whose type follows from the expression and the kind of query.
    pub value: QueryValue,
    /// Warnings: first those of the store about missing data, then `PromQL warning: ...` with
    /// positions, in order of occurrence.
    pub warnings: Vec<String>,
    /// Info annotations: `PromQL info: ...` with positions, in order of occurrence.
    pub infos: Vec<String>,
    /// Statistics of the evaluation, as measured in Firn.
    pub stats: QueryStats,
    /// Sample counts as Prometheus would report them, if [`counts_samples`] was set.
    ///
    /// [`counts_samples`]: crate::Options::counts_samples
    pub counts: Option<SampleCounts>,
    /// False if every range query with the same expression, step and data has the same bits at the
    /// same steps, whatever its range, provided that [`newest_read`] accepts the expression, and
    /// annotates these steps in the same way. Always true unless
    /// [`detects_range_dependence`] was set.
    ///
    /// [`newest_read`]: crate::steps::newest_read
    /// [`detects_range_dependence`]: crate::Options::detects_range_dependence
    pub depends_on_range: bool,
    /// The reservation for the memory of the value. The caller must hold it as long as the value
    /// exists.
    pub memory: Reservation,
}

/// The reasons why a query fails. The message is for the user and equals that of Prometheus where
/// it has the same error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PromqlError {
    /// The text is not valid PromQL. The message contains the position: `1:5: parse error: ...`.
    #[error("{0}")]
    Parse(String),
    /// The evaluation failed, for example because of duplicate series in a vector match.
    #[error("{0}")]
    Execution(String),
    /// The query exceeded its time limit, which the cancel flag reported.
    #[error("{0}")]
    Timeout(String),
    /// The client closed the connection, or an operator canceled the query.
    #[error("{0}")]
    Canceled(String),
    /// The query exceeded a limit on memory, samples, series or steps.
    #[error("{0}")]
    Limited(String),
    /// The store returned an error while series were selected or read.
    #[error("{0}")]
    Storage(Error),
}

impl PromqlError {
    /// Returns the kind of the error, which determines the reaction of the caller.
    pub fn kind(&self) -> ErrorKind {
        match self {
            PromqlError::Parse(_) | PromqlError::Execution(_) => ErrorKind::Invalid,
            PromqlError::Timeout(_) => ErrorKind::Timeout,
            PromqlError::Canceled(_) => ErrorKind::Canceled,
            PromqlError::Limited(_) => ErrorKind::Limited,
            PromqlError::Storage(e) => e.kind,
        }
    }
}

//! Results of queries, in columns: a series is its labels and a row of steps.

use firn_model::budget::Reservation;
use firn_model::error::{Error, ErrorKind};
use firn_model::histogram::Histogram;
use firn_model::labels::Labels;
use firn_model::sample::TimestampMs;
use std::sync::Arc;

/// One point's value.
#[derive(Clone, Debug, PartialEq)]
pub enum PointValue {
    /// A float.
    Float(f64),
    /// A native histogram (float counts).
    Histogram(Arc<Histogram>),
}

/// One element of an instant vector.
#[derive(Clone, Debug, PartialEq)]
pub struct VectorElement {
    /// The labels.
    pub labels: Labels,
    /// When.
    pub time: TimestampMs,
    /// What.
    pub value: PointValue,
}

/// One series of a matrix. Floats and histograms in time order; no timestamp is in both.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct MatrixSeries {
    /// The labels.
    pub labels: Labels,
    /// The float points.
    pub floats: Vec<(TimestampMs, f64)>,
    /// The histogram points.
    pub histograms: Vec<(TimestampMs, Arc<Histogram>)>,
}

/// The value of a query.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A number at a time.
    Scalar(TimestampMs, f64),
    /// A string at a time.
    String(TimestampMs, Vec<u8>),
    /// An instant vector, in upstream's order.
    Vector(Vec<VectorElement>),
    /// A matrix, sorted by labels.
    Matrix(Vec<MatrixSeries>),
}

/// What a query counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Samples read from the store and handed to operators, as upstream counts them.
    pub samples_total: u64,
    /// The most samples held at one time.
    pub samples_peak: u64,
    /// The most bytes held at one time.
    pub bytes_peak: u64,
}

/// The samples of a query as upstream counts them, whatever of its loop Firn does without.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SampleCounts {
    /// Samples that each step asked for, all steps together: a window counts at each step.
    pub total: u64,
    /// Samples that no step before had asked for.
    pub read: u64,
    /// The most samples held at one time.
    pub peak: u64,
    /// `total` by step; as many as steps.
    pub total_at: Vec<u64>,
    /// `read` by step; as many as steps.
    pub read_at: Vec<u64>,
}

/// A query's answer.
#[derive(Debug)]
pub struct QueryResult {
    /// The value.
    pub value: Value,
    /// What the store could not give, then `PromQL warning: ...`, with positions, in the order they
    /// arose.
    pub warnings: Vec<String>,
    /// `PromQL info: ...`
    pub infos: Vec<String>,
    /// Counters.
    pub stats: Stats,
    /// What upstream would have counted, if it was asked for.
    pub counts: Option<SampleCounts>,
    /// What the value takes of the query's memory; to be held as long as the value is.
    pub memory: Reservation,
}

/// Why a query has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueryError {
    /// The text is not PromQL; the message has the position: `1:5: parse error: ...`.
    #[error("{0}")]
    Parse(String),
    /// Evaluation failed.
    #[error("{0}")]
    Execution(String),
    /// The time allowed ran out.
    #[error("{0}")]
    Timeout(String),
    /// The client went away, or an operator ended the query.
    #[error("{0}")]
    Canceled(String),
    /// A limit on memory, samples, series or steps was hit.
    #[error("{0}")]
    Limited(String),
    /// The store failed.
    #[error("{0}")]
    Storage(Error),
}

impl QueryError {
    /// What the caller must do.
    pub fn kind(&self) -> ErrorKind {
        match self {
            QueryError::Parse(_) | QueryError::Execution(_) => ErrorKind::Invalid,
            QueryError::Timeout(_) => ErrorKind::Timeout,
            QueryError::Canceled(_) => ErrorKind::Canceled,
            QueryError::Limited(_) => ErrorKind::Limited,
            QueryError::Storage(e) => e.kind,
        }
    }
}

//! The inputs of a query besides its text: evaluation times, limits, and the environment in which
//! it runs.

use crate::features::Features;
use crate::value::SampleCounts;
use firn_model::budget::Budget;
use firn_model::cancel::CancelToken;
use firn_model::env::Compute;
use firn_model::sample::TimestampMs;
use firn_model::store::Select;
use firn_model::tenant::TenantId;
use std::sync::Mutex;

/// Nanoseconds in a millisecond, for converting steps.
const NANOS_PER_MS: i64 = 1_000_000;

/// The times at which a query is evaluated. The server creates it from the parameters of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EvalTime {
    /// An instant query, which is evaluated at one time.
    Instant(TimestampMs),
    /// A range query: evaluated at `start`, `start + step`, ... up to `end`. The step is used in
    /// whole milliseconds and must be at least one.
    Range {
        /// The time of the first step in milliseconds.
        start: TimestampMs,
        /// The upper limit of the last step in milliseconds, inclusive.
        end: TimestampMs,
        /// Distance between steps in nanoseconds, which is also the value of `step()`.
        step_ns: i64,
    },
}

impl EvalTime {
    /// Creates a range query with a step in whole milliseconds.
    pub const fn range(start: TimestampMs, end: TimestampMs, step_ms: i64) -> Self {
        EvalTime::Range {
            start,
            end,
            step_ns: step_ms.saturating_mul(NANOS_PER_MS),
        }
    }

    /// Returns the distance between steps in whole milliseconds; zero for an instant query.
    pub fn step_ms(&self) -> i64 {
        match self {
            EvalTime::Instant(_) => 0,
            EvalTime::Range { step_ns, .. } => step_ns / NANOS_PER_MS,
        }
    }
}

/// Limits and defaults of one query. The server and the rule engine create it from flags and
/// config.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The enabled features of the language, from `--enable-feature`.
    pub features: Features,
    /// Lookback of an instant selector in milliseconds: the maximum age of a sample.
    pub lookback_ms: i64,
    /// Step of a subquery that specifies none, in milliseconds: `global.evaluation_interval`.
    pub default_subquery_step_ms: i64,
    /// Maximum number of samples that a query may hold at one time, counted like
    /// `--query.max-samples` of Prometheus.
    pub samples_max: u64,
    /// Maximum number of series that all selectors of the query may find together.
    pub series_max: usize,
    /// True if samples are counted like in Prometheus ([`QueryResult::counts`]). The evaluation is
    /// then slower: equal parts of the query share no results, and every row is read a second time
    /// for counting.
    ///
    /// [`QueryResult::counts`]: crate::value::QueryResult::counts
    pub counts_samples: bool,
    /// True if the evaluation determines [`QueryResult::depends_on_range`], which takes another
    /// pass over the rows of sums and means.
    ///
    /// [`QueryResult::depends_on_range`]: crate::value::QueryResult::depends_on_range
    pub detects_range_dependence: bool,
}

/// The environment of a query: store, tenant, threads, memory and cancellation.
#[derive(Clone, Copy)]
pub struct QueryContext<'a> {
    /// The source of all samples, which is read through selections.
    pub store: &'a dyn Select,
    /// The tenant whose series are read by all selectors of the query.
    pub tenant: &'a TenantId,
    /// The thread pool that evaluates parts of the query.
    pub compute: &'a dyn Compute,
    /// The memory budget of the query, in which all operators reserve memory.
    pub budget: &'a Budget,
    /// The cancel flag, set when the result is no longer needed.
    pub cancel: &'a CancelToken,
    /// Receives the sample counts of a query that fails although its samples are counted.
    pub failed_counts: Option<&'a Mutex<SampleCounts>>,
}

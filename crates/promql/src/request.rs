//! What a query is asked with: its times, its limits, and what it runs on.

use crate::features::Features;
use crate::value::SampleCounts;
use firn_model::budget::Budget;
use firn_model::cancel::Cancel;
use firn_model::env::Compute;
use firn_model::sample::TimestampMs;
use firn_model::store::Select;
use firn_model::tenant::TenantId;
use std::sync::Mutex;

/// Nanoseconds of a millisecond.
const NANOS_PER_MS: i64 = 1_000_000;

/// When a query is evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EvalTime {
    /// At one moment.
    Instant(TimestampMs),
    /// At `start`, `start + step`, ... up to `end`, the step in whole milliseconds, one at least.
    Range {
        /// First step.
        start: TimestampMs,
        /// Bound of the last step.
        end: TimestampMs,
        /// Nanoseconds from step to step, which are what `step()` says.
        step_ns: i64,
    },
}

impl EvalTime {
    /// A range of steps that are whole milliseconds.
    pub const fn range(start: TimestampMs, end: TimestampMs, step_ms: i64) -> Self {
        EvalTime::Range {
            start,
            end,
            step_ns: step_ms.saturating_mul(NANOS_PER_MS),
        }
    }

    /// Whole milliseconds from step to step; zero at one moment.
    pub fn step_ms(&self) -> i64 {
        match self {
            EvalTime::Instant(_) => 0,
            EvalTime::Range { step_ns, .. } => step_ns / NANOS_PER_MS,
        }
    }
}

/// Bounds and defaults of one query.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Language switches.
    pub features: Features,
    /// How far back an instant selector looks, in milliseconds.
    pub lookback_ms: i64,
    /// Step of a subquery without one, in milliseconds: `global.evaluation_interval`.
    pub default_subquery_step_ms: i64,
    /// Samples that a query may hold at one time, counted as upstream does.
    pub samples_max: u64,
    /// Series that its selectors may find together.
    pub series_max: usize,
    /// Whether samples are counted as upstream counts them ([`QueryResult::counts`]). Nothing is
    /// shared between equal parts of the query then, and every row is looked at once more.
    ///
    /// [`QueryResult::counts`]: crate::value::QueryResult::counts
    pub counts_samples: bool,
}

/// What a query runs on.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// Where samples come from.
    pub store: &'a dyn Select,
    /// Whose samples.
    pub tenant: &'a TenantId,
    /// Threads.
    pub compute: &'a dyn Compute,
    /// The query's memory.
    pub budget: &'a Budget,
    /// Set when the answer is no longer wanted.
    pub cancel: &'a Cancel,
    /// Where it is told how many samples a query that is counted and fails came to.
    pub failed_counts: Option<&'a Mutex<SampleCounts>>,
}

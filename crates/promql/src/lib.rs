//! PromQL, as Prometheus 3.14 speaks it: lexer, parser, plan, operators, evaluation.
//!
//! Invariants: pure; the clock is never read, `now` and the lookback arrive in [`Options`]; same
//! plan and same input give the same bits, whatever the number of threads; memory is reserved
//! before it is allocated and the cancel flag is checked once a batch. Nothing here knows HTTP,
//! JSON or a store's inside: samples come through [`firn_model::store::Select`].

pub mod ast;
pub mod depth;
pub mod durations;
mod eval;
pub mod functions;
mod go_format;
mod grid;
mod histogram;
mod lexer;
mod math;
#[cfg(test)]
mod mutation;
mod number;
pub mod parser;
mod plan;
pub mod printer;
mod quote;
pub mod script;
mod syntax_error;
pub mod value;

pub use eval::{query, query_expr};

use firn_model::budget::Budget;
use firn_model::cancel::Cancel;
use firn_model::env::Compute;
use firn_model::sample::TimestampMs;
use firn_model::store::Select;
use firn_model::tenant::TenantId;

/// Nanoseconds of a millisecond.
const NANOS_PER_MS: i64 = 1_000_000;

/// Language switches, named as upstream's feature flags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// `promql-experimental-functions`
    pub experimental_functions: bool,
    /// `promql-extended-range-selectors`
    pub extended_range_selectors: bool,
    /// `promql-binop-fill-modifiers`
    pub binop_fill_modifiers: bool,
    /// `promql-duration-expr`
    pub duration_expressions: bool,
    /// `promql-delayed-name-removal`
    pub delayed_name_removal: bool,
    /// `use-start-timestamps`
    pub use_start_timestamps: bool,
    /// `type-and-unit-labels`
    pub type_and_unit_labels: bool,
}

impl Features {
    /// Every switch of the language on, as upstream's test scripts expect; labels stay as stored.
    pub const ALL: Features = Features {
        experimental_functions: true,
        extended_range_selectors: true,
        binop_fill_modifiers: true,
        duration_expressions: true,
        delayed_name_removal: true,
        use_start_timestamps: true,
        type_and_unit_labels: false,
    };
}

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
}

//! PromQL, compatible with Prometheus 3.14: lexer, parser, planner, operators and evaluation.
//!
//! ```
//! use firn_promql::Features;
//! use firn_promql::parser::parse;
//!
//! let expr = parse("sum by(job)(rate(up[5m]))", Features::default())?;
//! assert_eq!(expr.to_string(), "sum by (job) (rate(up[5m]))");
//!
//! let error = parse("rate(up)", Features::default()).expect_err("an instant vector");
//! assert!(error.to_string().contains("expected type range vector"));
//! # Ok::<(), firn_promql::value::PromqlError>(())
//! ```
//!
//! Invariants:
//! - Evaluation is pure. It never reads the clock; the caller passes the evaluation time and the
//!   lookback ([`EvalTime`], [`Options`]).
//! - The same plan and the same input give the same bits, regardless of the number of threads.
//! - Memory is reserved before it is allocated, and the cancel flag is checked once per batch.
//!
//! The crate does not depend on HTTP, JSON or the implementation of a store: it reads samples
//! through [`firn_model::store::Select`].

pub mod ast;
pub mod depth;
pub mod durations;
mod eval;
mod features;
pub mod functions;
mod go_format;
mod grid;
mod lexer;
mod math;
#[cfg(test)]
mod mutation;
mod number;
pub mod parser;
mod plan;
pub mod printer;
mod quote;
pub mod report;
mod request;
pub mod script;
pub mod steps;
mod syntax_error;
pub mod texts;
pub mod value;

pub use eval::{analyze, explain, query, query_expr};
pub use features::Features;
pub use request::{EvalTime, Options, QueryContext};

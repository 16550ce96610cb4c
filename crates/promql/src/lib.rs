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
mod features;
pub mod functions;
mod go_format;
mod grid;
mod histogram_text;
mod lexer;
mod math;
#[cfg(test)]
mod mutation;
mod number;
pub mod parser;
mod plan;
pub mod printer;
mod quote;
mod request;
pub mod script;
mod syntax_error;
pub mod texts;
pub mod value;

pub use eval::{query, query_expr};
pub use features::Features;
pub use request::{Context, EvalTime, Options};

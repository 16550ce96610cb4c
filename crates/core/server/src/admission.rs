//! Admission control: limits, memory budgets, and the queue in front of query threads.
//!
//! ```text
//! question -> run, in the registry -> queue (fair between clients) -> place
//!          -> active-query record -> thread
//! ```
//!
//! Invariant: the module is independent of HTTP. A refusal is a value, which `http::failure`
//! converts into a response.

pub(crate) mod active;
pub(crate) mod budgets;
pub(crate) mod history;
pub(crate) mod limits;
pub(crate) mod metric_names;
pub(crate) mod queries;
mod query_counts;
pub(crate) mod question;
pub(crate) mod queue;
pub(crate) mod registry;
pub(crate) mod run;
mod tenant_slots;

//! What the server admits: limits, budgets of memory, and the queue in front of query threads.
//!
//! ```text
//! question -> queue (fair between clients) -> place -> active (written down) -> thread
//! ```
//!
//! Invariant: nothing here knows HTTP; a refusal is a value, which `http::failure` words.

pub(crate) mod active;
pub(crate) mod budgets;
pub(crate) mod limits;
pub(crate) mod queries;
pub(crate) mod question;
pub(crate) mod queue;

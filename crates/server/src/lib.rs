//! The HTTP API: routes, JSON, status codes, admission, the embedded page.
//!
//! ```text
//! socket -> routes -> call (params, tenant) -> handler -> compute threads -> streamed JSON
//! ```
//!
//! Writes go from [`axum`]'s body to [`firn_ingest::Pipeline`], look-ups and queries to
//! [`firn_model::store::Select`] and [`engine::Engine`].
//!
//! Invariants: whatever a client sends, memory, threads and time stay within [`limits::Limits`]; no
//! blocking work runs on the async runtime and no lock is held across an await; an error becomes a
//! status in one place. What PromQL means and how samples are kept is left to `promql` and
//! `storage`; the binary builds [`parts::AppParts`] and calls [`serve`].

pub mod active;
mod answer;
mod app;
mod body;
mod call;
pub mod engine;
mod exemplars;
mod failure;
mod form;
mod histogram_json;
mod json;
pub mod limits;
mod listener;
mod measured;
mod metadata;
mod metric_metadata;
mod metrics;
mod operations;
mod origin;
mod page;
pub mod parts;
mod produce;
mod query;
mod question;
mod queue;
mod request_head;
mod routes;
mod socket;
mod status;
mod targets;
mod times;
mod tree;
mod write;

pub use app::{App, State};
pub use listener::serve;
pub use routes::router;

//! Load generation for Prometheus-compatible systems and comparison of their answers, over public
//! HTTP only.
//!
//! - [`fleet`]: the samples of a simulated Kubernetes fleet, determined by a seed.
//! - [`request`] and [`body`]: encode these samples as the requests of a remote-write queue.
//! - [`load`]: `firn load`, which generates, stores and sends requests; [`push`] is one connection,
//!   [`prepared`] a load in files.
//! - [`target`]: an HTTP server that is scraped in tests; [`exposition`] encodes its responses.
//! - [`compare`]: `firn compare`, which sends [`questions`] to two systems and reports differences.
//! - [`scenario`]: `firn scenario`, which does all this while systems are killed and upgraded.
//! - [`tls`]: accepted certificates; [`headers`]: additional request headers.
//! - [`api`]: client of the HTTP API; [`judge`]: comparison of two answers; [`answers`]: recorded
//!   answers of a reference system, with which others are compared.
//!
//! The crate does not depend on the internals of a store. Everything that holds for Firn can be
//! measured and compared on any system with remote write and the HTTP API of Prometheus.

pub mod answers;
pub mod api;
pub mod body;
pub mod compare;
pub mod error;
pub mod exposition;
pub mod fleet;
pub mod headers;
pub mod judge;
pub mod load;
mod page;
pub mod prepared;
mod progress;
mod protobuf;
pub mod push;
pub mod quantiles;
pub mod questions;
pub mod request;
pub mod scenario;
pub mod target;
pub mod tls;

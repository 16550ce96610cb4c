//! Load for any Prometheus-compatible system, mirroring of its writes and comparison of such
//! systems, over public HTTP only.
//!
//! - [`fleet`]: what a Kubernetes-like fleet yields, from a seed.
//! - [`request`] and [`body`]: its samples as the requests of a queue manager.
//! - [`load`]: `firn load`, which makes, keeps and sends them; [`push`] is one connection,
//!   [`prepared`] a load in files.
//! - [`tee`]: `firn mirror`, which passes remote write on to several targets.
//! - [`target`] is scraped and answers as it likes; [`exposition`] is what it may show.
//! - [`compare`]: `firn compare`, which asks two systems [`questions`] and reports on the answers.
//! - [`scenario`]: `firn scenario`, which does all of that while systems are killed and upgraded.
//! - [`tls`] is which certificates of systems are accepted, [`headers`] what requests carry.
//! - [`api`] asks the HTTP API, [`judge`] holds one answer against another, [`answers`] records
//!   those of a reference system and checks others by them.
//!
//! Nothing here knows the inside of a store: what holds for Firn can be measured and compared on
//! every system that speaks remote write and Prometheus's HTTP API.

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
pub mod tee;
pub mod tls;

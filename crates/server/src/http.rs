//! HTTP without the API: from a stream of bytes to a request, from an answer to bytes.
//!
//! ```text
//! accept -> listener -> connection -> socket (phase, request_head) -> the router
//!                                 watched_body: body <- request -> answer: measured, produce
//! ```
//!
//! Invariant: nothing here knows an endpoint, a store or PromQL. The one exception is [`failure`],
//! which turns errors of the other crates into a status, so that this happens in one place.

pub(crate) mod accept;
pub(crate) mod body;
pub(crate) mod channel;
pub(crate) mod connection;
pub(crate) mod failure;
mod http2;
pub(crate) mod listener;
pub(crate) mod measured;
mod phase;
pub(crate) mod produce;
pub(crate) mod request_head;
mod socket;
pub(crate) mod watched_body;

//! RPC between the nodes of a cluster.
//!
//! ```text
//! node                                              its peer
//! batch -> AppendPart::encode -> PeerClient::append ->  serve_peers -> PeerService::appender
//! query -> PeerClient::select -> Selection     <->  serve_peers -> PeerService::reader
//! ```
//!
//! Nodes forward parts of batches to the leaders of partitions and read series from them. The
//! transport is gRPC with messages of bytes, which [`frames`] defines. Every request carries the
//! version of the protocol, the cluster and its number of partitions, and proves that its sender
//! has the secret or a certificate of the cluster ([`options::PeerSecurity`]).
//!
//! Invariants: a remote selection returns the series of the local one, bit for bit, or fails; an
//! append whose outcome is unknown is reported as [`PeerFailure::Unavailable`]; no frame exceeds
//! its limit; a dropped selection frees that of the peer. The crate decides neither who leads a
//! partition nor when a request is repeated: that is left to its users.
//! `docs/adr/0256-nodes-exchange-bytes-over-grpc.md` contains the reasons.

mod bytes;
mod client;
mod codec;
mod connection;
mod credentials;
mod failure;
pub mod frames;
pub mod options;
mod server;
mod service;
#[cfg(test)]
mod tests;
mod tls;

pub use crate::bytes::MalformedFrame;
pub use client::{PeerClient, PeerReadScope};
pub use connection::{CONNECTIONS_MAX, HANDSHAKE_TIMEOUT};
pub use failure::{PeerFailure, decode_failure, encode_failure};
pub use frames::append::{AppendPart, EncodedAppend, encode_append};
pub use frames::append_parts::PartAnswer;
pub use frames::outcome::{PeerAppended, PeerSeriesRejection};
pub use options::{PeerOptions, PeerSecret, PeerSecurity, PeerTls};
pub use server::serve_peers;
pub use service::{PeerService, ReadConsistency};

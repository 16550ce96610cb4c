//! Remote write to other servers, for the `remote_write` section of `firn serve` and for
//! `firn mirror`.
//!
//! ```text
//! request -> queue (one log on disk) -> OutgoingSettings: external labels, relabelling, shares
//!                                         -> ForwardClient: POST, repeated until it is answered
//! ```
//!
//! - [`queue`]: the log of bodies on disk, with a cursor and a delivery task for each target.
//! - [`OutgoingSettings`]: converts kept requests to the requests of one receiver.
//! - [`forward`]: the client that posts a body to one URL.
//! - [`remote_read`]: the client of a remote read server, with the same reading of URLs.
//!
//! Requests that a receiver accepts unchanged are forwarded as they were kept:
//!
//! ```
//! use firn_model::batch::Batch;
//! use firn_model::labels::Labels;
//! use firn_remote_write::{OutgoingSettings, QueuedWriteRequest, RemoteWriteMetadata};
//! use firn_wire::WireLimits;
//! use firn_wire::remote_write::{RemoteWriteDecoder, RemoteWriteOptions};
//! use firn_wire::remote_write::{RemoteWriteVersion, encode};
//!
//! let mut batch = Batch::default();
//! batch.push_series(Labels::from_pairs([("__name__", "up")]).as_ref(), &[(1_000, 1.0)]);
//! let kept = QueuedWriteRequest {
//!     version: RemoteWriteVersion::V1,
//!     contents: None,
//!     body: encode(&batch).into(),
//! };
//! let settings = OutgoingSettings {
//!     external_labels: Labels::from_pairs([("cluster", "north")]),
//!     relabel: [].into(),
//!     sends_histograms: true,
//!     sends_exemplars: false,
//!     version: RemoteWriteVersion::V1,
//!     request_samples: 2_000,
//!     shares: (1, 1),
//! };
//! let metadata = RemoteWriteMetadata::default();
//! let limits = WireLimits::default();
//! let rounds = settings.build_rounds(&[kept], &metadata, false, &limits);
//! let round = rounds[0].as_ref().expect("the kept request is valid");
//! let mut decoder = RemoteWriteDecoder::new(limits);
//! let body = &round.shares[0][0].body;
//! let sent = decoder.decode(RemoteWriteOptions::default(), body).expect("a valid request");
//! let labels = sent.batch.iter().next().expect("one series").labels.to_owned();
//! assert_eq!(labels.to_string(), r#"{__name__="up", cluster="north"}"#);
//! ```
//!
//! Invariant: an acknowledged body is durable, and each target receives the bodies in order unless
//! they are counted as lost with a reason. The crate generates no load and serves no HTTP: bodies
//! are passed in by the write pipeline, or by the server of `firn mirror`.

pub mod forward;
mod known;
mod outgoing;
mod passing;
pub mod queue;
pub mod remote_read;

pub use known::RemoteWriteMetadata;
pub use outgoing::{
    OutgoingRequest, OutgoingRound, OutgoingSettings, QueuedWriteRequest, ROUND_SAMPLES, Share,
};

//! Wire formats: decoders and encoders between bytes and the data model.
//!
//! [`remote_write::Decoder`] decodes a request body into a [`firn_model::batch::Batch`], and
//! [`remote_write::encode`] does the reverse. [`otlp`] decodes the metrics that OpenTelemetry
//! exporters send. [`exposition`] parses scraped bodies and writes Firn's own metrics.
//! [`remote_read`] and [`federation`] answer other servers. [`thinning`] removes series from
//! messages that are forwarded. [`traces`] encodes spans for a collector. [`snappy`] compresses
//! requests, and [`unpack`] decompresses other bodies. [`zookeeper`] encodes and decodes the
//! messages of a ZooKeeper client.
//!
//! ```
//! use firn_model::batch::Batch;
//! use firn_model::labels::Labels;
//! use firn_wire::WireLimits;
//! use firn_wire::remote_write::{RemoteWriteDecoder, RemoteWriteOptions, encode};
//!
//! let labels = Labels::from_pairs([("__name__", "up"), ("job", "node")]);
//! let mut batch = Batch::default();
//! batch.push_series(labels.as_ref(), &[(1_000, 1.0)]);
//! let body = encode(&batch);
//!
//! let mut decoder = RemoteWriteDecoder::new(WireLimits::default());
//! let decoded = decoder.decode(RemoteWriteOptions::default(), &body)?;
//! let series = decoded.batch.series(0);
//! assert_eq!(series.labels, labels.as_ref());
//! assert_eq!((series.times, series.values), (&[1_000][..], &[1.0][..]));
//!
//! assert!(decoder.decode(RemoteWriteOptions::default(), b"no snappy").is_err());
//! # Ok::<(), firn_wire::WireError>(())
//! ```
//!
//! Invariant: no input makes this crate panic or allocate beyond the limits in [`WireLimits`],
//! and decoding reverses encoding. The crate does no I/O,
//! does not depend on HTTP and reads no clock.

mod error;
pub mod exposition;
mod families;
pub mod federation;
mod limits;
pub mod otlp;
mod protobuf;
pub mod remote_read;
pub mod remote_write;
pub mod snappy;
pub mod thinning;
pub mod traces;
pub mod unpack;
pub mod zookeeper;

pub use error::WireError;
pub use limits::WireLimits;

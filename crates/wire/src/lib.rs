//! Bytes to the data model and back: remote write, OTLP, the text exposition format, protobuf,
//! snappy, remote read, federation, folders of Prometheus's TSDB, ZooKeeper's protocol.
//!
//! Owns the formats that other programs speak with Firn. [`remote_write::Decoder`] turns a
//! request's body into a [`firn_model::batch::Batch`] and [`remote_write::encode`] does the
//! reverse; [`otlp`] reads what OpenTelemetry sends; [`exposition`] reads what a target exposes and
//! writes what Firn exposes about itself; [`thinning`] leaves series out of messages that are
//! passed on; [`traces`] writes spans for a collector; [`snappy`] is the compression around
//! requests, [`unpack`] that of other bodies; [`tsdb`] reads the files of a Prometheus and writes
//! blocks for one; [`zookeeper`] is what a client of ZooKeeper sends and hears.
//!
//! Invariant: for any bytes, nothing here panics or allocates beyond the caps in [`WireLimits`], or
//! in [`tsdb`] beyond what a file has; decoding what was encoded gives back the same. Nothing here
//! does IO, knows HTTP or reads a clock.

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
pub mod tsdb;
pub mod unpack;
pub mod zookeeper;

pub use error::WireError;
pub use limits::WireLimits;

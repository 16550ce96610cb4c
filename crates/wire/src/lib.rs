//! Bytes to the data model and back: remote write 1.0, the text exposition format, protobuf,
//! snappy.
//!
//! Owns the formats that other programs speak with Firn. [`remote_write::Decoder`] turns a
//! request's body into a [`firn_model::batch::Batch`] and [`remote_write::encode`] does the
//! reverse; [`exposition`] reads what a target exposes and writes what Firn exposes about itself;
//! [`snappy`] is the compression around requests.
//!
//! Invariant: for any bytes, nothing here panics or allocates beyond the caps in [`WireLimits`];
//! decoding what was encoded gives back the same. Nothing here does IO, knows HTTP or reads a
//! clock.

mod error;
pub mod exposition;
mod limits;
mod protobuf;
pub mod remote_write;
pub mod snappy;

pub use error::WireError;
pub use limits::WireLimits;

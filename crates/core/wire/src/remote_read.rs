//! Remote read: requests, and both kinds of responses, each with encoder and decoder.
//!
//! ```text
//! SAMPLES              one message with all samples, compressed as a whole
//! STREAMED_XOR_CHUNKS  frame, frame, ...: length, CRC-32C, a message with chunks of one series
//! ```
//!
//! Fields and limits are those of Prometheus (`prompb/remote.proto`, `storage/remote/codec.go`).
//!
//! Invariant: for any input, the decoded data is bounded by the limits in this module.

mod answer;
mod field;
mod question;
mod reply;
mod request;

pub use answer::{ChunkedResponseBuilder, SamplesResponseBuilder};
pub use question::OutgoingReadRequest;
pub use reply::{ChunkFrameReader, ReadSample, RemoteReadSeries, decode_samples};
pub use request::{ReadQuery, ReadRequest, ReadResponseType, decode};

#[cfg(test)]
mod tests;

//! Remote read: what is asked, and the two forms of an answer; each is written and read.
//!
//! ```text
//! SAMPLES              one message with everything, compressed as a whole
//! STREAMED_XOR_CHUNKS  frame, frame, ...: length, CRC-32C, a message with chunks of one series
//! ```
//!
//! Fields and limits are those of Prometheus (`prompb/remote.proto`, `storage/remote/codec.go`).
//!
//! Invariant: whatever bytes come, what is made of them is bounded by the caps below.

mod answer;
mod field;
mod question;
mod reply;
mod request;

pub use answer::{ChunkFrames, SampleMessage};
pub use question::Question;
pub use reply::{FrameReader, ReadSeries, Sample, decode_samples};
pub use request::{ReadQuery, ReadRequest, ResponseType, decode};

#[cfg(test)]
mod tests;

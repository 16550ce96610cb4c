//! What Prometheus holds in memory: checkpoint, log, out-of-order log and `chunks_head` together,
//! as a start of it puts them together (`tsdb/head.go`, `head_wal.go`).
//!
//! ```text
//! let mut head = HeadReader::new(files, options);
//! while let Some(mut series) = head.next_series()? {
//!     while let Some(sample) = series.next_sample()? { .. }
//! }
//! ```
//!
//! The log is not in order of series. One pass puts the samples of all series together in memory.
//! If they do not fit, they are parted by a hash of the labels, and each part takes passes of its
//! own; parts that do not fit are parted again. Within a part series come in order of their labels.
//! A part takes two passes over the log, since the numbers of its series must be known before
//! `chunks_head` is looked at.

mod part;
mod read;
mod series;
#[cfg(test)]
mod tests;

pub use read::{HeadFiles, HeadOptions, HeadReader, HeadReport};
pub use series::{HeadExemplar, HeadMetadata, HeadSeries};

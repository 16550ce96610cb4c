//! Reads the head of a Prometheus: checkpoint, WAL, out-of-order log and `chunks_head` together,
//! with the result of Prometheus's replay at its start (`tsdb/head.go`, `head_wal.go`).
//!
//! ```text
//! let mut head = HeadReader::new(files, options);
//! while let Some(mut series) = head.next_series()? {
//!     while let Some(sample) = series.next_sample()? { .. }
//! }
//! ```
//!
//! The WAL is not sorted by series, so that one pass collects the samples of all series in memory.
//! If they do not fit, the series are split into two parts by a hash of their labels, and each part
//! takes its own passes; parts that do not fit are split again. Within a part, series are sorted by
//! labels. A part needs two passes over the WAL, because the numbers of its series must be known
//! before `chunks_head` is read.

mod part;
mod read;
mod series;
#[cfg(test)]
mod tests;

pub use read::{HeadFiles, HeadOptions, HeadReader, HeadReport};
pub use series::{HeadExemplar, HeadMetadata, HeadSeries};

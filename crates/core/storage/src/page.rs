//! Pages: the sealed samples of many series over a window of data time. A page is small, protected
//! by checksums, and read one column at a time.
//!
//! `docs/format/page.md` describes the bytes.
//!
//! ```text
//! PageBuilder::push(slot, ..)* -> finish() -> bytes -> Page::open -> find(slot) -> decode(range)
//!
//! page = header | sections: directory, data, optional others
//! data = stripes of some 64 KiB, each with its checksum: time columns, start columns, columns of
//!        values
//! ```
//!
//! A column contains the samples of one series. Times are stored once for all series that share
//! them, values are exact to the bit, and decoding a range reads the vectors of 128 samples that it
//! needs and those that they depend on. Equal pushes give equal bytes.
//!
//! Invariant: reading a modified page returns an error or the original samples, never panics, and
//! takes no memory beyond [`SAMPLES_MAX`] and [`HISTOGRAM_NUMBERS_MAX`]. This module does no file
//! IO; the caller reads and writes the bytes.

mod builder;
pub(crate) mod directory;
pub(crate) mod encoder;
mod equal;
mod floats;
mod header;
pub(crate) mod ints;
pub(crate) mod limits;
pub(crate) mod mixed;
pub(crate) mod packed;
pub(crate) mod planner;
mod reader;
mod runs;
pub(crate) mod starts;
mod survey;
pub(crate) mod times;
pub(crate) mod values;
mod vector;

pub use builder::{ColumnTooLong, PageBuilder};
pub use directory::ColumnEntry;
pub use encoder::HistogramFamilyHash;
pub use header::LogSpan;
pub(crate) use header::peek_sample_count;
pub use limits::{COLUMNS_MAX, HISTOGRAM_NUMBERS_MAX, SAMPLES_MAX};
pub use reader::{PageDecodeScratch, PageReader};
pub use survey::LostColumns;

pub use crate::chunk::SampleColumns;
pub use crate::encoding::DecodeError;

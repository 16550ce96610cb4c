//! A page: the samples of many series over a window, sealed: small, checked, and read a column at a
//! time.
//!
//! `docs/format/page.md` draws the bytes.
//!
//! ```text
//! PageBuilder::push(slot, ..)* -> finish() -> bytes -> Page::open -> find(slot) -> decode(range)
//!
//! page = header | sections: directory, data, whatever else is optional
//! data = stripes of some 64 KiB, each with its checksum: time columns, start columns, columns of
//!        values
//! ```
//!
//! A column is what a page holds of one series. Times are stored once for all series that share
//! them, values are exact to the bit, and decoding a range touches the vectors of 128 samples that
//! it needs and those on which they lean. The same pushes make the same bytes.
//!
//! Invariant: reading a page that was changed gives an error or what was pushed, never a panic, and
//! takes no memory beyond [`SAMPLES_MAX`] and [`HISTOGRAM_NUMBERS_MAX`]. Pages know no files: the
//! caller reads and writes them.

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
pub use directory::Column;
pub use encoder::Family;
pub use header::LogSpan;
pub(crate) use header::sample_count;
pub use limits::{COLUMNS_MAX, HISTOGRAM_NUMBERS_MAX, SAMPLES_MAX};
pub use reader::{Page, Scratch};
pub use survey::Lost;

pub use crate::chunk::Columns;
pub use crate::encoding::Malformed;

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
mod directory;
mod floats;
mod header;
mod ints;
mod mixed;
mod packed;
mod planner;
mod reader;
mod runs;
mod survey;
mod times;
mod values;
mod vector;

pub use builder::{ColumnTooLong, Family, PageBuilder};
pub use directory::Column;
pub use header::PageMeta;
pub(crate) use header::sample_count;
pub use reader::{Page, Scratch};
pub use survey::Lost;

pub use crate::chunk::Columns;
pub use crate::encoding::Malformed;

/// Samples of a column at most: a day and a half of one-second scrapes, a megabyte when decoded.
pub const SAMPLES_MAX: usize = 1 << 17;

/// Buckets, spans and custom bounds of all histograms of a column at most: 700 of a day at 15 s,
/// and 32 MiB when decoded.
pub const HISTOGRAM_NUMBERS_MAX: usize = 1 << 22;

/// Series in a page at most.
pub const COLUMNS_MAX: usize = 1 << 20;

/// Bytes after which a stripe ends: what is read and checked for the sake of one column.
const STRIPE_BYTES: usize = 64 << 10;

/// A hash of numbers that are compared wherever it is the same; nothing is stored of it.
fn hash(numbers: impl Iterator<Item = u64>) -> u64 {
    const LANES: usize = 4;
    const FACTOR: u64 = 0xd6e8_feb8_6659_fd93;
    // Several at once, as each step waits for the one before.
    let mut lanes = [1, 2, 3, 4u64];
    for (i, n) in numbers.enumerate() {
        let lane = &mut lanes[i % LANES];
        *lane = (lane.rotate_left(29) ^ n).wrapping_mul(FACTOR);
    }
    let mix = |hash: u64, lane: &u64| (hash ^ lane ^ lane >> 32).wrapping_mul(FACTOR);
    lanes.iter().fold(0, mix)
}

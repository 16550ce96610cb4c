//! Posting lists: their encoding, and the builder that collects the series of one list.
//!
//! ```text
//! list = 0 | runs varint | runs x (series since the run before varint | series less one varint)
//!      | 1 | series as an integer column
//!      | 2 | first series varint | bits varint | bitmap, from the first one on
//! ```
//!
//! The shortest encoding is used, and the first of those of equal length. A list of all series of
//! the block takes no bytes. The number of series is stored with the label or term that the list
//! belongs to.

use super::cache::BlockUnit;
use super::numbers;
use crate::encoding::DecodeError;
use crate::encoding::cursor::DecodeCursor;
use crate::encoding::push_uvarint;
use crate::encoding::varint::uvarint_len;
use crate::page::planner::IntRunPlanner;

const RUNS: u8 = 0;
const PACKED: u8 = 1;
const BITMAP: u8 = 2;

/// A builder of a posting list; series are appended in ascending order. It takes 48 bytes, plus two
/// or three bytes for each run except the last.
#[derive(Clone, Debug, Default)]
pub(crate) struct PostingsBuilder {
    count: u32,
    /// First series and end of the current run.
    start: u32,
    end: u32,
    /// End of the previous run, followed by the count and the encoding of all completed runs.
    last_end: u32,
    runs: u32,
    bytes: Vec<u8>,
}

impl PostingsBuilder {
    /// Appends a series, which must be greater than all series before it.
    #[inline]
    pub(crate) fn push(&mut self, series: u32) {
        if self.count > 0 && self.end == series {
            self.end += 1;
        } else {
            self.end_run();
            (self.start, self.end) = (series, series + 1);
        }
        self.count += 1;
    }

    /// Returns the number of series in the list.
    pub(crate) fn len(&self) -> u32 {
        self.count
    }

    fn end_run(&mut self) {
        if self.end > self.start {
            push_run(&mut self.bytes, self.last_end, self.start, self.end);
            self.runs += 1;
            self.last_end = self.end;
            self.start = self.end;
        }
    }

    /// Appends the list to `out` in its shortest encoding, for a block of `all` series.
    pub(crate) fn encode(mut self, all: u32, planner: &mut IntRunPlanner, out: &mut Vec<u8>) {
        if self.count == all {
            return;
        }
        self.end_run();
        let by_runs = 1 + uvarint_len(self.runs.into()) + self.bytes.len();
        // A run takes at least two bytes; a packed series takes a few bits or none.
        if self.runs > 2 {
            let series = self.list_series();
            let (first, last) = (series[0], series[series.len() - 1]);
            let bits = last - first + 1;
            let mut packed = vec![PACKED];
            numbers::push_numbers(&mut packed, planner, series.iter().map(|s| u64::from(*s)));
            let by_bits = uvarint_len(first.into()) + uvarint_len(bits.into());
            let by_bits = 1 + by_bits + bits.div_ceil(8) as usize;
            if packed.len() < by_runs && packed.len() <= by_bits {
                return out.extend_from_slice(&packed);
            }
            if by_bits < by_runs {
                return push_bitmap(out, &series, bits);
            }
        }
        out.push(RUNS);
        push_uvarint(out, self.runs.into());
        out.extend_from_slice(&self.bytes);
    }

    fn list_series(&self) -> Vec<u32> {
        let mut series = Vec::with_capacity(self.count as usize);
        let mut cursor = DecodeCursor::new(&self.bytes);
        let read = read_runs(&mut cursor, self.runs as usize, u32::MAX, &mut series);
        debug_assert!(read.is_ok());
        series
    }
}

fn push_run(out: &mut Vec<u8>, last_end: u32, start: u32, end: u32) {
    push_uvarint(out, (start - last_end).into());
    push_uvarint(out, (end - start - 1).into());
}

fn push_bitmap(out: &mut Vec<u8>, series: &[u32], bits: u32) {
    out.push(BITMAP);
    push_uvarint(out, series[0].into());
    push_uvarint(out, bits.into());
    let base = out.len();
    out.resize(base + bits.div_ceil(8) as usize, 0);
    for one in series {
        let bit = (one - series[0]) as usize;
        out[base + bit / 8] |= 1 << (bit % 8);
    }
}

/// A unit of consecutive posting lists, kept in encoded form.
#[derive(Debug)]
pub(crate) struct PostingsUnit(pub(crate) Vec<u8>);

impl BlockUnit for PostingsUnit {
    fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.0.len()
    }
}

/// Appends the `count` series of an encoded list of a block with `all` series. Rejects lists
/// that are not ascending or that contain more than `all` series, which also bounds the memory.
pub(crate) fn read_postings(
    bytes: &[u8],
    count: u32,
    all: u32,
    into: &mut Vec<u32>,
) -> Result<(), DecodeError> {
    if bytes.is_empty() && count == all {
        into.extend(0..all);
        return Ok(());
    }
    if count > all {
        return Err(DecodeError("list with more series than the block"));
    }
    let base = into.len();
    into.reserve(count as usize);
    let mut cursor = DecodeCursor::new(bytes);
    match cursor.read_byte()? {
        RUNS => {
            let runs = cursor.read_count(2)?;
            read_runs(&mut cursor, runs, all, into)?;
        }
        PACKED => {
            let series = numbers::read_numbers(&mut cursor, count as usize)?;
            for one in series {
                let one = u32::try_from(one).unwrap_or(u32::MAX);
                into.push(one);
            }
        }
        BITMAP => read_bitmap(&mut cursor, all, into)?,
        _ => return Err(DecodeError("unknown form of a list of series")),
    }
    let list = &into[base..];
    let is_sound = list.len() == count as usize
        && list.last().is_none_or(|last| *last < all)
        && list.is_sorted_by(|a, b| a < b);
    if is_sound && cursor.is_empty() {
        Ok(())
    } else {
        Err(DecodeError(
            "list whose number of series differs from its header",
        ))
    }
}

fn read_runs(
    cursor: &mut DecodeCursor<'_>,
    runs: usize,
    all: u32,
    into: &mut Vec<u32>,
) -> Result<(), DecodeError> {
    let outside = DecodeError("run of series that do not exist");
    let mut end = 0u64;
    for _ in 0..runs {
        let start = end.checked_add(cursor.read_uvarint()?).ok_or(outside)?;
        end = start.checked_add(cursor.read_uvarint()?).ok_or(outside)?;
        end = end.checked_add(1).ok_or(outside)?;
        if end > all.into() {
            return Err(outside);
        }
        into.extend(start as u32..end as u32);
    }
    Ok(())
}

fn read_bitmap(
    cursor: &mut DecodeCursor<'_>,
    all: u32,
    into: &mut Vec<u32>,
) -> Result<(), DecodeError> {
    let (first, bits) = (cursor.read_uvarint()?, cursor.read_uvarint()?);
    if first.checked_add(bits).is_none_or(|end| end > all.into()) {
        return Err(DecodeError("bitmap of series that do not exist"));
    }
    let bytes = cursor.read_bytes(bits.div_ceil(8) as usize)?;
    for (base, byte) in (first..).step_by(8).zip(bytes) {
        let mut left = *byte;
        while left != 0 {
            into.push((base + u64::from(left.trailing_zeros())) as u32);
            left &= left - 1;
        }
    }
    Ok(())
}

//! The index of the data pages of a block.
//!
//! ```text
//! unit = pages varint | first series | parts | files | offsets | lengths | first times | spans
//!      | crc32c u32 of each
//! ```
//!
//! The lists are integer columns. A page contains consecutive series, beginning with its first
//! series. If a series is too long for one page, it continues on the next one, whose entry then
//! contains the number of the part that it begins with.

use super::cache::BlockUnit;
use super::numbers;
use crate::encoding::DecodeError;
use crate::encoding::cursor::DecodeCursor;
use crate::encoding::push_uvarint;
use crate::page::planner::IntRunPlanner;
use firn_model::sample::TimeRange;

/// Maximum number of pages in a unit, which covers 32 MiB of data.
pub(crate) const UNIT_PAGES: usize = 512;

/// The location, checksum and content range of a data page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockPageEntry {
    /// Ordinal of its first series.
    pub(crate) first: u32,
    /// Number of the part of the first series that it begins with.
    pub(crate) part: u32,
    pub(crate) file: u32,
    pub(crate) offset: u64,
    pub(crate) bytes: u32,
    pub(crate) crc: u32,
    /// Time range of all samples in the page, both ends inclusive.
    pub(crate) range: TimeRange,
}

impl BlockPageEntry {
    /// Returns the key by which pages are ordered: its first series, then the part of that series.
    pub(crate) fn key(&self) -> u64 {
        page_key(self.first, self.part)
    }
}

/// Returns the key of a page that begins with this part of this series.
pub(crate) fn page_key(series: u32, part: u32) -> u64 {
    u64::from(series) << 32 | u64::from(part)
}

/// Encodes a unit of pages, which must be in ascending order of their keys.
pub(crate) fn encode_pages(pages: &[BlockPageEntry], planner: &mut IntRunPlanner) -> Vec<u8> {
    let mut out = Vec::new();
    push_uvarint(&mut out, pages.len() as u64);
    let mut list = |number: fn(&BlockPageEntry) -> u64| {
        numbers::push_numbers(&mut out, planner, pages.iter().map(number));
    };
    list(|page| page.first.into());
    list(|page| page.part.into());
    list(|page| page.file.into());
    list(|page| page.offset);
    list(|page| page.bytes.into());
    list(|page| page.range.min as u64);
    list(|page| page.range.max.wrapping_sub(page.range.min) as u64);
    for page in pages {
        out.extend_from_slice(&page.crc.to_le_bytes());
    }
    out
}

/// A decoded unit: the entries of consecutive pages.
#[derive(Debug)]
pub(crate) struct PagesUnit(Vec<BlockPageEntry>);

impl BlockUnit for PagesUnit {
    fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.0.len() * size_of::<BlockPageEntry>()
    }
}

impl PagesUnit {
    /// Decodes a unit. Rejects pages whose keys do not ascend.
    pub(crate) fn open(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut cursor = DecodeCursor::new(bytes);
        let count = cursor.read_count(4)?;
        let mut list = || numbers::read_numbers(&mut cursor, count).map(Vec::into_iter);
        let (mut firsts, mut parts, mut files) = (list()?, list()?, list()?);
        let (mut offsets, mut lengths) = (list()?, list()?);
        let (mut mins, mut spans) = (list()?, list()?);
        let next = |list: &mut std::vec::IntoIter<u64>| list.next().unwrap_or(0);
        let short =
            |number: u64| u32::try_from(number).map_err(|_| DecodeError("number too large"));
        let mut pages: Vec<BlockPageEntry> = Vec::with_capacity(count);
        for _ in 0..count {
            let min = next(&mut mins) as i64;
            let max = min.wrapping_add(next(&mut spans) as i64);
            let page = BlockPageEntry {
                first: short(next(&mut firsts))?,
                part: short(next(&mut parts))?,
                file: short(next(&mut files))?,
                offset: next(&mut offsets),
                bytes: short(next(&mut lengths))?,
                crc: cursor.read_number(4)? as u32,
                range: TimeRange::new(min, max),
            };
            if pages.last().is_some_and(|last| last.key() >= page.key()) {
                return Err(DecodeError("pages out of order"));
            }
            pages.push(page);
        }
        if cursor.is_empty() && count > 0 {
            Ok(Self(pages))
        } else {
            Err(DecodeError(
                "unit of pages whose length differs from its header",
            ))
        }
    }

    /// Returns the entries in ascending order of their keys.
    pub(crate) fn entries(&self) -> &[BlockPageEntry] {
        &self.0
    }
}

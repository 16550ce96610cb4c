//! The header of a page: the time range and slots of the page, and the positions of its sections.
//!
//! ```text
//! header  = "FIRNPAGE" | version u16 | flags u16 | sections u32 | bytes of the page u64
//!         | log from u64 | log to u64 | first time i64 | last time i64
//!         | first slot u32 | last slot u32 | columns u32 | era u32 | samples u64
//!         | section* | crc32c u32 of all before
//! section = kind u16 | flags u16 (bit 0: optional) | crc32c u32 | offset u64 | bytes u64
//! ```
//!
//! The era is the upper half of all slots of a page; the slot fields contain the lower half.
//!
//! The checksum of the data section is zero, because each stripe has its own. A reader rejects a
//! page with an unknown section, unless the section is optional.

use crate::encoding::DecodeError;
use crate::encoding::cursor::DecodeCursor;
use crate::failpoints::{self, StoreFlaw};
use crate::ids::SeriesSlot;
use firn_model::log::LogPosition;
use firn_model::sample::{TimeRange, TimestampMs};
use std::ops::{Range, RangeInclusive};

const MAGIC: &[u8; 8] = b"FIRNPAGE";

/// The only version that can be read.
const VERSION: u16 = 1;

/// Bytes of the header before its list of sections.
const FIXED_BYTES: usize = 80;

const SECTION_BYTES: usize = 24;

/// Maximum number of sections, with room for future ones.
const SECTIONS_MAX: usize = 64;

/// Kind of the directory section, which lists the series and their columns.
pub(super) const DIRECTORY: u16 = 1;

/// Kind of the data section, which contains the stripes.
pub(super) const DATA: u16 = 2;

/// Flag of a section that readers may skip if they do not support it.
const OPTIONAL: u16 = 1;

/// The part of the log that a page covers. Queries do not use it. Repair uses it if the directory
/// of the page's segment, which contains the same positions, is damaged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogSpan {
    /// Samples of log records before this position are in earlier pages, not in this one.
    pub log_from: LogPosition,
    /// The last log record whose samples may be in the page.
    pub log_to: LogPosition,
}

/// The header without the fields that follow from the sections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PageHeader {
    pub(super) meta: LogSpan,
    pub(super) range: TimeRange,
    /// The first and the last slot, of one era.
    pub(super) slots: RangeInclusive<SeriesSlot>,
    pub(super) columns: u32,
    pub(super) samples: u64,
}

/// The decoded header of a page, with the positions of its two sections.
#[derive(Clone, Debug)]
pub(super) struct DecodedPageHeader {
    pub(super) header: PageHeader,
    pub(super) directory: Range<usize>,
    pub(super) data: Range<usize>,
}

/// Returns the era of a slot, which is its upper half.
pub(super) fn slot_era(slot: SeriesSlot) -> u32 {
    (slot.0 >> u32::BITS) as u32
}

/// Assembles a page from its header and its encoded sections.
pub(super) fn assemble_page(header: &PageHeader, directory: &[u8], data: &[u8]) -> Vec<u8> {
    let head_bytes = FIXED_BYTES + 2 * SECTION_BYTES + 4;
    let bytes = head_bytes + directory.len() + data.len();
    let mut out = Vec::with_capacity(bytes);
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.extend_from_slice(&0u16.to_le_bytes());
    out.extend_from_slice(&2u32.to_le_bytes());
    let PageHeader {
        meta,
        range,
        slots,
        columns,
        samples,
    } = header;
    for n in [
        bytes as u64,
        meta.log_from.0,
        meta.log_to.0,
        range.min as u64,
        range.max as u64,
    ] {
        out.extend_from_slice(&n.to_le_bytes());
    }
    let [first, last] = [slots.start(), slots.end()].map(|slot| slot.0 as u32);
    for n in [first, last, *columns, slot_era(*slots.start())] {
        out.extend_from_slice(&n.to_le_bytes());
    }
    out.extend_from_slice(&samples.to_le_bytes());
    let mut offset = head_bytes as u64;
    for (kind, crc, section) in [
        (DIRECTORY, crc32c::crc32c(directory), directory),
        (DATA, 0, data),
    ] {
        out.extend_from_slice(&kind.to_le_bytes());
        out.extend_from_slice(&0u16.to_le_bytes());
        out.extend_from_slice(&crc.to_le_bytes());
        out.extend_from_slice(&offset.to_le_bytes());
        out.extend_from_slice(&(section.len() as u64).to_le_bytes());
        offset += section.len() as u64;
    }
    let crc = crc32c::crc32c(&out);
    out.extend_from_slice(&crc.to_le_bytes());
    out.extend_from_slice(directory);
    out.extend_from_slice(data);
    out
}

/// Returns the number of samples according to the header, without a check of any checksum.
pub(crate) fn peek_sample_count(page: &[u8]) -> Option<u64> {
    let mut cursor = DecodeCursor::new(page);
    if cursor.read_bytes(8).ok()? != MAGIC {
        return None;
    }
    // Version, flags, sections and length.
    cursor.read_bytes(2 + 2 + 4 + 8).ok()?;
    Some(read_header(&mut cursor).ok()?.samples)
}

/// Reads the header of a page, which must be all of `page`, and verifies the checksums of the
/// header and of all required sections.
pub(super) fn open_header(page: &[u8]) -> Result<DecodedPageHeader, DecodeError> {
    let mut cursor = DecodeCursor::new(page);
    if cursor.read_bytes(8)? != MAGIC {
        return Err(DecodeError("not a page"));
    }
    if cursor.read_number(2)? != u64::from(VERSION) {
        return Err(DecodeError("page of an unknown version"));
    }
    let flags = cursor.read_number(2)?;
    let sections = cursor.read_number(4)? as usize;
    if sections > SECTIONS_MAX {
        return Err(DecodeError("page with too many sections"));
    }
    let checked = FIXED_BYTES + sections * SECTION_BYTES;
    let (head, rest) = page
        .split_at_checked(checked)
        .ok_or(DecodeError("page shorter than its header"))?;
    if rest.first_chunk() != Some(&crc32c::crc32c(head).to_le_bytes()) {
        return Err(DecodeError("page header fails its checksum"));
    }
    if flags != 0 {
        return Err(DecodeError("page with unknown flags"));
    }
    if cursor.read_u64()? != page.len() as u64 {
        return Err(DecodeError("page whose length differs from its header"));
    }
    let header = read_header(&mut cursor)?;
    let (mut directory, mut data) = (None, None);
    for _ in 0..sections {
        let section = PageSection::read(&mut cursor, checked + 4, page.len())?;
        match section.kind {
            DIRECTORY if directory.is_none() => {
                let bytes = &page[section.range.clone()];
                if crc32c::crc32c(bytes) != section.crc {
                    return Err(DecodeError("page directory fails its checksum"));
                }
                directory = Some(section.range);
            }
            DATA if data.is_none() => data = Some(section.range),
            _ if section.flags & OPTIONAL != 0 => (),
            _ => return Err(DecodeError("page with an unknown section")),
        }
    }
    Ok(DecodedPageHeader {
        header,
        directory: directory.ok_or(DecodeError("page without a directory"))?,
        data: data.ok_or(DecodeError("page without data"))?,
    })
}

/// Decodes the fixed fields after the length of the page, without the sections.
fn read_header(cursor: &mut DecodeCursor<'_>) -> Result<PageHeader, DecodeError> {
    let meta = LogSpan {
        log_from: LogPosition(cursor.read_u64()?),
        log_to: LogPosition(cursor.read_u64()?),
    };
    let first: TimestampMs = cursor.read_u64()? as i64;
    let last: TimestampMs = cursor.read_u64()? as i64;
    let (first_slot, last_slot) = (cursor.read_number(4)?, cursor.read_number(4)?);
    let columns = cursor.read_number(4)? as u32;
    let mut era = cursor.read_number(4)? << u32::BITS;
    if failpoints::has(StoreFlaw::IgnoresEra) {
        era = 0;
    }
    Ok(PageHeader {
        meta,
        range: TimeRange::new(first, last),
        slots: SeriesSlot(era | first_slot)..=SeriesSlot(era | last_slot),
        columns,
        samples: cursor.read_u64()?,
    })
}

/// A section in the header: its kind, flags, checksum and range in the page.
struct PageSection {
    kind: u16,
    flags: u16,
    crc: u32,
    range: Range<usize>,
}

impl PageSection {
    /// Reads the position of a section and checks that it is after the header and within the page.
    fn read(cursor: &mut DecodeCursor<'_>, min: usize, max: usize) -> Result<Self, DecodeError> {
        let kind = cursor.read_number(2)? as u16;
        let flags = cursor.read_number(2)? as u16;
        let crc = cursor.read_number(4)? as u32;
        let outside = DecodeError("page section outside of the page");
        let start = usize::try_from(cursor.read_u64()?).map_err(|_| outside)?;
        let bytes = usize::try_from(cursor.read_u64()?).map_err(|_| outside)?;
        let end = start.checked_add(bytes).ok_or(outside)?;
        if start < min || end > max {
            return Err(outside);
        }
        Ok(Self {
            kind,
            flags,
            crc,
            range: start..end,
        })
    }
}

//! Reads the records of WAL segments (`tsdb/wlog/reader.go`).
//!
//! ```text
//! segment  = pages of 32 KiB; the last may be truncated
//! page     = { fragment }* | zeros
//! fragment = kind and compression u8 | length u16 | CRC-32C | data
//! kind     = 0 zeros to the end of the page | 1 a complete record | 2 its first part
//!          | 3 a middle one | 4 its last; + 8 compressed by snappy, + 16 by zstd
//! ```
//!
//! A killed process may leave a last page that is truncated or half written. In the last segment of
//! a log that is not empty, the log ends there and [`WalReader::torn_end`] returns the position.
//! Anywhere else it is an error.

use super::compression::WalCompression;
use crate::bytes::{TsdbByteCursor, checksum};
use crate::error::{MalformedTsdbBytes, TsdbError};
use crate::ranges::{FileReadWindow, NamedRangeFile, ReadRanges};

/// Size of a page in bytes.
pub(super) const PAGE_BYTES: u64 = 32 << 10;

/// Size of the header of a fragment in bytes.
pub(super) const HEADER_BYTES: u64 = 7;

/// Whether the last segment may end in the middle of a record, which depends on how the segments
/// were created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WalTailPolicy {
    /// Allowed: the log of a process that may have been killed.
    MayBeTorn,
    /// Not allowed: a checkpoint, which gets its name only when it is complete.
    IsWhole,
}

/// Reads the records of consecutive segments in order, decompressed and with verified checksums.
/// Records are opaque here; `Entries` decodes them.
#[derive(Debug)]
pub struct WalReader<'s, R> {
    segments: &'s [NamedRangeFile<R>],
    tail: WalTailPolicy,
    segment: usize,
    offset: u64,
    window: FileReadWindow,
    /// Offset of the first byte of the current record.
    start: u64,
    packed: Vec<u8>,
    is_open: bool,
    record: Vec<u8>,
    torn: Option<(&'s str, u64)>,
}

/// The content at an offset of a segment: padding or a fragment.
enum WalFragment {
    /// Zeros, up to the end of the page or of the segment.
    Zeros(u64),
    /// A part of a record, and its size in bytes.
    Fragment { kind: u8, packing: u8, bytes: u64 },
}

impl<'s, R: ReadRanges> WalReader<'s, R> {
    /// Returns a reader before the first record; the segments must be sorted by number.
    pub fn new(segments: &'s [NamedRangeFile<R>], tail: WalTailPolicy) -> Self {
        Self {
            segments,
            tail,
            segment: 0,
            offset: 0,
            window: FileReadWindow::default(),
            start: 0,
            packed: Vec::new(),
            is_open: false,
            record: Vec::new(),
            torn: None,
        }
    }

    /// Returns the next record, or `None` at the end. Fails at damage that a crash cannot have
    /// caused.
    pub fn next_record(&mut self) -> Result<Option<&[u8]>, TsdbError> {
        let segments = self.segments;
        while let Some(file) = segments.get(self.segment) {
            let is_read = match self.advance_fragment(file) {
                Ok(is_read) => is_read,
                Err(error) => {
                    self.end_torn(file, error)?;
                    return Ok(None);
                }
            };
            if is_read {
                return Ok(Some(&self.record));
            }
        }
        Ok(None)
    }

    /// Returns the file and the offset at which the last segment ends in the middle of a record;
    /// known only after the last record.
    pub fn torn_end(&self) -> Option<(&'s str, u64)> {
        self.torn
    }

    /// Returns an error for the record that was read last. It contains the file and the offset of
    /// the record.
    pub fn damage_error(&self, error: MalformedTsdbBytes) -> TsdbError {
        match self.segments.get(self.segment) {
            Some(file) => file.damage_error(self.start, error),
            None => TsdbError::Refused(error.to_string()),
        }
    }

    /// Reads the next piece; returns whether it completes a record. Fails at damage.
    fn advance_fragment(&mut self, file: &NamedRangeFile<R>) -> Result<bool, TsdbError> {
        if self.offset >= file.len() {
            if self.is_open {
                let what = "the last record of the segment is not complete";
                return Err(file.damage_error(self.start, what));
            }
            self.segment += 1;
            self.offset = 0;
            self.window.clear();
            return Ok(false);
        }
        let offset = self.offset;
        let damaged = |error: MalformedTsdbBytes| file.damage_error(offset, error);
        let (kind, packing, bytes) = match read_fragment(file, &mut self.window, offset)? {
            WalFragment::Zeros(bytes) => {
                self.offset += bytes;
                return Ok(false);
            }
            WalFragment::Fragment {
                kind,
                packing,
                bytes,
            } => (kind, packing, bytes),
        };
        let begins = matches!(kind, 1 | 2);
        if begins == self.is_open || kind > 4 {
            let what =
                MalformedTsdbBytes::Invalid("a fragment of a record is not where it belongs");
            return Err(damaged(what));
        }
        if begins {
            self.packed.clear();
            self.start = offset;
        }
        let data = self.window.get(file, offset + HEADER_BYTES, bytes)?;
        self.packed.extend_from_slice(data);
        self.offset = offset + HEADER_BYTES + bytes;
        self.is_open = matches!(kind, 2 | 3);
        if self.is_open {
            return Ok(false);
        }
        let packing = WalCompression::from_header(packing);
        let unpacked = packing.decompress(&self.packed, &mut self.record);
        unpacked.map_err(|error| file.damage_error(self.start, error))?;
        Ok(true)
    }

    /// Ends the walk before the damage if a crash can have caused it; otherwise returns the error.
    fn end_torn(&mut self, file: &'s NamedRangeFile<R>, error: TsdbError) -> Result<(), TsdbError> {
        let TsdbError::Damaged { offset, .. } = &error else {
            return Err(error);
        };
        let last_page = file.len().saturating_sub(1) / PAGE_BYTES;
        let is_at_end = self.offset / PAGE_BYTES >= last_page;
        let mut behind = self.segments.iter().skip(self.segment + 1);
        let is_last = behind.all(NamedRangeFile::is_empty);
        if self.tail == WalTailPolicy::IsWhole || !is_last || !is_at_end {
            return Err(error);
        }
        let start = if self.is_open { self.start } else { *offset };
        self.torn = Some((file.name(), start));
        self.segment = self.segments.len();
        Ok(())
    }
}

/// Reads the piece at `offset`, verifies its checksum and makes sure that its data is in the
/// window.
fn read_fragment<R: ReadRanges>(
    file: &NamedRangeFile<R>,
    window: &mut FileReadWindow,
    offset: u64,
) -> Result<WalFragment, TsdbError> {
    let damaged = |error: MalformedTsdbBytes| file.damage_error(offset, error);
    let page_left = PAGE_BYTES - offset % PAGE_BYTES;
    let page = window.get_up_to(file, offset, page_left)?;
    let mut cursor = TsdbByteCursor::new(page);
    let head = cursor.read_byte().map_err(damaged)?;
    let kind = head & 7;
    if kind == 0 {
        return if page.iter().all(|byte| *byte == 0) {
            Ok(WalFragment::Zeros(page.len() as u64))
        } else {
            Err(damaged(MalformedTsdbBytes::Invalid(
                "padding of a page is not zero",
            )))
        };
    }
    let length = cursor.take(2).map_err(damaged)?;
    let length = length
        .iter()
        .fold(0, |sum, byte| sum << 8 | usize::from(*byte));
    let sum = cursor.read_be32().map_err(damaged)?;
    let data = cursor.take(length).map_err(damaged)?;
    if checksum(data) != sum {
        return Err(damaged(MalformedTsdbBytes::Invalid("the checksum differs")));
    }
    Ok(WalFragment::Fragment {
        kind,
        packing: head,
        bytes: length as u64,
    })
}

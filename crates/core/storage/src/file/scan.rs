//! Scans the frames of a file with untrusted contents.
//!
//! A [`FrameScanner`] returns valid frames and, between them, damaged ranges; after a damaged
//! header it searches every offset for the next valid one. Sectors that the disk cannot read count
//! as damage too. Memory is one window or the largest frame, and never exceeds the size of the
//! file. The caller decides whether damage is a torn tail or a loss.

use super::frame::{FRAME_HEADER_BYTES, FrameHeader, FramePlace, decode_header};
use firn_model::env::DiskFile;
use firn_model::log::LogPosition;
use std::ops::Range;
use std::sync::Arc;

/// Bytes read at once: large enough to make the cost of system calls negligible, small enough for a
/// cache.
const WINDOW_BYTES: usize = 256 << 10;

/// Unit in which unreadable ranges are skipped.
const SECTOR_BYTES: usize = 4096;

/// One result of a [`FrameScanner`]: the next valid frame, or a damaged range in its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FrameScanItem {
    /// A valid frame, whose header and payload match their checksums.
    Frame {
        /// Offset of its header in the file.
        offset: u64,
        /// Its decoded header. The payload has a valid checksum, too.
        header: FrameHeader,
    },
    /// A range of bytes that is not a valid frame.
    Damage(Range<u64>),
}

/// Iterates over the frames and damaged ranges of a file.
pub(crate) struct FrameScanner {
    file: Arc<dyn DiskFile>,
    first: LogPosition,
    at: u64,
    end: u64,
    window: Vec<u8>,
    window_start: u64,
    unreadable: bool,
}

impl FrameScanner {
    /// Returns a scanner over `range` of `file`, whose first position is `first`. The range must
    /// end at or before the end of the file.
    pub(crate) fn new(file: Arc<dyn DiskFile>, first: LogPosition, range: Range<u64>) -> Self {
        Self {
            file,
            first,
            at: range.start,
            end: range.end,
            window: Vec::new(),
            window_start: range.start,
            unreadable: false,
        }
    }

    /// Returns whether the disk has failed to read some bytes so far.
    pub(crate) fn unreadable(&self) -> bool {
        self.unreadable
    }

    /// Returns the next frame or damaged range; `None` at the end.
    pub(crate) fn next(&mut self) -> Option<FrameScanItem> {
        let start = self.at;
        if start >= self.end {
            return None;
        }
        let Some(header) = self.read_header(start) else {
            self.at = self.resynchronise(start + 1);
            return Some(FrameScanItem::Damage(start..self.at));
        };
        let frame_end = start + header.frame_bytes();
        if frame_end > self.end {
            self.at = self.end;
            return Some(FrameScanItem::Damage(start..self.end));
        }
        self.at = frame_end;
        if crc32c::crc32c(self.payload(start, &header)) == header.payload_crc {
            Some(FrameScanItem::Frame {
                offset: start,
                header,
            })
        } else {
            Some(FrameScanItem::Damage(start..frame_end))
        }
    }

    /// Returns the payload of a frame that this scanner found.
    pub(crate) fn payload(&mut self, offset: u64, header: &FrameHeader) -> &[u8] {
        self.window_bytes(
            offset + FRAME_HEADER_BYTES as u64,
            header.payload_bytes as usize,
        )
    }

    /// Returns the first offset from `from` on with a valid header, or the end.
    fn resynchronise(&mut self, from: u64) -> u64 {
        (from..self.end)
            .find(|offset| self.read_header(*offset).is_some())
            .unwrap_or(self.end)
    }

    fn read_header(&mut self, offset: u64) -> Option<FrameHeader> {
        if self.end - offset < FRAME_HEADER_BYTES as u64 {
            return None;
        }
        let first = self.first;
        let bytes = self.window_bytes(offset, FRAME_HEADER_BYTES);
        decode_header(FramePlace { first, offset }, bytes.try_into().ok()?)
    }

    /// Returns `count` bytes at `offset`, which must be before the end.
    fn window_bytes(&mut self, offset: u64, count: usize) -> &[u8] {
        let window_end = self.window_start + self.window.len() as u64;
        if offset < self.window_start || offset + count as u64 > window_end {
            self.load(offset, count);
        }
        let start = (offset - self.window_start) as usize;
        &self.window[start..start + count]
    }

    /// Moves the window to contain `count` bytes at `offset`. It begins at a sector boundary, so
    /// that an unreadable sector affects no other one.
    fn load(&mut self, offset: u64, count: usize) {
        let start = offset - offset % SECTOR_BYTES as u64;
        let least = (offset - start) as usize + count;
        let bytes = (self.end - start).min(WINDOW_BYTES.max(least) as u64) as usize;
        self.window.clear();
        self.window.resize(bytes, 0);
        self.window_start = start;
        match self.file.read_at(start, &mut self.window) {
            Ok(read) => self.unreadable |= read < bytes,
            Err(_) => self.load_by_sector(),
        }
    }

    /// Reads the window sector by sector. Unreadable sectors stay zero, which no checksum accepts.
    fn load_by_sector(&mut self) {
        let mut offset = self.window_start;
        for sector in self.window.chunks_mut(SECTOR_BYTES) {
            sector.fill(0);
            let read = self.file.read_at(offset, sector).unwrap_or(0);
            self.unreadable |= read < sector.len();
            offset += sector.len() as u64;
        }
    }
}

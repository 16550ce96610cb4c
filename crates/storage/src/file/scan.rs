//! Walks the frames of a file whose bytes are not to be trusted.
//!
//! A [`Scanner`] yields sound frames and, between them, stretches of damage; behind a damaged
//! header it looks at every offset for the next sound one. Sectors that the disk cannot read count
//! as damage too. Memory is one window or the largest frame, and never more than the file holds.
//! What damage means (torn tail or loss) is for the caller to say.

use super::frame::{FRAME_HEADER_BYTES, FrameHeader, Place, decode_header};
use firn_model::env::File;
use firn_model::log::Position;
use std::ops::Range;
use std::sync::Arc;

/// Bytes read at once: large enough that system calls do not show, small enough for a cache.
const WINDOW_BYTES: usize = 256 << 10;

/// The unit in which unreadable stretches are skipped.
const SECTOR_BYTES: usize = 4096;

/// One step of a [`Scanner`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// A sound frame.
    Frame {
        /// Where its header begins.
        offset: u64,
        /// The header.
        header: FrameHeader,
    },
    /// Bytes that are no frame.
    Damage(Range<u64>),
}

/// See the module.
pub(crate) struct Scanner {
    file: Arc<dyn File>,
    first: Position,
    at: u64,
    end: u64,
    window: Vec<u8>,
    window_start: u64,
    unreadable: bool,
}

impl Scanner {
    /// Walks `range` of `file`, whose first position is `first`. The range ends at or before the
    /// end of the file.
    pub(crate) fn new(file: Arc<dyn File>, first: Position, range: Range<u64>) -> Self {
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

    /// Whether the disk failed to deliver some bytes so far.
    pub(crate) fn unreadable(&self) -> bool {
        self.unreadable
    }

    /// The next frame or stretch of damage; `None` at the end.
    pub(crate) fn next(&mut self) -> Option<Found> {
        let start = self.at;
        if start >= self.end {
            return None;
        }
        let Some(header) = self.header_at(start) else {
            self.at = self.resynchronise(start + 1);
            return Some(Found::Damage(start..self.at));
        };
        let frame_end = start + header.frame_bytes();
        if frame_end > self.end {
            self.at = self.end;
            return Some(Found::Damage(start..self.end));
        }
        self.at = frame_end;
        if crc32c::crc32c(self.payload(start, &header)) == header.payload_crc {
            Some(Found::Frame {
                offset: start,
                header,
            })
        } else {
            Some(Found::Damage(start..frame_end))
        }
    }

    /// The payload of a frame that this scanner found.
    pub(crate) fn payload(&mut self, offset: u64, header: &FrameHeader) -> &[u8] {
        self.view(
            offset + FRAME_HEADER_BYTES as u64,
            header.payload_bytes as usize,
        )
    }

    /// The first offset from `from` on where a sound header stands, or the end.
    fn resynchronise(&mut self, from: u64) -> u64 {
        (from..self.end)
            .find(|offset| self.header_at(*offset).is_some())
            .unwrap_or(self.end)
    }

    fn header_at(&mut self, offset: u64) -> Option<FrameHeader> {
        if self.end - offset < FRAME_HEADER_BYTES as u64 {
            return None;
        }
        let first = self.first;
        let bytes = self.view(offset, FRAME_HEADER_BYTES);
        decode_header(Place { first, offset }, bytes.try_into().ok()?)
    }

    /// `count` bytes at `offset`, which lie before the end.
    fn view(&mut self, offset: u64, count: usize) -> &[u8] {
        let window_end = self.window_start + self.window.len() as u64;
        if offset < self.window_start || offset + count as u64 > window_end {
            self.load(offset, count);
        }
        let start = (offset - self.window_start) as usize;
        &self.window[start..start + count]
    }

    /// Moves the window over `count` bytes at `offset`. It begins with a sector, so that an
    /// unreadable one costs no more than itself.
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

    /// Reads what can be read; the rest stays zero, which no checksum accepts.
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

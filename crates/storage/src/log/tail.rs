//! The blocks of a log from a position on, for a reader that has other things to do in between.

use super::segment::{Reader, SegmentInfo};
use super::{LocalLog, LogBlock};
use crate::error::StorageError;
use firn_model::error::Error;
use firn_model::log::Position;

/// See the module. It walks the segments that were there when it began.
pub(crate) struct Tail<'a> {
    log: &'a LocalLog,
    from: Position,
    segments: std::vec::IntoIter<SegmentInfo>,
    reader: Option<Reader>,
}

impl<'a> Tail<'a> {
    pub(super) fn new(log: &'a LocalLog, from: Position) -> Self {
        let mut segments = log.segments();
        segments.retain(|s| s.next.is_none_or(|next| next > from));
        Self {
            log,
            from,
            segments: segments.into_iter(),
            reader: None,
        }
    }

    /// The next block; damage is an `Err` item at its place, and reading goes on behind it. `None`
    /// at the end. A segment that cannot be opened at all is an error of the call.
    pub(crate) fn next(&mut self) -> Result<Option<Result<LogBlock, StorageError>>, Error> {
        loop {
            if let Some(reader) = &mut self.reader {
                match self.log.next_block(reader) {
                    Some(Ok(block)) if block.position < self.from => continue,
                    Some(item) => return Ok(Some(item)),
                    None => self.reader = None,
                }
            }
            let Some(segment) = self.segments.next() else {
                return Ok(None);
            };
            self.reader = Some(self.log.open_segment(segment)?);
        }
    }
}

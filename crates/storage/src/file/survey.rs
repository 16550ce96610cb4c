//! What a file of frames holds after a stop of any kind: where it ends, and what of it must be made
//! durable again before anything is promised on top of it.
//!
//! The rule: a frame says how far its file was durable when it was written. Damage at or below that
//! mark in any sound frame is loss of durable data, reported when the file is read. The first
//! damage above every mark is the torn tail of a group that was never acknowledged: the file ends
//! there, also if later frames of that group survived, because what they build on is gone.

use super::frame::FrameKind;
use super::header::FILE_HEADER_BYTES;
use super::scan::{Found, Scanner};
use crate::error::is_disk_fault;
use firn_model::env::File;
use firn_model::log::Position;
use std::ops::Range;
use std::sync::Arc;

/// Bytes copied at once when a tail is written again.
const COPY_BYTES: usize = 1 << 20;

/// Cuts the file at its end and makes the rest durable. The part that no later frame vouches for is
/// written again first.
pub(crate) fn make_durable(file: &dyn File, survey: &Survey) -> std::io::Result<()> {
    if file.len()? != survey.end {
        file.set_len(survey.end)?;
    }
    write_again(file, survey.durable_end..survey.end)
}

/// Writes a part of a file as it is there and syncs it: after a failed sync the system may hold it
/// in memory, call it clean and never write it. What the disk does not deliver is not held in
/// memory, and is passed over.
pub(crate) fn write_again(file: &dyn File, part: Range<u64>) -> std::io::Result<()> {
    let mut buffer = vec![0; COPY_BYTES];
    let mut offset = part.start;
    while offset < part.end {
        let count = buffer.len().min((part.end - offset) as usize);
        match file.read_at(offset, &mut buffer[..count]) {
            Ok(read) if read < count => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => file.write_all_at(offset, &buffer[..count])?,
            Err(e) if is_disk_fault(&e) => {}
            Err(e) => return Err(e),
        }
        offset += count as u64;
    }
    file.sync_data()
}

/// A file after a look at all its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Survey {
    /// Where it ends: the offset after the last frame that counts.
    pub(crate) end: u64,
    /// The position of that frame; the one before the file's first if there is none.
    pub(crate) last: Position,
    /// Bytes from here to `end` are vouched for by no later frame.
    pub(crate) durable_end: u64,
    /// Whole frames in the torn tail.
    pub(crate) torn_frames: u64,
    /// The disk failed to deliver bytes, so nothing can be said about the tail.
    pub(crate) unreadable: bool,
    /// Bytes before the end that were durable and are no frame.
    pub(crate) damaged_bytes: u64,
}

/// Looks at the first `bytes` of the file that begins with `first`, of which `durable_bytes` are
/// known to have been durable: damage there is no torn tail.
pub(crate) fn survey(
    file: Arc<dyn File>,
    first: Position,
    bytes: u64,
    durable_bytes: u64,
) -> Survey {
    let before_first = first.previous();
    let durable = newest_mark(file.clone(), first, bytes).max(before_first);
    let mut survey = Survey {
        end: FILE_HEADER_BYTES,
        last: before_first,
        durable_end: if durable > before_first {
            FILE_HEADER_BYTES
        } else {
            0
        },
        torn_frames: 0,
        unreadable: false,
        damaged_bytes: 0,
    };
    let mut damaged = 0;
    let mut torn = false;
    let mut scanner = Scanner::new(file, first, FILE_HEADER_BYTES..bytes);
    while let Some(found) = scanner.next() {
        let (offset, header) = match found {
            Found::Frame { offset, header } => (offset, header),
            Found::Damage(range) => {
                torn |= survey.last >= durable && range.start >= durable_bytes;
                damaged += range.end - range.start;
                if !torn && range.start < durable_bytes {
                    survey.end = range.end.min(durable_bytes);
                    survey.damaged_bytes = damaged;
                }
                continue;
            }
        };
        let expected = match header.kind {
            // Padding has the position of the frame before, or of the next one: then it only says
            // that all before is durable.
            FrameKind::Padding if header.position == survey.last => survey.last,
            _ => survey.last.next(),
        };
        let is_behind = survey.last >= durable && offset >= durable_bytes;
        torn |= header.position != expected && is_behind;
        if torn {
            survey.torn_frames += u64::from(header.kind != FrameKind::Padding);
            continue;
        }
        survey.end = offset + header.frame_bytes();
        survey.damaged_bytes = damaged;
        if header.kind != FrameKind::Padding {
            survey.last = survey.last.max(header.position);
        }
        if header.position <= durable {
            survey.durable_end = survey.end;
        }
    }
    // Those positions were given, whatever is left of their frames.
    survey.last = survey.last.max(durable);
    survey.unreadable = scanner.unreadable();
    survey
}

/// The newest position that some sound frame says was durable before it.
fn newest_mark(file: Arc<dyn File>, first: Position, bytes: u64) -> Position {
    let mut newest = Position(0);
    let mut scanner = Scanner::new(file, first, FILE_HEADER_BYTES..bytes);
    while let Some(found) = scanner.next() {
        if let Found::Frame { header, .. } = found {
            newest = newest.max(header.durable_before());
        }
    }
    newest
}

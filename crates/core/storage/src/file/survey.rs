//! Survey of a file of frames after a stop or crash: determines where it ends, and which part must
//! be made durable again before more is written.
//!
//! Each frame contains a mark: the position up to which its file was durable when it was written.
//! Damage at or below the mark of any valid frame is a loss of durable data, which is reported when
//! the file is read. The first damage above every mark is the torn tail of a group that was never
//! acknowledged. The file ends there, even if later frames of that group survived, because frames
//! that they depend on are lost.

use super::frame::FrameKind;
use super::header::FILE_HEADER_BYTES;
use super::scan::{FrameScanItem, FrameScanner};
use crate::error::is_disk_fault;
use firn_model::env::DiskFile;
use firn_model::log::LogPosition;
use std::ops::Range;
use std::sync::Arc;

/// Bytes copied at once when a tail is rewritten.
const COPY_BYTES: usize = 1 << 20;

/// Cuts the file at its end and makes the rest durable. The part that is above the marks of all
/// frames is rewritten first.
pub(crate) fn make_durable(file: &dyn DiskFile, survey: &FileSurvey) -> std::io::Result<()> {
    if file.len()? != survey.end {
        file.set_len(survey.end)?;
    }
    rewrite_range(file, survey.durable_end..survey.end)
}

/// Rewrites a part of a file in place and syncs it: after a failed sync the system may hold the
/// data in memory, treat it as clean and never write it. Parts that the disk cannot read are not in
/// memory, and are skipped.
pub(crate) fn rewrite_range(file: &dyn DiskFile, part: Range<u64>) -> std::io::Result<()> {
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

/// Result of reading all bytes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileSurvey {
    /// Offset after the last valid frame, at which the file ends.
    pub(crate) end: u64,
    /// Position of that frame; the one before the file's first if there is none.
    pub(crate) last: LogPosition,
    /// Offset from which on no later frame marks the bytes as durable.
    pub(crate) durable_end: u64,
    /// Number of complete frames in the torn tail.
    pub(crate) torn_frames: u64,
    /// True if the disk failed to read some bytes, so that the state of the tail is unknown.
    pub(crate) unreadable: bool,
    /// Number of bytes before the end that were durable and are not valid frames.
    pub(crate) damaged_bytes: u64,
}

/// Surveys the first `bytes` of a file whose first position is `first`. At least `durable_bytes` of
/// it were durable: damage in them is not a torn tail.
pub(crate) fn survey(
    file: Arc<dyn DiskFile>,
    first: LogPosition,
    bytes: u64,
    durable_bytes: u64,
) -> FileSurvey {
    let before_first = first.previous();
    let durable = newest_mark(file.clone(), first, bytes).max(before_first);
    let mut survey = FileSurvey {
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
    let mut scanner = FrameScanner::new(file, first, FILE_HEADER_BYTES..bytes);
    while let Some(found) = scanner.next() {
        let (offset, header) = match found {
            FrameScanItem::Frame { offset, header } => (offset, header),
            FrameScanItem::Damage(range) => {
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
            // Padding has the position of the previous frame, or of the next one: then it only
            // marks everything before it as durable.
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
    // These positions were assigned, even if their frames are lost.
    survey.last = survey.last.max(durable);
    survey.unreadable = scanner.unreadable();
    survey
}

/// Returns the newest position that any valid frame marks as durable.
fn newest_mark(file: Arc<dyn DiskFile>, first: LogPosition, bytes: u64) -> LogPosition {
    let mut newest = LogPosition(0);
    let mut scanner = FrameScanner::new(file, first, FILE_HEADER_BYTES..bytes);
    while let Some(found) = scanner.next() {
        if let FrameScanItem::Frame { header, .. } = found {
            newest = newest.max(header.durable_before());
        }
    }
    newest
}

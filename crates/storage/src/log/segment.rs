//! Segment files of the log: their names, their properties, and a reader.
//!
//! A segment is named after its first position, `00000000000000000001.wal`. Its positions ascend
//! without a gap, and the first position of the next segment follows its last one. Every segment
//! except the newest one is fully durable, because the log syncs a segment before it creates the
//! next one.

use super::delta_codec::DeltaDecoder;
use super::record::{self, PlainValues};
use crate::encoding::Malformed;
use crate::error::StorageError;
use crate::file::frame::{FrameHeader, FrameKind};
use crate::file::header::{self, FILE_HEADER_BYTES, HeaderState, SEGMENT_MAGIC};
use crate::file::scan::{Found, Scanner};
use firn_model::env::{Disk, File, OpenMode};
use firn_model::log::{LogRecord, Position};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const SUFFIX: &str = ".wal";

/// A segment at the time when [`LocalLog::segments`](super::local::LocalLog::segments) was called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentInfo {
    /// Path of the file of the segment.
    pub path: PathBuf,
    /// Position of its first record.
    pub first: Position,
    /// Position after its last record, if more segments follow. Records that are absent before it
    /// are reported as missing.
    pub next: Option<Position>,
    /// Number of readable bytes; the newest segment may grow beyond them.
    pub bytes: u64,
}

/// Returns the file name of the segment that begins with `first`.
pub(crate) fn file_name(first: Position) -> String {
    format!("{:020}{SUFFIX}", first.0)
}

/// Returns the first positions of the segments in `dir` in ascending order. Ignores other files.
pub(crate) fn list(disk: &dyn Disk, dir: &Path) -> Result<Vec<Position>, StorageError> {
    let names = disk.list(dir).map_err(StorageError::io("list", dir))?;
    let mut firsts: Vec<Position> = names.iter().filter_map(|n| parse_name(n)).collect();
    firsts.sort();
    Ok(firsts)
}

/// Returns whether a file of this name is a segment.
pub(crate) fn is_name(name: &Path) -> bool {
    parse_name(name).is_some()
}

fn parse_name(name: &Path) -> Option<Position> {
    let digits = name.to_str()?.strip_suffix(SUFFIX)?;
    let first = Position(digits.parse().ok()?);
    (file_name(first) == name.to_str()?).then_some(first)
}

/// Removes the segment that begins with `first`, durably. It is no error if the file does not
/// exist, because an earlier attempt may have removed it.
pub(crate) fn remove(disk: &dyn Disk, dir: &Path, first: Position) -> Result<(), StorageError> {
    let path = dir.join(file_name(first));
    match disk.remove_file(&path) {
        Err(e) if e.kind() != ErrorKind::NotFound => {
            return Err(StorageError::io("remove segment", &path)(e));
        }
        _ => {}
    }
    disk.sync_dir(dir)
        .map_err(StorageError::io("sync folder", dir))
}

/// Reads and checks the header of an open segment.
pub(crate) fn check_header(
    file: &dyn File,
    first: Position,
    path: &Path,
) -> Result<HeaderState, StorageError> {
    let mut bytes = [0; FILE_HEADER_BYTES as usize];
    let Ok(read) = file.read_at(0, &mut bytes) else {
        return Ok(HeaderState::Unreadable);
    };
    header::check(&bytes[..read], &SEGMENT_MAGIC, first, path)
}

/// Reads a segment record by record, and reports damage instead of stopping at it.
pub(crate) struct Reader {
    segment: SegmentInfo,
    scanner: Scanner,
    delta: DeltaDecoder,
    /// Position of the next record, if none is missing.
    expected: Position,
    /// True if the file header is damaged and the reader has not reported it yet.
    is_header_damaged: bool,
}

impl Reader {
    /// Opens `segment` and checks its header. A damaged header is reported by the first call of
    /// [`Reader::next`].
    pub(crate) fn open(disk: &dyn Disk, segment: SegmentInfo) -> Result<Self, StorageError> {
        let file: Arc<dyn File> = disk
            .open(&segment.path, OpenMode::Read)
            .map_err(StorageError::io("open segment", &segment.path))?;
        let header = check_header(&*file, segment.first, &segment.path)?;
        Ok(Self {
            scanner: Scanner::new(file, segment.first, FILE_HEADER_BYTES..segment.bytes),
            delta: DeltaDecoder::default(),
            expected: segment.first,
            is_header_damaged: header != HeaderState::Sound,
            segment,
        })
    }

    /// Returns the first position of the segment, which is also its name.
    pub(crate) fn first(&self) -> Position {
        self.segment.first
    }

    /// Returns whether the disk has failed to read some bytes so far.
    pub(crate) fn is_unreadable(&self) -> bool {
        self.scanner.unreadable()
    }

    /// Returns the next record, or an error for a damaged range in its place; `None` at the end.
    pub(crate) fn next(&mut self) -> Option<Result<LogRecord, StorageError>> {
        if std::mem::take(&mut self.is_header_damaged) {
            return Some(Err(
                self.damaged(0, "the file header is not sound".to_owned())
            ));
        }
        while let Some(found) = self.next_found() {
            match found {
                Found::Damage(range) => {
                    let what = format!("{} bytes are not a valid frame", range.end - range.start);
                    return Some(Err(self.damaged(range.start, what)));
                }
                Found::Frame { header, .. } if header.kind == FrameKind::Padding => {}
                Found::Frame { offset, header } => return Some(self.record(offset, &header)),
            }
        }
        let next = self.segment.next.take()?;
        (self.expected < next).then(|| {
            Err(StorageError::Missing {
                path: self.segment.path.clone(),
                from: self.expected,
                to: next.previous(),
            })
        })
    }

    /// Returns the next frame or damaged range before the start of the next segment. The rest of
    /// the file was abandoned after a failed write or sync, and its records were written again to
    /// the next segment.
    fn next_found(&mut self) -> Option<Found> {
        let is_done = self.segment.next.is_some_and(|next| self.expected >= next);
        if is_done {
            return None;
        }
        self.scanner.next()
    }

    /// Decodes a frame into a record, and checks that its position is not before the expected one.
    fn record(&mut self, offset: u64, header: &FrameHeader) -> Result<LogRecord, StorageError> {
        if header.position < self.expected {
            return Err(self.damaged(offset, "a block is out of place".to_owned()));
        }
        self.expected = header.position.next();
        let payload = self.scanner.payload(offset, header);
        let record = read_record(&mut self.delta, header, payload);
        record.map_err(|e| self.damaged(offset, e.to_string()))
    }

    fn damaged(&self, offset: u64, what: String) -> StorageError {
        StorageError::Damaged {
            path: self.segment.path.clone(),
            offset,
            what,
        }
    }
}

/// Decodes the payload of a frame, plain or delta-coded.
fn read_record(
    delta: &mut DeltaDecoder,
    header: &FrameHeader,
    payload: &[u8],
) -> Result<LogRecord, Malformed> {
    let batch = match header.kind {
        FrameKind::Log => record::decode(payload, &mut PlainValues)?,
        FrameKind::DeltaCoded => delta.decode(header.position, payload)?,
        _ => return Err(Malformed("a block of a kind that the log has not")),
    };
    Ok(LogRecord {
        position: header.position,
        batch,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(name: &str, expected: Option<u64>) {
        assert_eq!(parse_name(Path::new(name)), expected.map(Position));
    }

    #[test]
    fn segment_name_parsed_only_in_its_exact_form() {
        check("00000000000000000001.wal", Some(1));
        check("18446744073709551615.wal", Some(u64::MAX));
        check("18446744073709551616.wal", None);
        check("1.wal", None);
        check("+0000000000000000001.wal", None);
        check("00000000000000000001.wal.tmp", None);
        check("LOCK", None);
    }
}

//! Segment files of the log: their names, their properties, and a reader.
//!
//! A segment is named after its first position, `00000000000000000001.wal`. Its positions ascend
//! without a gap, and the first position of the next segment follows its last one. Every segment
//! except the newest one is fully durable, because the log syncs a segment before it creates the
//! next one.

use super::delta_codec::DeltaRecordDecoder;
use super::record::{self, PlainValueDecoder};
use crate::encoding::DecodeError;
use crate::error::StorageError;
use crate::file::frame::{FrameHeader, FrameKind};
use crate::file::header::{self, FILE_HEADER_BYTES, FileHeaderState, SEGMENT_MAGIC};
use crate::file::scan::{FrameScanItem, FrameScanner};
use firn_model::env::{Disk, DiskFile, OpenMode};
use firn_model::log::{LogPosition, LogRecord};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const SUFFIX: &str = ".wal";

/// A segment at the time when [`LocalLog::segments`](super::local::LocalLog::segments) was called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogSegmentInfo {
    /// Path of the file of the segment.
    pub path: PathBuf,
    /// Position of its first record.
    pub first: LogPosition,
    /// Position after its last record, if more segments follow. Records that are absent before it
    /// are reported as missing.
    pub next: Option<LogPosition>,
    /// Number of readable bytes; the newest segment may grow beyond them.
    pub bytes: u64,
}

/// Returns the file name of the segment that begins with `first`.
pub(crate) fn file_name(first: LogPosition) -> String {
    format!("{:020}{SUFFIX}", first.0)
}

/// Returns the first positions of the segments in `dir` in ascending order. Ignores other files.
pub(crate) fn list(disk: &dyn Disk, dir: &Path) -> Result<Vec<LogPosition>, StorageError> {
    let names = disk.list(dir).map_err(StorageError::io("list", dir))?;
    let mut firsts: Vec<LogPosition> = names.iter().filter_map(|n| parse_name(n)).collect();
    firsts.sort();
    Ok(firsts)
}

/// Returns whether a file of this name is a segment.
pub(crate) fn is_name(name: &Path) -> bool {
    parse_name(name).is_some()
}

fn parse_name(name: &Path) -> Option<LogPosition> {
    let digits = name.to_str()?.strip_suffix(SUFFIX)?;
    let first = LogPosition(digits.parse().ok()?);
    (file_name(first) == name.to_str()?).then_some(first)
}

/// Removes the segment that begins with `first`, durably. It is no error if the file does not
/// exist, because an earlier attempt may have removed it.
pub(crate) fn remove(disk: &dyn Disk, dir: &Path, first: LogPosition) -> Result<(), StorageError> {
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
    file: &dyn DiskFile,
    first: LogPosition,
    path: &Path,
) -> Result<FileHeaderState, StorageError> {
    let mut bytes = [0; FILE_HEADER_BYTES as usize];
    let Ok(read) = file.read_at(0, &mut bytes) else {
        return Ok(FileHeaderState::Unreadable);
    };
    header::check(&bytes[..read], &SEGMENT_MAGIC, first, path)
}

/// Reads a segment record by record, and reports damage instead of stopping at it.
pub(crate) struct LogSegmentReader {
    segment: LogSegmentInfo,
    scanner: FrameScanner,
    delta: DeltaRecordDecoder,
    /// Position of the next record, if none is missing.
    expected: LogPosition,
    /// True if the file header is damaged and the reader has not reported it yet.
    is_header_damaged: bool,
}

impl LogSegmentReader {
    /// Opens `segment` and checks its header. A damaged header is reported by the first call of
    /// [`LogSegmentReader::next`].
    pub(crate) fn open(disk: &dyn Disk, segment: LogSegmentInfo) -> Result<Self, StorageError> {
        let file: Arc<dyn DiskFile> = disk
            .open(&segment.path, OpenMode::Read)
            .map_err(StorageError::io("open segment", &segment.path))?;
        let header = check_header(&*file, segment.first, &segment.path)?;
        Ok(Self {
            scanner: FrameScanner::new(file, segment.first, FILE_HEADER_BYTES..segment.bytes),
            delta: DeltaRecordDecoder::default(),
            expected: segment.first,
            is_header_damaged: header != FileHeaderState::Sound,
            segment,
        })
    }

    /// Returns the first position of the segment, which is also its name.
    pub(crate) fn first(&self) -> LogPosition {
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
                self.damage_error(0, "the file header is not sound".to_owned())
            ));
        }
        while let Some(found) = self.next_frame() {
            match found {
                FrameScanItem::Damage(range) => {
                    let what = format!("{} bytes are not a valid frame", range.end - range.start);
                    return Some(Err(self.damage_error(range.start, what)));
                }
                FrameScanItem::Frame { header, .. } if header.kind == FrameKind::Padding => {}
                FrameScanItem::Frame { offset, header } => {
                    return Some(self.decode_frame(offset, &header));
                }
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
    fn next_frame(&mut self) -> Option<FrameScanItem> {
        let is_done = self.segment.next.is_some_and(|next| self.expected >= next);
        if is_done {
            return None;
        }
        self.scanner.next()
    }

    /// Decodes a frame into a record, and checks that its position is not before the expected one.
    fn decode_frame(
        &mut self,
        offset: u64,
        header: &FrameHeader,
    ) -> Result<LogRecord, StorageError> {
        if header.position < self.expected {
            return Err(self.damage_error(offset, "a block is out of place".to_owned()));
        }
        self.expected = header.position.next();
        let payload = self.scanner.payload(offset, header);
        let record = read_record(&mut self.delta, header, payload);
        record.map_err(|e| self.damage_error(offset, e.to_string()))
    }

    fn damage_error(&self, offset: u64, what: String) -> StorageError {
        StorageError::Damaged {
            path: self.segment.path.clone(),
            offset,
            what,
        }
    }
}

/// Decodes the payload of a frame, plain or delta-coded.
fn read_record(
    delta: &mut DeltaRecordDecoder,
    header: &FrameHeader,
    payload: &[u8],
) -> Result<LogRecord, DecodeError> {
    let batch = match header.kind {
        FrameKind::Log => record::decode(payload, &mut PlainValueDecoder)?,
        FrameKind::DeltaCoded => delta.decode(header.position, payload)?,
        _ => return Err(DecodeError("a block of a kind that the log has not")),
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
        assert_eq!(parse_name(Path::new(name)), expected.map(LogPosition));
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

//! The files of the log: their names, what is known of each, and how one is read.
//!
//! A segment is named by its first position, `00000000000000000001.wal`; positions in it ascend
//! without a gap, and the next segment's first position follows its last one. Every segment but the
//! newest is durable whole, because the log syncs one before it creates the next.

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

/// A segment as it was when the log was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentInfo {
    /// The file.
    pub path: PathBuf,
    /// The position of its first record.
    pub first: Position,
    /// The position after its last record, if more segments follow; records lacking before it are
    /// reported as missing.
    pub next: Option<Position>,
    /// Bytes to read; the newest segment may grow beyond them.
    pub bytes: u64,
}

/// The file name of the segment that begins with `first`.
pub(crate) fn file_name(first: Position) -> String {
    format!("{:020}{SUFFIX}", first.0)
}

/// The first positions of the segments in `dir`, ascending; other files are not looked at.
pub(crate) fn list(disk: &dyn Disk, dir: &Path) -> Result<Vec<Position>, StorageError> {
    let names = disk.list(dir).map_err(StorageError::io("list", dir))?;
    let mut firsts: Vec<Position> = names.iter().filter_map(|n| parse_name(n)).collect();
    firsts.sort();
    Ok(firsts)
}

/// Whether a file of this name is a segment.
pub(crate) fn is_name(name: &Path) -> bool {
    parse_name(name).is_some()
}

fn parse_name(name: &Path) -> Option<Position> {
    let digits = name.to_str()?.strip_suffix(SUFFIX)?;
    let first = Position(digits.parse().ok()?);
    (file_name(first) == name.to_str()?).then_some(first)
}

/// Removes the segment that begins with `first`, which an earlier attempt may have removed already;
/// it is gone for good on return.
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

/// Reads the header of an open segment.
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

/// Reads a segment, record by record.
pub(crate) struct Reader {
    segment: SegmentInfo,
    scanner: Scanner,
    delta: DeltaDecoder,
    /// The position of the next record.
    expected: Position,
    /// The file header is not sound, and the reader has not reported it yet.
    is_header_damaged: bool,
}

impl Reader {
    /// Opens `segment`.
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

    /// The position that names the segment.
    pub(crate) fn first(&self) -> Position {
        self.segment.first
    }

    /// Whether the disk failed to deliver some bytes so far.
    pub(crate) fn is_unreadable(&self) -> bool {
        self.scanner.unreadable()
    }

    /// The next record, or a stretch of damage at its place; `None` at the end.
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

    /// The next thing in the file, up to where the next segment begins: what lies behind that was
    /// given up after a failed write or sync, and was written again there.
    fn next_found(&mut self) -> Option<Found> {
        let is_done = self.segment.next.is_some_and(|next| self.expected >= next);
        if is_done {
            return None;
        }
        self.scanner.next()
    }

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

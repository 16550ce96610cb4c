//! Reads the records of a log from a position on, segment by segment.

use super::local::LocalLog;
use super::segment::{LogSegmentInfo, LogSegmentReader};
use crate::error::StorageError;
use firn_model::error::Error;
use firn_model::log::{LogDamage, LogPosition, LogRecord, LogRecordReader};
use std::path::PathBuf;

/// A reader of the segments that existed when it was created.
pub(super) struct LogSegmentTail<'a> {
    log: &'a LocalLog,
    from: LogPosition,
    segments: std::vec::IntoIter<LogSegmentInfo>,
    reader: Option<LogSegmentReader>,
}

impl<'a> LogSegmentTail<'a> {
    pub(super) fn new(log: &'a LocalLog, from: LogPosition) -> Self {
        let mut segments = log.segments();
        segments.retain(|s| s.next.is_none_or(|next| next > from));
        Self {
            log,
            from,
            segments: segments.into_iter(),
            reader: None,
        }
    }
}

impl LogRecordReader for LogSegmentTail<'_> {
    fn next(&mut self) -> Result<Option<Result<LogRecord, LogDamage>>, Error> {
        loop {
            if let Some(reader) = &mut self.reader {
                match self.log.next_record(reader) {
                    Some(Ok(record)) if record.position < self.from => continue,
                    Some(item) => return Ok(Some(item.map_err(LogDamage::from))),
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

impl From<StorageError> for LogDamage {
    fn from(error: StorageError) -> Self {
        let (file, offset, what) = match error {
            StorageError::Damaged { path, offset, what } => (path, Some(offset), what),
            StorageError::Missing { path, from, to } => {
                let what = format!("records {} to {} are missing", from.0, to.0);
                (path, None, what)
            }
            StorageError::Io { ref path, .. } => (path.clone(), None, error.to_string()),
            other => (PathBuf::new(), None, other.to_string()),
        };
        Self { file, offset, what }
    }
}

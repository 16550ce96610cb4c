//! Recovery of the log after a stop or crash: finds the segments, and prepares the newest one for
//! more records. [`crate::file::survey`] determines where its valid part ends.

use super::options::{LogOptions, LogSyncMode};
use super::segment;
use super::segment_list::LogSegmentList;
use super::writer::{LogWriterStart, create_segment};
use crate::error::StorageError;
use crate::file::frame::FRAME_HEADER_BYTES;
use crate::file::header::{FILE_HEADER_BYTES, FileHeaderState};
use crate::file::survey::{make_durable, survey};
use firn_model::env::{DiskFile, Env, OpenMode};
use firn_model::log::LogPosition;
use std::path::Path;
use std::sync::Arc;

/// Finds the segments in `dir`, adds them to `segments`, and prepares the end of the log for
/// writing. All valid records are durable when this returns.
pub(crate) fn recover(
    env: &Env,
    dir: &Path,
    options: &LogOptions,
    segments: &LogSegmentList,
) -> Result<LogWriterStart, StorageError> {
    let disk = &*env.disk;
    let mut firsts = segment::list(disk, dir)?;
    let newest = firsts.pop();
    for first in firsts {
        let path = dir.join(segment::file_name(first));
        let bytes = disk
            .open(&path, OpenMode::Read)
            .and_then(|file| file.len())
            .map_err(StorageError::io("open segment", &path))?;
        segments.push(first, bytes);
    }
    let mut last = options.start_after.max(options.given);
    let mut found_newest = segments.newest();
    if let Some(first) = newest {
        let end = recover_newest(env, dir, first, options.sync)?;
        last = last.max(end.last);
        if let Some(file) = end.file {
            found_newest = first;
            segments.push(first, end.bytes);
            if last == end.last && end.goes_on {
                return Ok(LogWriterStart {
                    file,
                    first,
                    offset: end.bytes,
                    last,
                    found_newest,
                });
            }
        }
    }
    let first = last.next();
    let file = create_segment(env, dir, first, options.sync)?;
    segments.push(first, FILE_HEADER_BYTES);
    Ok(LogWriterStart {
        file,
        first,
        offset: FILE_HEADER_BYTES,
        last,
        found_newest,
    })
}

/// Result of the recovery of the newest segment.
struct RecoveredLogSegment {
    /// `None` if the segment contained no records and was removed.
    file: Option<Arc<dyn DiskFile>>,
    bytes: u64,
    last: LogPosition,
    /// True if more records can be written to the same file.
    goes_on: bool,
}

/// Recovers the newest segment: removes it if it has no records, cuts off a torn tail, and syncs
/// the rest.
fn recover_newest(
    env: &Env,
    dir: &Path,
    first: LogPosition,
    sync: LogSyncMode,
) -> Result<RecoveredLogSegment, StorageError> {
    let path = dir.join(segment::file_name(first));
    let mode = match sync {
        LogSyncMode::Always => OpenMode::WriteDirect,
        LogSyncMode::Interval(_) | LogSyncMode::None => OpenMode::Write,
    };
    let file = env
        .disk
        .open(&path, mode)
        .map_err(StorageError::io("open segment", &path))?;
    let bytes = file
        .len()
        .map_err(StorageError::io("read segment", &path))?;
    let header = segment::check_header(&*file, first, &path)?;
    let survey = survey(file.clone(), first, bytes, 0);
    if survey.unreadable {
        // Nothing that may be valid is cut off. Every record has a header, which limits the number
        // of positions that the unreadable part can contain.
        let unseen = (bytes - survey.end) / FRAME_HEADER_BYTES as u64 + 1;
        tracing::error!(
            segment = %path.display(),
            "log segment is not readable to its end: keeping it"
        );
        return Ok(RecoveredLogSegment {
            file: Some(file),
            bytes,
            last: LogPosition(survey.last.0.saturating_add(unseen)),
            goes_on: false,
        });
    }
    if header != FileHeaderState::Sound && survey.last < first {
        tracing::info!(segment = %path.display(), "removing log segment without a complete header");
        segment::remove(&*env.disk, dir, first)?;
        return Ok(RecoveredLogSegment {
            file: None,
            bytes: 0,
            last: survey.last,
            goes_on: false,
        });
    }
    if survey.end < bytes {
        tracing::info!(
            segment = %path.display(),
            offset = survey.end,
            bytes = bytes - survey.end,
            whole_blocks = survey.torn_frames,
            "cut off incomplete records at the end of the log"
        );
    }
    make_durable(&*file, &survey).map_err(StorageError::io("sync segment", &path))?;
    env.disk
        .sync_dir(dir)
        .map_err(StorageError::io("sync folder", dir))?;
    Ok(RecoveredLogSegment {
        file: Some(file),
        bytes: survey.end,
        last: survey.last,
        goes_on: header == FileHeaderState::Sound,
    })
}

//! What the newest segment holds after a stop of any kind: where the log ends, and what of it must
//! be made durable again before anything is promised on top of it.
//!
//! The rule: a block says how far the log was durable when it was written. Damage at or below that
//! mark in any sound block is loss of durable data, reported when the segment is read. The first
//! damage above every mark is the torn tail of a group that was never acknowledged: the log ends
//! there, also if later blocks of that group survived, because what they build on is gone.

use super::block::{BLOCK_HEADER_BYTES, BlockKind};
use super::file_header::{FILE_HEADER_BYTES, HeaderState};
use super::scan::{Found, Scanner};
use super::writer::{Start, create_segment};
use super::{Catalog, LogOptions, SyncMode, segment};
use crate::error::StorageError;
use firn_model::env::{Env, File, OpenMode};
use firn_model::log::Position;
use std::path::Path;
use std::sync::Arc;

/// Bytes copied at once when a tail is written again.
const COPY_BYTES: usize = 1 << 20;

/// Finds the segments in `dir`, fills `catalog`, and makes the end of the log ready to be written:
/// all that counts is durable when this returns.
pub(crate) fn recover(
    env: &Env,
    dir: &Path,
    options: &LogOptions,
    catalog: &Catalog,
) -> Result<Start, StorageError> {
    let disk = &*env.disk;
    let mut firsts = segment::list(disk, dir)?;
    let newest = firsts.pop();
    for first in firsts {
        let path = dir.join(segment::file_name(first));
        let bytes = disk
            .open(&path, OpenMode::Read)
            .and_then(|file| file.len())
            .map_err(StorageError::io("open segment", &path))?;
        catalog.push(first, bytes);
    }
    let mut last = options.start_after.max(options.given);
    let mut found_newest = catalog.newest();
    if let Some(first) = newest {
        let end = recover_newest(env, dir, first, options.sync)?;
        last = last.max(end.last);
        if let Some(file) = end.file {
            found_newest = first;
            catalog.push(first, end.bytes);
            if last == end.last && end.goes_on {
                return Ok(Start {
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
    catalog.push(first, FILE_HEADER_BYTES);
    Ok(Start {
        file,
        first,
        offset: FILE_HEADER_BYTES,
        last,
        found_newest,
    })
}

/// The newest segment once it is ready.
struct Newest {
    /// `None` if it held nothing and was removed.
    file: Option<Arc<dyn File>>,
    bytes: u64,
    last: Position,
    /// More blocks may follow in the same file.
    goes_on: bool,
}

fn recover_newest(
    env: &Env,
    dir: &Path,
    first: Position,
    sync: SyncMode,
) -> Result<Newest, StorageError> {
    let path = dir.join(segment::file_name(first));
    let mode = match sync {
        SyncMode::Always => OpenMode::WriteDirect,
        SyncMode::Interval(_) | SyncMode::None => OpenMode::Write,
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
        // Nothing is cut that may be sound. Every block takes a header, which bounds the positions
        // that the unreadable part may have given.
        let unseen = (bytes - survey.end) / BLOCK_HEADER_BYTES as u64 + 1;
        tracing::error!(segment = %path.display(), "segment is not readable to its end; kept");
        return Ok(Newest {
            file: Some(file),
            bytes,
            last: Position(survey.last.0.saturating_add(unseen)),
            goes_on: false,
        });
    }
    if header != HeaderState::Sound && survey.last < first {
        tracing::info!(segment = %path.display(), "remove segment that was never finished");
        segment::remove(&*env.disk, dir, first)?;
        return Ok(Newest {
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
            whole_blocks = survey.torn_blocks,
            "cut off torn tail of the log"
        );
    }
    make_durable(&*file, &survey).map_err(StorageError::io("sync segment", &path))?;
    env.disk
        .sync_dir(dir)
        .map_err(StorageError::io("sync folder", dir))?;
    Ok(Newest {
        file: Some(file),
        bytes: survey.end,
        last: survey.last,
        goes_on: header == HeaderState::Sound,
    })
}

/// Cuts the segment at its end and makes the rest durable. The part that no later block vouches for
/// is written again first: after a failed sync the system may hold it in memory, call it clean and
/// never write it.
pub(crate) fn make_durable(file: &dyn File, survey: &Survey) -> std::io::Result<()> {
    if file.len()? != survey.end {
        file.set_len(survey.end)?;
    }
    let mut buffer = vec![0; COPY_BYTES];
    let mut offset = survey.durable_end;
    while offset < survey.end {
        let count = buffer.len().min((survey.end - offset) as usize);
        let read = file.read_at(offset, &mut buffer[..count])?;
        if read < count {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        file.write_all_at(offset, &buffer[..count])?;
        offset += count as u64;
    }
    file.sync_data()
}

/// The newest segment after a look at all its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Survey {
    /// Where the log ends: the offset after the last block that counts.
    pub(crate) end: u64,
    /// The position of that block; the one before the segment if there is none.
    pub(crate) last: Position,
    /// Bytes from here to `end` are vouched for by no later block.
    pub(crate) durable_end: u64,
    /// Whole blocks in the torn tail.
    pub(crate) torn_blocks: u64,
    /// The disk failed to deliver bytes, so nothing can be said about the tail.
    pub(crate) unreadable: bool,
    /// Bytes before the end that were durable and are no block.
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
        torn_blocks: 0,
        unreadable: false,
        damaged_bytes: 0,
    };
    let mut damaged = 0;
    let mut torn = false;
    let mut scanner = Scanner::new(file, first, FILE_HEADER_BYTES..bytes);
    while let Some(found) = scanner.next() {
        let (offset, header) = match found {
            Found::Block { offset, header } => (offset, header),
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
            // Padding has the position of the block before, or of the next one: then it only says
            // that all before is durable.
            BlockKind::Padding if header.position == survey.last => survey.last,
            _ => survey.last.next(),
        };
        let is_behind = survey.last >= durable && offset >= durable_bytes;
        torn |= header.position != expected && is_behind;
        if torn {
            survey.torn_blocks += u64::from(header.kind != BlockKind::Padding);
            continue;
        }
        survey.end = offset + header.block_bytes();
        survey.damaged_bytes = damaged;
        if header.kind != BlockKind::Padding {
            survey.last = survey.last.max(header.position);
        }
        if header.position <= durable {
            survey.durable_end = survey.end;
        }
    }
    // Those positions were given, whatever is left of their blocks.
    survey.last = survey.last.max(durable);
    survey.unreadable = scanner.unreadable();
    survey
}

/// The newest position that some sound block says was durable before it.
fn newest_mark(file: Arc<dyn File>, first: Position, bytes: u64) -> Position {
    let mut newest = Position(0);
    let mut scanner = Scanner::new(file, first, FILE_HEADER_BYTES..bytes);
    while let Some(found) = scanner.next() {
        if let Found::Block { header, .. } = found {
            newest = newest.max(header.durable_before());
        }
    }
    newest
}

//! Snapshots that bound the length of the log.
//!
//! A checkpoint at position `p` holds what all blocks up to `p` said, as payloads that only the
//! head understands. The file is written under a temporary name, synced, renamed and its name
//! synced, so a checkpoint is there whole or not at all; a directory at its end says where chunks
//! of blocks begin, so that several threads read it. Invariant: [`open_newest`] hands out a
//! checkpoint only after every checksum in it was verified, unless nothing better is left, and says
//! so. The format is drawn in `docs/format/log.md`.

use crate::error::StorageError;
use crate::log::block::{self, BlockHeader, BlockKind, PAYLOAD_BYTES_MAX, Place};
use crate::log::file_header::{self, CHECKPOINT_MAGIC, FILE_HEADER_BYTES, HeaderState};
use crate::log::scan::{Found, Scanner};
use firn_model::env::{Disk, Env, File, OpenMode};
use firn_model::log::Position;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const SUFFIX: &str = ".checkpoint";
const TEMPORARY_SUFFIX: &str = ".checkpoint.tmp";

/// A chunk is closed once it has so many bytes: enough of them to keep every thread busy with a
/// checkpoint worth splitting. It is also what is synced at once, so that the log's syncs never
/// queue behind a whole checkpoint.
const CHUNK_BYTES: u64 = 4 << 20;

/// Offset of the directory (u64) and its checksum (u32).
const TRAILER_BYTES: u64 = 12;

/// Writes one checkpoint. Dropped before [`CheckpointWriter::finish`] it leaves nothing behind.
pub struct CheckpointWriter {
    env: Env,
    dir: PathBuf,
    position: Position,
    temporary: PathBuf,
    file: Arc<dyn File>,
    /// Bytes written, without the buffer.
    offset: u64,
    buffer: Vec<u8>,
    blocks: u64,
    chunk_starts: Vec<u64>,
    finished: bool,
}

impl CheckpointWriter {
    /// Begins a checkpoint of all blocks up to `position` in `dir`, which exists.
    pub fn begin(env: &Env, dir: &Path, position: Position) -> Result<Self, StorageError> {
        let temporary = dir.join(format!("{:020}{TEMPORARY_SUFFIX}", position.0));
        remove_if_there(&*env.disk, &temporary)?;
        let file = env
            .disk
            .open(&temporary, OpenMode::CreateNew)
            .map_err(StorageError::io("create checkpoint", &temporary))?;
        Ok(Self {
            env: env.clone(),
            dir: dir.to_path_buf(),
            position,
            temporary,
            file,
            offset: 0,
            buffer: file_header::encode(&CHECKPOINT_MAGIC, position).to_vec(),
            blocks: 0,
            chunk_starts: vec![FILE_HEADER_BYTES],
            finished: false,
        })
    }

    /// Adds a payload of at most [`PAYLOAD_BYTES_MAX`].
    pub fn push(&mut self, payload: &[u8]) -> Result<(), StorageError> {
        if payload.len() > PAYLOAD_BYTES_MAX {
            return Err(StorageError::BlockTooLarge {
                bytes: payload.len(),
                limit: PAYLOAD_BYTES_MAX,
            });
        }
        if self.end() - self.chunk_starts.last().copied().unwrap_or(0) >= CHUNK_BYTES {
            self.flush()?;
            self.chunk_starts.push(self.offset);
        }
        self.blocks += 1;
        self.encode(BlockKind::Checkpoint, payload);
        Ok(())
    }

    /// Makes the checkpoint durable under its name; returns its bytes.
    pub fn finish(mut self) -> Result<u64, StorageError> {
        let directory_offset = self.end();
        let mut directory = self.blocks.to_le_bytes().to_vec();
        for start in &self.chunk_starts {
            directory.extend_from_slice(&start.to_le_bytes());
        }
        self.blocks += 1;
        self.encode(BlockKind::Directory, &directory);
        let trailer = directory_offset.to_le_bytes();
        self.buffer.extend_from_slice(&trailer);
        self.buffer
            .extend_from_slice(&crc32c::crc32c(&trailer).to_le_bytes());
        self.flush()?;
        let path = checkpoint_path(&self.dir, self.position);
        let disk = &*self.env.disk;
        disk.rename(&self.temporary, &path)
            .map_err(StorageError::io("rename checkpoint", &self.temporary))?;
        self.finished = true;
        disk.sync_dir(&self.dir)
            .map_err(StorageError::io("sync folder", &self.dir))?;
        Ok(self.offset)
    }

    fn end(&self) -> u64 {
        self.offset + self.buffer.len() as u64
    }

    fn encode(&mut self, kind: BlockKind, payload: &[u8]) {
        let place = Place {
            first: self.position,
            offset: self.end(),
        };
        let ordinal = Position(self.blocks);
        block::encode(place, ordinal, 0, kind, payload, &mut self.buffer);
    }

    fn flush(&mut self) -> Result<(), StorageError> {
        self.file
            .write_all_at(self.offset, &self.buffer)
            .map_err(StorageError::io("write checkpoint", &self.temporary))?;
        self.offset = self.end();
        self.buffer.clear();
        self.file
            .sync_data()
            .map_err(StorageError::io("sync checkpoint", &self.temporary))
    }
}

impl Drop for CheckpointWriter {
    fn drop(&mut self) {
        if !self.finished {
            // What cannot be removed now is removed when the folder is opened next.
            let _ = self.env.disk.remove_file(&self.temporary);
        }
    }
}

/// Receives payloads and damage.
pub type EachPayload<'a> = dyn FnMut(Result<&[u8], StorageError>) + 'a;

/// A checkpoint that can be read.
pub struct Checkpoint {
    path: PathBuf,
    position: Position,
    file: Arc<dyn File>,
    chunks: Vec<Range<u64>>,
    bytes: u64,
}

impl Checkpoint {
    /// All blocks of the log up to here are in it.
    pub fn position(&self) -> Position {
        self.position
    }

    /// The file's length.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How many chunks it has.
    pub fn chunk_count(&self) -> usize {
        self.chunks.len()
    }

    /// Calls `each` with the payloads of a chunk, in the order in which they were pushed; damage is
    /// an `Err` item. Chunks may be read from several threads at once.
    pub fn read_chunk(&self, chunk: usize, each: &mut EachPayload<'_>) {
        let Some(range) = self.chunks.get(chunk).cloned() else {
            return;
        };
        let mut scanner = Scanner::new(self.file.clone(), self.position, range);
        while let Some(found) = scanner.next() {
            match found {
                Found::Block { offset, header } if header.kind == BlockKind::Checkpoint => {
                    each(Ok(scanner.payload(offset, &header)));
                }
                Found::Block { .. } => {}
                Found::Damage(range) => each(Err(StorageError::Damaged {
                    path: self.path.clone(),
                    offset: range.start,
                    what: format!("{} bytes are no block", range.end - range.start),
                })),
            }
        }
    }
}

/// Opens the newest checkpoint in `dir` that is sound and continued by the log, whose first
/// position is `log_first`; the newest sound one needs no such proof. Temporary leftovers are
/// removed, damaged files reported. Only when nothing sound can be continued, the newest damaged
/// one is opened for what it still holds.
pub fn open_newest(
    env: &Env,
    dir: &Path,
    log_first: Option<Position>,
) -> Result<Option<Checkpoint>, StorageError> {
    let disk = &*env.disk;
    remove_temporaries(disk, dir)?;
    let continues = |p: Position| log_first.is_some_and(|first| first <= p.next());
    let mut damaged = None;
    for position in list(disk, dir)?.into_iter().rev() {
        match load(env, dir, position) {
            Ok(sound) if damaged.is_none() || continues(position) => return Ok(Some(sound)),
            Ok(_) => {}
            Err(e @ StorageError::Damaged { .. }) => {
                tracing::error!(error = %e, "checkpoint is damaged");
                damaged = damaged.or(Some(position));
            }
            Err(e) => return Err(e),
        }
    }
    match damaged {
        Some(position) if !continues(Position(0)) => salvage(disk, dir, position).map(Some),
        _ => Ok(None),
    }
}

/// Removes the checkpoints before `position`.
pub fn remove_older(env: &Env, dir: &Path, position: Position) -> Result<(), StorageError> {
    let disk = &*env.disk;
    let older = list(disk, dir)?.into_iter().filter(|p| *p < position);
    for old in older {
        remove_if_there(disk, &checkpoint_path(dir, old))?;
    }
    disk.sync_dir(dir)
        .map_err(StorageError::io("sync folder", dir))
}

/// Opens a checkpoint and verifies all of it, on the compute threads.
fn load(env: &Env, dir: &Path, position: Position) -> Result<Checkpoint, StorageError> {
    let path = checkpoint_path(dir, position);
    let damaged = |offset, what: &str| StorageError::Damaged {
        path: path.clone(),
        offset,
        what: what.to_owned(),
    };
    let file = env
        .disk
        .open(&path, OpenMode::Read)
        .map_err(StorageError::io("open checkpoint", &path))?;
    let bytes = file
        .len()
        .map_err(StorageError::io("read checkpoint", &path))?;
    let mut header = [0; FILE_HEADER_BYTES as usize];
    let read = file.read_at(0, &mut header).unwrap_or(0);
    let state = file_header::check(&header[..read], &CHECKPOINT_MAGIC, position, &path)?;
    if state == HeaderState::Damaged {
        return Err(damaged(0, "the file header is not sound"));
    }
    let directory = read_directory(&file, position, bytes)
        .ok_or_else(|| damaged(bytes, "the directory is not sound"))?;
    let checkpoint = Checkpoint {
        path: path.clone(),
        position,
        file,
        chunks: directory.chunks,
        bytes,
    };
    let sound_blocks = AtomicU64::new(0);
    let damage = AtomicU64::new(u64::MAX);
    env.compute.for_each(checkpoint.chunks.len(), &|chunk| {
        let range = checkpoint.chunks[chunk].clone();
        let mut scanner = Scanner::new(checkpoint.file.clone(), position, range);
        while let Some(found) = scanner.next() {
            match found {
                Found::Block { .. } => sound_blocks.fetch_add(1, Ordering::Relaxed),
                Found::Damage(range) => damage.fetch_min(range.start, Ordering::Relaxed),
            };
        }
    });
    let damage = damage.into_inner();
    if damage != u64::MAX {
        return Err(damaged(damage, "a block is not sound"));
    }
    if sound_blocks.into_inner() != directory.blocks {
        return Err(damaged(bytes, "blocks are missing"));
    }
    Ok(checkpoint)
}

/// A damaged checkpoint as one chunk.
fn salvage(disk: &dyn Disk, dir: &Path, position: Position) -> Result<Checkpoint, StorageError> {
    let path = checkpoint_path(dir, position);
    let io = StorageError::io("open checkpoint", &path);
    let opened = disk.open(&path, OpenMode::Read);
    let (file, bytes) = opened.and_then(|f| f.len().map(|n| (f, n))).map_err(io)?;
    tracing::error!(checkpoint = %path.display(), "read what is left of a damaged checkpoint");
    let whole = FILE_HEADER_BYTES..bytes.max(FILE_HEADER_BYTES);
    Ok(Checkpoint {
        path,
        position,
        file,
        chunks: vec![whole],
        bytes,
    })
}

struct Directory {
    blocks: u64,
    chunks: Vec<Range<u64>>,
}

/// The directory of a file of `bytes`; `None` unless it is sound in itself.
fn read_directory(file: &Arc<dyn File>, position: Position, bytes: u64) -> Option<Directory> {
    let end = bytes.checked_sub(TRAILER_BYTES)?;
    let mut trailer = [0; TRAILER_BYTES as usize];
    if file.read_at(end, &mut trailer).ok()? != trailer.len() {
        return None;
    }
    let (offset, crc) = trailer.split_at(8);
    if crc32c::crc32c(offset).to_le_bytes() != crc {
        return None;
    }
    let start = u64::from_le_bytes(offset.try_into().ok()?);
    if start < FILE_HEADER_BYTES || start >= end {
        return None;
    }
    let mut scanner = Scanner::new(file.clone(), position, start..end);
    let Some(Found::Block { offset, header }) = scanner.next() else {
        return None;
    };
    if header.kind != BlockKind::Directory || offset + header.block_bytes() != end {
        return None;
    }
    parse_directory(scanner.payload(offset, &header), &header, start)
}

fn parse_directory(payload: &[u8], header: &BlockHeader, end: u64) -> Option<Directory> {
    let mut numbers = payload
        .chunks(8)
        .map(|bytes| bytes.try_into().map(u64::from_le_bytes).ok());
    let blocks = numbers.next()??;
    let mut starts: Vec<u64> = numbers.collect::<Option<_>>()?;
    starts.push(end);
    let ascending = starts.is_sorted() && starts.first() == Some(&FILE_HEADER_BYTES);
    let counted = header.position == Position(blocks.checked_add(1)?);
    let chunks = starts.windows(2).map(|pair| pair[0]..pair[1]).collect();
    (ascending && counted).then_some(Directory { blocks, chunks })
}

fn checkpoint_path(dir: &Path, position: Position) -> PathBuf {
    dir.join(format!("{:020}{SUFFIX}", position.0))
}

/// The positions of the checkpoints in `dir`, ascending.
fn list(disk: &dyn Disk, dir: &Path) -> Result<Vec<Position>, StorageError> {
    let names = disk.list(dir).map_err(StorageError::io("list", dir))?;
    let mut positions: Vec<Position> = names.iter().filter_map(|n| parse_name(n)).collect();
    positions.sort();
    Ok(positions)
}

fn parse_name(name: &Path) -> Option<Position> {
    let digits = name.to_str()?.strip_suffix(SUFFIX)?;
    let position = Position(digits.parse().ok()?);
    (checkpoint_path(Path::new(""), position) == name).then_some(position)
}

fn remove_temporaries(disk: &dyn Disk, dir: &Path) -> Result<(), StorageError> {
    for name in disk.list(dir).map_err(StorageError::io("list", dir))? {
        if name.to_string_lossy().ends_with(TEMPORARY_SUFFIX) {
            tracing::info!(file = %name.display(), "remove checkpoint that was never finished");
            remove_if_there(disk, &dir.join(name))?;
        }
    }
    Ok(())
}

fn remove_if_there(disk: &dyn Disk, path: &Path) -> Result<(), StorageError> {
    match disk.remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => {
            Err(StorageError::io("remove checkpoint", path)(e))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;

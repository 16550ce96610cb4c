//! Append-only files of checksummed blocks: what page segments and the series catalogue are.
//!
//! The blocks are those of the log, numbered on from the number in the file's name, and each says
//! how many before it were not known to be durable. So what is found after a stop of any kind is
//! judged as the log judges its newest segment: damage to what was durable is reported and kept,
//! and the torn tail of a group that nobody relied on is cut off. Invariant: after
//! [`BlockFile::recover`] or [`BlockFile::sync`] returned, every block in the file is durable. A
//! file whose write or sync failed is not written again.

use crate::error::StorageError;
use crate::log::block::{self, BLOCK_HEADER_BYTES, BlockKind, PAYLOAD_BYTES_MAX, Place};
use crate::log::file_header::{self, FILE_HEADER_BYTES, HeaderState, Magic};
use crate::log::recovery::{make_durable, survey};
use firn_model::env::{Env, File, OpenMode};
use firn_model::log::Position;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What a file is called and what it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileKind {
    /// Its first eight bytes.
    pub(crate) magic: Magic,
    /// Behind the number in its name.
    pub(crate) suffix: &'static str,
    /// What its blocks hold.
    pub(crate) block: BlockKind,
}

impl FileKind {
    /// The path of the file with this number.
    pub(crate) fn path(&self, dir: &Path, number: Position) -> PathBuf {
        dir.join(format!("{:020}{}", number.0, self.suffix))
    }

    /// The numbers of the files of this kind in `dir`, ascending; others are not looked at.
    pub(crate) fn list(&self, env: &Env, dir: &Path) -> Result<Vec<Position>, StorageError> {
        let names = env.disk.list(dir).map_err(StorageError::io("list", dir))?;
        let mut numbers: Vec<Position> = names.iter().filter_map(|n| self.parse(n)).collect();
        numbers.sort();
        Ok(numbers)
    }

    fn parse(&self, name: &Path) -> Option<Position> {
        let digits = name.to_str()?.strip_suffix(self.suffix)?;
        let number = Position(digits.parse().ok()?);
        (self.path(Path::new(""), number) == name).then_some(number)
    }
}

/// Behind the name of a file that is not in its place yet.
const TEMPORARY_SUFFIX: &str = ".tmp";

/// For kinds of which one file counts: it grows until a new one takes its place.
impl FileKind {
    /// Opens the newest file in `dir`, if there is one, and says the number of the next. Older
    /// files and what an interrupted replacement left are removed.
    pub(crate) fn open_newest(
        &self,
        env: &Env,
        dir: &Path,
    ) -> Result<(Option<BlockFile>, Position), StorageError> {
        for name in env.disk.list(dir).map_err(StorageError::io("list", dir))? {
            if name.to_string_lossy().ends_with(TEMPORARY_SUFFIX) {
                remove(env, &dir.join(name))?;
            }
        }
        let mut file = None;
        let mut next = Position(1);
        for number in self.list(env, dir)?.into_iter().rev() {
            let path = self.path(dir, number);
            next = next.max(number.next());
            if file.is_some() {
                remove(env, &path)?;
                continue;
            }
            file = BlockFile::recover(env, path, *self, number)?;
        }
        let behind = file.as_ref().map_or(next, |file| file.last().next());
        Ok((file, next.max(behind)))
    }

    /// Begins the file with this number; it counts once [`FileKind::replace`] puts it into its
    /// place.
    pub(crate) fn begin(
        &self,
        env: &Env,
        dir: &Path,
        number: Position,
    ) -> Result<BlockFile, StorageError> {
        let mut path = self.path(dir, number).into_os_string();
        path.push(TEMPORARY_SUFFIX);
        let path = PathBuf::from(path);
        remove(env, &path)?;
        BlockFile::create(env, path, *self, number)
    }

    /// Puts `fresh`, which is synced, into its place in `dir`, and removes `old`.
    pub(crate) fn replace(
        &self,
        env: &Env,
        dir: &Path,
        old: &mut Option<BlockFile>,
        fresh: &mut BlockFile,
    ) -> Result<(), StorageError> {
        fresh.rename(env, self.path(dir, fresh.first()))?;
        match old.take() {
            Some(old) => remove(env, old.path()),
            None => Ok(()),
        }
    }
}

/// Removes a file, which an earlier attempt may have removed already; it is gone for good on
/// return.
pub(crate) fn remove(env: &Env, path: &Path) -> Result<(), StorageError> {
    match env.disk.remove_file(path) {
        Err(e) if e.kind() != ErrorKind::NotFound => {
            return Err(StorageError::io("remove file", path)(e));
        }
        _ => {}
    }
    sync_dir_of(env, path)
}

fn sync_dir_of(env: &Env, path: &Path) -> Result<(), StorageError> {
    let dir = path.parent().unwrap_or(Path::new("."));
    env.disk
        .sync_dir(dir)
        .map_err(StorageError::io("sync folder", dir))
}

/// See the module.
pub(crate) struct BlockFile {
    path: PathBuf,
    file: Arc<dyn File>,
    kind: BlockKind,
    first: Position,
    last: Position,
    durable: Position,
    offset: u64,
    buffer: Vec<u8>,
}

impl BlockFile {
    /// Creates the file; its header and its name are durable on return.
    pub(crate) fn create(
        env: &Env,
        path: PathBuf,
        kind: FileKind,
        first: Position,
    ) -> Result<Self, StorageError> {
        let file = env
            .disk
            .open(&path, OpenMode::CreateNew)
            .map_err(StorageError::io("create file", &path))?;
        file.write_all_at(0, &file_header::encode(&kind.magic, first))
            .map_err(StorageError::io("write file", &path))?;
        file.sync_data()
            .map_err(StorageError::io("sync file", &path))?;
        sync_dir_of(env, &path)?;
        Ok(Self {
            path,
            file,
            kind: kind.block,
            first,
            last: first.previous(),
            durable: first.previous(),
            offset: FILE_HEADER_BYTES,
            buffer: Vec::new(),
        })
    }

    /// Takes a file that was left behind: cuts off a torn tail and makes the rest durable. `None`
    /// if it holds nothing and was removed.
    pub(crate) fn recover(
        env: &Env,
        path: PathBuf,
        kind: FileKind,
        first: Position,
    ) -> Result<Option<Self>, StorageError> {
        let file = env
            .disk
            .open(&path, OpenMode::Write)
            .map_err(StorageError::io("open file", &path))?;
        let bytes = file.len().map_err(StorageError::io("read file", &path))?;
        let header = check_header(&*file, kind, first, &path)?;
        let survey = survey(file.clone(), first, bytes);
        let recovered = |offset| Self {
            path: path.clone(),
            file: file.clone(),
            kind: kind.block,
            first,
            last: survey.last,
            durable: survey.last,
            offset,
            buffer: Vec::new(),
        };
        if survey.unreadable {
            // Nothing is cut that may be sound.
            tracing::error!(file = %path.display(), "file is not readable to its end; kept");
            return Ok(Some(recovered(bytes)));
        }
        if survey.last < first {
            tracing::info!(file = %path.display(), "remove file that was never begun");
            remove(env, &path)?;
            return Ok(None);
        }
        if header != HeaderState::Sound {
            file.write_all_at(0, &file_header::encode(&kind.magic, first))
                .map_err(StorageError::io("write file", &path))?;
        }
        if survey.end < bytes {
            let torn = bytes - survey.end;
            tracing::info!(file = %path.display(), offset = survey.end, torn, "cut off torn tail");
        }
        make_durable(&*file, &survey).map_err(StorageError::io("sync file", &path))?;
        sync_dir_of(env, &path)?;
        Ok(Some(recovered(survey.end)))
    }

    /// The file, to read from.
    pub(crate) fn file(&self) -> &Arc<dyn File> {
        &self.file
    }

    /// Where it lies.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The number in its name.
    pub(crate) fn first(&self) -> Position {
        self.first
    }

    /// The number of the last block; the one before the first if there is none.
    pub(crate) fn last(&self) -> Position {
        self.last
    }

    /// Its length.
    pub(crate) fn bytes(&self) -> u64 {
        self.offset
    }

    /// Writes a block; returns where its payload begins.
    pub(crate) fn append(&mut self, payload: &[u8]) -> Result<u64, StorageError> {
        self.append_kind(self.kind, payload)
    }

    /// Writes a block of another kind; returns where its payload begins.
    pub(crate) fn append_kind(
        &mut self,
        kind: BlockKind,
        payload: &[u8],
    ) -> Result<u64, StorageError> {
        if payload.len() > PAYLOAD_BYTES_MAX {
            return Err(StorageError::BlockTooLarge {
                bytes: payload.len(),
                limit: PAYLOAD_BYTES_MAX,
            });
        }
        let place = Place {
            first: self.first,
            offset: self.offset,
        };
        let unsynced = u32::try_from(self.last.0 - self.durable.0).unwrap_or(u32::MAX);
        let number = self.last.next();
        self.buffer.clear();
        block::encode(place, number, unsynced, kind, payload, &mut self.buffer);
        let bytes = std::mem::take(&mut self.buffer);
        self.append_raw(&bytes)?;
        self.buffer = bytes;
        self.last = number;
        Ok(place.offset + BLOCK_HEADER_BYTES as u64)
    }

    /// Writes bytes that are no block.
    pub(crate) fn append_raw(&mut self, bytes: &[u8]) -> Result<(), StorageError> {
        self.file
            .write_all_at(self.offset, bytes)
            .map_err(StorageError::io("write file", &self.path))?;
        self.offset += bytes.len() as u64;
        Ok(())
    }

    /// Gives the file another name, which is durable on return.
    fn rename(&mut self, env: &Env, to: PathBuf) -> Result<(), StorageError> {
        env.disk
            .rename(&self.path, &to)
            .map_err(StorageError::io("rename file", &self.path))?;
        sync_dir_of(env, &to)?;
        self.path = to;
        Ok(())
    }

    /// Makes all that was written durable.
    pub(crate) fn sync(&mut self) -> Result<(), StorageError> {
        self.file
            .sync_data()
            .map_err(StorageError::io("sync file", &self.path))?;
        self.durable = self.last;
        Ok(())
    }
}

/// Reads the header of an open file.
pub(crate) fn check_header(
    file: &dyn File,
    kind: FileKind,
    first: Position,
    path: &Path,
) -> Result<HeaderState, StorageError> {
    let mut bytes = [0; FILE_HEADER_BYTES as usize];
    let Ok(read) = file.read_at(0, &mut bytes) else {
        return Ok(HeaderState::Unreadable);
    };
    file_header::check(&bytes[..read], &kind.magic, first, path)
}

//! Append-only files of checksummed frames: what page segments and the series catalogue are.
//!
//! The frames are those of the log, numbered on from the number in the file's name, and each says
//! how many before it were not known to be durable. So what is found after a stop of any kind is
//! judged as the log judges its newest segment: damage to what was durable is reported and kept,
//! and the torn tail of a group that was never promised is cut off. Each sync is followed by a
//! frame that says that all before it is durable. Invariants: after [`AppendOnlyFile::recover`] or
//! [`AppendOnlyFile::sync`] returned, every frame in the file is durable. A file whose write or
//! sync failed is not written again, and one that the disk does not deliver whole is left exactly
//! as it is.

use super::frame::{self, FRAME_HEADER_BYTES, FrameHeader, FrameKind, PAYLOAD_BYTES_MAX, Place};
use super::header::{self, FILE_HEADER_BYTES, HeaderState, Magic};
use super::scan::{Found, Scanner};
use super::survey::{make_durable, survey};
use crate::error::StorageError;
use crate::manifest::KnownFile;
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
    /// What its frames hold.
    pub(crate) frame: FrameKind,
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

    /// The number in the name of a file of this kind.
    pub(crate) fn parse(&self, name: &Path) -> Option<Position> {
        let digits = name.to_str()?.strip_suffix(self.suffix)?;
        let number = Position(digits.parse().ok()?);
        (self.path(Path::new(""), number) == name).then_some(number)
    }
}

/// What [`FileKind::open_newest`] found.
pub(crate) struct Newest {
    /// The newest file, if there is one.
    pub(crate) file: Option<AppendOnlyFile>,
    /// The number of the next one.
    pub(crate) next: Position,
}

/// Behind the name of a file that is not in its place yet.
const TEMPORARY_SUFFIX: &str = ".tmp";

/// Bytes read at once where only whether they can be read matters.
const READ_BYTES: usize = 256 << 10;

/// For kinds of which one file counts: it grows until a new one takes its place.
impl FileKind {
    /// Opens the newest file in `dir`, if there is one. Older files are removed, unless it is
    /// damaged, and so is what an interrupted replacement left. Of the file with the number in
    /// `known` so many bytes are known to have been durable.
    pub(crate) fn open_newest(
        &self,
        env: &Env,
        dir: &Path,
        known: KnownFile,
    ) -> Result<Newest, StorageError> {
        let temporary = format!("{}{TEMPORARY_SUFFIX}", self.suffix);
        for name in env.disk.list(dir).map_err(StorageError::io("list", dir))? {
            if name.to_string_lossy().ends_with(&temporary) {
                remove(env, &dir.join(name))?;
            }
        }
        let mut newest = Newest {
            file: None,
            next: known.number.next(),
        };
        for number in self.list(env, dir)?.into_iter().rev() {
            let path = self.path(dir, number);
            newest.next = newest.next.max(number.next());
            match &newest.file {
                Some(file) if file.is_whole() && is_readable(env, &path) => remove(env, &path)?,
                Some(_) => {}
                None => {
                    let durable_bytes = known.durable_bytes(number);
                    newest.file = AppendOnlyFile::recover(env, path, *self, number, durable_bytes)?;
                }
            }
        }
        let behind = newest.file.as_ref().map(|file| file.last().next());
        newest.next = newest.next.max(behind.unwrap_or_default());
        Ok(newest)
    }

    /// Begins the file with this number; it counts once [`FileKind::put_in_place`] puts it into its
    /// place.
    pub(crate) fn begin(
        &self,
        env: &Env,
        dir: &Path,
        number: Position,
    ) -> Result<AppendOnlyFile, StorageError> {
        let mut path = self.path(dir, number).into_os_string();
        path.push(TEMPORARY_SUFFIX);
        let path = PathBuf::from(path);
        remove(env, &path)?;
        AppendOnlyFile::create(env, path, *self, number)
    }

    /// Puts `fresh`, which is synced, into its place in `dir`. After an error it is not known which
    /// of the files a start would take, so neither may be written again.
    pub(crate) fn put_in_place(
        &self,
        env: &Env,
        dir: &Path,
        fresh: &mut AppendOnlyFile,
    ) -> Result<(), StorageError> {
        fresh.rename(env, self.path(dir, fresh.first()))
    }
}

/// Whether the disk delivers all of a file.
fn is_readable(env: &Env, path: &Path) -> bool {
    let Ok(file) = env.disk.open(path, OpenMode::Read) else {
        return false;
    };
    let mut buffer = vec![0; READ_BYTES];
    let mut offset = 0;
    loop {
        match file.read_at(offset, &mut buffer) {
            Ok(0) => return true,
            Ok(count) => offset += count as u64,
            Err(_) => return false,
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
pub(crate) struct AppendOnlyFile {
    path: PathBuf,
    file: Arc<dyn File>,
    kind: FrameKind,
    first: Position,
    last: Position,
    durable: Position,
    offset: u64,
    /// How far it is durable.
    durable_bytes: u64,
    /// CRC-32C of the file, if all of it was written here.
    crc: Option<u32>,
    buffer: Vec<u8>,
    /// What of it is no frame although it was durable, in bytes.
    damaged_bytes: u64,
    /// The disk does not deliver all of it: nothing may be written to it.
    is_unreadable: bool,
}

impl AppendOnlyFile {
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
        let header = header::encode(&kind.magic, first);
        file.write_all_at(0, &header)
            .map_err(StorageError::io("write file", &path))?;
        file.sync_data()
            .map_err(StorageError::io("sync file", &path))?;
        sync_dir_of(env, &path)?;
        Ok(Self {
            path,
            file,
            kind: kind.frame,
            first,
            last: first.previous(),
            durable: first.previous(),
            offset: FILE_HEADER_BYTES,
            durable_bytes: FILE_HEADER_BYTES,
            crc: Some(crc32c::crc32c(&header)),
            buffer: Vec::new(),
            damaged_bytes: 0,
            is_unreadable: false,
        })
    }

    /// Takes a file that was left behind, of which `durable_bytes` are known to have been durable:
    /// cuts off a torn tail and makes the rest durable. `None` if it holds nothing and was removed.
    /// A file that the disk does not deliver is left as it is.
    pub(crate) fn recover(
        env: &Env,
        path: PathBuf,
        kind: FileKind,
        first: Position,
        durable_bytes: u64,
    ) -> Result<Option<Self>, StorageError> {
        let file = env
            .disk
            .open(&path, OpenMode::Write)
            .map_err(StorageError::io("open file", &path))?;
        let bytes = file.len().map_err(StorageError::io("read file", &path))?;
        let header = check_header(&*file, kind, first, &path)?;
        let survey = survey(file.clone(), first, bytes, durable_bytes);
        let is_unreadable = survey.unreadable || header == HeaderState::Unreadable;
        let recovered = |offset| Self {
            path: path.clone(),
            file: file.clone(),
            kind: kind.frame,
            first,
            last: survey.last,
            durable: survey.last,
            offset,
            durable_bytes: offset,
            crc: None,
            buffer: Vec::new(),
            damaged_bytes: survey.damaged_bytes + durable_bytes.saturating_sub(bytes),
            is_unreadable,
        };
        if is_unreadable {
            tracing::error!(file = %path.display(), "file is not readable to its end: keeping it");
            return Ok(Some(recovered(bytes)));
        }
        if survey.last < first && durable_bytes <= FILE_HEADER_BYTES {
            tracing::info!(file = %path.display(), "removing file without a complete header");
            remove(env, &path)?;
            return Ok(None);
        }
        if header != HeaderState::Sound {
            file.write_all_at(0, &header::encode(&kind.magic, first))
                .map_err(StorageError::io("write file", &path))?;
        }
        if survey.end < bytes {
            let torn = bytes - survey.end;
            tracing::info!(
                file = %path.display(),
                offset = survey.end,
                torn,
                "cut off incomplete record at the end of the file"
            );
        }
        make_durable(&*file, &survey).map_err(StorageError::io("sync file", &path))?;
        sync_dir_of(env, &path)?;
        Ok(Some(recovered(survey.end)))
    }

    /// Whether every frame that was durable is there and can be read.
    pub(crate) fn is_whole(&self) -> bool {
        !self.is_unreadable && self.damaged_bytes == 0
    }

    /// What is wrong with a file that is not whole.
    pub(crate) fn trouble(&self) -> String {
        match self.is_unreadable {
            true => "the disk does not deliver all of it".to_owned(),
            false => format!("{} bytes are damaged or missing", self.damaged_bytes),
        }
    }

    /// Whether the disk does not deliver all of it, so that nothing may be written to it.
    pub(crate) fn is_unreadable(&self) -> bool {
        self.is_unreadable
    }

    /// Walks its frames from the first one.
    pub(crate) fn scanner(&self) -> Scanner {
        let range = FILE_HEADER_BYTES..self.offset;
        Scanner::new(self.file.clone(), self.first, range)
    }

    /// Calls `each` with the sound frames of a kind, and passes over what is damaged. The scanner
    /// reads their payloads.
    pub(crate) fn each_frame(
        &self,
        kind: FrameKind,
        each: &mut dyn FnMut(&mut Scanner, u64, &FrameHeader),
    ) {
        let mut scanner = self.scanner();
        while let Some(found) = scanner.next() {
            if let Found::Frame { offset, header } = found
                && header.kind == kind
            {
                each(&mut scanner, offset, &header);
            }
        }
    }

    /// Where it lies.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The number in its name.
    pub(crate) fn first(&self) -> Position {
        self.first
    }

    /// The number of the last frame; the one before the first if there is none.
    pub(crate) fn last(&self) -> Position {
        self.last
    }

    /// Its length.
    pub(crate) fn bytes(&self) -> u64 {
        self.offset
    }

    /// Writes a frame; returns where its payload begins.
    pub(crate) fn append(&mut self, payload: &[u8]) -> Result<u64, StorageError> {
        self.append_kind(self.kind, payload)
    }

    /// Writes a frame of another kind; returns where its payload begins.
    pub(crate) fn append_kind(
        &mut self,
        kind: FrameKind,
        payload: &[u8],
    ) -> Result<u64, StorageError> {
        if payload.len() > PAYLOAD_BYTES_MAX {
            return Err(StorageError::RecordTooLarge {
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
        frame::encode(place, number, unsynced, kind, payload, &mut self.buffer);
        let bytes = std::mem::take(&mut self.buffer);
        self.append_raw(&bytes)?;
        self.buffer = bytes;
        self.last = number;
        Ok(place.offset + FRAME_HEADER_BYTES as u64)
    }

    /// Writes bytes that are no frame.
    pub(crate) fn append_raw(&mut self, bytes: &[u8]) -> Result<(), StorageError> {
        self.file
            .write_all_at(self.offset, bytes)
            .map_err(StorageError::io("write file", &self.path))?;
        self.offset += bytes.len() as u64;
        self.crc = self.crc.map(|crc| crc32c::crc32c_append(crc, bytes));
        Ok(())
    }

    /// How many of its bytes are durable.
    pub(crate) fn durable_bytes(&self) -> u64 {
        self.durable_bytes
    }

    /// CRC-32C of the file, if all of it was written by this process.
    pub(crate) fn crc(&self) -> Option<u32> {
        self.crc
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

    /// Makes all that was written durable, and says so behind it: what is found damaged before was
    /// not torn.
    pub(crate) fn sync(&mut self) -> Result<(), StorageError> {
        self.sync_end()?;
        if self.last < self.first {
            return Ok(());
        }
        let place = Place {
            first: self.first,
            offset: self.offset,
        };
        self.buffer.clear();
        let (position, kind) = (self.last.next(), FrameKind::Padding);
        frame::encode(place, position, 0, kind, &[], &mut self.buffer);
        let bytes = std::mem::take(&mut self.buffer);
        self.append_raw(&bytes)?;
        self.buffer = bytes;
        Ok(())
    }

    /// Like [`AppendOnlyFile::sync`], for the last bytes of a file: no mark follows them.
    pub(crate) fn sync_end(&mut self) -> Result<(), StorageError> {
        self.file
            .sync_data()
            .map_err(StorageError::io("sync file", &self.path))?;
        self.durable = self.last;
        self.durable_bytes = self.offset;
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
    header::check(&bytes[..read], &kind.magic, first, path)
}

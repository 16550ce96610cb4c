//! Append-only files of checksummed frames, used for page segments, the series catalogue and
//! exemplars.
//!
//! The frames are those of the log, numbered from the number in the file's name. Each frame
//! contains the number of preceding frames that were not durable when it was written. After a
//! crash, a file is therefore recovered like the newest segment of the log: damage of durable
//! frames is kept and reported, and the torn tail of a group that was never acknowledged is cut
//! off. Each sync is followed by a frame that marks everything before it as durable. Invariants:
//! after [`AppendOnlyFile::recover`] or [`AppendOnlyFile::sync`] returned, every frame in the file
//! is durable. A file whose write or sync failed is not written again, and a file that the disk
//! cannot read completely is left exactly as it is.

use super::frame::{
    self, FRAME_HEADER_BYTES, FrameHeader, FrameKind, FramePlace, PAYLOAD_BYTES_MAX,
};
use super::header::{self, FILE_HEADER_BYTES, FileHeaderState, FileMagic};
use super::scan::{FrameScanItem, FrameScanner};
use super::survey::{make_durable, survey};
use crate::error::StorageError;
use crate::manifest::ManifestFileEntry;
use firn_model::env::{DiskFile, Env, OpenMode};
use firn_model::log::LogPosition;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Properties of one kind of file: its magic, its name suffix and its frames.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileKind {
    /// Magic in its first eight bytes.
    pub(crate) magic: FileMagic,
    /// Suffix of its name after the number.
    pub(crate) suffix: &'static str,
    /// Kind of the frames that contain its data.
    pub(crate) frame: FrameKind,
}

impl FileKind {
    /// Returns the path of the file with this number.
    pub(crate) fn path(&self, dir: &Path, number: LogPosition) -> PathBuf {
        dir.join(format!("{:020}{}", number.0, self.suffix))
    }

    /// Returns the numbers of the files of this kind in `dir`, in ascending order. Ignores other
    /// files.
    pub(crate) fn list(&self, env: &Env, dir: &Path) -> Result<Vec<LogPosition>, StorageError> {
        let names = env.disk.list(dir).map_err(StorageError::io("list", dir))?;
        let mut numbers: Vec<LogPosition> = names.iter().filter_map(|n| self.parse(n)).collect();
        numbers.sort();
        Ok(numbers)
    }

    /// Returns the number in the name of a file of this kind.
    pub(crate) fn parse(&self, name: &Path) -> Option<LogPosition> {
        let digits = name.to_str()?.strip_suffix(self.suffix)?;
        let number = LogPosition(digits.parse().ok()?);
        (self.path(Path::new(""), number) == name).then_some(number)
    }
}

/// Result of [`FileKind::open_newest`]: the current file, and the number for its replacement.
pub(crate) struct NewestFile {
    /// The newest file, if there is one.
    pub(crate) file: Option<AppendOnlyFile>,
    /// Number of the next file.
    pub(crate) next: LogPosition,
}

/// Suffix of a file that is not at its final name yet.
const TEMPORARY_SUFFIX: &str = ".tmp";

/// Bytes read at once to check whether a file can be read.
const READ_BYTES: usize = 256 << 10;

/// For kinds with a single current file, which grows until a new one replaces it.
impl FileKind {
    /// Opens the newest file in `dir`, if there is one. Removes older files, unless the newest one
    /// is damaged, and the remains of an interrupted replacement. The file with the number in
    /// `known` had at least that many durable bytes.
    pub(crate) fn open_newest(
        &self,
        env: &Env,
        dir: &Path,
        known: ManifestFileEntry,
    ) -> Result<NewestFile, StorageError> {
        let temporary = format!("{}{TEMPORARY_SUFFIX}", self.suffix);
        for name in env.disk.list(dir).map_err(StorageError::io("list", dir))? {
            if name.to_string_lossy().ends_with(&temporary) {
                remove(env, &dir.join(name))?;
            }
        }
        let mut newest = NewestFile {
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

    /// Creates the file with this number under a temporary name. It becomes the current file when
    /// [`FileKind::install_file`] renames it.
    pub(crate) fn begin(
        &self,
        env: &Env,
        dir: &Path,
        number: LogPosition,
    ) -> Result<AppendOnlyFile, StorageError> {
        let mut path = self.path(dir, number).into_os_string();
        path.push(TEMPORARY_SUFFIX);
        let path = PathBuf::from(path);
        remove(env, &path)?;
        AppendOnlyFile::create(env, path, *self, number)
    }

    /// Renames `fresh`, which must be synced, to its final name in `dir`. After an error, a restart
    /// may open either file, so neither may be written again.
    pub(crate) fn install_file(
        &self,
        env: &Env,
        dir: &Path,
        fresh: &mut AppendOnlyFile,
    ) -> Result<(), StorageError> {
        fresh.rename(env, self.path(dir, fresh.first()))
    }
}

/// Returns whether the disk can read a file completely.
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

/// Removes a file durably. It is no error if the file does not exist, because an earlier attempt
/// may have removed it.
pub(crate) fn remove(env: &Env, path: &Path) -> Result<(), StorageError> {
    match env.disk.remove_file(path) {
        Err(e) if e.kind() != ErrorKind::NotFound => {
            return Err(StorageError::io("remove file", path)(e));
        }
        _ => {}
    }
    sync_dir_of(env, path)
}

/// Syncs the folder that contains `path`, so that a new or removed name in it is durable.
fn sync_dir_of(env: &Env, path: &Path) -> Result<(), StorageError> {
    let dir = path.parent().unwrap_or(Path::new("."));
    env.disk
        .sync_dir(dir)
        .map_err(StorageError::io("sync folder", dir))
}

/// An open append-only file. Created by [`FileKind::begin`] or [`AppendOnlyFile::create`], or
/// recovered at startup.
pub(crate) struct AppendOnlyFile {
    path: PathBuf,
    file: Arc<dyn DiskFile>,
    kind: FrameKind,
    first: LogPosition,
    last: LogPosition,
    durable: LogPosition,
    offset: u64,
    /// Number of bytes from the start of the file that are durable.
    durable_bytes: u64,
    /// CRC-32C of the file, if this process wrote all of it.
    crc: Option<u32>,
    buffer: Vec<u8>,
    /// Number of bytes that were durable and are not valid frames.
    damaged_bytes: u64,
    /// True if the disk cannot read the file completely: nothing may be written to it.
    is_unreadable: bool,
}

impl AppendOnlyFile {
    /// Creates the file; its header and its name are durable on return.
    pub(crate) fn create(
        env: &Env,
        path: PathBuf,
        kind: FileKind,
        first: LogPosition,
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

    /// Recovers an existing file, of which at least `durable_bytes` were durable: cuts off a torn
    /// tail and makes the rest durable. Returns `None` if it contains no frames and was removed. A
    /// file that the disk cannot read is left as it is.
    pub(crate) fn recover(
        env: &Env,
        path: PathBuf,
        kind: FileKind,
        first: LogPosition,
        durable_bytes: u64,
    ) -> Result<Option<Self>, StorageError> {
        let file = env
            .disk
            .open(&path, OpenMode::Write)
            .map_err(StorageError::io("open file", &path))?;
        let bytes = file.len().map_err(StorageError::io("read file", &path))?;
        let header = check_header(&*file, kind, first, &path)?;
        let survey = survey(file.clone(), first, bytes, durable_bytes);
        let is_unreadable = survey.unreadable || header == FileHeaderState::Unreadable;
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
        if header != FileHeaderState::Sound {
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

    /// Returns whether every durable frame exists and can be read.
    pub(crate) fn is_whole(&self) -> bool {
        !self.is_unreadable && self.damaged_bytes == 0
    }

    /// Describes the damage of a file that is not whole.
    pub(crate) fn describe_damage(&self) -> String {
        if self.is_unreadable {
            "the disk does not deliver all of it".to_owned()
        } else {
            format!("{} bytes are damaged or missing", self.damaged_bytes)
        }
    }

    /// Returns whether the disk cannot read the file completely, so that nothing may be written to
    /// it.
    pub(crate) fn is_unreadable(&self) -> bool {
        self.is_unreadable
    }

    /// Returns a scanner over its frames from the first one.
    pub(crate) fn scanner(&self) -> FrameScanner {
        let range = FILE_HEADER_BYTES..self.offset;
        FrameScanner::new(self.file.clone(), self.first, range)
    }

    /// Calls `each` with the valid frames of a kind, and skips damage. The scanner reads their
    /// payloads.
    pub(crate) fn for_each_frame(
        &self,
        kind: FrameKind,
        each: &mut dyn FnMut(&mut FrameScanner, u64, &FrameHeader),
    ) {
        let mut scanner = self.scanner();
        while let Some(found) = scanner.next() {
            if let FrameScanItem::Frame { offset, header } = found
                && header.kind == kind
            {
                each(&mut scanner, offset, &header);
            }
        }
    }

    /// Returns the path of the file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the number in its name, which is also that of its first frame.
    pub(crate) fn first(&self) -> LogPosition {
        self.first
    }

    /// Returns the number of the last frame; the one before the first if there is none.
    pub(crate) fn last(&self) -> LogPosition {
        self.last
    }

    /// Returns its length in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.offset
    }

    /// Writes a frame. Returns the offset of its payload.
    pub(crate) fn append(&mut self, payload: &[u8]) -> Result<u64, StorageError> {
        self.append_kind(self.kind, payload)
    }

    /// Writes a frame of another kind. Returns the offset of its payload.
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
        let place = FramePlace {
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

    /// Writes bytes that are not a frame at the end of the file.
    pub(crate) fn append_raw(&mut self, bytes: &[u8]) -> Result<(), StorageError> {
        self.file
            .write_all_at(self.offset, bytes)
            .map_err(StorageError::io("write file", &self.path))?;
        self.offset += bytes.len() as u64;
        self.crc = self.crc.map(|crc| crc32c::crc32c_append(crc, bytes));
        Ok(())
    }

    /// Returns the number of durable bytes.
    pub(crate) fn durable_bytes(&self) -> u64 {
        self.durable_bytes
    }

    /// Returns the CRC-32C of the file, if this process wrote all of it.
    pub(crate) fn crc(&self) -> Option<u32> {
        self.crc
    }

    /// Renames the file, and syncs the folder so that the new name is durable.
    fn rename(&mut self, env: &Env, to: PathBuf) -> Result<(), StorageError> {
        env.disk
            .rename(&self.path, &to)
            .map_err(StorageError::io("rename file", &self.path))?;
        sync_dir_of(env, &to)?;
        self.path = to;
        Ok(())
    }

    /// Syncs all written frames and marks them as durable with another frame, so that later damage
    /// of them is not taken for a torn write.
    pub(crate) fn sync(&mut self) -> Result<(), StorageError> {
        self.sync_without_mark()?;
        if self.last < self.first {
            return Ok(());
        }
        let place = FramePlace {
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
    pub(crate) fn sync_without_mark(&mut self) -> Result<(), StorageError> {
        self.file
            .sync_data()
            .map_err(StorageError::io("sync file", &self.path))?;
        self.durable = self.last;
        self.durable_bytes = self.offset;
        Ok(())
    }
}

/// Reads and checks the header of an open file.
pub(crate) fn check_header(
    file: &dyn DiskFile,
    kind: FileKind,
    first: LogPosition,
    path: &Path,
) -> Result<FileHeaderState, StorageError> {
    let mut bytes = [0; FILE_HEADER_BYTES as usize];
    let Ok(read) = file.read_at(0, &mut bytes) else {
        return Ok(FileHeaderState::Unreadable);
    };
    header::check(&bytes[..read], &kind.magic, first, path)
}

//! The data folder: its lock, its format version, and the files and folders in it.
//!
//! ```text
//! LOCK            held by the process that uses the folder
//! FORMAT          "firn data format 4\n"; written before anything but the first manifest
//! SCRATCH         marks a folder whose log is elsewhere: each open empties it
//! MANIFEST        the files that must exist
//! wal/            segments of the log
//! pages/          segments of sealed samples
//! series/         the series catalogue
//! exemplars/      the file of exemplars
//! blocks/         blocks and their manifest
//! metadata/       metric metadata from pushes, written by the binary
//! tenants/        a data folder for each further tenant
//! snapshots/      copies of the folder at certain times
//! set-aside/      damaged files that a repair replaced
//! ```
//!
//! Invariant: nothing is written to a folder that another process uses, that contains other data,
//! or whose format this version does not support. `docs/format/data-folder.md` is the reference.

mod scratch;

pub(crate) use scratch::remove_tree;

use crate::error::StorageError;
use crate::manifest::{self, Manifest};
use firn_model::env::{DirLock, Disk, Env, LockOwner, OpenMode};
use scratch::{FolderNames, SCRATCH, create_marker};
use std::io;
use std::path::{Path, PathBuf};

/// Format version of the folder as a whole; its files have versions of their own.
pub const DATA_FORMAT: u32 = 4;

/// Older formats that can be upgraded: 3 had no blocks, 2 had neither a manifest nor a copy of the
/// catalogue.
const DATA_FORMATS_BEFORE: [u32; 2] = [3, 2];

const LOCK: &str = "LOCK";
const FORMAT: &str = "FORMAT";
const FORMAT_TEMPORARY: &str = "FORMAT.tmp";
const FORMAT_PREFIX: &str = "firn data format ";

/// Maximum size of a `FORMAT` file in bytes; a longer file is something else.
const FORMAT_BYTES_MAX: usize = 64;

/// Names that an empty folder may contain: those of Firn, and those that file systems create in
/// their root.
const HARMLESS: [&str; 6] = [
    LOCK,
    SCRATCH,
    FORMAT_TEMPORARY,
    manifest::NAME,
    manifest::TEMPORARY,
    "lost+found",
];

/// Folder for damaged files that a repair replaced.
pub(crate) const SET_ASIDE: &str = "set-aside";

/// Name of the folder of the blocks.
pub(crate) const BLOCKS: &str = "blocks";

const SNAPSHOTS: &str = "snapshots";

/// Folder for the data folders of the other tenants of a server with several.
pub const TENANTS: &str = "tenants";

/// Other names that a folder in use may contain.
const KNOWN: [&str; 12] = [
    FORMAT,
    "wal",
    "pages",
    "series",
    "exemplars",
    BLOCKS,
    SNAPSHOTS,
    "queries.active",
    "rules",
    "metadata",
    TENANTS,
    SET_ASIDE,
];

/// A data folder that this process owns exclusively until it is dropped.
pub struct DataDir {
    root: PathBuf,
    /// Its format version; the current one after an upgrade.
    format: u32,
    _lock: Box<dyn DirLock>,
}

impl DataDir {
    /// Opens and locks the folder at `root`; creates it if it does not exist. Fails if another
    /// process uses it, or if it contains other data or another format.
    pub fn open(env: &Env, root: &Path) -> Result<Self, StorageError> {
        let disk = &*env.disk;
        let names = FolderNames::create_and_list(disk, root)?;
        names.require_data_or_empty(root)?;
        let lock = take_lock(disk, root)?;
        let mut format = DATA_FORMAT;
        if names.has(FORMAT) {
            format = check_format(disk, &root.join(FORMAT))?;
        } else {
            begin_format(disk, root)?;
        }
        Self::with_folders(disk, root, format, lock)
    }

    /// Opens and locks the folder at `root` as a scratch folder, whose files are useless after the
    /// end of the store: creates it, or removes the store's files of an earlier life. Fails if
    /// another process uses it, or if it contains anything but a scratch folder.
    pub fn open_scratch(env: &Env, root: &Path) -> Result<Self, StorageError> {
        let disk = &*env.disk;
        let names = FolderNames::create_and_list(disk, root)?;
        if !names.has(SCRATCH) {
            names.require_empty(root)?;
        }
        let lock = take_lock(disk, root)?;
        if !names.has(SCRATCH) {
            create_marker(disk, root)
                .map_err(|e| explain_io_error(root, "create scratch folder", e))?;
        }
        remove_format(disk, root).map_err(StorageError::io("remove format of", root))?;
        for folder in folders_of(root) {
            if disk.list(&folder).is_ok() {
                remove_tree(disk, &folder)?;
            }
        }
        begin_format(disk, root)?;
        Self::with_folders(disk, root, DATA_FORMAT, lock)
    }

    /// Creates the missing folders of a data folder that is locked.
    fn with_folders(
        disk: &dyn Disk,
        root: &Path,
        format: u32,
        lock: Box<dyn DirLock>,
    ) -> Result<Self, StorageError> {
        for folder in folders_of(root) {
            disk.create_dir_all(&folder)
                .map_err(|e| explain_io_error(root, "create folder in", e))?;
        }
        Ok(Self {
            root: root.to_path_buf(),
            format,
            _lock: lock,
        })
    }

    /// Locks the existing data folder at `root` for reading: only the lock file is created.
    pub fn hold(env: &Env, root: &Path) -> Result<Self, StorageError> {
        let disk = &*env.disk;
        let names = disk.list(root).map_err(StorageError::io("list", root))?;
        if !names.iter().any(|name| name.as_os_str() == FORMAT) {
            return Err(StorageError::NoData {
                path: root.to_path_buf(),
            });
        }
        FolderNames(names).require_durable(root)?;
        let lock = take_lock(disk, root)?;
        Ok(Self {
            root: root.to_path_buf(),
            format: check_format(disk, &root.join(FORMAT))?,
            _lock: lock,
        })
    }

    /// Returns whether the folder has format 2, the last one without a manifest.
    pub(crate) fn is_without_manifest(&self) -> bool {
        self.format == 2
    }

    /// Returns whether the folder has the current format.
    pub(crate) fn is_current(&self) -> bool {
        self.format == DATA_FORMAT
    }

    /// Sets the format version to the current one. The manifest must already be written.
    pub(crate) fn upgrade(&mut self, env: &Env) -> Result<(), StorageError> {
        if !self.is_current() {
            write_format(&*env.disk, &self.root, DATA_FORMAT)
                .map_err(|e| explain_io_error(&self.root, "write format of", e))?;
            self.format = DATA_FORMAT;
        }
        Ok(())
    }

    /// Returns the path of the folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the folder of the log.
    pub fn wal(&self) -> PathBuf {
        self.root.join("wal")
    }

    /// Returns the folder of the page segments.
    pub fn pages(&self) -> PathBuf {
        self.root.join("pages")
    }

    /// Returns the folder of the series catalogue.
    pub fn series(&self) -> PathBuf {
        self.root.join("series")
    }

    /// Returns the folder of the file of exemplars.
    pub fn exemplars(&self) -> PathBuf {
        self.root.join("exemplars")
    }

    /// Returns the folder of the blocks and their manifest.
    pub fn blocks(&self) -> PathBuf {
        self.root.join(BLOCKS)
    }

    /// Returns the folder of the snapshots, which may not exist.
    pub(crate) fn snapshots(&self) -> PathBuf {
        self.root.join(SNAPSHOTS)
    }

    /// Returns the folders that every data folder has.
    pub(crate) fn folders(&self) -> [PathBuf; 5] {
        folders_of(&self.root)
    }

    /// Returns the format version.
    pub(crate) fn format(&self) -> u32 {
        self.format
    }
}

/// The names of the folders that every data folder has.
const FOLDERS: [&str; 5] = ["wal", "pages", "series", "exemplars", BLOCKS];

fn folders_of(root: &Path) -> [PathBuf; 5] {
    FOLDERS.map(|name| root.join(name))
}

/// Writes the first files of a new data folder.
fn begin_format(disk: &dyn Disk, root: &Path) -> Result<(), StorageError> {
    // The manifest is first, so that a folder of this format without one is detected as damaged.
    Manifest::default().write(disk, root)?;
    write_format(disk, root, DATA_FORMAT).map_err(|e| explain_io_error(root, "write format of", e))
}

/// Returns whether the folder at `root` contains a `FORMAT` file.
pub(crate) fn has_format(disk: &dyn Disk, root: &Path) -> bool {
    let names = disk.list(root).unwrap_or_default();
    names.iter().any(|name| name.as_os_str() == FORMAT)
}

/// Removes the `FORMAT` file at `root`, after which the folder is not a data folder any more.
pub(crate) fn remove_format(disk: &dyn Disk, root: &Path) -> io::Result<()> {
    match disk.remove_file(&root.join(FORMAT)) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(e),
        Ok(()) => disk.sync_dir(root),
    }
}

/// Locks the folder at `root` for this process; the lock is released when the result is dropped.
fn take_lock(disk: &dyn Disk, root: &Path) -> Result<Box<dyn DirLock>, StorageError> {
    disk.lock(&root.join(LOCK)).map_err(|e| match e.kind() {
        io::ErrorKind::WouldBlock => StorageError::Locked {
            path: root.to_path_buf(),
            owner: LockOwner::from_error(&e).map(|owner| owner.0),
        },
        _ => explain_io_error(root, "lock folder", e),
    })
}

/// Returns whether a file or folder of this name belongs to a data folder.
pub(crate) fn is_known(name: &Path) -> bool {
    KNOWN.iter().any(|known| name.as_os_str() == *known) || is_harmless(name)
}

fn is_harmless(name: &Path) -> bool {
    HARMLESS
        .iter()
        .any(|harmless| name.as_os_str() == *harmless)
}

/// Returns the error of a failed operation on the folder, with a clear message if the folder is not
/// writable.
fn explain_io_error(root: &Path, action: &'static str, source: io::Error) -> StorageError {
    match source.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            StorageError::NotWritable {
                path: root.to_path_buf(),
                source,
            }
        }
        _ => StorageError::io(action, root)(source),
    }
}

/// Returns the format version of a folder, or an error if this version does not support it.
fn check_format(disk: &dyn Disk, path: &Path) -> Result<u32, StorageError> {
    let mut bytes = [0; FORMAT_BYTES_MAX];
    let read = disk
        .open(path, OpenMode::Read)
        .and_then(|file| file.read_at(0, &mut bytes))
        .map_err(StorageError::io("read format of", path))?;
    let text = String::from_utf8_lossy(&bytes[..read]);
    let found = text.strip_prefix(FORMAT_PREFIX).map(str::trim_end);
    let is_read = |format: &u32| found == Some(&format.to_string());
    let mut formats = std::iter::once(DATA_FORMAT).chain(DATA_FORMATS_BEFORE);
    if let Some(format) = formats.find(is_read) {
        return Ok(format);
    }
    Err(StorageError::Format {
        path: path.to_path_buf(),
        found: found.unwrap_or("unknown").to_owned(),
        known: DATA_FORMAT,
    })
}

/// Writes the file under another name first, so that it exists completely or not at all.
pub(crate) fn write_format(disk: &dyn Disk, root: &Path, format: u32) -> io::Result<()> {
    let temporary = root.join(FORMAT_TEMPORARY);
    match disk.remove_file(&temporary) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let file = disk.open(&temporary, OpenMode::CreateNew)?;
    file.write_all_at(0, format!("{FORMAT_PREFIX}{format}\n").as_bytes())?;
    file.sync_data()?;
    disk.rename(&temporary, &root.join(FORMAT))?;
    disk.sync_dir(root)
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_model::env::sim::{self, SimEnv};

    const ROOT: &str = "var/firn";

    /// Opens the folder of `sim`, and compares the error with the expected one.
    #[track_caller]
    fn check(sim: &SimEnv, expected: Result<(), &str>) {
        let opened = DataDir::open(&sim.env, Path::new(ROOT));
        let outcome = opened.map(|_| ()).map_err(|e| e.to_string());
        assert_eq!(outcome, expected.map_err(str::to_owned));
    }

    fn with_file(name: &str, contents: &[u8]) -> SimEnv {
        let sim = sim::sim_env(1);
        sim.env.disk.create_dir_all(Path::new(ROOT)).unwrap();
        sim.disk.overwrite(&Path::new(ROOT).join(name), contents);
        sim
    }

    #[test]
    fn new_folder_is_laid_out_and_opens_again_after_a_crash() {
        let sim = sim::sim_env(1);
        check(&sim, Ok(()));
        sim.disk.crash();
        check(&sim, Ok(()));
        let names = sim.env.disk.list(Path::new(ROOT)).unwrap();
        let expected = [
            "FORMAT",
            "LOCK",
            "MANIFEST",
            "blocks",
            "exemplars",
            "pages",
            "series",
            "wal",
        ];
        assert_eq!(names, expected.map(PathBuf::from));
    }

    #[test]
    fn new_folder_cut_off_by_power_loss_anywhere_opens_afterwards() {
        for changes in 0..14 {
            let sim = sim::sim_env(changes);
            sim.disk.power_off_after(changes);
            let _ = DataDir::open(&sim.env, Path::new(ROOT));
            sim.disk.crash();
            check(&sim, Ok(()));
        }
    }

    #[test]
    fn folder_in_use_is_refused_until_its_owner_is_gone() {
        let sim = sim::sim_env(1);
        let owner = DataDir::open(&sim.env, Path::new(ROOT)).unwrap();
        check(
            &sim,
            Err("data folder var/firn is locked: another process is using it"),
        );
        drop(owner);
        check(&sim, Ok(()));
    }

    #[test]
    fn folder_that_is_read_only_is_refused() {
        let sim = sim::sim_env(1);
        sim.disk.set_read_only(true);
        check(
            &sim,
            Err("data folder var/firn is not writable: read-only filesystem or storage medium"),
        );
    }

    #[test]
    fn folder_of_another_format_is_refused() {
        check(
            &with_file("FORMAT", b"firn data format 1\n"),
            Err("var/firn/FORMAT has format 1, but this version supports format 4"),
        );
        check(
            &with_file("FORMAT", b"\xff\xfe"),
            Err("var/firn/FORMAT has format unknown, but this version supports format 4"),
        );
    }

    #[test]
    fn folder_as_recorded_opens() {
        let before = include_bytes!("../tests/fixtures/format-2/FORMAT");
        check(&with_file("FORMAT", before), Ok(()));
        let before = include_bytes!("../tests/fixtures/format-3/FORMAT");
        check(&with_file("FORMAT", before), Ok(()));
        let golden = include_bytes!("../tests/fixtures/format-4/FORMAT");
        check(&with_file("FORMAT", golden), Ok(()));
        let sim = sim::sim_env(1);
        check(&sim, Ok(()));
        let written = sim.disk.contents(&Path::new(ROOT).join(FORMAT));
        assert_eq!(written.as_deref(), Some(&golden[..]));
    }

    #[test]
    fn folder_of_something_else_is_refused_untouched() {
        let sim = with_file("chunks_head", b"");
        check(
            &sim,
            Err(
                "folder var/firn is not empty and is not a firn data folder: it contains \
                 chunks_head",
            ),
        );
        let names = sim.env.disk.list(Path::new(ROOT)).unwrap();
        assert_eq!(names, [Path::new("chunks_head")]);
        check(&with_file("lost+found", b""), Ok(()));
    }
}

//! A folder as a store: for tests, and for several processes on one machine.
//!
//! ```text
//! root/.staged/PID-N-TIME   written and synced, then linked, then removed
//! root/log/3/000…042        the object: a hard link, which fails if the name exists
//! ```
//!
//! Invariants: a name appears with all of its bytes, never in parts. A creation is stored only
//! after the file, its name and the names of all folders above are synced.
//!
//! Own code instead of `object_store`'s `LocalFileSystem`: that one does not sync a folder that
//! another creator has just made, and its lists have no order.

mod walk;

use super::StoreBackend;
use crate::bucket::{ByteRange, Creation, ListPage, ListRequest, ObjectHead, ReadResult};
use crate::byte_budget::ByteReservation;
use crate::error::{BucketError, BucketFailure};
use crate::key::ObjectKey;
use async_trait::async_trait;
use bytes::Bytes;
use firn_model::sync::lock;
use std::collections::HashSet;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::task::spawn_blocking;

/// FolderStore for files that are being written. No key starts with a dot.
const STAGED: &str = ".staged";

/// Age of staged files that a start removes. Their creation has ended long before.
const STAGED_AGE_MAX: Duration = Duration::from_secs(3600);

/// A folder as a store. Clones share their state.
#[derive(Clone, Debug)]
pub(crate) struct FolderBackend(Arc<FolderStore>);

#[derive(Debug)]
struct FolderStore {
    root: PathBuf,
    staged_count: AtomicU64,
    /// Folders whose names are synced up to the root. Folders are never removed.
    synced: Mutex<HashSet<PathBuf>>,
}

impl FolderBackend {
    /// Opens the folder and creates it if it is missing. May block.
    pub(crate) fn open(root: &Path) -> Result<Self, BucketError> {
        let fail = |e: io::Error| failed("open", &root.display().to_string(), &e);
        let staged = root.join(STAGED);
        fs::create_dir_all(&staged).map_err(fail)?;
        for above in staged
            .ancestors()
            .skip(1)
            .filter(|path| !path.as_os_str().is_empty())
        {
            // Folders above the root may be unreadable; their names are then older than Firn.
            match sync_folder(above) {
                Err(e) if above.starts_with(root) => return Err(fail(e)),
                _ => {}
            }
        }
        remove_old(&staged).map_err(fail)?;
        Ok(Self(Arc::new(FolderStore {
            root: root.to_owned(),
            staged_count: AtomicU64::new(0),
            synced: Mutex::new(HashSet::from([root.to_owned()])),
        })))
    }

    /// Runs blocking work on a thread that may block.
    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&FolderStore) -> T + Send + 'static,
    ) -> Result<T, BucketError> {
        let folder = self.0.clone();
        spawn_blocking(move || work(&folder)).await.map_err(|e| {
            BucketError::new(
                BucketFailure::Stopped,
                format!("a thread for files ended: {e}"),
            )
        })
    }
}

#[async_trait]
impl StoreBackend for FolderBackend {
    async fn put_new(&self, key: &ObjectKey, bytes: Bytes) -> Creation {
        let key = key.clone();
        let created = self.run(move |folder| folder.create(&key, &bytes)).await;
        created.unwrap_or_else(Creation::Ambiguous)
    }

    async fn get(&self, key: &ObjectKey, room: &mut ByteReservation) -> ReadResult<Bytes> {
        let opened = {
            let key = key.clone();
            self.run(move |folder| folder.open(&key)).await??
        };
        let Some((file, metadata)) = opened else {
            return Ok(None);
        };
        let bytes = metadata.len();
        room.reserve(bytes)
            .await
            .map_err(|e| BucketError::new(e.failure, format!("read {key}: {}", e.message)))?;
        let key = key.clone();
        let read = move |_: &FolderStore| {
            let read = read_range(file, 0, bytes);
            read.map_err(|e| failed("read", key.as_str(), &e))
        };
        self.run(read).await?.map(Some)
    }

    async fn get_range(&self, key: &ObjectKey, range: ByteRange) -> ReadResult<Bytes> {
        let key = key.clone();
        let read = move |folder: &FolderStore| {
            let Some((file, metadata)) = folder.open(&key)? else {
                return Ok(None);
            };
            let start = range.start().min(metadata.len());
            let end = range.end().min(metadata.len());
            let read = read_range(file, start, end - start);
            read.map(Some).map_err(|e| failed("read", key.as_str(), &e))
        };
        self.run(read).await?
    }

    async fn head(&self, key: &ObjectKey) -> ReadResult<ObjectHead> {
        let key = key.clone();
        let head = move |folder: &FolderStore| {
            let opened = folder.open(&key)?;
            Ok(opened.map(|(_, metadata)| head_of(&metadata)))
        };
        self.run(head).await?
    }

    async fn list(&self, request: &ListRequest) -> Result<ListPage, BucketError> {
        let request = request.clone();
        let list = move |folder: &FolderStore| walk::page(&folder.root, &request);
        self.run(list).await?
    }

    async fn delete(&self, key: &ObjectKey) -> Result<(), BucketError> {
        let key = key.clone();
        let delete = move |folder: &FolderStore| {
            let deleted = folder.delete(&key);
            deleted.map_err(|e| failed("delete", key.as_str(), &e))
        };
        self.run(delete).await?
    }
}

impl FolderStore {
    fn path(&self, key: &ObjectKey) -> PathBuf {
        self.root.join(key.as_str())
    }

    fn create(&self, key: &ObjectKey, bytes: &[u8]) -> Creation {
        let path = self.path(key);
        let refused = |e: &io::Error| Creation::Refused(failed("create", key.as_str(), e));
        let parent = path.parent().unwrap_or(&self.root);
        let staged = match self.sync_path_to(parent).and_then(|()| self.stage(bytes)) {
            Ok(staged) => staged,
            Err(e) => return refused(&e),
        };
        let linked = fs::hard_link(&staged, &path);
        let created = match linked {
            Ok(()) => match sync_folder(parent) {
                Ok(()) => Creation::Stored,
                Err(e) => Creation::Ambiguous(failed("create", key.as_str(), &e)),
            },
            Err(e) if e.kind() == ErrorKind::AlreadyExists => Creation::Exists,
            // Some file systems report an error after the link was made.
            Err(e) if e.kind() == ErrorKind::PermissionDenied => refused(&e),
            Err(e) => Creation::Ambiguous(failed("create", key.as_str(), &e)),
        };
        // A staged file that cannot be removed only takes space until the next start.
        let _ = fs::remove_file(&staged);
        created
    }

    /// Creates the folder `path` below the root, and syncs its name and the names above.
    fn sync_path_to(&self, path: &Path) -> io::Result<()> {
        if lock(&self.synced).contains(path) {
            return Ok(());
        }
        fs::create_dir_all(path)?;
        let up_to_root = path.ancestors().skip(1);
        for above in up_to_root.take_while(|above| above.starts_with(&self.root)) {
            sync_folder(above)?;
        }
        lock(&self.synced).insert(path.to_owned());
        Ok(())
    }

    /// Writes and syncs a file with a name of its own.
    fn stage(&self, bytes: &[u8]) -> io::Result<PathBuf> {
        let count = self.staged_count.fetch_add(1, Ordering::Relaxed);
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let name = format!("{}-{count}-{}", std::process::id(), now.as_nanos());
        let path = self.root.join(STAGED).join(name);
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&path)?;
        let written = file.write_all(bytes).and_then(|()| file.sync_all());
        if let Err(e) = written {
            let _ = fs::remove_file(&path);
            return Err(e);
        }
        Ok(path)
    }

    fn open(&self, key: &ObjectKey) -> ReadResult<(File, Metadata)> {
        let opened = File::open(self.path(key)).and_then(|file| {
            let metadata = file.metadata()?;
            Ok((file, metadata))
        });
        match opened {
            Ok(opened) => Ok(Some(opened).filter(|(_, metadata)| metadata.is_file())),
            Err(e) if is_missing(&e) => Ok(None),
            Err(e) => Err(failed("read", key.as_str(), &e)),
        }
    }

    fn delete(&self, key: &ObjectKey) -> io::Result<()> {
        let path = self.path(key);
        match fs::remove_file(&path) {
            Ok(()) => sync_folder(path.parent().unwrap_or(&self.root)),
            Err(e) if is_missing(&e) => Ok(()),
            Err(e) => Err(e),
        }
    }
}

/// Returns whether an error means that there is no such name.
fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

fn remove_old(staged: &Path) -> io::Result<()> {
    for entry in fs::read_dir(staged)? {
        let entry = entry?;
        // A file may vanish in between, since other processes use the folder.
        let modified = entry.metadata().and_then(|metadata| metadata.modified());
        let age = modified.ok().and_then(|time| time.elapsed().ok());
        if age.is_some_and(|age| age > STAGED_AGE_MAX) {
            let _ = fs::remove_file(entry.path());
        }
    }
    Ok(())
}

/// Reads exactly `bytes` bytes, which the file has.
fn read_range(mut file: File, start: u64, bytes: u64) -> io::Result<Bytes> {
    file.seek(SeekFrom::Start(start))?;
    let mut into = Vec::with_capacity(usize::try_from(bytes).unwrap_or_default());
    file.take(bytes).read_to_end(&mut into)?;
    if into.len() as u64 != bytes {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    Ok(into.into())
}

fn head_of(metadata: &Metadata) -> ObjectHead {
    let modified = metadata.modified().unwrap_or(UNIX_EPOCH);
    let since = modified.duration_since(UNIX_EPOCH).unwrap_or_default();
    ObjectHead {
        bytes: metadata.len(),
        modified_ms: i64::try_from(since.as_millis()).unwrap_or(i64::MAX),
    }
}

fn failed(operation: &str, subject: &str, error: &io::Error) -> BucketError {
    let failure = match error.kind() {
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => BucketFailure::Denied,
        ErrorKind::UnexpectedEof => BucketFailure::Damaged,
        ErrorKind::NotFound => BucketFailure::NoBucket,
        ErrorKind::Unsupported | ErrorKind::NotADirectory | ErrorKind::IsADirectory => {
            BucketFailure::Invalid
        }
        _ => BucketFailure::Server,
    };
    BucketError::new(failure, format!("{operation} {subject}: {error}"))
}

//! A disk whose block files are read from the bucket where they are missing locally.
//!
//! Invariant: local files win, and everything but reading happens locally. A failed request of the
//! bucket is a fault of the disk to the reader, which repeats it later; a missing object is a
//! missing file. Coalescing and caching of reads are left to the reader of blocks.

use super::known_blocks::KnownBlocks;
use crate::block_objects::{BlockObject, PART_BYTES, objects_of_file};
use crate::commit::CommittedBlock;
use crate::ids::PartitionId;
use bytes::Bytes;
use firn_bucket::{BlockingBucket, Bucket, ByteRange};
use firn_model::env::{DirLock, Disk, DiskFile, OpenMode};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Maximum number of attempts to read a range.
const ATTEMPTS_MAX: usize = 3;

/// A local disk, and the blocks of a partition in the bucket.
pub(super) struct HomeDisk {
    local: Arc<dyn Disk>,
    /// The folder with the folders of all blocks.
    folder: PathBuf,
    bucket: Arc<dyn Bucket>,
    partition: PartitionId,
    known: Arc<KnownBlocks>,
}

impl HomeDisk {
    pub(super) fn new(
        local: Arc<dyn Disk>,
        folder: PathBuf,
        bucket: Arc<dyn Bucket>,
        partition: PartitionId,
        known: Arc<KnownBlocks>,
    ) -> Self {
        Self {
            local,
            folder,
            bucket,
            partition,
            known,
        }
    }

    /// Returns the block with the folder `path`.
    fn find_block(&self, path: &Path) -> Option<CommittedBlock> {
        if path.parent()? != self.folder {
            return None;
        }
        let id = path.file_name()?.to_str()?.parse().ok()?;
        self.known.find(id)
    }

    fn find_file(&self, path: &Path) -> Option<HomeFile> {
        let block = self.find_block(path.parent()?)?;
        let name = path.file_name()?.to_str()?;
        let file = block.files.iter().find(|file| file.name == name)?;
        Some(HomeFile {
            bucket: self.bucket.clone(),
            objects: objects_of_file(self.partition, &block.name, name, file.bytes),
            bytes: file.bytes,
        })
    }
}

impl Disk for HomeDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        match self.local.open(path, mode) {
            Err(e) if e.kind() == io::ErrorKind::NotFound && mode == OpenMode::Read => {
                let file = self.find_file(path).ok_or(e)?;
                Ok(Arc::new(file))
            }
            opened => opened,
        }
    }

    /// Lists a local folder. A folder of a block that does not exist locally has the names of its
    /// files in the bucket.
    fn list(&self, dir: &Path) -> io::Result<Vec<PathBuf>> {
        match self.local.list(dir) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                let block = self.find_block(dir).ok_or(e)?;
                let mut names: Vec<PathBuf> = block
                    .files
                    .iter()
                    .map(|file| PathBuf::from(&file.name))
                    .collect();
                names.sort();
                Ok(names)
            }
            listed => listed,
        }
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.local.create_dir_all(dir)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.local.rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.local.remove_file(path)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.local.link(from, to)
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        self.local.remove_dir(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.local.sync_dir(dir)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn DirLock>> {
        self.local.lock(path)
    }

    fn free_bytes(&self, dir: &Path) -> io::Result<u64> {
        self.local.free_bytes(dir)
    }

    fn total_bytes(&self, dir: &Path) -> io::Result<u64> {
        self.local.total_bytes(dir)
    }
}

/// A file of a block in the bucket.
struct HomeFile {
    bucket: Arc<dyn Bucket>,
    /// Its parts in order.
    objects: Vec<BlockObject>,
    bytes: u64,
}

impl HomeFile {
    fn read_range(&self, object: &BlockObject, range: ByteRange) -> io::Result<Bytes> {
        let mut last = None;
        for _ in 0..ATTEMPTS_MAX {
            match BlockingBucket(&*self.bucket).get_range(&object.key, range) {
                Ok(Some(bytes)) if bytes.len() as u64 == range.bytes() => return Ok(bytes),
                Ok(Some(_)) => {
                    let text = format!("{} is shorter than its list entry", object.key);
                    return Err(io::Error::new(io::ErrorKind::UnexpectedEof, text));
                }
                Ok(None) => {
                    let text = format!("{} does not exist", object.key);
                    return Err(io::Error::new(io::ErrorKind::NotFound, text));
                }
                Err(error) => last = Some(error),
            }
        }
        Err(io::Error::other(
            last.map_or_else(String::new, |error| error.message),
        ))
    }
}

impl DiskFile for HomeFile {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let end = self.bytes.min(offset.saturating_add(into.len() as u64));
        let mut done = 0;
        while offset + (done as u64) < end {
            let at = offset + done as u64;
            let Some(object) = self.objects.get((at / PART_BYTES) as usize) else {
                break;
            };
            let start = at - object.offset;
            let bytes = (object.bytes - start).min(end - at);
            let read = self.read_range(object, ByteRange::new(start, bytes))?;
            into[done..done + read.len()].copy_from_slice(&read);
            done += read.len();
        }
        Ok(done)
    }

    fn write_all_at(&self, _offset: u64, _bytes: &[u8]) -> io::Result<()> {
        Err(read_only())
    }

    fn sync_data(&self) -> io::Result<()> {
        Err(read_only())
    }

    fn set_len(&self, _bytes: u64) -> io::Result<()> {
        Err(read_only())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.bytes)
    }
}

fn read_only() -> io::Error {
    io::Error::new(
        io::ErrorKind::Unsupported,
        "files of the bucket are only read",
    )
}

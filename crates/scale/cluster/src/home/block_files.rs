//! The files of blocks in the bucket, for reads of ranges.
//!
//! A failed request of the bucket is an error of the read, so that no answer misses samples that
//! the bucket has; a missing object is a missing file. Coalescing and caching of reads are left to
//! the reader of blocks.

use super::known_blocks::KnownBlocks;
use crate::block_objects::{BlockObject, PART_BYTES, objects_of_file};
use crate::ids::PartitionId;
use bytes::Bytes;
use firn_bucket::{BlockingBucket, Bucket, ByteRange};
use firn_model::env::DiskFile;
use firn_storage::block::BlockId;
use firn_storage::home::{HOME_FAULT, HomeFiles};
use std::io;
use std::sync::Arc;

/// Maximum number of attempts to read a range.
const ATTEMPTS_MAX: usize = 3;

/// The files of the known blocks of a partition.
pub(super) struct BucketFiles {
    pub(super) bucket: Arc<dyn Bucket>,
    pub(super) partition: PartitionId,
    pub(super) known: Arc<KnownBlocks>,
}

impl HomeFiles for BucketFiles {
    fn open(&self, block: BlockId, name: &str) -> Option<Arc<dyn DiskFile>> {
        let block = self.known.find(block)?;
        let file = block.files.iter().find(|file| file.name == name)?;
        Some(Arc::new(HomeFile {
            bucket: self.bucket.clone(),
            objects: objects_of_file(self.partition, &block.name, name, file.bytes),
            bytes: file.bytes,
        }))
    }

    fn list(&self, block: BlockId) -> Option<Vec<String>> {
        let block = self.known.find(block)?;
        Some(block.files.into_iter().map(|file| file.name).collect())
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
        let text = last.map_or_else(String::new, |error| error.message);
        Err(io::Error::new(HOME_FAULT, text))
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

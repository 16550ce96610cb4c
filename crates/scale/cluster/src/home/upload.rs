//! Uploads of blocks: each file in parts, each part verified.

use super::BucketHome;
use super::entries::committed_block;
use crate::block_objects::objects_of_file;
use crate::commit::{CommittedBlock, CommittedFile};
use crate::object_name::{BlockName, is_file_name};
use bytes::Bytes;
use firn_bucket::{BlockingBucket, Bucket, BucketError, BucketFailure, ObjectKey};
use firn_model::env::{DiskFile, OpenMode};
use firn_model::error::{Error, ErrorKind};
use firn_storage::home::BlockEntry;
use std::io;
use std::path::Path;

/// Maximum number of attempts to store an object.
const ATTEMPTS_MAX: usize = 4;

impl BucketHome {
    /// Returns the name of an upload, which no other upload has.
    pub(super) fn draw_name(&self, entry: &BlockEntry) -> BlockName {
        BlockName {
            tenant: self.options.tenant.clone(),
            block: u128::from_be_bytes(entry.id.to_bytes()),
            upload: self.env.rng.next_u64(),
        }
    }

    /// Returns the block of an entry with the sizes of the files in its folder.
    pub(super) fn describe_block(
        &self,
        entry: &BlockEntry,
        name: BlockName,
        folder: &Path,
    ) -> Result<CommittedBlock, Error> {
        let disk = &*self.env.disk;
        let names = disk.list(folder).map_err(|e| unreadable(folder, &e))?;
        let mut files = Vec::with_capacity(names.len());
        for file in names {
            let path = folder.join(&file);
            let text = file.to_str().filter(|text| is_file_name(text));
            let name = text.ok_or_else(|| {
                let text = format!("{} is no file of a block", path.display());
                Error::new(ErrorKind::Internal, text)
            })?;
            let opened = disk.open(&path, OpenMode::Read);
            let bytes = opened.and_then(|opened| opened.len());
            files.push(CommittedFile {
                name: name.to_owned(),
                bytes: bytes.map_err(|e| unreadable(&path, &e))?,
            });
        }
        Ok(committed_block(entry, name, files))
    }

    /// Uploads the files of a block.
    pub(super) fn upload_files(&self, block: &CommittedBlock, folder: &Path) -> Result<(), Error> {
        for file in &block.files {
            let path = folder.join(&file.name);
            let opened = self.env.disk.open(&path, OpenMode::Read);
            let opened = opened.map_err(|e| unreadable(&path, &e))?;
            let partition = self.log.partition();
            for object in objects_of_file(partition, &block.name, &file.name, file.bytes) {
                let read = read_exact(&*opened, object.offset, object.bytes);
                let bytes = read.map_err(|e| unreadable(&path, &e))?;
                store_object(&*self.bucket, &object.key, &bytes)?;
            }
        }
        Ok(())
    }
}

fn read_exact(file: &dyn DiskFile, offset: u64, bytes: u64) -> io::Result<Bytes> {
    let mut read = vec![0; bytes as usize];
    let done = file.read_at(offset, &mut read)?;
    if done < read.len() {
        let text = format!("{done} bytes instead of {bytes} at {offset}");
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, text));
    }
    Ok(read.into())
}

fn unreadable(path: &Path, error: &io::Error) -> Error {
    let text = format!("read {} for its upload: {error}", path.display());
    Error::new(ErrorKind::Unavailable, text)
}

/// Stores an object whose key only this process writes, always with these bytes. The size of the
/// stored object then proves that it has them.
pub(super) fn store_object(
    bucket: &dyn Bucket,
    key: &ObjectKey,
    bytes: &Bytes,
) -> Result<(), BucketError> {
    let bucket = BlockingBucket(bucket);
    let mut last = None;
    for _ in 0..ATTEMPTS_MAX {
        let creation = bucket.put_new(key, bytes.clone());
        match bucket.head(key) {
            Ok(Some(head)) if head.bytes == bytes.len() as u64 => return Ok(()),
            Ok(Some(head)) => {
                let (found, expected) = (head.bytes, bytes.len());
                let text = format!("{key} has {found} bytes, expected {expected}");
                return Err(BucketError::new(BucketFailure::WrongAnswer, text));
            }
            Ok(None) => last = creation.error().cloned().or(last),
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| {
        let text = format!("{key} was stored, but it does not exist");
        BucketError::new(BucketFailure::WrongAnswer, text)
    }))
}

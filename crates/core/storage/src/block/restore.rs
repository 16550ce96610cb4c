//! Restores a damaged `meta.json`, index or copy of the index from its second copy.
//!
//! Invariant: a restored file gets its final name only once it is durable, and its bytes equal
//! those originally written. Data files have no second copy and are left unchanged.

use super::file::OpenBlockFile;
use super::layout::{INDEX, INDEX_COPY};
use super::meta::META;
use super::reader::Block;
use super::verify::BlockVerifier;
use crate::error::StorageError;
use firn_model::env::{Env, OpenMode};
use std::io::ErrorKind;
use std::path::Path;

/// Number of bytes copied at a time.
const COPY_BYTES: u64 = 1 << 20;

/// Name of a restored file until it is complete and durable.
const TEMPORARY: &str = "restored.tmp";

impl BlockVerifier<'_> {
    /// Restores the damaged files in the folder `dir` of the block. If the index and its copy are
    /// both damaged, they are left unchanged.
    pub(super) fn restore(&self, env: &Env, dir: &Path) -> Result<(), StorageError> {
        let meta = self.block.meta();
        if Block::read_meta(env, dir).is_err() {
            let text = meta.encode();
            let write = |write: &mut Append<'_>| write(&text);
            replace_file(env, dir, META, write)?;
        }
        let [of_first, of_copy, _, ..] = meta.files.as_slice() else {
            return Ok(());
        };
        if meta.index_file_count() == 1 {
            return Ok(());
        }
        let is_whole = |file: &OpenBlockFile, meta| self.check_file(file, meta).is_ok();
        let index = &self.files.index;
        let first = index.first();
        let first = is_whole(first, of_first).then_some(first);
        let copy = index.copy().filter(|copy| is_whole(copy, of_copy));
        let (name, from) = match (first, copy) {
            (None, Some(copy)) => (INDEX, copy),
            (Some(first), None) => (INDEX_COPY, first),
            (Some(_), Some(_)) | (None, None) => return Ok(()),
        };
        replace_file(env, dir, name, |write| {
            for start in (0..from.len()).step_by(COPY_BYTES as usize) {
                let bytes = COPY_BYTES.min(from.len() - start) as usize;
                write(&from.read(start, bytes, &self.files.cache().read_bytes)?)?;
            }
            Ok(())
        })
    }
}

/// The function that appends bytes to the file that is being written.
type Append<'a> = dyn FnMut(&[u8]) -> Result<(), StorageError> + 'a;

/// Writes the file `name` with `fill` under a temporary name, then atomically replaces the old file
/// with it.
fn replace_file(
    env: &Env,
    dir: &Path,
    name: &str,
    fill: impl FnOnce(&mut Append<'_>) -> Result<(), StorageError>,
) -> Result<(), StorageError> {
    let (disk, temporary) = (&*env.disk, dir.join(TEMPORARY));
    let io = |action| StorageError::io(action, &temporary);
    match disk.remove_file(&temporary) {
        Err(e) if e.kind() != ErrorKind::NotFound => return Err(io("remove")(e)),
        _ => {}
    }
    let file = disk.open(&temporary, OpenMode::CreateNew);
    let file = file.map_err(io("create"))?;
    let mut end = 0;
    fill(&mut |bytes| {
        file.write_all_at(end, bytes).map_err(io("write"))?;
        end += bytes.len() as u64;
        Ok(())
    })?;
    file.sync_data().map_err(io("sync"))?;
    disk.rename(&temporary, &dir.join(name))
        .map_err(io("rename"))?;
    disk.sync_dir(dir)
        .map_err(StorageError::io("sync folder", dir))
}

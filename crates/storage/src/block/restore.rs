//! Restores a damaged `meta.json`, index or copy of the index from its second place.
//!
//! Invariant: a file takes its name when it is durable, with the bytes that were written at first.
//! Files of pages have no second place and stay as they are.

use super::file::BlockRanges;
use super::layout::{INDEX, INDEX_COPY};
use super::meta::META;
use super::reader::Block;
use crate::error::StorageError;
use firn_model::env::{Env, OpenMode};
use std::io::ErrorKind;
use std::path::Path;

/// Bytes that are copied at once.
const COPY_BYTES: u64 = 1 << 20;

/// What a file is called until it is whole.
const TEMPORARY: &str = "restored.tmp";

impl Block {
    /// Restores the damaged files in the folder `dir` of the block. If both the index and its copy
    /// are damaged, they stay as they are.
    pub(crate) fn restore(&self, env: &Env, dir: &Path) -> Result<(), StorageError> {
        if Self::read_meta(env, dir).is_err() {
            let text = self.meta().encode();
            let write = |write: &mut Append<'_>| write(&text);
            replace(env, dir, META, write)?;
        }
        let [of_first, of_copy, _, ..] = self.meta().files.as_slice() else {
            return Ok(());
        };
        if self.meta().index_files() == 1 {
            return Ok(());
        }
        let is_whole = |file: &BlockRanges, meta| self.check_file(file, meta).is_ok();
        let first = self.index.first();
        let first = is_whole(first, of_first).then_some(first);
        let copy = self.index.copy().filter(|copy| is_whole(copy, of_copy));
        let (name, from) = match (first, copy) {
            (None, Some(copy)) => (INDEX, copy),
            (Some(first), None) => (INDEX_COPY, first),
            (Some(_), Some(_)) | (None, None) => return Ok(()),
        };
        replace(env, dir, name, |write| {
            for start in (0..from.len()).step_by(COPY_BYTES as usize) {
                let bytes = COPY_BYTES.min(from.len() - start) as usize;
                write(&from.read(start, bytes, &self.cache().read_bytes)?)?;
            }
            Ok(())
        })
    }
}

/// Appends bytes to the file that is written.
type Append<'a> = dyn FnMut(&[u8]) -> Result<(), StorageError> + 'a;

/// Has `fill` write the file `name` of a folder, and puts it into its place.
fn replace(
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

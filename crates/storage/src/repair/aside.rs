//! Copies of damaged files, byte for byte, at the same place in a folder of their own.

use crate::data_dir::{DataDir, SET_ASIDE};
use crate::error::StorageError;
use firn_model::env::{Env, OpenMode};
use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// Bytes copied at once.
const COPY_BYTES: usize = 1 << 20;

/// Copies `files`, as far as they are there, into a new folder called `name`, which is returned.
/// The copies are durable then.
pub(super) fn copy(
    env: &Env,
    dir: &DataDir,
    name: &str,
    files: &BTreeSet<PathBuf>,
) -> Result<PathBuf, StorageError> {
    let target = free_name(env, &dir.root().join(SET_ASIDE), name)?;
    for from in files {
        let to = target.join(from.strip_prefix(dir.root()).unwrap_or(from));
        let copied = copy_file(env, from, &to);
        copied.map_err(StorageError::io("set aside", from))?;
    }
    Ok(target)
}

fn free_name(env: &Env, folder: &Path, name: &str) -> Result<PathBuf, StorageError> {
    let create = |path: &Path| {
        let created = env.disk.create_dir_all(path);
        created.map_err(StorageError::io("create folder", path))
    };
    create(folder)?;
    let mut path = folder.join(name);
    let mut number = 1;
    // One that cannot be listed is not there.
    while env.disk.list(&path).is_ok_and(|names| !names.is_empty()) {
        number += 1;
        path = folder.join(format!("{name}-{number}"));
    }
    create(&path)?;
    Ok(path)
}

fn copy_file(env: &Env, from: &Path, to: &Path) -> io::Result<()> {
    let file = match env.disk.open(from, OpenMode::Read) {
        Ok(file) => file,
        // What is missing, or is a folder, needs no copy.
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::IsADirectory) => {
            return Ok(());
        }
        Err(e) => return Err(e),
    };
    if env.disk.list(from).is_ok() {
        return Ok(());
    }
    let folder = to.parent().unwrap_or(Path::new("."));
    env.disk.create_dir_all(folder)?;
    let copy = env.disk.open(to, OpenMode::CreateNew)?;
    let mut buffer = vec![0; COPY_BYTES];
    let mut offset = 0;
    loop {
        let read = file.read_at(offset, &mut buffer)?;
        if read == 0 {
            break;
        }
        copy.write_all_at(offset, &buffer[..read])?;
        offset += read as u64;
    }
    copy.sync_data()?;
    env.disk.sync_dir(folder)
}

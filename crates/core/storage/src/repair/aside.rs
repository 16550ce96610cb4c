//! Copies damaged files byte for byte into a separate folder, keeping their relative paths.

use crate::data_dir::{DataDir, SET_ASIDE};
use crate::error::StorageError;
use firn_model::env::{Env, OpenMode};
use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// Number of bytes copied at a time.
const COPY_BYTES: usize = 1 << 20;

/// Copies those of `files` that exist into a new folder called `name` and returns its path. The
/// copies are durable on return.
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
    // A folder that cannot be listed does not exist.
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
        // A missing file or a folder needs no copy.
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

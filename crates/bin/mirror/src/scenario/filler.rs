//! A file that fills a file system until it is dropped.
//!
//! Invariant: only small file systems are filled, so that a run cannot exhaust the disk of a
//! machine. The file is deleted when the value is dropped.

use crate::error::MirrorError;
use rustix::fs::statvfs;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Maximum free space in bytes of a file system that may be filled. A larger one is probably
/// shared.
const FREE_BYTES_MAX: u64 = 4 << 30;

/// Maximum length of a single write in bytes. When it no longer fits, shorter ones are tried.
const PIECE_BYTES: usize = 1 << 20;

/// Pause before space that was freed in the meantime is filled too.
const AGAIN_AFTER: Duration = Duration::from_millis(20);

/// A file system that is kept full by a thread while this value lives; dropping it frees the space.
#[derive(Debug)]
pub struct DiskFiller {
    path: PathBuf,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl DiskFiller {
    /// Starts to fill the file system of the directory `dir`. Fails if it has too much free space.
    pub fn start(dir: &Path) -> Result<Self, MirrorError> {
        check_is_small(dir)?;
        let path = dir.join("filler");
        let file = File::create(&path).map_err(MirrorError::file("create", &path))?;
        let is_over = Arc::new(AtomicBool::new(false));
        let thread = thread::spawn({
            let is_over = Arc::clone(&is_over);
            move || fill(file, &is_over)
        });
        Ok(Self {
            path,
            is_over,
            thread: Some(thread),
        })
    }
}

impl Drop for DiskFiller {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Fails if the file system of `dir` has too much free space to be filled.
pub fn check_is_small(dir: &Path) -> Result<(), MirrorError> {
    let figures = statvfs(dir).map_err(|e| MirrorError::file("look at", dir)(e.into()))?;
    let free = figures.f_bavail.saturating_mul(figures.f_frsize);
    if free > FREE_BYTES_MAX {
        Err(MirrorError::Usage(format!(
            "{}: {free} bytes are free on its file system, limit {FREE_BYTES_MAX}: a step that \
         fills a disk needs a small file system of its own",
            dir.display()
        )))
    } else {
        Ok(())
    }
}

fn fill(mut file: File, is_over: &AtomicBool) {
    let zeros = vec![0; PIECE_BYTES];
    let mut piece = PIECE_BYTES;
    while !is_over.load(Ordering::Relaxed) {
        match file.write(&zeros[..piece]) {
            Ok(_) => {}
            Err(_) if piece > 1 => piece /= 2,
            Err(_) => {
                thread::sleep(AGAIN_AFTER);
                piece = PIECE_BYTES;
            }
        }
    }
}

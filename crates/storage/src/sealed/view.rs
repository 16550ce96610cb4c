//! The parts of the page storage that readers share.

use super::cache::PageCache;
use super::directory::Directory;
use super::file_pool::FilePool;
use super::group::Returned;
use crate::damage::Damages;
use std::sync::Arc;

/// The parts of the page storage that readers share with the writer of pages.
#[derive(Debug)]
pub(crate) struct Sealed {
    /// Directory of all pages.
    pub(crate) directory: Directory,
    /// Cache of opened pages.
    pub(crate) cache: PageCache,
    /// Pool of open segment files.
    pub(crate) files: Arc<FilePool>,
    /// Registry to which readers report damage.
    pub(crate) damages: Arc<Damages>,
    /// Groups whose head may contain samples older than those of their pages.
    pub(crate) returned: Returned,
}

impl Sealed {
    /// Creates the state without pages, with a cache of at most `cache_bytes` bytes and `files` to
    /// open segments.
    pub(crate) fn new(cache_bytes: usize, files: Arc<FilePool>, damages: Arc<Damages>) -> Self {
        Self {
            files,
            damages,
            returned: Returned::default(),
            directory: Directory::default(),
            cache: PageCache::new(cache_bytes),
        }
    }
}

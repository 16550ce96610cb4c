//! What readers need of the pages, in one place.

use super::cache::PageCache;
use super::directory::Directory;
use super::file_pool::FilePool;
use super::group::Returned;
use crate::damage::Damages;
use std::sync::Arc;

/// What readers need of the pages.
#[derive(Debug)]
pub(crate) struct Sealed {
    /// Which there are.
    pub(crate) directory: Directory,
    /// Their bytes.
    pub(crate) cache: PageCache,
    /// The files of them that are open.
    pub(crate) files: Arc<FilePool>,
    /// Where readers report what they find damaged.
    pub(crate) damages: Arc<Damages>,
    /// Groups of which the head may hold samples that are older than those of its pages.
    pub(crate) returned: Returned,
}

impl Sealed {
    /// No pages yet, and a cache of at most `cache_bytes`; their files are opened by `files`.
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

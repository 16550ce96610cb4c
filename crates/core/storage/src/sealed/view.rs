//! The parts of the page storage that readers share.

use super::cache::PageCache;
use super::directory::SealedPageDirectory;
use super::file_pool::SegmentFilePool;
use super::group::UnorderedGroups;
use crate::damage::DamageList;
use std::sync::Arc;

/// The parts of the page storage that readers share with the writer of pages.
#[derive(Debug)]
pub(crate) struct SealedPages {
    /// Directory of all pages.
    pub(crate) directory: SealedPageDirectory,
    /// Cache of opened pages.
    pub(crate) cache: PageCache,
    /// Pool of open segment files.
    pub(crate) files: Arc<SegmentFilePool>,
    /// Registry to which readers report damage.
    pub(crate) damages: Arc<DamageList>,
    /// Groups whose head may contain samples older than those of their pages.
    pub(crate) returned: UnorderedGroups,
}

impl SealedPages {
    /// Creates the state without pages, with a cache of at most `cache_bytes` bytes and `files` to
    /// open segments.
    pub(crate) fn new(
        cache_bytes: usize,
        files: Arc<SegmentFilePool>,
        damages: Arc<DamageList>,
    ) -> Self {
        Self {
            files,
            damages,
            returned: UnorderedGroups::default(),
            directory: SealedPageDirectory::default(),
            cache: PageCache::new(cache_bytes),
        }
    }
}

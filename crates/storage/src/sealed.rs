//! Sealed samples: pages in segment files, a directory in memory, and one cache over their bytes.
//!
//! ```text
//! group: 512 neighbouring slots      page: the samples of a group for one window of data time
//! pages/00000000000000000001.pages   header | page block ... | directory block | trailer
//! ```
//!
//! A page says which samples it took over from the log (see [`meta::PageMeta`]), so that a start
//! combines the two by exact coverage. Pages are appended and synced before anybody relies on
//! them, and go with their segment, once all of it has left the retention. Invariant: of one
//! series, a later page in the directory has only later samples. `docs/format/pages.md` draws the
//! bytes; what a page's columns look like inside is the affair of [`crate::page`].

pub(crate) mod cache;
pub(crate) mod directory;
pub(crate) mod file_pool;
mod lost;
pub(crate) mod meta;
pub(crate) mod range_reader;
pub(crate) mod segment;
pub(crate) mod segments;
#[cfg(test)]
mod tests;

use crate::damage::Damages;
use cache::PageCache;
use directory::Directory;
use file_pool::FilePool;
use std::sync::Arc;

/// Slots of a group, the unit of sealing: the series of one or two targets, whose samples share
/// their times; a page of it has some 30 kB, which is little to read for one series and much to
/// write at once.
pub(crate) const GROUP_SLOTS: u32 = 512;

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
}

impl Sealed {
    /// No pages yet, and a cache of at most `cache_bytes`; their files are opened by `files`.
    pub(crate) fn new(cache_bytes: usize, files: Arc<FilePool>, damages: Arc<Damages>) -> Self {
        Self {
            files,
            damages,
            directory: Directory::default(),
            cache: PageCache::new(cache_bytes),
        }
    }
}

/// The group of a slot.
#[inline]
pub(crate) fn group_of(slot: u32) -> u32 {
    slot / GROUP_SLOTS
}

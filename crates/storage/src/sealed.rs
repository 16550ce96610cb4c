//! Sealed samples: pages in segment files, a directory in memory, and one cache over their bytes.
//!
//! ```text
//! group: 512 neighbouring slots      page: the samples of a group for one window of data time
//! pages/00000000000000000001.pages   header | page frame ... | directory frame | trailer
//! ```
//!
//! A page says which samples it took over from the log (see [`meta::PageMeta`]), so that a start
//! combines the two by exact coverage. Pages are appended and synced before anybody relies on
//! them, and go with their segment, once all of it has left the retention. Of one series a later
//! page has only later samples, unless damage made a start take samples back out of the log.
//! `docs/format/pages.md` draws the bytes; what a page's columns look like inside is the affair of
//! [`crate::page`].

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
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

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
    /// Groups of which the head may hold samples that are older than those of its pages.
    pub(crate) returned: Returned,
}

/// Groups whose pages a start could not trust: what of the log no page was seen to hold came back
/// into the head, before or between what sound pages hold. Reads of them put samples in order.
#[derive(Debug, Default)]
pub(crate) struct Returned {
    all: AtomicBool,
    groups: RwLock<BTreeSet<u32>>,
    is_any: AtomicBool,
}

impl Returned {
    /// A group is one of them.
    pub(crate) fn add(&self, group: u32) {
        let mut groups = self.groups.write().unwrap_or_else(PoisonError::into_inner);
        groups.insert(group);
        self.is_any.store(true, Ordering::Release);
    }

    /// All groups are.
    pub(crate) fn add_all(&self) {
        self.all.store(true, Ordering::Release);
        self.is_any.store(true, Ordering::Release);
    }

    /// Whether a group is one of them.
    pub(crate) fn has(&self, group: u32) -> bool {
        if !self.is_any.load(Ordering::Acquire) {
            return false;
        }
        let groups = self.groups.read().unwrap_or_else(PoisonError::into_inner);
        self.all.load(Ordering::Acquire) || groups.contains(&group)
    }
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

/// The group of a slot.
#[inline]
pub(crate) fn group_of(slot: u32) -> u32 {
    slot / GROUP_SLOTS
}

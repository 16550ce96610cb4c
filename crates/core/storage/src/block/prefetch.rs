//! Prefetching: loads the units of a block that a query needs into the cache with few large reads.

use super::cache::{BlockUnit, UnitClaim};
use super::file::OpenBlockFile;
use super::files::BlockFiles;
use super::pages::{self, BlockPageEntry};
use super::sections::{PagesSection, TimesSection};
use super::times::TimesUnit;
use super::unit::UnitEntry;
use crate::error::StorageError;
use firn_model::sample::TimeRange;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

/// Maximum gap between two units that are read together; reading the gap is cheaper than another
/// read.
const GAP_BYTES: u64 = 64 << 10;

/// Maximum size of one read in bytes, unless a single unit is larger.
const READ_BYTES: u64 = 1 << 20;

/// A page that is needed, with the indexes in the requested ordinals of the series it contains.
struct PrefetchPage {
    entry: BlockPageEntry,
    ordinals: Range<usize>,
}

/// A unit that this thread has claimed in the cache and must read.
struct ClaimedUnit<'a> {
    what: PrefetchUnit,
    claim: UnitClaim<'a>,
}

/// A unit to prefetch: a data page, or a unit of time columns from the index.
#[derive(Clone, Copy)]
enum PrefetchUnit {
    Page(BlockPageEntry),
    Times(UnitEntry),
}

impl PrefetchUnit {
    /// Returns the byte range of the unit in its file.
    fn range(&self) -> Range<u64> {
        let (offset, bytes) = match self {
            Self::Page(page) => (page.offset, page.bytes),
            Self::Times(unit) => (unit.offset, unit.bytes),
        };
        offset..offset.saturating_add(bytes.into())
    }
}

/// Loads units of a block into the cache ahead of their use.
pub(super) struct BlockPrefetcher<'a> {
    pub(super) files: &'a BlockFiles,
    pub(super) pages: &'a PagesSection,
    pub(super) times: &'a TimesSection,
}

impl<'a> BlockPrefetcher<'a> {
    /// Loads the pages that contain samples of the series in `range`, and their time columns, into
    /// the cache, reading adjacent units together. `ordinals` must ascend. Units that are cached or
    /// that another thread is reading are skipped. Callers should limit each request to a fraction
    /// of the cache. Returns the number of units that were read.
    pub(super) fn load(&self, ordinals: &[u32], range: TimeRange) -> Result<usize, StorageError> {
        let needed = self.find_needed_pages(ordinals, range)?;
        let mut wanted = Vec::new();
        for PrefetchPage { entry, .. } in &needed {
            self.claim_unit(PrefetchUnit::Page(*entry), &mut wanted);
        }
        let pages = wanted.len();
        self.read_claimed(wanted)?;
        let mut units = BTreeSet::new();
        for PrefetchPage {
            entry,
            ordinals: of,
        } in needed
        {
            let page = self.files.load_page(&entry)?;
            for ordinal in &ordinals[of] {
                let column = page.column(ordinal.saturating_sub(entry.first) as usize);
                let times = column.map_or(0, |column| u64::from(column.times));
                units.extend(self.times.units.find(times));
            }
        }
        let mut wanted = Vec::new();
        for entry in units
            .into_iter()
            .filter_map(|unit| self.times.units.get(unit))
        {
            self.claim_unit(PrefetchUnit::Times(*entry), &mut wanted);
        }
        let count = pages + wanted.len();
        self.read_claimed(wanted)?;
        Ok(count)
    }

    /// Returns the pages of the series that overlap `range`, in block order.
    fn find_needed_pages(
        &self,
        ordinals: &[u32],
        range: TimeRange,
    ) -> Result<Vec<PrefetchPage>, StorageError> {
        let mut needed: Vec<PrefetchPage> = Vec::new();
        let mut next = 0;
        while let Some(ordinal) = ordinals.get(next) {
            let (mut at, mut pages) = self
                .pages
                .find_page(self.files, pages::page_key(*ordinal, 0))?;
            let Some(entry) = pages.entries().get(at.index).copied() else {
                break;
            };
            let mut behind = self.pages.next_page(self.files, at, &pages)?;
            let key = behind.as_ref().map(|(_, _, next)| next.key());
            let is_here = |one: &u32| key.is_none_or(|key| pages::page_key(*one, 0) < key);
            let end = next + ordinals[next..].partition_point(is_here).max(1);
            if entry.range.overlaps(&range) {
                let ordinals = next..end;
                needed.push(PrefetchPage { entry, ordinals });
            }
            // Further parts of the last series of this page.
            let last = end - 1;
            while let Some((next_at, next_pages, entry)) = behind
                && entry.part > 0
                && entry.first == ordinals[last]
            {
                if entry.range.overlaps(&range) {
                    let ordinals = last..end;
                    needed.push(PrefetchPage { entry, ordinals });
                }
                (at, pages) = (next_at, next_pages);
                behind = self.pages.next_page(self.files, at, &pages)?;
            }
            next = end;
        }
        Ok(needed)
    }

    /// Adds a unit to `wanted` unless it is cached or another thread is reading it.
    fn claim_unit(&self, what: PrefetchUnit, wanted: &mut Vec<ClaimedUnit<'a>>) {
        let place = match &what {
            PrefetchUnit::Page(page) => self.files.page_key(page),
            PrefetchUnit::Times(unit) => self.files.unit_key(unit),
        };
        if let Some(claim) = self.files.cache().claim_unit(place) {
            wanted.push(ClaimedUnit { what, claim });
        }
    }

    fn read_claimed(&self, wanted: Vec<ClaimedUnit<'_>>) -> Result<(), StorageError> {
        let mut wanted = wanted.into_iter().peekable();
        while let Some(first) = wanted.next() {
            let file = self.unit_file(&first.what)?;
            let Range { start, mut end } = first.what.range();
            let mut together = vec![first];
            while let Some(next) = wanted.next_if(|next| {
                let Range {
                    start: from,
                    end: to,
                } = next.what.range();
                let is_same = self
                    .unit_file(&next.what)
                    .is_ok_and(|of| std::ptr::eq(of, file));
                let is_near = from >= end && from - end <= GAP_BYTES;
                is_same && is_near && to - start <= READ_BYTES
            }) {
                end = next.what.range().end;
                together.push(next);
            }
            let count = &self.files.cache().read_bytes;
            let bytes = file.read(start, (end - start) as usize, count);
            for ClaimedUnit { what, claim } in together {
                let range = what.range();
                let of_unit = |bytes: &'_ Vec<u8>| {
                    let end = (range.end - start) as usize;
                    bytes[(range.start - start) as usize..end].to_vec()
                };
                let bytes = bytes.as_ref().map(of_unit);
                claim.insert_unit(self.open_claimed(&what, bytes.ok())?);
            }
        }
        Ok(())
    }

    /// Decodes a unit from the bytes of a combined read, or reads it separately if that read failed
    /// or its bytes are damaged.
    fn open_claimed(
        &self,
        what: &PrefetchUnit,
        read: Option<Vec<u8>>,
    ) -> Result<Arc<dyn BlockUnit>, StorageError> {
        match what {
            PrefetchUnit::Page(entry) => match read {
                Some(bytes) => Ok(Arc::new(self.files.open_page(entry, &bytes)?)),
                None => Ok(Arc::new(self.files.read_page(entry)?)),
            },
            PrefetchUnit::Times(entry) => {
                let sound = read.filter(|bytes| crc32c::crc32c(bytes) == entry.crc);
                let bytes = sound.map_or_else(|| self.files.read_unit(entry), Ok)?;
                let unit = TimesUnit::open(bytes);
                Ok(Arc::new(
                    unit.map_err(|e| self.files.malformed_unit(Some(entry), e))?,
                ))
            }
        }
    }

    fn unit_file(&self, what: &PrefetchUnit) -> Result<&'a OpenBlockFile, StorageError> {
        match what {
            PrefetchUnit::Page(page) => self.files.data_file(page),
            PrefetchUnit::Times(_) => Ok(self.files.index.first()),
        }
    }
}

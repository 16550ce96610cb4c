//! Writing of encoded pages, and their publication to readers.
//!
//! Invariant: a page is published after it is synced, and after the catalogue contains the labels
//! of all its series.

use super::{EncodedGroup, malformed_error};
use crate::error::StorageError;
use crate::failpoints::{self, StoreFlaw};
use crate::maintenance::catalogue::CatalogueWriter;
use crate::maintenance::disk_space::DiskSpace;
use crate::maintenance::state::MaintenanceState;
use crate::page::PageReader;
use crate::parts::metrics::StoreMetrics;
use crate::sealed::SealedPages;
use crate::sealed::directory::SealedPageEntry;
use crate::sealed::meta::SealedPageMeta;
use firn_model::error::Error;
use std::sync::Arc;

/// The entries of the pages of one group, in the order of the pages.
pub(super) type PageEntries = Vec<Arc<SealedPageEntry>>;

/// Writes pages into segments, and shows them to readers.
#[derive(Clone, Copy)]
pub(crate) struct PageWriter<'a> {
    pub(in crate::maintenance) sealed: &'a SealedPages,
    pub(in crate::maintenance) catalogue: CatalogueWriter<'a>,
    pub(in crate::maintenance) space: DiskSpace<'a>,
    pub(in crate::maintenance) metrics: &'a StoreMetrics,
}

impl PageWriter<'_> {
    /// Writes the pages of `sealed` and syncs them. Returns their entries for the directory,
    /// by group.
    pub(super) fn write(
        &self,
        state: &mut MaintenanceState,
        sealed: &[EncodedGroup],
        reserve_bytes: u64,
    ) -> Result<Vec<PageEntries>, StorageError> {
        let pages = || sealed.iter().flat_map(|s| &s.pages);
        let bytes: usize = pages().map(|(_, page)| page.len()).sum();
        if bytes == 0 {
            return Ok(sealed.iter().map(|_| Vec::new()).collect());
        }
        self.space
            .check_free(reserve_bytes.saturating_add(bytes as u64))?;
        // After a restart, the labels of all series in a page must be found.
        let last = pages().filter_map(|(meta, _)| meta.slots().last()).max();
        if last >= Some(state.catalogue.end_slot()) {
            self.catalogue.write(state, state.trimmed_position())?;
        }
        let mut entries = Vec::with_capacity(sealed.len());
        for sealed in sealed {
            let mut of_group = Vec::with_capacity(sealed.pages.len());
            for (meta, page) in &sealed.pages {
                of_group.push(state.segments.append(meta.clone(), page)?);
            }
            entries.push(of_group);
        }
        if !failpoints::has(StoreFlaw::SkipsPageSync) {
            state.segments.sync()?;
        }
        self.metrics.page_bytes.add(bytes as u64);
        Ok(entries)
    }

    /// Makes the pages of a group visible to readers.
    pub(super) fn publish(
        &self,
        entries: PageEntries,
        pages: Vec<(SealedPageMeta, Vec<u8>)>,
    ) -> Result<(), Error> {
        // The head drops the samples of all pages, so none of them may be left out.
        assert_eq!(entries.len(), pages.len(), "an entry for each page");
        for (entry, (_, page)) in entries.into_iter().zip(pages) {
            let open = PageReader::open(page.into()).map_err(malformed_error)?;
            self.sealed.cache.insert(&entry, Arc::new(open));
            self.metrics.sealed_pages.inc();
            self.sealed.directory.add(entry);
        }
        Ok(())
    }
}

//! Damage found by a selection: samples that cannot be read are left out, and the result contains a
//! warning.
//!
//! Damage affects only the columns in the damaged bytes. The other pages of the series and its
//! samples in the head are returned, and undamaged series are not affected.

use super::HeadSelection;
use crate::damage::{Damage, DamageKind};
use crate::encoding::DecodeError;
use crate::head::copies::SeriesCopy;
use crate::page::{ColumnEntry, PageReader};
use crate::sealed::directory::SealedPageEntry;
use firn_model::budget::Reservation;
use firn_model::error::Error;
use firn_model::store::Selection;
use std::path::PathBuf;
use std::sync::Arc;

/// Memory of an open page without its bytes and times, in bytes.
const PAGE_BYTES: usize = 1 << 10;

/// State of a page of the group that is being read.
pub(super) enum GroupPageState {
    /// The page was not opened yet.
    No,
    /// The open page, with the number of bytes reserved for it.
    Page(Arc<PageReader>, usize),
    /// The page could not be read, which was reported, or was removed by retention.
    Lost,
}

impl GroupPageState {
    /// Closes a page that no other series of the read needs.
    pub(super) fn close(&mut self, memory: &mut Reservation) {
        if let Self::Page(_, held) = self {
            let left = memory.bytes().saturating_sub(*held);
            *self = Self::No;
            memory.shrink_to(left);
        }
    }
}

impl HeadSelection {
    /// Returns the page of `entry` and caches it in `opened`; `None` if it cannot be read.
    #[inline]
    pub(super) fn open_cached<'a>(
        &self,
        entry: &SealedPageEntry,
        opened: &'a mut GroupPageState,
        memory: &mut Reservation,
    ) -> Result<Option<&'a PageReader>, Error> {
        if let GroupPageState::No = opened {
            *opened = self.open(entry, memory)?;
        }
        Ok(match opened {
            GroupPageState::Page(page, _) => Some(page),
            GroupPageState::No | GroupPageState::Lost => None,
        })
    }

    /// Opens a page and reserves its memory. Reports a page that cannot be read, unless retention
    /// has removed it.
    #[cold]
    fn open(
        &self,
        entry: &SealedPageEntry,
        memory: &mut Reservation,
    ) -> Result<GroupPageState, Error> {
        let before = memory.bytes();
        memory.grow(entry.bytes as usize + PAGE_BYTES)?;
        match self.sealed.cache.get(entry) {
            Ok((page, was_cached)) => {
                self.costs.add_unit(entry.bytes.into(), was_cached);
                let held = memory.bytes() - before;
                // The times of its columns, which are decoded on demand.
                memory.grow(page.memory_bytes().saturating_sub(held))?;
                Ok(GroupPageState::Page(page, memory.bytes() - before))
            }
            // Removed by retention after it was listed.
            Err(_) if entry.segment.ranges().is_removed() => Ok(GroupPageState::Lost),
            Err(e) => {
                let damage = self.sealed.report_lost_page(entry, e)?;
                self.report_loss(&damage);
                Ok(GroupPageState::Lost)
            }
        }
    }

    /// Reports that a column of a page cannot be read. `column` is `None` if the directory of the
    /// page is damaged.
    #[cold]
    pub(super) fn report_lost_column(
        &self,
        series: usize,
        entry: &SealedPageEntry,
        page: &PageReader,
        column: Option<ColumnEntry>,
        why: DecodeError,
    ) {
        let damage = self
            .sealed
            .report_lost_columns(entry, page, &why.to_string());
        let range = column.map_or(entry.range, |column| column.range());
        // Samples that the head contains are not read from pages.
        let unsealed = self.head_copy(series).and_then(SeriesCopy::first_time);
        let is_sealed = unsealed.is_none_or(|unsealed| range.min < unsealed);
        if is_sealed && range.overlaps(&self.range) {
            self.report_loss(&damage);
        }
    }

    /// Reports that a chunk of a series in the head cannot be decoded.
    #[cold]
    pub(super) fn report_lost_chunk(&self, series: usize, copy: SeriesCopy<'_>, why: DecodeError) {
        let damage = self.sealed.damages.report_read_damage(Damage {
            kind: DamageKind::Head,
            file: PathBuf::new(),
            offset: None,
            what: format!("chunk of {}: {why}", self.labels(series)),
            samples: None,
            range: copy.range(),
        });
        self.report_loss(&damage);
    }

    fn report_loss(&self, damage: &Damage) {
        self.losses.add(&damage.warning());
    }
}

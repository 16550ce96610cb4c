//! Damage met by a selection: what cannot be read is left out, and the answer warns of it.
//!
//! Damage costs the columns that lie in the damaged bytes and nothing else. The series' other pages
//! and what the head holds of it are given, and series that are whole answer as ever.

use super::HeadSelection;
use crate::damage::{Damage, DamageKind};
use crate::encoding::Malformed;
use crate::head::copies::Copied;
use crate::page::{Column, Page};
use crate::sealed::directory::PageEntry;
use firn_model::budget::Reservation;
use firn_model::error::Error;
use firn_model::store::Selection;
use std::path::PathBuf;
use std::sync::Arc;

/// What an open page takes beside its bytes and times.
const PAGE_BYTES: usize = 1 << 10;

/// A page of a group whose series are read.
pub(super) enum Opened {
    /// No series asked for it yet.
    No,
    /// It is there, and so many bytes are reserved for it.
    Page(Arc<Page>, usize),
    /// It could not be read, and that was said; or it left the retention.
    Lost,
}

impl Opened {
    /// Closes a page that no series of the read needs any more.
    pub(super) fn close(&mut self, memory: &mut Reservation) {
        if let Self::Page(_, held) = self {
            let left = memory.bytes().saturating_sub(*held);
            *self = Self::No;
            memory.shrink_to(left);
        }
    }
}

impl HeadSelection {
    /// The page of `entry`, which `opened` remembers; none if it cannot be read.
    #[inline]
    pub(super) fn opened<'a>(
        &self,
        entry: &PageEntry,
        opened: &'a mut Opened,
        memory: &mut Reservation,
    ) -> Result<Option<&'a Page>, Error> {
        if let Opened::No = opened {
            *opened = self.open(entry, memory)?;
        }
        Ok(match opened {
            Opened::Page(page, _) => Some(page),
            Opened::No | Opened::Lost => None,
        })
    }

    #[cold]
    fn open(&self, entry: &PageEntry, memory: &mut Reservation) -> Result<Opened, Error> {
        let before = memory.bytes();
        memory.grow(entry.bytes as usize + PAGE_BYTES)?;
        match self.sealed.cache.get(entry) {
            Ok(page) => {
                let held = memory.bytes() - before;
                // Times of its columns, which are read when they are asked for.
                memory.grow(page.memory_bytes().saturating_sub(held))?;
                Ok(Opened::Page(page, memory.bytes() - before))
            }
            // The retention took it since it was listed.
            Err(_) if entry.segment.ranges().is_removed() => Ok(Opened::Lost),
            Err(e) => {
                let damage = self.sealed.lose_page(entry, e)?;
                self.lose(&damage);
                Ok(Opened::Lost)
            }
        }
    }

    /// A column of a page failed, which was found unless the page's directory failed.
    #[cold]
    pub(super) fn lose_column(
        &self,
        series: usize,
        entry: &PageEntry,
        page: &Page,
        (column, why): (Option<Column>, Malformed),
    ) {
        let damage = self.sealed.lose_columns(entry, page, &why.to_string());
        let range = column.map_or(entry.range, |column| column.range());
        // What the head has of the series is not read from pages.
        let unsealed = self.copy(series).and_then(Copied::first_time);
        let is_sealed = unsealed.is_none_or(|unsealed| range.min < unsealed);
        if is_sealed && range.overlaps(&self.range) {
            self.lose(&damage);
        }
    }

    /// Some of what the head held of a series failed.
    #[cold]
    pub(super) fn lose_chunk(&self, series: usize, copy: Copied<'_>, why: Malformed) {
        let damage = self.sealed.damages.report_met(Damage {
            kind: DamageKind::Head,
            file: PathBuf::new(),
            offset: None,
            what: format!("chunk of {}: {why}", self.labels(series)),
            samples: None,
            range: copy.range(),
        });
        self.lose(&damage);
    }

    fn lose(&self, damage: &Damage) {
        self.losses.add(&damage.warning());
    }
}

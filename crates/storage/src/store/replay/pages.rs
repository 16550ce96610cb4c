//! What pages say at a start: which series have samples when, and the newest of each.
//!
//! The newest sample of a series decides what it accepts next and which rows of the log are in a
//! page already. It is read from a page only if it can matter: the log may hold the page's samples
//! still, or the page is so recent that a sample beside it could be accepted. Otherwise the end of
//! the page stands for it.

use super::Replay;
use super::catalog::Catalog;
use crate::chunk::{Columns, Sample};
use crate::codec::Malformed;
use crate::error::StorageError;
use crate::index::{Place, epoch_of};
use crate::page::{Page, Scratch};
use crate::sealed::GROUP_SLOTS;
use crate::sealed::cache::{damaged, read};
use crate::sealed::segment::Placed;
use crate::store::lock;
use crate::store::upkeep::Upkeep;
use crate::sync::Mutex;
use crate::sync::atomic::Ordering;
use firn_model::log::Position;
use firn_model::sample::{TimeRange, TimestampMs};
use std::collections::BTreeMap;

/// When the newest sample of a page must be read.
#[derive(Clone, Copy)]
struct Needed {
    /// The first position of the log.
    log_first: Position,
    /// A sample at least so new could stand beside an acceptable one.
    recent: TimestampMs,
}

/// A group while its pages are taken in.
struct Group<'a> {
    catalog: &'a Catalog,
    needed: Needed,
    /// Series of which a newer page was seen.
    is_known: [bool; GROUP_SLOTS as usize],
    /// Up to when series are sealed, where the log may repeat it.
    sealed: Vec<(u32, TimestampMs)>,
}

impl Group<'_> {
    fn is_fresh(&self, slot: u32) -> bool {
        !self.is_known[(slot % GROUP_SLOTS) as usize]
    }
}

impl Replay<'_> {
    /// Shows the pages to readers, and tells head, index and coverage of them.
    pub(super) fn load_pages(&mut self, pages: Vec<Placed>, upkeep: &mut Upkeep) {
        let store = self.store;
        let Some(newest) = pages.iter().map(|(meta, _)| meta.range.max).max() else {
            return;
        };
        store.newest.fetch_max(newest, Ordering::Relaxed);
        let needed = Needed {
            log_first: store.log.first_position(),
            recent: newest.saturating_sub(store.options.lateness_max_ms),
        };
        let log_last = store.log.last_position();
        let mut groups: BTreeMap<u32, Vec<Placed>> = BTreeMap::new();
        for (meta, entry) in pages {
            let end = meta.slots.as_slice().last().map_or(0, |run| run.end);
            self.next_slot.fetch_max(end, Ordering::Relaxed);
            // A log that somebody emptied gives its positions again.
            let unsealed_after = meta.unsealed_after.min(log_last);
            upkeep
                .coverage
                .restore(meta.group, meta.window_end, unsealed_after);
            store.sealed.directory.add(entry.clone());
            groups.entry(meta.group).or_default().push((meta, entry));
        }
        let groups: Vec<Vec<Placed>> = groups.into_values().collect();
        let sealed: Vec<Mutex<Vec<(u32, TimestampMs)>>> =
            groups.iter().map(|_| Mutex::default()).collect();
        // Every series of a page is in the catalogue, which was read before.
        let mut catalog = std::mem::take(&mut *lock(&self.catalog));
        store.env.compute.for_each(groups.len(), &|i| {
            *lock(&sealed[i]) = self.load_group(&groups[i], &catalog, needed);
        });
        for of_group in sealed {
            for (slot, time) in &*lock(&of_group) {
                catalog.set_sealed(*slot, *time);
            }
        }
        *lock(&self.catalog) = catalog;
    }

    /// Takes in the pages of one group, oldest first. Returns up to when its series are sealed,
    /// where the log may repeat it.
    fn load_group(
        &self,
        pages: &[Placed],
        catalog: &Catalog,
        needed: Needed,
    ) -> Vec<(u32, TimestampMs)> {
        let mut group = Group {
            catalog,
            needed,
            is_known: [false; GROUP_SLOTS as usize],
            sealed: Vec::new(),
        };
        for page in pages.iter().rev() {
            if let Err(e) = self.load_page(page, &mut group) {
                self.store.report(&e.to_string());
            }
        }
        group.sealed
    }

    fn load_page(&self, (meta, entry): &Placed, group: &mut Group<'_>) -> Result<(), StorageError> {
        let (first, last) = (epoch_of(meta.range.min), epoch_of(meta.range.max));
        let repeats = meta.sealed_up_to >= group.needed.log_first;
        let is_needed = repeats || meta.range.max >= group.needed.recent;
        let has_gaps = last - first > 1;
        let mut open = None;
        if has_gaps || is_needed && meta.slots.slots().any(|slot| group.is_fresh(slot)) {
            open = Some(read(entry)?);
        }
        let damaged = |e: Malformed| damaged(entry, e);
        for slot in meta.slots.slots() {
            // Of series that are gone nothing is said.
            let Some(place) = group.catalog.place(slot) else {
                continue;
            };
            match &open {
                Some(page) if has_gaps => self.mark_epochs(page, slot).map_err(damaged)?,
                _ => {
                    self.store.index.mark(slot, first);
                    self.store.index.mark(slot, last);
                }
            }
            if !group.is_fresh(slot) {
                continue;
            }
            group.is_known[(slot % GROUP_SLOTS) as usize] = true;
            match open.as_ref().filter(|_| is_needed) {
                None => self.begin_behind(place, meta.range.max, None),
                Some(page) => {
                    if let Some((time, sample)) = newest(page, slot).map_err(damaged)? {
                        self.begin_behind(place, time, Some(sample));
                        group.sealed.push((slot, time));
                    }
                }
            }
        }
        Ok(())
    }

    /// Says in which epochs a series has samples in a page that may leave some out: what lies
    /// between two samples may be the whole of time.
    fn mark_epochs(&self, page: &Page, slot: u32) -> Result<(), Malformed> {
        let Some(column) = page.find(slot)? else {
            return Ok(());
        };
        let mut columns = Columns::default();
        page.decode(
            &column,
            TimeRange::ALL,
            &mut Scratch::default(),
            &mut columns,
        )?;
        let mut epochs: Vec<i64> = columns.times.iter().map(|t| epoch_of(*t)).collect();
        epochs.dedup();
        for epoch in epochs {
            self.store.index.mark(slot, epoch);
        }
        Ok(())
    }

    fn begin_behind(&self, place: Place, time: TimestampMs, sample: Option<Sample>) {
        let (number, local) = self.store.shard_and_local(place);
        let mut shard = lock(&self.store.shards[number]);
        if let Some(series) = shard.series_mut(local) {
            let before = series.memory_bytes();
            series.begin_behind(time, sample);
            let after = series.memory_bytes();
            shard.chunk_bytes = shard.chunk_bytes + after - before;
        }
    }
}

/// The newest sample of a series, if it has any in `page`.
fn newest(page: &Page, slot: u32) -> Result<Option<(TimestampMs, Sample)>, Malformed> {
    let Some(column) = page.find(slot)? else {
        return Ok(None);
    };
    let last = TimeRange::new(column.range().max, column.range().max);
    let mut columns = Columns::default();
    page.decode(&column, last, &mut Scratch::default(), &mut columns)?;
    let newest = columns.samples().last();
    Ok(newest.map(|(time, _, value)| (time, value)))
}

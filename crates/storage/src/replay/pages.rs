//! Reading pages at a start: which series have samples when, and the newest sample of each.
//!
//! The newest sample of a series decides what it accepts next and which rows of the log are in a
//! page already. It is read from a page only if it can matter: the log may hold the page's samples
//! still, or the page is so recent that a sample beside it could be accepted. Otherwise the end of
//! the page stands for it.

use super::Replay;
use super::series::ReplaySeries;
use crate::chunk::{Columns, Sample};
use crate::damage::{self, Damage, DamageKind};
use crate::encoding::Malformed;
use crate::error::StorageError;
use crate::fan_out::map;
use crate::ids::{GroupId, SeriesRef, Slot};
use crate::index::{Place, epoch_of};
use crate::maintenance::state::State;
use crate::page::{Page, Scratch};
use crate::parts::numbers::NumberCursor;
use crate::sealed::cache::{damaged, read};
use crate::sealed::meta::PageMeta;
use crate::sealed::segment::Placed;
use crate::sealed::{GROUP_SLOTS, place_in_group};
use crate::sync::atomic::Ordering;
use crate::sync::lock;
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
    /// Samples before this left the retention, or are in blocks.
    cutoff: TimestampMs,
}

/// A group while its pages are taken in.
struct Group<'a> {
    known: &'a ReplaySeries,
    numbers: NumberCursor<'a>,
    needed: Needed,
    /// The newest sample of each series in the pages that were seen.
    newest: [TimestampMs; GROUP_SLOTS as usize],
    found: OfGroup,
}

/// What the pages of a group say.
#[derive(Default)]
struct OfGroup {
    /// Up to when series are sealed, where the log may repeat it.
    sealed: Vec<(SeriesRef, TimestampMs)>,
    /// Some page that the log may repeat could not be read whole.
    is_damaged: bool,
    /// Series with samples that no catalogue names, and the times of those.
    nameless: u64,
    nameless_range: Option<TimeRange>,
}

impl Group<'_> {
    /// Whether a page up to `time` may have a newer sample of a series than those that were seen.
    fn is_fresh(&self, slot: Slot, time: TimestampMs) -> bool {
        self.newest[place_in_group(slot) as usize] < time
    }

    fn know(&mut self, slot: Slot, time: TimestampMs) {
        self.newest[place_in_group(slot) as usize] = time;
    }

    /// The number of a series and where it lives, if a catalogue names it.
    fn find(&mut self, slot: Slot) -> Option<(SeriesRef, Place)> {
        self.known.find(&mut self.numbers, slot)
    }
}

impl Replay<'_> {
    /// Shows the pages to readers, and tells head, index and coverage of them; whether all of them
    /// that matter to the log were whole. If not, or if `is_whole` says that not all are there, the
    /// log is passed over only where a page is seen to hold it, and is kept.
    pub(super) fn load_pages(
        &mut self,
        pages: Vec<Placed>,
        is_whole: bool,
        state: &mut State,
    ) -> bool {
        let store = self.store;
        let Some(newest) = pages.iter().map(|(meta, _)| meta.range.max).max() else {
            return true;
        };
        store.newest.fetch_max(newest, Ordering::Relaxed);
        let cut = store.blocks.view().cut;
        let needed = Needed {
            log_first: store.log.positions().first,
            recent: newest.saturating_sub(store.lateness_ms()),
            cutoff: store.retaining.cutoff_at(newest).max(cut),
        };
        let mut groups: BTreeMap<GroupId, Vec<Placed>> = BTreeMap::new();
        // The next tick removes the segments of pages that blocks have taken over.
        for (meta, entry) in pages.into_iter().filter(|(meta, _)| meta.range.max >= cut) {
            meta.slots()
                .last()
                .into_iter()
                .for_each(|slot| self.note_slot(slot));
            store.sealed.directory.add(entry.clone());
            groups.entry(meta.group).or_default().push((meta, entry));
        }
        let groups: Vec<Vec<Placed>> = groups.into_values().collect();
        // Every series of a page is in the catalogue, which was read before.
        let mut known = std::mem::replace(&mut *lock(&self.known), ReplaySeries::new(cut));
        let load = |i: usize| self.load_group(&groups[i], &known, needed);
        let found = map(&*store.env.compute, groups.len(), load);
        let mut all_whole = true;
        let mut nameless = (0, None);
        for (pages, found) in groups.iter().zip(found) {
            all_whole &= !found.is_damaged;
            let trusts = is_whole && !found.is_damaged;
            self.restore_coverage(pages, trusts, state);
            match (trusts, pages.first()) {
                (false, Some((meta, _))) => {
                    store.sealed.returned.add(meta.group);
                    known.set_spans(meta.group, spans(pages, needed));
                }
                _ => {
                    for (slot, time) in found.sealed {
                        known.set_sealed(slot, time);
                    }
                }
            }
            nameless.0 += found.nameless;
            nameless.1 = TimeRange::hull_of(nameless.1, found.nameless_range);
        }
        if !is_whole {
            known.trust_spans_only();
            store.sealed.returned.add_all();
        }
        *lock(&self.known) = known;
        self.report_nameless(nameless);
        all_whole
    }

    /// Says to the coverage what the pages of a group say of the log. Unless they are trusted the
    /// log may hold what they do not, and is needed from its beginning.
    fn restore_coverage(&self, pages: &[Placed], trusts: bool, state: &mut State) {
        let log_last = self.store.log.positions().last;
        let start = self.store.log.positions().first.previous();
        for (meta, _) in pages {
            // A log that was emptied by hand gives its positions again.
            let unsealed_after = match trusts {
                true => meta.unsealed_after.min(log_last),
                false => start,
            };
            state
                .coverage
                .restore(meta.group, meta.window_end, unsealed_after);
        }
    }

    /// Reports series whose part of the catalogue is lost: no query finds samples without labels.
    fn report_nameless(&self, (series, range): (u64, Option<TimeRange>)) {
        if series == 0 {
            return;
        }
        let dir = self.store.dir.series();
        let what = format!("the labels of {series} series are lost, whose samples are in pages");
        let damage = Damage::of_file(DamageKind::Catalogue, &dir, what);
        self.store.damages.report(damage.within(range));
    }

    /// Takes in the pages of one group, newest first.
    fn load_group(&self, pages: &[Placed], known: &ReplaySeries, needed: Needed) -> OfGroup {
        let mut group = Group {
            known,
            numbers: known.groups.cursor(),
            needed,
            newest: [TimestampMs::MIN; GROUP_SLOTS as usize],
            found: OfGroup::default(),
        };
        for page in pages.iter().rev() {
            self.load_page(page, &mut group);
        }
        group.found
    }

    fn load_page(&self, (meta, entry): &Placed, group: &mut Group<'_>) {
        let (first, last) = (epoch_of(meta.range.min), epoch_of(meta.range.max));
        let repeats = meta.sealed_up_to >= group.needed.log_first;
        let is_needed = repeats || meta.range.max >= group.needed.recent;
        let has_gaps = last - first > 1;
        let is_kept = meta.range.max >= group.needed.cutoff;
        let mut open = None;
        let wants = |slot: Slot, group: &mut Group<'_>| match group.find(slot) {
            None => is_kept,
            Some(_) => has_gaps || repeats || is_needed && group.is_fresh(slot, meta.range.max),
        };
        if meta.slots().any(|slot| wants(slot, group)) {
            match read(entry) {
                Ok(page) => open = Some(page),
                Err(e) => self.meet(meta, &e, repeats, group),
            }
        }
        if let Some(page) = open.as_ref().filter(|_| repeats)
            && let Err(e) = page.verify()
        {
            self.meet(meta, &damaged(entry, e), repeats, group);
        }
        for slot in meta.slots() {
            let Some((series, place)) = group.find(slot) else {
                // Of series whose samples left the retention nothing is said.
                if let Some(page) = open.as_ref().filter(|_| is_kept) {
                    group.note_nameless(page, slot);
                }
                continue;
            };
            let is_marked = match &open {
                Some(page) if has_gaps => self.mark_epochs(page, slot, series).is_ok(),
                _ => false,
            };
            if !is_marked {
                self.store.index.mark(series, first);
                self.store.index.mark(series, last);
            }
            if !group.is_fresh(slot, meta.range.max) {
                continue;
            }
            let column = match (&open, is_needed) {
                (Some(page), true) => newest(page, slot).ok().flatten(),
                _ => None,
            };
            match column {
                Some((range, sample)) if group.is_fresh(slot, range.max) => {
                    group.know(slot, range.max);
                    self.begin_behind(place, range.max, Some(sample));
                    group.found.sealed.push((series, range.max));
                }
                Some(_) => {}
                // The log has what is damaged here, unless it was trimmed.
                None if repeats => {}
                // The end of the page stands for the newest sample. A next one in its epoch counts
                // as one of an epoch that is marked.
                None => {
                    self.store.index.mark(series, last);
                    group.know(slot, meta.range.max);
                    self.begin_behind(place, meta.range.max, None);
                }
            }
        }
    }

    /// A page, or a column of it, cannot be read.
    fn meet(&self, meta: &PageMeta, error: &StorageError, repeats: bool, group: &mut Group<'_>) {
        group.found.is_damaged |= repeats;
        let damage = damage::met(DamageKind::Pages, error);
        self.store
            .damages
            .report_met(damage.within(Some(meta.range)));
    }

    /// Says in which epochs a series has samples in a page that may leave some out: what lies
    /// between two samples may be the whole of time.
    fn mark_epochs(&self, page: &Page, slot: Slot, series: SeriesRef) -> Result<(), Malformed> {
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
            self.store.index.mark(series, epoch);
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

impl Group<'_> {
    /// Counts a series that no catalogue names, if it has samples that did not leave the retention.
    fn note_nameless(&mut self, page: &Page, slot: Slot) {
        let Ok(Some(column)) = page.find(slot) else {
            return;
        };
        let newest = column.range().max;
        if newest >= self.needed.cutoff && self.is_fresh(slot, newest) {
            // Once, however many pages have it.
            self.know(slot, TimestampMs::MAX);
            self.found.nameless += 1;
            self.found.nameless_range =
                TimeRange::hull_of(self.found.nameless_range, Some(column.range()));
        }
    }
}

/// From when to when pages of a group that the log may repeat are seen to hold its series.
fn spans(pages: &[Placed], needed: Needed) -> Vec<(Slot, TimeRange)> {
    let mut spans = Vec::new();
    let repeats = |placed: &&Placed| placed.0.sealed_up_to >= needed.log_first;
    for (meta, entry) in pages.iter().filter(repeats) {
        // What cannot be read was reported.
        let Ok(page) = read(entry) else { continue };
        for slot in meta.slots() {
            if let Ok(Some((range, _))) = newest(&page, slot) {
                spans.push((slot, range));
            }
        }
    }
    spans
}

/// From when to when a series has samples in `page`, if it has any, and the newest of them.
/// Decoding shows that the column is whole.
fn newest(page: &Page, slot: Slot) -> Result<Option<(TimeRange, Sample)>, Malformed> {
    let Some(column) = page.find(slot)? else {
        return Ok(None);
    };
    let range = column.range();
    let last = TimeRange::new(range.max, range.max);
    let mut columns = Columns::default();
    page.decode(&column, last, &mut Scratch::default(), &mut columns)?;
    let newest = columns.samples().last();
    Ok(newest.map(|(time, _, value)| (TimeRange::new(range.min, time), value)))
}

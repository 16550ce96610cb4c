//! Label names, label values and label columns of series.
//!
//! The names or values of the matching series are read from the series themselves. If there are
//! many series, every list of postings is checked for a matching series instead, which stops at the
//! first one.

use super::core::Index;
use super::lookup_work::CANCEL_EACH;
use super::membership::EpochMembers;
use super::postings::Postings;
use super::runs::SlotRunSet;
use super::series_table::SeriesCursor;
use super::terms::IndexedLabel;
use crate::fan_out::map_parts;
use crate::ids::{LabelId, SeriesRef, TermId};
use firn_model::budget::Reservation;
use firn_model::cancel::CancelToken;
use firn_model::columns::{COLUMN_VALUE_BYTES, LabelColumn};
use firn_model::env::Compute;
use firn_model::error::Error;
use firn_model::matcher::Matcher;
use firn_model::order::sort_checked;
use firn_model::sample::TimeRange;
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
use std::collections::hash_map::Entry;
use std::sync::Arc;

/// Number of series whose labels one thread reads. Waking another thread for fewer takes as long as
/// reading them. Small in tests.
const COLUMN_PART: usize = if cfg!(test) { 4 } else { 2_048 };

/// One label of some series, as indices into a list of terms.
struct TermColumn {
    ids: Vec<u32>,
    /// `None` for series without the label.
    terms: Vec<Option<TermId>>,
}

/// Bytes reserved at a time for the values of a column: some hundred values.
const ROOM_BYTES: usize = 16 << 10;

/// Working memory per series while a column is built, in bytes: its index within its part, and a
/// term in a list that may have twice the necessary capacity.
const PASSING_BYTES: usize = size_of::<u32>() + 2 * size_of::<Option<TermId>>();

/// Working memory for the index of a value while a column is built, in bytes, in a map that may
/// have twice the necessary capacity.
const NUMBER_BYTES: usize = 2 * size_of::<(Option<TermId>, u32)>();

/// The series whose labels are requested, selected by time alone or by matchers too.
enum SelectedSlots {
    /// All series that have a sample.
    Members(EpochMembers),
    /// The series that match and have a sample in the requested range.
    Found(SlotRunSet),
}

impl SelectedSlots {
    /// Returns whether any of the series is in `postings` below `limit`.
    fn intersects(&self, postings: &Postings, limit: u32) -> bool {
        match self {
            Self::Members(members) => postings.any_run(0..limit, |run| members.has_any_in(run)),
            Self::Found(found) => {
                let mut beside = found.cursor();
                let mut meets = false;
                postings.any_run(0..limit, |run| {
                    meets = beside.overlaps(run);
                    meets || beside.is_exhausted()
                });
                meets
            }
        }
    }
}

impl Index {
    /// Returns the sorted names of the labels of all matching series with a sample in `range`.
    pub(crate) fn label_names(
        &self,
        matchers: &[Matcher],
        range: TimeRange,
        cancel: &CancelToken,
    ) -> Result<Vec<String>, Error> {
        let asked = self.select_slots(matchers, range, cancel)?;
        let mut names = BTreeSet::new();
        let reading = || {
            let runs = self
                .dictionary
                .all_labels()
                .map(|l| l.present.count_runs_from(0));
            runs.sum::<usize>() * self.costs.run
        };
        match &asked {
            SelectedSlots::Found(found) if found.len() * self.costs.series < reading() => {
                let mut seen = BTreeSet::new();
                let mut cursor = SeriesCursor::new(&self.dictionary);
                for slot in found.slots() {
                    let terms = cursor.terms(slot).iter();
                    seen.extend(terms.map(|term| self.dictionary.label_of_term(*term)));
                }
                let name =
                    |id: LabelId| self.dictionary.labels.get(id.0).map(|l| l.name.to_string());
                names.extend(seen.into_iter().filter_map(name));
            }
            _ => {
                let limit = self.published_end();
                for label in self.dictionary.all_labels() {
                    cancel.check()?;
                    if asked.intersects(&label.present, limit) {
                        names.insert(label.name.to_string());
                    }
                }
            }
        }
        Ok(names.into_iter().collect())
    }

    /// Returns the sorted values of the label `name` of all matching series with a sample in
    /// `range`.
    pub(crate) fn label_values(
        &self,
        name: &str,
        matchers: &[Matcher],
        range: TimeRange,
        cancel: &CancelToken,
    ) -> Result<Vec<Vec<u8>>, Error> {
        let Some(label) = self.dictionary.label(name) else {
            return Ok(Vec::new());
        };
        let asked = self.select_slots(matchers, range, cancel)?;
        // In the worst case, each series of the label is a run of its own.
        let reading =
            label.values_count() * self.costs.term + label.present.count() * self.costs.run;
        let terms: Vec<TermId> = match &asked {
            SelectedSlots::Found(found) if found.len() * self.costs.series < reading => {
                let mut cursor = SeriesCursor::new(&self.dictionary);
                let term_of = |slot| cursor.find_term(slot, label.id);
                let terms: BTreeSet<TermId> = found.slots().filter_map(term_of).collect();
                terms.into_iter().collect()
            }
            _ => self.find_intersecting_terms(label, &asked, cancel)?,
        };
        let value = |id| self.dictionary.with_term(id, |term| term.value.to_vec());
        let mut values: Vec<Vec<u8>> = terms.into_iter().filter_map(value).collect();
        let mut order: Vec<usize> = (0..values.len()).collect();
        let compare = |a: usize, b: usize| values[a].cmp(&values[b]);
        sort_checked(&mut order, || cancel.check(), compare)?;
        let in_order = order.into_iter().map(|at| std::mem::take(&mut values[at]));
        Ok(in_order.collect())
    }

    /// Returns the series that match: all with a sample in `range` if there are no matchers,
    /// otherwise the result of a lookup.
    fn select_slots(
        &self,
        matchers: &[Matcher],
        range: TimeRange,
        cancel: &CancelToken,
    ) -> Result<SelectedSlots, Error> {
        Ok(if matchers.is_empty() {
            SelectedSlots::Members(self.membership.snapshot_range(range))
        } else {
            SelectedSlots::Found(self.lookup(matchers, range, cancel)?)
        })
    }

    /// Returns the terms of a label that any of the requested series has, by a check of all their
    /// postings.
    fn find_intersecting_terms(
        &self,
        label: &IndexedLabel,
        asked: &SelectedSlots,
        cancel: &CancelToken,
    ) -> Result<Vec<TermId>, Error> {
        let limit = self.published_end();
        let ids: Vec<TermId> = label.terms().collect();
        let mut terms = Vec::new();
        for ids in ids.chunks(CANCEL_EACH) {
            cancel.check()?;
            let meets = |id: &TermId| {
                self.dictionary
                    .with_term(*id, |t| asked.intersects(&t.postings, limit))
            };
            terms.extend(ids.iter().filter(|id| meets(id) == Some(true)));
        }
        Ok(terms)
    }

    /// Returns one label of many series as a column, read by the threads of `compute`. Reserves its
    /// memory in `memory`.
    pub(crate) fn read_label_column(
        &self,
        name: &str,
        slots: &[SeriesRef],
        compute: &dyn Compute,
        cancel: &CancelToken,
        memory: &mut Reservation,
    ) -> Result<LabelColumn, Error> {
        memory.grow(size_of_val(slots))?;
        let passing = slots.len() * PASSING_BYTES;
        memory.grow(passing)?;
        let label = self.dictionary.label(name).map(|label| label.id);
        let parts: Vec<&[SeriesRef]> = slots.chunks(COLUMN_PART).collect();
        let read = map_parts(compute, &parts, |_, slots| {
            self.read_term_column(label, slots, cancel)
        })?;
        let mut column = LabelColumn {
            ids: Vec::with_capacity(slots.len()),
            values: Vec::new(),
        };
        let mut numbers: FxHashMap<Option<TermId>, u32> = FxHashMap::default();
        let mut room = BulkReservation { memory, bytes: 0 };
        for part in read {
            let mut ids = Vec::with_capacity(part.terms.len());
            for term in part.terms {
                ids.push(match numbers.entry(term) {
                    Entry::Occupied(known) => *known.get(),
                    Entry::Vacant(place) => {
                        let value = self.read_term_value(term, &mut room)?;
                        column.values.push(value);
                        *place.insert(column.values.len() as u32 - 1)
                    }
                });
            }
            let of_part = part.ids.iter().map(|id| ids[*id as usize]);
            column.ids.extend(of_part);
        }
        room.release_rest();
        memory.shrink_to(memory.bytes() - passing);
        Ok(column)
    }

    /// Returns the terms of one label of series, in the order in which they first occur.
    fn read_term_column(
        &self,
        label: Option<LabelId>,
        slots: &[SeriesRef],
        cancel: &CancelToken,
    ) -> Result<TermColumn, Error> {
        cancel.check()?;
        let mut column = TermColumn {
            ids: Vec::with_capacity(slots.len()),
            terms: Vec::new(),
        };
        let mut numbers: FxHashMap<Option<TermId>, u32> = FxHashMap::default();
        let mut cursor = SeriesCursor::new(&self.dictionary);
        let mut known = label.map(|label| (label, self.label_value_cache.reader(label)));
        let mut before = None;
        for slot in slots {
            let term = known.as_mut().and_then(|(label, known)| {
                known.get_or_read(*slot, || cursor.find_term(*slot, *label))
            });
            // Series that were created one after the other mostly share the value.
            let id = match before {
                Some((same, id)) if same == term => id,
                _ => *numbers.entry(term).or_insert_with(|| {
                    column.terms.push(term);
                    column.terms.len() as u32 - 1
                }),
            };
            before = Some((term, id));
            column.ids.push(id);
        }
        Ok(column)
    }

    fn read_term_value(
        &self,
        term: Option<TermId>,
        room: &mut BulkReservation<'_>,
    ) -> Result<Arc<[u8]>, Error> {
        let term = term.and_then(|id| self.dictionary.term(id));
        let value = term.as_ref().map_or(&[][..], |term| &term.value[..]);
        room.reserve(COLUMN_VALUE_BYTES + NUMBER_BYTES + value.len())?;
        Ok(value.into())
    }
}

/// Memory that is reserved in large pieces, because all threads share the counters.
struct BulkReservation<'a> {
    memory: &'a mut Reservation,
    /// Reserved bytes that are not used yet.
    bytes: usize,
}

impl BulkReservation<'_> {
    fn reserve(&mut self, bytes: usize) -> Result<(), Error> {
        if self.bytes < bytes {
            let more = bytes.max(ROOM_BYTES);
            self.memory.grow(more)?;
            self.bytes += more;
        }
        self.bytes -= bytes;
        Ok(())
    }

    fn release_rest(self) {
        self.memory.shrink_to(self.memory.bytes() - self.bytes);
    }
}

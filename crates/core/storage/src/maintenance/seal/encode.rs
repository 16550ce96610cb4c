//! Encoding of the copied samples of a group into pages.
//!
//! Usually one page. A group that is too large for one page is split by series into parts, of which
//! only the last one declares the group as covered. Series that cannot be decoded and parts that
//! are too large for a record are left out; then no part declares the group as covered.

use super::{
    CopiedSeries, EncodedGroup, GroupSampleCopies, Sealer, SeriesSealPoint, UnsealablePolicy,
    UnsealableSamples,
};
use crate::chunk::{DecodedTimesCache, SampleColumns};
use crate::encoding::DecodeError;
use crate::failpoints::{self, StoreFlaw};
use crate::file::frame::PAYLOAD_BYTES_MAX;
use crate::ids::SeriesRef;
use crate::index::{SlotRun, SlotRunSet};
use crate::maintenance::coverage::DueGroup;
use crate::page::{self, HistogramFamilyHash, PageBuilder};
use crate::parts::head::StoreHead;
use crate::parts::metrics::StoreMetrics;
use crate::sealed::meta::SealedPageMeta;
use crate::sealed::place_in_group;
use firn_model::log::LogPosition;
use firn_model::sample::{TimeRange, TimestampMs};

/// Size in bytes at which a page ends and the next part begins. The longest possible column of a
/// page, four million buckets of ten bytes each, still fits into the record after it.
const PART_BYTES: usize = 16 << 20;

/// Maximum bytes before a page in its record: 512 runs of slots and a few numbers.
const META_BYTES_MAX: usize = 4 << 10;

/// A page under construction: one part of a group, which ends once it is large enough.
struct GroupPageDraft {
    builder: PageBuilder,
    places: SlotRunSet,
    range: TimeRange,
    cuts: Vec<SeriesSealPoint>,
    /// Upper bound of the bytes of the times, which are not encoded yet.
    times_bytes: usize,
}

/// A group under construction: its context, and the parts that are complete.
struct GroupEncoder<'a> {
    head: &'a StoreHead,
    metrics: &'a StoreMetrics,
    due: DueGroup,
    unsealed_after: LogPosition,
    sealed_up_to: LogPosition,
    /// Samples before this time are older than the retention.
    cutoff: TimestampMs,
    sealed: EncodedGroup,
}

impl Sealer<'_> {
    /// Encodes the copied samples of a group up to the end of its window. Samples that are older
    /// than the retention get no page.
    pub(super) fn encode_group(
        &self,
        due: DueGroup,
        taken: &GroupSampleCopies,
        unsealed_after: LogPosition,
        stance: UnsealablePolicy,
    ) -> EncodedGroup {
        let mut parts = GroupEncoder {
            head: self.head,
            metrics: self.metrics,
            due,
            unsealed_after,
            sealed_up_to: self.log.positions().last,
            cutoff: self.policy.cutoff(),
            sealed: EncodedGroup {
                due,
                cuts: Vec::with_capacity(taken.series.len()),
                pages: Vec::new(),
                unsealed_after,
                is_gone: false,
                stuck: None,
            },
        };
        let mut part = parts.begin_page();
        let (mut columns, mut known) = (SampleColumns::default(), DecodedTimesCache::default());
        for series in &taken.series {
            columns.clear();
            let decoded = self.decode_copied(taken, series, &mut known, &mut columns);
            columns.truncate(columns.times.partition_point(|t| *t <= due.end));
            if let Err(e) = decoded {
                let range = taken.copies.get(series.copy).range();
                let why = format!(
                    "chunk of {}: {e}",
                    self.head.index.dictionary.series_labels(series.slot)
                );
                parts.leave_out_series(&[series.seal_point(due.end)], why, range);
                if stance == UnsealablePolicy::Keep {
                    continue;
                }
                parts.count_saved(columns.times.len());
            }
            if columns.times.is_empty() {
                continue;
            }
            if part.is_full() {
                parts.end_page(
                    std::mem::replace(&mut part, parts.begin_page()),
                    stance,
                    false,
                );
            }
            part.push_series(self.head, series, &mut columns, &mut parts.sealed);
        }
        parts.end_page(part, stance, true);
        // Later samples are in no page of this group, so the head must keep them.
        let mut sealed = parts.sealed.cuts.iter();
        assert!(
            sealed.all(|point| point.time <= due.end),
            "group {:?} is sealed up to {}",
            due.group,
            due.end
        );
        if parts.sealed.stuck.is_some() && stance == UnsealablePolicy::Keep {
            parts.sealed.mark_uncovered();
        }
        parts.sealed
    }

    /// Decodes the copied samples of a series and appends them to `into`.
    fn decode_copied(
        &self,
        taken: &GroupSampleCopies,
        series: &CopiedSeries,
        known: &mut DecodedTimesCache,
        into: &mut SampleColumns,
    ) -> Result<(), DecodeError> {
        if failpoints::faults().malformed == Some(series.slot.0) {
            return Err(DecodeError("as the test asked"));
        }
        taken.copies.get(series.copy).decode(known, into)
    }
}

impl CopiedSeries {
    fn seal_point(&self, time: TimestampMs) -> SeriesSealPoint {
        SeriesSealPoint {
            shard: self.shard,
            local: self.local,
            slot: self.slot,
            time,
        }
    }
}

impl GroupPageDraft {
    fn is_full(&self) -> bool {
        let limit = failpoints::faults().part_bytes.unwrap_or(PART_BYTES);
        let bytes = self.builder.value_bytes() + self.times_bytes;
        !self.cuts.is_empty() && bytes >= limit
    }

    /// Adds as many samples of a series as fit into a page.
    fn push_series(
        &mut self,
        head: &StoreHead,
        series: &CopiedSeries,
        columns: &mut SampleColumns,
        sealed: &mut EncodedGroup,
    ) {
        let family = head
            .index
            .dictionary
            .hash_family(series.slot)
            .map(HistogramFamilyHash);
        let slot = head.numbers.slot(series.slot);
        while !columns.times.is_empty() && self.builder.push(slot, family, columns).is_err() {
            // Seals a part of it now; the group remains due for the rest.
            columns.truncate(columns.times.len() / 2);
            sealed.mark_uncovered();
        }
        let (Some(first), Some(last)) = (columns.times.first(), columns.times.last()) else {
            return;
        };
        self.times_bytes += size_of_val(&columns.times[..]);
        self.range = if self.cuts.is_empty() {
            TimeRange::new(*first, *last)
        } else {
            self.range.hull(TimeRange::new(*first, *last))
        };
        self.places
            .push(SlotRun::from_slot(SeriesRef(place_in_group(slot))));
        self.cuts.push(series.seal_point(*last));
    }
}

impl GroupEncoder<'_> {
    fn begin_page(&self) -> GroupPageDraft {
        GroupPageDraft {
            builder: PageBuilder::new(page::LogSpan {
                log_from: self.unsealed_after.next(),
                log_to: self.sealed_up_to,
            }),
            places: SlotRunSet::default(),
            range: TimeRange::new(0, 0),
            cuts: Vec::new(),
            times_bytes: 0,
        }
    }

    /// Ends a part, and adds it as a page unless it is empty or entirely older than the retention.
    /// The last part declares the coverage of the group.
    fn end_page(&mut self, mut part: GroupPageDraft, stance: UnsealablePolicy, is_last: bool) {
        if part.cuts.is_empty() {
            return;
        }
        let TimeRange { min, max } = part.range;
        if max < self.cutoff {
            self.sealed.cuts.append(&mut part.cuts);
            return;
        }
        let samples = part.builder.sample_count();
        let places = if failpoints::has(StoreFlaw::ForgetsLastSlot) {
            let last = part.cuts.last().map(|cut| self.head.numbers.slot(cut.slot));
            part.places
                .intersect(&SlotRunSet::from_range(0, last.map_or(0, place_in_group)))
        } else {
            part.places
        };
        let Some(page) = part.builder.finish() else {
            return;
        };
        let limit = failpoints::faults()
            .page_bytes
            .filter(|(group, _)| *group == self.due.group.0)
            .map_or(PAYLOAD_BYTES_MAX - META_BYTES_MAX, |(_, bytes)| bytes);
        if page.len() > limit {
            let why = format!("page of {} bytes, limit {limit}", page.len());
            self.leave_out_series(&part.cuts, why, Some(part.range));
            return;
        }
        self.metrics.sealed_samples.add(samples);
        let short = TimestampMs::from(failpoints::has(StoreFlaw::ClaimsShortRange));
        let claims = is_last && (self.sealed.stuck.is_none() || stance == UnsealablePolicy::GiveUp);
        let (window_end, unsealed_after) = if claims {
            (self.sealed.due.end, self.sealed.unsealed_after)
        } else {
            (i64::MIN, LogPosition(0))
        };
        let meta = SealedPageMeta {
            group: self.due.group,
            window_end,
            range: TimeRange::new(min, max - short),
            unsealed_after,
            sealed_up_to: self.sealed_up_to,
            places,
        };
        self.sealed.cuts.append(&mut part.cuts);
        self.sealed.pages.push((meta, page));
    }

    /// Records that these series are left out of the group's pages, and the reason.
    fn leave_out_series(
        &mut self,
        series: &[SeriesSealPoint],
        why: String,
        range: Option<TimeRange>,
    ) {
        let stuck = self.sealed.stuck.get_or_insert(UnsealableSamples {
            why,
            series: Vec::new(),
            saved: 0,
            range: None,
        });
        stuck.series.extend(series.iter().copied());
        stuck.range = TimeRange::hull_of(stuck.range, range);
    }
}

impl GroupEncoder<'_> {
    /// Counts samples that are sealed although their series is given up.
    fn count_saved(&mut self, samples: usize) {
        if let Some(stuck) = &mut self.sealed.stuck {
            stuck.saved += samples as u64;
        }
    }
}

impl EncodedGroup {
    /// Declares that the group is not covered, because samples before its end are not sealed.
    pub(super) fn mark_uncovered(&mut self) {
        self.due.end = i64::MIN;
        self.unsealed_after = LogPosition(0);
    }
}

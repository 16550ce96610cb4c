//! The traits between the producers and readers of samples and the store.
//!
//! Neither trait is `async`. An append returns a [`Ticket`] as soon as the batch is on its way to
//! the log. A ticket is a future that a runtime may await or that a thread may wait for. A
//! [`Selection`] can be read by any compute thread. The head, blocks, an object store and a cluster
//! implement these two traits.

mod outcome;
mod ticket;
mod version;

use crate::batch::{Batch, BatchSource};
use crate::budget::{Budget, Reservation};
use crate::cancel::CancelToken;
use crate::columns::{LabelColumn, SeriesBatch};
use crate::error::Error;
use crate::exemplar::SeriesExemplarResult;
use crate::fingerprint::{Fingerprint, SeriesHash};
use crate::labels::Labels;
use crate::losses::DataLossWarnings;
use crate::matcher::Matcher;
use crate::metadata::MetadataBatch;
use crate::sample::{TimeRange, TimestampMs};
use crate::series_limit::SeriesLimit;
use crate::tenant::TenantId;
use crate::trace::SpanContext;
pub use outcome::{
    AppendOutcome, ExemplarRejection, RejectedExemplars, RejectedSamples, SampleRejection,
};
use std::ops::{Range, RangeInclusive};
use std::sync::Arc;
pub use ticket::{Ticket, TicketRejecter, TicketResolver};
pub use version::StoreVersion;

/// The late samples of a batch that a store may accept, if it accepts any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LateSamplePolicy {
    /// All late samples within the limits of the store.
    #[default]
    All,
    /// All late samples except float staleness markers. The caller creates those itself, and a
    /// series that has newer samples has not ended.
    AllButStale,
    /// No late samples: the caller has no use for samples that cannot be appended in order.
    Nothing,
    /// All late samples, regardless of their age and of the store's limit, because the caller
    /// backfills data.
    OfAnyAge,
}

/// The time limits for a batch, which the caller sets using its own clock.
#[derive(Clone, Copy, Debug)]
pub struct AppendBounds {
    /// The newest timestamp that is accepted, in milliseconds.
    pub time_max: TimestampMs,
    /// The late samples that the store may accept for this batch.
    pub late: LateSamplePolicy,
    /// Samples before this time are not appended in order, even if the series has no newer sample.
    /// Otherwise backfilled samples in arbitrary order would determine the present time of the
    /// store.
    pub in_order_min: TimestampMs,
    /// The newest sample of all stores among which the series of the tenant are divided, if it is
    /// known. The age limits of a store count from it if it is newer than its own newest sample.
    pub newest: Option<TimestampMs>,
}

impl AppendBounds {
    /// Accepts samples up to this time, including late ones.
    pub const fn up_to(time_max: TimestampMs) -> Self {
        Self {
            time_max,
            late: LateSamplePolicy::All,
            in_order_min: TimestampMs::MIN,
            newest: None,
        }
    }

    /// Accepts samples of any age up to this time. Samples before `in_order_min` are late.
    pub const fn any_age_up_to(time_max: TimestampMs, in_order_min: TimestampMs) -> Self {
        Self {
            time_max,
            late: LateSamplePolicy::OfAnyAge,
            in_order_min,
            newest: None,
        }
    }
}

/// The times of the newest samples of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewestSampleTimes {
    /// The time of the newest sample in order.
    pub newest: TimestampMs,
    /// The time of the sample before it, if the store can determine it without reading a file.
    pub before: Option<TimestampMs>,
}

/// A store that accepts samples. Writers such as remote write, scrapes and rules use it.
pub trait Append: Send + Sync {
    /// Stores `batch`. The ticket resolves when every stored sample is durable and visible, or with
    /// [`crate::error::ErrorKind::Unavailable`] if this cannot be guaranteed.
    fn append(&self, tenant: &TenantId, batch: &Batch, bounds: AppendBounds) -> Ticket;

    /// Returns an error unless a batch of `tenant` could be accepted now. The caller of a batch
    /// with a journal must check this before it changes any state because of the append, which is
    /// then not rejected.
    fn check_append(&self, _tenant: &TenantId) -> Result<(), Error> {
        Ok(())
    }

    /// Starts a new unit of the log, if it has units. A state that is described in journals from
    /// now on is kept without any older records. Waits for the disk.
    fn begin_log_unit(&self, _tenant: &TenantId) -> Result<(), Error> {
        Ok(())
    }

    /// Returns the hash of series keys, if the store uses one. The caller may then compute the
    /// fingerprints of a batch ([`BatchSource::prints`]).
    fn series_hash(&self) -> Option<SeriesHash> {
        None
    }

    /// Lets the log write a held record of a batch that is followed ([`Batch::set_followed`]). The
    /// caller must call this after it has appended the following batch, or if it cannot append it.
    fn write_held_record(&self) {}

    /// Returns whether an append might have to wait for a disk now, or whether this is uncertain.
    /// Callers that must not wait must then append on another thread.
    fn may_wait(&self) -> bool {
        true
    }

    /// Returns the range of timestamps that [`Append::append`] would accept now for the first
    /// sample of a new series. This is only a hint, because later batches may change the range.
    fn first_sample_times(
        &self,
        _tenant: &TenantId,
        bounds: AppendBounds,
    ) -> RangeInclusive<TimestampMs> {
        TimestampMs::MIN..=bounds.time_max
    }

    /// Returns the time of the newest sample that the store has appended in order. Returns `None`
    /// for an empty store, and for an implementation that does not track this time. Takes no lock.
    fn newest_time(&self, _tenant: &TenantId) -> Option<TimestampMs> {
        None
    }

    /// Returns the newest times of the series with these fingerprints, one entry for each. Reads
    /// only memory, and includes samples that are not durable yet. An entry is `None` if the series
    /// is not in memory, and all are if the implementation does not track the times.
    fn newest_sample_times(
        &self,
        _tenant: &TenantId,
        prints: &[Fingerprint],
    ) -> Vec<Option<NewestSampleTimes>> {
        vec![None; prints.len()]
    }

    /// Returns whether exemplars are stored. If not, a batch need not contain them.
    fn can_store_exemplars(&self) -> bool {
        false
    }

    /// Stores samples like [`Append::append`], whose labels may be undecoded. A store that finds
    /// series by their keys does not decode them.
    fn append_from(
        &self,
        tenant: &TenantId,
        source: &mut dyn BatchSource,
        bounds: AppendBounds,
    ) -> Ticket {
        let series: Vec<u32> = (0..source.batch().series_count() as u32).collect();
        match source.read_labels(&series) {
            Ok(()) => self.append(tenant, source.batch(), bounds),
            Err(e) => Ticket::resolved(Err(e)),
        }
    }
}

/// A request for series and their samples, which the store answers with a [`Selection`].
#[derive(Clone, Copy, Debug)]
pub struct SelectRequest<'a> {
    /// The tenant whose data is read; other tenants are never visible.
    pub tenant: &'a TenantId,
    /// The matchers, all of which must match. Without matchers every series matches.
    pub matchers: &'a [Matcher],
    /// The time range. Series without a sample in it may be omitted; samples outside of it are
    /// omitted.
    pub range: TimeRange,
    /// True if only the newest sample of each series in the range is needed. Older samples may be
    /// omitted.
    pub newest_only: bool,
    /// The cancel flag, which is checked during the look-up.
    pub cancel: &'a CancelToken,
    /// The budget in which the memory of the selection is reserved before it is allocated.
    pub budget: &'a Budget,
    /// Counts all series with a sample near the range, before the selection is processed.
    pub series: &'a SeriesLimit,
    /// The span of which the look-up is a part, for stores that send requests to other servers.
    pub span: Option<&'a SpanContext>,
}

impl SelectRequest<'_> {
    /// Permits the automata of the matchers to use the budget and the cancel flag of the request.
    /// Must be called before a look-up.
    pub fn bind_matchers(&self) {
        for matcher in self.matchers {
            matcher.bind(self.budget, self.cancel);
        }
    }
}

/// A request for the metadata of one or all metric families.
#[derive(Clone, Copy, Debug)]
pub struct MetadataRequest<'a> {
    /// The tenant whose data is read; other tenants are never visible.
    pub tenant: &'a TenantId,
    /// The metric family whose metadata is requested, or `None` for all families.
    pub metric: Option<&'a str>,
    /// The cancel flag, which is checked during the look-up.
    pub cancel: &'a CancelToken,
    /// The budget in which the memory of the result is reserved.
    pub budget: &'a Budget,
}

/// A request for the exemplars of matching series.
#[derive(Clone, Copy, Debug)]
pub struct ExemplarRequest<'a> {
    /// The tenant whose data is read; other tenants are never visible.
    pub tenant: &'a TenantId,
    /// Sets of matchers. A series matches if all matchers of any set match.
    pub sets: &'a [Vec<Matcher>],
    /// The time range of the exemplars, inclusive on both ends.
    pub range: TimeRange,
    /// The cancel flag, which is checked during the look-up.
    pub cancel: &'a CancelToken,
    /// The budget in which the memory of the result is reserved.
    pub budget: &'a Budget,
}

/// A request to delete the samples of matching series.
#[derive(Clone, Copy, Debug)]
pub struct DeleteRequest<'a> {
    /// The tenant whose samples are deleted.
    pub tenant: &'a TenantId,
    /// Sets of matchers. A series matches if all matchers of any set match.
    pub sets: &'a [Vec<Matcher>],
    /// The time range of the samples, inclusive on both ends.
    pub range: TimeRange,
    /// The cancel flag, which is checked during the look-up.
    pub cancel: &'a CancelToken,
    /// The budget in which the memory of the look-up is reserved.
    pub budget: &'a Budget,
}

/// The part of a matcher in the look-up of a selector. A store returns one for each matcher of a
/// request, in the same order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MatcherCost {
    /// Number of series in the index that satisfy the matcher alone, whether or not they have
    /// samples in the range. `None` if the store cannot determine it.
    pub series: Option<u64>,
    /// True if the look-up does not read the postings of the matcher, but checks it on each series
    /// that satisfies the other matchers.
    pub is_deferred: bool,
}

/// The data that the reads of a selection have needed so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadCosts {
    /// Number of encoded bytes: chunks, pages and units of blocks, from memory or from the disk.
    pub bytes: u64,
    /// Number of pages and units that were in a cache.
    pub cache_hits: u64,
    /// Number of pages and units that were read from the disk.
    pub cache_misses: u64,
}

impl std::ops::Add for ReadCosts {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            bytes: self.bytes + other.bytes,
            cache_hits: self.cache_hits + other.cache_hits,
            cache_misses: self.cache_misses + other.cache_misses,
        }
    }
}

/// A store that can be read. Queries, the API and rules use it.
pub trait Select: Send + Sync {
    /// Returns the matching series, each once, in the order in which the store created them.
    ///
    /// This is not an order of labels, and two stores with the same series may return different
    /// orders. Callers whose result depends on the order (sums of floats, output sorted by labels,
    /// a merge of several selections) must sort by [`Selection::labels`].
    fn select(&self, request: SelectRequest<'_>) -> Result<Arc<dyn Selection>, Error>;

    /// Returns the matching series, whose samples will not be read.
    fn select_labels(&self, request: SelectRequest<'_>) -> Result<Arc<dyn Selection>, Error> {
        self.select(request)
    }

    /// Returns the part of each matcher in the look-up of a request, which costs about as much as
    /// the look-up itself and ignores the limit on series. A store without an index returns unknown
    /// costs.
    fn explain(&self, request: SelectRequest<'_>) -> Result<Vec<MatcherCost>, Error> {
        Ok(vec![MatcherCost::default(); request.matchers.len()])
    }

    /// Returns the label names of the matching series, sorted.
    fn label_names(&self, request: SelectRequest<'_>) -> Result<Vec<String>, Error>;

    /// Returns the values of the label `name` on the matching series, sorted.
    fn label_values(&self, name: &str, request: SelectRequest<'_>) -> Result<Vec<Vec<u8>>, Error>;

    /// Returns the current version of the samples of `tenant`: every later look-up returns all
    /// changes up to this version. Returns `None` if the store cannot detect all changes of its
    /// results.
    fn version(&self, _tenant: &TenantId) -> Option<StoreVersion> {
        None
    }

    /// Returns a time such that no sample of `tenant` before it has changed since `version`: none
    /// was added, removed or became unreadable. Returns `i64::MIN` if any sample may have changed,
    /// and `i64::MAX` if none has.
    fn unchanged_before(&self, _tenant: &TenantId, _version: &StoreVersion) -> TimestampMs {
        TimestampMs::MIN
    }

    /// Returns the exemplars of the matching series, ordered by the labels of the series.
    fn exemplars(&self, _request: ExemplarRequest<'_>) -> Result<Vec<SeriesExemplarResult>, Error> {
        Ok(Vec::new())
    }

    /// Returns the newest metadata of each metric that has samples in the store, sorted by name.
    /// The store need not contain all metadata that the process has received.
    fn metadata(&self, _request: MetadataRequest<'_>) -> Result<MetadataBatch, Error> {
        Ok(MetadataBatch::default())
    }

    /// Returns texts about all lost data of `tenant` in `range`, which may be missing in the result
    /// of a look-up of exemplars.
    fn loss_warnings(&self, _tenant: &TenantId, _range: TimeRange) -> DataLossWarnings {
        DataLossWarnings::default()
    }

    /// Returns texts about data that may be missing in the result of a look-up of label names or
    /// values in `range`.
    fn label_loss_warnings(&self, tenant: &TenantId, range: TimeRange) -> DataLossWarnings {
        self.loss_warnings(tenant, range)
    }
}

/// The series found by a look-up, and a consistent view of their samples: all whole batches that
/// were visible when [`Select::select`] returned.
pub trait Selection: Send + Sync {
    /// Returns the number of series found, including those without samples.
    fn len(&self) -> usize;

    /// Returns whether no series was found by the look-up.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the label set of a series, given its index. Allocates.
    fn labels(&self, series: usize) -> Labels;

    /// Returns the values of one label for all series, for grouping and matching without complete
    /// label sets. The memory is reserved in `memory` before it is allocated. Fails if `cancel` is
    /// set.
    fn label_column(
        &self,
        name: &str,
        cancel: &CancelToken,
        memory: &mut Reservation,
    ) -> Result<LabelColumn, Error>;

    /// Appends the samples of `series` in the range of the request to `into`, series by series.
    /// Timestamps are strictly ascending within a series, and a series without samples has empty
    /// columns. May be called from many threads at the same time.
    ///
    /// Samples that cannot be read because their bytes are damaged are omitted, and
    /// [`Selection::loss_warnings`] reports them.
    fn read(&self, series: Range<usize>, into: &mut SeriesBatch) -> Result<(), Error>;

    /// Returns texts about data that the selection and its reads so far could not return. Data that
    /// later reads cannot return is added to the same [`DataLossWarnings`], which may outlive the
    /// selection.
    fn loss_warnings(&self) -> DataLossWarnings {
        DataLossWarnings::default()
    }

    /// Returns the data that the reads so far have needed. Zero for samples from other servers.
    fn read_costs(&self) -> ReadCosts {
        ReadCosts::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn ticket_calls_each_observer_once_before_it_resolves_and_also_if_it_was_dropped() {
        let seen = Arc::new(AtomicUsize::new(0));
        let observe = || {
            let seen = seen.clone();
            move |outcome: &Result<AppendOutcome, Error>| {
                assert!(outcome.is_ok());
                seen.fetch_add(1, Ordering::Relaxed);
            }
        };
        let (ticket, resolver) = Ticket::new();
        drop(ticket.with_observer(observe()));
        resolver.resolve(Ok(AppendOutcome::default()));
        assert_eq!(seen.load(Ordering::Relaxed), 1);
        let (ticket, resolver) = Ticket::new();
        let ticket = ticket.with_observer(observe()).with_observer(observe());
        let early = resolver.early_rejecter();
        resolver.resolve(Ok(AppendOutcome::default()));
        let refusal = Error::new(crate::error::ErrorKind::Unavailable, "too late");
        early.reject(refusal);
        assert_eq!(seen.load(Ordering::Relaxed), 3);
        assert_eq!(ticket.wait(), Ok(AppendOutcome::default()));
        let ticket = Ticket::resolved(Ok(AppendOutcome::default())).with_observer(observe());
        assert_eq!(seen.load(Ordering::Relaxed), 4);
        assert_eq!(ticket.wait(), Ok(AppendOutcome::default()));
    }

    #[test]
    fn ticket_joined_with_another_resolves_with_both_or_with_the_first_error() {
        let failure = || Error::new(crate::error::ErrorKind::Unavailable, "failed");
        let stored = |stored| {
            let rejected = Vec::new();
            Ok(AppendOutcome {
                stored,
                rejected,
                ..AppendOutcome::default()
            })
        };
        for swaps in [false, true] {
            for (one, other, joined) in [
                (stored(3), stored(7), stored(5)),
                (Err(failure()), stored(7), Err(failure())),
                (stored(3), Err(failure()), Err(failure())),
            ] {
                let (first, first_resolver) = Ticket::new();
                let (second, second_resolver) = Ticket::new();
                let ticket = first.join_with(second, 2);
                if !swaps {
                    first_resolver.resolve(one);
                    second_resolver.resolve(other);
                } else {
                    second_resolver.resolve(other);
                    first_resolver.resolve(one);
                }
                assert_eq!(ticket.wait(), joined);
            }
        }
    }
}

//! The traits between the producers and readers of samples and the store.
//!
//! Neither trait is `async`. An append returns a [`Ticket`] as soon as the batch is on its way to
//! the log. A ticket is a future that a runtime may await or that a thread may wait for. A
//! [`Selection`] can be read by any compute thread. The head, blocks, an object store and a cluster
//! implement these two traits.

use crate::batch::{Batch, BatchSource};
use crate::budget::{Budget, Reservation};
use crate::cancel::CancelToken;
use crate::columns::{LabelColumn, SeriesBatch};
use crate::error::Error;
use crate::exemplar::SeriesExemplarResult;
use crate::fingerprint::SeriesHash;
use crate::labels::Labels;
use crate::losses::DataLossWarnings;
use crate::matcher::Matcher;
use crate::metadata::MetadataBatch;
use crate::sample::{TimeRange, TimestampMs};
use crate::series_limit::SeriesLimit;
use crate::sync::{lock, wait};
use crate::tenant::TenantId;
use crate::trace::SpanContext;
use std::future::Future;
use std::ops::{Range, RangeInclusive};
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Poll, Waker};

/// The reasons why a sample of a valid request is not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SampleRejection {
    /// The series already has a newer sample, and this sample may not be stored late.
    OutOfOrder,
    /// The series has a different value with this timestamp.
    DuplicateTimestamp,
    /// The sample is older than the limit of the store, which accepts no late samples.
    OutOfBounds,
    /// The sample cannot be appended in order and is older than the limit for late samples.
    TooOld,
    /// The timestamp of the sample is too far in the future.
    TooFarInFuture,
    /// The series is new, and the store has reached its limit of series.
    SeriesLimit,
}

/// The samples that were rejected for the same reason.
#[derive(Clone, Debug, PartialEq)]
pub struct RejectedSamples {
    /// The reason of the rejection, which is the same for all these samples.
    pub rejection: SampleRejection,
    /// Number of samples that were rejected for this reason.
    pub count: usize,
    /// The labels of the first rejected sample, for the log and error texts.
    pub first_labels: Labels,
    /// The timestamp of the first rejected sample in milliseconds.
    pub first_time: TimestampMs,
    /// The index of the series of the first rejected sample in the batch that the store received.
    pub first_series: usize,
}

/// The reasons why an exemplar is not stored although its samples may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ExemplarRejection {
    /// The series already has a newer exemplar. Exemplars of a series are stored in order.
    OutOfOrder,
    /// The labels of the exemplar have too many characters.
    TooLong,
    /// The timestamp of the exemplar is too far in the future.
    TooFarInFuture,
    /// The series does not exist, or all its samples were rejected.
    NoSeries,
}

/// The exemplars that were rejected for the same reason.
#[derive(Clone, Debug, PartialEq)]
pub struct RejectedExemplars {
    /// The reason of the rejection, which is the same for all these exemplars.
    pub refusal: ExemplarRejection,
    /// Number of exemplars that were rejected for this reason.
    pub count: usize,
    /// The labels of the series of the first rejected exemplar.
    pub first_labels: Labels,
    /// The index of that series in the batch that the store received.
    pub first_series: usize,
}

/// The result of an append whose samples are durable and visible.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AppendOutcome {
    /// Number of stored samples, including duplicates that were silently accepted.
    pub stored: usize,
    /// Number of stored samples that are native histograms.
    pub stored_histograms: usize,
    /// The rejected exemplars, one entry for each reason that occurred.
    pub refused_exemplars: Vec<RejectedExemplars>,
    /// The rejected samples, one entry per reason, in order of the first occurrence.
    pub rejected: Vec<RejectedSamples>,
}

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

    /// Returns the label names of the matching series, sorted.
    fn label_names(&self, request: SelectRequest<'_>) -> Result<Vec<String>, Error>;

    /// Returns the values of the label `name` on the matching series, sorted.
    fn label_values(&self, name: &str, request: SelectRequest<'_>) -> Result<Vec<Vec<u8>>, Error>;

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
}

/// Called with the outcome of a ticket before the ticket resolves.
type Observer = Box<dyn FnOnce(&Result<AppendOutcome, Error>) + Send>;

#[derive(Default)]
struct TicketState {
    outcome: Option<Result<AppendOutcome, Error>>,
    /// True if there was an outcome, which may have been taken already. A second outcome is
    /// ignored.
    is_settled: bool,
    observer: Option<Observer>,
    waker: Option<Waker>,
    /// True if a thread sleeps. Signaling a condition is a system call even if no thread waits.
    is_awaited: bool,
}

impl std::fmt::Debug for TicketState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TicketState")
            .field("outcome", &self.outcome)
            .field("is_settled", &self.is_settled)
            .finish_non_exhaustive()
    }
}

type TicketCell = Arc<(Mutex<TicketState>, Condvar)>;

/// The pending result of [`Append::append`]. Await it, or call [`Ticket::wait`] on a thread that
/// may block.
#[derive(Debug)]
#[must_use = "a batch is durable only when its ticket says so"]
pub struct Ticket(TicketCell);

/// Resolves a [`Ticket`]. If it is dropped unresolved, the ticket fails, so that no thread waits
/// forever.
#[derive(Debug)]
pub struct TicketResolver(Option<TicketCell>);

impl Ticket {
    /// Creates a pending ticket and its resolver.
    pub fn new() -> (Ticket, TicketResolver) {
        let cell: TicketCell = Arc::default();
        (Ticket(cell.clone()), TicketResolver(Some(cell)))
    }

    /// Creates a ticket that is resolved already, for appends that need not wait.
    pub fn resolved(outcome: Result<AppendOutcome, Error>) -> Ticket {
        let (ticket, resolver) = Ticket::new();
        resolver.resolve(outcome);
        ticket
    }

    /// Calls `observe` once with the outcome before the ticket resolves, even if the ticket has
    /// been dropped. Returns the ticket.
    ///
    /// `observe` runs on the thread that resolves the ticket, or on the calling thread if the
    /// outcome exists already, and must not block. A ticket has at most one observer.
    pub fn with_observer(
        self,
        observe: impl FnOnce(&Result<AppendOutcome, Error>) + Send + 'static,
    ) -> Ticket {
        let mut state = lock(&self.0.0);
        match &state.outcome {
            Some(outcome) => observe(outcome),
            None => state.observer = Some(Box::new(observe)),
        }
        drop(state);
        self
    }

    /// Returns a ticket that resolves when both tickets have resolved, or immediately with an error
    /// if either fails. The outcome is that of this ticket, with `besides` additional stored
    /// samples.
    pub fn join_with(self, other: Ticket, besides: usize) -> Ticket {
        let (ticket, resolver) = Ticket::new();
        let join = Arc::new(Mutex::new((Some(resolver), None)));
        let of_other = join.clone();
        drop(self.with_observer(move |outcome| {
            let outcome = outcome.clone().map(|mut appended| {
                appended.stored += besides;
                appended
            });
            JoinedTickets::add_outcome(&join, outcome.map(Some));
        }));
        drop(other.with_observer(move |outcome| {
            JoinedTickets::add_outcome(&of_other, outcome.clone().map(|_| None));
        }));
        ticket
    }

    /// Blocks the calling thread until the ticket resolves, and returns the outcome.
    pub fn wait(self) -> Result<AppendOutcome, Error> {
        let (state, changed) = &*self.0;
        let mut state = lock(state);
        loop {
            if let Some(outcome) = state.outcome.take() {
                return outcome;
            }
            state.is_awaited = true;
            state = wait(changed, state);
        }
    }
}

/// The state of two joined tickets: the resolver of the common ticket, and the outcome of the first
/// one.
type Joining = Mutex<(Option<TicketResolver>, Option<Option<AppendOutcome>>)>;

struct JoinedTickets;

impl JoinedTickets {
    /// Processes the outcome of one of both tickets, and resolves the common one if necessary.
    fn add_outcome(join: &Joining, outcome: Result<Option<AppendOutcome>, Error>) {
        let mut state = lock(join);
        let whole = match (outcome, state.1.take()) {
            (Err(e), _) => Err(e),
            (Ok(outcome), Some(before)) => Ok(outcome.or(before).unwrap_or_default()),
            (Ok(outcome), None) => {
                state.1 = Some(outcome);
                return;
            }
        };
        let resolver = state.0.take();
        drop(state);
        if let Some(resolver) = resolver {
            resolver.resolve(whole);
        }
    }
}

impl Future for Ticket {
    type Output = Result<AppendOutcome, Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = lock(&self.0.0);
        if let Some(outcome) = state.outcome.take() {
            return Poll::Ready(outcome);
        }
        state.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl TicketResolver {
    /// Resolves the ticket with an outcome and wakes its waiter.
    pub fn resolve(mut self, outcome: Result<AppendOutcome, Error>) {
        self.settle(outcome);
    }

    /// Resolves the ticket with an error: nothing can be guaranteed now, but the batch may still be
    /// stored. A later outcome of the resolver is ignored.
    pub fn reject_early(&self, refusal: Error) {
        if let Some(cell) = &self.0 {
            resolve_cell(cell, Err(refusal));
        }
    }

    /// Returns a handle that can reject the ticket early after the resolver was passed on.
    pub fn early_rejecter(&self) -> TicketRejecter {
        TicketRejecter(self.0.clone())
    }

    fn settle(&mut self, outcome: Result<AppendOutcome, Error>) {
        if let Some(cell) = self.0.take() {
            resolve_cell(&cell, outcome);
        }
    }
}

/// A handle to reject a ticket early; see [`TicketResolver::early_rejecter`].
#[derive(Debug)]
pub struct TicketRejecter(Option<TicketCell>);

impl TicketRejecter {
    /// Resolves the ticket with an error, unless it is resolved; see
    /// [`TicketResolver::reject_early`].
    pub fn reject(self, refusal: Error) {
        if let Some(cell) = &self.0 {
            resolve_cell(cell, Err(refusal));
        }
    }
}

fn resolve_cell(cell: &TicketCell, outcome: Result<AppendOutcome, Error>) {
    let (waker, is_awaited) = {
        let mut state = lock(&cell.0);
        if std::mem::replace(&mut state.is_settled, true) {
            return;
        }
        while let Some(observe) = state.observer.take() {
            drop(state);
            observe(&outcome);
            state = lock(&cell.0);
        }
        state.outcome = Some(outcome);
        (state.waker.take(), state.is_awaited)
    };
    if is_awaited {
        cell.1.notify_all();
    }
    if let Some(waker) = waker {
        waker.wake();
    }
}

impl Drop for TicketResolver {
    fn drop(&mut self) {
        use crate::error::ErrorKind;
        self.settle(Err(Error::new(
            ErrorKind::Unavailable,
            "the write was aborted before it was durable",
        )));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn ticket_calls_its_observer_once_before_it_resolves_and_also_if_it_was_dropped() {
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
        let ticket = ticket.with_observer(observe());
        let early = resolver.early_rejecter();
        resolver.resolve(Ok(AppendOutcome::default()));
        let refusal = Error::new(crate::error::ErrorKind::Unavailable, "too late");
        early.reject(refusal);
        assert_eq!(seen.load(Ordering::Relaxed), 2);
        assert_eq!(ticket.wait(), Ok(AppendOutcome::default()));
        let ticket = Ticket::resolved(Ok(AppendOutcome::default())).with_observer(observe());
        assert_eq!(seen.load(Ordering::Relaxed), 3);
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

//! The traits between the producers and readers of samples and the store that keeps them.
//!
//! Neither trait is `async`. An append returns a [`Ticket`] once the batch is on its way to the
//! log: a plain future that the runtime may await and a thread may wait for. A [`Selection`] is
//! read by any compute thread. Head, blocks, a bucket and a cluster implement these two traits.

use crate::batch::{Batch, Source};
use crate::budget::{Budget, Reservation};
use crate::cancel::Cancel;
use crate::columns::{LabelColumn, SeriesBatch};
use crate::error::Error;
use crate::exemplar::FoundExemplars;
use crate::fingerprint::SeriesHash;
use crate::labels::Labels;
use crate::losses::Losses;
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

/// Why a sample was not stored although its request was sound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Rejection {
    /// The series holds a newer sample.
    OutOfOrder,
    /// The series holds another value at this timestamp.
    DuplicateTimestamp,
    /// The sample lies further in the past than the store accepts, which takes no late samples.
    OutOfBounds,
    /// The sample cannot be appended in order and lies further in the past than the store takes
    /// late samples.
    TooOld,
    /// The sample lies further in the future than the store accepts.
    TooFarInFuture,
    /// The series is new and the store takes no more of them.
    SeriesLimit,
}

/// Samples refused for one reason.
#[derive(Clone, Debug, PartialEq)]
pub struct Rejected {
    /// Why.
    pub rejection: Rejection,
    /// How many.
    pub count: usize,
    /// The labels of the first one.
    pub first_labels: Labels,
    /// The time of the first one.
    pub first_time: TimestampMs,
}

/// Why an exemplar was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ExemplarRefusal {
    /// The series has one behind it.
    OutOfOrder,
    /// Its labels have too many characters.
    TooLong,
    /// It lies further in the future than the store accepts.
    TooFarInFuture,
    /// Its series is not there, or all samples of the series were refused.
    NoSeries,
}

/// Exemplars refused for one reason.
#[derive(Clone, Debug, PartialEq)]
pub struct RefusedExemplars {
    /// Why.
    pub refusal: ExemplarRefusal,
    /// How many.
    pub count: usize,
    /// The labels of the series of the first one.
    pub first_labels: Labels,
}

/// What became of a batch once it was durable.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Appended {
    /// Samples that the store now holds, silently accepted duplicates included.
    pub stored: usize,
    /// How many of these are histograms.
    pub stored_histograms: usize,
    /// Exemplars that were not taken, one entry a reason.
    pub refused_exemplars: Vec<RefusedExemplars>,
    /// Refused samples, one entry a reason, in the order in which the reasons first occurred.
    pub rejected: Vec<Rejected>,
}

/// Which samples of a batch a store may take late, if it takes late ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TakeLate {
    /// Any.
    #[default]
    All,
    /// Any but float staleness markers: the caller makes those itself, and a series that has newer
    /// samples did not end.
    AllButStale,
    /// None: what cannot be appended in order is of no use.
    Nothing,
    /// Any, however old and whatever the store takes late otherwise: the caller fills in the past.
    OfAnyAge,
}

/// Bounds that the caller sets for a batch, that of time from its own clock.
#[derive(Clone, Copy, Debug)]
pub struct AppendBounds {
    /// The newest time accepted.
    pub time_max: TimestampMs,
    /// What may be taken late.
    pub late: TakeLate,
    /// What is older is not appended in order, also where a series has nothing newer: samples that
    /// come in any order of time must not say what the present of a store is.
    pub in_order_min: TimestampMs,
}

impl AppendBounds {
    /// Samples up to this time, also late ones.
    pub const fn until(time_max: TimestampMs) -> Self {
        Self {
            time_max,
            late: TakeLate::All,
            in_order_min: TimestampMs::MIN,
        }
    }

    /// Samples of any age up to this time; those before `in_order_min` are late.
    pub const fn of_any_age(time_max: TimestampMs, in_order_min: TimestampMs) -> Self {
        Self {
            time_max,
            late: TakeLate::OfAnyAge,
            in_order_min,
        }
    }
}

/// Takes samples.
pub trait Append: Send + Sync {
    /// Stores `batch`. The ticket resolves when every stored sample is durable and visible, or with
    /// [`crate::error::ErrorKind::Unavailable`] when that cannot be promised.
    fn append(&self, tenant: &TenantId, batch: &Batch, bounds: AppendBounds) -> Ticket;

    /// An error unless a batch of `tenant` could be taken now. The caller of a batch with a journal
    /// must ask before it changes anything for the sake of the append, which is not refused then.
    fn admit(&self, _tenant: &TenantId) -> Result<(), Error> {
        Ok(())
    }

    /// Begins a new unit of the log, if it has units: a state that is told in journals from here on
    /// is kept without what was logged before. Waits for the disk.
    fn begin_log_unit(&self, _tenant: &TenantId) -> Result<(), Error> {
        Ok(())
    }

    /// How series keys are hashed, if they are: the caller may have made the fingerprints of a
    /// batch that it appends ([`Source::prints`]).
    fn hashing(&self) -> Option<SeriesHash> {
        None
    }

    /// Has the log write what was appended of a batch that says it is followed
    /// ([`Batch::set_followed`]): the caller must call this once the batch behind it was appended,
    /// or cannot be.
    fn write_held(&self) {}

    /// Whether an append could have to wait for a disk now, or that is not known. A caller that
    /// must not wait must append on another thread then.
    fn may_wait(&self) -> bool {
        true
    }

    /// Returns the times at which [`Append::append`] would accept the first sample of a new series
    /// now. A hint: later batches may move them.
    fn first_sample_times(
        &self,
        _tenant: &TenantId,
        bounds: AppendBounds,
    ) -> RangeInclusive<TimestampMs> {
        TimestampMs::MIN..=bounds.time_max
    }

    /// Whether exemplars are kept: a batch need not have them if not.
    fn takes_exemplars(&self) -> bool {
        false
    }

    /// Like [`Append::append`], for samples whose labels may be unread; a store that finds series
    /// by their keys leaves them unread.
    fn append_from(
        &self,
        tenant: &TenantId,
        source: &mut dyn Source,
        bounds: AppendBounds,
    ) -> Ticket {
        let series: Vec<u32> = (0..source.batch().series_count() as u32).collect();
        match source.read_labels(&series) {
            Ok(()) => self.append(tenant, source.batch(), bounds),
            Err(e) => Ticket::ready(Err(e)),
        }
    }
}

/// What is looked for.
#[derive(Clone, Copy, Debug)]
pub struct SelectRequest<'a> {
    /// Whose data.
    pub tenant: &'a TenantId,
    /// All must match. Empty means every series.
    pub matchers: &'a [Matcher],
    /// Series without a sample in here may be left out; samples outside are.
    pub range: TimeRange,
    /// Whether of each series nothing is wanted but its newest sample in the range: those before it
    /// may be left out.
    pub newest_only: bool,
    /// Checked while working.
    pub cancel: &'a Cancel,
    /// What the selection holds is reserved here before it is there.
    pub budget: &'a Budget,
    /// What a selection finds is counted here before it is worked on: all series with a sample
    /// near the range.
    pub series: &'a SeriesLimit,
    /// The span that the look-up is a part of, for stores that ask other servers.
    pub span: Option<&'a SpanContext>,
}

impl SelectRequest<'_> {
    /// Lets the automata of the matchers take what the request may take: before a look-up.
    pub fn bind_matchers(&self) {
        for matcher in self.matchers {
            matcher.bind(self.budget, self.cancel);
        }
    }
}

/// Of which metrics it is asked what was said.
#[derive(Clone, Copy, Debug)]
pub struct MetadataRequest<'a> {
    /// Whose data.
    pub tenant: &'a TenantId,
    /// The one family that is meant; all if there is none.
    pub metric: Option<&'a str>,
    /// Checked while working.
    pub cancel: &'a Cancel,
    /// What the work takes is reserved there.
    pub budget: &'a Budget,
}

/// Whose exemplars are looked for.
#[derive(Clone, Copy, Debug)]
pub struct ExemplarRequest<'a> {
    /// Whose data.
    pub tenant: &'a TenantId,
    /// Of a series all matchers of one of the sets must match.
    pub sets: &'a [Vec<Matcher>],
    /// When they were observed.
    pub range: TimeRange,
    /// Checked while working.
    pub cancel: &'a Cancel,
    /// What the work takes is reserved there.
    pub budget: &'a Budget,
}

/// Answers look-ups.
pub trait Select: Send + Sync {
    /// The series that match, each once, in the order in which the store created them. That is no
    /// order of labels, and two stores that hold the same series may give different orders: a
    /// caller whose answer depends on an order (sums of floats, output by labels, a merge of
    /// several selections) must sort by [`Selection::labels`].
    fn select(&self, request: SelectRequest<'_>) -> Result<Arc<dyn Selection>, Error>;

    /// The series that match, whose samples will not be read.
    fn select_labels(&self, request: SelectRequest<'_>) -> Result<Arc<dyn Selection>, Error> {
        self.select(request)
    }

    /// The names of labels on the series that match, sorted.
    fn label_names(&self, request: SelectRequest<'_>) -> Result<Vec<String>, Error>;

    /// The values of `name` on the series that match, sorted.
    fn label_values(&self, name: &str, request: SelectRequest<'_>) -> Result<Vec<Vec<u8>>, Error>;

    /// The exemplars of the series that match, those series in order of their labels.
    fn exemplars(&self, _request: ExemplarRequest<'_>) -> Result<Vec<FoundExemplars>, Error> {
        Ok(Vec::new())
    }

    /// What was said of metrics that have samples in the store, the newest of each, by name: what
    /// the store keeps of it, which need not be all that is known.
    fn metadata(&self, _request: MetadataRequest<'_>) -> Result<MetadataBatch, Error> {
        Ok(MetadataBatch::default())
    }

    /// What is known to be lost of `tenant` in `range`, of whatever series: what a look-up of
    /// exemplars may lack.
    fn losses(&self, _tenant: &TenantId, _range: TimeRange) -> Losses {
        Losses::default()
    }

    /// What a look-up of label names or values in `range` may lack.
    fn label_losses(&self, tenant: &TenantId, range: TimeRange) -> Losses {
        self.losses(tenant, range)
    }
}

/// Series found by a look-up, and a consistent view of their samples: what was visible when
/// [`Select::select`] returned, whole batches only.
pub trait Selection: Send + Sync {
    /// How many series.
    fn len(&self) -> usize;

    /// Whether there is none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The label set of a series; allocates.
    fn labels(&self, series: usize) -> Labels;

    /// One label of all series: what grouping and matching need, without whole label sets. What it
    /// takes is reserved in `memory` before it is there; fails once `cancel` is set.
    fn label_column(
        &self,
        name: &str,
        cancel: &Cancel,
        memory: &mut Reservation,
    ) -> Result<LabelColumn, Error>;

    /// Appends the samples of `series` that lie in the request's range to `into`: series by series,
    /// times strictly ascending in each. A series without any is there with empty columns. May be
    /// called from many threads at once.
    ///
    /// Samples that cannot be read because their bytes are damaged are left out, and
    /// [`Selection::losses`] says which.
    fn read(&self, series: Range<usize>, into: &mut SeriesBatch) -> Result<(), Error>;

    /// What the selection and its reads so far could not give. What later reads lack comes to the
    /// same [`Losses`], which may outlive the selection.
    fn losses(&self) -> Losses {
        Losses::default()
    }
}

/// Sees the outcome of a ticket before the ticket resolves.
type Observer = Box<dyn FnOnce(&Result<Appended, Error>) + Send>;

#[derive(Default)]
struct TicketState {
    outcome: Option<Result<Appended, Error>>,
    /// There was an outcome, which may have been taken: a second one is not told.
    is_settled: bool,
    observer: Option<Observer>,
    waker: Option<Waker>,
    /// Whether a thread sleeps: to signal a condition is a system call, even if no thread waits.
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

/// The promise of [`Append::append`]: await it, or [`Ticket::wait`] on a thread that may block.
#[derive(Debug)]
#[must_use = "a batch is durable only when its ticket says so"]
pub struct Ticket(TicketCell);

/// Resolves a [`Ticket`]. Dropped unresolved it fails the ticket, so that no waiter waits for ever.
#[derive(Debug)]
pub struct TicketResolver(Option<TicketCell>);

impl Ticket {
    /// A ticket and its resolver.
    pub fn new() -> (Ticket, TicketResolver) {
        let cell: TicketCell = Arc::default();
        (Ticket(cell.clone()), TicketResolver(Some(cell)))
    }

    /// A ticket that is resolved already.
    pub fn ready(outcome: Result<Appended, Error>) -> Ticket {
        let (ticket, resolver) = Ticket::new();
        resolver.resolve(outcome);
        ticket
    }

    /// Calls `observe` once with the outcome, before the ticket resolves and whether or not the
    /// ticket is still waited for; returns the ticket. `observe` runs on the thread that resolves
    /// the ticket, or here if the outcome is there already, and must not block. A ticket has one
    /// observer.
    pub fn observed(
        self,
        observe: impl FnOnce(&Result<Appended, Error>) + Send + 'static,
    ) -> Ticket {
        let mut state = lock(&self.0.0);
        match &state.outcome {
            Some(outcome) => observe(outcome),
            None => state.observer = Some(Box::new(observe)),
        }
        drop(state);
        self
    }

    /// A ticket that resolves when both have: with an error if one has, and then at once; else with
    /// the outcome of this one, with `besides` samples more that are stored.
    pub fn joined(self, other: Ticket, besides: usize) -> Ticket {
        let (ticket, resolver) = Ticket::new();
        let join = Arc::new(Mutex::new((Some(resolver), None)));
        let of_other = join.clone();
        drop(self.observed(move |outcome| {
            let outcome = outcome.clone().map(|mut appended| {
                appended.stored += besides;
                appended
            });
            Join::settle(&join, outcome.map(Some));
        }));
        drop(other.observed(move |outcome| {
            Join::settle(&of_other, outcome.clone().map(|_| None));
        }));
        ticket
    }

    /// Blocks the thread until the ticket resolves.
    pub fn wait(self) -> Result<Appended, Error> {
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

/// Two tickets that became one: its resolver, and what the first of them came to.
type Joining = Mutex<(Option<TicketResolver>, Option<Option<Appended>>)>;

struct Join;

impl Join {
    /// Takes the outcome of one of both.
    fn settle(join: &Joining, outcome: Result<Option<Appended>, Error>) {
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
    type Output = Result<Appended, Error>;

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
    /// Resolves the ticket.
    pub fn resolve(mut self, outcome: Result<Appended, Error>) {
        self.settle(outcome);
    }

    /// Fails the ticket: nothing can be promised now, while the batch may be stored yet. A later
    /// outcome of the resolver is ignored.
    pub fn refuse_early(&self, refusal: Error) {
        if let Some(cell) = &self.0 {
            settle(cell, Err(refusal));
        }
    }

    /// What can refuse the ticket early once the resolver was passed on.
    pub fn early(&self) -> EarlyRefusal {
        EarlyRefusal(self.0.clone())
    }

    fn settle(&mut self, outcome: Result<Appended, Error>) {
        if let Some(cell) = self.0.take() {
            settle(&cell, outcome);
        }
    }
}

/// See [`TicketResolver::early`].
#[derive(Debug)]
pub struct EarlyRefusal(Option<TicketCell>);

impl EarlyRefusal {
    /// See [`TicketResolver::refuse_early`].
    pub fn refuse(self, refusal: Error) {
        if let Some(cell) = &self.0 {
            settle(cell, Err(refusal));
        }
    }
}

fn settle(cell: &TicketCell, outcome: Result<Appended, Error>) {
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
            move |outcome: &Result<Appended, Error>| {
                assert!(outcome.is_ok());
                seen.fetch_add(1, Ordering::Relaxed);
            }
        };
        let (ticket, resolver) = Ticket::new();
        drop(ticket.observed(observe()));
        resolver.resolve(Ok(Appended::default()));
        assert_eq!(seen.load(Ordering::Relaxed), 1);
        let (ticket, resolver) = Ticket::new();
        let ticket = ticket.observed(observe());
        let early = resolver.early();
        resolver.resolve(Ok(Appended::default()));
        let refusal = Error::new(crate::error::ErrorKind::Unavailable, "too late");
        early.refuse(refusal);
        assert_eq!(seen.load(Ordering::Relaxed), 2);
        assert_eq!(ticket.wait(), Ok(Appended::default()));
        let ticket = Ticket::ready(Ok(Appended::default())).observed(observe());
        assert_eq!(seen.load(Ordering::Relaxed), 3);
        assert_eq!(ticket.wait(), Ok(Appended::default()));
    }

    #[test]
    fn ticket_joined_with_another_resolves_with_both_or_with_the_first_error() {
        let failure = || Error::new(crate::error::ErrorKind::Unavailable, "failed");
        let stored = |stored| {
            let rejected = Vec::new();
            Ok(Appended {
                stored,
                rejected,
                ..Appended::default()
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
                let ticket = first.joined(second, 2);
                match swaps {
                    false => {
                        first_resolver.resolve(one);
                        second_resolver.resolve(other);
                    }
                    true => {
                        second_resolver.resolve(other);
                        first_resolver.resolve(one);
                    }
                }
                assert_eq!(ticket.wait(), joined);
            }
        }
    }
}

//! The pending outcome of an append: awaited or blocked on by its sender, resolved by the store.

use super::outcome::AppendOutcome;
use crate::error::Error;
use crate::sync::{lock, wait};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Poll, Waker};

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

/// The pending result of [`super::Append::append`]. Await it, or call [`Ticket::wait`] on a thread
/// that may block.
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
    /// outcome exists already, and must not block. Several observers run in the order in which they
    /// were added.
    pub fn with_observer(
        self,
        observe: impl FnOnce(&Result<AppendOutcome, Error>) + Send + 'static,
    ) -> Ticket {
        let mut state = lock(&self.0.0);
        match &state.outcome {
            Some(outcome) => observe(outcome),
            None => {
                state.observer = Some(match state.observer.take() {
                    None => Box::new(observe),
                    Some(earlier) => Box::new(move |outcome| {
                        earlier(outcome);
                        observe(outcome);
                    }),
                });
            }
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

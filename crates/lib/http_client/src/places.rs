//! Limit on the number of open connections, and thereby on the file descriptors that scraping uses.
//! A place is the permit for one connection.
//!
//! ```text
//! take a place -> connect -> request, response, pause, request .. -> closed: the place is free
//!      |                                        ^-- closed here when others wait
//!      '-- waits while no place is free
//! ```
//!
//! A connection holds its place from before it is established until it is closed. While no place is
//! free, requests ask the server to close the connection after the response. A request that finds
//! no place closes the connection that has been idle longest and waits; the caller's deadline
//! limits the wait. So a few places serve many targets, which are then connected again each time,
//! and with as many places as targets all connections are kept.

use firn_model::sync::lock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::task::Waker;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, MissedTickBehavior, interval};

/// Minimum idle time of a connection that may be closed. One that was read from more recently may
/// be in the middle of a response.
const SILENT_MIN: Duration = Duration::from_secs(1);

/// Pause between two attempts of a waiting request to close an idle connection.
const LOOK_PAUSE: Duration = Duration::from_millis(100);

/// A set of places for connections. Clones share the same places and are cheap.
#[derive(Clone, Debug)]
pub struct ConnectionSlots(Arc<SharedSlots>);

#[derive(Debug)]
struct SharedSlots {
    free: Arc<Semaphore>,
    /// States of open connections; entries of closed ones are removed later.
    open: Mutex<Vec<Weak<Mutex<ConnectionUsage>>>>,
    count: usize,
    waiting: AtomicUsize,
}

/// Usage of one connection, which determines whether it may be closed for another one.
#[derive(Debug)]
struct ConnectionUsage {
    /// True if nothing has been written since the last read, so that the connection may be idle.
    may_be_idle: bool,
    since: Instant,
    is_closing: bool,
    reader: Option<Waker>,
}

/// The place of one connection, which is released when this value is dropped.
#[derive(Debug)]
pub(super) struct ConnectionSlot {
    _permit: Option<OwnedSemaphorePermit>,
    state: Arc<Mutex<ConnectionUsage>>,
}

impl ConnectionSlots {
    /// Creates a set of `count` places, shared by the clients that use it.
    pub fn new(count: usize) -> Self {
        let count = count.min(Semaphore::MAX_PERMITS);
        Self(Arc::new(SharedSlots {
            free: Arc::new(Semaphore::new(count)),
            open: Mutex::default(),
            count,
            waiting: AtomicUsize::new(0),
        }))
    }

    /// Creates places without a practical limit, for clients that need none.
    pub fn unlimited() -> Self {
        Self::new(Semaphore::MAX_PERMITS)
    }

    /// Returns the total number of places, free or occupied.
    pub fn count(&self) -> usize {
        self.0.count
    }

    /// Returns the number of places that connections occupy.
    pub fn occupied_count(&self) -> usize {
        self.0.count - self.0.free.available_permits()
    }

    /// Returns whether no place is free, so that connections should be closed after the current
    /// request.
    pub(super) fn is_exhausted(&self) -> bool {
        self.0.free.available_permits() == 0
    }

    /// Returns the number of requests that wait for a place.
    pub fn waiting_count(&self) -> usize {
        self.0.waiting.load(Ordering::Relaxed)
    }

    /// Takes a place for a new connection. Waits indefinitely until one is free.
    pub(super) async fn acquire(&self) -> ConnectionSlot {
        let permit = match self.0.free.clone().try_acquire_owned() {
            Ok(permit) => Some(permit),
            Err(_) => self.wait().await,
        };
        let state = Arc::new(Mutex::new(ConnectionUsage {
            may_be_idle: false,
            since: Instant::now(),
            is_closing: false,
            reader: None,
        }));
        let mut open = lock(&self.0.open);
        if open.len() == open.capacity() {
            open.retain(|state| state.strong_count() > 0);
        }
        open.push(Arc::downgrade(&state));
        ConnectionSlot {
            _permit: permit,
            state,
        }
    }

    async fn wait(&self) -> Option<OwnedSemaphorePermit> {
        let _waiting = WaitingRequestGuard::enter(&self.0.waiting);
        let acquired = self.0.free.clone().acquire_owned();
        tokio::pin!(acquired);
        let mut looks = interval(LOOK_PAUSE);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                // The semaphore is never closed.
                permit = &mut acquired => return permit.ok(),
                _ = looks.tick() => self.close_longest_idle(),
            }
        }
    }

    /// Closes the connection that has been idle longest, if it has been idle for at least
    /// [`SILENT_MIN`].
    fn close_longest_idle(&self) {
        let open = lock(&self.0.open);
        let silent = open.iter().filter_map(|state| {
            let state = state.upgrade()?;
            let since = {
                let state = lock(&state);
                let is_silent = state.may_be_idle && !state.is_closing;
                (is_silent && state.since.elapsed() >= SILENT_MIN).then_some(state.since)?
            };
            Some((since, state))
        });
        if let Some((_, state)) = silent.min_by_key(|(since, _)| *since) {
            let mut state = lock(&state);
            state.is_closing = true;
            if let Some(reader) = state.reader.take() {
                reader.wake();
            }
        }
    }
}

impl ConnectionSlot {
    /// Returns whether the connection must be closed. Otherwise, `reader` is woken when that
    /// happens.
    pub(super) fn is_closing(&self, reader: &Waker) -> bool {
        let mut state = lock(&self.state);
        if !state
            .reader
            .as_ref()
            .is_some_and(|known| known.will_wake(reader))
        {
            state.reader = Some(reader.clone());
        }
        state.is_closing
    }

    /// Records that bytes were received, after which the connection may be idle.
    pub(super) fn record_read(&self) {
        self.is_used(true);
    }

    /// Records that bytes were sent, so that a response is expected.
    pub(super) fn record_write(&self) {
        self.is_used(false);
    }

    fn is_used(&self, may_be_idle: bool) {
        let mut state = lock(&self.state);
        state.may_be_idle = may_be_idle;
        state.since = Instant::now();
    }
}

/// Counts a waiting request until it is dropped.
struct WaitingRequestGuard<'c>(&'c AtomicUsize);

impl<'c> WaitingRequestGuard<'c> {
    fn enter(count: &'c AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for WaitingRequestGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

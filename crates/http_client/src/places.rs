//! Places for connections: how many descriptors fetching may use.
//!
//! ```text
//! take a place -> connect -> request, answer, pause, request .. -> closed: the place is free
//!      |                                    ^-- closed here when others wait
//!      '-- waits while there is none
//! ```
//!
//! A connection has its place from before it is made until it is closed. While none is left
//! requests ask that theirs be closed after the answer. A request that finds no place closes the
//! connection that has been silent for longest since it was last read from, and waits: the
//! caller's deadline bounds that. So a few places serve many targets, each of which is connected
//! to anew then, and with as many places as targets all connections are kept.

use firn_model::sync::lock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::task::Waker;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, MissedTickBehavior, interval};

/// A connection that was read from less long ago may be in the middle of an answer.
const SILENT_MIN: Duration = Duration::from_secs(1);

/// Between two looks for a connection to close, of each that waits for a place.
const LOOK_PAUSE: Duration = Duration::from_millis(100);

/// Places. Cheap to clone; clones share them.
#[derive(Clone, Debug)]
pub struct Places(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    free: Arc<Semaphore>,
    /// Connections that are open or were.
    open: Mutex<Vec<Weak<Mutex<State>>>>,
    count: usize,
    waiting: AtomicUsize,
}

/// How a connection is used.
#[derive(Debug)]
struct State {
    /// Nothing was written since it was last read from: it may be waiting for a request.
    may_be_idle: bool,
    since: Instant,
    is_closing: bool,
    reader: Option<Waker>,
}

/// The place of one connection, free again when this is dropped.
#[derive(Debug)]
pub(super) struct Place {
    _permit: Option<OwnedSemaphorePermit>,
    state: Arc<Mutex<State>>,
}

impl Places {
    /// So many places.
    pub fn new(count: usize) -> Self {
        let count = count.min(Semaphore::MAX_PERMITS);
        Self(Arc::new(Shared {
            free: Arc::new(Semaphore::new(count)),
            open: Mutex::default(),
            count,
            waiting: AtomicUsize::new(0),
        }))
    }

    /// Places without a limit.
    pub fn unlimited() -> Self {
        Self::new(Semaphore::MAX_PERMITS)
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.count
    }

    /// How many are taken.
    pub fn taken(&self) -> usize {
        self.0.count - self.0.free.available_permits()
    }

    /// Whether there is none left: a connection had better end with the request under way.
    pub(super) fn are_scarce(&self) -> bool {
        self.0.free.available_permits() == 0
    }

    /// How many wait for one.
    pub fn waiting(&self) -> usize {
        self.0.waiting.load(Ordering::Relaxed)
    }

    /// Takes a place, for which it may wait without end.
    pub(super) async fn take(&self) -> Place {
        let permit = match self.0.free.clone().try_acquire_owned() {
            Ok(permit) => Some(permit),
            Err(_) => self.wait().await,
        };
        let state = Arc::new(Mutex::new(State {
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
        Place {
            _permit: permit,
            state,
        }
    }

    async fn wait(&self) -> Option<OwnedSemaphorePermit> {
        let _waiting = Waiting::enter(&self.0.waiting);
        let acquired = self.0.free.clone().acquire_owned();
        tokio::pin!(acquired);
        let mut looks = interval(LOOK_PAUSE);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                // It is never closed.
                permit = &mut acquired => return permit.ok(),
                _ = looks.tick() => self.close_most_silent(),
            }
        }
    }

    /// Closes the connection that has been silent for longest, if that is long enough.
    fn close_most_silent(&self) {
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

impl Place {
    /// Whether the connection is to be closed; if not, `reader` is woken when it is.
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

    /// Bytes came.
    pub(super) fn has_read(&self) {
        self.is_used(true);
    }

    /// Bytes are sent: an answer will be waited for.
    pub(super) fn has_written(&self) {
        self.is_used(false);
    }

    fn is_used(&self, may_be_idle: bool) {
        let mut state = lock(&self.state);
        state.may_be_idle = may_be_idle;
        state.since = Instant::now();
    }
}

/// Counts one that waits.
struct Waiting<'c>(&'c AtomicUsize);

impl<'c> Waiting<'c> {
    fn enter(count: &'c AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

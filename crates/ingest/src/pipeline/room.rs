//! Room for requests: memory that one has before it takes it.
//!
//! ```text
//! admit (body, unread) -> prepare (message, labels, log) -> keep for the log -> gone
//! ```
//!
//! A request that needs much is *large* and takes from a part, so that ordinary ones go on beside
//! any number of large ones. A request that finds no room waits before its next step until some is
//! given back, for a bounded time; then it is turned away as [`ErrorKind::Unavailable`]. A request
//! that no room would ever suffice for is [`ErrorKind::Limited`].
//!
//! Invariant: a request that waits holds a body at most, and all bodies leave room for one to be
//! worked on. So some request can always go on and give room back.

use crate::limits::{WORK_MESSAGES, large_bodies_bytes_max, large_bytes_max};
use firn_model::budget::{Budget, Reservation};
use firn_model::error::{Error, ErrorKind};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

/// A body beyond this makes a request large. Prometheus's senders make some 100 KB.
const ORDINARY_BODY_BYTES_MAX: usize = 1 << 20;

/// A message beyond this makes a request large: six times Prometheus's default.
const ORDINARY_MESSAGE_BYTES_MAX: usize = 4 << 20;

/// How long a request waits for room: long enough for a sync, well below the 30 s after which
/// senders give up.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// The budgets of requests in flight.
#[derive(Debug)]
pub(super) struct Room {
    pub(super) all: Budget,
    bodies: Budget,
    large: Budget,
    large_bodies: Budget,
    body_bytes_max: usize,
    /// An ordinary message takes a quarter of what large ones leave.
    ordinary_message_bytes_max: usize,
    /// Told when room is given back.
    given_back: Notify,
}

impl Room {
    /// A share of `memory` that is set aside for requests.
    pub(super) fn new(memory: &Budget, in_flight_bytes: usize, body_bytes_max: usize) -> Arc<Self> {
        let all = memory.share("requests in flight", in_flight_bytes);
        let large_bytes = large_bytes_max(in_flight_bytes);
        let large = all.child("large requests in flight", large_bytes);
        let ordinary = (in_flight_bytes - large_bytes) / (WORK_MESSAGES + 1);
        Arc::new(Self {
            bodies: all.child("bodies in flight", in_flight_bytes / 2),
            large_bodies: large.child(
                "large bodies in flight",
                large_bodies_bytes_max(large_bytes),
            ),
            large,
            all,
            body_bytes_max,
            ordinary_message_bytes_max: ordinary.min(ORDINARY_MESSAGE_BYTES_MAX),
            given_back: Notify::new(),
        })
    }

    /// Where a body of so many bytes is counted.
    fn of_body(&self, bytes: usize) -> &Budget {
        match bytes > ORDINARY_BODY_BYTES_MAX.min(self.bodies.limit_bytes() / 4) {
            true => &self.large_bodies,
            false => &self.bodies,
        }
    }

    /// Where the work on a message of so many bytes is counted.
    fn of_message(&self, bytes: usize) -> &Budget {
        match bytes > self.ordinary_message_bytes_max {
            true => &self.large,
            false => &self.all,
        }
    }

    /// Reserves from `budget`, waiting for room if there is none.
    async fn wait_for(&self, budget: &Budget, bytes: usize) -> Result<Reservation, Error> {
        let deadline = Instant::now() + WAIT_MAX;
        loop {
            // Listens before it looks: what is given back in between is not missed.
            let given_back = self.given_back.notified();
            let refusal = match reserve(budget, bytes) {
                Err(e) if e.kind == ErrorKind::Unavailable => e,
                outcome => return outcome,
            };
            if timeout_at(deadline, given_back).await.is_err() {
                return Err(refusal);
            }
        }
    }
}

/// Reserves, or says whether there is no room now or never.
fn reserve(budget: &Budget, bytes: usize) -> Result<Reservation, Error> {
    budget.reserve(bytes).map_err(|e| {
        let kind = match bytes > budget.limit_bytes() {
            true => ErrorKind::Limited,
            false => ErrorKind::Unavailable,
        };
        Error::new(kind, e.message)
    })
}

/// The room of one request; given back when it is dropped.
#[derive(Debug)]
pub struct Admission {
    room: Arc<Room>,
    body: Reservation,
    /// For everything behind the body, once it is known how much that is.
    pub(super) work: Option<Reservation>,
}

impl Admission {
    /// Room for a body of `bytes`, for which it waits if need be.
    pub(super) async fn wait(room: &Arc<Room>, bytes: usize) -> Result<Self, Error> {
        check_body(bytes, room.body_bytes_max)?;
        Ok(Self {
            body: room.wait_for(room.of_body(bytes), bytes).await?,
            room: room.clone(),
            work: None,
        })
    }

    /// Room for a batch of `bytes` that is there already: counted, and never refused.
    pub(super) fn of_batch(room: &Arc<Room>, bytes: usize) -> Self {
        let mut work = room.all.hold();
        work.set(bytes);
        Self {
            body: room.bodies.hold(),
            room: room.clone(),
            work: Some(work),
        }
    }

    /// Takes room for a body that turned out to have `bytes` in all.
    pub fn cover(&mut self, bytes: usize) -> Result<(), Error> {
        let held = self.body.bytes();
        if bytes <= held {
            return Ok(());
        }
        check_body(bytes, self.room.body_bytes_max)?;
        let (before, now) = (self.room.of_body(held), self.room.of_body(bytes));
        if std::ptr::eq(before, now) {
            return self.body.grow(bytes - held).map_err(turned_away);
        }
        self.body = reserve(now, bytes)?;
        Ok(())
    }

    /// Room for the work on a message of `bytes`, if there is some now.
    pub(super) fn prepare(&mut self, bytes: usize) -> Result<(), Error> {
        if self.work.is_none() {
            let needed = bytes.saturating_mul(WORK_MESSAGES);
            self.work = Some(reserve(self.room.of_message(bytes), needed)?);
        }
        Ok(())
    }

    /// Room for the work on a message of `bytes`, for which it waits if need be.
    pub(super) async fn wait_to_prepare(&mut self, bytes: usize) -> Result<(), Error> {
        if self.work.is_none() {
            let needed = bytes.saturating_mul(WORK_MESSAGES);
            let budget = self.room.of_message(bytes);
            self.work = Some(self.room.wait_for(budget, needed).await?);
        }
        Ok(())
    }

    /// Keeps what a block takes on its way to the disk and gives back the rest.
    pub(super) fn keep_for_log(&mut self, message_bytes: usize) {
        self.body.shrink_to(0);
        if let Some(work) = &mut self.work {
            work.shrink_to(message_bytes.saturating_mul(2));
        }
        self.room.given_back.notify_waiters();
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        self.body.shrink_to(0);
        self.work = None;
        self.room.given_back.notify_waiters();
    }
}

fn check_body(bytes: usize, limit: usize) -> Result<(), Error> {
    if bytes > limit {
        let message = format!("body too large: {bytes} bytes, limit {limit}");
        return Err(Error::new(ErrorKind::Limited, message));
    }
    Ok(())
}

fn turned_away(error: Error) -> Error {
    Error::new(ErrorKind::Unavailable, error.message)
}

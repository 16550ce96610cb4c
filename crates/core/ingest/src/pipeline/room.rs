//! Memory reservations of requests in flight, made before the memory is allocated.
//!
//! ```text
//! admit (body, unread) -> prepare (message, labels, log) -> keep for the log -> released
//! ```
//!
//! A request that needs much memory is *large* and uses a separate part of it, so that ordinary
//! requests continue beside any number of large ones. A request that finds no memory waits before
//! its next step for a bounded time, and then fails with [`ErrorKind::Unavailable`]. A request that
//! can never fit fails with [`ErrorKind::Limited`].
//!
//! Invariant: a waiting request holds at most the memory of its body, and all bodies together leave
//! enough for the processing of one request. Some request can therefore always proceed and release
//! memory.

use crate::limits::{WORK_MESSAGES, large_bodies_bytes_max, large_bytes_max};
use firn_model::budget::{Budget, Reservation};
use firn_model::error::{Error, ErrorKind};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

/// Size in bytes above which a body makes its request large. Bodies of Prometheus have about 100
/// KB.
const ORDINARY_BODY_BYTES_MAX: usize = 1 << 20;

/// Size in bytes above which a message makes its request large: six times Prometheus's default.
const ORDINARY_MESSAGE_BYTES_MAX: usize = 4 << 20;

/// Longest time that a request waits for memory: enough for a sync, and well below the 30 s after
/// which senders give up.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// The memory budgets of requests in flight, which are parts of the process's budget. All requests
/// of a process share them.
#[derive(Debug)]
pub(super) struct WriteMemoryBudgets {
    pub(super) all: Budget,
    bodies: Budget,
    large: Budget,
    large_bodies: Budget,
    body_bytes_max: usize,
    /// Size of the largest ordinary message, whose processing fits into the memory that large
    /// requests leave.
    ordinary_message_bytes_max: usize,
    /// Notified when memory is released.
    given_back: Notify,
}

impl WriteMemoryBudgets {
    /// Splits the budgets for requests from `memory`, with separate parts for bodies and large
    /// requests.
    pub(super) fn new(memory: &Budget, in_flight_bytes: usize, body_bytes_max: usize) -> Arc<Self> {
        let all = memory.create_share("requests in flight", in_flight_bytes);
        let large_bytes = large_bytes_max(in_flight_bytes);
        let large = all.create_child("large requests in flight", large_bytes);
        let ordinary = (in_flight_bytes - large_bytes) / (WORK_MESSAGES + 1);
        Arc::new(Self {
            bodies: all.create_child("bodies in flight", in_flight_bytes / 2),
            large_bodies: large.create_child(
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

    /// Returns the budget for a body of this size.
    fn budget_for_body(&self, bytes: usize) -> &Budget {
        if bytes > ORDINARY_BODY_BYTES_MAX.min(self.bodies.limit_bytes() / 4) {
            &self.large_bodies
        } else {
            &self.bodies
        }
    }

    /// Returns the budget for the processing of a message of this size.
    fn budget_for_message(&self, bytes: usize) -> &Budget {
        if bytes > self.ordinary_message_bytes_max {
            &self.large
        } else {
            &self.all
        }
    }

    /// Reserves from `budget`, waiting for released memory if necessary. Fails if the wait takes
    /// too long or the size never fits.
    async fn reserve_waiting(&self, budget: &Budget, bytes: usize) -> Result<Reservation, Error> {
        let deadline = Instant::now() + WAIT_MAX;
        loop {
            // Registers before the check, so that memory released in between is not missed.
            let given_back = self.given_back.notified();
            let refusal = match try_reserve(budget, bytes) {
                Err(e) if e.kind == ErrorKind::Unavailable => e,
                outcome => return outcome,
            };
            if timeout_at(deadline, given_back).await.is_err() {
                return Err(refusal);
            }
        }
    }
}

/// Reserves, or returns whether the size is unavailable at the moment or always.
fn try_reserve(budget: &Budget, bytes: usize) -> Result<Reservation, Error> {
    budget.reserve(bytes).map_err(|e| {
        let kind = if bytes > budget.limit_bytes() {
            ErrorKind::Limited
        } else {
            ErrorKind::Unavailable
        };
        Error::new(kind, e.message)
    })
}

/// The memory reservation of one request, which is released when it is dropped. Every step of a
/// request that allocates requires it.
#[derive(Debug)]
pub struct WriteAdmission {
    room: Arc<WriteMemoryBudgets>,
    body: Reservation,
    /// Reservation for everything except for the body, once its size is known.
    pub(super) work: Option<Reservation>,
}

impl WriteAdmission {
    /// Reserves memory for a body of `bytes`, waiting for it if necessary. Fails like
    /// `Pipeline::admit`, which calls it.
    pub(super) async fn wait_for_body(
        room: &Arc<WriteMemoryBudgets>,
        bytes: usize,
    ) -> Result<Self, Error> {
        check_body_size(bytes, room.body_bytes_max)?;
        Ok(Self {
            body: room
                .reserve_waiting(room.budget_for_body(bytes), bytes)
                .await?,
            room: room.clone(),
            work: None,
        })
    }

    /// Counts the memory of a batch of `bytes` that is allocated already; this never fails.
    pub(super) fn count_batch(room: &Arc<WriteMemoryBudgets>, bytes: usize) -> Self {
        let mut work = room.all.create_reservation();
        work.set(bytes);
        Self {
            body: room.bodies.create_reservation(),
            room: room.clone(),
            work: Some(work),
        }
    }

    /// Extends the reservation to a body that turned out to have `bytes` in total. Fails without
    /// waiting if the memory is not available.
    pub fn extend_to_body(&mut self, bytes: usize) -> Result<(), Error> {
        let held = self.body.bytes();
        if bytes <= held {
            return Ok(());
        }
        check_body_size(bytes, self.room.body_bytes_max)?;
        let (before, now) = (
            self.room.budget_for_body(held),
            self.room.budget_for_body(bytes),
        );
        if std::ptr::eq(before, now) {
            return self.body.grow(bytes - held).map_err(unavailable_error);
        }
        self.body = try_reserve(now, bytes)?;
        Ok(())
    }

    /// Reserves memory for processing a message of `bytes`; fails if it is not available now.
    pub(super) fn reserve_message(&mut self, bytes: usize) -> Result<(), Error> {
        if self.work.is_none() {
            let needed = bytes.saturating_mul(WORK_MESSAGES);
            self.work = Some(try_reserve(self.room.budget_for_message(bytes), needed)?);
        }
        Ok(())
    }

    /// Reserves memory for processing a message of `bytes`, waiting for it if necessary. Fails like
    /// [`WriteAdmission::wait_for_body`].
    pub(super) async fn wait_for_message(&mut self, bytes: usize) -> Result<(), Error> {
        if self.work.is_none() {
            let needed = bytes.saturating_mul(WORK_MESSAGES);
            let budget = self.room.budget_for_message(bytes);
            self.work = Some(self.room.reserve_waiting(budget, needed).await?);
        }
        Ok(())
    }

    /// Reduces the reservation to the memory of a log block until it is durable.
    pub(super) fn shrink_to_log_block(&mut self, message_bytes: usize) {
        self.body.shrink_to(0);
        if let Some(work) = &mut self.work {
            work.shrink_to(message_bytes.saturating_mul(2));
        }
        self.room.given_back.notify_waiters();
    }
}

impl Drop for WriteAdmission {
    fn drop(&mut self) {
        self.body.shrink_to(0);
        self.work = None;
        self.room.given_back.notify_waiters();
    }
}

fn check_body_size(bytes: usize, limit: usize) -> Result<(), Error> {
    if bytes > limit {
        let message = format!("body too large: {bytes} bytes, limit {limit}");
        return Err(Error::new(ErrorKind::Limited, message));
    }
    Ok(())
}

fn unavailable_error(error: Error) -> Error {
    Error::new(ErrorKind::Unavailable, error.message)
}

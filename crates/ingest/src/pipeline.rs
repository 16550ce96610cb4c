//! The write pipeline: from a body to samples that are durable.
//!
//! ```text
//! admit (room) -> prepare (room) -> decode (caps) -> append (bounds) -> ticket -> outcome, counted
//!                                        ^-- labels of unknown series --'     and told in the log
//! ```
//!
//! Invariant: a body is admitted before it is read and its message before it is unpacked, so that
//! the memory of all requests together stays below one limit, up to where they are in the log. When
//! that is reached requests wait, and are turned away as [`ErrorKind::Unavailable`], which senders
//! answer by trying again; a limit that a single request breaks is [`ErrorKind::Limited`] or
//! [`ErrorKind::Invalid`], which they do not.

mod room;
#[cfg(test)]
mod tests;

pub use room::Admission;

use crate::limits::IngestLimits;
use crate::metrics::Metrics;
use crate::outcome::{Dropped, WriteOutcome};
use crate::refusals::{Refusals, Sender};
use firn_model::batch::{Batch, Source};
use firn_model::budget::Budget;
use firn_model::env::Clock;
use firn_model::error::{Error, ErrorKind};
use firn_model::sample::TimestampMs;
use firn_model::store::{Append, AppendBounds, Appended, Ticket};
use firn_model::tenant::TenantId;
use firn_wire::remote_write::{self, Decoder};
use room::Room;
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// A request of 2,000 samples, Prometheus's default, unpacks to 0.7 MiB and takes 0.3 ms.
const QUICK_MESSAGE_BYTES_MAX: usize = 1 << 20;

/// Takes in writes of all kinds. Shared by all connections.
pub struct Pipeline {
    store: Arc<dyn Append>,
    clock: Arc<dyn Clock>,
    limits: IngestLimits,
    room: Arc<Room>,
    spare_decoders: Mutex<Vec<Decoder>>,
    spare_bodies: Mutex<Vec<Vec<u8>>>,
    metrics: Arc<Metrics>,
    refusals: Arc<Refusals>,
}

impl Pipeline {
    /// A pipeline into `store` whose requests in flight count in `memory`.
    pub fn new(
        store: Arc<dyn Append>,
        clock: Arc<dyn Clock>,
        limits: IngestLimits,
        memory: &Budget,
    ) -> Self {
        let body_bytes_max = limits.wire.body_bytes_max;
        let room = Room::new(memory, limits.in_flight_bytes_max, body_bytes_max);
        Self {
            store,
            clock,
            limits,
            metrics: Arc::new(Metrics::new(room.all.clone())),
            room,
            spare_decoders: Mutex::default(),
            spare_bodies: Mutex::default(),
            refusals: Arc::default(),
        }
    }

    /// The caps that hold here.
    pub fn limits(&self) -> IngestLimits {
        self.limits
    }

    /// What ingestion counts.
    pub fn metrics(&self) -> Arc<Metrics> {
        self.metrics.clone()
    }

    /// Allows `bytes` of a body to be read, once there is room. Fails with [`ErrorKind::Limited`]
    /// if no body may be that long, with [`ErrorKind::Unavailable`] if there is no room for too
    /// long.
    pub async fn admit(&self, bytes: usize) -> Result<Admission, Error> {
        self.count_turned_away(Admission::wait(&self.room, bytes).await)
    }

    /// Waits for room for the work on `body`. Fails as [`Pipeline::admit`] does, and for a body
    /// that is not what a sender makes.
    pub async fn prepare(&self, admission: &mut Admission, body: &[u8]) -> Result<(), Error> {
        let outcome = match remote_write::message_bytes(body, &self.limits.wire) {
            Ok(bytes) => admission.wait_to_prepare(bytes).await,
            Err(e) => Err(e.into()),
        };
        self.count_refused(&outcome);
        outcome
    }

    fn count_turned_away<T>(&self, outcome: Result<T, Error>) -> Result<T, Error> {
        if outcome
            .as_ref()
            .is_err_and(|e| e.kind == ErrorKind::Unavailable)
        {
            self.metrics.requests_turned_away.inc();
        }
        outcome
    }

    /// Counts a request that comes to nothing.
    fn count_refused<T>(&self, outcome: &Result<T, Error>) {
        match outcome {
            Ok(_) => {}
            Err(e) if e.kind == ErrorKind::Unavailable => self.metrics.requests_turned_away.inc(),
            Err(_) => self.metrics.requests_invalid.inc(),
        }
    }

    /// Whether [`Pipeline::remote_write`] of `body` takes well below a millisecond and waits for
    /// no disk, so that it may run on an async worker. Going to another thread and back costs a
    /// push of 2,000 samples a tenth more CPU: 0.99 against 0.90 s for 1.9 million samples over
    /// four connections (medians of six turns each on two busy cores); its latency does not differ.
    pub fn is_quick(&self, body: &[u8]) -> bool {
        let bytes = remote_write::message_bytes(body, &self.limits.wire);
        bytes.is_ok_and(|bytes| bytes <= QUICK_MESSAGE_BYTES_MAX) && !self.store.may_wait()
    }

    /// Decodes a remote-write 1.0 body that comes from `address` and hands its samples to the
    /// store. Computes on the calling thread; what is returned resolves when the samples are
    /// durable. Room is taken now if [`Pipeline::prepare`] did not take it, and given back when
    /// they are.
    pub fn remote_write(
        &self,
        tenant: &TenantId,
        address: Option<IpAddr>,
        body: &[u8],
        admission: Admission,
    ) -> Result<PendingWrite, Error> {
        self.metrics.body_bytes.add(body.len() as u64);
        let sender = Sender::Push {
            tenant: tenant.clone(),
            address,
        };
        let pending = self.decode_and_append(tenant, sender, (body, admission));
        self.count_refused(&pending);
        pending
    }

    fn decode_and_append(
        &self,
        tenant: &TenantId,
        sender: Sender,
        (body, mut admission): (&[u8], Admission),
    ) -> Result<PendingWrite, Error> {
        let started = self.clock.monotonic();
        let message_bytes = remote_write::message_bytes(body, &self.limits.wire)?;
        admission.prepare(message_bytes)?;
        let mut decoder = self.take_decoder();
        decoder.keep_exemplars(self.takes_exemplars());
        let mut decoded = decoder.decode_within(body, admission.work.as_mut())?;
        let decoding = self.clock.monotonic().saturating_sub(started);
        let mut pending = self.append_from(tenant, sender, &mut decoded);
        if decoded.is_misread() {
            // Nothing of it was stored.
            drop(decoded);
            admission.forget_batch(message_bytes);
            decoded = decoder.decode_again(body, admission.work.as_mut())?;
            let sender = pending.sender.clone();
            pending = self.append_from(tenant, sender, &mut decoded);
        }
        let metrics = &self.metrics;
        metrics.decode_duration.observe(decoding);
        metrics.message_bytes.add(message_bytes as u64);
        metrics.exemplars_ignored.add(decoded.exemplar_count as u64);
        metrics.metadata_ignored.add(decoded.metadata_count as u64);
        pending.dropped = decoded.finish()?.iter().map(Dropped::from).collect();
        pending.is_request = true;
        self.put_decoder(decoder);
        admission.keep_for_log(message_bytes);
        pending.admission = Some(admission);
        Ok(pending)
    }

    /// Hands a batch that was made here of what `sender` brought to the store.
    pub fn append(&self, tenant: &TenantId, sender: Sender, mut batch: &Batch) -> PendingWrite {
        self.append_from(tenant, sender, &mut batch)
    }

    /// Counts, and tells in the log, what was dropped before it came to the store.
    pub(crate) fn drop_unseen(&self, sender: &Sender, dropped: &Dropped) {
        let count = dropped.sample_count as u64;
        self.metrics.count_dropped(dropped.reason, count);
        let dropped = std::slice::from_ref(dropped);
        let (bounds, now) = (self.bounds(), self.clock.monotonic());
        self.refusals.note(sender, dropped, bounds.time_max, now);
    }

    /// Tells in the log what was refused, where that is due: to be called once a second or so.
    pub fn tick(&self) {
        self.refusals.tick(self.clock.monotonic());
    }

    /// Tells in the log what was refused and not told yet: to be called when all writes ended.
    pub fn finish(&self) {
        self.refusals.finish();
    }

    /// Hands a batch to the store of which it may refuse what it likes: that is neither told nor
    /// counted. It is durable when a batch that is appended after it is.
    pub fn append_if_welcome(&self, tenant: &TenantId, batch: &Batch) {
        // Nobody waits for it: the log is written in order.
        drop(self.store.append(tenant, batch, self.bounds()));
    }

    fn bounds(&self) -> AppendBounds {
        let now = self.clock.now_ms();
        AppendBounds {
            time_max: now.saturating_add(self.limits.future_ms_max),
        }
    }

    fn append_from(
        &self,
        tenant: &TenantId,
        sender: Sender,
        source: &mut dyn Source,
    ) -> PendingWrite {
        let bounds = self.bounds();
        PendingWrite {
            started: self.clock.monotonic(),
            ticket: self.store.append_from(tenant, source, bounds),
            dropped: Vec::new(),
            is_request: false,
            sender,
            time_max: bounds.time_max,
            admission: None,
            clock: self.clock.clone(),
            metrics: self.metrics.clone(),
            refusals: self.refusals.clone(),
        }
    }

    /// Whether exemplars are kept: a batch need not have them if not.
    pub fn takes_exemplars(&self) -> bool {
        self.store.takes_exemplars()
    }

    /// An empty buffer for a body, with the memory of an earlier one: growing a new one by the
    /// bytes that come costs more than reading them.
    pub fn take_body(&self) -> Vec<u8> {
        let spare = self.spare_bodies.lock();
        let mut spare = spare.unwrap_or_else(PoisonError::into_inner);
        spare.pop().unwrap_or_default()
    }

    /// Takes a body back that was stored.
    pub fn put_body(&self, mut body: Vec<u8>) {
        body.clear();
        let spare = self.spare_bodies.lock();
        let mut spare = spare.unwrap_or_else(PoisonError::into_inner);
        let limits = self.limits.spare;
        if spare.len() < limits.bodies && body.capacity() <= limits.body_bytes {
            spare.push(body);
        }
    }

    fn take_decoder(&self) -> Decoder {
        let mut spare = self
            .spare_decoders
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        spare
            .pop()
            .unwrap_or_else(|| Decoder::new(self.limits.wire))
    }

    fn put_decoder(&self, decoder: Decoder) {
        let mut spare = self
            .spare_decoders
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let limits = self.limits.spare;
        if spare.len() < limits.decoders && decoder.memory_bytes() <= limits.decoder_bytes {
            spare.push(decoder);
        }
    }
}

impl std::fmt::Debug for Pipeline {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pipeline")
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

/// A write on its way to the disk: await it, or [`PendingWrite::wait`] on a thread that may block.
#[must_use = "samples are durable only when this says so"]
pub struct PendingWrite {
    ticket: Ticket,
    dropped: Vec<Dropped>,
    is_request: bool,
    sender: Sender,
    time_max: TimestampMs,
    /// The room of the block until it is on the disk.
    admission: Option<Admission>,
    started: Duration,
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
    refusals: Arc<Refusals>,
}

impl PendingWrite {
    /// Blocks the thread until the write is durable or can never be.
    pub fn wait(mut self) -> Result<WriteOutcome, Error> {
        let (resolved, _) = Ticket::new();
        let appended = std::mem::replace(&mut self.ticket, resolved).wait();
        self.settle(appended)
    }

    fn settle(&mut self, appended: Result<Appended, Error>) -> Result<WriteOutcome, Error> {
        self.admission = None;
        let metrics = &self.metrics;
        let now = self.clock.monotonic();
        metrics
            .write_duration
            .observe(now.saturating_sub(self.started));
        let outcome = appended.map(|appended| {
            let mut dropped = std::mem::take(&mut self.dropped);
            dropped.extend(appended.rejected.iter().map(Dropped::from));
            WriteOutcome {
                stored_count: appended.stored,
                dropped,
            }
        });
        if let Ok(outcome) = &outcome {
            metrics.count_samples(outcome);
            if !outcome.dropped.is_empty() {
                self.refusals
                    .note(&self.sender, &outcome.dropped, self.time_max, now);
            }
        }
        if self.is_request {
            match &outcome {
                Ok(outcome) if outcome.dropped.is_empty() => metrics.requests_stored.inc(),
                Ok(_) => metrics.requests_partial.inc(),
                Err(_) => metrics.requests_failed.inc(),
            }
        }
        outcome
    }
}

impl Future for PendingWrite {
    type Output = Result<WriteOutcome, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let appended = ready!(Pin::new(&mut self.ticket).poll(cx));
        Poll::Ready(self.settle(appended))
    }
}

impl std::fmt::Debug for PendingWrite {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PendingWrite")
            .field("dropped", &self.dropped)
            .finish_non_exhaustive()
    }
}

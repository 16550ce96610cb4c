//! The write pipeline: from a body to samples that are durable.
//!
//! ```text
//! admit (bytes in flight) -> decode (caps) -> append (bounds) -> ticket -> outcome, counted
//!                                 ^-- labels of unknown series --'      and told in the log
//! ```
//!
//! Invariant: a body is admitted before it is read and its message before it is unpacked, so that
//! the memory of all requests together stays below one limit. When that is reached requests are
//! turned away as [`ErrorKind::Unavailable`], which senders answer by trying again; a limit that a
//! single request breaks is [`ErrorKind::Limited`] or [`ErrorKind::Invalid`], which they do not.

#[cfg(test)]
mod tests;

use crate::limits::IngestLimits;
use crate::metrics::Metrics;
use crate::outcome::{Dropped, WriteOutcome};
use crate::refusals::{Refusals, Sender};
use firn_model::batch::{Batch, Source};
use firn_model::budget::{Budget, Reservation};
use firn_model::env::Clock;
use firn_model::error::{Error, ErrorKind};
use firn_model::sample::TimestampMs;
use firn_model::store::{Append, AppendBounds, Appended, Ticket};
use firn_model::tenant::TenantId;
use firn_wire::remote_write::{self, Decoder};
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// Decoders that wait for the next request: as many as decode at one time on a large machine.
const SPARE_DECODERS_MAX: usize = 16;

/// Memory that a waiting decoder may hold. A request of 2,000 samples takes 1.2 MiB; one that took
/// much more is rare and gives its memory back.
const SPARE_DECODER_BYTES_MAX: usize = 4 << 20;

/// Bodies that wait for the next request: as many as are read at one time by a few busy senders.
const SPARE_BODIES_MAX: usize = 16;

/// Memory that a waiting body may hold: twice a request of 2,000 samples.
const SPARE_BODY_BYTES_MAX: usize = 256 << 10;

/// A request of 2,000 samples, Prometheus's default, unpacks to 0.7 MiB and takes 0.3 ms.
const QUICK_MESSAGE_BYTES_MAX: usize = 1 << 20;

/// Takes in writes of all kinds. Shared by all connections.
pub struct Pipeline {
    store: Arc<dyn Append>,
    clock: Arc<dyn Clock>,
    limits: IngestLimits,
    in_flight: Budget,
    spare_decoders: Mutex<Vec<Decoder>>,
    spare_bodies: Mutex<Vec<Vec<u8>>>,
    metrics: Arc<Metrics>,
    refusals: Arc<Refusals>,
}

/// The bytes of one body that may be read. Dropped when the request is done with.
#[derive(Debug)]
pub struct Admission {
    reservation: Reservation,
    limit: usize,
}

impl Admission {
    /// Asks for `bytes` more, for a body that did not tell its length.
    pub fn grow(&mut self, bytes: usize) -> Result<(), Error> {
        check_body(self.reservation.bytes().saturating_add(bytes), self.limit)?;
        self.reservation.grow(bytes).map_err(turned_away)
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

impl Pipeline {
    /// A pipeline into `store` whose requests in flight count in `memory`.
    pub fn new(
        store: Arc<dyn Append>,
        clock: Arc<dyn Clock>,
        limits: IngestLimits,
        memory: &Budget,
    ) -> Self {
        let in_flight = memory.child("requests in flight", limits.in_flight_bytes_max);
        Self {
            store,
            clock,
            limits,
            in_flight: in_flight.clone(),
            spare_decoders: Mutex::default(),
            spare_bodies: Mutex::default(),
            metrics: Arc::new(Metrics::new(in_flight)),
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

    /// Allows `bytes` of a body to be read. Fails with [`ErrorKind::Limited`] if no body may be
    /// that long, with [`ErrorKind::Unavailable`] if there is no room now.
    pub fn admit(&self, bytes: usize) -> Result<Admission, Error> {
        let limit = self.limits.wire.body_bytes_max;
        check_body(bytes, limit)?;
        match self.in_flight.reserve(bytes) {
            Ok(reservation) => Ok(Admission { reservation, limit }),
            Err(e) => {
                self.metrics.requests_turned_away.inc();
                Err(turned_away(e))
            }
        }
    }

    /// Whether [`Pipeline::remote_write`] of `body` takes well below a millisecond and waits for
    /// no disk, so that it may run where others wait: going to another thread and back costs a
    /// tenth of a whole request.
    pub fn is_quick(&self, body: &[u8]) -> bool {
        let bytes = remote_write::message_bytes(body, &self.limits.wire);
        bytes.is_ok_and(|bytes| bytes <= QUICK_MESSAGE_BYTES_MAX) && !self.store.may_wait()
    }

    /// Decodes a remote-write 1.0 body that comes from `address` and hands its samples to the
    /// store. Computes on the calling thread; what is returned resolves when the samples are
    /// durable.
    pub fn remote_write(
        &self,
        tenant: &TenantId,
        address: Option<IpAddr>,
        body: &[u8],
    ) -> Result<PendingWrite, Error> {
        let metrics = &self.metrics;
        metrics.body_bytes.add(body.len() as u64);
        let sender = Sender::Push {
            tenant: tenant.clone(),
            address,
        };
        let pending = self.decode_and_append(tenant, sender, body);
        match &pending {
            Ok(_) => {}
            Err(e) if e.kind == ErrorKind::Unavailable => metrics.requests_turned_away.inc(),
            Err(_) => metrics.requests_invalid.inc(),
        }
        pending
    }

    fn decode_and_append(
        &self,
        tenant: &TenantId,
        sender: Sender,
        body: &[u8],
    ) -> Result<PendingWrite, Error> {
        let started = self.clock.monotonic();
        let message_bytes = remote_write::message_bytes(body, &self.limits.wire)?;
        // The message, and the labels, which take no more than it does.
        let mut memory = self
            .in_flight
            .reserve(message_bytes.saturating_mul(2))
            .map_err(turned_away)?;
        let mut decoder = self.take_decoder();
        decoder.keep_exemplars(self.takes_exemplars());
        let mut decoded = decoder.decode_within(body, Some(&mut memory))?;
        let decoding = self.clock.monotonic().saturating_sub(started);
        let mut pending = self.append_from(tenant, sender, &mut decoded);
        if decoded.is_misread() {
            // Nothing of it was stored.
            drop(decoded);
            decoded = decoder.decode_again(body, Some(&mut memory))?;
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
        if spare.len() < SPARE_BODIES_MAX && body.capacity() <= SPARE_BODY_BYTES_MAX {
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
        if spare.len() < SPARE_DECODERS_MAX && decoder.memory_bytes() <= SPARE_DECODER_BYTES_MAX {
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

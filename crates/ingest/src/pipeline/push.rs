//! Pushes of senders: remote write of both versions, from a body to what the sender is told.
//!
//! Invariant: a body was admitted before it came here, and its message has room before it is
//! unpacked.

use super::ledger::{BatchEntry, Ledger};
use super::room::Admission;
use super::{Pipeline, Sender};
use crate::metadata::Names;
use crate::outcome::{Decoding, Dropped, DroppedExemplars, WriteOutcome};
use crate::sending::KeptRequest;
use firn_model::error::Error;
use firn_model::sample::TimestampMs;
use firn_model::store::{Append, Appended, Ticket};
use firn_model::sync::lock;
use firn_model::tenant::TenantId;
use firn_model::trace::SpanContext;
use firn_wire::remote_write::{self, Contents, Decoded, Decoder, Reader, Version};
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// The part of a push's span in which its body becomes a batch.
pub(super) const DECODE: &str = "writeDecode";

/// The part in which the batch comes into the head, and to the log's queue.
pub(super) const APPEND: &str = "writeAppend";

/// A request of 2,000 samples, Prometheus's default, unpacks to 0.7 MiB and takes 0.3 ms.
const QUICK_MESSAGE_BYTES_MAX: usize = 1 << 20;

/// The same request of remote write 2.0, whose strings stand in it once.
const QUICK_INTERNED_BYTES_MAX: usize = QUICK_MESSAGE_BYTES_MAX / 4;

/// Where a push comes from, and how it is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// The address, if it comes over a socket.
    pub address: Option<IpAddr>,
    /// The version of remote write.
    pub version: Version,
}

impl Pipeline {
    /// Whether [`Pipeline::remote_write`] of `body` takes well below a millisecond and waits for
    /// no disk, so that it may run on an async worker. Going to another thread and back costs a
    /// push of 2,000 samples a tenth more CPU: 0.99 against 0.90 s for 1.9 million samples over
    /// four connections (medians of six turns each on two busy cores); its latency does not differ.
    pub fn is_quick(&self, version: Version, body: &[u8]) -> bool {
        let limit = match version {
            Version::V1 => QUICK_MESSAGE_BYTES_MAX,
            Version::V2 => QUICK_INTERNED_BYTES_MAX,
        };
        let bytes = remote_write::message_bytes(body, &self.limits.wire);
        bytes.is_ok_and(|bytes| bytes <= limit) && !self.store.may_wait()
    }

    /// Decodes a remote-write body and hands its samples to the store. Computes on the calling
    /// thread; what is returned resolves when the samples are durable. Room is taken now if
    /// [`Pipeline::prepare`] did not take it, and given back when they are. Both steps are parts of
    /// `span`.
    pub fn remote_write(
        &self,
        tenant: &TenantId,
        origin: Origin,
        body: &[u8],
        admission: Admission,
        span: Option<&SpanContext>,
    ) -> Result<PendingWrite, Error> {
        self.ledger.metrics.body_bytes.add(body.len() as u64);
        let sender = Sender::Push {
            tenant: tenant.clone(),
            address: origin.address,
        };
        let push = (sender, origin.version);
        let pending = self.decode_and_append(tenant, push, (body, span), admission);
        self.count_refused(&pending);
        pending
    }

    fn decode_and_append(
        &self,
        tenant: &TenantId,
        (sender, version): (Sender, Version),
        (body, span): (&[u8], Option<&SpanContext>),
        mut admission: Admission,
    ) -> Result<PendingWrite, Error> {
        let decode = SpanContext::begin_in(span, DECODE);
        let started = self.ledger.clock.monotonic();
        let message_bytes = remote_write::message_bytes(body, &self.limits.wire)?;
        admission.prepare(message_bytes)?;
        let mut decoder = self.take_decoder();
        let reader = Reader {
            version,
            keeps_exemplars: self.takes_exemplars(),
            labels_types: self.labels_types,
        };
        let mut decoded = decoder.decode_within(reader, body, admission.work.as_mut())?;
        let exemplars = decoded.batch.exemplars().len();
        let names = match version {
            Version::V1 => Names::Families,
            Version::V2 => Names::Series,
        };
        // Known before the samples come to aggregation.
        let now = self.ledger.clock.now_ms();
        let unkept = self.metadata.note(tenant, names, decoded.metadata, now);
        drop(decode);
        let decoded_at = self.ledger.clock.monotonic();
        let bounds = self.bounds_of(Some(&sender));
        let time_max = bounds.time_max;
        let entry = BatchEntry {
            sender: Some(sender.clone()),
            // The request keeps its room itself.
            room: None,
            time_max,
            started: decoded_at,
            body: self
                .sends_on(tenant)
                .then(|| kept_request(version, body, &decoded)),
        };
        let append = SpanContext::begin_in(span, APPEND);
        self.append_zeros(tenant, decoded.batch, &mut admission)?;
        let ticket = self.hand_over(tenant, &mut decoded, entry, bounds);
        drop(append);
        let decoding = decoded_at.saturating_sub(started);
        let metrics = &self.ledger.metrics;
        metrics.decode_duration.observe(decoding);
        metrics.message_bytes.add(message_bytes as u64);
        metrics.exemplars_ignored.add(decoded.exemplar_count as u64);
        metrics.metadata_ignored.add(unkept as u64);
        let log_bytes = decoded.log_bytes;
        let tells_exemplars = version == Version::V2;
        let refused_exemplars = decoded.refused_exemplars.iter();
        let mut decoding = Decoding {
            dropped: Vec::new(),
            exemplars: exemplars - decoded.lost_exemplars,
            dropped_exemplars: refused_exemplars.map(DroppedExemplars::from).collect(),
            tells_exemplars,
        };
        decoding.dropped = decoded.finish()?.iter().map(Dropped::from).collect();
        self.put_decoder(decoder);
        admission.keep_for_log(log_bytes);
        let from = (sender, time_max);
        Ok(PendingWrite::new(ticket, decoding, from, admission, self))
    }

    fn take_decoder(&self) -> Decoder {
        let spare = lock(&self.spare_decoders).pop();
        spare.unwrap_or_else(|| Decoder::new(self.limits.wire))
    }

    fn put_decoder(&self, decoder: Decoder) {
        let mut spare = lock(&self.spare_decoders);
        let limits = self.limits.spare;
        if spare.len() < limits.decoders && decoder.memory_bytes() <= limits.decoder_bytes {
            spare.push(decoder);
        }
    }
}

/// A push as it is kept for receivers, before its labels are read.
fn kept_request(version: Version, body: &[u8], decoded: &Decoded<'_>) -> KeptRequest {
    let batch = &*decoded.batch;
    let mut contents = Contents::of(batch, 0..batch.series_count());
    contents.exemplars += decoded.exemplar_count as u64;
    contents.metadata = decoded.metadata.len() as u64;
    KeptRequest {
        body: body.to_vec(),
        version,
        contents,
        is_sound: decoded.refused.is_empty() && decoded.refused_exemplars.is_empty(),
    }
}

/// A push on its way to the disk: await it, or [`PendingWrite::wait`] on a thread that may block.
#[must_use = "samples are durable only when this says so"]
pub struct PendingWrite {
    ticket: Ticket,
    /// What did not come to the store.
    decoding: Decoding,
    sender: Sender,
    time_max: TimestampMs,
    /// The room of the log record until it is on the disk.
    admission: Option<Admission>,
    ledger: Arc<Ledger>,
}

impl PendingWrite {
    /// What is known of a push that the store got as `ticket`.
    pub(super) fn new(
        ticket: Ticket,
        decoding: Decoding,
        (sender, time_max): (Sender, TimestampMs),
        admission: Admission,
        pipeline: &Pipeline,
    ) -> Self {
        Self {
            ticket,
            decoding,
            sender,
            time_max,
            admission: Some(admission),
            ledger: pipeline.ledger.clone(),
        }
    }

    /// Blocks the thread until the write is durable or can never be.
    pub fn wait(mut self) -> Result<WriteOutcome, Error> {
        let (resolved, _) = Ticket::new();
        let appended = std::mem::replace(&mut self.ticket, resolved).wait();
        self.settle(appended)
    }

    fn settle(&mut self, appended: Result<Appended, Error>) -> Result<WriteOutcome, Error> {
        self.admission = None;
        let metrics = &self.ledger.metrics;
        let appended = appended.inspect_err(|_| metrics.requests_failed.inc())?;
        let decoding = std::mem::take(&mut self.decoding);
        self.ledger
            .count_dropped(&self.sender, &decoding.dropped, self.time_max);
        let outcome = WriteOutcome::of_push(decoding, &appended);
        match outcome.is_whole() {
            true => metrics.requests_stored.inc(),
            false => metrics.requests_partial.inc(),
        }
        Ok(outcome)
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
            .field("decoding", &self.decoding)
            .finish_non_exhaustive()
    }
}

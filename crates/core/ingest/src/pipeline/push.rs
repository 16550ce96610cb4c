//! Handles pushes of remote write in both versions, from the body to the outcome for the response.
//!
//! Invariant: a body is admitted before it gets here, and memory for its message is reserved before
//! it is decompressed.

use super::decoded::{DecodedSizes, commit_when_stored};
use super::ledger::{PendingBatchEntry, WriteLedger};
use super::room::WriteAdmission;
use super::{Pipeline, SampleSender};
use crate::metadata::MetadataNameKind;
use crate::outcome::{DecodeOutcome, WriteOutcome};
use crate::sending::KeptRequest;
use firn_model::error::Error;
use firn_model::sample::TimestampMs;
use firn_model::store::{Append, AppendOutcome, Ticket};
use firn_model::sync::lock;
use firn_model::tenant::TenantId;
use firn_model::trace::SpanContext;
use firn_wire::remote_write::{
    self, DecodedWriteRequest, RemoteWriteDecoder, RemoteWriteOptions, RemoteWriteVersion,
    WriteRequestContents,
};
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// Name of the span in which the body is decoded to a batch.
pub(super) const DECODE: &str = "writeDecode";

/// Name of the span in which the batch is added to the head and to the queue of the log.
pub(super) const APPEND: &str = "writeAppend";

/// Largest message that is processed on an async worker, in bytes. A request of 2,000 samples,
/// Prometheus's default, decompresses to 0.7 MiB and takes 0.3 ms.
const QUICK_MESSAGE_BYTES_MAX: usize = 1 << 20;

/// The same for remote write 2.0, which contains each string only once.
const QUICK_INTERNED_BYTES_MAX: usize = QUICK_MESSAGE_BYTES_MAX / 4;

/// Origin and version of a push, known from the connection and the request headers. They decide
/// about decoding and log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PushOrigin {
    /// Address of the sender, if the request arrived over a socket.
    pub address: Option<IpAddr>,
    /// Version of remote write, from the content type.
    pub version: RemoteWriteVersion,
}

impl Pipeline {
    /// Returns whether [`Pipeline::write_remote`] will take well below a millisecond for `body`
    /// without waiting for a disk, so that it may run on an async worker. Switching to another
    /// thread and back costs a push of 2,000 samples a tenth more CPU time: 0.99 instead of 0.90 s
    /// for 1.9 million samples over four connections (medians of six runs each on two busy cores),
    /// without a difference in latency.
    pub fn is_quick(&self, version: RemoteWriteVersion, body: &[u8]) -> bool {
        let limit = match version {
            RemoteWriteVersion::V1 => QUICK_MESSAGE_BYTES_MAX,
            RemoteWriteVersion::V2 => QUICK_INTERNED_BYTES_MAX,
        };
        let bytes = remote_write::message_bytes(body, &self.limits.wire);
        bytes.is_ok_and(|bytes| bytes <= limit) && !self.store.may_wait()
    }

    /// Decodes a remote-write body and passes its samples to the store. Computes on the calling
    /// thread; the returned future resolves when the samples are durable. Reserves memory if
    /// [`Pipeline::reserve_message`] has not done so, and releases it when they are. Both steps
    /// become parts of `span`.
    pub fn write_remote(
        &self,
        tenant: &TenantId,
        origin: PushOrigin,
        body: &[u8],
        admission: WriteAdmission,
        span: Option<&SpanContext>,
    ) -> Result<PendingWrite, Error> {
        self.ledger.metrics.body_bytes.add(body.len() as u64);
        let sender = SampleSender::Push {
            tenant: tenant.clone(),
            address: origin.address,
        };
        let version = origin.version;
        let pending = self.decode_and_append(tenant, sender, version, body, span, admission);
        self.count_failed_request(&pending);
        pending
    }

    fn decode_and_append(
        &self,
        tenant: &TenantId,
        sender: SampleSender,
        version: RemoteWriteVersion,
        body: &[u8],
        span: Option<&SpanContext>,
        mut admission: WriteAdmission,
    ) -> Result<PendingWrite, Error> {
        let decode = SpanContext::begin_child_of(span, DECODE);
        let started = self.ledger.clock.monotonic();
        let message_bytes = remote_write::message_bytes(body, &self.limits.wire)?;
        admission.reserve_message(message_bytes)?;
        let limits = self.tenant_limits(tenant);
        let mut decoder = self.take_decoder();
        decoder.set_labels_max(self.labels_max(&limits));
        let reader = RemoteWriteOptions {
            version,
            keeps_exemplars: self.can_store_exemplars(),
            labels_types: self.labels_types,
        };
        let mut decoded = decoder.decode_within(reader, body, admission.work.as_mut())?;
        let exemplars = decoded.batch.exemplars().len();
        let bounds = self.append_bounds_for(Some(&sender));
        let time_max = bounds.time_max;
        let selection =
            self.admit_samples(tenant, &limits, &mut decoded, &mut admission, time_max)?;
        let names = metadata_names(version);
        // Stored before the samples are aggregated, which depends on the metric type.
        let now = self.ledger.clock.now_ms();
        let known = &self.metadata;
        let unkept = match &selection {
            Some(selection) if selection.is_empty => 0,
            _ => known.record_metadata(tenant, names, decoded.metadata, now),
        };
        drop(decode);
        let decoded_at = self.ledger.clock.monotonic();
        let entry = PendingBatchEntry {
            sender: Some(sender.clone()),
            // The request holds its own reservation.
            room: None,
            time_max,
            started: decoded_at,
            // The body contains the samples of all replicas.
            body: (selection.is_none() && self.is_forwarded(tenant))
                .then(|| build_kept_request(version, body, &decoded)),
        };
        let append = SpanContext::begin_child_of(span, APPEND);
        self.append_zeros(tenant, decoded.batch, &mut admission)?;
        let ticket = self.aggregate_and_store(tenant, &mut decoded, entry, bounds);
        let (ticket, deduplicated) = commit_when_stored(ticket, selection);
        drop(append);
        self.count_decoded(DecodedSizes {
            took: decoded_at.saturating_sub(started),
            message_bytes,
            exemplars_ignored: decoded.exemplar_count,
            metadata_ignored: unkept,
        });
        let log_bytes = decoded.log_bytes;
        let decoding = DecodeOutcome {
            tells_exemplars: version == RemoteWriteVersion::V2,
            deduplicated,
            ..DecodeOutcome::from_decoded(decoded, exemplars)?
        };
        self.put_decoder(decoder);
        admission.shrink_to_log_block(log_bytes);
        Ok(PendingWrite::new(
            ticket, decoding, sender, time_max, admission, self,
        ))
    }

    fn take_decoder(&self) -> RemoteWriteDecoder {
        let spare = lock(&self.spare_decoders).pop();
        spare.unwrap_or_else(|| RemoteWriteDecoder::new(self.limits.wire))
    }

    fn put_decoder(&self, decoder: RemoteWriteDecoder) {
        let mut spare = lock(&self.spare_decoders);
        let limits = self.limits.spare;
        if spare.len() < limits.decoders && decoder.memory_bytes() <= limits.decoder_bytes {
            spare.push(decoder);
        }
    }
}

/// Returns the kind of names in the metadata of a version.
fn metadata_names(version: RemoteWriteVersion) -> MetadataNameKind {
    match version {
        RemoteWriteVersion::V1 => MetadataNameKind::Families,
        RemoteWriteVersion::V2 => MetadataNameKind::Series,
    }
}

/// Returns a push in the form in which it is queued for receivers, before its labels are decoded.
fn build_kept_request(
    version: RemoteWriteVersion,
    body: &[u8],
    decoded: &DecodedWriteRequest<'_>,
) -> KeptRequest {
    let batch = &*decoded.batch;
    let mut contents = WriteRequestContents::from_batch(batch, 0..batch.series_count());
    contents.exemplars += decoded.exemplar_count as u64;
    contents.metadata = decoded.metadata.len() as u64;
    KeptRequest {
        body: body.to_vec(),
        version,
        contents,
        is_sound: decoded.refused.is_empty() && decoded.refused_exemplars.is_empty(),
    }
}

/// A push that is not durable yet: await it, or call [`PendingWrite::wait`] on a thread that may
/// block.
#[must_use = "samples are durable only when this says so"]
pub struct PendingWrite {
    ticket: Ticket,
    /// Result of decoding, with the samples that did not reach the store.
    decoding: DecodeOutcome,
    sender: SampleSender,
    time_max: TimestampMs,
    /// Memory reservation of the log record until it is durable.
    admission: Option<WriteAdmission>,
    ledger: Arc<WriteLedger>,
}

impl PendingWrite {
    /// Returns the pending state of a push for which the store returned `ticket`.
    pub(super) fn new(
        ticket: Ticket,
        decoding: DecodeOutcome,
        sender: SampleSender,
        time_max: TimestampMs,
        admission: WriteAdmission,
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

    /// Blocks the thread until the write is durable or has failed.
    pub fn wait(mut self) -> Result<WriteOutcome, Error> {
        let (resolved, _) = Ticket::new();
        let appended = std::mem::replace(&mut self.ticket, resolved).wait();
        self.record_outcome(appended)
    }

    fn record_outcome(
        &mut self,
        appended: Result<AppendOutcome, Error>,
    ) -> Result<WriteOutcome, Error> {
        self.admission = None;
        let metrics = &self.ledger.metrics;
        let appended = appended.inspect_err(|_| metrics.requests_failed.inc())?;
        let decoding = std::mem::take(&mut self.decoding);
        self.ledger
            .count_dropped(&self.sender, &decoding.dropped, self.time_max);
        let outcome = WriteOutcome::from_push(decoding, &appended);
        if outcome.is_complete() {
            metrics.requests_stored.inc()
        } else {
            metrics.requests_partial.inc()
        }
        Ok(outcome)
    }
}

impl Future for PendingWrite {
    type Output = Result<WriteOutcome, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let appended = ready!(Pin::new(&mut self.ticket).poll(cx));
        Poll::Ready(self.record_outcome(appended))
    }
}

impl std::fmt::Debug for PendingWrite {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PendingWrite")
            .field("decoding", &self.decoding)
            .finish_non_exhaustive()
    }
}

//! Handles pushes of OTLP metrics, from the body to the outcome for the response.
//!
//! ```text
//! body -- gzip, within its reservation --> message (JSON: transcoded) -- decode --> batch -> store
//! ```
//!
//! Invariant: as for remote write, memory is reserved before it is allocated. The reservation for a
//! compressed body uses the size at its end, and grows if the output turns out to be larger.

use super::decoded::{DecodedSizes, commit_when_stored};
use super::ledger::PendingBatchEntry;
use super::push::PendingWrite;
use super::room::WriteAdmission;
use super::{Pipeline, SampleSender};
use crate::limits::WORK_MESSAGES;
use crate::metadata::MetadataNameKind;
use crate::outcome::DecodeOutcome;
use firn_model::error::{Error, ErrorKind};
use firn_model::store::{Append, AppendBounds};
use firn_model::sync::lock;
use firn_model::tenant::TenantId;
use firn_model::tenant_limits::TenantLimits;
use firn_model::trace::{SpanContext, TraceSpan};
use firn_wire::WireError;
use firn_wire::otlp::{
    self, OtlpDecodeOptions, OtlpDecoder, OtlpDeltaMode, OtlpEncoding, OtlpTranslation,
};
use firn_wire::remote_write::DecodedWriteRequest;
use firn_wire::unpack::{BodyDecompressor, ContentEncoding};
use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

/// Largest protobuf message that is processed on an async worker, in bytes. A request of 1,000
/// points has about 150 KiB and takes half a millisecond.
const QUICK_MESSAGE_BYTES_MAX: usize = 256 << 10;

/// The same for JSON, which is three times as long and takes three times as long.
const QUICK_JSON_BYTES_MAX: usize = 128 << 10;

/// Step in bytes by which the reservation for a message grows if it is longer than declared.
const GROW_BYTES: usize = 256 << 10;

/// Upstream's default of the look-back.
const LOOKBACK: Duration = Duration::from_secs(5 * 60);

/// The treatment of delta points, selected by feature flags; they are rejected by default, as in
/// upstream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeltaMode {
    /// Reject delta points with an error text.
    #[default]
    Refuse,
    /// Store delta points unchanged (`otlp-native-delta-ingestion`).
    Keep,
    /// Accumulate delta points to cumulative ones (`otlp-deltatocumulative`).
    Accumulate,
}

/// An OTLP request that is being decoded: its sender, the begin of decoding, and its spans.
struct OtlpRequestContext<'a> {
    tenant: &'a TenantId,
    origin: OtlpOrigin,
    started: Duration,
    /// The span of the decoding, which ends before the samples are passed to the store.
    decode: TraceSpan,
    /// The parent of all spans of the request.
    span: Option<&'a SpanContext>,
    limits: Arc<TenantLimits>,
}

/// Origin and encoding of an OTLP body, known from the connection and the request headers.
#[derive(Clone, Copy, Debug)]
pub struct OtlpOrigin {
    /// Address of the sender, if the request arrived over a socket.
    pub address: Option<IpAddr>,
    /// Encoding of the message, protobuf or JSON.
    pub format: OtlpEncoding,
    /// Compression of the body: none or gzip.
    pub packing: ContentEncoding,
}

/// Settings for decoding OTLP. The translation changes with the configuration, the others are fixed
/// at the start.
#[derive(Debug)]
pub(super) struct OtlpSettings {
    translation: RwLock<Arc<OtlpTranslation>>,
    mode: DeltaMode,
    info_step: Duration,
}

impl Default for OtlpSettings {
    fn default() -> Self {
        Self {
            translation: RwLock::default(),
            mode: DeltaMode::Refuse,
            info_step: LOOKBACK / 2,
        }
    }
}

impl Pipeline {
    /// Sets the treatment of delta points, and the distance of `target_info` samples to half the
    /// `lookback` of queries; zero means upstream's default look-back.
    #[must_use]
    pub fn with_otlp_settings(mut self, mode: DeltaMode, lookback: Duration) -> Self {
        self.otlp.mode = mode;
        self.otlp.info_step = if lookback.is_zero() {
            LOOKBACK / 2
        } else {
            lookback / 2
        };
        self
    }

    /// Decodes OTLP with `translation` from now on. Requests that are already being decoded keep
    /// the previous translation.
    pub fn set_translation(&self, translation: OtlpTranslation) {
        let known = &self.otlp.translation;
        *known.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(translation);
    }

    /// Returns the memory of accumulated delta streams in bytes.
    pub fn deltas_bytes(&self) -> usize {
        self.deltas.memory_bytes()
    }

    /// Reserves memory for processing `body`, and waits until it is available. Fails like
    /// [`Pipeline::admit`], and if the declared uncompressed size exceeds the limit.
    pub async fn prepare_otlp(
        &self,
        admission: &mut WriteAdmission,
        origin: OtlpOrigin,
        body: &[u8],
    ) -> Result<(), Error> {
        let outcome = match self.declared_body_bytes(origin, body) {
            Ok(bytes) => admission.wait_for_message(bytes).await,
            Err(e) => Err(e),
        };
        self.count_failed_request(&outcome);
        outcome
    }

    /// Returns whether [`Pipeline::write_otlp`] will take at most about a millisecond for `body`
    /// without waiting for a disk, so that it may run on an async worker.
    pub fn is_otlp_quick(&self, origin: OtlpOrigin, body: &[u8]) -> bool {
        let limit = match origin.format {
            OtlpEncoding::Protobuf => QUICK_MESSAGE_BYTES_MAX,
            OtlpEncoding::Json => QUICK_JSON_BYTES_MAX,
        };
        let bytes = self.declared_body_bytes(origin, body);
        bytes.is_ok_and(|bytes| bytes <= limit) && !self.store.may_wait()
    }

    /// Decodes an OTLP body and passes its samples to the store. Computes on the calling thread;
    /// the returned future resolves when the samples are durable. Both steps become parts of
    /// `span`.
    pub fn write_otlp(
        &self,
        tenant: &TenantId,
        origin: OtlpOrigin,
        body: &[u8],
        admission: WriteAdmission,
        span: Option<&SpanContext>,
    ) -> Result<PendingWrite, Error> {
        self.ledger.metrics.body_bytes.add(body.len() as u64);
        let pending = self.decode_otlp(tenant, origin, body, span, admission);
        self.count_failed_request(&pending);
        pending
    }

    fn decode_otlp(
        &self,
        tenant: &TenantId,
        origin: OtlpOrigin,
        body: &[u8],
        span: Option<&SpanContext>,
        mut admission: WriteAdmission,
    ) -> Result<PendingWrite, Error> {
        let decode = SpanContext::begin_child_of(span, super::push::DECODE);
        let started = self.ledger.clock.monotonic();
        admission.reserve_message(self.declared_body_bytes(origin, body)?)?;
        let message = self.decompress_message(origin, body, &mut admission)?;
        let limits = self.tenant_limits(tenant);
        let mut decoder = self.take_otlp_decoder();
        let request = OtlpRequestContext {
            tenant,
            origin,
            started,
            decode,
            span,
            limits,
        };
        let write = self.append_otlp(request, &message, &mut decoder, admission)?;
        self.put_otlp_decoder(decoder);
        Ok(write)
    }

    /// Decodes `message`, stores its metadata, and passes its samples to the store.
    /// Fails if the message as a whole is invalid or memory is exhausted.
    fn append_otlp(
        &self,
        request: OtlpRequestContext<'_>,
        message: &[u8],
        decoder: &mut OtlpDecoder,
        mut admission: WriteAdmission,
    ) -> Result<PendingWrite, Error> {
        let tenant = request.tenant;
        let sender = SampleSender::Push {
            tenant: tenant.clone(),
            address: request.origin.address,
        };
        let translation = self.otlp.translation.read();
        let translation = translation.unwrap_or_else(PoisonError::into_inner).clone();
        let reader = OtlpDecodeOptions {
            translation: &translation,
            keeps_exemplars: self.can_store_exemplars(),
            labels_types: self.labels_types,
            info_step_ns: self.otlp.info_step.as_nanos() as u64,
        };
        let mut adding =
            (self.otlp.mode == DeltaMode::Accumulate).then(|| self.deltas.accumulator_for(tenant));
        let deltas = match &mut adding {
            Some(adding) => OtlpDeltaMode::Accumulate(adding),
            None if self.otlp.mode == DeltaMode::Keep => OtlpDeltaMode::Keep,
            None => OtlpDeltaMode::Refuse,
        };
        let limits = &request.limits;
        decoder.set_labels_max(self.labels_max(limits));
        let memory = admission.work.as_mut();
        let read = decoder.decode_within(&reader, deltas, message, memory)?;
        let (mut decoded, mut target_info) = (read.points, read.target_info);
        let exemplars = decoded.batch.exemplars().len();
        let bounds = self.append_bounds_for(Some(&sender));
        let time_max = bounds.time_max;
        let selection =
            self.admit_samples(tenant, limits, &mut decoded, &mut admission, time_max)?;
        // Stored before the samples are aggregated, which depends on the metric type.
        let now = self.ledger.clock.now_ms();
        let (known, names) = (&self.metadata, MetadataNameKind::Families);
        let unkept = match &selection {
            Some(selection) if selection.is_empty => 0,
            _ => known.record_metadata(tenant, names, decoded.metadata, now),
        };
        drop(request.decode);
        let decoded_at = self.ledger.clock.monotonic();
        let entry = request_entry(&sender, bounds, decoded_at);
        let append = SpanContext::begin_child_of(request.span, super::push::APPEND);
        self.append_zeros(tenant, decoded.batch, &mut admission)?;
        self.append_target_info(tenant, &mut target_info, &sender, limits, &mut admission)?;
        let ticket = self.aggregate_and_store(tenant, &mut decoded, entry, bounds);
        let (ticket, deduplicated) = commit_when_stored(ticket, selection);
        drop(append);
        self.count_decoded(DecodedSizes {
            took: decoded_at.saturating_sub(request.started),
            message_bytes: message.len(),
            exemplars_ignored: decoded.exemplar_count,
            metadata_ignored: unkept,
        });
        admission.shrink_to_log_block(decoded.log_bytes + target_info.log_bytes);
        let decoding = DecodeOutcome {
            // Senders repeat exemplars, whose rejections are not reported, as in upstream.
            tells_exemplars: false,
            deduplicated,
            ..DecodeOutcome::from_decoded(decoded, exemplars)?
        };
        Ok(PendingWrite::new(
            ticket, decoding, sender, time_max, admission, self,
        ))
    }

    /// Passes the `target_info` samples to the store. Rejected ones are counted and logged but not
    /// reported to the sender, who did not send them. They are durable when the points are, which
    /// follow them in the log. Fails if there is no memory.
    fn append_target_info(
        &self,
        tenant: &TenantId,
        samples: &mut DecodedWriteRequest<'_>,
        sender: &SampleSender,
        limits: &TenantLimits,
        admission: &mut WriteAdmission,
    ) -> Result<(), Error> {
        if samples.batch.series_count() == 0 {
            return Ok(());
        }
        let bounds = self.append_bounds_for(Some(sender));
        let selection =
            self.select_replicas(tenant, limits, samples, admission, bounds.time_max)?;
        let entry = request_entry(sender, bounds, self.ledger.clock.monotonic());
        let ticket = self.aggregate_and_store(tenant, samples, entry, bounds);
        drop(commit_when_stored(ticket, selection));
        Ok(())
    }

    /// Returns the uncompressed size that `body` declares, in bytes; fails if it exceeds the limit.
    fn declared_body_bytes(&self, origin: OtlpOrigin, body: &[u8]) -> Result<usize, Error> {
        let declared = match (origin.packing, body.last_chunk::<4>()) {
            // A gzip member ends with its uncompressed length.
            (ContentEncoding::Gzip, Some(end)) => u32::from_le_bytes(*end) as usize,
            _ => body.len(),
        };
        let limit = self.limits.wire.message_bytes_max;
        if declared > limit {
            Err(too_large_error(declared, limit))
        } else {
            Ok(declared)
        }
    }

    /// Returns the request in protobuf, in memory that `admission` has reserved. Fails if the body
    /// is invalid or exceeds a limit.
    fn decompress_message<'b>(
        &self,
        origin: OtlpOrigin,
        body: &'b [u8],
        admission: &mut WriteAdmission,
    ) -> Result<Cow<'b, [u8]>, Error> {
        let limit = self.limits.wire.message_bytes_max;
        let unpacked = match origin.packing {
            ContentEncoding::None => Cow::Borrowed(body),
            packing => {
                let declared = self.declared_body_bytes(origin, body)?;
                Cow::Owned(unpack_body(packing, body, declared, limit, admission)?)
            }
        };
        match origin.format {
            OtlpEncoding::Protobuf => Ok(unpacked),
            // A JSON field has at least two bytes, and becomes at most nine here.
            OtlpEncoding::Json => {
                let mut message = Vec::new();
                otlp::to_protobuf(&unpacked, limit, &mut message)?;
                Ok(Cow::Owned(message))
            }
        }
    }

    fn take_otlp_decoder(&self) -> OtlpDecoder {
        let spare = lock(&self.spare_otlp_decoders).pop();
        spare.unwrap_or_else(|| OtlpDecoder::new(self.limits.wire))
    }

    /// Keeps a decoder for later requests, if the decoders of remote write leave space for it.
    fn put_otlp_decoder(&self, decoder: OtlpDecoder) {
        let limits = self.limits.spare;
        let others = lock(&self.spare_decoders).len();
        let mut spare = lock(&self.spare_otlp_decoders);
        if others + spare.len() < limits.decoders && decoder.memory_bytes() <= limits.decoder_bytes
        {
            spare.push(decoder);
        }
    }
}

/// Returns the ledger entry of a request's batch, which holds its own memory reservation. Forwarded
/// batches are encoded again as remote write 1.0.
fn request_entry(
    sender: &SampleSender,
    bounds: AppendBounds,
    started: Duration,
) -> PendingBatchEntry {
    PendingBatchEntry {
        sender: Some(sender.clone()),
        room: None,
        time_max: bounds.time_max,
        started,
        body: None,
    }
}

fn too_large_error(bytes: usize, limit: usize) -> Error {
    let bytes = bytes as u64;
    WireError::MessageTooLarge { bytes, limit }.into()
}

/// Decompresses a body to at most `limit` bytes, of which `declared` are reserved already. Fails if
/// the body is invalid or longer.
fn unpack_body(
    packing: ContentEncoding,
    body: &[u8],
    declared: usize,
    limit: usize,
    admission: &mut WriteAdmission,
) -> Result<Vec<u8>, Error> {
    if body.is_empty() {
        let message = "gzip: the body is empty";
        return Err(Error::new(ErrorKind::Invalid, message.to_owned()));
    }
    let mut unpacker = BodyDecompressor::new(packing, 0);
    let (mut out, mut taken, mut room) = (Vec::new(), 0, declared);
    loop {
        let rest = body.get(taken..).unwrap_or_default();
        taken += unpacker.decompress(rest, true, &mut out, room + 1)?;
        if out.len() <= room {
            return Ok(out);
        }
        if room == limit {
            return Err(too_large_error(out.len(), limit));
        }
        // There are several members, or the declared length was too small.
        let more = GROW_BYTES.max(room).min(limit - room);
        if let Some(work) = &mut admission.work {
            work.grow(more.saturating_mul(WORK_MESSAGES))?;
        }
        room += more;
    }
}

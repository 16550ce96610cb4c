//! Handles pushes of OTLP metrics, from the body to the outcome for the response.
//!
//! ```text
//! body -- gzip, within its reservation --> message (JSON: transcoded) -- decode --> batch -> store
//! ```
//!
//! Invariant: as for remote write, memory is reserved before it is allocated. The reservation for a
//! compressed body uses the size at its end, and grows if the output turns out to be larger.

use super::ledger::BatchEntry;
use super::push::PendingWrite;
use super::room::Admission;
use super::{Pipeline, Sender};
use crate::deltas;
use crate::limits::WORK_MESSAGES;
use crate::metadata::Names;
use crate::outcome::{Decoding, Dropped, DroppedExemplars};
use firn_model::error::{Error, ErrorKind};
use firn_model::store::{Append, AppendBounds};
use firn_model::sync::lock;
use firn_model::tenant::TenantId;
use firn_model::trace::{Span, SpanContext};
use firn_wire::WireError;
use firn_wire::otlp::{self, Decoder, Deltas, Format, Reader, Translation};
use firn_wire::remote_write::Decoded;
use firn_wire::unpack::{Packing, Unpacker};
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

/// Origin and encoding of an OTLP body, known from the connection and the request headers.
#[derive(Clone, Copy, Debug)]
pub struct OtlpOrigin {
    /// Address of the sender, if the request arrived over a socket.
    pub address: Option<IpAddr>,
    /// Encoding of the message, protobuf or JSON.
    pub format: Format,
    /// Compression of the body: none or gzip.
    pub packing: Packing,
}

/// Settings for decoding OTLP. The translation changes with the configuration, the others are fixed
/// at the start.
#[derive(Debug)]
pub(super) struct OtlpSettings {
    translation: RwLock<Arc<Translation>>,
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
    pub fn taking_otlp(mut self, mode: DeltaMode, lookback: Duration) -> Self {
        self.otlp.mode = mode;
        self.otlp.info_step = match lookback.is_zero() {
            true => LOOKBACK / 2,
            false => lookback / 2,
        };
        self
    }

    /// Decodes OTLP with `translation` from now on. Requests that are already being decoded keep
    /// the previous translation.
    pub fn translate_by(&self, translation: Translation) {
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
        admission: &mut Admission,
        origin: OtlpOrigin,
        body: &[u8],
    ) -> Result<(), Error> {
        let outcome = match self.declared_bytes(origin, body) {
            Ok(bytes) => admission.wait_to_prepare(bytes).await,
            Err(e) => Err(e),
        };
        self.count_refused(&outcome);
        outcome
    }

    /// Returns whether [`Pipeline::otlp`] will take at most about a millisecond for `body` without
    /// waiting for a disk, so that it may run on an async worker.
    pub fn is_quick_otlp(&self, origin: OtlpOrigin, body: &[u8]) -> bool {
        let limit = match origin.format {
            Format::Protobuf => QUICK_MESSAGE_BYTES_MAX,
            Format::Json => QUICK_JSON_BYTES_MAX,
        };
        let bytes = self.declared_bytes(origin, body);
        bytes.is_ok_and(|bytes| bytes <= limit) && !self.store.may_wait()
    }

    /// Decodes an OTLP body and passes its samples to the store. Computes on the calling thread;
    /// the returned future resolves when the samples are durable. Both steps become parts of
    /// `span`.
    pub fn otlp(
        &self,
        tenant: &TenantId,
        origin: OtlpOrigin,
        body: &[u8],
        admission: Admission,
        span: Option<&SpanContext>,
    ) -> Result<PendingWrite, Error> {
        self.ledger.metrics.body_bytes.add(body.len() as u64);
        let pending = self.decode_otlp(tenant, origin, (body, span), admission);
        self.count_refused(&pending);
        pending
    }

    fn decode_otlp(
        &self,
        tenant: &TenantId,
        origin: OtlpOrigin,
        (body, span): (&[u8], Option<&SpanContext>),
        mut admission: Admission,
    ) -> Result<PendingWrite, Error> {
        let decode = SpanContext::begin_in(span, super::push::DECODE);
        let started = self.ledger.clock.monotonic();
        admission.prepare(self.declared_bytes(origin, body)?)?;
        let message = self.message(origin, body, &mut admission)?;
        let mut decoder = self.take_otlp_decoder();
        let write = self.append_otlp(
            (tenant, origin, started),
            &message,
            (&mut decoder, admission),
            (decode, span),
        )?;
        self.put_otlp_decoder(decoder);
        Ok(write)
    }

    /// Decodes `message`, stores its metadata, and passes its samples to the store. Fails if the
    /// message as a whole is invalid or memory is exhausted.
    fn append_otlp(
        &self,
        (tenant, origin, started): (&TenantId, OtlpOrigin, Duration),
        message: &[u8],
        (decoder, mut admission): (&mut Decoder, Admission),
        (decode, span): (Span, Option<&SpanContext>),
    ) -> Result<PendingWrite, Error> {
        let sender = Sender::Push {
            tenant: tenant.clone(),
            address: origin.address,
        };
        let translation = self.otlp.translation.read();
        let translation = translation.unwrap_or_else(PoisonError::into_inner).clone();
        let reader = Reader {
            translation: &translation,
            keeps_exemplars: self.takes_exemplars(),
            labels_types: self.labels_types,
            info_step_ns: self.otlp.info_step.as_nanos() as u64,
        };
        let mut adding: deltas::Adding<'_>;
        let deltas = match self.otlp.mode {
            DeltaMode::Refuse => Deltas::Refuse,
            DeltaMode::Keep => Deltas::Keep,
            DeltaMode::Accumulate => {
                adding = self.deltas.of(tenant);
                Deltas::Accumulate(&mut adding)
            }
        };
        let memory = admission.work.as_mut();
        let read = decoder.decode_within((&reader, deltas), message, memory)?;
        let (mut decoded, mut target_info) = (read.points, read.target_info);
        let exemplars = decoded.batch.exemplars().len();
        // Stored before the samples are aggregated, which depends on the metric type.
        let now = self.ledger.clock.now_ms();
        let known = &self.metadata;
        let unkept = known.note(tenant, Names::Families, decoded.metadata, now);
        drop(decode);
        let decoded_at = self.ledger.clock.monotonic();
        let bounds = self.bounds_of(Some(&sender));
        let time_max = bounds.time_max;
        let entry = entry_of_request(&sender, bounds, decoded_at);
        let append = SpanContext::begin_in(span, super::push::APPEND);
        self.append_zeros(tenant, decoded.batch, &mut admission)?;
        self.append_target_info(tenant, &mut target_info, &sender);
        let ticket = self.hand_over(tenant, &mut decoded, entry, bounds);
        drop(append);
        let metrics = &self.ledger.metrics;
        let took = decoded_at.saturating_sub(started);
        metrics.decode_duration.observe(took);
        metrics.message_bytes.add(message.len() as u64);
        metrics.exemplars_ignored.add(decoded.exemplar_count as u64);
        metrics.metadata_ignored.add(unkept as u64);
        admission.keep_for_log(decoded.log_bytes + target_info.log_bytes);
        let refused_exemplars = decoded.refused_exemplars.iter();
        let decoding = Decoding {
            exemplars: exemplars - decoded.lost_exemplars,
            dropped_exemplars: refused_exemplars.map(DroppedExemplars::from).collect(),
            // Senders repeat exemplars, whose rejections are not reported, as in upstream.
            tells_exemplars: false,
            dropped: decoded.finish()?.iter().map(Dropped::from).collect(),
        };
        let from = (sender, time_max);
        Ok(PendingWrite::new(ticket, decoding, from, admission, self))
    }

    /// Passes the `target_info` samples to the store. Rejected ones are counted and logged but not
    /// reported to the sender, who did not send them. They are durable when the points are, which
    /// follow them in the log.
    fn append_target_info(&self, tenant: &TenantId, samples: &mut Decoded<'_>, sender: &Sender) {
        if samples.batch.series_count() == 0 {
            return;
        }
        let bounds = self.bounds_of(Some(sender));
        let entry = entry_of_request(sender, bounds, self.ledger.clock.monotonic());
        drop(self.hand_over(tenant, samples, entry, bounds));
    }

    /// Returns the uncompressed size that `body` declares, in bytes; fails if it exceeds the limit.
    fn declared_bytes(&self, origin: OtlpOrigin, body: &[u8]) -> Result<usize, Error> {
        let declared = match (origin.packing, body.last_chunk::<4>()) {
            // A gzip member ends with its uncompressed length.
            (Packing::Gzip, Some(end)) => u32::from_le_bytes(*end) as usize,
            _ => body.len(),
        };
        let limit = self.limits.wire.message_bytes_max;
        match declared > limit {
            true => Err(too_large(declared, limit)),
            false => Ok(declared),
        }
    }

    /// Returns the request in protobuf, in memory that `admission` has reserved. Fails if the body
    /// is invalid or exceeds a limit.
    fn message<'b>(
        &self,
        origin: OtlpOrigin,
        body: &'b [u8],
        admission: &mut Admission,
    ) -> Result<Cow<'b, [u8]>, Error> {
        let limit = self.limits.wire.message_bytes_max;
        let unpacked = match origin.packing {
            Packing::None => Cow::Borrowed(body),
            packing => {
                let declared = self.declared_bytes(origin, body)?;
                Cow::Owned(unpack((packing, body), (declared, limit), admission)?)
            }
        };
        match origin.format {
            Format::Protobuf => Ok(unpacked),
            // A JSON field has at least two bytes, and becomes at most nine here.
            Format::Json => {
                let mut message = Vec::new();
                otlp::to_protobuf(&unpacked, limit, &mut message)?;
                Ok(Cow::Owned(message))
            }
        }
    }

    fn take_otlp_decoder(&self) -> Decoder {
        let spare = lock(&self.spare_otlp_decoders).pop();
        spare.unwrap_or_else(|| Decoder::new(self.limits.wire))
    }

    /// Keeps a decoder for later requests, if the decoders of remote write leave space for it.
    fn put_otlp_decoder(&self, decoder: Decoder) {
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
fn entry_of_request(sender: &Sender, bounds: AppendBounds, started: Duration) -> BatchEntry {
    BatchEntry {
        sender: Some(sender.clone()),
        room: None,
        time_max: bounds.time_max,
        started,
        body: None,
    }
}

fn too_large(bytes: usize, limit: usize) -> Error {
    let bytes = bytes as u64;
    WireError::MessageTooLarge { bytes, limit }.into()
}

/// Decompresses a body to at most `limit` bytes, of which `declared` are reserved already. Fails if
/// the body is invalid or longer.
fn unpack(
    (packing, body): (Packing, &[u8]),
    (declared, limit): (usize, usize),
    admission: &mut Admission,
) -> Result<Vec<u8>, Error> {
    if body.is_empty() {
        let message = "gzip: the body is empty";
        return Err(Error::new(ErrorKind::Invalid, message.to_owned()));
    }
    let mut unpacker = Unpacker::new(packing, 0);
    let (mut out, mut taken, mut room) = (Vec::new(), 0, declared);
    loop {
        let rest = body.get(taken..).unwrap_or_default();
        taken += unpacker.unpack(rest, true, &mut out, room + 1)?;
        if out.len() <= room {
            return Ok(out);
        }
        if room == limit {
            return Err(too_large(out.len(), limit));
        }
        // There are several members, or the declared length was too small.
        let more = GROW_BYTES.max(room).min(limit - room);
        if let Some(work) = &mut admission.work {
            work.grow(more.saturating_mul(WORK_MESSAGES))?;
        }
        room += more;
    }
}

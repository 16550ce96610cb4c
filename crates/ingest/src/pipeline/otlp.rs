//! Pushes of OTLP metrics, from a body to what the sender is told.
//!
//! ```text
//! body -- gzip, within its room --> message (JSON: read into one) -- decode --> batch --> store
//! ```
//!
//! Invariant: as for remote write, what is made of a body has room before it is made. How much a
//! packed body unpacks to is what its end says, and room for more is taken as more comes.

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

/// A request of 1,000 points in protocol buffers has some 150 KiB and takes half a millisecond.
const QUICK_MESSAGE_BYTES_MAX: usize = 256 << 10;

/// The same in JSON is three times as long and takes three times as long.
const QUICK_JSON_BYTES_MAX: usize = 128 << 10;

/// Bytes by which room for a message grows whose end did not say how long it is.
const GROW_BYTES: usize = 256 << 10;

/// Upstream's default of the lookback.
const LOOKBACK: Duration = Duration::from_secs(5 * 60);

/// What is done with points that count since the one before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeltaMode {
    /// They are refused.
    #[default]
    Refuse,
    /// They are stored as they are: `otlp-native-delta-ingestion`.
    Keep,
    /// They are added up: `otlp-deltatocumulative`.
    Accumulate,
}

/// A body of OTLP, and where it comes from.
#[derive(Clone, Copy, Debug)]
pub struct OtlpOrigin {
    /// The address, if it comes over a socket.
    pub address: Option<IpAddr>,
    /// What is in the body.
    pub format: Format,
    /// How the body is packed: not at all or with gzip.
    pub packing: Packing,
}

/// How OTLP is read; the translation changes with the configuration.
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
    /// The pipeline, with deltas of OTLP treated as `mode` says, and `target_info` often enough
    /// that queries that look back so far find it; zero is upstream's default.
    #[must_use]
    pub fn taking_otlp(mut self, mode: DeltaMode, lookback: Duration) -> Self {
        self.otlp.mode = mode;
        self.otlp.info_step = match lookback.is_zero() {
            true => LOOKBACK / 2,
            false => lookback / 2,
        };
        self
    }

    /// Reads OTLP by `translation` from here on.
    pub fn translate_by(&self, translation: Translation) {
        let known = &self.otlp.translation;
        *known.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(translation);
    }

    /// Bytes of memory of deltas that are added up.
    pub fn deltas_bytes(&self) -> usize {
        self.deltas.memory_bytes()
    }

    /// Waits for room for the work on `body`. Fails as [`Pipeline::admit`] does, and for a body
    /// that is longer than allowed once it is unpacked.
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

    /// Whether [`Pipeline::otlp`] of `body` takes about a millisecond at most and waits for no
    /// disk, so that it may run on an async worker.
    pub fn is_quick_otlp(&self, origin: OtlpOrigin, body: &[u8]) -> bool {
        let limit = match origin.format {
            Format::Protobuf => QUICK_MESSAGE_BYTES_MAX,
            Format::Json => QUICK_JSON_BYTES_MAX,
        };
        let bytes = self.declared_bytes(origin, body);
        bytes.is_ok_and(|bytes| bytes <= limit) && !self.store.may_wait()
    }

    /// Decodes a body of OTLP and hands its samples to the store. Computes on the calling thread;
    /// what is returned resolves when the samples are durable. Both steps are parts of `span`.
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

    /// Decodes `message` and hands over what is in it.
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
        // Known before the samples come to aggregation.
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
            // Senders repeat exemplars, and are not told of those, as upstream.
            tells_exemplars: false,
            dropped: decoded.finish()?.iter().map(Dropped::from).collect(),
        };
        let from = (sender, time_max);
        Ok(PendingWrite::new(ticket, decoding, from, admission, self))
    }

    /// Hands over the samples of `target_info`. Those that the store refuses are counted and
    /// logged, but the sender did not send them and its answer does not mention them. They are
    /// durable when the points are, which follow them in the log.
    fn append_target_info(&self, tenant: &TenantId, samples: &mut Decoded<'_>, sender: &Sender) {
        if samples.batch.series_count() == 0 {
            return;
        }
        let bounds = self.bounds_of(Some(sender));
        let entry = entry_of_request(sender, bounds, self.ledger.clock.monotonic());
        drop(self.hand_over(tenant, samples, entry, bounds));
    }

    /// Bytes that `body` says that it unpacks to; fails if that is over the limit.
    fn declared_bytes(&self, origin: OtlpOrigin, body: &[u8]) -> Result<usize, Error> {
        let declared = match (origin.packing, body.last_chunk::<4>()) {
            // A member of gzip ends with its length.
            (Packing::Gzip, Some(end)) => u32::from_le_bytes(*end) as usize,
            _ => body.len(),
        };
        let limit = self.limits.wire.message_bytes_max;
        match declared > limit {
            true => Err(too_large(declared, limit)),
            false => Ok(declared),
        }
    }

    /// The request in protocol buffers, in memory that `admission` has room for.
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
            // A field of JSON takes two bytes at least, and nine here at most.
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

    /// Keeps a decoder, where those of remote write leave room for it.
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

/// The entry of a batch of a request, which keeps its room itself. Receivers get requests of remote
/// write 1.0, written anew.
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

/// Unpacks a body, for which there is room for `declared` bytes, to at most `limit`.
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
        // Several members, or an end that lies.
        let more = GROW_BYTES.max(room).min(limit - room);
        if let Some(work) = &mut admission.work {
            work.grow(more.saturating_mul(WORK_MESSAGES))?;
        }
        room += more;
    }
}

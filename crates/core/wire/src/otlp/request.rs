//! Walks through the resources, scopes and metrics of a request.
//!
//! ```text
//! ExportMetricsServiceRequest
//!   ResourceMetrics   attributes --> job, instance, promoted labels; target_info afterwards
//!     ScopeMetrics    --> scope labels
//!       Metric        --> name, metadata, overlay of labels for its points
//!         points      --> series, in emit
//! ```
//!
//! Fields may occur in any order, so that each message is scanned first for the fields that apply
//! to all of it. Invalid parts are counted by their points and do not affect the rest of the
//! request.

use super::field::{data, request, resource, resource_metrics, scope, scope_metrics};
use super::label_names::LabelNameCache;
use super::labels::{LabelOverlay, PointLabelSet};
use super::metric::{NameParts, OtlpMetricFields, TranslatedMetric};
use super::order::LabelOrderCache;
use super::point::{
    ExplicitHistogramPoint, ExponentialHistogramPoint, PointCommonFields, PointTimes, SummaryPoint,
    push_part,
};
use super::stream::{self, OtlpStreamId};
use super::target_info::TargetInfoBuilder;
use super::text::{GeneratedTexts, LabelText};
use super::trouble::OtlpDecodeError;
use super::value::{self, OtlpAttribute};
use super::{OtlpDecodeOptions, OtlpDeltaMode};
use crate::error::WireError;
use crate::limits::WireLimits;
use crate::protobuf::{ProtobufCursor, WireType, expect_wire_type};
use crate::remote_write::{
    KEY_FORMAT, RequestMemoryAccount, SeriesRejection, WriteRejectionCounts, WriteRejectionReason,
};
use firn_model::batch::Batch;
use firn_model::budget::Reservation;
use firn_model::metadata::MetadataBatch;
use rustc_hash::FxHashMap;

/// Attributes that identify a resource and become the labels `job` and `instance`.
pub(super) const SERVICE_NAME: &[u8] = b"service.name";
pub(super) const SERVICE_NAMESPACE: &[u8] = b"service.namespace";
pub(super) const SERVICE_INSTANCE: &[u8] = b"service.instance.id";

/// The state of a request that is being decoded: options, output batches, caches, and working
/// memory for the current point.
pub(super) struct OtlpRequestDecoder<'d, 'a, 'm> {
    pub(super) reader: &'d OtlpDecodeOptions<'a>,
    pub(super) deltas: OtlpDeltaMode<'a>,
    pub(super) limits: &'d WireLimits,
    pub(super) batch: &'d mut Batch,
    pub(super) metadata: &'d mut MetadataBatch,
    pub(super) keys: Vec<u8>,
    pub(super) charges: RequestMemoryAccount<'d>,
    pub(super) counts: WriteRejectionCounts,
    pub(super) made: GeneratedTexts,
    pub(super) names: LabelNameCache<'m>,
    /// Metrics that occurred before in the request.
    pub(super) metrics: FxHashMap<NameParts<'m>, TranslatedMetric<'m>>,
    /// Labels of the current point.
    pub(super) set: PointLabelSet<'m>,
    /// Labels that the points of the current metric share.
    pub(super) overlay: LabelOverlay<'m>,
    /// Cache of the orders in which attributes became labels.
    pub(super) orders: LabelOrderCache<'m>,
    pub(super) frame: PointCommonFields<'m>,
    pub(super) explicit: ExplicitHistogramPoint,
    pub(super) exponential: ExponentialHistogramPoint,
    pub(super) summary: SummaryPoint,
    /// Texts of bucket bounds and quantiles, by the bits of the float.
    pub(super) bounds: FxHashMap<u64, LabelText<'static>>,
    pub(super) target_info: TargetInfoBuilder<'d>,
    pub(super) series_count: usize,
}

/// The batches that a request is decoded into.
pub(super) struct OtlpBatches<'d> {
    pub(super) points: &'d mut Batch,
    pub(super) target_info: &'d mut Batch,
    pub(super) metadata: &'d mut MetadataBatch,
}

/// The resource whose points are being read, with the labels that identify it and those promoted
/// from its attributes. It ends with the `target_info` series.
pub(super) struct OtlpResource<'m> {
    pub(super) attributes: Vec<(&'m [u8], LabelText<'m>)>,
    pub(super) job: Option<LabelText<'m>>,
    pub(super) instance: Option<LabelText<'m>>,
    overlay: LabelOverlay<'m>,
    stream: OtlpStreamId,
    /// Times of the oldest and the newest valid point, in nanoseconds.
    pub(super) span: Option<(u64, u64)>,
}

/// Properties that all metrics of a scope share: overlay of labels and stream identity. They are
/// those of the resource, extended by the scope's.
pub(super) struct OtlpScope<'m> {
    pub(super) overlay: LabelOverlay<'m>,
    pub(super) stream: OtlpStreamId,
}

impl<'d, 'a, 'm> OtlpRequestDecoder<'d, 'a, 'm> {
    pub(super) fn new(
        reader: &'d OtlpDecodeOptions<'a>,
        deltas: OtlpDeltaMode<'a>,
        limits: &'d WireLimits,
        into: OtlpBatches<'d>,
        made: Vec<u8>,
        memory: Option<&'d mut Reservation>,
    ) -> Self {
        let OtlpBatches {
            points: batch,
            target_info,
            metadata,
        } = into;
        let mut keys = batch.take_message();
        keys.clear();
        Self {
            reader,
            deltas,
            limits,
            batch,
            metadata,
            keys,
            charges: RequestMemoryAccount::new(limits, memory),
            counts: WriteRejectionCounts::default(),
            made: GeneratedTexts::new(made),
            names: LabelNameCache::default(),
            metrics: FxHashMap::default(),
            set: PointLabelSet::default(),
            overlay: LabelOverlay::default(),
            orders: LabelOrderCache::default(),
            frame: PointCommonFields::default(),
            explicit: ExplicitHistogramPoint::default(),
            exponential: ExponentialHistogramPoint::default(),
            summary: SummaryPoint::default(),
            bounds: FxHashMap::default(),
            target_info: TargetInfoBuilder::new(target_info),
            series_count: 0,
        }
    }

    pub(super) fn read(&mut self, message: &'m [u8]) -> Result<(), WireError> {
        for_each_field(message, request::RESOURCE_METRICS, |message| {
            Ok(self.read_resource_metrics(message)?)
        })
        .map_err(wire_error)
    }

    /// Moves the keys into the batches; returns the buffer of generated texts and the counts of
    /// rejected parts.
    pub(super) fn finish(self) -> (Vec<u8>, WriteRejectionCounts) {
        self.batch.put_message(self.keys, KEY_FORMAT);
        self.target_info.finish();
        (self.made.into_bytes(), self.counts)
    }

    /// Counts `count` rejected points under the reason of `offence`, whose text is kept for
    /// the first one.
    pub(super) fn count_rejected(&mut self, count: usize, offence: SeriesRejection) {
        let (at, refusal) = (self.keys.len(), offence.refusal);
        self.counts
            .refused
            .add(at, refusal, count, || offence.message);
    }

    /// Returns an attribute value as text, and charges its memory if it had to be generated. Fails
    /// if the value is too long or nests too deeply.
    pub(super) fn attribute_text(
        &mut self,
        value: &'m [u8],
    ) -> Result<LabelText<'m>, OtlpDecodeError> {
        let before = self.made.len();
        let text = value::text(value, self.limits.label_value_bytes_max, &mut self.made)?;
        self.charges.add(self.made.len() - before)?;
        Ok(text)
    }

    fn read_resource_metrics(&mut self, message: &'m [u8]) -> Result<(), WireError> {
        let mut resource = match self.read_resource(message) {
            Ok(resource) => resource,
            Err(OtlpDecodeError::Message(e)) => return Err(e),
            Err(OtlpDecodeError::Point(offence)) => {
                let count = count_points_of_resource(message)?;
                self.count_rejected(count, offence);
                return Ok(());
            }
        };
        for_each_field(message, resource_metrics::SCOPE_METRICS, |message| {
            Ok(self.read_scope_metrics(message, &mut resource)?)
        })
        .map_err(wire_error)?;
        match self.push_target_info(&resource) {
            Err(OtlpDecodeError::Message(e)) => Err(e),
            Err(OtlpDecodeError::Point(offence)) => {
                self.count_rejected(0, offence);
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    fn read_resource(&mut self, message: &'m [u8]) -> Result<OtlpResource<'m>, OtlpDecodeError> {
        let mut parts = Vec::new();
        for_each_field(message, resource_metrics::RESOURCE, |resource| {
            for_each_field(resource, resource::ATTRIBUTES, |part| {
                push_part(&mut parts, part)
            })
        })?;
        let mut attributes = Vec::with_capacity(parts.len());
        for part in parts {
            let OtlpAttribute { key, value } = value::decode_attribute(part)?;
            attributes.push((key, self.attribute_text(value)?));
        }
        let find = |wanted: &[u8]| {
            let found = attributes.iter().find(|(key, _)| *key == wanted);
            found.map(|(_, value)| *value)
        };
        let instance = find(SERVICE_INSTANCE);
        let job = match (find(SERVICE_NAME), find(SERVICE_NAMESPACE)) {
            (Some(name), Some(namespace)) => {
                let text = [self.made.get(namespace), b"/", self.made.get(name)].concat();
                Some(self.made.push(&text))
            }
            (name, _) => name,
        };
        let overlay = self.promoted_labels(&attributes)?;
        let mut resource = OtlpResource {
            stream: OtlpStreamId::default(),
            overlay,
            job: job.filter(|job| !job.is_empty()),
            instance: instance.filter(|instance| !instance.is_empty()),
            attributes,
            span: None,
        };
        let mut overlay = std::mem::take(&mut resource.overlay);
        resource.push_identity_labels(&mut overlay, &self.made);
        self.encode_overlay(&mut overlay)?;
        resource.overlay = overlay;
        if self.deltas.is_accumulating() {
            resource.stream = stream::from_attributes(&resource.attributes, &self.made);
        }
        Ok(resource)
    }

    /// Encodes the labels of an overlay that have no encoding yet, after reserving their memory.
    /// Fails if the memory limit is reached.
    pub(super) fn encode_overlay(
        &mut self,
        overlay: &mut LabelOverlay<'m>,
    ) -> Result<(), WireError> {
        self.charges.add(overlay.plain_bytes())?;
        overlay.encode_labels(&mut self.made);
        Ok(())
    }

    /// Returns the labels of promoted attributes. If several become the same label, the last one
    /// wins. Fails if a key cannot be translated.
    fn promoted_labels(
        &mut self,
        attributes: &[(&'m [u8], LabelText<'m>)],
    ) -> Result<LabelOverlay<'m>, OtlpDecodeError> {
        let translation = self.reader.translation;
        let mut overlay = LabelOverlay::default();
        for (key, value) in attributes {
            let text = std::str::from_utf8(key).unwrap_or_default();
            if translation.promotion.is_promoted(text) {
                let name = self.names.get(key, translation, &mut self.made)?;
                overlay.set_default(name, *value, &self.made);
            }
        }
        Ok(overlay)
    }

    fn read_scope_metrics(
        &mut self,
        message: &'m [u8],
        resource: &mut OtlpResource<'m>,
    ) -> Result<(), WireError> {
        let scope = match self.read_scope(message, resource) {
            Ok(scope) => scope,
            Err(OtlpDecodeError::Message(e)) => return Err(e),
            Err(OtlpDecodeError::Point(offence)) => {
                let count = count_points_of_scope(message)?;
                self.count_rejected(count, offence);
                return Ok(());
            }
        };
        for_each_field(message, scope_metrics::METRICS, |message| {
            Ok(self.read_metric(message, &scope, resource)?)
        })
        .map_err(wire_error)
    }

    fn read_scope(
        &mut self,
        message: &'m [u8],
        resource: &OtlpResource<'m>,
    ) -> Result<OtlpScope<'m>, OtlpDecodeError> {
        let (mut name, mut version, mut url): (&[u8], &[u8], &[u8]) = (&[], &[], &[]);
        let mut parts = Vec::new();
        for_each_field(message, scope_metrics::SCHEMA_URL, |text| {
            url = text;
            Ok(())
        })?;
        for_each_field(message, scope_metrics::SCOPE, |message| {
            for_each_field(message, scope::NAME, |text| {
                name = text;
                Ok(())
            })?;
            for_each_field(message, scope::VERSION, |text| {
                version = text;
                Ok(())
            })?;
            for_each_field(message, scope::ATTRIBUTES, |part| {
                push_part(&mut parts, part)
            })
        })?;
        let mut overlay = resource.overlay.clone();
        let accumulates = self.deltas.is_accumulating();
        let is_promoted = self.reader.translation.promotes_scope && !name.is_empty();
        let mut stream = resource.stream;
        if !is_promoted && !accumulates {
            return Ok(OtlpScope { overlay, stream });
        }
        let mut attributes = Vec::with_capacity(parts.len());
        for part in parts {
            let OtlpAttribute { key, value } = value::decode_attribute(part)?;
            attributes.push((key, self.attribute_text(value)?));
        }
        if accumulates {
            stream = stream.with_texts(&[name, version]);
            stream = stream.with_child(stream::from_attributes(&attributes, &self.made));
        }
        if is_promoted {
            self.promote_scope(&attributes, [name, version, url], &mut overlay)?;
            self.encode_overlay(&mut overlay)?;
        }
        Ok(OtlpScope { overlay, stream })
    }

    fn promote_scope(
        &mut self,
        attributes: &[(&'m [u8], LabelText<'m>)],
        [name, version, url]: [&'m [u8]; 3],
        overlay: &mut LabelOverlay<'m>,
    ) -> Result<(), OtlpDecodeError> {
        for (key, value) in attributes {
            let key = [b"otel_scope_", *key].concat();
            let label = super::label_names::label_name(&key, self.reader.translation).map_err(
                |message| OtlpDecodeError::reject_point(WriteRejectionReason::LabelName, message),
            )?;
            let label = self.made.push(&label);
            overlay.set(label, *value, &self.made);
        }
        for (label, value) in [
            ("otel_scope_name", name),
            ("otel_scope_version", version),
            ("otel_scope_schema_url", url),
        ] {
            let label = LabelText::Message(label.as_bytes());
            overlay.set(label, LabelText::Message(value), &self.made);
        }
        Ok(())
    }
}

impl<'m> OtlpResource<'m> {
    /// Adds the labels `job` and `instance`, which identify the resource, to the overlay.
    pub(super) fn push_identity_labels(
        &self,
        overlay: &mut LabelOverlay<'m>,
        made: &GeneratedTexts,
    ) {
        for (label, value) in [("instance", self.instance), ("job", self.job)] {
            if let Some(value) = value {
                overlay.set(LabelText::Message(label.as_bytes()), value, made);
            }
        }
    }

    pub(super) fn record_times(&mut self, times: PointTimes) {
        let (oldest, newest) = self.span.unwrap_or((times.time, times.time));
        self.span = Some((oldest.min(times.time), newest.max(times.time)));
    }
}

/// Reads the bytes of a length-delimited field; fails for another wire type.
pub(super) fn read_text<'m>(
    wire_type: WireType,
    cursor: &mut ProtobufCursor<'m>,
) -> Result<&'m [u8], WireError> {
    expect_wire_type(wire_type, WireType::Bytes)?;
    cursor.read_bytes()
}

/// Calls `take` with each length-delimited field of `message` that has the number `wanted`. Stops
/// at the first error.
pub(super) fn for_each_field<'m>(
    message: &'m [u8],
    wanted: u32,
    mut take: impl FnMut(&'m [u8]) -> Result<(), OtlpDecodeError>,
) -> Result<(), OtlpDecodeError> {
    let mut cursor = ProtobufCursor::new(message);
    while let Some((number, wire_type)) = cursor.read_field()? {
        if number == wanted {
            take(read_text(wire_type, &mut cursor)?)?
        } else {
            cursor.skip(wire_type)?
        }
    }
    Ok(())
}

/// Returns the error of a walk in which rejected points were already counted.
pub(super) fn wire_error(trouble: OtlpDecodeError) -> WireError {
    match trouble {
        OtlpDecodeError::Message(e) => e,
        OtlpDecodeError::Point(_) => WireError::Protobuf("a part cannot be read"),
    }
}

/// Returns the number of fields `wanted` in `message`. Fails if the message is malformed.
pub(super) fn count_fields(message: &[u8], wanted: u32) -> Result<usize, WireError> {
    let mut count = 0;
    for_each_field(message, wanted, |_| {
        count += 1;
        Ok(())
    })
    .map_err(wire_error)?;
    Ok(count)
}

fn count_points_of_resource(message: &[u8]) -> Result<usize, WireError> {
    let mut points = 0;
    for_each_field(message, resource_metrics::SCOPE_METRICS, |scope| {
        points += count_points_of_scope(scope)?;
        Ok(())
    })
    .map_err(wire_error)?;
    Ok(points)
}

fn count_points_of_scope(message: &[u8]) -> Result<usize, WireError> {
    let mut points = 0;
    for_each_field(message, scope_metrics::METRICS, |metric| {
        if let Some((_, message)) = OtlpMetricFields::read(metric)?.data {
            points += count_fields(message, data::POINTS)?;
        }
        Ok(())
    })
    .map_err(wire_error)?;
    Ok(points)
}

//! Decodes the metrics of a scope: name, metadata, overlay, and then their points.

use super::OtlpDeltaMode;
use super::field::{data, metric};
use super::names::{MetricSuffixKind, translate_metric_name, translate_unit};
use super::request::{
    OtlpRequestDecoder, OtlpResource, OtlpScope, count_fields, for_each_field, read_text,
    wire_error,
};
use super::stream::OtlpStreamId;
use super::text::LabelText;
use super::trouble::OtlpDecodeError;
use crate::error::WireError;
use crate::protobuf::{ProtobufCursor, WireType};
use crate::remote_write::{ReceivedMetadata, SeriesRejection, WriteRejectionReason, push_metadata};
use firn_model::labels::METRIC_NAME;
use firn_model::metadata::MetricType;

/// Values of the aggregation temporality in the protocol.
const DELTA: u64 = 1;
const CUMULATIVE: u64 = 2;

/// The metric whose points are being read, after its name was translated. Copied into the functions
/// that decode points.
#[derive(Clone, Copy, Debug)]
pub(super) struct OtlpMetric<'m> {
    pub(super) name: LabelText<'m>,
    /// Number of the field that contains its data.
    pub(super) kind: u32,
    /// True if its points are deltas that are stored unchanged.
    pub(super) is_delta: bool,
    /// True if its points are deltas that are accumulated.
    pub(super) accumulates: bool,
    pub(super) stream: OtlpStreamId,
}

/// The properties that determine the name of a metric: name, unit, and the kind that affects the
/// suffix. Metrics with equal properties share a [`TranslatedMetric`].
pub(super) type NameParts<'m> = (&'m [u8], &'m [u8], MetricSuffixKind);

/// Cached results for a metric that occurred before in the request, usually in another resource.
/// They save the translation of the name and repeated metadata.
#[derive(Clone, Copy, Debug)]
pub(super) struct TranslatedMetric<'m> {
    /// The translated name.
    name: LabelText<'m>,
    /// The metadata that was written last, to avoid duplicates.
    said: Option<(&'m [u8], MetricType)>,
}

/// The fields of a `OtlpMetric` message that are needed before its points; the data is not decoded.
/// A first pass over the message collects them.
#[derive(Default)]
pub(super) struct OtlpMetricFields<'m> {
    name: &'m [u8],
    description: &'m [u8],
    unit: &'m [u8],
    pub(super) data: Option<(u32, &'m [u8])>,
    temporality: u64,
    is_monotonic: bool,
}

impl<'m> OtlpRequestDecoder<'_, '_, 'm> {
    pub(super) fn read_metric(
        &mut self,
        message: &'m [u8],
        scope: &OtlpScope<'m>,
        resource: &mut OtlpResource<'m>,
    ) -> Result<(), WireError> {
        let parts = OtlpMetricFields::read(message).map_err(wire_error)?;
        let Some((kind, points)) = parts.data else {
            let name = String::from_utf8_lossy(parts.name);
            let offence = SeriesRejection {
                refusal: WriteRejectionReason::MetricType,
                message: format!(
                    "could not get aggregation temporality for {name} as it has unsupported \
                     metric type Empty"
                ),
            };
            self.count_rejected(0, offence);
            return Ok(());
        };
        let metric = match self.translate_metric(&parts, kind, scope) {
            Ok(metric) => metric,
            Err(OtlpDecodeError::Message(e)) => return Err(e),
            Err(OtlpDecodeError::Point(offence)) => {
                let count = count_fields(points, data::POINTS)?;
                self.count_rejected(count, offence);
                return Ok(());
            }
        };
        let mut standing = 0;
        for_each_field(points, data::POINTS, |message| {
            match self.push_point(&metric, message) {
                Ok(times) => {
                    standing += 1;
                    resource.record_times(times);
                }
                Err(OtlpDecodeError::Point(offence)) => {
                    self.batch.drop_series();
                    self.count_rejected(1, offence);
                }
                Err(e) => return Err(e),
            }
            Ok(())
        })
        .map_err(wire_error)?;
        match standing {
            0 => Ok(()),
            _ => self.push_metadata(&parts, &metric),
        }
    }

    /// Translates the metric and computes its overlay of labels, which is the same for all its
    /// points. Fails if its name cannot be translated or its temporality is not supported.
    fn translate_metric(
        &mut self,
        parts: &OtlpMetricFields<'m>,
        kind: u32,
        scope: &OtlpScope<'m>,
    ) -> Result<OtlpMetric<'m>, OtlpDecodeError> {
        let text = |bytes| {
            std::str::from_utf8(bytes).map_err(|_| {
                let shown = String::from_utf8_lossy(bytes);
                let what = format!("name or unit of the metric {shown:?} is not UTF-8");
                OtlpDecodeError::reject_point(WriteRejectionReason::MetricName, what)
            })
        };
        let (name, unit) = (text(parts.name)?, text(parts.unit)?);
        let has_temporality = !matches!(kind, metric::GAUGE | metric::SUMMARY);
        let is_delta = has_temporality && parts.temporality == DELTA;
        let is_taken = match parts.temporality {
            CUMULATIVE => true,
            DELTA => !matches!(self.deltas, OtlpDeltaMode::Refuse),
            _ => false,
        };
        if has_temporality && !is_taken {
            let what = format!("invalid temporality and type combination for metric {name:?}");
            return Err(OtlpDecodeError::reject_point(
                WriteRejectionReason::Temporality,
                what,
            ));
        }
        let translated = match self.metrics.get(&parts.name_parts(kind)) {
            Some(known) => known.name,
            None => self.translate_name(name, unit, parts, kind)?,
        };
        let accumulates = is_delta && self.deltas.is_accumulating();
        let metric = OtlpMetric {
            name: translated,
            kind,
            is_delta: is_delta && !accumulates,
            accumulates,
            stream: if accumulates {
                scope.stream.with_texts(&[
                    parts.name,
                    parts.unit,
                    &[kind as u8, u8::from(parts.is_monotonic)],
                ])
            } else {
                OtlpStreamId::default()
            },
        };
        self.overlay.copy_from(&scope.overlay);
        if self.reader.labels_types {
            self.push_type_labels(parts, &metric);
        }
        let label = LabelText::Message(METRIC_NAME.as_bytes());
        self.overlay.set(label, metric.name, &self.made);
        let mut overlay = std::mem::take(&mut self.overlay);
        let formed = self.encode_overlay(&mut overlay);
        self.overlay = overlay;
        formed?;
        self.orders.begin(&self.overlay, &self.made);
        Ok(metric)
    }

    /// Translates the name of a metric and caches it for later metrics of the request. Fails if
    /// that is impossible.
    fn translate_name(
        &mut self,
        name: &str,
        unit: &str,
        parts: &OtlpMetricFields<'m>,
        kind: u32,
    ) -> Result<LabelText<'m>, OtlpDecodeError> {
        let key = parts.name_parts(kind);
        let translated = translate_metric_name(name, unit, key.2, self.reader.translation)
            .map_err(|message| {
                OtlpDecodeError::reject_point(WriteRejectionReason::MetricName, message)
            })?;
        let entry = size_of::<(NameParts<'_>, TranslatedMetric<'_>)>();
        self.charges.add(translated.len() + entry)?;
        let name = if *translated == *name {
            LabelText::Message(parts.name)
        } else {
            self.made.push(translated.as_bytes())
        };
        let said = None;
        self.metrics.insert(key, TranslatedMetric { name, said });
        Ok(name)
    }

    /// Adds the labels for type and unit to the overlay.
    fn push_type_labels(&mut self, parts: &OtlpMetricFields<'m>, metric: &OtlpMetric<'m>) {
        let kind = parts.metric_type(metric);
        if kind != MetricType::Unknown {
            let (label, value) = (b"__type__", kind.name().as_bytes());
            let (label, value) = (LabelText::Message(label), LabelText::Message(value));
            self.overlay.set(label, value, &self.made);
        }
        let unit = parts.unit_name();
        if !unit.is_empty() {
            // Applied twice, as in upstream: the unit of the metadata is translated again.
            let unit = translate_unit(&unit, self.reader.translation.strategy.is_escaping());
            let value = self.made.push(unit.as_bytes());
            self.overlay
                .set(LabelText::Message(b"__unit__"), value, &self.made);
        }
    }

    /// Adds the metadata of a metric to the batch, unless the same was added before. Fails if the
    /// batch exceeds its limit.
    fn push_metadata(
        &mut self,
        parts: &OtlpMetricFields<'m>,
        metric: &OtlpMetric<'m>,
    ) -> Result<(), WireError> {
        let new = Some((parts.description, parts.metric_type(metric)));
        if let Some(known) = self.metrics.get_mut(&parts.name_parts(metric.kind)) {
            if known.said == new {
                return Ok(());
            }
            known.said = new;
        }
        let unit = parts.unit_name();
        let metadata = ReceivedMetadata {
            name: self.made.get(metric.name),
            kind: parts.metric_type(metric),
            help: parts.description,
            unit: unit.as_bytes(),
        };
        push_metadata(metadata, &mut self.charges, self.metadata)
    }
}

impl<'m> OtlpMetricFields<'m> {
    pub(super) fn read(message: &'m [u8]) -> Result<Self, OtlpDecodeError> {
        let mut parts = Self::default();
        let mut cursor = ProtobufCursor::new(message);
        while let Some((number, wire_type)) = cursor.read_field()? {
            match number {
                metric::NAME => parts.name = read_text(wire_type, &mut cursor)?,
                metric::DESCRIPTION => parts.description = read_text(wire_type, &mut cursor)?,
                metric::UNIT => parts.unit = read_text(wire_type, &mut cursor)?,
                metric::GAUGE
                | metric::SUM
                | metric::HISTOGRAM
                | metric::EXPONENTIAL_HISTOGRAM
                | metric::SUMMARY => {
                    parts.data = Some((number, read_text(wire_type, &mut cursor)?))
                }
                _ => cursor.skip(wire_type)?,
            }
        }
        if let Some((_, points)) = parts.data {
            let mut cursor = ProtobufCursor::new(points);
            while let Some((number, wire_type)) = cursor.read_field()? {
                match (number, wire_type) {
                    (data::TEMPORALITY, WireType::Varint) => {
                        parts.temporality = cursor.read_varint()?
                    }
                    (data::IS_MONOTONIC, WireType::Varint) => {
                        parts.is_monotonic = cursor.read_varint()? != 0;
                    }
                    _ => cursor.skip(wire_type)?,
                }
            }
        }
        Ok(parts)
    }

    /// Returns the properties that determine the name of the metric, whose data is in the field
    /// `kind`.
    fn name_parts(&self, kind: u32) -> NameParts<'m> {
        let named = match kind {
            metric::SUM if self.is_monotonic => MetricSuffixKind::Counter,
            metric::GAUGE => MetricSuffixKind::Gauge,
            _ => MetricSuffixKind::Other,
        };
        (self.name, self.unit, named)
    }

    fn metric_type(&self, metric: &OtlpMetric<'_>) -> MetricType {
        match metric.kind {
            _ if metric.is_delta => MetricType::Unknown,
            metric::SUM if self.is_monotonic => MetricType::Counter,
            metric::GAUGE | metric::SUM => MetricType::Gauge,
            metric::SUMMARY => MetricType::Summary,
            _ => MetricType::Histogram,
        }
    }

    fn unit_name(&self) -> String {
        translate_unit(std::str::from_utf8(self.unit).unwrap_or_default(), true)
    }
}

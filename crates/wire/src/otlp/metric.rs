//! Decodes the metrics of a scope: name, metadata, overlay, and then their points.

use super::Deltas;
use super::field::{data, metric};
use super::names::{NamedKind, metric_name, unit_name};
use super::request::{Resource, Scope, Walk, count, each, text, wire_error};
use super::stream::Stream;
use super::text::Text;
use super::trouble::Trouble;
use crate::error::WireError;
use crate::protobuf::{Cursor, WireType};
use crate::remote_write::{Offence, Refusal, push_metadata};
use firn_model::labels::METRIC_NAME;
use firn_model::metadata::MetricType;

/// Values of the aggregation temporality in the protocol.
const DELTA: u64 = 1;
const CUMULATIVE: u64 = 2;

/// The metric whose points are being read, after its name was translated. Copied into the functions
/// that decode points.
#[derive(Clone, Copy, Debug)]
pub(super) struct Metric<'m> {
    pub(super) name: Text<'m>,
    /// Number of the field that contains its data.
    pub(super) kind: u32,
    /// True if its points are deltas that are stored unchanged.
    pub(super) is_delta: bool,
    /// True if its points are deltas that are accumulated.
    pub(super) accumulates: bool,
    pub(super) stream: Stream,
}

/// The properties that determine the name of a metric: name, unit, and the kind that affects the
/// suffix. Metrics with equal properties share a [`KnownMetric`].
pub(super) type NameParts<'m> = (&'m [u8], &'m [u8], NamedKind);

/// Cached results for a metric that occurred before in the request, usually in another resource.
/// They save the translation of the name and repeated metadata.
#[derive(Clone, Copy, Debug)]
pub(super) struct KnownMetric<'m> {
    /// The translated name.
    name: Text<'m>,
    /// The metadata that was written last, to avoid duplicates.
    said: Option<(&'m [u8], MetricType)>,
}

/// The fields of a `Metric` message that are needed before its points; the data is not decoded. A
/// first pass over the message collects them.
#[derive(Default)]
pub(super) struct Parts<'m> {
    name: &'m [u8],
    description: &'m [u8],
    unit: &'m [u8],
    pub(super) data: Option<(u32, &'m [u8])>,
    temporality: u64,
    is_monotonic: bool,
}

impl<'m> Walk<'_, '_, 'm> {
    pub(super) fn metric(
        &mut self,
        message: &'m [u8],
        scope: &Scope<'m>,
        resource: &mut Resource<'m>,
    ) -> Result<(), WireError> {
        let parts = Parts::read(message).map_err(wire_error)?;
        let Some((kind, points)) = parts.data else {
            let name = String::from_utf8_lossy(parts.name);
            let offence = Offence {
                refusal: Refusal::MetricType,
                message: format!(
                    "could not get aggregation temporality for {name} as it has unsupported \
                     metric type Empty"
                ),
            };
            self.refuse(0, offence);
            return Ok(());
        };
        let metric = match self.named(&parts, kind, scope) {
            Ok(metric) => metric,
            Err(Trouble::Message(e)) => return Err(e),
            Err(Trouble::Point(offence)) => {
                let count = count(points, data::POINTS)?;
                self.refuse(count, offence);
                return Ok(());
            }
        };
        let mut standing = 0;
        each(points, data::POINTS, |message| {
            match self.point(&metric, message) {
                Ok(times) => {
                    standing += 1;
                    resource.note(times);
                }
                Err(Trouble::Point(offence)) => {
                    self.batch.drop_series();
                    self.refuse(1, offence);
                }
                Err(e) => return Err(e),
            }
            Ok(())
        })
        .map_err(wire_error)?;
        match standing {
            0 => Ok(()),
            _ => self.note_metadata(&parts, &metric),
        }
    }

    /// Translates the metric and computes its overlay of labels, which is the same for all its
    /// points. Fails if its name cannot be translated or its temporality is not supported.
    fn named(
        &mut self,
        parts: &Parts<'m>,
        kind: u32,
        scope: &Scope<'m>,
    ) -> Result<Metric<'m>, Trouble> {
        let text = |bytes| {
            std::str::from_utf8(bytes).map_err(|_| {
                let shown = String::from_utf8_lossy(bytes);
                let what = format!("name or unit of the metric {shown:?} is not UTF-8");
                Trouble::point(Refusal::MetricName, what)
            })
        };
        let (name, unit) = (text(parts.name)?, text(parts.unit)?);
        let has_temporality = !matches!(kind, metric::GAUGE | metric::SUMMARY);
        let is_delta = has_temporality && parts.temporality == DELTA;
        let is_taken = match parts.temporality {
            CUMULATIVE => true,
            DELTA => !matches!(self.deltas, Deltas::Refuse),
            _ => false,
        };
        if has_temporality && !is_taken {
            let what = format!("invalid temporality and type combination for metric {name:?}");
            return Err(Trouble::point(Refusal::Temporality, what));
        }
        let translated = match self.metrics.get(&parts.named(kind)) {
            Some(known) => known.name,
            None => self.translated((name, unit), parts, kind)?,
        };
        let accumulates = is_delta && self.deltas.accumulate();
        let metric = Metric {
            name: translated,
            kind,
            is_delta: is_delta && !accumulates,
            accumulates,
            stream: match accumulates {
                true => scope.stream.with(&[
                    parts.name,
                    parts.unit,
                    &[kind as u8, u8::from(parts.is_monotonic)],
                ]),
                false => Stream::default(),
            },
        };
        self.overlay.copy(&scope.overlay);
        if self.reader.labels_types {
            self.label_type(parts, &metric);
        }
        let label = Text::Message(METRIC_NAME.as_bytes());
        self.overlay.set(label, metric.name, &self.made);
        let mut overlay = std::mem::take(&mut self.overlay);
        let formed = self.form(&mut overlay);
        self.overlay = overlay;
        formed?;
        self.orders.begin(&self.overlay, &self.made);
        Ok(metric)
    }

    /// Translates the name of a metric and caches it for later metrics of the request. Fails if
    /// that is impossible.
    fn translated(
        &mut self,
        (name, unit): (&str, &str),
        parts: &Parts<'m>,
        kind: u32,
    ) -> Result<Text<'m>, Trouble> {
        let key = parts.named(kind);
        let translated = metric_name(name, unit, key.2, self.reader.translation)
            .map_err(|message| Trouble::point(Refusal::MetricName, message))?;
        let entry = size_of::<(NameParts<'_>, KnownMetric<'_>)>();
        self.charges.add(translated.len() + entry)?;
        let name = match *translated == *name {
            true => Text::Message(parts.name),
            false => self.made.push(translated.as_bytes()),
        };
        let said = None;
        self.metrics.insert(key, KnownMetric { name, said });
        Ok(name)
    }

    /// Adds the labels for type and unit to the overlay.
    fn label_type(&mut self, parts: &Parts<'m>, metric: &Metric<'m>) {
        let kind = parts.metric_type(metric);
        if kind != MetricType::Unknown {
            let (label, value) = (b"__type__", kind.name().as_bytes());
            let (label, value) = (Text::Message(label), Text::Message(value));
            self.overlay.set(label, value, &self.made);
        }
        let unit = parts.unit_name();
        if !unit.is_empty() {
            // Applied twice, as in upstream: the unit of the metadata is translated again.
            let unit = unit_name(&unit, self.reader.translation.strategy.escapes());
            let value = self.made.push(unit.as_bytes());
            self.overlay
                .set(Text::Message(b"__unit__"), value, &self.made);
        }
    }

    /// Adds the metadata of a metric to the batch, unless the same was added before. Fails if the
    /// batch exceeds its limit.
    fn note_metadata(&mut self, parts: &Parts<'m>, metric: &Metric<'m>) -> Result<(), WireError> {
        let new = Some((parts.description, parts.metric_type(metric)));
        if let Some(known) = self.metrics.get_mut(&parts.named(metric.kind)) {
            if known.said == new {
                return Ok(());
            }
            known.said = new;
        }
        let said = (self.made.get(metric.name), parts.metric_type(metric));
        let unit = parts.unit_name();
        let texts = (parts.description, unit.as_bytes());
        push_metadata(said, texts, &mut self.charges, self.metadata)
    }
}

impl<'m> Parts<'m> {
    pub(super) fn read(message: &'m [u8]) -> Result<Self, Trouble> {
        let mut parts = Self::default();
        let mut cursor = Cursor::new(message);
        while let Some((number, wire_type)) = cursor.field()? {
            match number {
                metric::NAME => parts.name = text(wire_type, &mut cursor)?,
                metric::DESCRIPTION => parts.description = text(wire_type, &mut cursor)?,
                metric::UNIT => parts.unit = text(wire_type, &mut cursor)?,
                metric::GAUGE
                | metric::SUM
                | metric::HISTOGRAM
                | metric::EXPONENTIAL_HISTOGRAM
                | metric::SUMMARY => parts.data = Some((number, text(wire_type, &mut cursor)?)),
                _ => cursor.skip(wire_type)?,
            }
        }
        if let Some((_, points)) = parts.data {
            let mut cursor = Cursor::new(points);
            while let Some((number, wire_type)) = cursor.field()? {
                match (number, wire_type) {
                    (data::TEMPORALITY, WireType::Varint) => parts.temporality = cursor.varint()?,
                    (data::IS_MONOTONIC, WireType::Varint) => {
                        parts.is_monotonic = cursor.varint()? != 0;
                    }
                    _ => cursor.skip(wire_type)?,
                }
            }
        }
        Ok(parts)
    }

    /// Returns the properties that determine the name of the metric, whose data is in the field
    /// `kind`.
    fn named(&self, kind: u32) -> NameParts<'m> {
        let named = match kind {
            metric::SUM if self.is_monotonic => NamedKind::Counter,
            metric::GAUGE => NamedKind::Gauge,
            _ => NamedKind::Other,
        };
        (self.name, self.unit, named)
    }

    fn metric_type(&self, metric: &Metric<'_>) -> MetricType {
        match metric.kind {
            _ if metric.is_delta => MetricType::Unknown,
            metric::SUM if self.is_monotonic => MetricType::Counter,
            metric::GAUGE | metric::SUM => MetricType::Gauge,
            metric::SUMMARY => MetricType::Summary,
            _ => MetricType::Histogram,
        }
    }

    fn unit_name(&self) -> String {
        unit_name(std::str::from_utf8(self.unit).unwrap_or_default(), true)
    }
}

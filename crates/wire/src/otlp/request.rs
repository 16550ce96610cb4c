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
use super::label_names::LabelNames;
use super::labels::{LabelSet, Overlay};
use super::metric::{KnownMetric, NameParts, Parts};
use super::order::Orders;
use super::point::{ExplicitPoint, ExponentialPoint, Frame, SummaryPoint, Times, push_part};
use super::stream::{self, Stream};
use super::target_info::TargetInfo;
use super::text::{Made, Text};
use super::trouble::Trouble;
use super::value::{self, Attribute};
use super::{Deltas, Reader};
use crate::error::WireError;
use crate::limits::WireLimits;
use crate::protobuf::{Cursor, WireType, expect};
use crate::remote_write::{Charges, Counts, KEY_FORMAT, Offence, Refusal};
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
pub(super) struct Walk<'d, 'a, 'm> {
    pub(super) reader: &'d Reader<'a>,
    pub(super) deltas: Deltas<'a>,
    pub(super) limits: &'d WireLimits,
    pub(super) batch: &'d mut Batch,
    pub(super) metadata: &'d mut MetadataBatch,
    pub(super) keys: Vec<u8>,
    pub(super) charges: Charges<'d>,
    pub(super) counts: Counts,
    pub(super) made: Made,
    pub(super) names: LabelNames<'m>,
    /// Metrics that occurred before in the request.
    pub(super) metrics: FxHashMap<NameParts<'m>, KnownMetric<'m>>,
    /// Labels of the current point.
    pub(super) set: LabelSet<'m>,
    /// Labels that the points of the current metric share.
    pub(super) overlay: Overlay<'m>,
    /// Cache of the orders in which attributes became labels.
    pub(super) orders: Orders<'m>,
    pub(super) frame: Frame<'m>,
    pub(super) explicit: ExplicitPoint,
    pub(super) exponential: ExponentialPoint,
    pub(super) summary: SummaryPoint,
    /// Texts of bucket bounds and quantiles, by the bits of the float.
    pub(super) bounds: FxHashMap<u64, Text<'static>>,
    pub(super) target_info: TargetInfo<'d>,
    pub(super) series_count: usize,
}

/// The resource whose points are being read, with the labels that identify it and those promoted
/// from its attributes. It ends with the `target_info` series.
pub(super) struct Resource<'m> {
    pub(super) attributes: Vec<(&'m [u8], Text<'m>)>,
    pub(super) job: Option<Text<'m>>,
    pub(super) instance: Option<Text<'m>>,
    overlay: Overlay<'m>,
    stream: Stream,
    /// Times of the oldest and the newest valid point, in nanoseconds.
    pub(super) span: Option<(u64, u64)>,
}

/// Properties that all metrics of a scope share: overlay of labels and stream identity. They are
/// those of the resource, extended by the scope's.
pub(super) struct Scope<'m> {
    pub(super) overlay: Overlay<'m>,
    pub(super) stream: Stream,
}

impl<'d, 'a, 'm> Walk<'d, 'a, 'm> {
    pub(super) fn new(
        (reader, deltas): (&'d Reader<'a>, Deltas<'a>),
        limits: &'d WireLimits,
        (batch, target_info, metadata): (&'d mut Batch, &'d mut Batch, &'d mut MetadataBatch),
        made: Vec<u8>,
        memory: Option<&'d mut Reservation>,
    ) -> Self {
        let mut keys = batch.take_message();
        keys.clear();
        Self {
            reader,
            deltas,
            limits,
            batch,
            metadata,
            keys,
            charges: Charges::new(limits, memory),
            counts: Counts::default(),
            made: Made::new(made),
            names: LabelNames::default(),
            metrics: FxHashMap::default(),
            set: LabelSet::default(),
            overlay: Overlay::default(),
            orders: Orders::default(),
            frame: Frame::default(),
            explicit: ExplicitPoint::default(),
            exponential: ExponentialPoint::default(),
            summary: SummaryPoint::default(),
            bounds: FxHashMap::default(),
            target_info: TargetInfo::new(target_info),
            series_count: 0,
        }
    }

    pub(super) fn read(&mut self, message: &'m [u8]) -> Result<(), WireError> {
        each(message, request::RESOURCE_METRICS, |message| {
            Ok(self.resource_metrics(message)?)
        })
        .map_err(wire_error)
    }

    /// Moves the keys into the batches; returns the buffer of generated texts and the counts of
    /// rejected parts.
    pub(super) fn finish(self) -> (Vec<u8>, Counts) {
        self.batch.put_message(self.keys, KEY_FORMAT);
        self.target_info.finish();
        (self.made.into_bytes(), self.counts)
    }

    /// Counts `count` rejected points under the reason of `offence`, whose text is kept for the
    /// first one.
    pub(super) fn refuse(&mut self, count: usize, offence: Offence) {
        let (at, refusal) = (self.keys.len(), offence.refusal);
        self.counts
            .refused
            .add(at, refusal, count, || offence.message);
    }

    /// Returns an attribute value as text, and charges its memory if it had to be generated. Fails
    /// if the value is too long or nests too deeply.
    pub(super) fn text(&mut self, value: &'m [u8]) -> Result<Text<'m>, Trouble> {
        let before = self.made.len();
        let text = value::text(value, self.limits.label_value_bytes_max, &mut self.made)?;
        self.charges.add(self.made.len() - before)?;
        Ok(text)
    }

    fn resource_metrics(&mut self, message: &'m [u8]) -> Result<(), WireError> {
        let mut resource = match self.resource(message) {
            Ok(resource) => resource,
            Err(Trouble::Message(e)) => return Err(e),
            Err(Trouble::Point(offence)) => {
                let count = points_of_resource(message)?;
                self.refuse(count, offence);
                return Ok(());
            }
        };
        each(message, resource_metrics::SCOPE_METRICS, |message| {
            Ok(self.scope_metrics(message, &mut resource)?)
        })
        .map_err(wire_error)?;
        match self.target_info(&resource) {
            Err(Trouble::Message(e)) => Err(e),
            Err(Trouble::Point(offence)) => {
                self.refuse(0, offence);
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    fn resource(&mut self, message: &'m [u8]) -> Result<Resource<'m>, Trouble> {
        let mut parts = Vec::new();
        each(message, resource_metrics::RESOURCE, |resource| {
            each(resource, resource::ATTRIBUTES, |part| {
                push_part(&mut parts, part)
            })
        })?;
        let mut attributes = Vec::with_capacity(parts.len());
        for part in parts {
            let Attribute { key, value } = value::attribute(part)?;
            attributes.push((key, self.text(value)?));
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
        let overlay = self.promoted(&attributes)?;
        let mut resource = Resource {
            stream: Stream::default(),
            overlay,
            job: job.filter(|job| !job.is_empty()),
            instance: instance.filter(|instance| !instance.is_empty()),
            attributes,
            span: None,
        };
        let mut overlay = std::mem::take(&mut resource.overlay);
        resource.identify(&mut overlay, &self.made);
        self.form(&mut overlay)?;
        resource.overlay = overlay;
        if self.deltas.accumulate() {
            resource.stream = stream::of_attributes(&resource.attributes, &self.made);
        }
        Ok(resource)
    }

    /// Encodes the labels of an overlay that have no encoding yet, after reserving their memory.
    /// Fails if the memory limit is reached.
    pub(super) fn form(&mut self, overlay: &mut Overlay<'m>) -> Result<(), WireError> {
        self.charges.add(overlay.plain_bytes())?;
        overlay.form(&mut self.made);
        Ok(())
    }

    /// Returns the labels of promoted attributes. If several become the same label, the last one
    /// wins. Fails if a key cannot be translated.
    fn promoted(&mut self, attributes: &[(&'m [u8], Text<'m>)]) -> Result<Overlay<'m>, Trouble> {
        let translation = self.reader.translation;
        let mut overlay = Overlay::default();
        for (key, value) in attributes {
            let text = std::str::from_utf8(key).unwrap_or_default();
            if translation.promotion.takes(text) {
                let name = self.names.get(key, translation, &mut self.made)?;
                overlay.offer(name, *value, &self.made);
            }
        }
        Ok(overlay)
    }

    fn scope_metrics(
        &mut self,
        message: &'m [u8],
        resource: &mut Resource<'m>,
    ) -> Result<(), WireError> {
        let scope = match self.scope(message, resource) {
            Ok(scope) => scope,
            Err(Trouble::Message(e)) => return Err(e),
            Err(Trouble::Point(offence)) => {
                let count = points_of_scope(message)?;
                self.refuse(count, offence);
                return Ok(());
            }
        };
        each(message, scope_metrics::METRICS, |message| {
            Ok(self.metric(message, &scope, resource)?)
        })
        .map_err(wire_error)
    }

    fn scope(&mut self, message: &'m [u8], resource: &Resource<'m>) -> Result<Scope<'m>, Trouble> {
        let (mut name, mut version, mut url): (&[u8], &[u8], &[u8]) = (&[], &[], &[]);
        let mut parts = Vec::new();
        each(message, scope_metrics::SCHEMA_URL, |text| {
            url = text;
            Ok(())
        })?;
        each(message, scope_metrics::SCOPE, |message| {
            each(message, scope::NAME, |text| {
                name = text;
                Ok(())
            })?;
            each(message, scope::VERSION, |text| {
                version = text;
                Ok(())
            })?;
            each(message, scope::ATTRIBUTES, |part| {
                push_part(&mut parts, part)
            })
        })?;
        let mut overlay = resource.overlay.clone();
        let accumulates = self.deltas.accumulate();
        let is_promoted = self.reader.translation.promotes_scope && !name.is_empty();
        let mut stream = resource.stream;
        if !is_promoted && !accumulates {
            return Ok(Scope { overlay, stream });
        }
        let mut attributes = Vec::with_capacity(parts.len());
        for part in parts {
            let Attribute { key, value } = value::attribute(part)?;
            attributes.push((key, self.text(value)?));
        }
        if accumulates {
            stream = stream.with(&[name, version]);
            stream = stream.beside(stream::of_attributes(&attributes, &self.made));
        }
        if is_promoted {
            self.promote_scope(&attributes, [name, version, url], &mut overlay)?;
            self.form(&mut overlay)?;
        }
        Ok(Scope { overlay, stream })
    }

    fn promote_scope(
        &mut self,
        attributes: &[(&'m [u8], Text<'m>)],
        [name, version, url]: [&'m [u8]; 3],
        overlay: &mut Overlay<'m>,
    ) -> Result<(), Trouble> {
        for (key, value) in attributes {
            let key = [b"otel_scope_", *key].concat();
            let label = super::label_names::label_name(&key, self.reader.translation)
                .map_err(|message| Trouble::point(Refusal::LabelName, message))?;
            let label = self.made.push(&label);
            overlay.set(label, *value, &self.made);
        }
        for (label, value) in [
            ("otel_scope_name", name),
            ("otel_scope_version", version),
            ("otel_scope_schema_url", url),
        ] {
            let label = Text::Message(label.as_bytes());
            overlay.set(label, Text::Message(value), &self.made);
        }
        Ok(())
    }
}

impl<'m> Resource<'m> {
    /// Adds the labels `job` and `instance`, which identify the resource, to the overlay.
    pub(super) fn identify(&self, overlay: &mut Overlay<'m>, made: &Made) {
        for (label, value) in [("instance", self.instance), ("job", self.job)] {
            if let Some(value) = value {
                overlay.set(Text::Message(label.as_bytes()), value, made);
            }
        }
    }

    pub(super) fn note(&mut self, times: Times) {
        let (oldest, newest) = self.span.unwrap_or((times.time, times.time));
        self.span = Some((oldest.min(times.time), newest.max(times.time)));
    }
}

/// Reads the bytes of a length-delimited field; fails for another wire type.
pub(super) fn text<'m>(
    wire_type: WireType,
    cursor: &mut Cursor<'m>,
) -> Result<&'m [u8], WireError> {
    expect(wire_type, WireType::Bytes)?;
    cursor.bytes()
}

/// Calls `take` with each length-delimited field of `message` that has the number `wanted`. Stops
/// at the first error.
pub(super) fn each<'m>(
    message: &'m [u8],
    wanted: u32,
    mut take: impl FnMut(&'m [u8]) -> Result<(), Trouble>,
) -> Result<(), Trouble> {
    let mut cursor = Cursor::new(message);
    while let Some((number, wire_type)) = cursor.field()? {
        match number == wanted {
            true => take(text(wire_type, &mut cursor)?)?,
            false => cursor.skip(wire_type)?,
        }
    }
    Ok(())
}

/// Returns the error of a walk in which rejected points were already counted.
pub(super) fn wire_error(trouble: Trouble) -> WireError {
    match trouble {
        Trouble::Message(e) => e,
        Trouble::Point(_) => WireError::Protobuf("a part cannot be read"),
    }
}

/// Returns the number of fields `wanted` in `message`. Fails if the message is malformed.
pub(super) fn count(message: &[u8], wanted: u32) -> Result<usize, WireError> {
    let mut count = 0;
    each(message, wanted, |_| {
        count += 1;
        Ok(())
    })
    .map_err(wire_error)?;
    Ok(count)
}

fn points_of_resource(message: &[u8]) -> Result<usize, WireError> {
    let mut points = 0;
    each(message, resource_metrics::SCOPE_METRICS, |scope| {
        points += points_of_scope(scope)?;
        Ok(())
    })
    .map_err(wire_error)?;
    Ok(points)
}

fn points_of_scope(message: &[u8]) -> Result<usize, WireError> {
    let mut points = 0;
    each(message, scope_metrics::METRICS, |metric| {
        if let Some((_, message)) = Parts::read(metric)?.data {
            points += count(message, data::POINTS)?;
        }
        Ok(())
    })
    .map_err(wire_error)?;
    Ok(points)
}

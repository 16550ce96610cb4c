//! Converts the points of a metric to series of a batch.
//!
//! ```text
//! number                       --> name
//! explicit, classic            --> name_sum, name_count, name_bucket{le}, name_bucket{le="+Inf"}
//! explicit as custom, exponential --> name, a native histogram
//! summary                      --> name_sum, name_count, name{quantile}
//! ```

use super::OtlpDeltaMode;
use super::exemplar::{self, OtlpExemplar};
use super::field::metric as kind;
use super::metric::OtlpMetric;
use super::native::{self, PointFlags};
use super::point::{
    ExplicitHistogramPoint, ExponentialHistogramPoint, NumberPoint, PointTimes, SummaryPoint,
    read_explicit, read_exponential, read_number, read_summary,
};
use super::request::OtlpRequestDecoder;
use super::stream::{self, OtlpStreamId};
use super::text::LabelText;
use super::trouble::OtlpDecodeError;
use super::value::{self, OtlpAttribute};
use crate::remote_write::{EXEMPLAR_BYTES, SAMPLE_BYTES};
use firn_model::batch::HistogramSample;
use firn_model::labels::METRIC_NAME;
use firn_model::sample::{START_UNKNOWN, stale_nan};
use std::ops::Range;

impl<'m> OtlpRequestDecoder<'_, '_, 'm> {
    /// Adds the series of a point to the batch, or returns why the point is invalid.
    pub(super) fn push_point(
        &mut self,
        metric: &OtlpMetric<'m>,
        message: &'m [u8],
    ) -> Result<PointTimes, OtlpDecodeError> {
        match metric.kind {
            kind::GAUGE | kind::SUM => self.push_number(metric, message),
            kind::HISTOGRAM => {
                let mut point = std::mem::take(&mut self.explicit);
                let read = self.push_explicit(metric, message, &mut point);
                self.explicit = point;
                read
            }
            kind::EXPONENTIAL_HISTOGRAM => {
                let mut point = std::mem::take(&mut self.exponential);
                let read = self.push_exponential(metric, message, &mut point);
                self.exponential = point;
                read
            }
            _ => {
                let mut point = std::mem::take(&mut self.summary);
                let read = self.push_summary(metric, message, &mut point);
                self.summary = point;
                read
            }
        }
    }

    fn push_number(
        &mut self,
        metric: &OtlpMetric<'m>,
        message: &'m [u8],
    ) -> Result<PointTimes, OtlpDecodeError> {
        let mut point = read_number(message, &mut self.frame)?;
        self.compute_labels()?;
        if self.is_accumulated(metric) {
            let stream = self.stream_id(metric)?;
            if let OtlpDeltaMode::Accumulate(state) = &mut self.deltas {
                state.accumulate_number(stream, &mut point)?;
            }
        }
        if metric.kind == kind::SUM {
            for exemplar in self.read_exemplars()? {
                self.push_exemplar(&exemplar)?;
            }
        }
        let NumberPoint { times, value } = point;
        self.push_float_series(value.to_float(), times)?;
        Ok(times)
    }

    fn push_explicit(
        &mut self,
        metric: &OtlpMetric<'m>,
        message: &'m [u8],
        point: &mut ExplicitHistogramPoint,
    ) -> Result<PointTimes, OtlpDecodeError> {
        read_explicit(message, &mut self.frame, point)?;
        self.compute_labels()?;
        if self.is_accumulated(metric) {
            let stream = self.stream_id(metric)?;
            if let OtlpDeltaMode::Accumulate(state) = &mut self.deltas {
                state.accumulate_explicit(stream, point)?;
            }
        }
        if self.reader.translation.converts_histograms {
            let histogram = native::convert_custom(point, self.point_flags(metric))?;
            self.push_native_series(histogram, point.times)?;
        } else {
            self.push_classic(metric, point)?
        }
        Ok(point.times)
    }

    fn push_exponential(
        &mut self,
        metric: &OtlpMetric<'m>,
        message: &'m [u8],
        point: &mut ExponentialHistogramPoint,
    ) -> Result<PointTimes, OtlpDecodeError> {
        read_exponential(message, &mut self.frame, point)?;
        self.compute_labels()?;
        if self.is_accumulated(metric) {
            let stream = self.stream_id(metric)?;
            if let OtlpDeltaMode::Accumulate(state) = &mut self.deltas {
                state.accumulate_exponential(stream, point)?;
            }
        }
        let histogram = native::convert_exponential(point, self.point_flags(metric))?;
        self.push_native_series(histogram, point.times)?;
        Ok(point.times)
    }

    fn push_summary(
        &mut self,
        metric: &OtlpMetric<'m>,
        message: &'m [u8],
        point: &mut SummaryPoint,
    ) -> Result<PointTimes, OtlpDecodeError> {
        read_summary(message, &mut self.frame, point)?;
        self.compute_labels()?;
        let [sum, count] = self.name_with(metric, ["_sum", "_count"])?;
        let name = self.set.set(METRIC_NAME, sum, &self.made);
        self.push_float_series(point.sum, point.times)?;
        self.set.set_at(name, count);
        self.push_float_series(point.count as f64, point.times)?;
        for (quantile, value) in &point.quantiles {
            let text = self.format_bound(*quantile)?;
            self.set.set("quantile", text, &self.made);
            self.set.set(METRIC_NAME, metric.name, &self.made);
            self.push_float_series(*value, point.times)?;
        }
        Ok(point.times)
    }

    fn push_classic(
        &mut self,
        metric: &OtlpMetric<'m>,
        point: &ExplicitHistogramPoint,
    ) -> Result<(), OtlpDecodeError> {
        let names = ["_sum", "_count", "_bucket"];
        let [sum, count, bucket] = self.name_with(metric, names)?;
        let exemplars = self.read_exemplars()?;
        let name = self.set.set(METRIC_NAME, sum, &self.made);
        if let Some(sum) = point.sum {
            self.push_float_series(sum, point.times)?;
        }
        self.set.set_at(name, count);
        self.push_float_series(point.count as f64, point.times)?;
        let infinite = self.format_bound(f64::INFINITY)?;
        let le = self.set.set("le", infinite, &self.made);
        self.set.set(METRIC_NAME, bucket, &self.made);
        let mut around = None;
        let (mut below, mut observed) = (0u64, exemplars.iter().peekable());
        for (bound, count) in point.bounds.iter().zip(&point.counts) {
            below = below.wrapping_add(*count);
            let text = self.format_bound(*bound)?;
            self.set.set_at(le, text);
            while let Some(exemplar) = observed.next_if(|e| e.value <= *bound || bound.is_nan()) {
                self.push_exemplar(exemplar)?;
            }
            let key = self.write_key_with_affixes(le, &mut around)?;
            self.push_float_with_key(key, below as f64, point.times)?;
        }
        self.set.set_at(le, infinite);
        for exemplar in observed {
            self.push_exemplar(exemplar)?;
        }
        let key = self.write_key_with_affixes(le, &mut around)?;
        self.push_float_with_key(key, point.count as f64, point.times)
    }

    fn point_flags(&self, metric: &OtlpMetric<'m>) -> PointFlags {
        PointFlags {
            is_stale: self.frame.is_stale,
            is_delta: metric.is_delta,
        }
    }

    /// Returns whether the current point is accumulated: one without a value is not.
    fn is_accumulated(&self, metric: &OtlpMetric<'m>) -> bool {
        metric.accumulates && !self.frame.is_stale
    }

    /// Returns the identity of the stream that the current point belongs to. Fails if an attribute
    /// value is too long or nests too deeply.
    fn stream_id(&mut self, metric: &OtlpMetric<'m>) -> Result<OtlpStreamId, OtlpDecodeError> {
        let mut attributes = Vec::with_capacity(self.frame.attributes.len());
        for i in 0..self.frame.attributes.len() {
            let part = self.frame.attributes.get(i).copied().unwrap_or_default();
            let OtlpAttribute { key, value } = value::decode_attribute(part)?;
            attributes.push((key, self.attribute_text(value)?));
        }
        let stream = stream::from_attributes(&attributes, &self.made);
        Ok(metric.stream.with_child(stream))
    }

    /// Computes the labels of the current point, from a cached order if its attribute keys occurred
    /// before. Fails if a key cannot be translated or a value is too long.
    fn compute_labels(&mut self) -> Result<(), OtlpDecodeError> {
        self.set.clear();
        for i in 0..self.frame.attributes.len() {
            let part = self.frame.attributes.get(i).copied().unwrap_or_default();
            let OtlpAttribute { key, value } = value::decode_attribute(part)?;
            if key != METRIC_NAME.as_bytes() {
                let text = self.attribute_text(value)?;
                self.set.push(key, text);
            }
        }
        if self.orders.apply(&mut self.set, &self.overlay) {
            return Ok(());
        }
        let translation = self.reader.translation;
        let before = self.made.len();
        self.set
            .finish(&mut self.names, translation, &self.overlay, &mut self.made)?;
        self.charges.add(self.made.len() - before)?;
        (self.orders).insert(&self.set, &mut self.made, &mut self.charges)?;
        Ok(())
    }

    /// Returns the metric name with each of the suffixes `endings`, whose memory is charged to the
    /// request. Fails if that exceeds the limit.
    fn name_with<const N: usize>(
        &mut self,
        metric: &OtlpMetric<'m>,
        endings: [&str; N],
    ) -> Result<[LabelText<'m>; N], OtlpDecodeError> {
        let mut names = [metric.name; N];
        for (name, ending) in names.iter_mut().zip(endings) {
            let text = [self.made.get(metric.name), ending.as_bytes()].concat();
            self.charges.add(text.len())?;
            *name = self.made.push(&text);
        }
        Ok(names)
    }

    /// Formats a bucket bound or a quantile as the value of a label; texts are cached for the
    /// request.
    fn format_bound(&mut self, bound: f64) -> Result<LabelText<'m>, OtlpDecodeError> {
        if let Some(text) = self.bounds.get(&bound.to_bits()) {
            return Ok(*text);
        }
        let text = match bound {
            _ if bound.is_nan() => "NaN".to_owned(),
            f64::INFINITY => "+Inf".to_owned(),
            f64::NEG_INFINITY => "-Inf".to_owned(),
            _ => bound.to_string(),
        };
        self.charges
            .add(text.len() + size_of::<(u64, LabelText<'_>)>())?;
        let text = self.made.push(text.as_bytes());
        self.bounds.insert(bound.to_bits(), text);
        Ok(text)
    }

    /// Decodes the exemplars of the current point. Invalid ones are counted and left out. Fails
    /// only for the whole message.
    fn read_exemplars(&mut self) -> Result<Vec<OtlpExemplar>, OtlpDecodeError> {
        let mut exemplars = Vec::new();
        if self.frame.is_stale || self.frame.exemplars.is_empty() {
            return Ok(exemplars);
        }
        if !self.reader.keeps_exemplars {
            self.counts.exemplars += self.frame.exemplars.len();
            return Ok(exemplars);
        }
        for message in &self.frame.exemplars {
            match exemplar::read(message) {
                Ok(exemplar) => {
                    self.charges.add(EXEMPLAR_BYTES + exemplar.label_bytes())?;
                    exemplars.push(exemplar);
                }
                Err(OtlpDecodeError::Point(offence)) => {
                    let (at, refusal) = (self.keys.len(), offence.refusal);
                    let refused = &mut self.counts.refused_exemplars;
                    refused.add(at, refusal, 1, || offence.message);
                }
                Err(e) => return Err(e),
            }
        }
        Ok(exemplars)
    }

    fn push_exemplar(&mut self, exemplar: &OtlpExemplar) -> Result<(), OtlpDecodeError> {
        self.batch.push_exemplar(exemplar.to_timed());
        Ok(())
    }

    /// Adds a series with one float sample; its labels are in the set. Fails if the labels or the
    /// batch exceed a limit.
    fn push_float_series(&mut self, value: f64, times: PointTimes) -> Result<(), OtlpDecodeError> {
        let key = self.write_key()?;
        self.push_float_with_key(key, value, times)
    }

    /// Adds a series with the key `key` and one float sample, or a staleness marker if the
    /// point has no value.
    fn push_float_with_key(
        &mut self,
        key: Range<usize>,
        value: f64,
        times: PointTimes,
    ) -> Result<(), OtlpDecodeError> {
        let value = if self.frame.is_stale {
            stale_nan()
        } else {
            value
        };
        self.charges.add(SAMPLE_BYTES)?;
        let (time, start) = (nanos_to_millis(times.time), nanos_to_millis(times.start));
        match start {
            START_UNKNOWN => self.batch.push_float(time, value),
            _ => {
                self.charges.add(SAMPLE_BYTES / 2)?;
                self.batch.push_float_with_start(time, value, start);
            }
        }
        self.batch.end_unread_series(key);
        Ok(())
    }

    /// Adds a series with a native histogram, and the exemplars of the current point. Fails if the
    /// labels or the batch exceed a limit.
    fn push_native_series(
        &mut self,
        histogram: firn_model::histogram::Histogram,
        times: PointTimes,
    ) -> Result<(), OtlpDecodeError> {
        self.charges.add(native::memory_bytes(&histogram))?;
        for exemplar in self.read_exemplars()? {
            self.push_exemplar(&exemplar)?;
        }
        let key = self.write_key()?;
        self.batch.push_histogram(HistogramSample {
            time: nanos_to_millis(times.time),
            start_time: nanos_to_millis(times.start),
            histogram,
        });
        self.batch.end_unread_series(key);
        Ok(())
    }
}

/// Converts nanoseconds to milliseconds with the same wrap-around and rounding as upstream.
pub(super) fn nanos_to_millis(nanoseconds: u64) -> i64 {
    nanoseconds as i64 / 1_000_000
}

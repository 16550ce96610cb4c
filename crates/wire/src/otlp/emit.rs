//! Converts the points of a metric to series of a batch.
//!
//! ```text
//! number                       --> name
//! explicit, classic            --> name_sum, name_count, name_bucket{le}, name_bucket{le="+Inf"}
//! explicit as custom, exponential --> name, a native histogram
//! summary                      --> name_sum, name_count, name{quantile}
//! ```

use super::Deltas;
use super::exemplar::{self, Exemplar};
use super::field::metric as kind;
use super::metric::Metric;
use super::native::{self, Standing};
use super::point::{
    ExplicitPoint, ExponentialPoint, NumberPoint, SummaryPoint, Times, read_explicit,
    read_exponential, read_number, read_summary,
};
use super::request::Walk;
use super::stream::{self, Stream};
use super::text::Text;
use super::trouble::Trouble;
use super::value::{self, Attribute};
use crate::remote_write::{EXEMPLAR_BYTES, SAMPLE_BYTES};
use firn_model::batch::HistogramSample;
use firn_model::labels::METRIC_NAME;
use firn_model::sample::{START_UNKNOWN, stale_nan};
use std::ops::Range;

impl<'m> Walk<'_, '_, 'm> {
    /// Adds the series of a point to the batch, or returns why the point is invalid.
    pub(super) fn point(
        &mut self,
        metric: &Metric<'m>,
        message: &'m [u8],
    ) -> Result<Times, Trouble> {
        match metric.kind {
            kind::GAUGE | kind::SUM => self.number(metric, message),
            kind::HISTOGRAM => {
                let mut point = std::mem::take(&mut self.explicit);
                let read = self.explicit(metric, message, &mut point);
                self.explicit = point;
                read
            }
            kind::EXPONENTIAL_HISTOGRAM => {
                let mut point = std::mem::take(&mut self.exponential);
                let read = self.exponential(metric, message, &mut point);
                self.exponential = point;
                read
            }
            _ => {
                let mut point = std::mem::take(&mut self.summary);
                let read = self.summary(metric, message, &mut point);
                self.summary = point;
                read
            }
        }
    }

    fn number(&mut self, metric: &Metric<'m>, message: &'m [u8]) -> Result<Times, Trouble> {
        let mut point = read_number(message, &mut self.frame)?;
        self.label()?;
        if self.adds_up(metric) {
            let stream = self.stream(metric)?;
            if let Deltas::Accumulate(state) = &mut self.deltas {
                state.number(stream, &mut point)?;
            }
        }
        if metric.kind == kind::SUM {
            for exemplar in self.exemplars()? {
                self.push_exemplar(&exemplar)?;
            }
        }
        let NumberPoint { times, value } = point;
        self.float(value.to_float(), times)?;
        Ok(times)
    }

    fn explicit(
        &mut self,
        metric: &Metric<'m>,
        message: &'m [u8],
        point: &mut ExplicitPoint,
    ) -> Result<Times, Trouble> {
        read_explicit(message, &mut self.frame, point)?;
        self.label()?;
        if self.adds_up(metric) {
            let stream = self.stream(metric)?;
            if let Deltas::Accumulate(state) = &mut self.deltas {
                state.explicit(stream, point)?;
            }
        }
        match self.reader.translation.converts_histograms {
            true => {
                let histogram = native::custom(point, self.standing(metric))?;
                self.native(histogram, point.times)?;
            }
            false => self.classic(metric, point)?,
        }
        Ok(point.times)
    }

    fn exponential(
        &mut self,
        metric: &Metric<'m>,
        message: &'m [u8],
        point: &mut ExponentialPoint,
    ) -> Result<Times, Trouble> {
        read_exponential(message, &mut self.frame, point)?;
        self.label()?;
        if self.adds_up(metric) {
            let stream = self.stream(metric)?;
            if let Deltas::Accumulate(state) = &mut self.deltas {
                state.exponential(stream, point)?;
            }
        }
        let histogram = native::exponential(point, self.standing(metric))?;
        self.native(histogram, point.times)?;
        Ok(point.times)
    }

    fn summary(
        &mut self,
        metric: &Metric<'m>,
        message: &'m [u8],
        point: &mut SummaryPoint,
    ) -> Result<Times, Trouble> {
        read_summary(message, &mut self.frame, point)?;
        self.label()?;
        let [sum, count] = self.name_with(metric, ["_sum", "_count"])?;
        let name = self.set.set(METRIC_NAME, sum, &self.made);
        self.float(point.sum, point.times)?;
        self.set.set_at(name, count);
        self.float(point.count as f64, point.times)?;
        for (quantile, value) in &point.quantiles {
            let text = self.bound(*quantile)?;
            self.set.set("quantile", text, &self.made);
            self.set.set(METRIC_NAME, metric.name, &self.made);
            self.float(*value, point.times)?;
        }
        Ok(point.times)
    }

    fn classic(&mut self, metric: &Metric<'m>, point: &ExplicitPoint) -> Result<(), Trouble> {
        let names = ["_sum", "_count", "_bucket"];
        let [sum, count, bucket] = self.name_with(metric, names)?;
        let exemplars = self.exemplars()?;
        let name = self.set.set(METRIC_NAME, sum, &self.made);
        if let Some(sum) = point.sum {
            self.float(sum, point.times)?;
        }
        self.set.set_at(name, count);
        self.float(point.count as f64, point.times)?;
        let infinite = self.bound(f64::INFINITY)?;
        let le = self.set.set("le", infinite, &self.made);
        self.set.set(METRIC_NAME, bucket, &self.made);
        let mut around = None;
        let (mut below, mut observed) = (0u64, exemplars.iter().peekable());
        for (bound, count) in point.bounds.iter().zip(&point.counts) {
            below = below.wrapping_add(*count);
            let text = self.bound(*bound)?;
            self.set.set_at(le, text);
            while let Some(exemplar) = observed.next_if(|e| e.value <= *bound || bound.is_nan()) {
                self.push_exemplar(exemplar)?;
            }
            let key = self.key_around(le, &mut around)?;
            self.float_of(key, below as f64, point.times)?;
        }
        self.set.set_at(le, infinite);
        for exemplar in observed {
            self.push_exemplar(exemplar)?;
        }
        let key = self.key_around(le, &mut around)?;
        self.float_of(key, point.count as f64, point.times)
    }

    fn standing(&self, metric: &Metric<'m>) -> Standing {
        Standing {
            is_stale: self.frame.is_stale,
            is_delta: metric.is_delta,
        }
    }

    /// Returns whether the current point is accumulated: one without a value is not.
    fn adds_up(&self, metric: &Metric<'m>) -> bool {
        metric.accumulates && !self.frame.is_stale
    }

    /// Returns the identity of the stream that the current point belongs to. Fails if an attribute
    /// value is too long or nests too deeply.
    fn stream(&mut self, metric: &Metric<'m>) -> Result<Stream, Trouble> {
        let mut attributes = Vec::with_capacity(self.frame.attributes.len());
        for i in 0..self.frame.attributes.len() {
            let part = self.frame.attributes.get(i).copied().unwrap_or_default();
            let Attribute { key, value } = value::attribute(part)?;
            attributes.push((key, self.text(value)?));
        }
        let stream = stream::of_attributes(&attributes, &self.made);
        Ok(metric.stream.beside(stream))
    }

    /// Computes the labels of the current point, from a cached order if its attribute keys occurred
    /// before. Fails if a key cannot be translated or a value is too long.
    fn label(&mut self) -> Result<(), Trouble> {
        self.set.clear();
        for i in 0..self.frame.attributes.len() {
            let part = self.frame.attributes.get(i).copied().unwrap_or_default();
            let Attribute { key, value } = value::attribute(part)?;
            if key != METRIC_NAME.as_bytes() {
                let text = self.text(value)?;
                self.set.push(key, text);
            }
        }
        if self.orders.apply(&mut self.set, &self.overlay) {
            return Ok(());
        }
        let names = (&mut self.names, self.reader.translation);
        let before = self.made.len();
        self.set.finish(names, &self.overlay, &mut self.made)?;
        self.charges.add(self.made.len() - before)?;
        (self.orders).note(&self.set, &mut self.made, &mut self.charges)?;
        Ok(())
    }

    /// Returns the metric name with each of the suffixes `endings`, whose memory is charged to the
    /// request. Fails if that exceeds the limit.
    fn name_with<const N: usize>(
        &mut self,
        metric: &Metric<'m>,
        endings: [&str; N],
    ) -> Result<[Text<'m>; N], Trouble> {
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
    fn bound(&mut self, bound: f64) -> Result<Text<'m>, Trouble> {
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
            .add(text.len() + size_of::<(u64, Text<'_>)>())?;
        let text = self.made.push(text.as_bytes());
        self.bounds.insert(bound.to_bits(), text);
        Ok(text)
    }

    /// Decodes the exemplars of the current point. Invalid ones are counted and left out. Fails
    /// only for the whole message.
    fn exemplars(&mut self) -> Result<Vec<Exemplar>, Trouble> {
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
                Err(Trouble::Point(offence)) => {
                    let (at, refusal) = (self.keys.len(), offence.refusal);
                    let refused = &mut self.counts.refused_exemplars;
                    refused.add(at, refusal, 1, || offence.message);
                }
                Err(e) => return Err(e),
            }
        }
        Ok(exemplars)
    }

    fn push_exemplar(&mut self, exemplar: &Exemplar) -> Result<(), Trouble> {
        self.batch.push_exemplar(exemplar.timed());
        Ok(())
    }

    /// Adds a series with one float sample; its labels are in the set. Fails if the labels or the
    /// batch exceed a limit.
    fn float(&mut self, value: f64, times: Times) -> Result<(), Trouble> {
        let key = self.key()?;
        self.float_of(key, value, times)
    }

    /// Adds a series with the key `key` and one float sample, or a staleness marker if the point
    /// has no value.
    fn float_of(&mut self, key: Range<usize>, value: f64, times: Times) -> Result<(), Trouble> {
        let value = match self.frame.is_stale {
            true => stale_nan(),
            false => value,
        };
        self.charges.add(SAMPLE_BYTES)?;
        let (time, start) = (milliseconds(times.time), milliseconds(times.start));
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
    fn native(
        &mut self,
        histogram: firn_model::histogram::Histogram,
        times: Times,
    ) -> Result<(), Trouble> {
        self.charges.add(native::memory_bytes(&histogram))?;
        for exemplar in self.exemplars()? {
            self.push_exemplar(&exemplar)?;
        }
        let key = self.key()?;
        self.batch.push_histogram(HistogramSample {
            time: milliseconds(times.time),
            start_time: milliseconds(times.start),
            histogram,
        });
        self.batch.end_unread_series(key);
        Ok(())
    }
}

/// Converts nanoseconds to milliseconds with the same wrap-around and rounding as upstream.
pub(super) fn milliseconds(nanoseconds: u64) -> i64 {
    nanoseconds as i64 / 1_000_000
}

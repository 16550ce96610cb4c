//! The functions `rate`, `increase`, `delta`, `irate` and `idelta` of histograms.
//!
//! Counters and gauges are distinguished only by the hints of the histograms. If a function of
//! counters is applied to a gauge or vice versa, the result is computed and an annotation is added.

use super::MixedWindow;
use crate::eval::annotations::{Annotation, HistogramOperation};
use crate::eval::kernels::histogram_remarks::HistogramRemarks;
use crate::functions::Extrapolation;
use firn_model::histogram::ResetHint;
use firn_model::histogram::float::FloatHistogram;

impl MixedWindow<'_> {
    /// Returns the change over the window, extrapolated to its edges.
    pub(super) fn extrapolate_growth(
        &self,
        how: Extrapolation,
        remarks: &mut HistogramRemarks<'_>,
    ) -> Option<FloatHistogram> {
        let mut change = match self.ready.len() {
            1 => None,
            _ => Some(self.compute_growth(how.counter, remarks)?),
        };
        let first = self.ready.first()?;
        let from_start = how.counter && self.times.starts_within(self.edge, self.range_ms);
        if from_start {
            match &mut change {
                None => change = Some(first.clone()),
                Some(change) => remarks.add(change, first)?,
            }
        }
        let mut change = change?;
        let grown = (first.count, change.count);
        change.multiply(how.factor(&self.times, from_start, grown, self.edge, self.range_ms));
        Some(change)
    }

    /// Returns the difference between the last and the first histogram. For a counter, the value
    /// before each reset is added.
    fn compute_growth(
        &self,
        counter: bool,
        remarks: &mut HistogramRemarks<'_>,
    ) -> Option<FloatHistogram> {
        let (first, last) = (self.ready.first()?, self.ready.last()?);
        let is_gauge = |histogram: &FloatHistogram| histogram.hint == ResetHint::Gauge;
        if counter && (is_gauge(first) || is_gauge(last)) {
            remarks.add_named(Annotation::not_a_counter);
        }
        // If the first histogram is directly before a reset, it is skipped, so its bucket layout
        // has no effect.
        let nothing = FloatHistogram::empty_like(&self.ready[1]);
        let restarts_at_once = counter && self.events[1];
        let first_counted = if restarts_at_once { &nothing } else { first };
        if last.is_custom() != first_counted.is_custom() {
            remarks.add_named(Annotation::mixed_schemas);
            return None;
        }
        let mut schema = last.schema.min(first_counted.schema);
        if counter {
            for between in &self.ready[1..self.ready.len() - 1] {
                if is_gauge(between) {
                    remarks.add_named(Annotation::not_a_counter);
                }
                schema = schema.min(between.schema);
                if between.is_custom() != last.is_custom() {
                    remarks.replace_with_mixed_schemas();
                    return None;
                }
            }
        }
        let mut out = last.clone();
        out.coarsen_to(schema);
        let joined = out.subtract(first_counted).ok()?;
        if joined.bounds_reconciled {
            remarks.add_unnamed(
                HistogramOperation::Subtraction,
                Annotation::reconciled_bounds,
            );
        }
        if counter {
            self.add_lost(&mut out, first_counted, restarts_at_once, remarks)?;
        } else if !is_gauge(first) || !is_gauge(last) {
            remarks.add_named(Annotation::not_a_gauge);
        }
        out.hint = ResetHint::Gauge;
        out.compact();
        Some(out)
    }

    /// Adds the value that the counter had before each reset.
    fn add_lost(
        &self,
        out: &mut FloatHistogram,
        first_counted: &FloatHistogram,
        restarts_at_once: bool,
        remarks: &mut HistogramRemarks<'_>,
    ) -> Option<()> {
        if self.times.has_overlapping_start() {
            remarks.add_named(|span, name| Annotation::start_time_overlap(span, name, 1));
        }
        for at in 1..self.ready.len() {
            let (before, was_reset) = match at {
                1 if restarts_at_once => (
                    first_counted,
                    self.times.has_restarted(1) || self.ready[1].is_reset_after(first_counted),
                ),
                _ => (&self.ready[at - 1], self.events[at]),
            };
            if !was_reset {
                continue;
            }
            let Ok(joined) = out.add(before) else {
                remarks.replace_with_mixed_schemas();
                return None;
            };
            if joined.bounds_reconciled {
                remarks.add_unnamed(HistogramOperation::Addition, Annotation::reconciled_bounds);
            }
        }
        Some(())
    }

    /// Returns the change between the last two histograms; for a counter, per second.
    pub(super) fn last_change(
        &self,
        counter: bool,
        remarks: &mut HistogramRemarks<'_>,
    ) -> Option<FloatHistogram> {
        let at = self.ready.len().checked_sub(1)?;
        let (before, last) = (&self.ready[at.checked_sub(1)?], &self.ready[at]);
        let gauges = [before, last].map(|histogram| histogram.hint == ResetHint::Gauge);
        if counter && gauges.contains(&true) {
            remarks.add_named(Annotation::not_a_counter);
        }
        if !counter && gauges.contains(&false) {
            remarks.add_named(Annotation::not_a_gauge);
        }
        let mut out = last.clone();
        if !(counter && self.events[at]) {
            remarks.subtract(&mut out, before)?;
        }
        out.hint = ResetHint::Gauge;
        out.compact();
        if counter {
            out.divide((self.times.times[at] - self.times.times[at - 1]) as f64 / 1000.0);
        }
        Some(out)
    }
}

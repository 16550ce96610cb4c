//! The native histograms in the argument of a quantile or fraction.

use super::{HISTOGRAMS_PER_PART, HistogramEstimate, HistogramVector};
use crate::ast::PositionRange;
use crate::eval::annotations::{Annotation, QueryAnnotations};
use crate::eval::rows::frame::SeriesFrame;
use crate::eval::rows::label_sets::{ByteStringNumbers, is_metadata, retain_labels};
use crate::eval::rows::parts::run_in_parts;
use crate::eval::rows::row::{ABSENT, StepRow, is_absent};
use crate::eval::rows::row_labels::RowLabels;
use crate::eval::run::EvalContext;
use crate::value::PromqlError;
use firn_model::histogram::Histogram;
use firn_model::histogram::float::{FloatHistogram, NanEffect};
use firn_model::labels::{Labels, METRIC_NAME};
use std::ops::Range;

/// A series that contains native histograms at one step or more.
pub(super) struct NativeHistogramMember {
    labels: Labels,
    name: Vec<u8>,
    series: u32,
    /// Steps at which a classic histogram has the same labels, in ascending order.
    conflicts: Vec<u32>,
}

impl HistogramVector {
    /// Finds the native histograms, and records conflicts with classic histograms that have the
    /// same labels.
    pub(super) fn find_natives(
        &mut self,
        mut known: ByteStringNumbers,
        span: PositionRange,
        run: &mut EvalContext<'_>,
    ) -> Result<(), PromqlError> {
        for series in 0..self.frame.len() {
            run.account.check()?;
            let row = self.frame.row(series);
            if row.histograms.is_empty() {
                continue;
            }
            let labels = &self.frame.labels(series);
            let delayed = self.delayed;
            let mut native = NativeHistogramMember {
                labels: retain_labels(labels.as_ref(), |label| delayed || !is_metadata(label)),
                name: if delayed {
                    labels.get(METRIC_NAME).to_vec()
                } else {
                    Vec::new()
                },
                series: series as u32,
                conflicts: Vec::new(),
            };
            let (id, _) = known.intern(labels.as_bytes());
            if let Some(member) = self.histograms.get_mut(id as usize) {
                let value =
                    |series: u32, step: u32| self.frame.row(series as usize).values[step as usize];
                let clashes = |step: &u32| {
                    let mut buckets = member.buckets.iter();
                    buckets.any(|(_, bucket)| !is_absent(value(*bucket, *step)))
                };
                let steps = row.histograms.iter().map(|(step, _)| *step);
                native.conflicts = steps.filter(clashes).collect();
                let steps = native.conflicts.iter().map(|step| *step as usize);
                member.conflicts.extend(steps);
            }
            if !native.conflicts.is_empty() {
                let remark = Annotation::mixed_classic_native(span, &native.name);
                run.notes.add(remark);
            }
            self.natives.push(native);
        }
        Ok(())
    }

    /// Computes the results of all native histograms in parallel, and adds annotations at `span`.
    pub(super) fn estimate_natives(
        &self,
        run: &mut EvalContext<'_>,
        question: &HistogramEstimate,
        span: PositionRange,
    ) -> Result<SeriesFrame, PromqlError> {
        let account = run.account;
        let steps = self.frame.steps();
        let task = |part: Range<usize>| {
            let (mut frame, mut notes) = (SeriesFrame::new(steps), QueryAnnotations::default());
            frame.hold_reservation(account.reserve(part.len() * self.row_bytes())?);
            let mut values = Vec::new();
            for native in &self.natives[part] {
                account.check()?;
                self.estimate_native(native, question, &mut values, |remark| {
                    notes.add(Annotation::nan_observations(span, &native.name, remark));
                });
                let (labels, drops_name) = (native.labels.clone(), true);
                frame.push(
                    RowLabels { labels, drops_name },
                    StepRow::from_floats(&values),
                );
            }
            Ok((frame, notes))
        };
        let mut out = SeriesFrame::new(steps);
        let all_notes = &mut run.notes;
        let merge = |(frame, notes): (SeriesFrame, QueryAnnotations)| {
            out.append(frame);
            all_notes.merge(notes);
            Ok(())
        };
        let (compute, count) = (run.ctx.compute, self.natives.len());
        run_in_parts(compute, count, HISTOGRAMS_PER_PART, task, merge)?;
        Ok(out)
    }

    fn estimate_native(
        &self,
        native: &NativeHistogramMember,
        question: &HistogramEstimate,
        values: &mut Vec<f64>,
        mut remark: impl FnMut(NanEffect),
    ) {
        values.clear();
        values.resize(self.frame.steps(), ABSENT);
        for (step, histogram) in self.frame.row(native.series as usize).histograms {
            if native.conflicts.binary_search(step).is_err() {
                let (value, said) = estimate_histogram(question, *step as usize, histogram);
                values[*step as usize] = value;
                said.into_iter().for_each(&mut remark);
            }
        }
    }
}

fn estimate_histogram(
    question: &HistogramEstimate,
    step: usize,
    histogram: &Histogram,
) -> (f64, Option<NanEffect>) {
    let histogram = FloatHistogram::from(histogram);
    match question {
        HistogramEstimate::Quantile(quantiles) => histogram.quantile(quantiles[step]),
        HistogramEstimate::Fraction(lower, upper) => histogram.fraction(lower[step], upper[step]),
    }
}

//! The native histograms in the argument of a quantile or fraction.

use super::{HISTOGRAMS_PER_PART, Histograms, Question};
use crate::ast::Span;
use crate::eval::annotations::{Annotation, Annotations};
use crate::eval::rows::frame::Frame;
use crate::eval::rows::label_sets::{Dictionary, is_metadata, retain};
use crate::eval::rows::parts::in_parts;
use crate::eval::rows::row::{ABSENT, Row, is_absent};
use crate::eval::rows::row_labels::RowLabels;
use crate::eval::run::Run;
use crate::value::QueryError;
use firn_model::histogram::Histogram;
use firn_model::histogram::float::{FloatHistogram, NanRemark};
use firn_model::labels::{Labels, METRIC_NAME};
use std::ops::Range;

/// A series that contains native histograms at one step or more.
pub(super) struct Native {
    labels: Labels,
    name: Vec<u8>,
    series: u32,
    /// Steps at which a classic histogram has the same labels, in ascending order.
    conflicts: Vec<u32>,
}

impl Histograms {
    /// Finds the native histograms, and records conflicts with classic histograms that have the
    /// same labels.
    pub(super) fn find_natives(
        &mut self,
        mut known: Dictionary,
        span: Span,
        run: &mut Run<'_>,
    ) -> Result<(), QueryError> {
        for series in 0..self.frame.len() {
            run.account.check()?;
            let row = self.frame.row(series);
            if row.histograms.is_empty() {
                continue;
            }
            let labels = &self.frame.labels(series);
            let delayed = self.delayed;
            let mut native = Native {
                labels: retain(labels.as_ref(), |label| delayed || !is_metadata(label)),
                name: match delayed {
                    true => labels.get(METRIC_NAME).to_vec(),
                    false => Vec::new(),
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
    pub(super) fn answer_natives(
        &self,
        run: &mut Run<'_>,
        question: &Question,
        span: Span,
    ) -> Result<Frame, QueryError> {
        let account = run.account;
        let steps = self.frame.steps();
        let task = |part: Range<usize>| {
            let (mut frame, mut notes) = (Frame::new(steps), Annotations::default());
            frame.keep(account.reserve(part.len() * self.row_bytes())?);
            let mut values = Vec::new();
            for native in &self.natives[part] {
                account.check()?;
                self.answer_native(native, question, &mut values, |remark| {
                    notes.add(Annotation::nan_observations(span, &native.name, remark));
                });
                let (labels, drops_name) = (native.labels.clone(), true);
                frame.push(RowLabels { labels, drops_name }, Row::of_floats(&values));
            }
            Ok((frame, notes))
        };
        let mut out = Frame::new(steps);
        let all_notes = &mut run.notes;
        let merge = |(frame, notes): (Frame, Annotations)| {
            out.append(frame);
            all_notes.merge(notes);
            Ok(())
        };
        let (compute, count) = (run.ctx.compute, self.natives.len());
        in_parts(compute, count, HISTOGRAMS_PER_PART, task, merge)?;
        Ok(out)
    }

    fn answer_native(
        &self,
        native: &Native,
        question: &Question,
        values: &mut Vec<f64>,
        mut remark: impl FnMut(NanRemark),
    ) {
        values.clear();
        values.resize(self.frame.steps(), ABSENT);
        for (step, histogram) in self.frame.row(native.series as usize).histograms {
            if native.conflicts.binary_search(step).is_err() {
                let (value, said) = ask(question, *step as usize, histogram);
                values[*step as usize] = value;
                said.into_iter().for_each(&mut remark);
            }
        }
    }
}

fn ask(question: &Question, step: usize, histogram: &Histogram) -> (f64, Option<NanRemark>) {
    let histogram = FloatHistogram::from(histogram);
    match question {
        Question::Quantile(quantiles) => histogram.quantile(quantiles[step]),
        Question::Fraction(lower, upper) => histogram.fraction(lower[step], upper[step]),
    }
}

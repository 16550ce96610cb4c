//! The functions `histogram_quantile`, `histogram_quantiles` and `histogram_fraction` of classic
//! and native histograms.
//!
//! Series that differ only in `le` are the buckets of one classic histogram. Bucket bounds are
//! parsed and sorted once; each step then uses the buckets that have a value. If a native histogram
//! has the same labels as a classic one, neither has a result.

mod classic;
mod native;
mod repair_log;

use crate::ast::PositionRange;
use crate::eval::account::QueryAccount;
use crate::eval::annotations::{Annotation, BucketRepairs};
use crate::eval::operators::label_functions::compare_values;
use crate::eval::operators::stream::{NameCollisionRule, merge_equal};
use crate::eval::rows::frame::SeriesFrame;
use crate::eval::rows::label_sets::{ByteStringNumbers, is_metadata, retain_labels};
use crate::eval::rows::parts::run_in_parts;
use crate::eval::rows::row::{ABSENT, StepRow, is_absent};
use crate::eval::rows::row_labels::RowLabels;
use crate::eval::run::EvalContext;
use crate::functions::{Function, FunctionId};
use crate::go_format::format_g;
use crate::grid::StepGrid;
use crate::plan::{PlanNode, PlanNodeKind};
use crate::value::PromqlError;
use classic::{ClassicBucket, fraction, quantile};
use firn_model::labels::{Labels, LabelsBuilder, METRIC_NAME};
use native::NativeHistogramMember;
use repair_log::RepairLog;
use std::ops::Range;
use std::sync::Arc;

/// The label with the upper bound of a bucket.
const BOUND: &str = "le";

/// Number of histograms in a part, each of which consists of many series.
const HISTOGRAMS_PER_PART: usize = 32;

/// The value that is computed from a histogram at each step.
enum HistogramEstimate {
    /// A quantile between 0 and 1, with one parameter per step.
    Quantile(Vec<f64>),
    /// The fraction of observations between two values, with one pair of values per step.
    Fraction(Vec<f64>, Vec<f64>),
}

/// Evaluates a function call. The values of its scalar arguments and of its vector are passed in.
pub(crate) fn evaluate_buckets(
    run: &mut EvalContext<'_>,
    function: &'static Function,
    args: &[PlanNode],
    mut scalars: Vec<Vec<f64>>,
    input: Arc<SeriesFrame>,
    grid: StepGrid,
) -> Result<SeriesFrame, PromqlError> {
    for scalar in &scalars {
        assert_eq!(scalar.len(), grid.count, "values of a scalar, and steps");
    }
    let frame = match function.id {
        FunctionId::HistogramQuantile => {
            let quantiles = scalars.remove(0);
            let histograms = HistogramVector::from_frame(run, &args[1], input, grid)?;
            add_quantile_remarks(run, &args[0], &quantiles);
            let question = HistogramEstimate::Quantile(quantiles);
            let (frame, log) = histograms.estimate(run, &question, args[0].span)?;
            log.add_remarks(args[1].span, &mut run.notes);
            frame
        }
        FunctionId::HistogramFraction => {
            let lower = scalars.remove(0);
            let histograms = HistogramVector::from_frame(run, &args[2], input, grid)?;
            let question = HistogramEstimate::Fraction(lower, scalars.remove(0));
            histograms.estimate(run, &question, args[0].span)?.0
        }
        _ => evaluate_histogram_quantiles(run, args, scalars, input, grid)?,
    };
    if run.delays_names() && grid.is_instant() {
        // In this case Prometheus detects equal labels at the end of the evaluation.
        return Ok(frame);
    }
    merge_equal(frame, NameCollisionRule::Merged, run.account)
}

/// Adds annotations about quantiles outside of 0 to 1. The annotations of the arguments must have
/// been added before.
fn add_quantile_remarks(run: &mut EvalContext<'_>, arg: &PlanNode, quantiles: &[f64]) {
    for quantile in quantiles.iter().filter(|q| !(0.0..=1.0).contains(*q)) {
        let remark = Annotation::invalid_quantile(arg.span, *quantile);
        run.notes.add(remark);
    }
}

/// Evaluates `histogram_quantiles(v, label, q...)`: several quantiles of the same histograms,
/// distinguished by a label.
fn evaluate_histogram_quantiles(
    run: &mut EvalContext<'_>,
    args: &[PlanNode],
    asked: Vec<Vec<f64>>,
    input: Arc<SeriesFrame>,
    grid: StepGrid,
) -> Result<SeriesFrame, PromqlError> {
    let label = match &args[1].kind {
        PlanNodeKind::Text(name) => String::from_utf8_lossy(name).into_owned(),
        _ => {
            return Err(PromqlError::Execution(
                "histogram_quantiles: no label".into(),
            ));
        }
    };
    let histograms = HistogramVector::from_frame(run, &args[0], input, grid)?;
    for (arg, quantiles) in args[2..].iter().zip(&asked) {
        add_quantile_remarks(run, arg, quantiles);
    }
    let (mut out, mut log) = (SeriesFrame::new(grid.count), RepairLog::default());
    for quantiles in asked {
        let names: Vec<String> = quantiles
            .iter()
            .map(|q| format_open_metrics_float(*q))
            .collect();
        let question = HistogramEstimate::Quantile(quantiles);
        let (answers, repairs) = histograms.estimate(run, &question, args[0].span)?;
        log.merge_same(repairs);
        let mut distinct = names.clone();
        distinct.sort_unstable();
        distinct.dedup();
        // At each step a quantile has one name, but every name has a row with all steps.
        let row_bytes = grid.count * size_of::<f64>() + size_of::<RowLabels>() + label.len();
        for name in distinct {
            out.hold_reservation(run.account.reserve(answers.len() * row_bytes)?);
            let account = run.account;
            append_named(&mut out, &answers, &label, &name[..], &names[..], account)?;
        }
    }
    log.add_remarks(args[0].span, &mut run.notes);
    Ok(out)
}

/// Appends the results of the steps whose quantile is called `name`, with this name as the value of
/// `label`.
fn append_named(
    out: &mut SeriesFrame,
    answers: &SeriesFrame,
    label: &str,
    name: &str,
    names: &[String],
    account: &QueryAccount<'_>,
) -> Result<(), PromqlError> {
    assert_eq!(
        answers.steps(),
        names.len(),
        "steps, and names of quantiles"
    );
    for series in 0..answers.len() {
        account.check()?;
        let row = answers.row(series);
        let values: Vec<f64> = row
            .values
            .iter()
            .zip(names)
            .map(|(value, of)| if of == name { *value } else { ABSENT })
            .collect();
        let mut row_labels = answers.row_labels(series);
        let mut labels = LabelsBuilder::from_labels(row_labels.labels.as_ref());
        row_labels.labels = labels.set(label, name.as_bytes()).build();
        out.push(row_labels, StepRow::from_floats(&values));
    }
    Ok(())
}

/// Formats a float like OpenMetrics: always with a dot or an exponent.
fn format_open_metrics_float(value: f64) -> String {
    // OpenMetrics writes zero without a sign.
    let text = format_g(if value == 0.0 { 0.0 } else { value }, None);
    if !value.is_finite() || text.contains(['e', '.']) {
        text
    } else {
        text + ".0"
    }
}

/// The histograms of a vector, classic and native, with conflicts between both.
struct HistogramVector {
    frame: Arc<SeriesFrame>,
    grid: StepGrid,
    histograms: Vec<ClassicHistogramMember>,
    natives: Vec<NativeHistogramMember>,
    delayed: bool,
}

/// One classic histogram, which consists of several series with bucket counts.
struct ClassicHistogramMember {
    labels: Labels,
    name: Vec<u8>,
    /// The upper bounds in ascending order with NaN last, each with the index of the series that
    /// counts up to it.
    buckets: Vec<(f64, u32)>,
    /// The steps at which a native histogram has the same labels.
    conflicts: Vec<usize>,
}

impl HistogramVector {
    fn from_frame(
        run: &mut EvalContext<'_>,
        arg: &PlanNode,
        frame: Arc<SeriesFrame>,
        grid: StepGrid,
    ) -> Result<Self, PromqlError> {
        assert_eq!(
            frame.steps(),
            grid.count,
            "steps of the input, and of the grid"
        );
        let delayed = run.delays_names();
        let mut known = ByteStringNumbers::default();
        let mut histograms: Vec<ClassicHistogramMember> = Vec::new();
        for series in 0..frame.len() {
            run.account.check()?;
            if !frame.row(series).has_floats() {
                continue;
            }
            let labels = &frame.labels(series);
            let name = labels.get(METRIC_NAME);
            let Some(bound) = parse_bound(labels.get(BOUND)) else {
                let shown: &[u8] = if delayed { name } else { b"" };
                run.notes.add(Annotation::bad_bucket_label(
                    arg.span,
                    shown,
                    labels.get(BOUND),
                ));
                continue;
            };
            let rest = retain_labels(labels.as_ref(), |label| label != BOUND);
            let (id, is_new) = known.intern(rest.as_bytes());
            if is_new {
                histograms.push(ClassicHistogramMember {
                    labels: retain_labels(rest.as_ref(), |label| delayed || !is_metadata(label)),
                    name: name.to_vec(),
                    buckets: Vec::new(),
                    conflicts: Vec::new(),
                });
            }
            histograms[id as usize].buckets.push((bound, series as u32));
        }
        for histogram in &mut histograms {
            histogram
                .buckets
                .sort_by(|(a, _), (b, _)| compare_values(*a, *b));
        }
        let mut out = Self {
            frame,
            grid,
            histograms,
            natives: Vec::new(),
            delayed,
        };
        out.find_natives(known, arg.span, run)?;
        Ok(out)
    }

    /// Returns the metric name for annotations. It is empty if metric names are removed
    /// immediately.
    fn shown_name<'m>(&self, member: &'m ClassicHistogramMember) -> &'m [u8] {
        if self.delayed { &member.name } else { b"" }
    }

    /// Computes the result of every histogram. Also returns the corrections of bucket counts.
    /// Annotations about native histograms have the position `span`.
    fn estimate(
        &self,
        run: &mut EvalContext<'_>,
        question: &HistogramEstimate,
        span: PositionRange,
    ) -> Result<(SeriesFrame, RepairLog), PromqlError> {
        let mut out = self.estimate_natives(run, question, span)?;
        let account = run.account;
        let task = |part: Range<usize>| {
            let memory = account.reserve(part.len() * self.row_bytes())?;
            let (mut frame, log) = self.estimate_part(&self.histograms[part], question, account)?;
            frame.hold_reservation(memory);
            Ok((frame, log))
        };
        let mut log = RepairLog::default();
        let merge = |(frame, repairs): (SeriesFrame, RepairLog)| {
            out.append(frame);
            log.merge(repairs);
            Ok(())
        };
        let (compute, count) = (run.ctx.compute, self.histograms.len());
        run_in_parts(compute, count, HISTOGRAMS_PER_PART, task, merge)?;
        Ok((out, log))
    }

    fn row_bytes(&self) -> usize {
        self.frame.steps() * size_of::<f64>() + size_of::<RowLabels>()
    }

    fn estimate_part(
        &self,
        part: &[ClassicHistogramMember],
        question: &HistogramEstimate,
        account: &QueryAccount<'_>,
    ) -> Result<(SeriesFrame, RepairLog), PromqlError> {
        let steps = self.frame.steps();
        let (mut frame, mut log) = (SeriesFrame::new(steps), RepairLog::default());
        let (mut values, mut buckets) = (Vec::new(), Vec::new());
        for member in part {
            account.check()?;
            values.clear();
            for step in 0..steps {
                self.collect_buckets(member, step, &mut buckets);
                let (value, repairs) = estimate_buckets(question, step, &mut buckets);
                values.push(value);
                if let Some(mut repairs) = repairs {
                    let time = self.grid.time(step);
                    repairs.times = (time, time);
                    log.add(self.shown_name(member), steps, step, repairs);
                }
            }
            let (labels, drops_name) = (member.labels.clone(), true);
            frame.push(
                RowLabels { labels, drops_name },
                StepRow::from_floats(&values),
            );
        }
        Ok((frame, log))
    }

    /// Collects the buckets that have a value at a step.
    fn collect_buckets(
        &self,
        member: &ClassicHistogramMember,
        step: usize,
        into: &mut Vec<ClassicBucket>,
    ) {
        into.clear();
        if member.conflicts.contains(&step) {
            return;
        }
        for (bound, series) in &member.buckets {
            let count = self.frame.row(*series as usize).values[step];
            if !is_absent(count) {
                into.push(ClassicBucket {
                    bound: *bound,
                    count,
                });
            }
        }
    }
}

fn estimate_buckets(
    question: &HistogramEstimate,
    step: usize,
    buckets: &mut Vec<ClassicBucket>,
) -> (f64, Option<BucketRepairs>) {
    if buckets.is_empty() {
        return (ABSENT, None);
    }
    match question {
        HistogramEstimate::Quantile(quantiles) => quantile(quantiles[step], buckets),
        HistogramEstimate::Fraction(lower, upper) => {
            (fraction(lower[step], upper[step], buckets), None)
        }
    }
}

/// Parses a bucket bound like Go's `strconv.ParseFloat`. A number out of range is an error.
fn parse_bound(text: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(text).ok()?;
    let bound: f64 = text.parse().ok()?;
    let overflow = bound.is_infinite() && text.bytes().any(|b| b.is_ascii_digit());
    (!overflow).then_some(bound)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_bound_reads_what_go_reads() {
        assert_eq!(parse_bound(b"+Inf"), Some(f64::INFINITY));
        assert_eq!(parse_bound(b"0.5"), Some(0.5));
        for bad in [&b""[..], b"1e999", b"x", b"\xff"] {
            assert_eq!(parse_bound(bad), None);
        }
    }

    #[test]
    fn open_metrics_float_has_a_dot_or_an_exponent() {
        for (value, want) in [
            (1.0, "1.0"),
            (0.0, "0.0"),
            (-0.0, "0.0"),
            (-1.0, "-1.0"),
            (0.99, "0.99"),
            (f64::NAN, "NaN"),
        ] {
            assert_eq!(format_open_metrics_float(value), want);
        }
    }
}

//! `histogram_quantile`, `histogram_quantiles`, `histogram_fraction` of classic and native
//! histograms.
//!
//! Series that differ only in `le` are the buckets of one classic histogram. Bounds are parsed and
//! sorted once; each step then takes the buckets that have a value. Where a native histogram has
//! the labels of a classic one, neither has a result.

mod classic;
mod native;
mod repair_log;

use crate::ast::Span;
use crate::eval::account::Account;
use crate::eval::annotations::{Annotation, Repairs};
use crate::eval::evaluator::Evaluator;
use crate::eval::frame::{ABSENT, Frame, Row, is_absent};
use crate::eval::go_format::format_g;
use crate::eval::grid::Grid;
use crate::eval::heads::Head;
use crate::eval::label_functions::by_values;
use crate::eval::label_sets::{Dictionary, is_metadata, retain};
use crate::eval::ranges::in_parts;
use crate::eval::stream::{Collision, Stream, merge_equal};
use crate::functions::{Function, FunctionId};
use crate::plan::{Node, NodeKind};
use crate::value::QueryError;
use classic::{Bucket, fraction, quantile};
use firn_model::labels::{Labels, LabelsBuilder, METRIC_NAME};
use native::Native;
use repair_log::RepairLog;
use std::ops::Range;
use std::sync::Arc;

/// The label of a bucket's upper bound.
const BOUND: &str = "le";

/// Histograms in a part.
const HISTOGRAMS_PER_PART: usize = 32;

/// What is asked of a histogram at each step.
enum Question {
    /// A quantile.
    Quantile(Vec<f64>),
    /// The share of observations between two values.
    Fraction(Vec<f64>, Vec<f64>),
}

/// The value of a call.
pub(crate) fn vector(
    evaluator: &mut Evaluator<'_>,
    function: &'static Function,
    args: &[Node],
    grid: Grid,
) -> Result<Stream, QueryError> {
    let frame = match function.id {
        FunctionId::HistogramQuantile => {
            let quantiles = evaluator.scalar(&args[0], grid)?;
            let histograms = Histograms::read(evaluator, &args[1], grid)?;
            remark_quantiles(evaluator, &args[0], &quantiles);
            let question = Question::Quantile(quantiles);
            let (frame, log) = histograms.answer(evaluator, &question, args[0].span)?;
            log.remark(args[1].span, &mut evaluator.notes);
            frame
        }
        FunctionId::HistogramFraction => {
            let lower = evaluator.scalar(&args[0], grid)?;
            let upper = evaluator.scalar(&args[1], grid)?;
            let histograms = Histograms::read(evaluator, &args[2], grid)?;
            let question = Question::Fraction(lower, upper);
            histograms.answer(evaluator, &question, args[0].span)?.0
        }
        _ => many_quantiles(evaluator, args, grid)?,
    };
    if evaluator.delays_names() && grid.is_instant() {
        // As upstream, which looks for equal labels at the end of the evaluation then.
        return Ok(frame.into());
    }
    Ok(merge_equal(frame, Collision::Merged, evaluator.account)?.into())
}

/// Says which quantiles are none, after what the arguments had to say.
fn remark_quantiles(evaluator: &mut Evaluator<'_>, arg: &Node, quantiles: &[f64]) {
    for quantile in quantiles.iter().filter(|q| !(0.0..=1.0).contains(*q)) {
        let remark = Annotation::invalid_quantile(arg.span, *quantile);
        evaluator.notes.add(remark);
    }
}

/// `histogram_quantiles(v, label, q...)`
fn many_quantiles(
    evaluator: &mut Evaluator<'_>,
    args: &[Node],
    grid: Grid,
) -> Result<Frame, QueryError> {
    let label = match &args[1].kind {
        NodeKind::Text(name) => String::from_utf8_lossy(name).into_owned(),
        _ => {
            return Err(QueryError::Execution(
                "histogram_quantiles: no label".into(),
            ));
        }
    };
    let mut asked = Vec::new();
    for arg in &args[2..] {
        asked.push(evaluator.scalar(arg, grid)?);
    }
    let histograms = Histograms::read(evaluator, &args[0], grid)?;
    for (arg, quantiles) in args[2..].iter().zip(&asked) {
        remark_quantiles(evaluator, arg, quantiles);
    }
    let (mut out, mut log) = (Frame::new(grid.count), RepairLog::default());
    for quantiles in asked {
        let names: Vec<String> = quantiles.iter().map(|q| open_metrics_float(*q)).collect();
        let question = Question::Quantile(quantiles);
        let (answers, repairs) = histograms.answer(evaluator, &question, args[0].span)?;
        log.merge_same(repairs);
        let mut distinct = names.clone();
        distinct.sort_unstable();
        distinct.dedup();
        // Each step has one name, but every name has rows of all steps.
        let row_bytes = grid.count * size_of::<f64>() + size_of::<Head>() + label.len();
        for name in distinct {
            out.keep(evaluator.account.reserve(answers.len() * row_bytes)?);
            let account = evaluator.account;
            append_named(&mut out, &answers, &label, (&name[..], &names[..]), account)?;
        }
    }
    log.remark(args[0].span, &mut evaluator.notes);
    Ok(out)
}

/// Adds the answers of the steps whose quantile is called `name`, with that label.
fn append_named(
    out: &mut Frame,
    answers: &Frame,
    label: &str,
    (name, names): (&str, &[String]),
    account: &Account<'_>,
) -> Result<(), QueryError> {
    for series in 0..answers.len() {
        account.check()?;
        let row = answers.row(series);
        let values: Vec<f64> = row
            .values
            .iter()
            .zip(names)
            .map(|(value, of)| if of == name { *value } else { ABSENT })
            .collect();
        let mut head = answers.head(series);
        let mut labels = LabelsBuilder::from_labels(head.labels.as_ref());
        head.labels = labels.set(label, name.as_bytes()).build();
        let row = Row::of_floats(&values);
        out.push(head, row);
    }
    Ok(())
}

/// A float as OpenMetrics writes it: never without a dot or an exponent.
fn open_metrics_float(value: f64) -> String {
    // Zero has no sign there.
    let text = format_g(if value == 0.0 { 0.0 } else { value }, None);
    if !value.is_finite() || text.contains(['e', '.']) {
        text
    } else {
        text + ".0"
    }
}

/// The histograms of a vector.
struct Histograms {
    frame: Arc<Frame>,
    grid: Grid,
    histograms: Vec<Member>,
    natives: Vec<Native>,
    delayed: bool,
}

/// One histogram.
struct Member {
    labels: Labels,
    name: Vec<u8>,
    /// Upper bounds, ascending, NaN last, and the series that counts below each.
    buckets: Vec<(f64, u32)>,
    /// Steps at which a native histogram has the same labels.
    conflicts: Vec<usize>,
}

impl Histograms {
    fn read(evaluator: &mut Evaluator<'_>, arg: &Node, grid: Grid) -> Result<Self, QueryError> {
        let frame = evaluator.frame(arg, grid)?;
        let delayed = evaluator.delays_names();
        let mut known = Dictionary::default();
        let mut histograms: Vec<Member> = Vec::new();
        for series in 0..frame.len() {
            evaluator.account.check()?;
            if !frame.row(series).has_floats() {
                continue;
            }
            let labels = &frame.labels(series);
            let name = labels.get(METRIC_NAME);
            let Some(bound) = parse_bound(labels.get(BOUND)) else {
                let shown: &[u8] = if delayed { name } else { b"" };
                evaluator.notes.add(Annotation::bad_bucket_label(
                    arg.span,
                    shown,
                    labels.get(BOUND),
                ));
                continue;
            };
            let rest = retain(labels.as_ref(), |label| label != BOUND);
            let (id, is_new) = known.intern(rest.as_bytes());
            if is_new {
                histograms.push(Member {
                    labels: retain(rest.as_ref(), |label| delayed || !is_metadata(label)),
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
                .sort_by(|(a, _), (b, _)| by_values(*a, *b));
        }
        let mut out = Self {
            frame,
            grid,
            histograms,
            natives: Vec::new(),
            delayed,
        };
        out.find_natives(known, arg.span, evaluator)?;
        Ok(out)
    }

    /// The name that remarks show: there is none when names are dropped at once.
    fn shown_name<'m>(&self, member: &'m Member) -> &'m [u8] {
        if self.delayed { &member.name } else { b"" }
    }

    /// The answer of every histogram, and what had to be repaired for it. Remarks on native
    /// histograms stand at `span`.
    fn answer(
        &self,
        evaluator: &mut Evaluator<'_>,
        question: &Question,
        span: Span,
    ) -> Result<(Frame, RepairLog), QueryError> {
        let mut out = self.answer_natives(evaluator, question, span)?;
        let account = evaluator.account;
        let task = |part: Range<usize>| {
            let memory = account.reserve(part.len() * self.row_bytes())?;
            let (mut frame, log) = self.answer_part(&self.histograms[part], question, account)?;
            frame.keep(memory);
            Ok((frame, log))
        };
        let mut log = RepairLog::default();
        let merge = |(frame, repairs): (Frame, RepairLog)| {
            out.append(frame);
            log.merge(repairs);
            Ok(())
        };
        let (compute, count) = (evaluator.ctx.compute, self.histograms.len());
        in_parts(compute, count, HISTOGRAMS_PER_PART, task, merge)?;
        Ok((out, log))
    }

    fn row_bytes(&self) -> usize {
        self.frame.steps() * size_of::<f64>() + size_of::<Head>()
    }

    fn answer_part(
        &self,
        part: &[Member],
        question: &Question,
        account: &Account<'_>,
    ) -> Result<(Frame, RepairLog), QueryError> {
        let steps = self.frame.steps();
        let (mut frame, mut log) = (Frame::new(steps), RepairLog::default());
        let (mut values, mut buckets) = (Vec::new(), Vec::new());
        for member in part {
            account.check()?;
            values.clear();
            for step in 0..steps {
                self.gather(member, step, &mut buckets);
                let (value, repairs) = ask(question, step, &mut buckets);
                values.push(value);
                if let Some(mut repairs) = repairs {
                    let time = self.grid.time(step);
                    repairs.times = (time, time);
                    log.add(self.shown_name(member), steps, step, repairs);
                }
            }
            let head = Head {
                labels: member.labels.clone(),
                drops_name: true,
            };
            let row = Row::of_floats(&values);
            frame.push(head, row);
        }
        Ok((frame, log))
    }

    /// The buckets that have a value at a step.
    fn gather(&self, member: &Member, step: usize, into: &mut Vec<Bucket>) {
        into.clear();
        if member.conflicts.contains(&step) {
            return;
        }
        for (bound, series) in &member.buckets {
            let count = self.frame.row(*series as usize).values[step];
            if !is_absent(count) {
                into.push(Bucket {
                    bound: *bound,
                    count,
                });
            }
        }
    }
}

fn ask(question: &Question, step: usize, buckets: &mut Vec<Bucket>) -> (f64, Option<Repairs>) {
    if buckets.is_empty() {
        return (ABSENT, None);
    }
    match question {
        Question::Quantile(quantiles) => quantile(quantiles[step], buckets),
        Question::Fraction(lower, upper) => (fraction(lower[step], upper[step], buckets), None),
    }
}

/// A bound as Go's `strconv.ParseFloat` reads it: a number too large is none.
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
            assert_eq!(open_metrics_float(value), want);
        }
    }
}

//! Binary operators between two instant vectors.
//!
//! Series are paired by signatures: the labels of the vector matching, encoded as numbers that both
//! sides share. If every signature has at most one series on the "one" side, and all results differ
//! in their labels, the pairs are the same at all steps and whole rows are combined. Otherwise, and
//! with `fill`, each step is paired separately (module `steps`), which detects the errors of
//! Prometheus.

mod labels;
mod sets;
mod steps;

use crate::ast::{MatchCardinality, PositionRange, VectorMatching};
use crate::eval::account::{QueryAccount, grow};
use crate::eval::kernels::kinds::{CombinedValue, StepRemarks, combine, incompatible_remark};
use crate::eval::rows::frame::SeriesFrame;
use crate::eval::rows::parts::{run_in_parts, series_per_part};
use crate::eval::rows::row::{ABSENT, StepOperand, StepRow, StepRowBuffer, is_absent};
use crate::eval::rows::row_labels::LabelSource;
use crate::eval::run::EvalContext;
use crate::grid::StepGrid;
use crate::math::operators::{ArithmeticLoop, compare, with_arithmetic};
use crate::plan::{PlanBinary, PlanNode};
use crate::value::{PromqlError, QueryPointValue};
use firn_model::budget::Reservation;
use firn_model::labels::Labels;
use labels::{MatchSignatures, PairLabelSource, ResultLabelRule, Side};
use rustc_hash::FxHashSet;
use std::ops::Range;
use std::sync::Arc;

/// A placeholder for the index of a missing series.
const NONE: u32 = u32::MAX;

/// Evaluates a binary operation on the rows of two vectors.
pub(crate) fn evaluate_vectors(
    run: &mut EvalContext<'_>,
    node: &PlanNode,
    operation: &PlanBinary,
    left: Arc<SeriesFrame>,
    right: Arc<SeriesFrame>,
    grid: StepGrid,
) -> Result<SeriesFrame, PromqlError> {
    assert_eq!(
        left.steps(),
        grid.count,
        "steps of the left side, and of the grid"
    );
    assert_eq!(
        right.steps(),
        grid.count,
        "steps of the right side, and of the grid"
    );
    let delayed = run.delays_names();
    let signatures = MatchSignatures::compute(&left, &right, &operation.matching, run)?;
    assert_eq!(
        signatures.left.len(),
        left.len(),
        "signatures, and series of the left side"
    );
    assert_eq!(
        signatures.right.len(),
        right.len(),
        "signatures, and series of the right side"
    );
    if let Some(meter) = run.account.meter()
        && !operation.op.is_set()
    {
        meter.set_unmatched(meter.place(node), signatures.count_unmatched(run.account)?);
    }
    let mut frame = if operation.op.is_set() {
        sets::evaluate_set_operation(operation.op, left, right, &signatures, run.account)?
    } else {
        let pairing = BinaryOperands {
            operation,
            span: node.own_span(),
            rule: ResultLabelRule {
                matching: operation.matching.clone(),
                drops: operation.op.is_arithmetic() || (operation.returns_bool && !delayed),
            },
            is_distinct: !delayed,
            may_repeat: delayed && grid.is_instant(),
            left: &left,
            right: &right,
            signatures: &signatures,
        };
        match pairing.fixed_pairs(run.account)? {
            Some(pairs) => pairing.combine_rows(run, pairs)?,
            None => steps::evaluate_by_steps(&pairing, run.account, &mut run.notes)?,
        }
    };
    frame.make_deep_labels(run.account)?;
    Ok(frame)
}

/// A binary operation, its operands, and the signatures of their series.
struct BinaryOperands<'a> {
    operation: &'a PlanBinary,
    span: PositionRange,
    /// The rule by which the labels of results are created.
    rule: ResultLabelRule,
    /// True if no side has two series with equal labels.
    is_distinct: bool,
    /// True if equal labels in the result are detected at the end of the evaluation.
    may_repeat: bool,
    left: &'a SeriesFrame,
    right: &'a SeriesFrame,
    signatures: &'a MatchSignatures,
}

/// Two series that are combined at every step, as indexes into their frames.
struct SeriesPair {
    many: u32,
    one: u32,
}

/// Memory of a pair in bytes: the pair itself, its two member indexes, and the location of its row,
/// in lists with capacity for twice as many.
const PAIR_BYTES: usize = 2 * size_of::<SeriesPair>() + 4 * size_of::<(u32, u32)>();

/// The pairs of an operation, and the reservation for them and the locations of their rows.
struct SeriesPairs {
    pairs: Vec<SeriesPair>,
    memory: Reservation,
}

impl BinaryOperands<'_> {
    fn matching(&self) -> &VectorMatching {
        &self.operation.matching
    }

    /// Returns whether the left side is the "one" side.
    fn is_swapped(&self) -> bool {
        self.matching().cardinality == MatchCardinality::OneToMany
    }

    /// Returns the "many" side, which may have several series per signature, and its signatures.
    fn many(&self) -> (&SeriesFrame, &[u32]) {
        if self.is_swapped() {
            (self.right, &self.signatures.right)
        } else {
            (self.left, &self.signatures.left)
        }
    }

    /// Returns the "one" side, which has at most one series per signature, and its signatures.
    fn one(&self) -> (&SeriesFrame, &[u32]) {
        if self.is_swapped() {
            (self.left, &self.signatures.left)
        } else {
            (self.right, &self.signatures.right)
        }
    }

    /// Returns the pairs, or `None` if they may differ between steps.
    fn fixed_pairs(&self, account: &QueryAccount<'_>) -> Result<Option<SeriesPairs>, PromqlError> {
        let matching = self.matching();
        if matching.fill_left.is_some() || matching.fill_right.is_some() {
            return Ok(None);
        }
        let ((many, many_ids), (one, one_ids)) = (self.many(), self.one());
        let _places = account.reserve(self.signatures.count * size_of::<u32>())?;
        let memory = account.reserve(many_ids.len() * PAIR_BYTES)?;
        let mut one_of = vec![NONE; self.signatures.count];
        for (series, id) in one_ids.iter().enumerate() {
            let place = &mut one_of[*id as usize];
            if *place != NONE {
                return Ok(None);
            }
            *place = series as u32;
        }
        let mut pairs = Vec::new();
        for (many, id) in many_ids.iter().enumerate() {
            let one = one_of[*id as usize];
            if one != NONE {
                let many = many as u32;
                pairs.push(SeriesPair { many, one });
            }
        }
        let one_to_one = matching.cardinality == MatchCardinality::OneToOne;
        let pairs = SeriesPairs { pairs, memory };
        if one_to_one && !self.are_unique(many_ids) {
            return Ok(None);
        }
        // The labels of one-to-one results include their signatures, which are distinct.
        if one_to_one && !self.signatures.hold_metadata {
            return Ok(Some(pairs));
        }
        if self.is_distinct && self.rule.keeps_series_distinct(many, account)? {
            return Ok(Some(pairs));
        }
        let mut passing = account.reserve(pairs.pairs.len() * 3 * size_of::<Labels>())?;
        let mut seen = FxHashSet::default();
        for pair in &pairs.pairs {
            account.check()?;
            let (many, one) = (
                many.labels(pair.many as usize),
                one.labels(pair.one as usize),
            );
            let labels = self.rule.labels(&many, &one);
            grow(&mut passing, labels.as_bytes().len())?;
            if !seen.insert(labels) {
                return Ok(None);
            }
        }
        Ok(Some(pairs))
    }

    fn are_unique(&self, ids: &[u32]) -> bool {
        let mut seen = vec![false; self.signatures.count];
        ids.iter()
            .all(|id| !std::mem::replace(&mut seen[*id as usize], true))
    }

    /// Combines the rows of all pairs in parallel, and merges the results in order.
    fn combine_rows(
        &self,
        run: &mut EvalContext<'_>,
        SeriesPairs { pairs, memory }: SeriesPairs,
    ) -> Result<SeriesFrame, PromqlError> {
        let (many, one) = (self.many().0, self.one().0);
        let account = run.account;
        let side = |frame: &SeriesFrame, member: fn(&SeriesPair) -> u32| -> Side {
            let (origin, members) = frame.all_labels().to_label_source();
            let of_pairs = pairs.iter().map(|pair| members[member(pair) as usize]);
            (origin, of_pairs.collect())
        };
        let origin: Arc<dyn LabelSource> = Arc::new(PairLabelSource {
            many: side(many, |pair| pair.many),
            one: side(one, |pair| pair.one),
            rule: self.rule.clone(),
            drops_name: self.operation.returns_bool,
        });
        let row_bytes = many.steps() * size_of::<f64>();
        let task = |part: Range<usize>| {
            let mut remarks = StepRemarks::default();
            let mut row = StepRowBuffer::default();
            let mut frame =
                SeriesFrame::with_label_source(many.steps(), origin.clone(), part.len());
            let mut memory = account.reserve(part.len() * row_bytes)?;
            for (at, pair) in part.clone().zip(&pairs[part]) {
                account.check()?;
                let (m, o) = (many.row(pair.many as usize), one.row(pair.one as usize));
                let (left, right) = if self.is_swapped() { (o, m) } else { (m, o) };
                self.combine(left, right, &mut row, &mut remarks);
                grow(&mut memory, row.row().histogram_bytes())?;
                if !row.row().is_empty() {
                    frame.push_member(at, row.row());
                }
            }
            account.hold_samples(frame.samples())?;
            frame.hold_reservation(memory);
            Ok((frame, remarks))
        };
        let mut out = SeriesFrame::new(many.steps());
        let mut all_remarks = StepRemarks::default();
        let merge = |(frame, remarks)| {
            out.append(frame);
            all_remarks.merge(remarks);
            Ok(())
        };
        run_in_parts(
            run.ctx.compute,
            pairs.len(),
            series_per_part(pairs.len(), many.steps()),
            task,
            merge,
        )?;
        let remarks = all_remarks.into_iter();
        remarks.for_each(|remark| run.notes.add(remark));
        out.hold_reservation(memory);
        Ok(out)
    }

    /// Combines two rows and writes the result to `out`.
    fn combine(
        &self,
        left: StepRow<'_>,
        right: StepRow<'_>,
        out: &mut StepRowBuffer,
        remarks: &mut StepRemarks,
    ) {
        out.reset(left.values.len());
        if !left.histograms.is_empty() || !right.histograms.is_empty() {
            self.combine_histograms(left, right, out, remarks);
        }
        let op = self.operation.op;
        let rows = RowArithmetic {
            left: left.values,
            right: right.values,
            out: &mut out.values,
        };
        if with_arithmetic(op, rows).is_some() {
            return;
        }
        for (step, out) in out.values.iter_mut().enumerate() {
            let (l, r) = (left.values[step], right.values[step]);
            if is_absent(l) || is_absent(r) {
                continue;
            }
            match self.combine_floats(l, r) {
                Some(value) => *out = value,
                None if op.is_comparison() => {}
                None => remarks.set(step, incompatible_remark(op, self.span, false, false)),
            }
        }
    }

    /// Returns the result of two floats. `None` if a comparison is false and has no `bool`
    /// modifier.
    fn combine_floats(&self, left: f64, right: f64) -> Option<f64> {
        let op = self.operation.op;
        if !op.is_comparison() {
            return with_arithmetic(op, StepArithmetic { left, right });
        }
        let holds = compare(op, left, right);
        if self.operation.returns_bool {
            return Some(f64::from(u8::from(holds)));
        }
        holds.then_some(left)
    }

    /// Combines two rows at the steps where at least one of them has a histogram.
    fn combine_histograms(
        &self,
        left: StepRow<'_>,
        right: StepRow<'_>,
        out: &mut StepRowBuffer,
        remarks: &mut StepRemarks,
    ) {
        for step in 0..left.values.len() {
            let (Some(l), Some(r)) = (left.operand(step), right.operand(step)) else {
                continue;
            };
            if matches!((l, r), (StepOperand::Float(_), StepOperand::Float(_))) {
                continue;
            }
            let point = match combine(self.operation.op, self.span, l, r) {
                CombinedValue::Refused(remark) => {
                    remarks.set(step, remark);
                    continue;
                }
                CombinedValue::Histogram(histogram, remark) => {
                    remark
                        .into_iter()
                        .for_each(|remark| remarks.set(step, remark));
                    Some(QueryPointValue::Histogram(histogram))
                }
                CombinedValue::Compared(holds) => self.compare_floats(holds, l),
            };
            match point {
                Some(QueryPointValue::Float(value)) => out.values[step] = value,
                Some(QueryPointValue::Histogram(histogram)) => {
                    out.histograms.push((step as u32, histogram));
                }
                None => {}
            }
        }
    }

    /// Returns the result of a comparison: 0 or 1 with `bool`; otherwise the left side if the
    /// comparison is true.
    fn compare_floats(&self, holds: bool, left: StepOperand<'_>) -> Option<QueryPointValue> {
        if self.operation.returns_bool {
            return Some(QueryPointValue::Float(f64::from(u8::from(holds))));
        }
        holds.then(|| match left {
            StepOperand::Float(value) => QueryPointValue::Float(value),
            StepOperand::Histogram(histogram) => QueryPointValue::Histogram(histogram.clone()),
        })
    }
}

/// The arithmetic of two rows, step by step. A step is absent if either side is.
struct RowArithmetic<'a> {
    left: &'a [f64],
    right: &'a [f64],
    out: &'a mut [f64],
}

impl ArithmeticLoop<()> for RowArithmetic<'_> {
    fn run(self, op: impl Fn(f64, f64) -> f64) {
        for (out, (left, right)) in self.out.iter_mut().zip(self.left.iter().zip(self.right)) {
            *out = if is_absent(*left) || is_absent(*right) {
                ABSENT
            } else {
                op(*left, *right)
            };
        }
    }
}

/// The arithmetic of two single floats, for steps that are combined individually.
struct StepArithmetic {
    left: f64,
    right: f64,
}

impl ArithmeticLoop<f64> for StepArithmetic {
    fn run(self, op: impl Fn(f64, f64) -> f64) -> f64 {
        op(self.left, self.right)
    }
}

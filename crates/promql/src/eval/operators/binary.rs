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

use crate::ast::{Cardinality, Matching, Span};
use crate::eval::account::{Account, grow};
use crate::eval::kernels::kinds::{Combined, StepRemarks, combine, incompatible};
use crate::eval::rows::frame::Frame;
use crate::eval::rows::parts::{in_parts, series_per_part};
use crate::eval::rows::row::{ABSENT, Operand, Row, RowBuffer, is_absent};
use crate::eval::rows::row_labels::Origin;
use crate::eval::run::Run;
use crate::grid::Grid;
use crate::math::operators::{ArithmeticLoop, compare, with_arithmetic};
use crate::plan::{Binary, Node};
use crate::value::{PointValue, QueryError};
use firn_model::budget::Reservation;
use firn_model::labels::Labels;
use labels::{LabelRule, Paired, Side, Signatures};
use rustc_hash::FxHashSet;
use std::ops::Range;
use std::sync::Arc;

/// A placeholder for the index of a missing series.
const NONE: u32 = u32::MAX;

/// Evaluates a binary operation on the rows of two vectors.
pub(crate) fn frame(
    run: &mut Run<'_>,
    node: &Node,
    operation: &Binary,
    (left, right): (Arc<Frame>, Arc<Frame>),
    grid: Grid,
) -> Result<Frame, QueryError> {
    let delayed = run.delays_names();
    let signatures = Signatures::of(&left, &right, &operation.matching, run)?;
    let mut frame = if operation.op.is_set() {
        sets::frame(operation.op, left, right, &signatures, run.account)?
    } else {
        let pairing = Pairing {
            operation,
            span: node.own_span(),
            rule: LabelRule {
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
            None => steps::frame(&pairing, run.account, &mut run.notes)?,
        }
    };
    frame.make_deep_labels(run.account)?;
    Ok(frame)
}

/// A binary operation, its operands, and the signatures of their series.
struct Pairing<'a> {
    operation: &'a Binary,
    span: Span,
    /// The rule by which the labels of results are created.
    rule: LabelRule,
    /// True if no side has two series with equal labels.
    is_distinct: bool,
    /// True if equal labels in the result are detected at the end of the evaluation.
    may_repeat: bool,
    left: &'a Frame,
    right: &'a Frame,
    signatures: &'a Signatures,
}

/// Two series that are combined at every step, as indexes into their frames.
struct Pair {
    many: u32,
    one: u32,
}

/// Memory of a pair in bytes: the pair itself, its two member indexes, and the location of its row,
/// in lists with capacity for twice as many.
const PAIR_BYTES: usize = 2 * size_of::<Pair>() + 4 * size_of::<(u32, u32)>();

/// The pairs of an operation, and the reservation for them and the locations of their rows.
struct Pairs {
    pairs: Vec<Pair>,
    memory: Reservation,
}

impl Pairing<'_> {
    fn matching(&self) -> &Matching {
        &self.operation.matching
    }

    /// Returns whether the left side is the "one" side.
    fn is_swapped(&self) -> bool {
        self.matching().cardinality == Cardinality::OneToMany
    }

    /// Returns the "many" side, which may have several series per signature, and its signatures.
    fn many(&self) -> (&Frame, &[u32]) {
        match self.is_swapped() {
            true => (self.right, &self.signatures.right),
            false => (self.left, &self.signatures.left),
        }
    }

    /// Returns the "one" side, which has at most one series per signature, and its signatures.
    fn one(&self) -> (&Frame, &[u32]) {
        match self.is_swapped() {
            true => (self.left, &self.signatures.left),
            false => (self.right, &self.signatures.right),
        }
    }

    /// Returns the pairs, or `None` if they may differ between steps.
    fn fixed_pairs(&self, account: &Account<'_>) -> Result<Option<Pairs>, QueryError> {
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
                pairs.push(Pair { many, one });
            }
        }
        let one_to_one = matching.cardinality == Cardinality::OneToOne;
        let pairs = Pairs { pairs, memory };
        if one_to_one && !self.unique(many_ids) {
            return Ok(None);
        }
        // The labels of one-to-one results include their signatures, which are distinct.
        if one_to_one && !self.signatures.hold_metadata {
            return Ok(Some(pairs));
        }
        if self.is_distinct && self.rule.keeps_apart(many, account)? {
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

    fn unique(&self, ids: &[u32]) -> bool {
        let mut seen = vec![false; self.signatures.count];
        ids.iter()
            .all(|id| !std::mem::replace(&mut seen[*id as usize], true))
    }

    /// Combines the rows of all pairs in parallel, and merges the results in order.
    fn combine_rows(
        &self,
        run: &mut Run<'_>,
        Pairs { pairs, memory }: Pairs,
    ) -> Result<Frame, QueryError> {
        let (many, one) = (self.many().0, self.one().0);
        let account = run.account;
        let side = |frame: &Frame, member: fn(&Pair) -> u32| -> Side {
            let (origin, members) = frame.all_labels().origin();
            let of_pairs = pairs.iter().map(|pair| members[member(pair) as usize]);
            (origin, of_pairs.collect())
        };
        let origin: Arc<dyn Origin> = Arc::new(Paired {
            many: side(many, |pair| pair.many),
            one: side(one, |pair| pair.one),
            rule: self.rule.clone(),
            drops_name: self.operation.returns_bool,
        });
        let row_bytes = many.steps() * size_of::<f64>();
        let task = |part: Range<usize>| {
            let mut remarks = StepRemarks::default();
            let mut row = RowBuffer::default();
            let mut frame = Frame::late(many.steps(), origin.clone(), part.len());
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
            account.hold(frame.samples())?;
            frame.keep(memory);
            Ok((frame, remarks))
        };
        let mut out = Frame::new(many.steps());
        let mut all_remarks = StepRemarks::default();
        let merge = |(frame, remarks)| {
            out.append(frame);
            all_remarks.merge(remarks);
            Ok(())
        };
        in_parts(
            run.ctx.compute,
            pairs.len(),
            series_per_part(pairs.len(), many.steps()),
            task,
            merge,
        )?;
        let remarks = all_remarks.into_iter();
        remarks.for_each(|remark| run.notes.add(remark));
        out.keep(memory);
        Ok(out)
    }

    /// Combines two rows and writes the result to `out`.
    fn combine(
        &self,
        left: Row<'_>,
        right: Row<'_>,
        out: &mut RowBuffer,
        remarks: &mut StepRemarks,
    ) {
        out.reset(left.values.len());
        if !left.histograms.is_empty() || !right.histograms.is_empty() {
            self.combine_histograms(left, right, out, remarks);
        }
        let op = self.operation.op;
        let rows = RowLoop {
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
            match self.of_floats(l, r) {
                Some(value) => *out = value,
                None if op.is_comparison() => {}
                None => remarks.set(step, incompatible(op, self.span, (false, false))),
            }
        }
    }

    /// Returns the result of two floats. `None` if a comparison is false and has no `bool`
    /// modifier.
    fn of_floats(&self, left: f64, right: f64) -> Option<f64> {
        let op = self.operation.op;
        if !op.is_comparison() {
            return with_arithmetic(op, Once { left, right });
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
        left: Row<'_>,
        right: Row<'_>,
        out: &mut RowBuffer,
        remarks: &mut StepRemarks,
    ) {
        for step in 0..left.values.len() {
            let (Some(l), Some(r)) = (left.operand(step), right.operand(step)) else {
                continue;
            };
            if matches!((l, r), (Operand::Float(_), Operand::Float(_))) {
                continue;
            }
            let point = match combine(self.operation.op, self.span, l, r) {
                Combined::Refused(remark) => {
                    remarks.set(step, remark);
                    continue;
                }
                Combined::Histogram(histogram, remark) => {
                    remark
                        .into_iter()
                        .for_each(|remark| remarks.set(step, remark));
                    Some(PointValue::Histogram(histogram))
                }
                Combined::Compared(holds) => self.compared(holds, l),
            };
            match point {
                Some(PointValue::Float(value)) => out.values[step] = value,
                Some(PointValue::Histogram(histogram)) => {
                    out.histograms.push((step as u32, histogram));
                }
                None => {}
            }
        }
    }

    /// Returns the result of a comparison: 0 or 1 with `bool`; otherwise the left side if the
    /// comparison is true.
    fn compared(&self, holds: bool, left: Operand<'_>) -> Option<PointValue> {
        if self.operation.returns_bool {
            return Some(PointValue::Float(f64::from(u8::from(holds))));
        }
        holds.then(|| match left {
            Operand::Float(value) => PointValue::Float(value),
            Operand::Histogram(histogram) => PointValue::Histogram(histogram.clone()),
        })
    }
}

/// The arithmetic of two rows, step by step. A step is absent if either side is.
struct RowLoop<'a> {
    left: &'a [f64],
    right: &'a [f64],
    out: &'a mut [f64],
}

impl ArithmeticLoop<()> for RowLoop<'_> {
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
struct Once {
    left: f64,
    right: f64,
}

impl ArithmeticLoop<f64> for Once {
    fn run(self, op: impl Fn(f64, f64) -> f64) -> f64 {
        op(self.left, self.right)
    }
}

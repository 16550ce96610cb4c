//! Binary operators between two instant vectors.
//!
//! Elements are paired by signatures: the labels that matter, as numbers that both sides share.
//! Where every signature has one series on the side that must be unique, and results differ in
//! labels, pairs are the same at all steps and whole rows are combined. Otherwise, and with `fill`,
//! each step is paired on its own (module `steps`), which finds upstream's errors.

mod sets;
mod steps;

use crate::ast::{Cardinality, Matching, Span};
use crate::eval::account::{Account, grow};
use crate::eval::elementwise::{ArithmeticLoop, compare, with_arithmetic};
use crate::eval::evaluator::Evaluator;
use crate::eval::frame::{ABSENT, Frame, Head, Row, RowBuffer, is_absent};
use crate::eval::grid::Grid;
use crate::eval::kinds::{Combined, Operand, StepRemarks, combine, incompatible};
use crate::eval::label_sets::{Dictionary, is_metadata, retain, retain_into, without_metadata};
use crate::eval::ranges::{SERIES_PER_PART, in_parts};
use crate::eval::stream::Stream;
use crate::plan::{Binary, Node};
use crate::value::{PointValue, QueryError};
use firn_model::budget::Reservation;
use firn_model::labels::{Labels, LabelsBuilder, METRIC_NAME};
use rustc_hash::FxHashSet;
use std::ops::Range;

/// No series.
const NONE: u32 = u32::MAX;

/// The value of the operation.
pub(crate) fn vector(
    evaluator: &mut Evaluator<'_>,
    node: &Node,
    operation: &Binary,
    grid: Grid,
) -> Result<Stream, QueryError> {
    let before = evaluator.account.held();
    let left = evaluator.frame(&operation.left, grid)?;
    let right = evaluator.frame(&operation.right, grid)?;
    let delayed = evaluator.delays_names();
    let signatures = Signatures::of(&left, &right, &operation.matching, evaluator.account)?;
    let frame = if operation.op.is_set() {
        sets::frame(operation.op, left, right, &signatures, evaluator.account)?
    } else {
        let pairing = Pairing {
            operation,
            span: node.own_span(),
            strips_names: operation.returns_bool && !delayed,
            may_repeat: delayed && grid.count == 1,
            left: &left,
            right: &right,
            signatures: &signatures,
        };
        match pairing.fixed_pairs(evaluator.account)? {
            Some(pairs) => pairing.combine_rows(evaluator, pairs)?,
            None => steps::frame(&pairing, evaluator.account, &mut evaluator.notes)?,
        }
    };
    evaluator.account.settle(before, frame.samples())?;
    Ok(frame.into())
}

/// For each series of both sides the number of its signature.
struct Signatures {
    left: Vec<u32>,
    right: Vec<u32>,
    count: usize,
    /// Whether a signature holds a label that an operation may drop.
    hold_metadata: bool,
    _memory: Reservation,
}

impl Signatures {
    fn of(
        left: &Frame,
        right: &Frame,
        matching: &Matching,
        account: &Account<'_>,
    ) -> Result<Self, QueryError> {
        let memory = account.reserve((left.len() + right.len()) * size_of::<u32>())?;
        let mut passing = account.reserve(0)?;
        let mut known = Dictionary::default();
        let mut bytes = Vec::new();
        let mut hold_metadata = false;
        let mut number = |frame: &Frame| {
            let mut ids = Vec::with_capacity(frame.len());
            for series in 0..frame.len() {
                account.check()?;
                let labels = frame.head(series).labels.as_ref();
                let keeps = |name: &str| {
                    let kept = is_matched(name, matching);
                    hold_metadata |= kept && is_metadata(name);
                    kept
                };
                retain_into(labels, keeps, &mut bytes);
                let (id, is_new) = known.intern(&bytes);
                if is_new {
                    grow(&mut passing, Dictionary::entry_bytes(&bytes))?;
                }
                ids.push(id);
            }
            Ok::<_, QueryError>(ids)
        };
        let (left, right) = (number(left)?, number(right)?);
        Ok(Self {
            left,
            right,
            count: known.len(),
            hold_metadata,
            _memory: memory,
        })
    }
}

/// Whether elements are paired by this label.
fn is_matched(name: &str, matching: &Matching) -> bool {
    let named = matching.labels.iter().any(|label| label == name);
    match matching.on {
        true => named,
        false => !named && name != METRIC_NAME,
    }
}

/// An operation and its operands.
struct Pairing<'a> {
    operation: &'a Binary,
    span: Span,
    /// Whether names go although the operator is a comparison.
    strips_names: bool,
    /// Whether equal labels in the result are looked at later.
    may_repeat: bool,
    left: &'a Frame,
    right: &'a Frame,
    signatures: &'a Signatures,
}

/// Two series that are combined at every step, and the labels of the result.
struct Pair {
    many: u32,
    one: u32,
    labels: Labels,
}

/// What a pair takes beside the bytes of its labels, in lists that may have room for as many again,
/// and the head that is made of it.
const PAIR_BYTES: usize = 2 * size_of::<Pair>() + 2 * size_of::<Head>() + 16;

/// Pairs, and the memory that they and the labels of the result take.
struct Pairs {
    pairs: Vec<Pair>,
    memory: Reservation,
}

impl Pairing<'_> {
    fn matching(&self) -> &Matching {
        &self.operation.matching
    }

    /// Whether the left side is the one whose series are unique.
    fn is_swapped(&self) -> bool {
        self.matching().cardinality == Cardinality::OneToMany
    }

    /// The side that may have several series of a signature, and its signatures.
    fn many(&self) -> (&Frame, &[u32]) {
        match self.is_swapped() {
            true => (self.right, &self.signatures.right),
            false => (self.left, &self.signatures.left),
        }
    }

    /// The side whose series are unique, and its signatures.
    fn one(&self) -> (&Frame, &[u32]) {
        match self.is_swapped() {
            true => (self.left, &self.signatures.left),
            false => (self.right, &self.signatures.right),
        }
    }

    /// The pairs, if they are the same at all steps whatever values there are.
    fn fixed_pairs(&self, account: &Account<'_>) -> Result<Option<Pairs>, QueryError> {
        let matching = self.matching();
        if matching.fill_left.is_some() || matching.fill_right.is_some() {
            return Ok(None);
        }
        let ((many, many_ids), (one, one_ids)) = (self.many(), self.one());
        let _places = account.reserve(self.signatures.count * size_of::<u32>())?;
        let mut memory = account.reserve(0)?;
        let mut one_of = vec![NONE; self.signatures.count];
        for (series, id) in one_ids.iter().enumerate() {
            let place = &mut one_of[*id as usize];
            if *place != NONE {
                return Ok(None);
            }
            *place = series as u32;
        }
        let mut pairs = Vec::new();
        for (series, id) in many_ids.iter().enumerate() {
            account.check()?;
            let partner = one_of[*id as usize];
            if partner != NONE {
                let (many, one) = (many.head(series), one.head(partner as usize));
                let labels = self.result_labels(&many.labels, &one.labels);
                grow(&mut memory, PAIR_BYTES + labels.as_bytes().len())?;
                pairs.push(Pair {
                    many: series as u32,
                    one: partner,
                    labels,
                });
            }
        }
        let one_to_one = matching.cardinality == Cardinality::OneToOne;
        let pairs = Pairs { pairs, memory };
        if one_to_one && !self.unique(many_ids) {
            return Ok(None);
        }
        // The labels of one-to-one results hold their signatures, which are distinct.
        if one_to_one && !self.signatures.hold_metadata {
            return Ok(Some(pairs));
        }
        let _seen = account.reserve(pairs.pairs.len() * PAIR_BYTES)?;
        let mut seen = FxHashSet::default();
        for pair in &pairs.pairs {
            account.check()?;
            if !seen.insert(pair.labels.as_bytes()) {
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

    /// The labels of a result.
    fn result_labels(&self, many: &Labels, one: &Labels) -> Labels {
        let matching = self.matching();
        let drops = self.strips_names || self.operation.op.is_arithmetic();
        let named = |name: &str| matching.labels.iter().any(|l| l == name);
        let one_to_one = matching.cardinality == Cardinality::OneToOne;
        if drops && matching.labels.is_empty() && matching.include.is_empty() && !matching.on {
            return without_metadata(many.as_ref());
        }
        let kept = retain(many.as_ref(), |name| {
            !(drops && is_metadata(name)) && (!one_to_one || named(name) == matching.on)
        });
        if matching.include.is_empty() {
            return kept;
        }
        let mut builder = LabelsBuilder::from_labels(kept.as_ref());
        for name in &matching.include {
            builder.set(name, one.get(name));
        }
        builder.build()
    }

    /// Combines the rows of all pairs.
    fn combine_rows(
        &self,
        evaluator: &mut Evaluator<'_>,
        Pairs { pairs, memory }: Pairs,
    ) -> Result<Frame, QueryError> {
        let (many, one) = (self.many().0, self.one().0);
        let account = evaluator.account;
        let task = |part: Range<usize>| {
            let mut remarks = StepRemarks::default();
            let mut row = RowBuffer::default();
            let mut frame = Frame::new(many.steps());
            let mut memory = account.reserve(part.len() * many.steps() * size_of::<f64>())?;
            for pair in &pairs[part] {
                account.check()?;
                let (m, o) = (many.row(pair.many as usize), one.row(pair.one as usize));
                let (left, right) = if self.is_swapped() { (o, m) } else { (m, o) };
                self.combine(left, right, &mut row, &mut remarks);
                memory
                    .grow(row.row().histogram_bytes())
                    .map_err(|e| QueryError::Limited(e.message))?;
                let head = Head {
                    labels: pair.labels.clone(),
                    drops_name: self.operation.returns_bool,
                };
                frame.push(head, row.row());
            }
            account.hold(frame.samples())?;
            frame.keep(memory);
            Ok((frame, remarks))
        };
        let mut out = Frame::new(many.steps());
        let mut room = account.reserve(0)?;
        let mut all_remarks = StepRemarks::default();
        let merge = |(frame, remarks)| {
            grow(&mut room, out.growth_bytes(&frame))?;
            out.append(frame);
            room.shrink_to(out.free_bytes());
            all_remarks.merge(remarks);
            Ok(())
        };
        in_parts(
            evaluator.ctx.compute,
            pairs.len(),
            SERIES_PER_PART,
            task,
            merge,
        )?;
        let remarks = all_remarks.into_iter();
        remarks.for_each(|remark| evaluator.notes.add(remark));
        out.keep(room);
        out.keep(memory);
        Ok(out)
    }

    /// Combines two rows.
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

    /// The result of two floats; a comparison that does not hold has none.
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

    /// Combines the steps of two rows at which one has a histogram.
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

    /// What a comparison gives: with `bool` whether it holds, else the left side if it does.
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

/// Arithmetic of two rows.
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

/// Arithmetic of two floats.
struct Once {
    left: f64,
    right: f64,
}

impl ArithmeticLoop<f64> for Once {
    fn run(self, op: impl Fn(f64, f64) -> f64) -> f64 {
        op(self.left, self.right)
    }
}

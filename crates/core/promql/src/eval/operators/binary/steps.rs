//! Pairs series step by step. This is necessary if a signature has several series, which may not
//! have values at the same steps, and if `fill` replaces a missing side.

use super::labels::is_matched;
use super::{BinaryOperands, NONE};
use crate::ast::MatchCardinality;
use crate::eval::account::{QueryAccount, grow};
use crate::eval::annotations::QueryAnnotations;
use crate::eval::kernels::kinds::{CombinedValue, StepRemarks, combine, incompatible_remark};
use crate::eval::operators::stream::same_labelset_error;
use crate::eval::rows::frame::SeriesFrame;
use crate::eval::rows::label_sets::retain_labels;
use crate::eval::rows::row::{StepOperand, StepRowBuffer, histogram_bytes, is_absent};
use crate::eval::rows::row_labels::RowLabels;
use crate::value::{PromqlError, QueryPointValue};
use firn_model::budget::Reservation;
use firn_model::histogram::Histogram;
use firn_model::labels::Labels;
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::Arc;

/// Evaluates a binary operation step by step. Fails with the errors of Prometheus if series cannot
/// be paired uniquely.
pub(super) fn evaluate_by_steps(
    pairing: &BinaryOperands<'_>,
    account: &QueryAccount<'_>,
    notes: &mut QueryAnnotations,
) -> Result<SeriesFrame, PromqlError> {
    let steps = pairing.left.steps();
    // The temporary memory of a step per element: a list, an index and the labels of results.
    const PASSING_BYTES: usize =
        2 * (size_of::<BinaryStepElement>() + size_of::<FxHashSet<Labels>>() + 64);
    let elements = pairing.left.len() + pairing.right.len();
    let _passing = account.reserve(elements * PASSING_BYTES)?;
    let mut output = BinaryStepOutput {
        pairing,
        account,
        places: FxHashMap::default(),
        rows: Vec::new(),
        labels: FxHashMap::default(),
        memory: account.reserve(0)?,
        remarks: StepRemarks::default(),
    };
    for step in 0..steps {
        output.combine_step(step)?;
    }
    let remarks = std::mem::take(&mut output.remarks);
    remarks.into_iter().for_each(|remark| notes.add(remark));
    let mut frame = SeriesFrame::new(steps);
    frame.hold_reservation(output.memory);
    // Rows are copied into the frame, which may have capacity for twice as many.
    let copied = output.rows.len() * (steps * size_of::<f64>() + size_of::<RowLabels>());
    frame.hold_reservation(account.reserve(2 * copied)?);
    for (labels, row) in output.rows {
        account.check()?;
        let drops_name = pairing.operation.returns_bool;
        frame.push(RowLabels { labels, drops_name }, row.row());
    }
    Ok(frame)
}

/// An element of one side at a step: a float or a histogram.
#[derive(Clone)]
struct BinaryStepElement {
    /// The index of its series, or `NONE` for a value from `fill`.
    series: u32,
    signature: u32,
    value: f64,
    histogram: Option<Arc<Histogram>>,
}

/// The state of the operation: the rows of results so far.
struct BinaryStepOutput<'a> {
    pairing: &'a BinaryOperands<'a>,
    account: &'a QueryAccount<'a>,
    /// The index of the row of each label set.
    places: FxHashMap<Labels, usize>,
    rows: Vec<(Labels, StepRowBuffer)>,
    /// The labels of results by the indexes of both series, for reuse at later steps.
    labels: FxHashMap<(u32, u32), Labels>,
    /// The reservation for rows and labels. If labels change between steps, each step adds new
    /// ones.
    memory: Reservation,
    remarks: StepRemarks,
}

impl BinaryStepElement {
    fn operand(&self) -> StepOperand<'_> {
        match &self.histogram {
            Some(histogram) => StepOperand::Histogram(histogram),
            None => StepOperand::Float(self.value),
        }
    }
}

fn collect_elements(
    frame: &SeriesFrame,
    signatures: &[u32],
    step: usize,
    account: &QueryAccount<'_>,
) -> Result<Vec<BinaryStepElement>, PromqlError> {
    let element = |series: usize| {
        let row = frame.row(series);
        let histogram = row.histogram(step).cloned();
        let value = row.values[step];
        let present = histogram.is_some() || !is_absent(value);
        present.then(|| BinaryStepElement {
            series: series as u32,
            signature: signatures[series],
            value,
            histogram,
        })
    };
    let mut elements = Vec::new();
    for series in 0..frame.len() {
        account.check()?;
        elements.extend(element(series));
    }
    Ok(elements)
}

impl BinaryStepOutput<'_> {
    fn combine_step(&mut self, step: usize) -> Result<(), PromqlError> {
        let matching = self.pairing.matching();
        let (frame, signatures) = self.pairing.many();
        let many = collect_elements(frame, signatures, step, self.account)?;
        let (frame, signatures) = self.pairing.one();
        let one = collect_elements(frame, signatures, step, self.account)?;
        let fills = matching.fill_left.is_some() || matching.fill_right.is_some();
        if (many.is_empty() && one.is_empty()) || (!fills && (many.is_empty() || one.is_empty())) {
            return Ok(());
        }
        let one_of = self.index_by_signature(&one)?;
        let mut matched: FxHashMap<u32, FxHashSet<Labels>> = FxHashMap::default();
        for element in &many {
            self.account.check()?;
            let partner = match (one_of.get(&element.signature), matching.fill_right) {
                (Some(at), _) => one[*at].clone(),
                (None, Some(fill)) => filled(element.signature, fill),
                (None, None) => continue,
            };
            self.combine_pair(step, element, &partner, &mut matched)?;
        }
        let Some(fill) = matching.fill_left else {
            return Ok(());
        };
        for element in &one {
            self.account.check()?;
            if !matched.contains_key(&element.signature) {
                let partner = filled(element.signature, fill);
                self.combine_pair(step, &partner, element, &mut matched)?;
            }
        }
        Ok(())
    }

    /// Returns the index of each element of the "one" side by signature. Fails if a signature
    /// occurs twice.
    fn index_by_signature(
        &self,
        one: &[BinaryStepElement],
    ) -> Result<FxHashMap<u32, usize>, PromqlError> {
        let mut one_of = FxHashMap::default();
        for (at, element) in one.iter().enumerate() {
            self.account.check()?;
            if let Some(known) = one_of.insert(element.signature, at) {
                let known: &BinaryStepElement = &one[known];
                return Err(self.duplicate_error(element.series, known.series));
            }
        }
        Ok(one_of)
    }

    fn duplicate_error(&self, series: u32, known: u32) -> PromqlError {
        let frame = self.pairing.one().0;
        let labels = |series: u32| frame.labels(series as usize);
        let side = if self.pairing.is_swapped() {
            "left"
        } else {
            "right"
        };
        let group = self.matched_labels(&labels(series));
        PromqlError::Execution(format!(
            "found duplicate series for the match group {group} on the {side} hand-side of the \
             operation: [{}, {}];many-to-many matching not allowed: matching labels must be unique \
             on one side",
            labels(series),
            labels(known),
        ))
    }

    /// Returns the labels of an element that are part of its signature.
    fn matched_labels(&self, labels: &Labels) -> Labels {
        let matching = self.pairing.matching();
        retain_labels(labels.as_ref(), |name| is_matched(name, matching))
    }

    fn combine_pair(
        &mut self,
        step: usize,
        many: &BinaryStepElement,
        one: &BinaryStepElement,
        matched: &mut FxHashMap<u32, FxHashSet<Labels>>,
    ) -> Result<(), PromqlError> {
        let pairing = self.pairing;
        let (left, right) = if pairing.is_swapped() {
            (one, many)
        } else {
            (many, one)
        };
        let result = match self.combine_elements(step, left, right) {
            Some(result) => result,
            None => return Ok(()),
        };
        let labels = self.result_labels(many, one)?;
        let refused = |text: &str| Err(PromqlError::Execution(text.into()));
        let before = matched.entry(many.signature).or_default();
        if pairing.matching().cardinality == MatchCardinality::OneToOne {
            if !before.is_empty() {
                return refused(
                    "multiple matches for labels: many-to-one matching must be explicit \
                     (group_left/group_right)",
                );
            }
            before.insert(labels.clone());
        } else if !before.insert(labels.clone()) {
            return refused(
                "multiple matches for labels: grouping labels must ensure unique matches",
            );
        }
        match result {
            Some(value) => self.put_value(step, labels, value),
            None => Ok(()),
        }
    }

    /// Returns the result of two elements. The inner option is `None` if a comparison is false; the
    /// outer one if the operator does not support the elements.
    fn combine_elements(
        &mut self,
        step: usize,
        left: &BinaryStepElement,
        right: &BinaryStepElement,
    ) -> Option<Option<QueryPointValue>> {
        let (op, span) = (self.pairing.operation.op, self.pairing.span);
        let (left, right) = (left.operand(), right.operand());
        if let (StepOperand::Float(l), StepOperand::Float(r)) = (left, right) {
            let value = self.pairing.combine_floats(l, r);
            if value.is_none() && !op.is_comparison() {
                let remark = incompatible_remark(op, span, false, false);
                self.remarks.set(step, remark);
                return None;
            }
            return Some(value.map(QueryPointValue::Float));
        }
        match combine(op, span, left, right) {
            CombinedValue::Refused(remark) => {
                self.remarks.set(step, remark);
                None
            }
            CombinedValue::Histogram(histogram, remark) => {
                let remarks = &mut self.remarks;
                remark
                    .into_iter()
                    .for_each(|remark| remarks.set(step, remark));
                Some(Some(QueryPointValue::Histogram(histogram)))
            }
            CombinedValue::Compared(holds) => Some(self.pairing.compare_floats(holds, left)),
        }
    }

    fn put_value(
        &mut self,
        step: usize,
        labels: Labels,
        value: QueryPointValue,
    ) -> Result<(), PromqlError> {
        let steps = self.pairing.left.steps();
        let place = match self.places.get(&labels) {
            Some(place) if !self.pairing.may_repeat => *place,
            _ => {
                self.reserve(steps * size_of::<f64>() + size_of::<StepRowBuffer>())?;
                let mut row = StepRowBuffer::default();
                row.reset(steps);
                self.places.insert(labels.clone(), self.rows.len());
                self.rows.push((labels, row));
                self.rows.len() - 1
            }
        };
        let row = &mut self.rows[place].1;
        if !is_absent(row.values[step]) || row.row().histogram(step).is_some() {
            return Err(same_labelset_error());
        }
        match value {
            QueryPointValue::Float(value) => row.values[step] = value,
            QueryPointValue::Histogram(histogram) => {
                let point = (step as u32, histogram);
                let bytes = histogram_bytes(std::slice::from_ref(&point));
                row.histograms.push(point);
                self.reserve(bytes)?;
            }
        }
        Ok(())
    }

    fn reserve(&mut self, bytes: usize) -> Result<(), PromqlError> {
        grow(&mut self.memory, bytes)
    }

    fn result_labels(
        &mut self,
        many: &BinaryStepElement,
        one: &BinaryStepElement,
    ) -> Result<Labels, PromqlError> {
        let pairing = self.pairing;
        let key = (many.series, one.series);
        if let Some(known) = self.labels.get(&key) {
            return Ok(known.clone());
        }
        let of = |frame: &SeriesFrame, series: u32| frame.labels(series as usize);
        let labels = match key {
            (NONE, one) => {
                let one = of(pairing.one().0, one);
                pairing.rule.labels(&self.matched_labels(&one), &one)
            }
            (many, NONE) => {
                let many = of(pairing.many().0, many);
                pairing.rule.labels(&many, &self.matched_labels(&many))
            }
            (many, one) => {
                let (many, one) = (of(pairing.many().0, many), of(pairing.one().0, one));
                pairing.rule.labels(&many, &one)
            }
        };
        self.reserve(labels.as_bytes().len() + size_of::<((u32, u32), Labels)>())?;
        self.labels.insert(key, labels.clone());
        Ok(labels)
    }
}

fn filled(signature: u32, value: f64) -> BinaryStepElement {
    BinaryStepElement {
        series: NONE,
        signature,
        value,
        histogram: None,
    }
}

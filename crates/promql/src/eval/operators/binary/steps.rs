//! Pairs series step by step. This is necessary if a signature has several series, which may not
//! have values at the same steps, and if `fill` replaces a missing side.

use super::labels::is_matched;
use super::{NONE, Pairing};
use crate::ast::Cardinality;
use crate::eval::account::{Account, grow};
use crate::eval::annotations::Annotations;
use crate::eval::kernels::kinds::{Combined, StepRemarks, combine, incompatible};
use crate::eval::operators::stream::same_labelset;
use crate::eval::rows::frame::Frame;
use crate::eval::rows::label_sets::retain;
use crate::eval::rows::row::{Operand, RowBuffer, histogram_bytes, is_absent};
use crate::eval::rows::row_labels::RowLabels;
use crate::value::{PointValue, QueryError};
use firn_model::budget::Reservation;
use firn_model::histogram::Histogram;
use firn_model::labels::Labels;
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::Arc;

/// Evaluates a binary operation step by step. Fails with the errors of Prometheus if series cannot
/// be paired uniquely.
pub(super) fn frame(
    pairing: &Pairing<'_>,
    account: &Account<'_>,
    notes: &mut Annotations,
) -> Result<Frame, QueryError> {
    let steps = pairing.left.steps();
    // The temporary memory of a step per element: a list, an index and the labels of results.
    const PASSING_BYTES: usize = 2 * (size_of::<Element>() + size_of::<FxHashSet<Labels>>() + 64);
    let elements = pairing.left.len() + pairing.right.len();
    let _passing = account.reserve(elements * PASSING_BYTES)?;
    let mut output = Output {
        pairing,
        account,
        places: FxHashMap::default(),
        rows: Vec::new(),
        labels: FxHashMap::default(),
        memory: account.reserve(0)?,
        remarks: StepRemarks::default(),
    };
    for step in 0..steps {
        output.step(step)?;
    }
    let remarks = std::mem::take(&mut output.remarks);
    remarks.into_iter().for_each(|remark| notes.add(remark));
    let mut frame = Frame::new(steps);
    frame.keep(output.memory);
    // Rows are copied into the frame, which may have capacity for twice as many.
    let copied = output.rows.len() * (steps * size_of::<f64>() + size_of::<RowLabels>());
    frame.keep(account.reserve(2 * copied)?);
    for (labels, row) in output.rows {
        account.check()?;
        let drops_name = pairing.operation.returns_bool;
        frame.push(RowLabels { labels, drops_name }, row.row());
    }
    Ok(frame)
}

/// An element of one side at a step: a float or a histogram.
#[derive(Clone)]
struct Element {
    /// The index of its series, or `NONE` for a value from `fill`.
    series: u32,
    signature: u32,
    value: f64,
    histogram: Option<Arc<Histogram>>,
}

/// The state of the operation: the rows of results so far.
struct Output<'a> {
    pairing: &'a Pairing<'a>,
    account: &'a Account<'a>,
    /// The index of the row of each label set.
    places: FxHashMap<Labels, usize>,
    rows: Vec<(Labels, RowBuffer)>,
    /// The labels of results by the indexes of both series, for reuse at later steps.
    labels: FxHashMap<(u32, u32), Labels>,
    /// The reservation for rows and labels. If labels change between steps, each step adds new
    /// ones.
    memory: Reservation,
    remarks: StepRemarks,
}

impl Element {
    fn operand(&self) -> Operand<'_> {
        match &self.histogram {
            Some(histogram) => Operand::Histogram(histogram),
            None => Operand::Float(self.value),
        }
    }
}

fn elements(
    (frame, ids): (&Frame, &[u32]),
    step: usize,
    account: &Account<'_>,
) -> Result<Vec<Element>, QueryError> {
    let element = |series: usize| {
        let row = frame.row(series);
        let histogram = row.histogram(step).cloned();
        let value = row.values[step];
        let present = histogram.is_some() || !is_absent(value);
        present.then(|| Element {
            series: series as u32,
            signature: ids[series],
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

impl Output<'_> {
    fn step(&mut self, step: usize) -> Result<(), QueryError> {
        let matching = self.pairing.matching();
        let many = elements(self.pairing.many(), step, self.account)?;
        let one = elements(self.pairing.one(), step, self.account)?;
        let fills = matching.fill_left.is_some() || matching.fill_right.is_some();
        if (many.is_empty() && one.is_empty()) || (!fills && (many.is_empty() || one.is_empty())) {
            return Ok(());
        }
        let one_of = self.index(&one)?;
        let mut matched: FxHashMap<u32, FxHashSet<Labels>> = FxHashMap::default();
        for element in &many {
            self.account.check()?;
            let partner = match (one_of.get(&element.signature), matching.fill_right) {
                (Some(at), _) => one[*at].clone(),
                (None, Some(fill)) => filled(element.signature, fill),
                (None, None) => continue,
            };
            self.pair(step, element, &partner, &mut matched)?;
        }
        let Some(fill) = matching.fill_left else {
            return Ok(());
        };
        for element in &one {
            self.account.check()?;
            if !matched.contains_key(&element.signature) {
                let partner = filled(element.signature, fill);
                self.pair(step, &partner, element, &mut matched)?;
            }
        }
        Ok(())
    }

    /// Returns the index of each element of the "one" side by signature. Fails if a signature
    /// occurs twice.
    fn index(&self, one: &[Element]) -> Result<FxHashMap<u32, usize>, QueryError> {
        let mut one_of = FxHashMap::default();
        for (at, element) in one.iter().enumerate() {
            self.account.check()?;
            if let Some(known) = one_of.insert(element.signature, at) {
                let known: &Element = &one[known];
                return Err(self.duplicate(element.series, known.series));
            }
        }
        Ok(one_of)
    }

    fn duplicate(&self, series: u32, known: u32) -> QueryError {
        let frame = self.pairing.one().0;
        let labels = |series: u32| frame.labels(series as usize);
        let side = if self.pairing.is_swapped() {
            "left"
        } else {
            "right"
        };
        let group = self.matched_labels(&labels(series));
        QueryError::Execution(format!(
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
        retain(labels.as_ref(), |name| is_matched(name, matching))
    }

    fn pair(
        &mut self,
        step: usize,
        many: &Element,
        one: &Element,
        matched: &mut FxHashMap<u32, FxHashSet<Labels>>,
    ) -> Result<(), QueryError> {
        let pairing = self.pairing;
        let (left, right) = match pairing.is_swapped() {
            true => (one, many),
            false => (many, one),
        };
        let result = match self.result(step, left, right) {
            Some(result) => result,
            None => return Ok(()),
        };
        let labels = self.labels_of(many, one)?;
        let refused = |text: &str| Err(QueryError::Execution(text.into()));
        let before = matched.entry(many.signature).or_default();
        if pairing.matching().cardinality == Cardinality::OneToOne {
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
            Some(value) => self.put(step, labels, value),
            None => Ok(()),
        }
    }

    /// Returns the result of two elements. The inner option is `None` if a comparison is false; the
    /// outer one if the operator does not support the elements.
    fn result(
        &mut self,
        step: usize,
        left: &Element,
        right: &Element,
    ) -> Option<Option<PointValue>> {
        let (op, span) = (self.pairing.operation.op, self.pairing.span);
        let (left, right) = (left.operand(), right.operand());
        if let (Operand::Float(l), Operand::Float(r)) = (left, right) {
            let value = self.pairing.of_floats(l, r);
            if value.is_none() && !op.is_comparison() {
                let remark = incompatible(op, span, (false, false));
                self.remarks.set(step, remark);
                return None;
            }
            return Some(value.map(PointValue::Float));
        }
        match combine(op, span, left, right) {
            Combined::Refused(remark) => {
                self.remarks.set(step, remark);
                None
            }
            Combined::Histogram(histogram, remark) => {
                let remarks = &mut self.remarks;
                remark
                    .into_iter()
                    .for_each(|remark| remarks.set(step, remark));
                Some(Some(PointValue::Histogram(histogram)))
            }
            Combined::Compared(holds) => Some(self.pairing.compared(holds, left)),
        }
    }

    fn put(&mut self, step: usize, labels: Labels, value: PointValue) -> Result<(), QueryError> {
        let steps = self.pairing.left.steps();
        let place = match self.places.get(&labels) {
            Some(place) if !self.pairing.may_repeat => *place,
            _ => {
                self.reserve(steps * size_of::<f64>() + size_of::<RowBuffer>())?;
                let mut row = RowBuffer::default();
                row.reset(steps);
                self.places.insert(labels.clone(), self.rows.len());
                self.rows.push((labels, row));
                self.rows.len() - 1
            }
        };
        let row = &mut self.rows[place].1;
        if !is_absent(row.values[step]) || row.row().histogram(step).is_some() {
            return Err(same_labelset());
        }
        match value {
            PointValue::Float(value) => row.values[step] = value,
            PointValue::Histogram(histogram) => {
                let point = (step as u32, histogram);
                let bytes = histogram_bytes(std::slice::from_ref(&point));
                row.histograms.push(point);
                self.reserve(bytes)?;
            }
        }
        Ok(())
    }

    fn reserve(&mut self, bytes: usize) -> Result<(), QueryError> {
        grow(&mut self.memory, bytes)
    }

    fn labels_of(&mut self, many: &Element, one: &Element) -> Result<Labels, QueryError> {
        let pairing = self.pairing;
        let key = (many.series, one.series);
        if let Some(known) = self.labels.get(&key) {
            return Ok(known.clone());
        }
        let of = |frame: &Frame, series: u32| frame.labels(series as usize);
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

fn filled(signature: u32, value: f64) -> Element {
    Element {
        series: NONE,
        signature,
        value,
        histogram: None,
    }
}

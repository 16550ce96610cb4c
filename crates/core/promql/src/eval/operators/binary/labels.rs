//! The labels of vector matching and the labels of results.
//!
//! With `on`, the matched labels are read as columns of numbers, and the labels of results are
//! created from both sides on request. A join whose result is aggregated therefore creates no label
//! sets at all.

use crate::ast::{MatchCardinality, VectorMatching};
use crate::eval::account::{QueryAccount, grow};
use crate::eval::meter::UnmatchedSeries;
use crate::eval::rows::frame::SeriesFrame;
use crate::eval::rows::label_sets::{
    ByteStringNumbers, ByteStrings, is_metadata, retain_labels, retain_labels_into,
    without_metadata,
};
use crate::eval::rows::parts::{SERIES_PER_PART, run_in_parts};
use crate::eval::rows::row_labels::{HeldColumn, LabelSource, empty_column, gather_column};
use crate::eval::run::EvalContext;
use crate::value::PromqlError;
use firn_model::budget::Reservation;
use firn_model::columns::LabelColumn;
use firn_model::labels::{Labels, LabelsBuilder, METRIC_NAME};
use rustc_hash::FxHashMap;
use std::ops::Range;
use std::sync::Arc;

/// The signature of each series on both sides, as a number.
pub(super) struct MatchSignatures {
    /// The signatures of the left side, one for each series.
    pub(super) left: Vec<u32>,
    /// The signatures of the right side, one for each series.
    pub(super) right: Vec<u32>,
    /// The number of distinct signatures on both sides together.
    pub(super) count: usize,
    /// True if a signature may contain a label that an operation removes.
    pub(super) hold_metadata: bool,
    _memory: Reservation,
}

/// Memory of a map entry from a pair of numbers to a number, in a map with capacity for twice as
/// many.
const REFINED_BYTES: usize = 32;

impl MatchSignatures {
    /// Computes the signatures of all series on both sides, which share their numbers.
    pub(super) fn compute(
        left: &SeriesFrame,
        right: &SeriesFrame,
        matching: &VectorMatching,
        run: &EvalContext<'_>,
    ) -> Result<Self, PromqlError> {
        if matching.on {
            Self::from_columns(left, right, &matching.labels, run.account)
        } else {
            Self::from_label_sets(left, right, matching, run)
        }
    }

    /// Returns the numbers of series whose signature no series of the other side has.
    pub(super) fn count_unmatched(
        &self,
        account: &QueryAccount<'_>,
    ) -> Result<UnmatchedSeries, PromqlError> {
        let _marks = account.reserve(self.count)?;
        let count = |own: &[u32], others: &[u32]| {
            let mut has_other = vec![false; self.count];
            others.iter().for_each(|id| has_other[*id as usize] = true);
            let unmatched = own.iter().filter(|id| !has_other[**id as usize]);
            (unmatched.count(), own.len())
        };
        Ok(UnmatchedSeries {
            left: count(&self.left, &self.right),
            right: count(&self.right, &self.left),
        })
    }

    fn from_columns(
        left: &SeriesFrame,
        right: &SeriesFrame,
        names: &[String],
        account: &QueryAccount<'_>,
    ) -> Result<Self, PromqlError> {
        let series_count = left.len() + right.len();
        let memory = account.reserve(series_count * size_of::<u32>())?;
        let mut ids = vec![0; left.len() + right.len()];
        let mut count = usize::from(!ids.is_empty());
        for name in names {
            let mut values = ByteStringNumbers::default();
            let mut refined: FxHashMap<(u32, u32), u32> = FxHashMap::default();
            let mut series = ids.iter_mut();
            let _refined = account.reserve(series_count * REFINED_BYTES)?;
            let mut values_memory = account.reserve(0)?;
            for side in [left, right] {
                let (column, mut passing) = side.label_column(name, account)?;
                grow(&mut passing, column.values.len() * size_of::<u32>())?;
                // Reserved once for all values, because the counter of the budget is shared by all
                // threads.
                let entries = column
                    .values
                    .iter()
                    .map(|v| ByteStringNumbers::entry_bytes(v));
                grow(&mut values_memory, entries.sum())?;
                let mut shared = Vec::with_capacity(column.values.len());
                for value in &column.values {
                    account.check()?;
                    shared.push(values.intern(value).0);
                }
                // The column must be the first iterator: a zip takes one item too many from its
                // first iterator.
                for (value, id) in column.ids.iter().zip(series.by_ref()) {
                    account.check()?;
                    let next = refined.len() as u32;
                    let key = (*id, shared[*value as usize]);
                    *id = *refined.entry(key).or_insert(next);
                }
            }
            count = refined.len();
        }
        let right = ids.split_off(left.len());
        Ok(Self {
            left: ids,
            right,
            count,
            hold_metadata: names.iter().any(|name| is_metadata(name)),
            _memory: memory,
        })
    }

    fn from_label_sets(
        left: &SeriesFrame,
        right: &SeriesFrame,
        matching: &VectorMatching,
        run: &EvalContext<'_>,
    ) -> Result<Self, PromqlError> {
        let account = run.account;
        let memory = account.reserve((left.len() + right.len()) * size_of::<u32>())?;
        let mut passing = account.reserve(0)?;
        let mut known = ByteStringNumbers::default();
        let mut hold_metadata = false;
        let mut number = |frame: &SeriesFrame| {
            let task = |part: Range<usize>| matched_sets(frame, part, matching, account);
            let mut ids = Vec::with_capacity(frame.len());
            let merge = |(sets, hold, _memory): MatchedSets| {
                hold_metadata |= hold;
                for set in sets.iter() {
                    let (id, is_new) = known.intern(set);
                    if is_new {
                        grow(&mut passing, ByteStringNumbers::entry_bytes(set))?;
                    }
                    ids.push(id);
                }
                Ok(())
            };
            let compute = run.ctx.compute;
            run_in_parts(compute, frame.len(), SERIES_PER_PART, task, merge)?;
            Ok::<_, PromqlError>(ids)
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

/// The matched labels of each series in a part, whether any of them is a metadata label, and the
/// reservation for their memory.
type MatchedSets = (ByteStrings, bool, Reservation);

fn matched_sets(
    frame: &SeriesFrame,
    part: Range<usize>,
    matching: &VectorMatching,
    account: &QueryAccount<'_>,
) -> Result<MatchedSets, PromqlError> {
    let mut memory = account.reserve(0)?;
    let (mut sets, mut bytes, mut hold_metadata) = (ByteStrings::default(), Vec::new(), false);
    for series in part {
        account.check()?;
        let keeps = |name: &str| {
            let kept = is_matched(name, matching);
            hold_metadata |= kept && is_metadata(name);
            kept
        };
        retain_labels_into(frame.labels(series).as_ref(), keeps, &mut bytes);
        grow(&mut memory, ByteStringNumbers::entry_bytes(&bytes))?;
        sets.push(&bytes);
    }
    Ok((sets, hold_metadata, memory))
}

/// Returns whether this label is part of the signature.
pub(super) fn is_matched(name: &str, matching: &VectorMatching) -> bool {
    let named = matching.labels.iter().any(|label| label == name);
    if matching.on {
        named
    } else {
        !named && name != METRIC_NAME
    }
}

/// The rule for the labels of results, which follows from the operator and the vector matching.
#[derive(Clone)]
pub(super) struct ResultLabelRule {
    /// The vector matching of the operation, with the labels of `on` or `ignoring`.
    pub(super) matching: VectorMatching,
    /// True if the metric name and other metadata labels are removed.
    pub(super) drops: bool,
}

impl ResultLabelRule {
    fn is_one_to_one(&self) -> bool {
        self.matching.cardinality == MatchCardinality::OneToOne
    }

    fn is_named(&self, name: &str) -> bool {
        self.matching.labels.iter().any(|label| label == name)
    }

    /// Returns whether the result has this label of the "many" side.
    fn keeps_label(&self, name: &str) -> bool {
        let goes = self.drops && is_metadata(name);
        !goes && (!self.is_one_to_one() || self.is_named(name) == self.matching.on)
    }

    /// Returns the labels of the result of two series.
    pub(super) fn labels(&self, many: &Labels, one: &Labels) -> Labels {
        let VectorMatching {
            labels,
            include,
            on,
            ..
        } = &self.matching;
        if self.drops && labels.is_empty() && include.is_empty() && !on {
            return without_metadata(many.as_ref());
        }
        let kept = retain_labels(many.as_ref(), |name| self.keeps_label(name));
        if include.is_empty() {
            return kept;
        }
        let mut builder = LabelsBuilder::from_labels(kept.as_ref());
        for name in include {
            builder.set(name, one.get(name));
        }
        builder.build()
    }

    /// Returns whether distinct series of the "many" side certainly have distinct results. This is
    /// the case if all removed labels are equal in all series, and no series already has an
    /// included label.
    pub(super) fn keeps_series_distinct(
        &self,
        many: &SeriesFrame,
        account: &QueryAccount<'_>,
    ) -> Result<bool, PromqlError> {
        if self.is_one_to_one() {
            return Ok(false);
        }
        let lost = if self.drops {
            &["__name__", "__type__", "__unit__"][..]
        } else {
            &[]
        };
        for name in lost {
            let (LabelColumn { ids, .. }, _memory) = many.label_column(name, account)?;
            // The column may contain values that no series here has.
            if ids.windows(2).any(|pair| pair[0] != pair[1]) {
                return Ok(false);
            }
        }
        for name in &self.matching.include {
            let (LabelColumn { ids, values }, _memory) = many.label_column(name, account)?;
            if ids.iter().any(|id| !values[*id as usize].is_empty()) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Members of an origin on one side of the operation, one per pair.
pub(super) type Side = (Arc<dyn LabelSource>, Vec<u32>);

/// The origin of the labels of results, one member per pair.
pub(super) struct PairLabelSource {
    /// The "many" side, which may have several series per signature.
    pub(super) many: Side,
    /// The "one" side, which has at most one series per signature.
    pub(super) one: Side,
    /// The rule by which the labels of a pair's result are created.
    pub(super) rule: ResultLabelRule,
    /// True if metric names are removed at the end of the evaluation.
    pub(super) drops_name: bool,
}

impl LabelSource for PairLabelSource {
    fn len(&self) -> usize {
        self.many.1.len()
    }

    fn labels(&self, pair: usize) -> Labels {
        let of = |(origin, members): &Side| origin.labels(members[pair] as usize);
        self.rule.labels(&of(&self.many), &of(&self.one))
    }

    fn label_column(
        &self,
        name: &str,
        account: &QueryAccount<'_>,
    ) -> Result<HeldColumn, PromqlError> {
        let is_included = self.rule.matching.include.iter().any(|label| label == name);
        let (origin, members) = match (is_included, self.rule.keeps_label(name)) {
            (true, _) => &self.one,
            (false, true) => &self.many,
            (false, false) => return empty_column(self.len(), account),
        };
        gather_column(&**origin, members, name, account)
    }

    fn drops_name(&self, _pair: usize) -> bool {
        self.drops_name
    }

    fn depth(&self) -> u32 {
        1 + self.many.0.depth().max(self.one.0.depth())
    }
}

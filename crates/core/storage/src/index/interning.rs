//! Interning: converts the labels of a series to terms, most of which are equal to those of the
//! previous series.

use super::terms::{IndexFull, IndexTerms};
use crate::ids::{LabelId, TermId};
use firn_model::label_code::steps::{LabelStep, PreviousLabels};
use firn_model::labels::LabelsRef;

/// Ids of the label and the term of a pair.
#[derive(Clone, Copy, Debug)]
struct LabelTermIds {
    label: LabelId,
    term: TermId,
}

impl LabelTermIds {
    /// The ids of a pair for which the index had no room.
    const NONE: Self = Self {
        label: LabelId(u32::MAX),
        term: TermId(u32::MAX),
    };
}

/// Interns series one after the other, and reuses the ids of the previous one.
#[derive(Debug, Default)]
pub(super) struct SeriesInterner {
    before: PreviousLabels,
    ids: Vec<LabelTermIds>,
    /// Ids of the current series.
    next: Vec<LabelTermIds>,
}

impl SeriesInterner {
    /// Drops the previous series, because its terms may be removed.
    pub(super) fn reset(&mut self) {
        self.before.clear();
        self.ids.clear();
    }

    /// Adds the terms of `labels` to `terms`, in their order. Creates missing labels and terms.
    pub(super) fn intern(
        &mut self,
        index: &IndexTerms,
        labels: LabelsRef<'_>,
        terms: &mut Vec<TermId>,
    ) -> Result<(), IndexFull> {
        let mut before = self.ids.iter();
        self.next.clear();
        let mut steps = self.before.steps(labels);
        for step in &mut steps {
            if let Some(ids) = intern_step(index, step, &mut before)? {
                terms.push(ids.term);
                self.next.push(ids);
            }
        }
        steps.commit();
        std::mem::swap(&mut self.ids, &mut self.next);
        Ok(())
    }

    /// Like `intern`, for labels given as differences from those of the previous series. Consumes
    /// all steps even if the index is full, because the steps of the next series depend on them.
    pub(super) fn intern_steps<'l>(
        &mut self,
        index: &IndexTerms,
        steps: impl Iterator<Item = LabelStep<'l>>,
        terms: &mut Vec<TermId>,
    ) -> Result<(), IndexFull> {
        // The next call of `intern` has no labels to compare with.
        self.before.clear();
        let mut before = self.ids.iter();
        self.next.clear();
        for step in steps {
            let ids = intern_step(index, step, &mut before).unwrap_or(Some(LabelTermIds::NONE));
            self.next.extend(ids);
        }
        std::mem::swap(&mut self.ids, &mut self.next);
        terms.extend(self.ids.iter().map(|ids| ids.term));
        if self
            .ids
            .iter()
            .any(|ids| ids.term == LabelTermIds::NONE.term)
        {
            Err(IndexFull)
        } else {
            Ok(())
        }
    }
}

/// Returns the ids of the pair of a step, or `None` if the step removes a pair.
#[inline]
fn intern_step<'i>(
    index: &IndexTerms,
    step: LabelStep<'_>,
    before: &mut impl Iterator<Item = &'i LabelTermIds>,
) -> Result<Option<LabelTermIds>, IndexFull> {
    let known = match step {
        LabelStep::Pair(..) => None,
        LabelStep::Same | LabelStep::Skip | LabelStep::Value(_) => before.next(),
    };
    Ok(match (step, known) {
        (LabelStep::Same, Some(same)) => Some(*same),
        (LabelStep::Value(value), Some(LabelTermIds { label, .. })) => Some(LabelTermIds {
            label: *label,
            term: index.add_term(*label, value)?,
        }),
        (LabelStep::Pair(name, value), _) => {
            // Canonical names are valid text, so none is rejected here.
            let name = std::str::from_utf8(name).map_err(|_| IndexFull)?;
            let label = index.add_label(name)?;
            let term = index.add_term(label, value)?;
            Some(LabelTermIds { label, term })
        }
        _ => None,
    })
}

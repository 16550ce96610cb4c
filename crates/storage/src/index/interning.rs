//! Interning: converts the labels of a series to terms, most of which are equal to those of the
//! previous series.

use super::terms::{Full, Terms};
use crate::ids::{LabelId, TermId};
use firn_model::label_code::steps::{Before, Step};
use firn_model::labels::LabelsRef;

/// Ids of the label and the term of a pair.
#[derive(Clone, Copy, Debug)]
struct Ids {
    label: LabelId,
    term: TermId,
}

impl Ids {
    /// The ids of a pair for which the index had no room.
    const NONE: Self = Self {
        label: LabelId(u32::MAX),
        term: TermId(u32::MAX),
    };
}

/// Interns series one after the other, and reuses the ids of the previous one.
#[derive(Debug, Default)]
pub(super) struct Interner {
    before: Before,
    ids: Vec<Ids>,
    /// Ids of the current series.
    next: Vec<Ids>,
}

impl Interner {
    /// Drops the previous series, because its terms may be removed.
    pub(super) fn forget(&mut self) {
        self.before.clear();
        self.ids.clear();
    }

    /// Adds the terms of `labels` to `terms`, in their order. Creates missing labels and terms.
    pub(super) fn intern(
        &mut self,
        index: &Terms,
        labels: LabelsRef<'_>,
        terms: &mut Vec<TermId>,
    ) -> Result<(), Full> {
        let mut before = self.ids.iter();
        self.next.clear();
        let mut steps = self.before.steps(labels);
        for step in &mut steps {
            if let Some(ids) = ids_of(index, step, &mut before)? {
                terms.push(ids.term);
                self.next.push(ids);
            }
        }
        steps.take();
        std::mem::swap(&mut self.ids, &mut self.next);
        Ok(())
    }

    /// Like `intern`, for labels given as differences from those of the previous series. Consumes
    /// all steps even if the index is full, because the steps of the next series depend on them.
    pub(super) fn intern_steps<'l>(
        &mut self,
        index: &Terms,
        steps: impl Iterator<Item = Step<'l>>,
        terms: &mut Vec<TermId>,
    ) -> Result<(), Full> {
        // The next call of `intern` has no labels to compare with.
        self.before.clear();
        let mut before = self.ids.iter();
        self.next.clear();
        for step in steps {
            let ids = ids_of(index, step, &mut before).unwrap_or(Some(Ids::NONE));
            self.next.extend(ids);
        }
        std::mem::swap(&mut self.ids, &mut self.next);
        terms.extend(self.ids.iter().map(|ids| ids.term));
        match self.ids.iter().any(|ids| ids.term == Ids::NONE.term) {
            true => Err(Full),
            false => Ok(()),
        }
    }
}

/// Returns the ids of the pair of a step, or `None` if the step removes a pair.
#[inline]
fn ids_of<'i>(
    index: &Terms,
    step: Step<'_>,
    before: &mut impl Iterator<Item = &'i Ids>,
) -> Result<Option<Ids>, Full> {
    let known = match step {
        Step::Pair(..) => None,
        Step::Same | Step::Skip | Step::Value(_) => before.next(),
    };
    Ok(match (step, known) {
        (Step::Same, Some(same)) => Some(*same),
        (Step::Value(value), Some(Ids { label, .. })) => Some(Ids {
            label: *label,
            term: index.add_term(*label, value)?,
        }),
        (Step::Pair(name, value), _) => {
            // Canonical names are valid text, so none is rejected here.
            let name = std::str::from_utf8(name).map_err(|_| Full)?;
            let label = index.add_label(name)?;
            let term = index.add_term(label, value)?;
            Some(Ids { label, term })
        }
        _ => None,
    })
}

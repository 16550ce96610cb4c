//! From the labels of a series to its terms, most of which are those of the series before.

use super::Index;
use super::writer::Full;
use crate::neighbours::{Before, Step};
use firn_model::labels::LabelsRef;

/// Label and term of a pair.
#[derive(Clone, Copy, Debug)]
struct Ids {
    label: u32,
    term: u32,
}

/// The series that was interned last.
#[derive(Debug, Default)]
pub(super) struct Interner {
    before: Before,
    ids: Vec<Ids>,
    /// Those of the series under way.
    next: Vec<Ids>,
}

impl Interner {
    /// Forgets the series before: its terms may be removed.
    pub(super) fn forget(&mut self) {
        self.before.clear();
        self.ids.clear();
    }

    /// Adds the terms of `labels` to `terms`, in their order.
    pub(super) fn intern(
        &mut self,
        index: &Index,
        labels: LabelsRef<'_>,
        terms: &mut Vec<u32>,
    ) -> Result<(), Full> {
        let mut before = self.ids.iter();
        self.next.clear();
        let mut steps = self.before.steps(labels);
        for step in &mut steps {
            let known = match step {
                Step::Pair(..) => None,
                Step::Same | Step::Skip | Step::Value(_) => before.next(),
            };
            let ids = match (step, known) {
                (Step::Same, Some(same)) => *same,
                (Step::Value(value), Some(Ids { label, .. })) => Ids {
                    label: *label,
                    term: index.add_term(*label, value)?,
                },
                (Step::Pair(name, value), _) => {
                    // Canonical names are text, so none is turned away here.
                    let name = std::str::from_utf8(name).map_err(|_| Full)?;
                    let label = index.add_label(name)?;
                    let term = index.add_term(label, value)?;
                    Ids { label, term }
                }
                _ => continue,
            };
            terms.push(ids.term);
            self.next.push(ids);
        }
        steps.take();
        std::mem::swap(&mut self.ids, &mut self.next);
        Ok(())
    }
}

//! The active index for the planner of lookups (`crate::lookup`): the costs of its steps.

use super::core::Index;
use super::postings::Postings;
use super::terms::IndexedLabel;
use crate::ids::TermId;
use crate::lookup::{LookupIndex, LookupStep, MatcherPostings};
use firn_model::cancel::CancelToken;
use firn_model::error::Error;
use std::ops::Range;

/// The part of the index that a lookup searches.
#[derive(Clone, Debug)]
pub(super) struct IndexSlice<'a> {
    pub(super) index: &'a Index,
    /// The range of slots to search.
    pub(super) slots: Range<u32>,
}

impl<'a> LookupIndex<'a> for IndexSlice<'a> {
    type Label = &'a IndexedLabel;
    type Term = TermId;

    fn label(&self, name: &str) -> Option<&'a IndexedLabel> {
        self.index.dictionary.label(name)
    }

    fn series_count(&self) -> usize {
        self.slots.len()
    }

    fn values_count(&self, label: &'a IndexedLabel) -> usize {
        label.values_count()
    }

    fn next_step(
        &self,
        label: &'a IndexedLabel,
        lists: &MatcherPostings<'a, TermId>,
    ) -> LookupStep {
        let costs = self.index.costs;
        let first = self.slots.start;
        let (nanos, series) = match lists {
            MatcherPostings::Terms(terms) => {
                let sizes = |id: &TermId| {
                    let sizes =
                        |postings: &Postings| (postings.count(), postings.count_runs_from(first));
                    self.index.dictionary.with_term(*id, |t| sizes(&t.postings))
                };
                let sizes = terms.iter().filter_map(sizes);
                let (series, runs) = sizes.fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1));
                (terms.len() * costs.term + runs * costs.run, series)
            }
            MatcherPostings::Presence => {
                let nanos = label.present.count_runs_from(first) * costs.run;
                (nanos, label.present.count())
            }
            MatcherPostings::Values(values) => (values.len() * costs.term, label.present.count()),
            MatcherPostings::Expression { regex, wants_match } => {
                let distinct = label.values_count();
                let (in_order, behind) =
                    label
                        .dictionary
                        .count_regex_candidates(regex, *wants_match, distinct);
                let nanos = in_order * costs.value + behind * costs.term;
                (nanos, label.present.count())
            }
        };
        LookupStep {
            nanos,
            series_max: series.min(self.slots.len()),
        }
    }

    fn find_terms(
        &self,
        label: &'a IndexedLabel,
        lists: &MatcherPostings<'a, TermId>,
        cancel: &CancelToken,
    ) -> Result<Vec<TermId>, Error> {
        let (terms, looked_at) = match *lists {
            MatcherPostings::Presence | MatcherPostings::Terms(_) => return Ok(Vec::new()),
            MatcherPostings::Values(values) => {
                let found = values
                    .iter()
                    .filter_map(|v| self.index.dictionary.find_term(label, v));
                let mut terms: Vec<TermId> = found.collect();
                terms.sort_unstable();
                (terms, values.len())
            }
            MatcherPostings::Expression { regex, wants_match } => {
                regex.prepare()?;
                let found =
                    self.index
                        .dictionary
                        .find_terms_by_regex(label, regex, wants_match, cancel)?;
                regex.prepare()?;
                found
            }
        };
        self.index.work.values.add(looked_at as u64);
        Ok(terms)
    }

    /// Returns the cost including the check for samples, which follows immediately.
    fn first_nanos(&self, step: LookupStep) -> usize {
        step.nanos + step.series_max / 64 * self.index.costs.members
    }

    /// Returns the cost of reading the terms of the candidates.
    fn prepare_nanos(&self, candidates: usize) -> usize {
        candidates * self.index.costs.series
    }

    fn check_nanos(&self, label: &'a IndexedLabel, is_known: bool, candidates: usize) -> usize {
        let costs = self.index.costs;
        let verdicts = if is_known {
            0
        } else {
            candidates.min(label.values_count())
        };
        candidates * costs.check + verdicts * costs.term
    }
}

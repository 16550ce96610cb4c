//! A block from the point of view of the lookup planner (`crate::lookup`): the cost of each step,
//! and the terms that satisfy a matcher.

use super::labels::BlockLabel;
use super::lookup::BlockLookup;
use super::series::RUN_SERIES;
use super::terms::TermPostings;
use crate::lookup::{self, LookupIndex, LookupStep, MatcherPostings};
use firn_model::cancel::CancelToken;
use firn_model::error::Error;

/// Costs of the steps of a lookup in nanoseconds, measured with the units in memory.
pub(super) mod costs {
    /// Cost of matching one of several consecutive values against a regular expression.
    pub(crate) const VALUE: usize = 40;
    /// Cost of finding a single value by binary search in its unit of terms.
    pub(crate) const FIND: usize = 500;
    /// Cost of starting to read a posting list, regardless of its length.
    pub(crate) const LIST: usize = 200;
    /// Cost of each series in a posting list, once it is being read.
    pub(crate) const SERIES: usize = 2;
    /// Cost of decoding a run of value numbers of one label.
    pub(crate) const RUN: usize = 1_500;
    /// Cost of checking one candidate against a decoded run.
    pub(crate) const CHECK: usize = 5;
}

/// Number of values examined between two checks for cancellation.
const CANCEL_EACH: usize = 1_024;

/// The callback that receives each term and its value. An error that it returns stops the
/// iteration.
pub(super) type EachTerm<'a> = dyn FnMut(ListedTerm, &[u8]) -> Result<(), Error> + 'a;

/// The number of a term, with the location of its posting list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ListedTerm {
    pub(super) term: u32,
    pub(super) postings: TermPostings,
}

/// A label of a block, together with its number, which identifies it in units of series.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NumberedLabel<'a> {
    pub(super) number: u32,
    pub(super) label: &'a BlockLabel,
}

/// The condition that one matcher imposes on the series of a block.
pub(super) type Condition<'a> = lookup::LookupCondition<'a, BlockLookup<'a>>;

impl<'a> LookupIndex<'a> for BlockLookup<'a> {
    type Label = NumberedLabel<'a>;
    type Term = ListedTerm;

    fn label(&self, name: &str) -> Option<NumberedLabel<'a>> {
        let number = self.terms.labels.find(name)?;
        let label = self.terms.labels.get(number)?;
        Some(NumberedLabel { number, label })
    }

    fn series_count(&self) -> usize {
        self.series.count as usize
    }

    fn values_count(&self, of: NumberedLabel<'a>) -> usize {
        of.label.value_count() as usize
    }

    fn next_step(
        &self,
        of: NumberedLabel<'a>,
        lists: &MatcherPostings<'a, ListedTerm>,
    ) -> LookupStep {
        let of_terms =
            |terms: &[ListedTerm]| terms.iter().map(|t| t.postings.series as usize).sum();
        let series_max = match lists {
            MatcherPostings::Terms(terms) => of_terms(terms),
            _ => of.label.present.series as usize,
        };
        let nanos = match lists {
            MatcherPostings::Presence => costs::LIST + series_max * costs::SERIES,
            MatcherPostings::Terms(terms) => terms.len() * costs::LIST + series_max * costs::SERIES,
            MatcherPostings::Values(values) => values.len() * costs::FIND,
            MatcherPostings::Expression { regex, wants_match } => {
                self.terms
                    .find_regex_range(of.label, regex, *wants_match)
                    .len()
                    * costs::VALUE
            }
        };
        LookupStep { nanos, series_max }
    }

    fn find_terms(
        &self,
        NumberedLabel { label, .. }: NumberedLabel<'a>,
        lists: &MatcherPostings<'a, ListedTerm>,
        cancel: &CancelToken,
    ) -> Result<Vec<ListedTerm>, Error> {
        let mut terms = Vec::new();
        match *lists {
            MatcherPostings::Presence | MatcherPostings::Terms(_) => {}
            MatcherPostings::Values(values) => {
                for (i, value) in values.iter().enumerate() {
                    if i.is_multiple_of(CANCEL_EACH) {
                        cancel.check()?;
                    }
                    terms.extend(self.terms.find_term(self.files, label, value)?);
                }
            }
            MatcherPostings::Expression { regex, wants_match } => {
                regex.prepare()?;
                let reach = self.terms.find_regex_range(label, regex, wants_match);
                self.terms
                    .for_each_term(self.files, reach, &mut |listed, value| {
                        // Checking the flag is one load, whereas matching a pattern can be slow.
                        cancel.check()?;
                        if regex.is_match(value) == wants_match {
                            terms.push(listed);
                        }
                        Ok(())
                    })?;
                regex.prepare()?;
            }
        }
        Ok(terms)
    }

    /// The remaining candidates must be checked against at least one more label.
    fn first_nanos(&self, step: LookupStep) -> usize {
        step.nanos + check_cost_nanos(step.series_max)
    }

    /// The union of the lists is already counted, so only the pass over the candidates costs time.
    fn prepare_nanos(&self, candidates: usize) -> usize {
        candidates * costs::SERIES
    }

    fn check_nanos(&self, of: NumberedLabel<'a>, is_known: bool, candidates: usize) -> usize {
        let verdicts = if is_known {
            0
        } else {
            candidates.min(of.label.value_count() as usize)
        };
        check_cost_nanos(candidates) + verdicts * costs::FIND
    }
}

/// Returns the cost in nanoseconds of checking `candidates` series against a label whose matching
/// values are already determined.
fn check_cost_nanos(candidates: usize) -> usize {
    candidates * costs::CHECK + estimate_runs(candidates) * costs::RUN
}

/// Returns an estimate of the number of runs that contain the candidates, which are mostly close to
/// each other.
fn estimate_runs(candidates: usize) -> usize {
    1 + candidates / (RUN_SERIES / 8)
}

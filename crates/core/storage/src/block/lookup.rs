//! Index lookups: from matchers to the series of a block.
//!
//! The posting lists with the fewest series are read first; the table of labels contains the number
//! of series of each list. Every further condition then narrows the candidates, either by reading
//! its own posting lists or by checking the label column of each candidate. `crate::lookup` chooses
//! the cheaper way. Invariant: the order of the conditions does not affect the result.

use super::files::BlockFiles;
use super::planned::Condition;
use super::sections::{PostingsSection, SeriesSection};
use super::series::RUN_SERIES;
use super::terms_section::TermsSection;
use crate::lookup::{self, LookupMethod, MatcherPostings};
use firn_model::budget::Reservation;
use firn_model::cancel::CancelToken;
use firn_model::error::Error;
use firn_model::matcher::Matcher;
use firn_model::store::MatcherCost;
use rustc_hash::FxHashMap;

/// Number of posting lists read between two checks for cancellation.
const CANCEL_EACH: usize = 256;

/// The sections of a block that lookups read.
#[derive(Clone, Copy)]
pub(super) struct BlockLookup<'a> {
    pub(super) files: &'a BlockFiles,
    pub(super) series: &'a SeriesSection,
    pub(super) terms: &'a TermsSection,
    pub(super) postings: &'a PostingsSection,
}

impl<'a> BlockLookup<'a> {
    /// Returns the ordinals of the series that satisfy all matchers, in ascending order. On return,
    /// `memory` has grown by the size of the result.
    pub(super) fn find_matching_series(
        &self,
        matchers: &'a [Matcher],
        cancel: &CancelToken,
        memory: &mut Reservation,
    ) -> Result<Vec<u32>, Error> {
        self.find_with(matchers, cancel, memory, &mut |_| {})
    }

    /// Returns the part of each matcher in the lookup.
    pub(super) fn explain(
        &self,
        matchers: &'a [Matcher],
        cancel: &CancelToken,
        memory: &mut Reservation,
    ) -> Result<Vec<MatcherCost>, Error> {
        let before = memory.bytes();
        let mut deferred: Vec<&Matcher> = Vec::new();
        self.find_with(matchers, cancel, memory, &mut |matcher| {
            deferred.push(matcher);
        })?;
        memory.shrink_to(before);
        let all = self.series.count as usize;
        let cost = |matcher: &'a Matcher| {
            Ok(MatcherCost {
                series: Some(lookup::count_series(self, matcher, all, cancel)?),
                is_deferred: deferred.iter().any(|one| std::ptr::eq(*one, matcher)),
            })
        };
        matchers.iter().map(cost).collect()
    }

    /// Finds the matching series. Calls `on_deferred` with each matcher that is checked on
    /// candidates.
    fn find_with(
        &self,
        matchers: &'a [Matcher],
        cancel: &CancelToken,
        memory: &mut Reservation,
        on_deferred: &mut dyn FnMut(&'a Matcher),
    ) -> Result<Vec<u32>, Error> {
        let before = memory.bytes();
        let Some(mut conditions) = lookup::build_conditions(self, matchers) else {
            return Ok(Vec::new());
        };
        let mut candidates = match lookup::take_cheapest_condition(self, &mut conditions, cancel)? {
            Some(first) => self.union_posting_lists(&first, cancel, memory)?,
            None => {
                memory.grow(size_of::<u32>() * self.series.count as usize)?;
                (0..self.series.count).collect()
            }
        };
        lookup::sort_conditions(&mut conditions, 0, self.series.count as usize);
        for condition in &mut conditions {
            cancel.check()?;
            if candidates.is_empty() {
                break;
            }
            if !self.narrow_candidates(condition, &mut candidates, cancel, memory)? {
                on_deferred(condition.matcher);
            }
        }
        memory.shrink_to(before + size_of_val(&candidates[..]));
        Ok(candidates)
    }

    /// Removes the candidates that do not satisfy a condition, in the way that the planner
    /// estimates to be cheaper. Returns whether posting lists were read.
    fn narrow_candidates(
        &self,
        condition: &mut Condition<'a>,
        candidates: &mut Vec<u32>,
        cancel: &CancelToken,
        memory: &mut Reservation,
    ) -> Result<bool, Error> {
        if condition.choose_method(self, candidates.len(), 0, cancel)? == LookupMethod::Ask {
            self.filter_candidates(condition, candidates, cancel)?;
            return Ok(false);
        }
        let held = memory.bytes();
        let listed = self.union_posting_lists(condition, cancel, memory)?;
        let mut listed = listed.iter().copied().peekable();
        candidates.retain(|candidate| {
            while listed.next_if(|one| one < candidate).is_some() {}
            (listed.peek() == Some(candidate)) == condition.is_in
        });
        memory.shrink_to(held);
        Ok(true)
    }

    /// Returns the union of the posting lists of a condition, in ascending order.
    fn union_posting_lists(
        &self,
        condition: &Condition<'_>,
        cancel: &CancelToken,
        memory: &mut Reservation,
    ) -> Result<Vec<u32>, Error> {
        memory.grow(size_of::<u32>() * condition.series_max())?;
        let mut series = Vec::new();
        match &condition.lists {
            MatcherPostings::Terms(terms) => match terms.as_slice() {
                [] => {}
                [one] => self
                    .postings
                    .read_list(self.files, &one.postings, &mut series)?,
                terms => {
                    let mut one = Vec::new();
                    let mut bits = SeriesBitmap::new(self.series.count, memory)?;
                    for terms in terms.chunks(CANCEL_EACH) {
                        cancel.check()?;
                        for term in terms {
                            one.clear();
                            self.postings
                                .read_list(self.files, &term.postings, &mut one)?;
                            one.iter().for_each(|series| bits.set(*series));
                        }
                    }
                    bits.collect_series(&mut series);
                }
            },
            _ => {
                self.postings
                    .read_list(self.files, &condition.label.label.present, &mut series)?
            }
        }
        Ok(series)
    }

    /// Removes the candidates that do not satisfy a condition, by checking the value of the label
    /// of each candidate.
    fn filter_candidates(
        &self,
        condition: &Condition<'_>,
        candidates: &mut Vec<u32>,
        cancel: &CancelToken,
    ) -> Result<(), Error> {
        condition.matcher.prepare()?;
        let mut verdicts: FxHashMap<u32, bool> = FxHashMap::default();
        let mut newest = (0, !condition.is_in);
        let mut kept = 0;
        let mut first = 0;
        while first < candidates.len() {
            // Decode each run of value numbers once for all candidates in it.
            let run = candidates[first] as usize / RUN_SERIES;
            let end = (run + 1) * RUN_SERIES;
            let of_run = candidates[first..].partition_point(|c| (*c as usize) < end);
            let numbers =
                self.series
                    .read_value_numbers(self.files, condition.label.number, run)?;
            for at in first..first + of_run {
                let candidate = candidates[at];
                let number = numbers.get(candidate as usize % RUN_SERIES);
                let number = number.copied().unwrap_or(0);
                if newest.0 != number {
                    // Checking the flag is one load, whereas matching a pattern can be slow.
                    cancel.check()?;
                    let known = verdicts.get(&(number as u32)).copied();
                    let verdict = match (number, known) {
                        (0, _) => !condition.is_in,
                        (_, Some(known)) => known,
                        _ => {
                            let verdict = self.is_value_match(condition, number - 1)?;
                            verdicts.insert(number as u32, verdict);
                            verdict
                        }
                    };
                    newest = (number, verdict);
                }
                if newest.1 {
                    candidates[kept] = candidate;
                    kept += 1;
                }
            }
            first += of_run;
        }
        candidates.truncate(kept);
        condition.matcher.prepare()
    }

    /// Returns whether series with this value of the label satisfy a condition.
    fn is_value_match(&self, condition: &Condition<'_>, value: i64) -> Result<bool, Error> {
        let term = condition.label.label.value_term(value);
        let term = term.ok_or_else(|| self.files.missing_value_error())?;
        Ok(match &condition.lists {
            MatcherPostings::Presence => condition.is_in,
            MatcherPostings::Terms(terms) => {
                let is_listed = terms.binary_search_by_key(&term, |t| t.term).is_ok();
                is_listed == condition.is_in
            }
            _ => condition
                .matcher
                .matches(&self.terms.read_value(self.files, term)?),
        })
    }
}

/// A set of the series of a block, as a bitmap with one bit for each series.
struct SeriesBitmap(Vec<u64>);

impl SeriesBitmap {
    fn new(series: u32, memory: &mut Reservation) -> Result<Self, Error> {
        let words = series.div_ceil(u64::BITS) as usize;
        memory.grow(words * size_of::<u64>())?;
        Ok(Self(vec![0; words]))
    }

    fn set(&mut self, series: u32) {
        self.0[(series / u64::BITS) as usize] |= 1 << (series % u64::BITS);
    }

    fn collect_series(&self, into: &mut Vec<u32>) {
        for (base, word) in (0..).step_by(u64::BITS as usize).zip(&self.0) {
            let mut left = *word;
            while left != 0 {
                into.push(base + left.trailing_zeros());
                left &= left - 1;
            }
        }
    }
}

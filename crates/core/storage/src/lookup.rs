//! Planner of lookups, for the index of the head and those of blocks.
//!
//! A condition is evaluated in one of two ways: the lists of the series that satisfy it are read
//! and intersected with the candidates, or the value of each remaining candidate is checked. Both
//! costs are known before a list is read, so a matcher that nearly all series satisfy, or an
//! expression over many values, costs almost nothing in addition to a narrow one. An index provides
//! the costs of its steps ([`LookupIndex`]); this module chooses the steps for all of them.
//!
//! Invariant: no decision changes the result, only its cost. Reading lists and checking candidates
//! is left to the indexes, which store them in their own formats.

mod lists;

pub(crate) use lists::MatcherPostings;

use firn_model::cancel::CancelToken;
use firn_model::error::Error;
use firn_model::matcher::Matcher;
use std::cmp::Reverse;

/// An index over labels and values, as seen by the planner. Costs are in nanoseconds; only their
/// ratios matter.
pub(crate) trait LookupIndex<'a> {
    /// A label that at least one series has.
    type Label: Copy;
    /// A pair of label and value that at least one series has.
    type Term;

    /// Returns the label with this name, or `None` if no series has it.
    fn label(&self, name: &str) -> Option<Self::Label>;

    /// Returns the number of series to search.
    fn series_count(&self) -> usize;

    /// Returns the number of distinct values of a label.
    fn values_count(&self, label: Self::Label) -> usize;

    /// Returns cost and size of the next step for a condition on `label`: reading its lists if
    /// their terms are known, otherwise finding their terms.
    fn next_step(&self, label: Self::Label, lists: &MatcherPostings<'a, Self::Term>) -> LookupStep;

    /// Returns the terms of lists that are not known yet, in ascending order; empty for lists that
    /// are known.
    fn find_terms(
        &self,
        label: Self::Label,
        lists: &MatcherPostings<'a, Self::Term>,
        cancel: &CancelToken,
    ) -> Result<Vec<Self::Term>, Error>;

    /// Returns the cost of reading lists first, including one scan of the series in them.
    fn first_nanos(&self, step: LookupStep) -> usize;

    /// Returns the cost of preparing this number of candidates for checks.
    fn prepare_nanos(&self, candidates: usize) -> usize;

    /// Returns the cost of checking this number of prepared candidates. `is_known` is true if no
    /// values have to be matched for that.
    fn check_nanos(&self, label: Self::Label, is_known: bool, candidates: usize) -> usize;
}

/// The next step of a condition: its cost in nanoseconds and the size of its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LookupStep {
    pub(crate) nanos: usize,
    /// Maximum number of series in the lists.
    pub(crate) series_max: usize,
}

/// The way in which a condition is evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LookupMethod {
    /// Its lists are known and will be read.
    Read,
    /// Each candidate will be checked.
    Ask,
}

/// The condition that a matcher imposes on a label.
#[derive(Debug)]
pub(crate) struct LookupCondition<'a, I: LookupIndex<'a> + ?Sized> {
    pub(crate) matcher: &'a Matcher,
    pub(crate) label: I::Label,
    pub(crate) lists: MatcherPostings<'a, I::Term>,
    /// True if a series must be in one of the lists. False if it must be in none; then series
    /// without the label match.
    pub(crate) is_in: bool,
    next: LookupStep,
}

/// Returns the conditions of all matchers, or `None` if no series can match. An absent label has
/// the empty value, so a matcher that accepts the empty value accepts series without the label.
pub(crate) fn build_conditions<'a, I: LookupIndex<'a>>(
    index: &I,
    matchers: &'a [Matcher],
) -> Option<Vec<LookupCondition<'a, I>>> {
    let mut conditions = Vec::with_capacity(matchers.len());
    for matcher in matchers {
        let or_absent = matcher.matches_empty();
        match index.label(matcher.name()) {
            None if or_absent => {}
            None => return None,
            Some(_) if matcher.matches_everything() => {}
            Some(label) => {
                let lists = MatcherPostings::from_matcher(matcher);
                conditions.push(LookupCondition {
                    matcher,
                    label,
                    next: index.next_step(label, &lists),
                    lists,
                    is_in: !or_absent,
                });
            }
        }
    }
    Some(conditions)
}

/// Returns the number of series that satisfy a matcher alone, of `all` series of the index. Finds
/// the terms of the matcher regardless of the cost.
pub(crate) fn count_series<'a, I: LookupIndex<'a>>(
    index: &I,
    matcher: &'a Matcher,
    all: usize,
    cancel: &CancelToken,
) -> Result<u64, Error> {
    let or_absent = matcher.matches_empty();
    let Some(label) = index.label(matcher.name()) else {
        return Ok(if or_absent { all as u64 } else { 0 });
    };
    if matcher.matches_everything() {
        return Ok(all as u64);
    }
    let mut lists = MatcherPostings::from_matcher(matcher);
    if !lists.are_known() {
        lists = MatcherPostings::Terms(index.find_terms(label, &lists, cancel)?);
    }
    let listed = index.next_step(label, &lists).series_max;
    let satisfied = if or_absent {
        all.saturating_sub(listed)
    } else {
        listed
    };
    Ok(satisfied as u64)
}

/// Removes and returns the condition that leaves the fewest series. Finds the terms of further
/// conditions as long as this costs less than the cheapest known step. Returns `None` if checking
/// all series is cheaper than reading any list, because there are few of them or no list is known.
/// Among equally expensive conditions, that of the label with the most values comes first, because
/// one of its values is in the fewest series; if a condition matches no series, no others are
/// evaluated.
pub(crate) fn take_cheapest_condition<'a, I: LookupIndex<'a>>(
    index: &I,
    conditions: &mut Vec<LookupCondition<'a, I>>,
    cancel: &CancelToken,
) -> Result<Option<LookupCondition<'a, I>>, Error> {
    let all = index.series_count();
    let checks = conditions.iter().map(|c| c.check_nanos(index, all));
    let asking = checks.sum::<usize>() + index.prepare_nanos(all);
    loop {
        let numbered = || conditions.iter().enumerate().filter(|(_, c)| c.is_in);
        let known = numbered().filter(|(_, c)| c.is_known());
        let best = known.min_by_key(|(_, c)| c.next.series_max);
        if let Some((none, _)) = best.filter(|(_, c)| c.next.series_max == 0) {
            return Ok(Some(conditions.swap_remove(none)));
        }
        let reading = best.map_or(asking, |(_, c)| asking.min(index.first_nanos(c.next)));
        let unknown = numbered().filter(|(_, c)| !c.is_known() && c.next.nanos < reading);
        let order =
            |c: &LookupCondition<'a, I>| (c.next.nanos, Reverse(index.values_count(c.label)));
        let Some((cheapest, _)) = unknown.min_by_key(|(_, c)| order(c)) else {
            let best = best.filter(|(_, c)| c.next.nanos < asking);
            let best = best.map(|(i, _)| i);
            return Ok(best.map(|best| conditions.swap_remove(best)));
        };
        conditions[cheapest].resolve_terms(index, cancel)?;
    }
}

/// Sorts conditions into the order of evaluation: lowest cost of the next step per excluded series
/// of `all` first. `beside` is the cost of intersecting a list with the candidates.
pub(crate) fn sort_conditions<'a, I: LookupIndex<'a>>(
    conditions: &mut [LookupCondition<'a, I>],
    beside: usize,
    all: usize,
) {
    conditions.sort_by_key(|c| c.sort_key(beside, all));
}

impl<'a, I: LookupIndex<'a>> LookupCondition<'a, I> {
    /// Returns whether the terms of the lists are known.
    pub(crate) fn is_known(&self) -> bool {
        self.lists.are_known()
    }

    /// Returns the maximum number of series in the lists.
    pub(crate) fn series_max(&self) -> usize {
        self.next.series_max
    }

    /// Decides how to evaluate the condition for the remaining candidates, which cost `meeting` to
    /// prepare for checks. Finds the terms of the lists if that costs less than checking.
    pub(crate) fn choose_method(
        &mut self,
        index: &I,
        candidates: usize,
        meeting: usize,
        cancel: &CancelToken,
    ) -> Result<LookupMethod, Error> {
        let is_dear = |c: &Self| c.next.nanos > meeting + c.check_nanos(index, candidates);
        if !self.is_known() && !is_dear(self) {
            self.resolve_terms(index, cancel)?;
        }
        Ok(if self.is_known() && !is_dear(self) {
            LookupMethod::Read
        } else {
            LookupMethod::Ask
        })
    }

    /// Finds the terms of the lists, and determines the cost of reading them.
    fn resolve_terms(&mut self, index: &I, cancel: &CancelToken) -> Result<(), Error> {
        let terms = index.find_terms(self.label, &self.lists, cancel)?;
        self.lists = MatcherPostings::Terms(terms);
        self.next = index.next_step(self.label, &self.lists);
        Ok(())
    }

    fn check_nanos(&self, index: &I, candidates: usize) -> usize {
        index.check_nanos(self.label, self.is_known(), candidates)
    }

    /// Returns the sort key of the condition. The number of series that a negative expression
    /// excludes is unknown before its evaluation, and assumed to be small.
    fn sort_key(&self, beside: usize, all: usize) -> usize {
        let left_out = match (self.is_in, self.is_known()) {
            (true, _) => all.saturating_sub(self.next.series_max),
            (false, true) => self.next.series_max,
            (false, false) => 0,
        };
        (self.next.nanos + beside).saturating_mul(all) / (left_out + 1)
    }
}

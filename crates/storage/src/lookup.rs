//! Planner of lookups, for the index of the head and those of blocks.
//!
//! A condition is evaluated in one of two ways: the lists of the series that satisfy it are read
//! and intersected with the candidates, or the value of each remaining candidate is checked. Both
//! costs are known before a list is read, so a matcher that nearly all series satisfy, or an
//! expression over many values, costs almost nothing in addition to a narrow one. An index provides
//! the costs of its steps ([`PlannedIndex`]); this module chooses the steps for all of them.
//!
//! Invariant: no decision changes the result, only its cost. Reading lists and checking candidates
//! is left to the indexes, which store them in their own formats.

mod lists;

pub(crate) use lists::Lists;

use firn_model::cancel::Cancel;
use firn_model::error::Error;
use firn_model::matcher::Matcher;
use std::cmp::Reverse;

/// An index over labels and values, as seen by the planner. Costs are in nanoseconds; only their
/// ratios matter.
pub(crate) trait PlannedIndex<'a> {
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
    fn next_step(&self, label: Self::Label, lists: &Lists<'a, Self::Term>) -> Step;

    /// Returns the terms of lists that are not known yet, in ascending order; empty for lists that
    /// are known.
    fn find_terms(
        &self,
        label: Self::Label,
        lists: &Lists<'a, Self::Term>,
        cancel: &Cancel,
    ) -> Result<Vec<Self::Term>, Error>;

    /// Returns the cost of reading lists first, including one scan of the series in them.
    fn first_nanos(&self, step: Step) -> usize;

    /// Returns the cost of preparing this number of candidates for checks.
    fn meet_nanos(&self, candidates: usize) -> usize;

    /// Returns the cost of checking this number of prepared candidates. `is_known` is true if no
    /// values have to be matched for that.
    fn ask_nanos(&self, label: Self::Label, is_known: bool, candidates: usize) -> usize;
}

/// The next step of a condition: its cost in nanoseconds and the size of its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) nanos: usize,
    /// Maximum number of series in the lists.
    pub(crate) series_max: usize,
}

/// The way in which a condition is evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Its lists are known and will be read.
    Read,
    /// Each candidate will be checked.
    Ask,
}

/// The condition that a matcher imposes on a label.
#[derive(Debug)]
pub(crate) struct Condition<'a, I: PlannedIndex<'a> + ?Sized> {
    pub(crate) matcher: &'a Matcher,
    pub(crate) label: I::Label,
    pub(crate) lists: Lists<'a, I::Term>,
    /// True if a series must be in one of the lists. False if it must be in none; then series
    /// without the label match.
    pub(crate) is_in: bool,
    next: Step,
}

/// Returns the conditions of all matchers, or `None` if no series can match. An absent label has
/// the empty value, so a matcher that accepts the empty value accepts series without the label.
pub(crate) fn conditions<'a, I: PlannedIndex<'a>>(
    index: &I,
    matchers: &'a [Matcher],
) -> Option<Vec<Condition<'a, I>>> {
    let mut conditions = Vec::with_capacity(matchers.len());
    for matcher in matchers {
        let or_absent = matcher.matches_empty();
        match index.label(matcher.name()) {
            None if or_absent => {}
            None => return None,
            Some(_) if matcher.matches_everything() => {}
            Some(label) => {
                let lists = Lists::of(matcher);
                conditions.push(Condition {
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

/// Removes and returns the condition that leaves the fewest series. Finds the terms of further
/// conditions as long as this costs less than the cheapest known step. Returns `None` if checking
/// all series is cheaper than reading any list, because there are few of them or no list is known.
/// Among equally expensive conditions, that of the label with the most values comes first, because
/// one of its values is in the fewest series; if a condition matches no series, no others are
/// evaluated.
pub(crate) fn take_first<'a, I: PlannedIndex<'a>>(
    index: &I,
    conditions: &mut Vec<Condition<'a, I>>,
    cancel: &Cancel,
) -> Result<Option<Condition<'a, I>>, Error> {
    let all = index.series_count();
    let checks = conditions.iter().map(|c| c.ask_nanos(index, all));
    let asking = checks.sum::<usize>() + index.meet_nanos(all);
    loop {
        let numbered = || conditions.iter().enumerate().filter(|(_, c)| c.is_in);
        let known = numbered().filter(|(_, c)| c.is_known());
        let best = known.min_by_key(|(_, c)| c.next.series_max);
        if let Some((none, _)) = best.filter(|(_, c)| c.next.series_max == 0) {
            return Ok(Some(conditions.swap_remove(none)));
        }
        let reading = best.map_or(asking, |(_, c)| asking.min(index.first_nanos(c.next)));
        let unknown = numbered().filter(|(_, c)| !c.is_known() && c.next.nanos < reading);
        let order = |c: &Condition<'a, I>| (c.next.nanos, Reverse(index.values_count(c.label)));
        let Some((cheapest, _)) = unknown.min_by_key(|(_, c)| order(c)) else {
            let best = best.filter(|(_, c)| c.next.nanos < asking);
            let best = best.map(|(i, _)| i);
            return Ok(best.map(|best| conditions.swap_remove(best)));
        };
        conditions[cheapest].find_out(index, cancel)?;
    }
}

/// Sorts conditions into the order of evaluation: lowest cost of the next step per excluded series
/// of `all` first. `beside` is the cost of intersecting a list with the candidates.
pub(crate) fn rank<'a, I: PlannedIndex<'a>>(
    conditions: &mut [Condition<'a, I>],
    beside: usize,
    all: usize,
) {
    conditions.sort_by_key(|c| c.rank(beside, all));
}

impl<'a, I: PlannedIndex<'a>> Condition<'a, I> {
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
    pub(crate) fn way(
        &mut self,
        index: &I,
        candidates: usize,
        meeting: usize,
        cancel: &Cancel,
    ) -> Result<Way, Error> {
        let is_dear = |c: &Self| c.next.nanos > meeting + c.ask_nanos(index, candidates);
        if !self.is_known() && !is_dear(self) {
            self.find_out(index, cancel)?;
        }
        Ok(match self.is_known() && !is_dear(self) {
            true => Way::Read,
            false => Way::Ask,
        })
    }

    /// Finds the terms of the lists, and determines the cost of reading them.
    fn find_out(&mut self, index: &I, cancel: &Cancel) -> Result<(), Error> {
        let terms = index.find_terms(self.label, &self.lists, cancel)?;
        self.lists = Lists::Terms(terms);
        self.next = index.next_step(self.label, &self.lists);
        Ok(())
    }

    fn ask_nanos(&self, index: &I, candidates: usize) -> usize {
        index.ask_nanos(self.label, self.is_known(), candidates)
    }

    /// Returns the sort key of the condition. The number of series that a negative expression
    /// excludes is unknown before its evaluation, and assumed to be small.
    fn rank(&self, beside: usize, all: usize) -> usize {
        let left_out = match (self.is_in, self.is_known()) {
            (true, _) => all.saturating_sub(self.next.series_max),
            (false, true) => self.next.series_max,
            (false, false) => 0,
        };
        (self.next.nanos + beside).saturating_mul(all) / (left_out + 1)
    }
}

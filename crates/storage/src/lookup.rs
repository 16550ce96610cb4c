//! How a look-up is planned, whichever index it is of: that of the head, or that of a block.
//!
//! A condition is answered in one of two ways: the lists of the series that satisfy it are read and
//! laid beside the candidates, or each candidate that the others leave is asked for its value. What
//! both cost is known before a list is read, so a matcher that nearly all series satisfy, or an
//! expression over many values, costs next to nothing beside a narrow one. An index says what its
//! steps cost ([`PlannedIndex`]); which step is taken is decided here, for all of them.
//!
//! Invariant: no decision changes the answer, only what it costs. To read lists and to ask
//! candidates is left to the indexes, which keep them in forms of their own.

mod lists;

pub(crate) use lists::Lists;

use firn_model::cancel::Cancel;
use firn_model::error::Error;
use firn_model::matcher::Matcher;
use std::cmp::Reverse;

/// An index over labels and values, as its planner sees it. Costs are nanoseconds, of which only
/// the ratios matter.
pub(crate) trait PlannedIndex<'a> {
    /// A label that some series has.
    type Label: Copy;
    /// A pair of label and value that some series has.
    type Term;

    /// The label with this name.
    fn label(&self, name: &str) -> Option<Self::Label>;

    /// How many series are looked among.
    fn series_count(&self) -> usize;

    /// How many values series have of a label.
    fn values_count(&self, label: Self::Label) -> usize;

    /// What comes next for a condition on `label`: its lists are read if they are known, and found
    /// out if not.
    fn next_step(&self, label: Self::Label, lists: &Lists<'a, Self::Term>) -> Step;

    /// The terms of lists that are not known yet, ascending; none of lists that are.
    fn find_terms(
        &self,
        label: Self::Label,
        lists: &Lists<'a, Self::Term>,
        cancel: &Cancel,
    ) -> Result<Vec<Self::Term>, Error>;

    /// What it takes to read lists before anything else, and to go through what they leave once.
    fn first_nanos(&self, step: Step) -> usize;

    /// What it takes to have so many candidates at hand, so that they can be asked.
    fn meet_nanos(&self, candidates: usize) -> usize;

    /// What asking so many candidates at hand takes, the verdict on their values being known or
    /// not.
    fn ask_nanos(&self, label: Self::Label, is_known: bool, candidates: usize) -> usize;
}

/// The next step of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) nanos: usize,
    /// Series in the lists, at most.
    pub(crate) series_max: usize,
}

/// How a condition is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Its lists are known, and read.
    Read,
    /// Each candidate is asked.
    Ask,
}

/// What one matcher asks for.
#[derive(Debug)]
pub(crate) struct Condition<'a, I: PlannedIndex<'a> + ?Sized> {
    pub(crate) matcher: &'a Matcher,
    pub(crate) label: I::Label,
    pub(crate) lists: Lists<'a, I::Term>,
    /// Whether a series must be in a list, or in none: then series without the label match.
    pub(crate) is_in: bool,
    next: Step,
}

/// The conditions of all matchers; `None` if no series can match. An absent label has the empty
/// value, so a matcher that accepts it accepts series without the label.
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

/// Takes the condition that leaves the fewest series, as far as finding that out takes less than
/// reading what is known so far. `None` where asking all series takes
/// less than reading any list: there are few of them, or no list is known. What takes equally long
/// to find out is found out first of the label with the most values, of which one is in the fewest
/// series; where it is in none, nothing else is found out.
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

/// Puts conditions in the order in which they are answered: first those whose next step takes
/// least for each series of `all` that it leaves out. `beside` is what laying any list beside the
/// candidates takes.
pub(crate) fn rank<'a, I: PlannedIndex<'a>>(
    conditions: &mut [Condition<'a, I>],
    beside: usize,
    all: usize,
) {
    conditions.sort_by_key(|c| c.rank(beside, all));
}

impl<'a, I: PlannedIndex<'a>> Condition<'a, I> {
    /// Whether the terms of the lists are known.
    pub(crate) fn is_known(&self) -> bool {
        self.lists.are_known()
    }

    /// Series in the lists, at most.
    pub(crate) fn series_max(&self) -> usize {
        self.next.series_max
    }

    /// How to answer the condition where so many candidates are left, which take `meeting` until
    /// they can be asked. Finds the lists out where that takes less than asking.
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

    fn find_out(&mut self, index: &I, cancel: &Cancel) -> Result<(), Error> {
        let terms = index.find_terms(self.label, &self.lists, cancel)?;
        self.lists = Lists::Terms(terms);
        self.next = index.next_step(self.label, &self.lists);
        Ok(())
    }

    fn ask_nanos(&self, index: &I, candidates: usize) -> usize {
        index.ask_nanos(self.label, self.is_known(), candidates)
    }

    /// Nothing is known of what a negative expression leaves out, which is mostly little.
    fn rank(&self, beside: usize, all: usize) -> usize {
        let left_out = match (self.is_in, self.is_known()) {
            (true, _) => all.saturating_sub(self.next.series_max),
            (false, true) => self.next.series_max,
            (false, false) => 0,
        };
        (self.next.nanos + beside).saturating_mul(all) / (left_out + 1)
    }
}

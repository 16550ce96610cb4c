//! Look-ups: matchers to slots.
//!
//! The list with the fewest series is read first, and what has no sample in the range goes. Then
//! come the others, the next step of each being to read postings or to find out whose they are: it
//! is done where it costs less than asking the candidates that are left. What is put off is asked
//! of each candidate, in one pass over their terms. Postings are laid beside the candidates while
//! they are read, so that no list is ever held that is longer than the answer so far. Invariant: no
//! order changes the answer.

use super::planner::{Condition, List, Plan};
use super::postings::Postings;
use super::runs::Run;
use super::{Index, Label, Runs, SeriesCursor};
use crate::sync::atomic::Ordering;
use firn_model::cancel::Cancel;
use firn_model::error::Error;
use firn_model::matcher::Matcher;
use firn_model::metrics::Counter;
use firn_model::sample::TimeRange;
use std::collections::HashMap;

/// Values or series between two looks at the cancel flag: some 100 us.
pub(super) const CANCEL_EACH: usize = 1_024;

/// What look-ups went through.
#[derive(Debug, Default)]
pub(crate) struct LookupWork {
    /// Runs of postings that were read.
    pub(crate) runs: Counter,
    /// Values that were looked up or asked whether they match.
    pub(crate) values: Counter,
    /// Candidates whose terms were read.
    pub(crate) series: Counter,
}

/// A look-up under way.
struct Lookup<'a> {
    index: &'a Index,
    cancel: &'a Cancel,
    /// Slots from here on do not exist for it.
    limit: u32,
    /// What satisfies all conditions so far.
    candidates: Runs,
    /// Conditions that are asked of each candidate.
    filters: Vec<Filter<'a>>,
}

impl Index {
    /// The series that match and have a sample in an epoch of `range`, ascending.
    pub(crate) fn lookup(
        &self,
        matchers: &[Matcher],
        range: TimeRange,
        cancel: &Cancel,
    ) -> Result<Runs, Error> {
        // Before any term is looked up: series below have theirs.
        let limit = self.published();
        let Plan::All(mut conditions) = Plan::new(self, matchers) else {
            return Ok(Runs::default());
        };
        let members = self.membership.of_range(range);
        let mut lookup = Lookup {
            index: self,
            cancel,
            limit,
            candidates: Runs::span(0, limit),
            filters: Vec::new(),
        };
        if let Some(first) = lookup.first(&mut conditions)? {
            lookup.narrow(conditions.swap_remove(first))?;
        }
        lookup.candidates = members.filter(&lookup.candidates);
        let runs = lookup.candidates.as_slice().len();
        conditions.sort_by_key(|c| c.rank(self.costs, runs, limit as usize));
        for condition in conditions {
            lookup.narrow(condition)?;
        }
        lookup.filtered()
    }
}

impl<'a> Lookup<'a> {
    /// Which of the conditions leaves the fewest series, as far as finding that out takes less than
    /// reading what is known so far.
    fn first(&self, conditions: &mut [Condition<'a>]) -> Result<Option<usize>, Error> {
        loop {
            let numbered = || conditions.iter().enumerate().filter(|(_, c)| c.is_in);
            let known = numbered().filter(|(_, c)| c.is_known());
            let best = known.min_by_key(|(_, c)| c.series_max);
            let reading = best.map_or(usize::MAX, |(_, c)| c.first_nanos(self.index.costs));
            let unknown = numbered().filter(|(_, c)| !c.is_known() && c.nanos < reading);
            let Some((cheapest, _)) = unknown.min_by_key(|(_, c)| c.nanos) else {
                return Ok(best.map(|(i, _)| i));
            };
            self.look_up(&mut conditions[cheapest])?;
        }
    }

    fn look_up(&self, condition: &mut Condition<'a>) -> Result<(), Error> {
        let values = condition.look_up(self.index, self.cancel)?;
        self.index.work.values.add(values as u64);
        Ok(())
    }

    /// Leaves the candidates that satisfy `condition`, or puts it off.
    fn narrow(&mut self, mut condition: Condition<'a>) -> Result<(), Error> {
        self.cancel.check()?;
        let (count, costs) = (self.candidates.len(), self.index.costs);
        // Their terms are read once for all filters.
        let reading = match self.filters.is_empty() {
            true => count * costs.series,
            false => 0,
        };
        let is_dear = |c: &Condition<'_>| c.nanos > reading + c.check_nanos(costs, count);
        if !condition.is_known() && !is_dear(&condition) {
            self.look_up(&mut condition)?;
        }
        let mut both = Vec::new();
        match &condition.list {
            List::Presence if !is_dear(&condition) => {
                self.read(&condition.label.present, &mut both);
            }
            List::Terms(terms) if !is_dear(&condition) => self.read_terms(terms, &mut both)?,
            _ => {
                self.filters.push(Filter::new(condition));
                return Ok(());
            }
        }
        let listed = Runs::of(both);
        self.candidates = match condition.is_in {
            true => listed,
            false => self.candidates.and_not(&listed),
        };
        Ok(())
    }

    fn read_terms(&self, terms: &[u32], both: &mut Vec<Run>) -> Result<(), Error> {
        for terms in terms.chunks(CANCEL_EACH) {
            self.cancel.check()?;
            for term in terms {
                self.index
                    .with_term(*term, |term| self.read(&term.postings, both));
            }
        }
        Ok(())
    }

    /// Adds the candidates that are in `postings`: nothing else of them is kept.
    fn read(&self, postings: &Postings, both: &mut Vec<Run>) {
        let mut beside = self.candidates.beside();
        let mut runs = 0;
        postings.any(self.limit, |run| {
            runs += 1;
            !beside.and(run, both)
        });
        self.index.work.runs.add(runs);
    }

    /// The candidates that satisfy what was put off.
    fn filtered(mut self) -> Result<Runs, Error> {
        if self.filters.is_empty() {
            return Ok(self.candidates);
        }
        let mut cursor = SeriesCursor::new(self.index);
        let mut count = 0usize;
        let kept = self.candidates.filter(|slot| {
            if count.is_multiple_of(CANCEL_EACH) {
                self.cancel.check()?;
            }
            count += 1;
            let terms = cursor.terms(slot);
            let mut filters = self.filters.iter_mut();
            Ok(filters.all(|filter| filter.keeps(self.index, terms)))
        });
        self.index.work.series.add(count as u64);
        kept
    }
}

/// A condition that is asked of candidates.
struct Filter<'a> {
    condition: Condition<'a>,
    /// Which of its terms the series before had of the label: mostly the next one's too.
    place: usize,
    /// The last verdict: neighbours mostly share the value.
    newest: Option<(u32, bool)>,
    /// Verdicts on values that were asked already.
    verdicts: HashMap<u32, bool>,
}

impl<'a> Filter<'a> {
    fn new(condition: Condition<'a>) -> Self {
        Self {
            condition,
            place: 0,
            newest: None,
            verdicts: HashMap::new(),
        }
    }

    /// Whether a series with these terms satisfies the condition.
    fn keeps(&mut self, index: &Index, terms: &[u32]) -> bool {
        let label = self.condition.id;
        let is_of = |term: &u32| index.label_of(*term) == label;
        if !terms.get(self.place).is_some_and(is_of) {
            match terms.iter().position(is_of) {
                Some(place) => self.place = place,
                None => return !self.condition.is_in,
            }
        }
        let term = terms[self.place];
        match &self.condition.list {
            List::Presence => self.condition.is_in,
            List::Terms(listed) => listed.binary_search(&term).is_ok() == self.condition.is_in,
            List::Values(_) | List::Expression { .. } => self.verdict(index, term),
        }
    }

    fn verdict(&mut self, index: &Index, term: u32) -> bool {
        if let Some((newest, verdict)) = self.newest
            && newest == term
        {
            return verdict;
        }
        let matcher = self.condition.matcher;
        let ask = || index.with_term(term, |term| matcher.matches(&term.value));
        let verdict = *self
            .verdicts
            .entry(term)
            .or_insert_with(|| ask() == Some(true));
        self.newest = Some((term, verdict));
        verdict
    }
}

impl Label {
    /// How many values the label has.
    pub(super) fn values_count(&self) -> usize {
        self.distinct.load(Ordering::Relaxed) as usize
    }
}

//! Lookups: find the slots of the series that match.
//!
//! A lookup first searches the cache of earlier results (module `matcher_cache`) and then only the
//! series created since. It reads the list with the fewest series first, and drops series without a
//! sample in the range if these are many. For each other condition it reads the postings or
//! determines their terms, provided that this costs less than checking the remaining candidates.
//! All other conditions are checked on each candidate, in one pass over the terms of the
//! candidates. Postings are intersected with the candidates while they are read, so no list longer
//! than the current result is ever held. Invariant: neither the order nor the cache changes the
//! result.

use super::core::Index;
use super::lookup_work::CANCEL_EACH;
use super::matcher_cache::joined;
use super::membership::Members;
use super::planned::Among;
use super::postings::Postings;
use super::runs::{Run, Runs};
use super::series_table::SeriesCursor;
use crate::ids::TermId;
use crate::lookup::{self, Lists, PlannedIndex, Way};
use firn_model::cancel::Cancel;
use firn_model::error::Error;
use firn_model::matcher::Matcher;
use firn_model::sample::TimeRange;
use std::ops::Range;

/// Number of series without a sample in the range that are looked up nevertheless, in addition to
/// as many as there are with one, so that the result can be cached.
const KEPT_WITHOUT_SAMPLES: usize = 256;

/// The condition of one matcher on this index.
type Condition<'a> = lookup::Condition<'a, Among<'a>>;

/// A lookup in progress: the candidates that remain, and the conditions not evaluated yet.
struct Lookup<'a> {
    among: Among<'a>,
    cancel: &'a Cancel,
    /// The series that satisfy all conditions so far.
    candidates: Runs,
    /// True if the candidates include those without a sample.
    has_all: bool,
    /// Conditions to check on each candidate.
    filters: Vec<Filter<'a>>,
}

impl Index {
    /// Returns the series that match and have a sample in an epoch of `range`, in ascending order.
    pub(crate) fn lookup(
        &self,
        matchers: &[Matcher],
        range: TimeRange,
        cancel: &Cancel,
    ) -> Result<Runs, Error> {
        // Read before any term is looked up, so that all series below it have their terms.
        let limit = self.published();
        let members = self.membership.of_range(range);
        let known = self.matcher_cache.get(self, matchers);
        let known = known.as_deref();
        let first = known.map_or(0, |answer| answer.limit);
        if let Some(answer) = known.filter(|_| first >= limit) {
            return Ok(members.filter(&answer.found));
        }
        let (mut found, is_all) = self.search(matchers, first..limit, &members, cancel)?;
        if let Some(answer) = known {
            found = joined(&answer.found, &found);
        }
        if is_all && !matchers.is_empty() {
            self.matcher_cache.keep(self, matchers, limit, &found);
        }
        Ok(members.filter(&found))
    }

    /// Returns the matching series in `slots`, and whether they include those without a sample.
    fn search(
        &self,
        matchers: &[Matcher],
        slots: Range<u32>,
        members: &Members,
        cancel: &Cancel,
    ) -> Result<(Runs, bool), Error> {
        let among = Among { index: self, slots };
        let Some(mut conditions) = lookup::conditions(&among, matchers) else {
            return Ok((Runs::default(), true));
        };
        let mut lookup = Lookup {
            candidates: Runs::span(among.slots.start, among.slots.end),
            among,
            cancel,
            has_all: true,
            filters: Vec::new(),
        };
        if let Some(first) = lookup::take_first(&lookup.among, &mut conditions, cancel)? {
            lookup.narrow(first)?;
        }
        lookup.drop_without_samples(members, !conditions.is_empty());
        let beside = lookup.candidates.as_slice().len() * self.costs.run;
        lookup::rank(&mut conditions, beside, lookup.among.slots.len());
        for condition in conditions {
            lookup.narrow(condition)?;
        }
        let has_all = lookup.has_all;
        Ok((lookup.filtered()?, has_all))
    }
}

impl<'a> Lookup<'a> {
    /// Drops candidates without a sample, unless they are few compared to those with one, or no
    /// condition is left.
    fn drop_without_samples(&mut self, members: &Members, is_checked: bool) {
        if !is_checked {
            return;
        }
        let with_samples = members.filter(&self.candidates);
        if self.candidates.len() > with_samples.len() * 2 + KEPT_WITHOUT_SAMPLES {
            self.candidates = with_samples;
            self.has_all = false;
        }
    }

    /// Reduces the candidates to those that satisfy `condition`, or adds it to the filters.
    fn narrow(&mut self, mut condition: Condition<'a>) -> Result<(), Error> {
        self.cancel.check()?;
        let count = self.candidates.len();
        // The terms of the candidates are read once for all filters.
        let meeting = match self.filters.is_empty() {
            true => self.among.meet_nanos(count),
            false => 0,
        };
        let way = condition.way(&self.among, count, meeting, self.cancel)?;
        let mut both = Vec::new();
        match (way, &condition.lists) {
            (Way::Read, Lists::Presence) => self.read(&condition.label.present, &mut both),
            (Way::Read, Lists::Terms(terms)) => self.read_terms(terms, &mut both)?,
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

    /// Adds the candidates that are in the postings of any of `terms` to `both`.
    fn read_terms(&self, terms: &[TermId], both: &mut Vec<Run>) -> Result<(), Error> {
        for terms in terms.chunks(CANCEL_EACH) {
            self.cancel.check()?;
            for term in terms {
                self.among
                    .index
                    .with_term(*term, |term| self.read(&term.postings, both));
            }
        }
        Ok(())
    }

    /// Adds the candidates that are in `postings` to `both`.
    fn read(&self, postings: &Postings, both: &mut Vec<Run>) {
        let mut beside = self.candidates.beside();
        let mut runs = 0;
        postings.any(self.among.slots.clone(), |run| {
            runs += 1;
            !beside.and(run, both)
        });
        self.among.index.work.runs.add(runs);
    }

    /// Returns the candidates that satisfy the filters. Reads the terms of each candidate once.
    fn filtered(mut self) -> Result<Runs, Error> {
        if self.filters.is_empty() {
            return Ok(self.candidates);
        }
        self.check_filters()?;
        let mut cursor = SeriesCursor::new(self.among.index);
        let mut count = 0usize;
        let kept = self.candidates.filter(|slot| {
            // Reading a series is a cache miss, and a pattern may take long.
            self.cancel.check()?;
            count += 1;
            let terms = cursor.terms(slot);
            let mut filters = self.filters.iter_mut();
            Ok(filters.all(|filter| filter.keeps(self.among.index, terms)))
        });
        self.among.index.work.series.add(count as u64);
        self.check_filters()?;
        kept
    }

    /// Returns an error if the pattern of a filter cannot be evaluated.
    fn check_filters(&self) -> Result<(), Error> {
        let mut asked = self.filters.iter().filter(|f| !f.condition.is_known());
        asked.try_for_each(|filter| filter.condition.matcher.ready())
    }
}

/// Maximum number of results per value that a filter caches.
const VERDICTS: usize = 256;

/// A condition that is checked on each candidate.
struct Filter<'a> {
    condition: Condition<'a>,
    /// Index of the label's term in the previous series; usually the same in the next one.
    place: usize,
    /// The last result: neighbours mostly share the value.
    newest: Option<(TermId, bool)>,
    /// Cached results by value, at the number of its term modulo the size. A colliding value is
    /// matched again. Allocated at the second distinct value.
    verdicts: Vec<Option<(TermId, bool)>>,
}

impl<'a> Filter<'a> {
    fn new(condition: Condition<'a>) -> Self {
        Self {
            condition,
            place: 0,
            newest: None,
            verdicts: Vec::new(),
        }
    }

    /// Returns whether a series with these terms satisfies the condition.
    fn keeps(&mut self, index: &Index, terms: &[TermId]) -> bool {
        let label = self.condition.label.id;
        let is_of = |term: &TermId| index.label_of(*term) == label;
        if !terms.get(self.place).is_some_and(is_of) {
            match terms.iter().position(is_of) {
                Some(place) => self.place = place,
                None => return !self.condition.is_in,
            }
        }
        let term = terms[self.place];
        match &self.condition.lists {
            Lists::Presence => self.condition.is_in,
            Lists::Terms(listed) => listed.binary_search(&term).is_ok() == self.condition.is_in,
            Lists::Values(_) | Lists::Expression { .. } => self.verdict(index, term),
        }
    }

    /// Returns whether the value of a term matches, from the cached results if possible.
    fn verdict(&mut self, index: &Index, term: TermId) -> bool {
        if let Some((newest, verdict)) = self.newest
            && newest == term
        {
            return verdict;
        }
        if self.newest.is_some() && self.verdicts.is_empty() {
            self.verdicts.resize(VERDICTS, None);
        }
        let matcher = self.condition.matcher;
        let ask = || index.with_term(term, |term| matcher.matches(&term.value)) == Some(true);
        let verdict = match self.verdicts.get_mut(term.0 as usize % VERDICTS) {
            Some(Some((known, verdict))) if *known == term => *verdict,
            Some(place) => place.insert((term, ask())).1,
            None => ask(),
        };
        self.newest = Some((term, verdict));
        verdict
    }
}

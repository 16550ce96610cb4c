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
use super::matcher_cache::join_sets;
use super::membership::EpochMembers;
use super::planned::IndexSlice;
use super::postings::Postings;
use super::runs::{SlotRun, SlotRunSet};
use super::series_table::SeriesCursor;
use crate::ids::TermId;
use crate::lookup::{self, LookupIndex, LookupMethod, MatcherPostings};
use firn_model::cancel::CancelToken;
use firn_model::error::Error;
use firn_model::matcher::Matcher;
use firn_model::sample::TimeRange;
use firn_model::store::MatcherCost;
use std::ops::Range;

/// Number of series without a sample in the range that are looked up nevertheless, in addition to
/// as many as there are with one, so that the result can be cached.
const KEPT_WITHOUT_SAMPLES: usize = 256;

/// The condition of one matcher on this index.
type Condition<'a> = lookup::LookupCondition<'a, IndexSlice<'a>>;

/// A lookup in progress: the candidates that remain, and the conditions not evaluated yet.
struct PostingsLookup<'a> {
    among: IndexSlice<'a>,
    cancel: &'a CancelToken,
    /// The series that satisfy all conditions so far.
    candidates: SlotRunSet,
    /// True if the candidates include those without a sample.
    has_all: bool,
    /// Conditions to check on each candidate.
    filters: Vec<CandidateFilter<'a>>,
}

impl Index {
    /// Returns the series that match and have a sample in an epoch of `range`, in ascending order.
    pub(crate) fn lookup(
        &self,
        matchers: &[Matcher],
        range: TimeRange,
        cancel: &CancelToken,
    ) -> Result<SlotRunSet, Error> {
        // Read before any term is looked up, so that all series below it have their terms.
        let limit = self.published_end();
        let members = self.membership.snapshot_range(range);
        let known = self.matcher_cache.get(&self.dictionary, matchers);
        let known = known.as_deref();
        let first = known.map_or(0, |answer| answer.limit);
        if let Some(answer) = known.filter(|_| first >= limit) {
            return Ok(members.filter_slots(&answer.found));
        }
        let (mut found, is_all) = self.search(matchers, first..limit, &members, cancel)?;
        if let Some(answer) = known {
            found = join_sets(&answer.found, &found);
        }
        if is_all && !matchers.is_empty() {
            self.matcher_cache
                .insert(&self.dictionary, matchers, limit, &found);
        }
        Ok(members.filter_slots(&found))
    }

    /// Returns the matching series in `slots`, and whether they include those without a sample.
    fn search(
        &self,
        matchers: &[Matcher],
        slots: Range<u32>,
        members: &EpochMembers,
        cancel: &CancelToken,
    ) -> Result<(SlotRunSet, bool), Error> {
        match self.narrow(matchers, slots, members, cancel)? {
            Some(lookup) => {
                let has_all = lookup.has_all;
                Ok((lookup.apply_filters()?, has_all))
            }
            None => Ok((SlotRunSet::default(), true)),
        }
    }

    /// Returns the part of each matcher in a lookup without cached results. Finds the terms of all
    /// matchers, including those that a lookup only checks on candidates.
    pub(crate) fn explain(
        &self,
        matchers: &[Matcher],
        range: TimeRange,
        cancel: &CancelToken,
    ) -> Result<Vec<MatcherCost>, Error> {
        let slots = 0..self.published_end();
        let members = self.membership.snapshot_range(range);
        let lookup = self.narrow(matchers, slots.clone(), &members, cancel)?;
        let filters = lookup.as_ref().map_or(&[][..], |lookup| &lookup.filters);
        let is_deferred = |matcher: &Matcher| {
            let mut filters = filters.iter();
            filters.any(|filter| std::ptr::eq(filter.condition.matcher, matcher))
        };
        let among = IndexSlice { index: self, slots };
        let cost = |matcher| {
            let series = lookup::count_series(&among, matcher, self.series_count(), cancel)?;
            Ok(MatcherCost {
                series: Some(series),
                is_deferred: is_deferred(matcher),
            })
        };
        matchers.iter().map(cost).collect()
    }

    /// Evaluates all conditions except those that become filters. Returns `None` if no series can
    /// match.
    fn narrow<'a>(
        &'a self,
        matchers: &'a [Matcher],
        slots: Range<u32>,
        members: &EpochMembers,
        cancel: &'a CancelToken,
    ) -> Result<Option<PostingsLookup<'a>>, Error> {
        let among = IndexSlice { index: self, slots };
        let Some(mut conditions) = lookup::build_conditions(&among, matchers) else {
            return Ok(None);
        };
        let mut lookup = PostingsLookup {
            candidates: SlotRunSet::from_range(among.slots.start, among.slots.end),
            among,
            cancel,
            has_all: true,
            filters: Vec::new(),
        };
        if let Some(first) =
            lookup::take_cheapest_condition(&lookup.among, &mut conditions, cancel)?
        {
            lookup.apply_condition(first)?;
        }
        lookup.drop_without_samples(members, !conditions.is_empty());
        let beside = lookup.candidates.as_slice().len() * self.costs.run;
        lookup::sort_conditions(&mut conditions, beside, lookup.among.slots.len());
        for condition in conditions {
            lookup.apply_condition(condition)?;
        }
        Ok(Some(lookup))
    }
}

impl<'a> PostingsLookup<'a> {
    /// Drops candidates without a sample, unless they are few compared to those with one, or no
    /// condition is left.
    fn drop_without_samples(&mut self, members: &EpochMembers, is_checked: bool) {
        if !is_checked {
            return;
        }
        let with_samples = members.filter_slots(&self.candidates);
        if self.candidates.len() > with_samples.len() * 2 + KEPT_WITHOUT_SAMPLES {
            self.candidates = with_samples;
            self.has_all = false;
        }
    }

    /// Reduces the candidates to those that satisfy `condition`, or adds it to the filters.
    fn apply_condition(&mut self, mut condition: Condition<'a>) -> Result<(), Error> {
        self.cancel.check()?;
        let count = self.candidates.len();
        // The terms of the candidates are read once for all filters.
        let meeting = if self.filters.is_empty() {
            self.among.prepare_nanos(count)
        } else {
            0
        };
        let way = condition.choose_method(&self.among, count, meeting, self.cancel)?;
        let mut both = Vec::new();
        match (way, &condition.lists) {
            (LookupMethod::Read, MatcherPostings::Presence) => {
                self.read_postings(&condition.label.present, &mut both)
            }
            (LookupMethod::Read, MatcherPostings::Terms(terms)) => {
                self.read_terms(terms, &mut both)?
            }
            _ => {
                self.filters.push(CandidateFilter::new(condition));
                return Ok(());
            }
        }
        let listed = SlotRunSet::from_runs(both);
        self.candidates = if condition.is_in {
            listed
        } else {
            self.candidates.subtract(&listed)
        };
        Ok(())
    }

    /// Adds the candidates that are in the postings of any of `terms` to `both`.
    fn read_terms(&self, terms: &[TermId], both: &mut Vec<SlotRun>) -> Result<(), Error> {
        for terms in terms.chunks(CANCEL_EACH) {
            self.cancel.check()?;
            for term in terms {
                self.among
                    .index
                    .dictionary
                    .with_term(*term, |term| self.read_postings(&term.postings, both));
            }
        }
        Ok(())
    }

    /// Adds the candidates that are in `postings` to `both`.
    fn read_postings(&self, postings: &Postings, both: &mut Vec<SlotRun>) {
        let mut beside = self.candidates.cursor();
        let mut runs = 0;
        postings.any_run(self.among.slots.clone(), |run| {
            runs += 1;
            !beside.intersect_run(run, both)
        });
        self.among.index.work.runs.add(runs);
    }

    /// Returns the candidates that satisfy the filters. Reads the terms of each candidate once.
    fn apply_filters(mut self) -> Result<SlotRunSet, Error> {
        if self.filters.is_empty() {
            return Ok(self.candidates);
        }
        self.check_filters()?;
        let mut cursor = SeriesCursor::new(&self.among.index.dictionary);
        let mut count = 0usize;
        let kept = self.candidates.filter(|slot| {
            // Reading a series is a cache miss, and a pattern may take long.
            self.cancel.check()?;
            count += 1;
            let terms = cursor.terms(slot);
            let mut filters = self.filters.iter_mut();
            Ok(filters.all(|filter| filter.is_satisfied(self.among.index, terms)))
        });
        self.among.index.work.series.add(count as u64);
        self.check_filters()?;
        kept
    }

    /// Returns an error if the pattern of a filter cannot be evaluated.
    fn check_filters(&self) -> Result<(), Error> {
        let mut asked = self.filters.iter().filter(|f| !f.condition.is_known());
        asked.try_for_each(|filter| filter.condition.matcher.prepare())
    }
}

/// Maximum number of results per value that a filter caches.
const VERDICTS: usize = 256;

/// A condition that is checked on each candidate.
struct CandidateFilter<'a> {
    condition: Condition<'a>,
    /// Index of the label's term in the previous series; usually the same in the next one.
    place: usize,
    /// The last result: neighbours mostly share the value.
    newest: Option<(TermId, bool)>,
    /// Cached results by value, at the number of its term modulo the size. A colliding value is
    /// matched again. Allocated at the second distinct value.
    verdicts: Vec<Option<(TermId, bool)>>,
}

impl<'a> CandidateFilter<'a> {
    fn new(condition: Condition<'a>) -> Self {
        Self {
            condition,
            place: 0,
            newest: None,
            verdicts: Vec::new(),
        }
    }

    /// Returns whether a series with these terms satisfies the condition.
    fn is_satisfied(&mut self, index: &Index, terms: &[TermId]) -> bool {
        let label = self.condition.label.id;
        let is_of = |term: &TermId| index.dictionary.label_of_term(*term) == label;
        if !terms.get(self.place).is_some_and(is_of) {
            match terms.iter().position(is_of) {
                Some(place) => self.place = place,
                None => return !self.condition.is_in,
            }
        }
        let term = terms[self.place];
        match &self.condition.lists {
            MatcherPostings::Presence => self.condition.is_in,
            MatcherPostings::Terms(listed) => {
                listed.binary_search(&term).is_ok() == self.condition.is_in
            }
            MatcherPostings::Values(_) | MatcherPostings::Expression { .. } => {
                self.is_term_match(index, term)
            }
        }
    }

    /// Returns whether the value of a term matches, from the cached results if possible.
    fn is_term_match(&mut self, index: &Index, term: TermId) -> bool {
        if let Some((newest, verdict)) = self.newest
            && newest == term
        {
            return verdict;
        }
        if self.newest.is_some() && self.verdicts.is_empty() {
            self.verdicts.resize(VERDICTS, None);
        }
        let matcher = self.condition.matcher;
        let ask = || {
            index
                .dictionary
                .with_term(term, |term| matcher.matches(&term.value))
                == Some(true)
        };
        let verdict = match self.verdicts.get_mut(term.0 as usize % VERDICTS) {
            Some(Some((known, verdict))) if *known == term => *verdict,
            Some(place) => place.insert((term, ask())).1,
            None => ask(),
        };
        self.newest = Some((term, verdict));
        verdict
    }
}

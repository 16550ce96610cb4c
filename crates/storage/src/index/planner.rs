//! What each matcher asks for, and what it costs to find out, known before a posting is read.
//!
//! A condition is answered in one of two ways: its postings are read and combined with those of the
//! others, or each candidate that the others leave is asked for its value. The first costs what is
//! in the postings, the second what is left: both are known. So a matcher that nearly all series
//! satisfy costs nothing beside a narrow one.

use super::answer::Lists;
use super::core::Index;
use super::costs::Costs;
use super::terms::Label;
use crate::ids::TermId;
use firn_model::cancel::Cancel;
use firn_model::error::Error;
use firn_model::matcher::Matcher;
use std::ops::Range;

/// What one matcher asks for.
#[derive(Debug)]
pub(super) struct Condition<'a> {
    pub(super) matcher: &'a Matcher,
    pub(super) label: &'a Label,
    pub(super) lists: Lists<'a, TermId>,
    /// Whether a series must be in a list, or in none: then series without the label match.
    pub(super) is_in: bool,
    /// What the next step towards the lists takes: to read the postings, or to find out which terms
    /// have them.
    pub(super) nanos: usize,
    /// Series in the lists, at most.
    pub(super) series_max: usize,
    /// The slots that are looked for.
    slots: Range<u32>,
}

/// All matchers together.
#[derive(Debug)]
pub(super) enum Plan<'a> {
    /// No series can match.
    Nothing,
    /// All of these must hold.
    All(Vec<Condition<'a>>),
}

impl<'a> Plan<'a> {
    /// Turns matchers into conditions. An absent label has the empty value, so a matcher that
    /// accepts it accepts series without the label.
    pub(super) fn new(index: &'a Index, matchers: &'a [Matcher], slots: Range<u32>) -> Self {
        let mut conditions = Vec::with_capacity(matchers.len());
        for matcher in matchers {
            let or_absent = matcher.matches_empty();
            match index.label(matcher.name()) {
                None if or_absent => {}
                None => return Self::Nothing,
                Some(_) if matcher.matches_everything() => {}
                Some(label) => {
                    let mut condition = Condition {
                        matcher,
                        label,
                        lists: Lists::of(matcher),
                        is_in: !or_absent,
                        nanos: 0,
                        series_max: label.present.count().min(slots.len()),
                        slots: slots.clone(),
                    };
                    condition.nanos = condition.first_step_nanos(index.costs);
                    conditions.push(condition);
                }
            }
        }
        Self::All(conditions)
    }
}

impl Condition<'_> {
    /// Whether the terms of the lists are known.
    pub(super) fn is_known(&self) -> bool {
        self.lists.are_known()
    }

    /// Looks up the terms of the lists, and what reading their postings takes. Returns how many
    /// values were looked at.
    pub(super) fn look_up(&mut self, index: &Index, cancel: &Cancel) -> Result<usize, Error> {
        let (terms, looked_at) = match self.lists {
            Lists::Presence | Lists::Terms(_) => return Ok(0),
            Lists::Values(values) => {
                let found = values.iter().filter_map(|v| index.find_term(self.label, v));
                let mut terms: Vec<TermId> = found.collect();
                terms.sort_unstable();
                (terms, values.len())
            }
            Lists::Expression { regex, wants_match } => {
                regex.ready()?;
                let found = index.terms_by_expression(self.label, regex, wants_match, cancel)?;
                regex.ready()?;
                found
            }
        };
        let first = self.slots.start;
        let sizes = |id: &TermId| {
            index.with_term(*id, |t| (t.postings.count(), t.postings.runs_from(first)))
        };
        let sizes = terms.iter().filter_map(sizes);
        let (series, runs) = sizes.fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1));
        self.series_max = series.min(self.slots.len());
        self.nanos = terms.len() * index.costs.term + runs * index.costs.run;
        self.lists = Lists::Terms(terms);
        Ok(looked_at)
    }

    /// What looking up the terms of the lists takes, or reading their postings if they are known.
    fn first_step_nanos(&self, costs: Costs) -> usize {
        match &self.lists {
            Lists::Presence => self.label.present.runs_from(self.slots.start) * costs.run,
            Lists::Terms(terms) => terms.len() * costs.term,
            Lists::Values(values) => values.len() * costs.term,
            Lists::Expression { regex, wants_match } => {
                let distinct = self.label.values_count();
                let dictionary = &self.label.dictionary;
                let (in_order, behind) = dictionary.in_reach(regex, *wants_match, distinct);
                in_order * costs.value + behind * costs.term
            }
        }
    }

    /// What the next step takes for each series of `all` that it leaves out: steps with less come
    /// first. Nothing is known of what a negative expression leaves out, which is mostly little.
    pub(super) fn rank(&self, costs: Costs, candidate_runs: usize, all: usize) -> usize {
        let left_out = match (self.is_in, self.is_known()) {
            (true, _) => all.saturating_sub(self.series_max),
            (false, true) => self.series_max,
            (false, false) => 0,
        };
        (self.nanos + candidate_runs * costs.run).saturating_mul(all) / (left_out + 1)
    }

    /// What reading the lists as the first ones takes, and leaving out what has no sample.
    pub(super) fn first_nanos(&self, costs: Costs) -> usize {
        self.nanos + self.series_max / 64 * costs.members
    }

    /// What asking each of `count` candidates takes, beside reading their terms.
    pub(super) fn check_nanos(&self, costs: Costs, count: usize) -> usize {
        let verdicts = match self.is_known() {
            true => 0,
            false => count.min(self.label.values_count()),
        };
        count * costs.check + verdicts * costs.term
    }
}

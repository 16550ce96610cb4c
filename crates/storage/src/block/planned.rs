//! A block as the planner of look-ups sees it (`crate::lookup`): what its steps cost, and the terms
//! that answer a matcher.

use super::labels::Label;
use super::reader::Block;
use super::series::RUN_SERIES;
use super::terms::TermPostings;
use crate::encoding::Malformed;
use crate::lookup::{self, Lists, PlannedIndex, Step};
use firn_model::cancel::Cancel;
use firn_model::error::Error;
use firn_model::regex::Regex;
use std::ops::Range;

/// Nanoseconds that steps of a look-up take, as measured on units that are in memory.
pub(super) mod costs {
    /// To ask an expression of a value, in order.
    pub(crate) const VALUE: usize = 40;
    /// To look a value up.
    pub(crate) const FIND: usize = 500;
    /// To begin a list of series.
    pub(crate) const LIST: usize = 200;
    /// To read a series of a list.
    pub(crate) const SERIES: usize = 2;
    /// To decode a run of one label's numbers.
    pub(crate) const RUN: usize = 1_500;
    /// To ask a candidate of such a run.
    pub(crate) const CHECK: usize = 5;
}

/// Values that are looked at between two looks at the cancel flag.
const CANCEL_EACH: usize = 1_024;

/// What is called with terms and their values, until it fails.
pub(super) type EachTerm<'a> = dyn FnMut(Listed, &[u8]) -> Result<(), Error> + 'a;

/// A term and its list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Listed {
    pub(super) term: u32,
    pub(super) postings: TermPostings,
}

/// A label of a block, and its number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NumberedLabel<'a> {
    pub(super) number: u32,
    pub(super) label: &'a Label,
}

/// What one matcher asks of a block.
pub(super) type Condition<'a> = lookup::Condition<'a, &'a Block>;

impl<'a> PlannedIndex<'a> for &'a Block {
    type Label = NumberedLabel<'a>;
    type Term = Listed;

    fn label(&self, name: &str) -> Option<NumberedLabel<'a>> {
        let number = self.labels.find(name)?;
        let label = self.labels.get(number)?;
        Some(NumberedLabel { number, label })
    }

    fn series_count(&self) -> usize {
        Block::series_count(self) as usize
    }

    fn values_count(&self, of: NumberedLabel<'a>) -> usize {
        of.label.values() as usize
    }

    fn next_step(&self, of: NumberedLabel<'a>, lists: &Lists<'a, Listed>) -> Step {
        let of_terms = |terms: &[Listed]| terms.iter().map(|t| t.postings.series as usize).sum();
        let series_max = match lists {
            Lists::Terms(terms) => of_terms(terms),
            _ => of.label.present.series as usize,
        };
        let nanos = match lists {
            Lists::Presence => costs::LIST + series_max * costs::SERIES,
            Lists::Terms(terms) => terms.len() * costs::LIST + series_max * costs::SERIES,
            Lists::Values(values) => values.len() * costs::FIND,
            Lists::Expression { regex, wants_match } => {
                self.reach(of.label, regex, *wants_match).len() * costs::VALUE
            }
        };
        Step { nanos, series_max }
    }

    fn find_terms(
        &self,
        NumberedLabel { label, .. }: NumberedLabel<'a>,
        lists: &Lists<'a, Listed>,
        cancel: &Cancel,
    ) -> Result<Vec<Listed>, Error> {
        let mut terms = Vec::new();
        match *lists {
            Lists::Presence | Lists::Terms(_) => {}
            Lists::Values(values) => {
                for (i, value) in values.iter().enumerate() {
                    if i.is_multiple_of(CANCEL_EACH) {
                        cancel.check()?;
                    }
                    terms.extend(self.find_term(label, value)?);
                }
            }
            Lists::Expression { regex, wants_match } => {
                regex.ready()?;
                let reach = self.reach(label, regex, wants_match);
                self.each_term(reach, &mut |listed, value| {
                    // A look is a load, and a pattern may take long.
                    cancel.check()?;
                    if regex.is_match(value) == wants_match {
                        terms.push(listed);
                    }
                    Ok(())
                })?;
                regex.ready()?;
            }
        }
        Ok(terms)
    }

    /// What is left is asked for a label at least.
    fn first_nanos(&self, step: Step) -> usize {
        step.nanos + asking(step.series_max)
    }

    /// They are counted out, not read.
    fn meet_nanos(&self, candidates: usize) -> usize {
        candidates * costs::SERIES
    }

    fn ask_nanos(&self, of: NumberedLabel<'a>, is_known: bool, candidates: usize) -> usize {
        let verdicts = match is_known {
            true => 0,
            false => candidates.min(of.label.values() as usize),
        };
        asking(candidates) + verdicts * costs::FIND
    }
}

/// What it takes to ask so many candidates for a label, the verdicts being known.
fn asking(candidates: usize) -> usize {
    candidates * costs::CHECK + runs(candidates) * costs::RUN
}

/// Runs of series that so many candidates lie in at most, if they lie together as they mostly do.
fn runs(candidates: usize) -> usize {
    1 + candidates / (RUN_SERIES / 8)
}

impl Block {
    /// The term of a label with a value, if there is one.
    pub(super) fn find_term(&self, label: &Label, value: &[u8]) -> Result<Option<Listed>, Error> {
        let Some(index) = self.terms.find(label, value) else {
            return Ok(None);
        };
        let (first, unit) = self.terms_unit(index)?;
        let at = |term: u32| (term.saturating_sub(first) as usize).min(unit.len());
        let found = unit.find(value, at(label.terms.start)..at(label.terms.end));
        let found = found.map_err(|e| self.malformed_unit(self.terms.units.get(index), e))?;
        let listed = found.and_then(|at| {
            let postings = unit.postings(at)?;
            let term = first + at as u32;
            Some(Listed { term, postings })
        });
        Ok(listed)
    }

    /// The terms of a label among which an expression finds those that are wanted.
    pub(super) fn reach(&self, label: &Label, regex: &Regex, wants_match: bool) -> Range<u32> {
        let prefix = regex.prefix();
        match wants_match && !prefix.is_empty() {
            true => self.terms.with_prefix(label, prefix),
            false => label.terms.clone(),
        }
    }

    /// Calls `each` with terms, their lists and their values, in order.
    pub(super) fn each_term(
        &self,
        terms: Range<u32>,
        each: &mut EachTerm<'_>,
    ) -> Result<(), Error> {
        let mut next = terms.start;
        while next < terms.end {
            let index = self.terms.units.find(next.into()).unwrap_or(0);
            let (first, unit) = self.terms_unit(index)?;
            let at = |term: u32| (term.saturating_sub(first) as usize).min(unit.len());
            let among = at(next)..at(terms.end);
            let entry = self.terms.units.get(index);
            if among.is_empty() {
                let e = Malformed("number of no term");
                return Err(self.malformed_unit(entry, e).into());
            }
            next = first + among.end as u32;
            unit.each(
                among,
                |at, value| {
                    let lacks = || self.malformed_unit(entry, Malformed("number of no term"));
                    let postings = unit.postings(at).ok_or_else(lacks)?;
                    let term = first + at as u32;
                    each(Listed { term, postings }, value)
                },
                |e| self.malformed_unit(entry, e).into(),
            )?;
        }
        Ok(())
    }
}

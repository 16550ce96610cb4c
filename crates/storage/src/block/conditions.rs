//! What matchers ask of a block: which lists of series answer them, and what that costs.
//!
//! An absent label has the empty value, so a matcher that accepts it accepts series without the
//! label, and asks for those that are in no list of the values that it turns away.

use super::labels::Label;
use super::reader::Block;
use super::terms::TermPostings;
use crate::encoding::Malformed;
use crate::index::Lists;
use firn_model::cancel::Cancel;
use firn_model::error::Error;
use firn_model::matcher::Matcher;
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

/// Values that are looked up before it is known what the others leave.
const VALUES_FIRST: usize = 64;

/// Values that are looked at between two looks at the cancel flag.
const CANCEL_EACH: usize = 1_024;

/// What is called with terms and their values, until it fails.
pub(super) type EachTerm<'a> = dyn FnMut(Listed, &[u8]) -> Result<(), Error> + 'a;

/// A term and its list.
#[derive(Clone, Copy, Debug)]
pub(super) struct Listed {
    pub(super) term: u32,
    pub(super) postings: TermPostings,
}

/// What one matcher asks for.
#[derive(Debug)]
pub(super) struct Condition<'a> {
    pub(super) matcher: &'a Matcher,
    /// The number of its label, and the label.
    pub(super) number: u32,
    pub(super) label: &'a Label,
    pub(super) lists: Lists<'a, Listed>,
    /// Whether a series must be in a list, or in none.
    pub(super) is_in: bool,
}

/// The conditions of all matchers; `None` if no series can match.
pub(super) fn conditions<'a>(
    block: &'a Block,
    matchers: &'a [Matcher],
    cancel: &Cancel,
) -> Result<Option<Vec<Condition<'a>>>, Error> {
    let mut all = Vec::with_capacity(matchers.len());
    for matcher in matchers {
        let or_absent = matcher.matches_empty();
        let number = block.labels.find(matcher.name());
        let found = number.and_then(|number| Some((number, block.labels.get(number)?)));
        let Some((number, label)) = found else {
            match or_absent {
                true => continue,
                false => return Ok(None),
            }
        };
        if matcher.matches_everything() {
            continue;
        }
        let mut condition = Condition {
            matcher,
            number,
            label,
            lists: Lists::of(matcher),
            is_in: !or_absent,
        };
        if matches!(condition.lists, Lists::Values(values) if values.len() <= VALUES_FIRST) {
            condition.look_up(block, cancel)?;
        }
        all.push(condition);
    }
    Ok(Some(all))
}

impl Condition<'_> {
    /// Whether the lists are known.
    pub(super) fn is_known(&self) -> bool {
        self.lists.are_known()
    }

    /// Series in the lists, at most.
    pub(super) fn series_max(&self) -> usize {
        match &self.lists {
            Lists::Terms(terms) => terms.iter().map(|t| t.postings.series as usize).sum(),
            _ => self.label.present.series as usize,
        }
    }

    /// What finding the lists out takes, or reading them if they are known.
    pub(super) fn nanos(&self, block: &Block) -> usize {
        match &self.lists {
            Lists::Presence => costs::LIST + self.series_max() * costs::SERIES,
            Lists::Terms(terms) => terms.len() * costs::LIST + self.series_max() * costs::SERIES,
            Lists::Values(values) => values.len() * costs::FIND,
            Lists::Expression { regex, wants_match } => {
                let reach = block.reach(self.label, regex, *wants_match);
                reach.len() * costs::VALUE
            }
        }
    }

    /// Finds the lists out.
    pub(super) fn look_up(&mut self, block: &Block, cancel: &Cancel) -> Result<(), Error> {
        let terms = match self.lists {
            Lists::Presence | Lists::Terms(_) => return Ok(()),
            Lists::Values(values) => {
                let mut terms = Vec::new();
                for (i, value) in values.iter().enumerate() {
                    if i.is_multiple_of(CANCEL_EACH) {
                        cancel.check()?;
                    }
                    terms.extend(block.find_term(self.label, value)?);
                }
                terms
            }
            Lists::Expression { regex, wants_match } => {
                regex.ready()?;
                let mut terms = Vec::new();
                let reach = block.reach(self.label, regex, wants_match);
                block.each_term(reach, &mut |listed, value| {
                    // A look is a load, and a pattern may take long.
                    cancel.check()?;
                    if regex.is_match(value) == wants_match {
                        terms.push(listed);
                    }
                    Ok(())
                })?;
                regex.ready()?;
                terms
            }
        };
        self.lists = Lists::Terms(terms);
        Ok(())
    }
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

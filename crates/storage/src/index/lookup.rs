//! Look-ups: matchers to slots, slots to label names, values and columns.
//!
//! Lists that are known whole (a term, a label) are combined first, smallest first; then membership
//! in the range's epochs; what is left are the candidates. An expression over values is either
//! worked out over the label's values, or, where fewer candidates than values are left, asked of
//! each candidate, once for every distinct value.

use super::membership::Members;
use super::planner::{Condition, Plan, plan};
use super::{Index, Label, Runs, SeriesCursor};
use firn_model::cancel::Cancel;
use firn_model::columns::LabelColumn;
use firn_model::error::Error;
use firn_model::matcher::Matcher;
use firn_model::sample::TimeRange;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// Values or series between two looks at the cancel flag: some 100 us.
const CANCEL_EACH: usize = 1_024;

impl Index {
    /// The series that match and have a sample in an epoch of `range`, ascending.
    pub(crate) fn lookup(
        &self,
        matchers: &[Matcher],
        range: TimeRange,
        cancel: &Cancel,
    ) -> Result<Runs, Error> {
        let Plan::All(mut conditions) = plan(self, matchers) else {
            return Ok(Runs::default());
        };
        // Known lists first and the smallest of them before the others; expressions last.
        conditions.sort_by_key(|c| match c {
            Condition::Value { label, .. } => (1, label.values_count()),
            known => (0, known.count(self).unwrap_or(usize::MAX)),
        });
        let limit = self.published();
        let members = self.membership.of_range(range);
        let mut found: Option<Runs> = None;
        let mut expressions = Vec::new();
        for condition in conditions {
            cancel.check()?;
            match condition {
                Condition::Value { .. } => expressions.push(condition),
                known => found = Some(self.narrow(found, &known, limit)),
            }
        }
        let candidates = found.unwrap_or_else(|| Runs::span(0, limit));
        let mut left = members.filter(&candidates);
        for expression in expressions {
            if left.is_empty() {
                break;
            }
            left = self.apply_expression(left, &expression, limit, cancel)?;
        }
        Ok(left)
    }

    fn narrow(&self, found: Option<Runs>, condition: &Condition<'_>, limit: u32) -> Runs {
        let all = || Runs::span(0, limit);
        let any_of = |terms: &[u32]| {
            let terms = terms.iter().filter_map(|id| self.term(*id));
            let mut lists: Vec<Runs> = terms.map(|t| t.postings.read(limit)).collect();
            match lists.len() {
                0 | 1 => lists.pop().unwrap_or_default(),
                _ => Runs::union(lists),
            }
        };
        let and = |list: Runs| match &found {
            Some(found) => found.and(&list),
            None => list,
        };
        let and_not = |list: Runs| found.clone().unwrap_or_else(all).and_not(&list);
        match condition {
            Condition::Has(terms) => and(any_of(terms)),
            Condition::Lacks(terms) => and_not(any_of(terms)),
            Condition::Present(label) => and(label.present.read(limit)),
            Condition::Absent(label) => and_not(label.present.read(limit)),
            Condition::Value { .. } => found.unwrap_or_else(all),
        }
    }

    fn apply_expression(
        &self,
        candidates: Runs,
        condition: &Condition<'_>,
        limit: u32,
        cancel: &Cancel,
    ) -> Result<Runs, Error> {
        let Condition::Value {
            matcher,
            id,
            label,
            or_absent,
        } = condition
        else {
            return Ok(candidates);
        };
        if candidates.len() <= label.values_count() {
            return self.filter_candidates(&candidates, matcher, *id, *or_absent, cancel);
        }
        // The terms to keep, or, where series without the label match too, those to leave out.
        let mut lists = Vec::new();
        for (i, term) in label.values.ids().into_iter().enumerate() {
            if i.is_multiple_of(CANCEL_EACH) {
                cancel.check()?;
            }
            if let Some(term) = self.term(term)
                && matcher.matches(&term.value) != *or_absent
            {
                lists.push(term.postings.read(limit));
            }
        }
        let listed = Runs::union(lists);
        Ok(if *or_absent {
            candidates.and_not(&listed)
        } else {
            candidates.and(&listed)
        })
    }

    fn filter_candidates(
        &self,
        candidates: &Runs,
        matcher: &Matcher,
        label: u32,
        or_absent: bool,
        cancel: &Cancel,
    ) -> Result<Runs, Error> {
        let mut cursor = SeriesCursor::new(self);
        let mut verdicts: HashMap<u32, bool> = HashMap::new();
        let mut seen = 0usize;
        candidates.filter(|slot| {
            if seen.is_multiple_of(CANCEL_EACH) {
                cancel.check()?;
            }
            seen += 1;
            let Some(term) = cursor.term_of(slot, label) else {
                return Ok(or_absent);
            };
            Ok(*verdicts
                .entry(term)
                .or_insert_with(|| self.term(term).is_some_and(|t| matcher.matches(&t.value))))
        })
    }

    /// The names of labels on the series that match, sorted.
    pub(crate) fn label_names(
        &self,
        matchers: &[Matcher],
        range: TimeRange,
        cancel: &Cancel,
    ) -> Result<Vec<String>, Error> {
        let mut names = BTreeSet::new();
        if matchers.is_empty() {
            let (limit, members) = (self.published(), self.membership.of_range(range));
            for (_, label) in self.all_labels() {
                cancel.check()?;
                if label.present.any(limit, |run| members.any(run)) {
                    names.insert(label.name.to_string());
                }
            }
        } else {
            let mut seen = BTreeSet::new();
            let mut cursor = SeriesCursor::new(self);
            for slot in self.lookup(matchers, range, cancel)?.slots() {
                let terms = cursor.terms(slot).iter();
                seen.extend(terms.map(|term| self.label_of(*term)));
            }
            let name = |id: u32| self.labels.get(id).map(|l| l.name.to_string());
            names.extend(seen.into_iter().filter_map(name));
        }
        Ok(names.into_iter().collect())
    }

    /// The values of `name` on the series that match, sorted.
    pub(crate) fn label_values(
        &self,
        name: &str,
        matchers: &[Matcher],
        range: TimeRange,
        cancel: &Cancel,
    ) -> Result<Vec<Vec<u8>>, Error> {
        let Some((id, label)) = self.label(name) else {
            return Ok(Vec::new());
        };
        let terms = if matchers.is_empty() {
            let members = self.membership.of_range(range);
            self.terms_with_member(label, &members, cancel)?
        } else {
            let mut cursor = SeriesCursor::new(self);
            let slots = self.lookup(matchers, range, cancel)?;
            let terms: BTreeSet<u32> = slots
                .slots()
                .filter_map(|slot| cursor.term_of(slot, id))
                .collect();
            terms.into_iter().collect()
        };
        let mut values: Vec<Vec<u8>> = terms
            .into_iter()
            .filter_map(|term| Some(self.term(term)?.value.to_vec()))
            .collect();
        values.sort_unstable();
        Ok(values)
    }

    fn terms_with_member(
        &self,
        label: &Label,
        members: &Members,
        cancel: &Cancel,
    ) -> Result<Vec<u32>, Error> {
        let limit = self.published();
        let mut terms = label.values.ids();
        let mut seen = 0usize;
        let mut canceled = Ok(());
        terms.retain(|id| {
            if seen.is_multiple_of(CANCEL_EACH) && canceled.is_ok() {
                canceled = cancel.check();
            }
            seen += 1;
            canceled.is_ok()
                && self
                    .term(*id)
                    .is_some_and(|t| t.postings.any(limit, |run| members.any(run)))
        });
        canceled.map(|()| terms)
    }

    /// One label of many series.
    pub(crate) fn label_column(&self, name: &str, slots: &[u32]) -> LabelColumn {
        let mut column = LabelColumn {
            ids: Vec::with_capacity(slots.len()),
            values: Vec::new(),
        };
        let label = self.label(name).map(|(id, _)| id);
        let mut numbers: HashMap<Option<u32>, u32> = HashMap::new();
        let mut cursor = SeriesCursor::new(self);
        let mut before = None;
        for slot in slots {
            let term = label.and_then(|label| cursor.term_of(*slot, label));
            // Neighbours in birth order mostly share the value.
            let id = match before {
                Some((same, id)) if same == term => id,
                _ => *numbers.entry(term).or_insert_with(|| {
                    column.values.push(self.term_value(term));
                    column.values.len() as u32 - 1
                }),
            };
            before = Some((term, id));
            column.ids.push(id);
        }
        column
    }

    fn term_value(&self, term: Option<u32>) -> Arc<[u8]> {
        match term.and_then(|id| self.term(id)) {
            Some(term) => (*term.value).into(),
            None => Arc::new([]),
        }
    }
}

impl Label {
    fn values_count(&self) -> usize {
        self.distinct.load(std::sync::atomic::Ordering::Relaxed) as usize
    }
}

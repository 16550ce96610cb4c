//! Sorted lists of the values of a label, for expressions: made when a label with many values is
//! first asked for, and kept.
//!
//! Values lie scattered in memory, and reading a million of them costs a cache miss each. So they
//! are copied into lists in order, one behind the other, a share with each look-up so that none
//! takes long. Later values are sorted once they are many, and lists of like length are joined, so
//! that a value is copied a logarithmic number of times; until then they are read where they lie.
//! No reader waits for a list: while one makes it, the others read the values where they lie.
//!
//! Invariant: a term that was there before a reader began is in one list or has a number behind all
//! that were put in order. Values that were removed may be in a list still; their terms have no
//! postings. Where a quarter is gone, the lists are made anew when they are asked, and where more
//! than half is, they go.

use super::sorted_values::{Question, SortedValues};
use super::terms::{Label, Terms};
use crate::ids::TermId;
use crate::sync::atomic::Ordering;
use crate::sync::{Mutex, MutexGuard};
use arc_swap::ArcSwapOption;
use firn_model::cancel::Cancel;
use firn_model::error::Error;
use firn_model::regex::Regex;
use std::sync::{Arc, TryLockError};

/// Values behind the lists that are put in order: fewer are looked at where they are in less time
/// than that takes.
const SORTED_MIN: usize = 256;

/// Values that one look-up puts in order, some 3 MB of them: what the processor's cache holds, and
/// less work than looking at a million where they are.
const SORTED_MAX: usize = 1 << 16;

/// The lists of a label.
#[derive(Debug, Default)]
pub(super) struct Dictionary {
    lists: ArcSwapOption<Lists>,
    /// Held to make lists.
    making: Mutex<()>,
}

#[derive(Clone, Debug, Default)]
struct Lists {
    lists: Vec<Arc<SortedValues>>,
    /// Terms of the label below this are in the lists.
    terms_end: u32,
}

impl Lists {
    fn len(&self) -> usize {
        self.lists.iter().map(|list| list.len()).sum()
    }

    /// Adds a list, and joins those at the end that are not longer than what follows them.
    fn push(&mut self, list: SortedValues, terms_end: u32) {
        self.terms_end = terms_end;
        self.lists.push(Arc::new(list));
        while let [.., before, last] = self.lists.as_slice()
            && before.len() <= last.len()
        {
            let joined = before.join(last);
            self.lists.truncate(self.lists.len() - 2);
            self.lists.push(Arc::new(joined));
        }
    }
}

impl Dictionary {
    /// Values that an expression must be asked of, in order and where they are, with `distinct`
    /// values in all: those that begin as all do that match, and the others where they are wanted.
    pub(super) fn in_reach(
        &self,
        regex: &Regex,
        wants_match: bool,
        distinct: usize,
    ) -> (usize, usize) {
        let lists = self.lists.load();
        let Some(lists) = &*lists else {
            return (0, distinct);
        };
        let in_order = match wants_match {
            true => lists.lists.iter().map(|l| l.count_in_reach(regex)).sum(),
            false => lists.len(),
        };
        (in_order, distinct.saturating_sub(lists.len()))
    }

    /// Forgets the lists if of their values, of which `distinct` are left, more than half are gone.
    pub(super) fn forget_if_gone(&self, distinct: usize) {
        let lists = self.lists.load();
        let is_gone = |lists: &Arc<Lists>| lists.len() > SORTED_MIN.max(distinct * 2);
        if lists.as_ref().is_some_and(is_gone) {
            self.lists.store(None);
        }
    }

    /// Bytes of memory behind the struct.
    pub(super) fn memory_bytes(&self) -> usize {
        let lists = self.lists.load();
        let bytes = |lists: &Arc<Lists>| lists.lists.iter().map(|list| list.memory_bytes()).sum();
        lists.as_ref().map_or(0, bytes)
    }
}

impl Terms {
    /// The terms of a label whose values match, or do not unless `wants_match`, ascending; and how
    /// many values were looked at.
    pub(super) fn terms_by_expression(
        &self,
        label: &Label,
        regex: &Regex,
        wants_match: bool,
        cancel: &Cancel,
    ) -> Result<(Vec<TermId>, usize), Error> {
        let (lists, behind) = self.values_in_order(label, cancel)?;
        let question = Question::new(regex, wants_match, lists.len());
        let mut terms = Vec::new();
        let mut looked_at = behind.len();
        for list in &lists.lists {
            looked_at += list.ask(&question, &mut terms, cancel)?;
        }
        for id in behind {
            // A look is a load, and a pattern may take long.
            cancel.check()?;
            let is_wanted = self.with_term(id, |t| question.wants(&t.value));
            terms.extend((is_wanted == Some(true)).then_some(id));
        }
        terms.sort_unstable();
        Ok((terms, looked_at))
    }

    /// The lists of a label, and the terms that are in none, ascending.
    fn values_in_order(
        &self,
        label: &Label,
        cancel: &Cancel,
    ) -> Result<(Arc<Lists>, Vec<TermId>), Error> {
        let lists = label.dictionary.lists.load_full().unwrap_or_default();
        let behind = self.terms_from(lists.terms_end, label);
        let gone = (lists.len() + behind.len()).saturating_sub(label.values_count());
        let is_stale = gone > SORTED_MIN.max(lists.len() / 4);
        if behind.len() < SORTED_MIN && !is_stale {
            return Ok((lists, behind));
        }
        let Some(_making) = try_lock(&label.dictionary.making) else {
            return Ok((lists, behind));
        };
        // Another reader may have made some since.
        let mut lists = match is_stale {
            true => Lists::default(),
            false => {
                let made = label.dictionary.lists.load();
                made.as_deref().cloned().unwrap_or_default()
            }
        };
        let mut share = self.terms_from(lists.terms_end, label);
        let rest = share.split_off(share.len().min(SORTED_MAX));
        cancel.check()?;
        if !share.is_empty() {
            let (list, end) = self.sorted(&share);
            lists.push(list, end);
        }
        let lists = Arc::new(lists);
        label.dictionary.lists.store(Some(lists.clone()));
        Ok((lists, rest))
    }

    fn sorted(&self, ids: &[TermId]) -> (SortedValues, u32) {
        let mut arena = Vec::new();
        let mut values = Vec::with_capacity(ids.len());
        for id in ids {
            self.with_term(*id, |term| {
                let start = arena.len();
                arena.extend_from_slice(&term.value);
                values.push((start..arena.len(), *id));
            });
        }
        let end = ids.last().map_or(0, |id| id.0 + 1);
        (SortedValues::sort(&arena, &values), end)
    }

    /// The terms of a label with this number or a larger one, ascending.
    fn terms_from(&self, first: u32, label: &Label) -> Vec<TermId> {
        // Terms that are created after this have no series that the reader may see.
        let end = self.term_count.load(Ordering::Acquire);
        let is_of = |term: &TermId| self.label_of(*term) == label.id;
        // The label's table has some two cells a value.
        if ((end - first) as usize) < label.values_count() * 2 {
            return (first..end).map(TermId).filter(is_of).collect();
        }
        let mut terms: Vec<TermId> = label.terms().collect();
        terms.retain(|term| (first..end).contains(&term.0));
        terms.sort_unstable();
        terms
    }
}

/// The lock, unless another thread holds it.
fn try_lock(lock: &Mutex<()>) -> Option<MutexGuard<'_, ()>> {
    match lock.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

//! Sorted lists of the values of a label, for regular expressions. Created by the first lookup of a
//! label with many values, then kept.
//!
//! The values of a label are scattered in memory, and reading a million of them costs a cache miss
//! each. They are therefore copied into sorted, contiguous lists. Each lookup copies a limited
//! number of values, so that none of them takes long. Newer values are sorted once there are many
//! of them, and lists of similar length are merged, so that a value is copied a logarithmic number
//! of times. Values that are in no list yet are read in place. No reader waits for a list: while
//! one reader builds it, the others read the values in place.
//!
//! Invariant: a term that existed before a reader began is in exactly one list, or its number is
//! higher than those of all listed terms. Removed values may remain in a list; their terms have no
//! postings. If a quarter of the values is removed, the next lookup rebuilds the lists; if more
//! than half is removed, the lists are dropped.

use super::sorted_values::{SortedValues, ValueRegexMatcher};
use super::terms::{IndexTerms, IndexedLabel};
use crate::ids::TermId;
use crate::sync::atomic::Ordering;
use crate::sync::{Mutex, MutexGuard};
use arc_swap::ArcSwapOption;
use firn_model::cancel::CancelToken;
use firn_model::error::Error;
use firn_model::regex::Regex;
use std::sync::{Arc, TryLockError};

/// Minimum number of unlisted values to sort. Reading fewer in place is faster than sorting them.
const SORTED_MIN: usize = 256;

/// Maximum number of values that one lookup sorts, about 3 MB: this fits the processor's cache, and
/// takes less time than reading a million values in place.
const SORTED_MAX: usize = 1 << 16;

/// The sorted lists of the values of one label. Readers load the current lists without a lock.
#[derive(Debug, Default)]
pub(super) struct LabelValueDictionary {
    lists: ArcSwapOption<SortedValueLists>,
    /// Held while lists are built.
    making: Mutex<()>,
}

/// An immutable set of sorted lists, replaced as a whole.
#[derive(Clone, Debug, Default)]
struct SortedValueLists {
    lists: Vec<Arc<SortedValues>>,
    /// Terms of the label below this number are in the lists.
    terms_end: u32,
}

impl SortedValueLists {
    fn len(&self) -> usize {
        self.lists.iter().map(|list| list.len()).sum()
    }

    /// Adds a list, and merges the last lists while one is not longer than its successor.
    fn push(&mut self, list: SortedValues, terms_end: u32) {
        self.terms_end = terms_end;
        self.lists.push(Arc::new(list));
        while let [.., before, last] = self.lists.as_slice()
            && before.len() <= last.len()
        {
            let joined = before.merge(last);
            self.lists.truncate(self.lists.len() - 2);
            self.lists.push(Arc::new(joined));
        }
    }
}

impl LabelValueDictionary {
    /// Returns the number of values that an expression must be matched against, in the lists and in
    /// place. `distinct` is the number of values of the label. Only values with the prefix of the
    /// expression count in the lists, or all if non-matching values are wanted.
    pub(super) fn count_regex_candidates(
        &self,
        regex: &Regex,
        wants_match: bool,
        distinct: usize,
    ) -> (usize, usize) {
        let lists = self.lists.load();
        let Some(lists) = &*lists else {
            return (0, distinct);
        };
        let in_order = if wants_match {
            lists
                .lists
                .iter()
                .map(|l| l.count_regex_candidates(regex))
                .sum()
        } else {
            lists.len()
        };
        (in_order, distinct.saturating_sub(lists.len()))
    }

    /// Drops the lists if more than half of their values are removed. `distinct` is the number of
    /// values that the label still has.
    pub(super) fn drop_if_outdated(&self, distinct: usize) {
        let lists = self.lists.load();
        let is_gone = |lists: &Arc<SortedValueLists>| lists.len() > SORTED_MIN.max(distinct * 2);
        if lists.as_ref().is_some_and(is_gone) {
            self.lists.store(None);
        }
    }

    /// Returns the memory of the lists in bytes, without the struct itself.
    pub(super) fn memory_bytes(&self) -> usize {
        let lists = self.lists.load();
        let bytes = |lists: &Arc<SortedValueLists>| {
            lists.lists.iter().map(|list| list.memory_bytes()).sum()
        };
        lists.as_ref().map_or(0, bytes)
    }
}

impl IndexTerms {
    /// Returns the terms of a label whose values match the expression, or do not match it if
    /// `wants_match` is false, in ascending order; and the number of values that were read.
    pub(super) fn find_terms_by_regex(
        &self,
        label: &IndexedLabel,
        regex: &Regex,
        wants_match: bool,
        cancel: &CancelToken,
    ) -> Result<(Vec<TermId>, usize), Error> {
        let (lists, behind) = self.load_sorted_values(label, cancel)?;
        let question = ValueRegexMatcher::new(regex, wants_match, lists.len());
        let mut terms = Vec::new();
        let mut looked_at = behind.len();
        for list in &lists.lists {
            looked_at += list.match_values(&question, &mut terms, cancel)?;
        }
        for id in behind {
            // Reading a value is a cache miss, and a pattern may take long.
            cancel.check()?;
            let is_wanted = self.with_term(id, |t| question.is_wanted(&t.value));
            terms.extend((is_wanted == Some(true)).then_some(id));
        }
        terms.sort_unstable();
        Ok((terms, looked_at))
    }

    /// Returns the lists of a label, and the terms that are in no list in ascending order. Extends
    /// or rebuilds the lists if necessary.
    fn load_sorted_values(
        &self,
        label: &IndexedLabel,
        cancel: &CancelToken,
    ) -> Result<(Arc<SortedValueLists>, Vec<TermId>), Error> {
        let lists = label.dictionary.lists.load_full().unwrap_or_default();
        let behind = self.list_terms_from(lists.terms_end, label);
        let gone = (lists.len() + behind.len()).saturating_sub(label.values_count());
        let is_stale = gone > SORTED_MIN.max(lists.len() / 4);
        if behind.len() < SORTED_MIN && !is_stale {
            return Ok((lists, behind));
        }
        let Some(_making) = try_lock(&label.dictionary.making) else {
            return Ok((lists, behind));
        };
        // Another reader may have built some in the meantime.
        let mut lists = if is_stale {
            SortedValueLists::default()
        } else {
            let made = label.dictionary.lists.load();
            made.as_deref().cloned().unwrap_or_default()
        };
        let mut share = self.list_terms_from(lists.terms_end, label);
        let rest = share.split_off(share.len().min(SORTED_MAX));
        cancel.check()?;
        if !share.is_empty() {
            let (list, end) = self.sort_terms(&share);
            lists.push(list, end);
        }
        let lists = Arc::new(lists);
        label.dictionary.lists.store(Some(lists.clone()));
        Ok((lists, rest))
    }

    /// Sorts the values of terms into a list. Returns it with the number after the last term.
    fn sort_terms(&self, ids: &[TermId]) -> (SortedValues, u32) {
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
        (SortedValues::from_unsorted(&arena, &values), end)
    }

    /// Returns the terms of a label with the number `first` or a higher one, in ascending order.
    fn list_terms_from(&self, first: u32, label: &IndexedLabel) -> Vec<TermId> {
        // Terms created later have no series that this reader may see.
        let end = self.term_count.load(Ordering::Acquire);
        let is_of = |term: &TermId| self.label_of_term(*term) == label.id;
        // The table of the label has about two cells per value.
        if ((end - first) as usize) < label.values_count() * 2 {
            return (first..end).map(TermId).filter(is_of).collect();
        }
        let mut terms: Vec<TermId> = label.terms().collect();
        terms.retain(|term| (first..end).contains(&term.0));
        terms.sort_unstable();
        terms
    }
}

/// Returns the guard of the lock, or `None` if another thread holds it.
fn try_lock(lock: &Mutex<()>) -> Option<MutexGuard<'_, ()>> {
    match lock.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

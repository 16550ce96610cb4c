//! Cache of lookup results: a dashboard repeats the same lookups every few seconds.
//!
//! Whether a series matches never changes: its labels are constant, and its slot is never reused. A
//! result therefore holds for all slots below its limit as long as the process runs, and the next
//! lookup only searches the series created since. A removed series has no sample in any epoch, so
//! lookups of series with a sample leave it out. Results are never invalidated.
//!
//! ```text
//! hash of the matchers -> one of the cells -> matchers | limit | slots below it that match
//! ```
//!
//! A cell contains one result; a new one replaces it. Invariant: all results together take no more
//! than a limit, above which cells are cleared in turn.

use super::runs::{SlotRun, SlotRunSet};
use super::terms::IndexTerms;
use crate::sync::atomic::{AtomicUsize, Ordering};
use arc_swap::ArcSwapOption;
use firn_model::matcher::{MatchOp, Matcher};
use std::sync::Arc;

/// Maximum number of cached results: some hundred dashboards of ten selectors.
const CELLS: usize = 4_096;

/// Maximum memory of all results, in bytes: 1 KB per cell, twice the size of a result of forty
/// scattered series with its matchers, and a thousandth of the memory of a small server.
const BYTES_MAX: usize = 4 << 20;

/// Maximum memory of one result, in bytes, so that no result displaces many others. Allows
/// thousands of values in a matcher, or some ten thousand runs.
const ANSWER_BYTES_MAX: usize = 256 << 10;

/// Bytes at either end of a matcher's value that are hashed. Longer values only collide, because
/// they are compared in full.
const HASHED_BYTES: usize = 32;

/// The cache, shared by all lookups of an index: cells that hold one result each.
#[derive(Debug)]
pub(super) struct MatcherCache {
    cells: Box<[ArcSwapOption<CachedLookup>]>,
    bytes: AtomicUsize,
    /// The cell that is cleared next.
    next: AtomicUsize,
}

impl Default for MatcherCache {
    fn default() -> Self {
        Self {
            cells: (0..CELLS).map(|_| ArcSwapOption::empty()).collect(),
            bytes: AtomicUsize::new(0),
            next: AtomicUsize::new(0),
        }
    }
}

/// A cached result: the matchers of a lookup and the series that satisfy them.
#[derive(Debug)]
pub(super) struct CachedLookup {
    matchers: Box<[MatcherKey]>,
    /// Slots from here on were not searched.
    pub(super) limit: u32,
    /// The matching slots below the limit; may include removed ones.
    pub(super) found: SlotRunSet,
}

/// A matcher in source form, without its compiled expression.
#[derive(Debug)]
struct MatcherKey {
    name: Box<str>,
    op: MatchOp,
    value: Arc<[u8]>,
}

impl MatcherKey {
    fn is_equal_to(&self, matcher: &Matcher) -> bool {
        let (own, value) = (&self.value, matcher.shared_value());
        self.op == matcher.op()
            && (Arc::ptr_eq(own, value) || own == value)
            && *self.name == *matcher.name()
    }
}

impl CachedLookup {
    fn is_for_matchers(&self, matchers: &[Matcher]) -> bool {
        let pairs = || self.matchers.iter().zip(matchers);
        self.matchers.len() == matchers.len() && pairs().all(|(asked, m)| asked.is_equal_to(m))
    }

    fn memory_bytes(&self) -> usize {
        let matchers = self.matchers.iter();
        let texts: usize = matchers.map(|m| m.name.len() + m.value.len()).sum();
        let found = size_of_val(self.found.as_slice());
        size_of::<Self>() + size_of_val(&self.matchers[..]) + texts + found
    }
}

impl MatcherCache {
    /// Returns the cached result for `matchers`, if there is one.
    pub(super) fn get(
        &self,
        index: &IndexTerms,
        matchers: &[Matcher],
    ) -> Option<Arc<CachedLookup>> {
        let answer = self.cells[cell_index(index, matchers)].load_full()?;
        answer.is_for_matchers(matchers).then_some(answer)
    }

    /// Caches a result unless it is too large. `found` are all matching slots below `limit`.
    pub(super) fn insert(
        &self,
        index: &IndexTerms,
        matchers: &[Matcher],
        limit: u32,
        found: &SlotRunSet,
    ) {
        let asked = |m: &Matcher| MatcherKey {
            name: m.name().into(),
            op: m.op(),
            value: m.shared_value().clone(),
        };
        let answer = CachedLookup {
            matchers: matchers.iter().map(asked).collect(),
            limit,
            found: found.clone(),
        };
        let bytes = answer.memory_bytes();
        if bytes > ANSWER_BYTES_MAX {
            return;
        }
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.replace_cell(cell_index(index, matchers), Some(Arc::new(answer)));
        while self.bytes.load(Ordering::Relaxed) > BYTES_MAX {
            self.replace_cell(self.next.fetch_add(1, Ordering::Relaxed) % CELLS, None);
        }
    }

    /// Replaces the contents of a cell and updates the memory of all results.
    fn replace_cell(&self, cell: usize, answer: Option<Arc<CachedLookup>>) {
        if let Some(before) = self.cells[cell].swap(answer) {
            self.bytes
                .fetch_sub(before.memory_bytes(), Ordering::Relaxed);
        }
    }

    /// Returns the memory of the cache in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        size_of_val(&self.cells[..]) + self.bytes.load(Ordering::Relaxed)
    }
}

/// Returns the cell for a list of matchers, by a hash of their names, operators and the ends of
/// their values.
fn cell_index(index: &IndexTerms, matchers: &[Matcher]) -> usize {
    let mut bytes = Vec::with_capacity(256);
    for matcher in matchers {
        let value = matcher.value();
        bytes.extend_from_slice(matcher.name().as_bytes());
        bytes.extend_from_slice(matcher.op().as_str().as_bytes());
        bytes.extend_from_slice(&value.len().to_le_bytes());
        bytes.extend_from_slice(&value[..value.len().min(HASHED_BYTES)]);
        bytes.extend_from_slice(&value[value.len().saturating_sub(HASHED_BYTES)..]);
    }
    index.keys.hash(&bytes) as usize % CELLS
}

/// Returns the union of two sets, where all slots of `later` are above those of `found`.
pub(super) fn join_sets(found: &SlotRunSet, later: &SlotRunSet) -> SlotRunSet {
    let mut all = found.clone();
    let runs: &[SlotRun] = later.as_slice();
    runs.iter().for_each(|run| all.push(*run));
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::Index;
    use firn_model::env::sim::SimRng;
    use firn_model::fingerprint::HashKeys;

    fn matcher(value: &str) -> Matcher {
        Matcher::new("pod", MatchOp::NotEqual, value.as_bytes()).unwrap()
    }

    /// Returns `count` runs of one slot each.
    fn runs(count: u32) -> SlotRunSet {
        let run = |i| SlotRun {
            start: i * 2,
            end: i * 2 + 1,
        };
        SlotRunSet::from_runs((0..count).map(run).collect())
    }

    #[test]
    fn answers_to_more_than_fits_give_way_and_are_never_another_questions() {
        let index = Index::new(Arc::new(HashKeys::new(&SimRng::new(3))));
        let answers = &index.matcher_cache;
        let asked: Vec<Matcher> = (0..9_000).map(|i| matcher(&i.to_string())).collect();
        let count = |i: usize| {
            if i.is_multiple_of(100) {
                12_000
            } else {
                i as u32 % 70
            }
        };
        for (i, one) in asked.iter().enumerate() {
            let one = std::slice::from_ref(one);
            answers.insert(&index.dictionary, one, i as u32, &runs(count(i)));
            let kept = answers
                .get(&index.dictionary, one)
                .expect("it was kept just now");
            assert_eq!((kept.limit, &kept.found), (i as u32, &runs(count(i))));
            let bytes = answers.memory_bytes() - size_of_val(&answers.cells[..]);
            assert!(bytes <= BYTES_MAX, "{bytes} after {i}");
        }
        let mut kept = 0;
        for i in 0..asked.len() {
            // A different matcher with the same text.
            let again = [matcher(&i.to_string())];
            if let Some(answer) = answers.get(&index.dictionary, &again) {
                assert_eq!((answer.limit, &answer.found), (i as u32, &runs(count(i))));
                kept += 1;
            }
        }
        assert!(kept > CELLS / 4, "{kept}");
        (0..CELLS).for_each(|cell| answers.replace_cell(cell, None));
        assert_eq!(answers.bytes.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn answer_that_is_too_large_is_not_kept() {
        let index = Index::new(Arc::new(HashKeys::new(&SimRng::new(4))));
        let long = "x".repeat(ANSWER_BYTES_MAX);
        for (value, count, is_kept) in [
            ("a", 10, true),
            ("b", 40_000, false),
            (long.as_str(), 1, false),
        ] {
            let asked = [matcher(value)];
            index
                .matcher_cache
                .insert(&index.dictionary, &asked, 9, &runs(count));
            assert_eq!(
                index.matcher_cache.get(&index.dictionary, &asked).is_some(),
                is_kept,
                "{count}"
            );
        }
    }

    #[test]
    fn answer_to_matchers_that_differ_in_the_middle_is_not_taken() {
        let index = Index::new(Arc::new(HashKeys::new(&SimRng::new(5))));
        let value = |middle: &str| format!("{}{middle}{}", "a".repeat(40), "b".repeat(40));
        let [one, other] = ["1", "2"].map(|middle| [matcher(&value(middle))]);
        index
            .matcher_cache
            .insert(&index.dictionary, &one, 9, &runs(3));
        assert!(index.matcher_cache.get(&index.dictionary, &other).is_none());
        let two = [one[0].clone(), other[0].clone()];
        assert!(index.matcher_cache.get(&index.dictionary, &two).is_none());
        assert!(index.matcher_cache.get(&index.dictionary, &[]).is_none());
        assert!(index.matcher_cache.get(&index.dictionary, &one).is_some());
    }
}

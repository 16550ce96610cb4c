//! The entries of the results cache, by key, and the order in which they are evicted.

use super::steps::CachedSteps;
use firn_model::budget::Reservation;
use firn_model::store::StoreVersion;
use firn_model::tenant::TenantId;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Memory of an entry in the maps, in bytes.
const PLACE_BYTES: usize = 256;

/// Everything that a result depends on except samples and range: only results of the same key are
/// joined.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct CacheKey {
    pub(super) tenant: TenantId,
    /// The part of the store that the credentials may see.
    pub(super) part: String,
    pub(super) text: String,
    pub(super) step_ms: i64,
    /// The first step modulo the step width.
    pub(super) phase: i64,
    pub(super) lookback_ms: i64,
    pub(super) default_subquery_step_ms: i64,
}

/// A result with the version of the samples from which it was computed.
#[derive(Debug)]
pub(super) struct CachedResult {
    pub(super) version: StoreVersion,
    pub(super) steps: CachedSteps,
    pub(super) warnings: Vec<String>,
    pub(super) infos: Vec<String>,
}

#[derive(Debug)]
struct CacheEntry {
    result: Arc<CachedResult>,
    /// The place of the entry in the order of use.
    used: u64,
    memory: Reservation,
}

/// The entries. The least recently used one is evicted first.
#[derive(Debug, Default)]
pub(super) struct CacheEntries {
    by_key: HashMap<Arc<CacheKey>, CacheEntry>,
    by_use: BTreeMap<u64, Arc<CacheKey>>,
    uses: u64,
    bytes: usize,
}

impl CacheKey {
    /// Returns the memory of the key in bytes.
    pub(super) fn bytes(&self) -> usize {
        let texts = self.tenant.as_str().len() + self.part.len() + self.text.len();
        size_of::<Self>() + texts + PLACE_BYTES
    }
}

impl CachedResult {
    /// Returns the memory of the result in bytes.
    pub(super) fn bytes(&self) -> usize {
        let texts = self.warnings.iter().chain(&self.infos);
        let texts: usize = texts.map(|text| text.len() + size_of::<String>()).sum();
        size_of::<Self>() + self.version.part.len() + texts + self.steps.bytes()
    }
}

impl CacheEntries {
    /// Returns the result of a key, and marks it as used.
    pub(super) fn get(&mut self, key: &Arc<CacheKey>) -> Option<Arc<CachedResult>> {
        let entry = self.by_key.get_mut(key)?;
        self.uses += 1;
        self.by_use.remove(&entry.used);
        self.by_use.insert(self.uses, key.clone());
        entry.used = self.uses;
        Some(entry.result.clone())
    }

    /// Adds a result whose key has none.
    pub(super) fn insert(
        &mut self,
        key: Arc<CacheKey>,
        result: Arc<CachedResult>,
        memory: Reservation,
    ) {
        self.uses += 1;
        self.bytes += memory.bytes();
        self.by_use.insert(self.uses, key.clone());
        let used = self.uses;
        let entry = CacheEntry {
            result,
            used,
            memory,
        };
        let before = self.by_key.insert(key, entry);
        assert!(before.is_none(), "two results of one key");
    }

    /// Removes the result of a key, if there is one.
    pub(super) fn remove(&mut self, key: &CacheKey) {
        if let Some(entry) = self.by_key.remove(key) {
            self.by_use.remove(&entry.used);
            self.bytes -= entry.memory.bytes();
        }
    }

    /// Removes the least recently used result. Returns false if there is none.
    pub(super) fn evict_oldest(&mut self) -> bool {
        let Some((_, key)) = self.by_use.first_key_value() else {
            return false;
        };
        let key = key.clone();
        self.remove(&key);
        true
    }

    /// Removes results, the least recently used first, until the others take at most `bytes_max`
    /// bytes. Returns their number.
    pub(super) fn shrink_to(&mut self, bytes_max: usize) -> usize {
        let mut evicted = 0;
        while self.bytes > bytes_max && self.evict_oldest() {
            evicted += 1;
        }
        evicted
    }

    /// Returns the number of results and their memory in bytes.
    pub(super) fn size(&self) -> (usize, usize) {
        (self.by_key.len(), self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results_cache::steps::QuerySteps;
    use firn_model::budget::Budget;

    fn key(text: &str) -> Arc<CacheKey> {
        Arc::new(CacheKey {
            tenant: TenantId::anonymous(),
            part: String::new(),
            text: text.to_owned(),
            step_ms: 1,
            phase: 0,
            lookback_ms: 1,
            default_subquery_step_ms: 1,
        })
    }

    fn result() -> Arc<CachedResult> {
        let steps = QuerySteps::from_bounds(0, 9, 1).unwrap();
        Arc::new(CachedResult {
            version: StoreVersion::default(),
            steps: CachedSteps::from_matrix(&[], steps).unwrap(),
            warnings: Vec::new(),
            infos: Vec::new(),
        })
    }

    #[test]
    fn entries_least_recently_used_are_evicted_first_and_release_their_memory() {
        let budget = Budget::new("cache", 1_000);
        let mut entries = CacheEntries::default();
        for text in ["a", "b", "c"] {
            entries.insert(key(text), result(), budget.reserve(100).unwrap());
        }
        assert!(entries.get(&key("a")).is_some());
        assert_eq!(entries.size(), (3, 300));
        assert_eq!(entries.shrink_to(250), 1);
        assert!(entries.get(&key("b")).is_none());
        assert_eq!((entries.size(), budget.used_bytes()), ((2, 200), 200));
        entries.remove(&key("c"));
        assert_eq!((entries.size(), budget.used_bytes()), ((1, 100), 100));
        assert!(entries.evict_oldest() && !entries.evict_oldest());
        assert_eq!((entries.size(), budget.used_bytes()), ((0, 0), 0));
    }
}

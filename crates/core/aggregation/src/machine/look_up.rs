//! Finds the sources among the series of a batch, by the hash of their key and by the metric name
//! in it. Labels are decoded only for unknown series.
//!
//! ```text
//! hash -> equals that of the source that followed the previous one last time -> known
//!      -> metric name in no rule ---------------------------------------------> passes
//!      -> in the table of sources, or in the cache of passing series ---------> known
//!      -> unknown: labels are decoded and matched against the rules
//! ```
//!
//! Senders write their series in a stable order, so that nearly all sources are found by the first
//! check, whose memory accesses are sequential; those of the table are random. The batch contains
//! the hashes if the store uses the same keys as the state; otherwise they are computed here, after
//! the check of the name.

use super::AggregationState;
use super::recent::RecentSeriesMap;
use super::sources::{SourceRef, WARM, follower, is_first, prefetch_followers, set_follower};
use crate::entries::SourceEntry;
use crate::hashing::SourceHashing;
use crate::spec::AggregationSpec;
use firn_model::batch::{Batch, BatchSource};
use firn_model::error::Error;
use firn_model::fingerprint::Fingerprint;
use firn_model::labels::{LabelsRef, METRIC_NAME};
use firn_model::sample::TimestampMs;
use firn_wire::remote_write::KEY_FORMAT;
use hashbrown::HashTable;
use xxhash_rust::xxh3::xxh3_64;

/// The result of looking up a series of the batch, before its samples are added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SourceLookupResult {
    /// The series is not a source.
    Passes,
    /// The labels must be decoded.
    Unknown,
    /// The series is a source with this first entry.
    Known(SourceRef),
}

/// The tables for looking up sources, and the results for the current batch, which is processed as
/// a whole.
pub(super) struct SourceLookup {
    /// Hash function of the state, which is part of the journal.
    pub(super) hashing: SourceHashing,
    /// Result for each series of the batch.
    pub(super) found: Vec<SourceLookupResult>,
    /// Fingerprint of each series; the default value if it was not computed.
    pub(super) prints: Vec<Fingerprint>,
    /// True if the batch contained the fingerprints.
    has_prints: bool,
    /// The source that was found last, and the source that followed it in the previous batch.
    last: SourceRef,
    guess: SourceRef,
    /// Indexes of the unknown series.
    unknown: Vec<u32>,
    /// Oldest and newest timestamp in the batch.
    pub(super) oldest: TimestampMs,
    pub(super) newest: TimestampMs,
    /// Metric names of all rules; `None` if some rule selects no single name.
    names: Option<HashTable<Box<[u8]>>>,
    /// Cache of series that are not sources.
    passing: RecentSeriesMap<()>,
    /// Fingerprints of keys in other forms, with the fingerprint of the canonical key.
    aliases: RecentSeriesMap<Fingerprint>,
    /// Period of the caches in milliseconds of data time: series that are silent for one to two
    /// periods are dropped.
    remembered_ms: i64,
    /// Generation of the current configuration since the start.
    pub(super) generation: u8,
    key: Vec<u8>,
}

impl SourceLookup {
    /// Returns empty tables for the given hash function.
    pub(super) fn new(hashing: SourceHashing) -> Self {
        Self {
            hashing,
            found: Vec::new(),
            prints: Vec::new(),
            has_prints: false,
            last: SourceRef::default(),
            guess: SourceRef::default(),
            unknown: Vec::new(),
            oldest: i64::MAX,
            newest: i64::MIN,
            names: None,
            passing: RecentSeriesMap::new(),
            aliases: RecentSeriesMap::new(),
            remembered_ms: i64::MAX,
            generation: 0,
            key: Vec::new(),
        }
    }

    /// Applies other rules: collects their metric names, and marks all series to be resolved again.
    pub(super) fn apply_rules(&mut self, spec: &AggregationSpec) {
        self.generation = self.generation.wrapping_add(1);
        self.passing.clear();
        let lookbacks = spec.groups.iter().map(|group| group.lookback_ms);
        self.remembered_ms = lookbacks.max().unwrap_or(i64::MAX);
        let rules = spec.groups.iter().flat_map(|group| &*group.rules);
        let names: Option<Vec<&[u8]>> = rules.map(|rule| rule.metric_name()).collect();
        self.names = names.map(|names| {
            let mut table: HashTable<Box<[u8]>> = HashTable::new();
            for name in names {
                let hash = xxh3_64(name);
                let place = table.entry(hash, |known| **known == *name, |known| xxh3_64(known));
                place.or_insert(name.into());
            }
            table
        });
    }

    /// Returns whether no rule selects the metric name of series `i`.
    #[inline]
    fn is_passed_by_name(&self, batch: &Batch, i: usize) -> bool {
        let Some(names) = &self.names else {
            return false;
        };
        let name = match batch.key(i) {
            Some(key) => KEY_FORMAT.metric_name(key),
            None => Some(batch.series(i).labels.get(METRIC_NAME)),
        };
        name.is_some_and(|name| {
            let known = names.find(xxh3_64(name), |known| **known == *name);
            known.is_none()
        })
    }

    /// Returns the fingerprint of the canonical key of these labels.
    pub(super) fn fingerprint_of_labels(&mut self, labels: LabelsRef<'_>) -> Fingerprint {
        let mut key = std::mem::take(&mut self.key);
        key.clear();
        KEY_FORMAT.push_key(&mut key, labels);
        let print = self.hashing.fingerprint_of_key(&key);
        self.key = key;
        print
    }

    /// Caches that the series is not a source, so that its labels are not decoded again.
    pub(super) fn cache_passing_series(&mut self, print: Fingerprint) {
        self.passing.insert(print, ());
    }

    /// Advances data time to `now`, and drops cached series that have been silent as long as
    /// sources may be.
    pub(super) fn advance_time(&mut self, now: TimestampMs) {
        self.passing.advance_time(now, self.remembered_ms);
        self.aliases.advance_time(now, self.remembered_ms);
    }

    /// Caches that the key with fingerprint `print` means the labels whose canonical
    /// key has the fingerprint `of`.
    pub(super) fn cache_alias(&mut self, print: Fingerprint, of: Fingerprint) {
        self.aliases.insert(print, of);
    }

    /// Prepares the tables for the batch of `source`.
    fn begin_batch(&mut self, source: &dyn BatchSource) {
        let count = source.batch().series_count();
        (self.oldest, self.newest) = (i64::MAX, i64::MIN);
        self.found.clear();
        self.unknown.clear();
        self.prints.clear();
        let keys = self.hashing.hash_keys();
        let made = keys.and_then(|keys| source.fingerprints(keys));
        let made = made.filter(|made| made.len() == count);
        self.has_prints = made.is_some();
        match made {
            Some(made) => self.prints.extend_from_slice(made),
            None => self.prints.resize(count, Fingerprint::default()),
        }
    }

    /// Computes the fingerprint of series `i`.
    fn hash_series(&mut self, batch: &Batch, i: usize) {
        self.prints[i] = match batch.key(i) {
            Some(key) => self.hashing.fingerprint_of_key(key),
            None => self.fingerprint_of_labels(batch.series(i).labels),
        };
    }

    /// Extends the time range of the batch by the samples of series `i` up to `time_max`.
    #[inline]
    fn extend_time_range(&mut self, batch: &Batch, i: usize, time_max: TimestampMs) {
        let mut note = |time: TimestampMs| {
            if time <= time_max {
                self.oldest = self.oldest.min(time);
                self.newest = self.newest.max(time);
            }
        };
        match batch.single_float(i) {
            Some((time, _)) => note(time),
            None => {
                let samples = batch.series(i);
                samples.times.iter().copied().for_each(&mut note);
                samples
                    .histograms
                    .iter()
                    .for_each(|sample| note(sample.time));
            }
        }
    }
}

impl AggregationState {
    /// Looks up all series of `source`, and decodes the labels of unknown ones. Fails if the source
    /// does.
    pub(super) fn look_up_all(
        &mut self,
        source: &mut dyn BatchSource,
        time_max: TimestampMs,
    ) -> Result<(), Error> {
        if !source.batch().has_key_format(KEY_FORMAT) {
            let all: Vec<u32> = (0..source.batch().series_count() as u32).collect();
            source.read_labels(&all)?;
        }
        self.look_up.begin_batch(source);
        let batch = source.batch();
        for i in 0..batch.series_count() {
            if i % WARM == 0 {
                prefetch_followers(&self.lanes, self.look_up.guess);
            }
            self.look_up.extend_time_range(batch, i, time_max);
            let found = self.look_up_series(batch, i);
            self.look_up.found.push(found);
            if found == SourceLookupResult::Unknown {
                self.look_up.unknown.push(i as u32);
            }
        }
        if self.look_up.unknown.is_empty() {
            Ok(())
        } else {
            source.read_labels(&self.look_up.unknown)
        }
    }

    /// Looks up series `i`.
    #[inline]
    fn look_up_series(&mut self, batch: &Batch, i: usize) -> SourceLookupResult {
        let look_up = &mut self.look_up;
        if !look_up.has_prints {
            if look_up.is_passed_by_name(batch, i) {
                return SourceLookupResult::Passes;
            }
            look_up.hash_series(batch, i);
        }
        let guess = look_up.guess;
        if is_first(&self.lanes, guess, look_up.prints[i], look_up.generation) {
            (look_up.last, look_up.guess) = (guess, follower(&self.lanes, guess));
            return SourceLookupResult::Known(guess);
        }
        if look_up.has_prints && look_up.is_passed_by_name(batch, i) {
            return SourceLookupResult::Passes;
        }
        let found = self.find_in_tables(i);
        if let SourceLookupResult::Known(first) = found {
            set_follower(&mut self.lanes, self.look_up.last, first);
            self.look_up.last = first;
            self.look_up.guess = follower(&self.lanes, first);
        }
        found
    }

    /// Looks up series `i`, whose fingerprint is known, in the tables.
    fn find_in_tables(&mut self, i: usize) -> SourceLookupResult {
        let print = self.look_up.prints[i];
        self.find_fingerprint(print).unwrap_or_else(|| {
            let alias = self.look_up.aliases.get(print);
            let found = alias.and_then(|print| {
                self.look_up.prints[i] = print;
                self.find_fingerprint(print)
            });
            found.unwrap_or(SourceLookupResult::Unknown)
        })
    }

    /// Looks up a fingerprint in the table of sources and in the cache of passing series. Returns
    /// `None` if it is in neither, or must be resolved again.
    #[inline]
    pub(super) fn find_fingerprint(&mut self, print: Fingerprint) -> Option<SourceLookupResult> {
        let Some(first) = self.sources.find_source(&self.lanes, print) else {
            return self
                .look_up
                .passing
                .get(print)
                .map(|()| SourceLookupResult::Passes);
        };
        let (place, at) = first.lane_and_entry();
        let slot = self.lanes[place].as_ref()?;
        let entry: &SourceEntry = slot.lane.entries.get(at)?;
        if entry.generation == self.look_up.generation {
            Some(SourceLookupResult::Known(first))
        } else {
            None
        }
    }
}

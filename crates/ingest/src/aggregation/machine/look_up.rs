//! Which series of a batch are sources: by the hash of their key, and by the name that it shows.
//! Labels are read of unknown series only.
//!
//! ```text
//! hash -> that of the source which followed the one before the last time -> known
//!      -> name in no rule ------------------------------------------------> passes
//!      -> in the table of sources, or known to pass ----------------------> known
//!      -> unknown: labels are read, rules asked
//! ```
//!
//! Senders write their series in one order, so nearly all sources are found at the first of these,
//! in memory that lies in that order too; the table's lies all over. The hashes come with the batch
//! where the store has the keys of the state, and are made here behind the name where it has not.

use super::Machine;
use super::recent::Recent;
use super::sources::{Reference, WARM, follower, is_first, set_follower, warm};
use crate::aggregation::entries::Entry;
use crate::aggregation::hashing::Hashing;
use crate::aggregation::spec::AggregationSpec;
use firn_model::batch::{Batch, Source};
use firn_model::error::Error;
use firn_model::fingerprint::Fingerprint;
use firn_model::labels::{LabelsRef, METRIC_NAME};
use firn_model::sample::TimestampMs;
use firn_wire::remote_write::KEY_FORMAT;
use hashbrown::HashTable;
use xxhash_rust::xxh3::xxh3_64;

/// What is known of a series of the batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// It is no source.
    Passes,
    /// Its labels have to say.
    Unknown,
    /// It is, with this entry and perhaps others.
    Known(Reference),
}

/// What finds sources, and what it found in the batch under way.
pub(super) struct LookUp {
    /// Stored with the state.
    pub(super) hashing: Hashing,
    /// Of each series of the batch.
    pub(super) found: Vec<Found>,
    /// The hash of the key of each series, where one was made.
    pub(super) prints: Vec<Fingerprint>,
    /// Whether the hashes came with the batch.
    has_prints: bool,
    /// The newest source that was found, and the one that followed it the last time.
    last: Reference,
    guess: Reference,
    /// Numbers of the unknown series.
    unknown: Vec<u32>,
    /// The oldest and newest time in the batch.
    pub(super) oldest: TimestampMs,
    pub(super) newest: TimestampMs,
    /// The names of all sources, if all rules name theirs.
    names: Option<HashTable<Box<[u8]>>>,
    /// Series that are no source.
    passing: Recent<()>,
    /// Hashes of keys that are not written as the format does, and of those that are.
    aliases: Recent<Fingerprint>,
    /// How long a series that is no source is remembered, once or twice.
    remembered_ms: i64,
    /// The configuration in force, of those since the start.
    pub(super) generation: u8,
    key: Vec<u8>,
}

impl LookUp {
    /// Finds nothing yet.
    pub(super) fn new(hashing: Hashing) -> Self {
        Self {
            hashing,
            found: Vec::new(),
            prints: Vec::new(),
            has_prints: false,
            last: Reference::default(),
            guess: Reference::default(),
            unknown: Vec::new(),
            oldest: i64::MAX,
            newest: i64::MIN,
            names: None,
            passing: Recent::new(),
            aliases: Recent::new(),
            remembered_ms: i64::MAX,
            generation: 0,
            key: Vec::new(),
        }
    }

    /// Takes over other rules: all series are asked again.
    pub(super) fn configure(&mut self, spec: &AggregationSpec) {
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

    /// Whether no rule names the metric of series `i`.
    #[inline]
    fn passes_by_name(&self, batch: &Batch, i: usize) -> bool {
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

    /// The hash of the key that the format makes of labels.
    pub(super) fn print_of_labels(&mut self, labels: LabelsRef<'_>) -> Fingerprint {
        let mut key = std::mem::take(&mut self.key);
        key.clear();
        KEY_FORMAT.push_key(&mut key, labels);
        let print = self.hashing.print(&key);
        self.key = key;
        print
    }

    /// Remembers that the series is no source.
    pub(super) fn let_pass(&mut self, print: Fingerprint) {
        self.passing.insert(print, ());
    }

    /// Data time is `now`: forgets series that have been silent for long, as sources are.
    pub(super) fn advance(&mut self, now: TimestampMs) {
        self.passing.advance(now, self.remembered_ms);
        self.aliases.advance(now, self.remembered_ms);
    }

    /// Remembers that the key with this hash stands for the labels whose key has the other.
    pub(super) fn alias(&mut self, print: Fingerprint, of: Fingerprint) {
        self.aliases.insert(print, of);
    }

    /// Begins with `source`.
    fn begin(&mut self, source: &dyn Source) {
        let count = source.batch().series_count();
        (self.oldest, self.newest) = (i64::MAX, i64::MIN);
        self.found.clear();
        self.unknown.clear();
        self.prints.clear();
        let keys = self.hashing.keys();
        let made = keys.and_then(|keys| source.prints(keys));
        let made = made.filter(|made| made.len() == count);
        self.has_prints = made.is_some();
        match made {
            Some(made) => self.prints.extend_from_slice(made),
            None => self.prints.resize(count, Fingerprint::default()),
        }
    }

    /// Hashes the key of series `i`.
    fn hash(&mut self, batch: &Batch, i: usize) {
        self.prints[i] = match batch.key(i) {
            Some(key) => self.hashing.print(key),
            None => self.print_of_labels(batch.series(i).labels),
        };
    }

    /// Notes the times of series `i` up to `time_max`.
    #[inline]
    fn note_times(&mut self, batch: &Batch, i: usize, time_max: TimestampMs) {
        let mut note = |time: TimestampMs| {
            if time <= time_max {
                self.oldest = self.oldest.min(time);
                self.newest = self.newest.max(time);
            }
        };
        match batch.sole_float(i) {
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

impl Machine {
    /// Finds what is known of the series of `source`, and has the labels of the others read.
    pub(super) fn find_all(
        &mut self,
        source: &mut dyn Source,
        time_max: TimestampMs,
    ) -> Result<(), Error> {
        if !source.batch().has_keys_of(KEY_FORMAT) {
            let all: Vec<u32> = (0..source.batch().series_count() as u32).collect();
            source.read_labels(&all)?;
        }
        self.look_up.begin(source);
        let batch = source.batch();
        for i in 0..batch.series_count() {
            if i % WARM == 0 {
                warm(&self.lanes, self.look_up.guess);
            }
            self.look_up.note_times(batch, i, time_max);
            let found = self.find(batch, i);
            self.look_up.found.push(found);
            if found == Found::Unknown {
                self.look_up.unknown.push(i as u32);
            }
        }
        match self.look_up.unknown.is_empty() {
            true => Ok(()),
            false => source.read_labels(&self.look_up.unknown),
        }
    }

    /// What is known of series `i`.
    #[inline]
    fn find(&mut self, batch: &Batch, i: usize) -> Found {
        let look_up = &mut self.look_up;
        if !look_up.has_prints {
            if look_up.passes_by_name(batch, i) {
                return Found::Passes;
            }
            look_up.hash(batch, i);
        }
        let guess = look_up.guess;
        if is_first(&self.lanes, guess, look_up.prints[i], look_up.generation) {
            (look_up.last, look_up.guess) = (guess, follower(&self.lanes, guess));
            return Found::Known(guess);
        }
        if look_up.has_prints && look_up.passes_by_name(batch, i) {
            return Found::Passes;
        }
        let found = self.find_in_tables(i);
        if let Found::Known(first) = found {
            set_follower(&mut self.lanes, self.look_up.last, first);
            self.look_up.last = first;
            self.look_up.guess = follower(&self.lanes, first);
        }
        found
    }

    /// What is known of series `i`, whose key was hashed.
    fn find_in_tables(&mut self, i: usize) -> Found {
        let print = self.look_up.prints[i];
        self.find_print(print).unwrap_or_else(|| {
            let alias = self.look_up.aliases.get(print);
            let found = alias.and_then(|print| {
                self.look_up.prints[i] = print;
                self.find_print(print)
            });
            found.unwrap_or(Found::Unknown)
        })
    }

    /// What is known of a print.
    #[inline]
    pub(super) fn find_print(&mut self, print: Fingerprint) -> Option<Found> {
        let Some(first) = self.sources.find(&self.lanes, print) else {
            return self.look_up.passing.get(print).map(|()| Found::Passes);
        };
        let (place, at) = first.split();
        let slot = self.lanes[place].as_ref()?;
        let entry: &Entry = slot.lane.entries.get(at)?;
        match entry.generation == self.look_up.generation {
            true => Some(Found::Known(first)),
            false => None,
        }
    }
}

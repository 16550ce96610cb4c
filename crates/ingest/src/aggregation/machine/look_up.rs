//! Which series of a batch are sources: by the name that their key shows, then by the hash of the
//! key. Labels are read of unknown series only.
//!
//! ```text
//! name in no rule ------------------------------------> passes
//! name in a rule -> hash -> source, or known to pass -> known
//!                               \-> unknown: labels are read, rules asked
//! ```

use super::Machine;
use super::recent::Recent;
use super::sources::Reference;
use crate::aggregation::entries::{Entry, Print};
use crate::aggregation::spec::AggregationSpec;
use firn_model::batch::{Batch, Source};
use firn_model::error::Error;
use firn_model::labels::{LabelsRef, METRIC_NAME};
use firn_model::sample::TimestampMs;
use firn_wire::remote_write::KEY_FORMAT;
use hashbrown::HashTable;
use xxhash_rust::xxh3::{xxh3_64, xxh3_128_with_seed};

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
    /// Keys every hash, and is stored with the state.
    pub(super) secret: u64,
    /// Of each series of the batch.
    pub(super) found: Vec<Found>,
    /// The hash of the key of each series, where one was made.
    pub(super) prints: Vec<Print>,
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
    aliases: Recent<Print>,
    /// How long a series that is no source is remembered, once or twice.
    remembered_ms: i64,
    /// The configuration in force, of those since the start.
    pub(super) generation: u8,
    key: Vec<u8>,
}

impl LookUp {
    /// Finds nothing yet.
    pub(super) fn new(secret: u64) -> Self {
        Self {
            secret,
            found: Vec::new(),
            prints: Vec::new(),
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

    /// Whether no rule names the metric of a series with this key or these labels.
    #[inline]
    fn passes_by_name(&self, key: Option<&[u8]>, labels: LabelsRef<'_>) -> bool {
        let Some(names) = &self.names else {
            return false;
        };
        let name = match key {
            Some(key) => KEY_FORMAT.metric_name(key),
            None => Some(labels.get(METRIC_NAME)),
        };
        name.is_some_and(|name| {
            let known = names.find(xxh3_64(name), |known| **known == *name);
            known.is_none()
        })
    }

    /// The hash of a key.
    #[inline]
    fn print(&self, key: &[u8]) -> Print {
        let hash = xxh3_128_with_seed(key, self.secret);
        Print([hash as u64, (hash >> 64) as u64])
    }

    /// The hash of the key that the format makes of labels.
    pub(super) fn print_of_labels(&mut self, labels: LabelsRef<'_>) -> Print {
        let mut key = std::mem::take(&mut self.key);
        key.clear();
        KEY_FORMAT.push_key(&mut key, labels);
        let print = self.print(&key);
        self.key = key;
        print
    }

    /// Remembers that the series is no source.
    pub(super) fn let_pass(&mut self, print: Print) {
        self.passing.insert(print, ());
    }

    /// Data time is `now`: forgets series that have been silent for long, as sources are.
    pub(super) fn advance(&mut self, now: TimestampMs) {
        self.passing.advance(now, self.remembered_ms);
        self.aliases.advance(now, self.remembered_ms);
    }

    /// Remembers that the key with this hash stands for the labels whose key has the other.
    pub(super) fn alias(&mut self, print: Print, of: Print) {
        self.aliases.insert(print, of);
    }

    /// Hashes the key of series `i`, unless no rule names its metric, and says so.
    #[inline]
    fn hash(&mut self, batch: &Batch, i: usize) -> bool {
        let key = batch.key(i);
        let labels = match key {
            Some(_) => LabelsRef::from_canonical(&[]),
            None => batch.series(i).labels,
        };
        if self.passes_by_name(key, labels) {
            return true;
        }
        self.prints[i] = match key {
            Some(key) => self.print(key),
            None => self.print_of_labels(labels),
        };
        false
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
        let batch = source.batch();
        let count = batch.series_count();
        let look_up = &mut self.look_up;
        (look_up.oldest, look_up.newest) = (i64::MAX, i64::MIN);
        look_up.found.clear();
        look_up.unknown.clear();
        look_up.prints.clear();
        look_up.prints.resize(count, Print::default());
        for i in 0..count {
            look_up.note_times(batch, i, time_max);
            let passes = look_up.hash(batch, i);
            look_up.found.push(match passes {
                true => Found::Passes,
                false => Found::Unknown,
            });
        }
        // Apart from hashing, so that the processor waits for the memory of several at once.
        for i in 0..count {
            if self.look_up.found[i] == Found::Passes {
                continue;
            }
            self.look_up.found[i] = self.find_one(i);
            if self.look_up.found[i] == Found::Unknown {
                self.look_up.unknown.push(i as u32);
            }
        }
        match self.look_up.unknown.is_empty() {
            true => Ok(()),
            false => source.read_labels(&self.look_up.unknown),
        }
    }

    /// What is known of series `i`, whose key was hashed.
    #[inline]
    fn find_one(&mut self, i: usize) -> Found {
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
    pub(super) fn find_print(&mut self, print: Print) -> Option<Found> {
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

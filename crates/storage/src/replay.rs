//! Bringing the store back: the catalogue, the pages, then the log behind them, on all compute
//! threads.
//!
//! Records are parsed in parallel and samples applied in parallel by shard; reading the log and
//! interning are one after the other each, beside the rest. Nothing depends on the order of
//! records: a sample whose series is not known yet waits for the end, one that comes after a newer
//! one is put into its place, and one that is there or in a page is skipped: of one series, pages
//! hold all samples up to the newest that they hold. Where pages are damaged or missing only what a
//! page is seen to hold is skipped, and the log is kept until everything else is sealed again. The
//! index is built last, in order of creation.

mod catalog;
mod pages;
mod places;
mod reading;
mod shard_rows;

use crate::catalogue::payload;
use crate::damage::{Damage, DamageKind};
use crate::error::StorageError;
use crate::fingerprint::Fingerprint;
use crate::ids::{GroupId, SeriesRef};
use crate::log::record::{RecordReader, SeriesRecords};
use crate::maintenance::state::State;
use crate::parts::Parts;
use crate::sealed::group_of;
use crate::sealed::segment::Placed;
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::{Mutex, lock};
use catalog::{Catalog, TermLists};
use firn_model::error::Error;
use firn_model::exemplar::SeriesExemplars;
use firn_model::log::{LogRecord, Position};
use firn_model::sample::TimestampMs;
use reading::Reading;
use shard_rows::{Late, ShardRows};
use std::collections::BTreeMap;
use std::sync::PoisonError;

/// Log bytes that are parsed together: their rows take some forty times as much memory, which adds
/// to what a start takes at most. Four times as many gain no time.
const GROUP_BYTES: usize = 256 << 10;

/// What replay knows beside the head.
struct Replay<'a> {
    store: &'a Parts,
    catalog: Mutex<Catalog>,
    terms: Mutex<TermLists>,
    /// For each shard, samples that came after newer ones of their series.
    late: Box<[Mutex<Vec<Late>>]>,
    next_slot: AtomicU32,
    /// Rows of groups that were applied: their memory is used again.
    spare_rows: Mutex<Vec<ShardRows>>,
}

/// A series as it was read.
#[derive(Clone, Copy)]
struct Read {
    slot: SeriesRef,
    print: Fingerprint,
}

/// Series of one payload: those that were read, and where they stand.
struct Payload<'a> {
    records: SeriesRecords<'a>,
    series: Vec<Read>,
}

/// Whether a record has births, or something wrong with it.
fn may_have_births(payload: &[u8]) -> bool {
    RecordReader::new(payload).map_or(true, |block| block.creates_series())
}

/// What all threads read, in order.
fn all_of<T>(parts: &[Mutex<Vec<T>>]) -> Vec<T> {
    let take = |part: &Mutex<Vec<T>>| std::mem::take(&mut *lock(part));
    parts.iter().flat_map(take).collect()
}

/// What a start finds beside the catalogue, the exemplars and the log themselves.
pub(crate) struct FoundPages {
    pub(crate) pages: Vec<Placed>,
    /// Whether the segments of `pages` are all there and whole: if not, of the log only that is
    /// passed over which some page is seen to hold.
    pub(crate) is_whole: bool,
    /// What the log should hold and does not.
    pub(crate) missing_log: Option<Damage>,
}

/// Fills the empty `store`.
pub(crate) fn replay(store: &Parts, state: &mut State, found: FoundPages) -> Result<(), Error> {
    let start = store.env.clock.monotonic();
    let mut replay = Replay {
        store,
        catalog: Mutex::default(),
        terms: Mutex::default(),
        late: store.shards.iter().map(|_| Mutex::default()).collect(),
        next_slot: AtomicU32::new(0),
        spare_rows: Mutex::default(),
    };
    replay.load_catalogue(state)?;
    let page_count = found.pages.len();
    let is_whole = replay.load_pages(found.pages, found.is_whole, state) && found.is_whole;
    let kept = store.exemplars.load(&state.exemplars, &mut |damage| {
        store.damages.report(damage);
    });
    let from = match is_whole {
        true => state.trimmed().next(),
        // What the log was to forget next may be all there is of it.
        false => store.log.positions().first,
    };
    let log_bytes = replay.load_log(from, kept, found.missing_log)?;
    replay.keep_slots_of_exemplars();
    replay.finish(state);
    store.watermark.start_at(store.log.positions().last);
    tracing::info!(
        series = store.index.series_count(),
        pages = page_count,
        log_bytes,
        took_ms = store
            .env
            .clock
            .monotonic()
            .saturating_sub(start)
            .as_millis() as u64,
        "replayed catalogue, pages and log"
    );
    Ok(())
}

impl Replay<'_> {
    /// Reports that something was read that no version of the store wrote.
    fn report(&self, what: &str) {
        self.store.metrics.damaged_records.inc();
        let dir = self.store.dir.root();
        let damage = Damage::of_file(DamageKind::Log, dir, what.to_owned());
        self.store.damages.report(damage);
    }
}

impl Replay<'_> {
    /// Gives the series of the catalogue their places; an error if they take more memory than there
    /// is, which is known before it is taken.
    fn load_catalogue(&self, state: &mut State) -> Result<(), Error> {
        let mut payloads = Vec::new();
        let mut bytes = 0;
        let mut series = 0;
        let mut result = Ok(());
        state.catalogue.payloads(&mut |payload| {
            bytes += payload.len();
            payloads.push(payload.to_vec());
            if bytes >= GROUP_BYTES && result.is_ok() {
                series += self.read_catalogue(&std::mem::take(&mut payloads));
                bytes = 0;
                result = self.check_memory(series);
            }
        });
        result?;
        series += self.read_catalogue(&payloads);
        self.check_memory(series)?;
        state.catalogue.count(series);
        state.catalogue.settle();
        Ok(())
    }

    /// An error if what `series` series take for certain is more than the memory that there is.
    fn check_memory(&self, series: u64) -> Result<(), StorageError> {
        let shards = self.store.shards.iter();
        let tables: usize = shards.map(|shard| lock(shard).table_bytes()).sum();
        let bytes = tables + lock(&self.terms).memory_bytes();
        let limit = self.store.options.memory_max;
        if bytes <= limit {
            return Ok(());
        }
        Err(StorageError::TooManySeries {
            path: self.store.dir.series(),
            series,
            bytes,
            limit,
        })
    }

    /// Reads payloads of the catalogue on all threads; returns how many series they have.
    fn read_catalogue(&self, payloads: &[Vec<u8>]) -> u64 {
        let unpacked: Vec<Mutex<Vec<payload::Payload<'_>>>> =
            payloads.iter().map(|_| Mutex::default()).collect();
        self.store
            .env
            .compute
            .for_each(
                payloads.len(),
                &|i| match payload::Payload::read(&payloads[i]) {
                    Ok(payload) => lock(&unpacked[i]).push(payload),
                    Err(e) => self.report(&e.to_string()),
                },
            );
        let unpacked = all_of(&unpacked);
        let read: Vec<Mutex<Vec<Payload<'_>>>> =
            unpacked.iter().map(|_| Mutex::default()).collect();
        self.store.env.compute.for_each(unpacked.len(), &|i| {
            let payload = &unpacked[i];
            self.next_slot
                .fetch_max(payload.header.next_slot, Ordering::Relaxed);
            lock(&read[i]).push(self.read_series(payload.records()));
        });
        let read = all_of(&read);
        self.register_all(&read);
        read.iter().map(|payload| payload.series.len() as u64).sum()
    }

    /// Applies the log from `from` on, and its exemplars behind `kept`; returns its bytes. While
    /// one group of records is applied, the next one is read: reading is one after the other.
    fn load_log(
        &self,
        from: Position,
        kept: Position,
        missing: Option<Damage>,
    ) -> Result<usize, Error> {
        let reading = Mutex::new((Reading::new(self.store.log.tail(from)), Ok(Vec::new())));
        let orphans = Mutex::new(ShardRows::default());
        let mut bytes = 0;
        let mut group = Vec::new();
        loop {
            self.store.env.compute.for_each(2, &|task| match task {
                0 => self.apply_group(&group, &mut lock(&orphans)),
                _ => {
                    let (reading, next) = &mut *lock(&reading);
                    *next = self.read_group(reading, kept);
                }
            });
            group = std::mem::replace(&mut lock(&reading).1, Ok(Vec::new()))?;
            if group.is_empty() {
                break;
            }
            bytes += group.iter().map(Vec::len).sum::<usize>();
        }
        let (mut reading, _) = reading.into_inner().unwrap_or_else(PoisonError::into_inner);
        missing.into_iter().for_each(|damage| reading.add(damage));
        reading.end(&self.store.damages);
        let orphans = std::mem::take(&mut *lock(&orphans));
        self.apply_orphans(orphans);
        self.apply_late();
        Ok(bytes)
    }

    /// The payloads of the next records; none at the end of the log.
    fn read_group(&self, reading: &mut Reading<'_>, kept: Position) -> Result<Vec<Vec<u8>>, Error> {
        let (mut group, mut bytes) = (Vec::new(), 0);
        while bytes < GROUP_BYTES {
            match reading.tail.next()? {
                Some(Ok(block)) => {
                    if block.position > kept {
                        self.take_exemplars(&block);
                    }
                    reading.go_on(&block.payload, &self.store.damages);
                    bytes += block.payload.len();
                    group.push(block.payload);
                }
                Some(Err(damage)) => reading.meet(damage, group.last()),
                None => break,
            }
        }
        reading.remember(group.last());
        Ok(group)
    }

    /// Takes the exemplars of a record. One without an outline is reported with its births.
    fn take_exemplars(&self, block: &LogRecord) {
        let Ok(reader) = RecordReader::new(&block.payload) else {
            return;
        };
        if reader.has_exemplars() {
            let mut exemplars = SeriesExemplars::default();
            match reader.exemplars(&mut exemplars) {
                Ok(()) => self.store.exemplars.replay(&exemplars, block.position),
                Err(e) => self.report(&e.to_string()),
            }
        }
    }

    /// A series born later must not inherit the exemplars of one whose birth was never acked.
    fn keep_slots_of_exemplars(&self) {
        if let Some(slot) = self.store.exemplars.last_slot() {
            self.next_slot
                .fetch_max(slot.0.saturating_add(1), Ordering::Relaxed);
        }
    }

    /// Reads the slots and fingerprints of series.
    fn read_series<'a>(&self, records: SeriesRecords<'a>) -> Payload<'a> {
        let mut series = Vec::new();
        let read = records
            .clone()
            .read(self.store.options.key_format, |slot, key| {
                let print = self.store.keys.fingerprint(key);
                let slot = SeriesRef(slot);
                series.push(Read { slot, print });
            });
        if let Err(e) = read {
            self.report(&e.to_string());
        }
        Payload { records, series }
    }

    /// Applies records that follow each other in the log.
    fn apply_group(&self, payloads: &[Vec<u8>], orphans: &mut ShardRows) {
        let compute = &self.store.env.compute;
        // A few parts for each thread, so that none waits long for the last one.
        let part_len = payloads.len().div_ceil(compute.threads() * 4).max(1);
        let parts: Vec<&[Vec<u8>]> = payloads.chunks(part_len).collect();
        let born: Vec<Mutex<Vec<Payload<'_>>>> = parts.iter().map(|_| Mutex::default()).collect();
        // In most groups nothing was born, and threads need not be woken to find that.
        if payloads.iter().any(|payload| may_have_births(payload)) {
            compute.for_each(parts.len(), &|part| {
                *lock(&born[part]) = self.read_births(parts[part]);
            });
            self.register_all(&all_of(&born));
        }
        let rows: Vec<Mutex<ShardRows>> = parts.iter().map(|_| Mutex::default()).collect();
        let catalog = lock(&self.catalog);
        compute.for_each(parts.len(), &|part| {
            *lock(&rows[part]) = self.read_rows(parts[part], &catalog);
        });
        drop(catalog);
        let mut parts: Vec<ShardRows> =
            rows.iter().map(|r| std::mem::take(&mut *lock(r))).collect();
        for part in &mut parts {
            orphans.take_unknown(part);
        }
        self.apply_rows(&parts);
        parts.iter_mut().for_each(ShardRows::clear);
        lock(&self.spare_rows).append(&mut parts);
    }

    fn read_births<'a>(&self, payloads: &'a [Vec<u8>]) -> Vec<Payload<'a>> {
        let mut read = Vec::new();
        for payload in payloads {
            match RecordReader::new(payload) {
                Ok(block) if block.creates_series() => {
                    read.push(self.read_series(block.created_series()))
                }
                Ok(_) => {}
                Err(e) => self.report(&e.to_string()),
            }
        }
        read
    }

    fn read_rows(&self, payloads: &[Vec<u8>], catalog: &Catalog) -> ShardRows {
        let mut rows = lock(&self.spare_rows).pop().unwrap_or_default();
        for payload in payloads {
            // A record that does not even have an outline was reported when its births were read.
            if let Ok(block) = RecordReader::new(payload)
                && let Err(e) = rows.read(self.store, catalog, &block)
            {
                self.report(&e.to_string());
            }
        }
        if let Some((slot, time)) = rows.take_newest() {
            // Also of slots that nobody has: a series born later must not inherit their samples.
            self.next_slot
                .fetch_max(slot.saturating_add(1), Ordering::Relaxed);
            self.store.newest.fetch_max(time, Ordering::Relaxed);
        }
        rows
    }

    fn apply_rows(&self, parts: &[ShardRows]) {
        let store = self.store;
        store.env.compute.for_each(store.shards.len(), &|number| {
            let mut shard = lock(&store.shards[number]);
            let mut late = lock(&self.late[number]);
            for part in parts {
                part.apply(store, number, &mut shard, &mut late);
            }
        });
    }

    /// Samples whose series stood in a later record; those without any belong to removed series, or
    /// to ones whose birth was never acked.
    fn apply_orphans(&self, mut orphans: ShardRows) {
        orphans.sort(self.store, &lock(&self.catalog));
        self.apply_rows(&[orphans]);
    }

    fn apply_late(&self) {
        let store = self.store;
        store.env.compute.for_each(store.shards.len(), &|number| {
            let mut shard = lock(&store.shards[number]);
            let late = std::mem::take(&mut *lock(&self.late[number]));
            if let Err(e) = shard_rows::insert_late(store, &mut shard, late) {
                self.report(&e.to_string());
            }
        });
    }

    /// SeriesCreation in order of slots, as if they happened now.
    fn build_index(&self) {
        let (catalog, terms) = (lock(&self.catalog), lock(&self.terms));
        let mut births = self.store.index.create_series();
        catalog.each_by_slot(|slot, place| {
            births.skip_to(slot.0);
            births.place(slot, place, terms.of(slot));
        });
        births.skip_to(self.next_slot.load(Ordering::Relaxed));
    }

    /// The oldest sample of every group that is not sealed, by group.
    fn oldest_unsealed(&self) -> BTreeMap<GroupId, TimestampMs> {
        let mut oldest: BTreeMap<GroupId, TimestampMs> = BTreeMap::new();
        let newest = self.store.newest.load(Ordering::Relaxed);
        for shard in &self.store.shards {
            // Neighbours in a shard are of one group, mostly.
            let mut last = None;
            for (_, series) in lock(shard).iter() {
                let of_series = (
                    group_of(series.slot),
                    series.range().map_or(newest, |r| r.min),
                );
                if last.replace(of_series) != Some(of_series) {
                    let known = oldest.entry(of_series.0).or_insert(newest);
                    *known = (*known).min(of_series.1);
                }
            }
        }
        oldest
    }

    /// Builds the index, and says to the coverage what every group has that is not sealed.
    fn finish(&self, state: &mut State) {
        let oldest = Mutex::default();
        self.store.env.compute.for_each(2, &|task| match task {
            0 => self.build_index(),
            _ => *lock(&oldest) = self.oldest_unsealed(),
        });
        let start = self.store.log.positions().first.previous();
        for (group, oldest) in std::mem::take(&mut *lock(&oldest)) {
            state.coverage.restore_at(group, oldest, start);
        }
    }
}

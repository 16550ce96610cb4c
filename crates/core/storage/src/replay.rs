//! Replay: reads the catalogue, the pages, and then the log after them at startup, on all compute
//! threads.
//!
//! Records are parsed in parallel, and samples are applied in parallel by shard. Reading the log
//! and interning labels are sequential, but run beside the rest. The result does not depend on the
//! order of records: a sample whose series is not found yet waits until the end, one that is older
//! than an applied one is inserted at its position, and one that is already applied or in a page is
//! skipped. For each series, pages contain all samples up to their newest one. If pages are damaged
//! or missing, only samples that are found in a page are skipped, and the log is kept until
//! everything else is sealed again. Late samples are restored to the tables of late rows,
//! regardless of pages ([`late`]). The index is built last, in order of creation.

mod late;
mod pages;
mod places;
mod reading;
mod series;
mod shard_rows;

use crate::catalogue::checkpoint;
use crate::catalogue::payload::{CataloguePayload, PayloadInflater};
use crate::damage::{Damage, DamageKind};
use crate::error::StorageError;
use crate::failpoints::{self, StoreFlaw};
use crate::fan_out::map;
use crate::ids::{GroupId, SeriesRef, SeriesSlot};
use crate::maintenance::state::MaintenanceState;
use crate::parts::StoreParts;
use crate::sealed::segment::PageWithMeta;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Mutex, into_inner, lock};
use firn_model::error::Error;
use firn_model::fingerprint::Fingerprint;
use firn_model::label_code::SeriesRecords;
use firn_model::log::{CreatedSeries, LogBatch, LogPosition};
use firn_model::sample::TimestampMs;
use late::LateReplay;
use reading::LogReplayReader;
use series::{ReplaySeriesTable, SeriesTermLists};
use shard_rows::{DisplacedSample, ShardRows};
use std::collections::BTreeMap;

/// Bytes of the catalogue that are processed together. Their decoded form adds to the peak memory
/// of a start. Four times as many are not faster.
const CATALOGUE_BYTES: usize = 256 << 10;

/// Samples and created series of the log that are applied together. Four times as many are not
/// faster.
const GROUP_ROWS: usize = 32 << 10;

/// Maximum memory of the batches that are applied together, in bytes, which adds to the peak memory
/// of a start. Samples take 20 bytes each, created series some tens.
const GROUP_BYTES: usize = 4 << 20;

/// State of replay in addition to the head.
struct ReplayState<'a> {
    store: &'a StoreParts,
    known: Mutex<ReplaySeriesTable>,
    terms: Mutex<SeriesTermLists>,
    /// For each shard, in-order samples that were found after newer ones of their series.
    displaced: Box<[Mutex<Vec<DisplacedSample>>]>,
    late: LateReplay,
    /// All slots below this one were assigned; new series get higher ones.
    next_slot: AtomicU64,
    /// Memory of applied groups of rows, for reuse.
    spare_rows: Mutex<Vec<ShardRows>>,
    /// Idle decompressors of the catalogue.
    inflaters: Mutex<Vec<PayloadInflater>>,
}

/// Slot and fingerprint of a series that was read.
#[derive(Clone, Copy)]
struct ReplaySeriesKey {
    slot: SeriesSlot,
    print: Fingerprint,
}

/// Series of a payload of the catalogue, or of a batch of the log.
struct ReplaySeriesBatch<'a> {
    /// The encoded series, for the differences between their labels.
    records: SeriesRecords<'a>,
    series: Vec<ReplaySeriesKey>,
}

/// State found at startup in addition to the catalogue, the exemplars and the log.
pub(crate) struct StartupPages {
    pub(crate) pages: Vec<PageWithMeta>,
    /// True if all segments of `pages` exist and are undamaged. Otherwise, only samples that are
    /// found in a page are skipped in the log.
    pub(crate) is_whole: bool,
    /// Records that should be in the log and are missing.
    pub(crate) missing_log: Option<Damage>,
    /// Blocks contain the late samples of the log up to this position.
    pub(crate) late_from: LogPosition,
    /// The catalogue of a checkpoint, beside that of the folder; empty without one.
    pub(crate) catalogue: Vec<u8>,
}

/// Restores the contents of the empty `store` and the state of maintenance.
pub(crate) fn replay(
    store: &StoreParts,
    state: &mut MaintenanceState,
    found: StartupPages,
) -> Result<(), Error> {
    let start = store.env.clock.monotonic();
    let mut replay = ReplayState {
        store,
        known: Mutex::new(ReplaySeriesTable::new(store.blocks.view().cut)),
        terms: Mutex::default(),
        displaced: store.head.shards.iter().map(|_| Mutex::default()).collect(),
        late: LateReplay::new(found.late_from),
        next_slot: AtomicU64::new(0),
        spare_rows: Mutex::default(),
        inflaters: Mutex::default(),
    };
    replay.load_catalogue(state, &found.catalogue)?;
    let page_count = found.pages.len();
    let is_whole = replay.load_pages(found.pages, found.is_whole, state) && found.is_whole;
    let kept = store.exemplars.load(&state.exemplars, &mut |damage| {
        store.damages.report(damage);
    });
    let from = if is_whole {
        state.trimmed_position().next()
    } else {
        // The oldest records, which would be trimmed next, may be the only copy of some samples.
        store.log.positions().first
    };
    let log_records = replay.load_log(from, kept, found.missing_log)?;
    replay.reserve_exemplar_slots();
    replay.finish(state);
    let last = store.log.positions().last;
    store.head.watermark.initialize(last, replay.late.newest());
    tracing::info!(
        series = store.head.index.series_count(),
        pages = page_count,
        log_records,
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

impl ReplayState<'_> {
    /// Reports a record that no version of the store wrote.
    fn report_malformed_record(&self, what: &str) {
        self.store.metrics.damaged_records.inc();
        let dir = self.store.dir.root();
        let damage = Damage::for_file(DamageKind::Log, dir, what.to_owned());
        self.store.damages.report(damage);
    }
}

impl ReplayState<'_> {
    /// Creates the series of the catalogue in the shards, and those of `checkpoint`. Returns an
    /// error before their memory exceeds the limit.
    fn load_catalogue(&self, state: &mut MaintenanceState, checkpoint: &[u8]) -> Result<(), Error> {
        let mut payloads = Vec::new();
        let mut bytes = 0;
        let mut series = 0;
        let mut result = Ok(());
        let mut read = |payload: &[u8]| {
            bytes += payload.len();
            payloads.push(payload.to_vec());
            if bytes >= CATALOGUE_BYTES && result.is_ok() {
                series += self.read_catalogue(&std::mem::take(&mut payloads));
                bytes = 0;
                result = self.check_memory(series);
            }
        };
        state.catalogue.for_each_payload(&mut read);
        if !checkpoint::for_each_payload(checkpoint, &mut read) {
            self.report_malformed_record("the catalogue of the checkpoint is cut off");
        }
        result?;
        series += self.read_catalogue(&payloads);
        self.check_memory(series)?;
        state.catalogue.set_series_count(series);
        state.catalogue.complete_startup();
        Ok(())
    }

    /// Returns an error if `series` series need more memory than the limit.
    fn check_memory(&self, series: u64) -> Result<(), StorageError> {
        let shards = self.store.head.shards.iter();
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

    /// Reads payloads of the catalogue on all threads. Returns the number of their series.
    fn read_catalogue(&self, payloads: &[Vec<u8>]) -> u64 {
        let compute = &*self.store.env.compute;
        let unpacked = map(compute, payloads.len(), |i| self.unpack(&payloads[i]));
        let unpacked: Vec<CataloguePayload<'_>> = unpacked.into_iter().flatten().collect();
        let read = map(compute, unpacked.len(), |i| {
            let next_slot = unpacked[i].header.next_slot;
            self.next_slot.fetch_max(next_slot.0, Ordering::Relaxed);
            self.read_series(unpacked[i].records())
        });
        self.register_all(&read);
        read.iter().map(|read| read.series.len() as u64).sum()
    }

    /// Decompresses a payload of the catalogue. Reports an invalid one and returns `None`.
    fn unpack<'a>(&self, payload: &'a [u8]) -> Option<CataloguePayload<'a>> {
        let mut inflater = lock(&self.inflaters).pop().unwrap_or_default();
        let unpacked = CataloguePayload::read(payload, &mut inflater);
        lock(&self.inflaters).push(inflater);
        unpacked
            .map_err(|e| self.report_malformed_record(&e.to_string()))
            .ok()
    }

    /// Applies the log from `from` on, and its exemplars after `kept`. Returns the number of
    /// records. While one group of records is applied, one thread reads the next one.
    fn load_log(
        &self,
        from: LogPosition,
        kept: LogPosition,
        missing: Option<Damage>,
    ) -> Result<usize, Error> {
        let replaying = &self.store.options.replaying;
        replaying.begin(from, self.store.log.positions().last);
        let reading = Mutex::new((
            LogReplayReader::new(self.store.log.read_from(from)),
            Ok(Vec::new()),
        ));
        let orphans = Mutex::new(ShardRows::default());
        let mut records = 0;
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
            records += group.len();
        }
        let (mut reading, _) = into_inner(reading);
        missing
            .into_iter()
            .for_each(|damage| reading.record_damage(damage));
        reading.finish(&self.store.damages);
        let orphans = std::mem::take(&mut *lock(&orphans));
        self.apply_orphans(orphans);
        self.apply_displaced();
        self.apply_late_orphans();
        Ok(records)
    }

    /// Reads the batches of the next records; returns none at the end of the log.
    fn read_group(
        &self,
        reading: &mut LogReplayReader<'_>,
        kept: LogPosition,
    ) -> Result<Vec<LogBatch>, Error> {
        let (mut group, mut rows, mut bytes) = (Vec::new(), 0, 0);
        let deleted = &self.store.blocks.view().tombstones;
        while rows < GROUP_ROWS && bytes < GROUP_BYTES {
            match reading.tail.next()? {
                Some(Ok(record)) => {
                    if record.position > kept && !record.batch.exemplars.is_empty() {
                        let exemplars = &record.batch.exemplars;
                        self.store.exemplars.replay(exemplars, record.position);
                    }
                    reading.record_batch(&record.batch, &self.store.damages);
                    self.store.options.replaying.advance_to(record.position);
                    let mut batch = record.batch;
                    if !batch.journal.is_empty() {
                        let journal = std::mem::take(&mut batch.journal);
                        self.store.journal.replay(journal, record.position);
                    }
                    rows += batch.floats.len() + batch.histograms.len() + batch.created.len();
                    bytes += batch.memory_bytes();
                    self.late
                        .drop_unneeded_rows(record.position, &mut batch, deleted);
                    group.push(batch);
                }
                Some(Err(damage)) => reading.record_log_damage(damage, group.last()),
                None => break,
            }
        }
        reading.set_last_batch(group.last());
        Ok(group)
    }

    /// Reserves the slots of exemplars: a series created later must not inherit the exemplars of a
    /// series whose creation was never acked.
    fn reserve_exemplar_slots(&self) {
        if let Some(slot) = self.store.exemplars.last_slot() {
            self.record_slot(slot);
        }
    }

    /// Records that a slot was assigned, so that no new series gets it.
    fn record_slot(&self, slot: SeriesSlot) {
        self.next_slot
            .fetch_max(slot.0.saturating_add(1), Ordering::Relaxed);
    }

    /// Reads the slots and fingerprints of series. Reports malformed records and returns those
    /// before them.
    fn read_series<'a>(&self, records: SeriesRecords<'a>) -> ReplaySeriesBatch<'a> {
        let mut series = Vec::new();
        let read = records
            .clone()
            .read(self.store.options.key_format, |slot, key| {
                let print = self.store.hash.keys.fingerprint(key);
                let slot = SeriesSlot(if failpoints::has(StoreFlaw::HalvesSlots) {
                    u64::from(slot as u32)
                } else {
                    slot
                });
                series.push(ReplaySeriesKey { slot, print });
            });
        if let Err(e) = read {
            self.report_malformed_record(&e.to_string());
        }
        ReplaySeriesBatch { records, series }
    }

    /// Applies consecutive records of the log: creates their series, and adds their samples to the
    /// head.
    fn apply_group(&self, batches: &[LogBatch], orphans: &mut ShardRows) {
        let compute = &*self.store.env.compute;
        let creating: Vec<&CreatedSeries> = batches
            .iter()
            .map(|batch| &batch.created)
            .filter(|created| !created.is_empty())
            .collect();
        // Most groups create no series, and threads need not be woken for that.
        if !creating.is_empty() {
            let read = map(compute, creating.len(), |i| {
                self.read_series(creating[i].records())
            });
            self.register_all(&read);
        }
        // A few parts for each thread, so that none waits long for the last one.
        let part_len = batches.len().div_ceil(compute.threads() * 4).max(1);
        let parts: Vec<&[LogBatch]> = batches.chunks(part_len).collect();
        let known = lock(&self.known);
        for batch in batches.iter().filter(|batch| batch.has_late()) {
            self.apply_late_batch(batch, &known);
        }
        let sort = |part: usize| self.sort_rows(parts[part], &known);
        let mut parts = map(compute, parts.len(), sort);
        drop(known);
        for part in &mut parts {
            orphans.take_unknown(part);
        }
        self.apply_rows(&parts);
        parts.iter_mut().for_each(ShardRows::clear);
        lock(&self.spare_rows).append(&mut parts);
    }

    /// Sorts the samples of batches by shard.
    fn sort_rows(&self, batches: &[LogBatch], known: &ReplaySeriesTable) -> ShardRows {
        let mut rows = lock(&self.spare_rows).pop().unwrap_or_default();
        for batch in batches {
            rows.add(self.store, known, batch);
        }
        let samples = batches.iter().flat_map(LogBatch::samples);
        let newest = samples.reduce(|a, b| (a.0.max(b.0), a.1.max(b.1)));
        if let Some((slot, time)) = newest {
            // Also slots without a series: a series created later must not inherit their samples.
            self.record_slot(SeriesSlot(slot));
            self.store.head.newest.fetch_max(time, Ordering::Relaxed);
        }
        rows
    }

    /// Applies rows to all shards in parallel; displaced samples are kept for the end.
    fn apply_rows(&self, parts: &[ShardRows]) {
        let store = self.store;
        store
            .env
            .compute
            .for_each(store.head.shards.len(), &|number| {
                let mut shard = lock(&store.head.shards[number]);
                let mut displaced = lock(&self.displaced[number]);
                for part in parts {
                    part.apply(store, number, &mut shard, &mut displaced);
                }
            });
    }

    /// Applies samples whose series was created in a later record. Samples without a series belong
    /// to removed series, or to series whose creation was never acked.
    fn apply_orphans(&self, mut orphans: ShardRows) {
        orphans.sort(self.store, &lock(&self.known));
        self.apply_rows(&[orphans]);
    }

    /// Inserts the samples that were found after newer ones of their series, in all shards in
    /// parallel.
    fn apply_displaced(&self) {
        let store = self.store;
        store
            .env
            .compute
            .for_each(store.head.shards.len(), &|number| {
                let mut shard = lock(&store.head.shards[number]);
                let displaced = std::mem::take(&mut *lock(&self.displaced[number]));
                if let Err(e) = shard_rows::insert_displaced(store, &mut shard, displaced) {
                    self.report_malformed_record(&e.to_string());
                }
            });
    }

    /// Creates the series in the index, in the order of their numbers.
    fn build_index(&self, first_new: SeriesRef) {
        let (known, terms) = (lock(&self.known), lock(&self.terms));
        let mut creation = self.store.head.index.create_series();
        known.each_in_order(|slot, place| {
            creation.reserve_slots_below(slot.0);
            creation.insert_series(slot, place, terms.series_terms(slot));
        });
        creation.begin_new_series(first_new);
    }

    /// Returns the oldest unsealed sample of every group that has one.
    fn find_oldest_unsealed(&self) -> BTreeMap<GroupId, TimestampMs> {
        let mut oldest: BTreeMap<GroupId, TimestampMs> = BTreeMap::new();
        let newest = self.store.head.newest.load(Ordering::Relaxed);
        for shard in &self.store.head.shards {
            // Neighbours in a shard are usually in one group.
            let mut last = None;
            for (_, series) in lock(shard).iter() {
                let of_series = (
                    self.store.head.numbers.group_of(series.slot),
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

    /// Returns the slot of the next new series, which is higher than all assigned ones.
    fn next_slot(&self) -> SeriesSlot {
        let next = self.next_slot.load(Ordering::Relaxed);
        if failpoints::faults().turns_eras {
            SeriesSlot(((next >> u32::BITS) + 1) << u32::BITS)
        } else {
            SeriesSlot(next)
        }
    }

    /// Assigns numbers to the groups found, builds the index, and registers the unsealed samples of
    /// every group in the coverage.
    fn finish(&self, state: &mut MaintenanceState) {
        let groups = std::mem::take(&mut lock(&self.known).groups);
        let first_new = self
            .store
            .head
            .numbers
            .complete_startup(groups, self.next_slot());
        let begun = self.store.head.numbers.group_of(first_new);
        state.coverage.begin_new_groups(begun);
        let oldest = Mutex::default();
        self.store.env.compute.for_each(2, &|task| match task {
            0 => self.build_index(first_new),
            _ => *lock(&oldest) = self.find_oldest_unsealed(),
        });
        let start = self.store.log.positions().first.previous();
        for (group, oldest) in std::mem::take(&mut *lock(&oldest)) {
            state.coverage.restore_group_at_start(group, oldest, start);
        }
    }
}

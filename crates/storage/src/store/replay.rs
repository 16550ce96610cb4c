//! Bringing the head back: the checkpoint, then the log behind it, on all compute threads.
//!
//! Blocks are parsed in parallel and samples applied in parallel by shard; only interning is one
//! after the other. Nothing depends on the order of blocks: a sample whose series is not known yet
//! waits for the end, one that comes after a newer one is put into its place, and one that is there
//! is skipped. The index is built last, in order of birth.

mod catalog;
mod shard_rows;

use super::checkpoint::read_payload;
use super::{Store, lock};
use crate::checkpoint::Checkpoint;
use crate::chunk::{Chunk, Columns};
use crate::codec::Malformed;
use crate::fingerprint::Fingerprint;
use crate::head::series::Series;
use crate::index::{Births, epoch_of};
use crate::log_block::LogBlockReader;
use catalog::Catalog;
use firn_model::error::Error;
use firn_model::labels::LabelsRef;
use firn_model::log::DurableLog;
use shard_rows::{Late, ShardRows};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

/// Log bytes that are parsed together: their rows take some ten times as much memory.
const GROUP_BYTES: usize = 4 << 20;

/// What replay knows beside the head.
struct Replay<'a> {
    store: &'a Store,
    catalog: Mutex<Catalog>,
    /// For each shard, samples that came after newer ones of their series.
    late: Box<[Mutex<Vec<Late>>]>,
    next_slot: AtomicU32,
}

/// A series as it was read.
struct Read {
    slot: u32,
    print: Fingerprint,
    labels: Box<[u8]>,
    chunks: Vec<Chunk>,
}

impl Store {
    /// Fills the empty store.
    pub(super) fn replay(&self, checkpoint: Option<&Checkpoint>) -> Result<(), Error> {
        let start = self.env.clock.monotonic();
        let replay = Replay {
            store: self,
            catalog: Mutex::default(),
            late: self.shards.iter().map(|_| Mutex::default()).collect(),
            next_slot: AtomicU32::new(0),
        };
        let mut position = Default::default();
        if let Some(checkpoint) = checkpoint {
            position = checkpoint.position();
            self.checkpoint_bytes
                .store(checkpoint.bytes(), Ordering::Relaxed);
            replay.load_checkpoint(checkpoint);
        }
        let mut group = Vec::new();
        let mut group_bytes = 0;
        let mut orphans = ShardRows::default();
        self.log.tail(position.next(), &mut |block| match block {
            Ok(block) => {
                group_bytes += block.payload.len();
                self.logged_bytes
                    .fetch_add(block.payload.len() as u64, Ordering::Relaxed);
                group.push(block.payload);
                if group_bytes >= GROUP_BYTES {
                    replay.apply_group(&group, &mut orphans);
                    group.clear();
                    group_bytes = 0;
                }
            }
            Err(e) => self.report(&e.to_string()),
        })?;
        replay.apply_group(&group, &mut orphans);
        replay.apply_orphans(orphans);
        replay.apply_late();
        replay.build_index();
        lock(&self.upkeep).checkpoint_position = position;
        self.watermark.start_at(self.log.last_position());
        tracing::info!(
            series = self.index.series_count(),
            log_bytes = self.logged_bytes.load(Ordering::Relaxed),
            took_ms = self.env.clock.monotonic().saturating_sub(start).as_millis() as u64,
            "replayed checkpoint and log"
        );
        Ok(())
    }

    fn report(&self, damage: &str) {
        self.metrics.damaged_blocks.inc();
        tracing::error!(damage, "go on behind what could not be replayed");
    }
}

impl Replay<'_> {
    fn load_checkpoint(&self, checkpoint: &Checkpoint) {
        let compute = &self.store.env.compute;
        compute.for_each(checkpoint.chunk_count(), &|chunk| {
            checkpoint.read_chunk(chunk, &mut |payload| {
                let read = payload
                    .map_err(|e| e.to_string())
                    .and_then(|payload| self.read_series(payload).map_err(|e| e.to_string()));
                match read {
                    Ok(series) => self.register_all(series),
                    Err(e) => self.store.report(&e),
                }
            });
        });
    }

    fn read_series(&self, payload: &[u8]) -> Result<Vec<Read>, Malformed> {
        let mut series = Vec::new();
        let mut section = Vec::new();
        let next_slot = read_payload(payload, |slot, labels, chunks| {
            series.push(self.read(slot, labels, chunks, &mut section));
        })?;
        self.next_slot.fetch_max(next_slot, Ordering::Relaxed);
        Ok(series)
    }

    /// `section` is memory to work in.
    fn read(
        &self,
        slot: u32,
        labels: LabelsRef<'_>,
        chunks: Vec<Chunk>,
        section: &mut Vec<u8>,
    ) -> Read {
        Read {
            slot,
            print: self.store.keys.of_labels(labels, section),
            labels: labels.as_bytes().into(),
            chunks,
        }
    }

    /// Gives series their places, then their chunks.
    fn register_all(&self, series: Vec<Read>) {
        let mut loads = Vec::new();
        {
            // The one lock that all threads share; interning is all that happens under it.
            let mut births = self.store.index.births();
            let mut catalog = lock(&self.catalog);
            for read in series {
                if let Some(place) = self.register(&mut births, &mut catalog, &read)
                    && !read.chunks.is_empty()
                {
                    loads.push((place, read));
                }
            }
        }
        for ((shard, local), read) in loads {
            self.load_chunks(shard, local, read);
        }
    }

    /// The place of a series; makes one if it is new. `None` if a later series has the same labels:
    /// this one was removed before that was born.
    fn register(
        &self,
        births: &mut Births<'_>,
        catalog: &mut Catalog,
        read: &Read,
    ) -> Option<(usize, u32)> {
        self.next_slot.fetch_max(read.slot + 1, Ordering::Relaxed);
        let number = self.store.shard_of(read.print);
        let mut shard = lock(&self.store.shards[number]);
        let local = match shard.find(read.print, u32::MAX) {
            Some(local) => {
                let known = shard.series_mut(local)?;
                if known.slot >= read.slot {
                    return (known.slot == read.slot).then_some((number, local));
                }
                catalog.forget(known.slot);
                let bytes = known.memory_bytes();
                *known = Series::new(read.slot);
                shard.chunk_bytes -= bytes;
                local
            }
            None => shard.insert(read.print, Series::new(read.slot)),
        };
        let labels = LabelsRef::from_canonical(&read.labels);
        match births.intern(labels) {
            Ok(terms) => {
                catalog.add(read.slot, self.store.place(number, local), terms);
                Some((number, local))
            }
            Err(_) => {
                shard.remove(local);
                self.store
                    .report("the index takes no more label names or values");
                None
            }
        }
    }

    /// Says in which epochs a chunk has samples. Only one that may leave epochs out is decoded:
    /// what lies between two samples may be the whole of time.
    fn mark_epochs(&self, slot: u32, chunk: &Chunk) -> Result<(), Malformed> {
        let range = chunk.range();
        let (first, last) = (epoch_of(range.min), epoch_of(range.max));
        self.store.index.mark(slot, first);
        if last - first > 1 {
            let mut columns = Columns::default();
            chunk.decode(usize::MAX, &mut columns)?;
            let mut epochs: Vec<i64> = columns.times.iter().map(|t| epoch_of(*t)).collect();
            epochs.dedup();
            for epoch in epochs {
                self.store.index.mark(slot, epoch);
            }
        } else if last != first {
            self.store.index.mark(slot, last);
        }
        Ok(())
    }

    fn load_chunks(&self, number: usize, local: u32, read: Read) {
        let mut newest = i64::MIN;
        for chunk in &read.chunks {
            newest = newest.max(chunk.range().max);
            if let Err(e) = self.mark_epochs(read.slot, chunk) {
                self.store.report(&e.to_string());
            }
        }
        let mut shard = lock(&self.store.shards[number]);
        let Some(series) = shard.series_mut(local).filter(|s| s.slot == read.slot) else {
            return;
        };
        let before = series.memory_bytes();
        let loaded = series.load(read.chunks);
        let after = series.memory_bytes();
        shard.chunk_bytes = shard.chunk_bytes + after - before;
        drop(shard);
        if let Err(e) = loaded {
            self.store.report(&e.to_string());
        }
        self.store.newest.fetch_max(newest, Ordering::Relaxed);
    }

    /// Applies blocks that follow each other in the log.
    fn apply_group(&self, payloads: &[Vec<u8>], orphans: &mut ShardRows) {
        let compute = &self.store.env.compute;
        // A few parts for each thread, so that none waits long for the last one.
        let part_len = payloads.len().div_ceil(compute.threads() * 4).max(1);
        let parts: Vec<&[Vec<u8>]> = payloads.chunks(part_len).collect();
        let born: Vec<Mutex<Vec<Read>>> = parts.iter().map(|_| Mutex::default()).collect();
        compute.for_each(parts.len(), &|part| {
            *lock(&born[part]) = self.read_births(parts[part]);
        });
        for part in born {
            self.register_all(std::mem::take(&mut *lock(&part)));
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
    }

    fn read_births(&self, payloads: &[Vec<u8>]) -> Vec<Read> {
        let mut series = Vec::new();
        let mut section = Vec::new();
        for payload in payloads {
            let read = LogBlockReader::new(payload).and_then(|block| {
                block.births(|slot, labels| {
                    series.push(self.read(slot, labels, Vec::new(), &mut section));
                })
            });
            if let Err(e) = read {
                self.store.report(&e.to_string());
            }
        }
        series
    }

    fn read_rows(&self, payloads: &[Vec<u8>], catalog: &Catalog) -> ShardRows {
        let mut rows = ShardRows::default();
        for payload in payloads {
            // A block that does not even have an outline was reported when its births were read.
            if let Ok(block) = LogBlockReader::new(payload)
                && let Err(e) = rows.read(&block)
            {
                self.store.report(&e.to_string());
            }
        }
        let newest = rows.sort_into_shards(self.store, catalog);
        if let Some((slot, time)) = newest {
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

    /// Samples whose series stood in a later block; those without any belong to removed series, or
    /// to ones whose birth was never acked.
    fn apply_orphans(&self, mut orphans: ShardRows) {
        orphans.sort_into_shards(self.store, &lock(&self.catalog));
        self.apply_rows(&[orphans]);
    }

    fn apply_late(&self) {
        let store = self.store;
        store.env.compute.for_each(store.shards.len(), &|number| {
            let mut shard = lock(&store.shards[number]);
            let late = std::mem::take(&mut *lock(&self.late[number]));
            if let Err(e) = shard_rows::insert_late(store, &mut shard, late) {
                store.report(&e.to_string());
            }
        });
    }

    /// Births in order of slots, as if they happened now.
    fn build_index(&self) {
        let mut catalog = lock(&self.catalog);
        let mut births = self.store.index.births();
        catalog.each_by_slot(|slot, place, terms| {
            births.skip_to(slot);
            births.place(slot, place, terms);
        });
        births.skip_to(self.next_slot.load(Ordering::Relaxed));
    }
}

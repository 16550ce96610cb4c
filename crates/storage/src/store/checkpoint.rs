//! Checkpoints of the head: its series with their chunks, in order of birth.
//!
//! ```text
//! payload = version u8 | next slot varint | series*                    docs/format/log-block.md
//! series  = slot varint (from the one before) | labels | chunks varint | chunks, each bytes
//! varint, bytes
//! ```
//!
//! A checkpoint at position `p` holds at least what blocks up to `p` said, and of later blocks what
//! was visible when a series was copied; replaying those again changes nothing. A series with more
//! chunks than a payload takes is continued in the next one under the same slot.

use super::upkeep::Upkeep;
use super::{Store, lock};
use crate::checkpoint::{CheckpointWriter, remove_older};
use crate::chunk::Chunk;
use crate::codec::cursor::Cursor;
use crate::codec::{Malformed, push_uvarint};
use crate::head::shard::Copied;
use crate::index::SeriesCursor;
use crate::log_block::{LabelsDecoder, LabelsEncoder};
use firn_model::error::Error;
use firn_model::labels::LabelsRef;
use firn_model::log::DurableLog;
use firn_model::sample::TimeRange;
use std::sync::atomic::Ordering;

const VERSION: u8 = 1;

/// A payload is closed once it has so many bytes: enough that its header is nothing, few enough
/// that several threads have some each when it is read.
const PAYLOAD_BYTES: usize = 1 << 20;

/// Slots copied in one go.
const SLICE: u32 = 256;

impl Store {
    /// Writes a checkpoint of everything visible, and trims the log.
    pub(super) fn write_checkpoint(&self, upkeep: &mut Upkeep) -> Result<(), Error> {
        let start = self.env.clock.monotonic();
        let logged = self.logged_bytes.load(Ordering::Relaxed);
        // What is visible up to here is copied below, since visibility only ever grows.
        let position = self.watermark.visible_position();
        let dir = self.dir.checkpoints();
        let mut writer = CheckpointWriter::begin(&self.env, &dir, position)?;
        let mut payload = PayloadEncoder::new(self.index.next_slot());
        let end = self.index.published();
        for first in (0..end).step_by(SLICE as usize) {
            for (slot, copied) in self.copy_slice(first, end.min(first.saturating_add(SLICE)))? {
                let labels = self.index.series_labels(slot);
                payload.push(slot, labels.as_ref(), &copied, &mut |bytes| {
                    writer.push(bytes).map_err(Error::from)
                })?;
            }
        }
        payload.finish(&mut |bytes| writer.push(bytes).map_err(Error::from))?;
        let bytes = writer.finish()?;
        upkeep.checkpoint_position = position;
        self.logged_bytes.fetch_sub(logged, Ordering::Relaxed);
        self.checkpoint_bytes.store(bytes, Ordering::Relaxed);
        self.metrics.checkpoint_bytes.add(bytes);
        let took = self.env.clock.monotonic().saturating_sub(start);
        self.metrics.checkpoint_duration.observe(took);
        remove_older(&self.env, &dir, position)?;
        self.log.trim(position.next())
    }

    /// The series from slot `first` to before `end` with their visible chunks, ascending. A series
    /// of which nothing is visible is kept: its chunks may have left the retention while its birth
    /// is in the log that this checkpoint trims, and its next samples are on their way.
    fn copy_slice(&self, first: u32, end: u32) -> Result<Vec<(u32, Vec<Chunk>)>, Error> {
        let reading = self.watermark.read();
        let mut cursor = SeriesCursor::new(&self.index);
        let mut places: Vec<(usize, u32, u32)> = (first..end)
            .filter_map(|slot| {
                let (shard, local) = self.shard_and_local(cursor.place(slot)?);
                Some((shard, local, slot))
            })
            .collect();
        places.sort_unstable();
        let mut copies = Vec::with_capacity(places.len());
        for of_shard in places.chunk_by(|a, b| a.0 == b.0) {
            let shard = lock(&self.shards[of_shard[0].0]);
            for (_, local, slot) in of_shard {
                let Some(series) = shard.series_of_slot(*local, *slot) else {
                    continue;
                };
                let hidden = shard.hidden(*local, series, reading.sequence);
                let copied = Copied::of(series, TimeRange::ALL, hidden);
                copies.push((*slot, copied.unwrap_or_default()));
            }
        }
        drop(reading);
        copies.sort_unstable_by_key(|(slot, _)| *slot);
        copies
            .into_iter()
            .map(|(slot, copied)| Ok((slot, whole_chunks(copied)?)))
            .collect()
    }
}

/// The chunks, the last one without the samples that are hidden.
fn whole_chunks(copied: Copied) -> Result<Vec<Chunk>, Error> {
    let mut chunks = copied.chunks;
    if let Some(last) = chunks.last_mut()
        && copied.last_samples < last.sample_count()
    {
        *last = last
            .truncated(copied.last_samples)
            .map_err(|e| Error::new(firn_model::error::ErrorKind::Internal, e.to_string()))?;
    }
    Ok(chunks)
}

type Push<'a> = dyn FnMut(&[u8]) -> Result<(), Error> + 'a;

/// Builds payloads.
struct PayloadEncoder {
    next_slot: u32,
    bytes: Vec<u8>,
    labels: LabelsEncoder,
    last_slot: u32,
}

impl PayloadEncoder {
    fn new(next_slot: u32) -> Self {
        let mut encoder = Self {
            next_slot,
            bytes: Vec::with_capacity(PAYLOAD_BYTES + PAYLOAD_BYTES / 8),
            labels: LabelsEncoder::default(),
            last_slot: 0,
        };
        encoder.begin();
        encoder
    }

    fn begin(&mut self) {
        self.bytes.clear();
        self.bytes.push(VERSION);
        push_uvarint(&mut self.bytes, u64::from(self.next_slot));
        self.labels.clear();
        self.last_slot = 0;
    }

    /// Adds a series; full payloads go to `push`.
    fn push(
        &mut self,
        slot: u32,
        labels: LabelsRef<'_>,
        chunks: &[Chunk],
        push: &mut Push<'_>,
    ) -> Result<(), Error> {
        let mut rest = chunks;
        loop {
            let mut bytes = 0;
            let count = rest
                .iter()
                .take_while(|chunk| {
                    let fits = bytes < PAYLOAD_BYTES;
                    bytes += chunk.as_bytes().len();
                    fits
                })
                .count();
            let (now, later) = rest.split_at(count);
            push_uvarint(&mut self.bytes, u64::from(slot - self.last_slot));
            self.last_slot = slot;
            self.labels.push(&mut self.bytes, labels);
            push_uvarint(&mut self.bytes, now.len() as u64);
            for chunk in now {
                push_uvarint(&mut self.bytes, chunk.as_bytes().len() as u64);
                self.bytes.extend_from_slice(chunk.as_bytes());
            }
            if self.bytes.len() >= PAYLOAD_BYTES {
                push(&self.bytes)?;
                self.begin();
            }
            rest = later;
            if rest.is_empty() {
                return Ok(());
            }
        }
    }

    /// Gives the last payload to `push`. There is always one: it says which slots were given.
    fn finish(self, push: &mut Push<'_>) -> Result<(), Error> {
        push(&self.bytes)
    }
}

/// Calls `each` for the series of a payload, with chunks that hold what they say; returns the next
/// slot.
pub(super) fn read_payload(
    payload: &[u8],
    mut each: impl FnMut(u32, LabelsRef<'_>, Vec<Chunk>),
) -> Result<u32, Malformed> {
    let mut cursor = Cursor::new(payload);
    if cursor.byte()? != VERSION {
        return Err(Malformed("checkpoint payload of an unknown version"));
    }
    let out_of_range = Malformed("slot out of range");
    let next_slot = u32::try_from(cursor.uvarint()?).map_err(|_| out_of_range)?;
    let mut labels = LabelsDecoder::default();
    let mut slot = 0u64;
    while !cursor.is_empty() {
        slot = slot.saturating_add(cursor.uvarint()?);
        let labels = labels.read(&mut cursor)?;
        let chunks = (0..cursor.count(1)?)
            .map(|_| Chunk::from_untrusted(cursor.prefixed()?))
            .collect::<Result<Vec<Chunk>, Malformed>>()?;
        each(
            u32::try_from(slot).map_err(|_| out_of_range)?,
            labels,
            chunks,
        );
    }
    Ok(next_slot)
}

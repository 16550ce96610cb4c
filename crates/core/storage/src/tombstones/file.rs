//! The bytes of the file with the tombstones of a store.
//!
//! ```text
//! magic 8 | version u32 | in order: runs | late: count, each sequence, position, runs
//!   | blocks: count, each id, runs | crc32c u32
//! runs = count | (first, from the last before | last - first | ranges | range*)*
//! range = min, zigzag, from the one before | max - min
//! ```
//!
//! Numbers are varints except where stated. Every changed byte is detected; the decoder never
//! panics and allocates no more than the bytes can contain.

use super::runs::{DeletedRun, DeletedRuns, RunsBuilder};
use super::{LateTombstones, StoreTombstones};
use crate::block::BlockId;
use crate::encoding::cursor::DecodeCursor;
use crate::encoding::{DecodeError, push_uvarint, unzigzag, zigzag};
use firn_model::log::LogPosition;
use firn_model::sample::TimeRange;
use std::sync::Arc;

const MAGIC: &[u8; 8] = b"FIRNDEL\0";

const VERSION: u32 = 1;

/// Bytes of magic, version and checksum.
const FRAME_BYTES: usize = 16;

/// Minimum bytes of a run, of its ranges, of late tombstones, and of those of a block.
const RUN_BYTES: usize = 5;
const RANGE_BYTES: usize = 2;
const LATE_BYTES: usize = 3;
const BLOCK_BYTES: usize = 17;

/// Returns the bytes of the file. They depend only on the set.
pub(crate) fn encode(set: &StoreTombstones) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    out.extend_from_slice(&VERSION.to_le_bytes());
    push_runs(&mut out, &set.in_order);
    push_uvarint(&mut out, set.late.len() as u64);
    for late in &set.late {
        push_uvarint(&mut out, late.sequence);
        push_uvarint(&mut out, late.position.0);
        push_runs(&mut out, &late.runs);
    }
    push_uvarint(&mut out, set.blocks.len() as u64);
    for (id, runs) in &set.blocks {
        out.extend_from_slice(&id.to_bytes());
        push_runs(&mut out, runs);
    }
    let sum = crc32c::crc32c(&out);
    out.extend_from_slice(&sum.to_le_bytes());
    out
}

fn push_runs(out: &mut Vec<u8>, runs: &DeletedRuns) {
    push_uvarint(out, runs.runs().len() as u64);
    let (mut next, mut min) = (0, 0i64);
    for run in runs.runs() {
        push_uvarint(out, run.first - next);
        push_uvarint(out, run.last - run.first);
        push_uvarint(out, run.times.len() as u64);
        for range in run.times.iter() {
            push_uvarint(out, zigzag(range.min.wrapping_sub(min)));
            push_uvarint(out, range.max.wrapping_sub(range.min) as u64);
            min = range.min;
        }
        next = run.last;
    }
}

/// Returns the set in the bytes of a file, or an error if a byte differs from the output of
/// [`encode`].
pub(crate) fn decode(bytes: &[u8]) -> Result<StoreTombstones, DecodeError> {
    let length = bytes.len().checked_sub(4).filter(|n| n + 4 >= FRAME_BYTES);
    let (body, sum) = bytes.split_at(length.ok_or(DecodeError("the file is too short"))?);
    if crc32c::crc32c(body).to_le_bytes() != sum {
        return Err(DecodeError("content differs from its checksum"));
    }
    let mut cursor = DecodeCursor::new(body);
    if cursor.read_bytes(8)? != MAGIC {
        return Err(DecodeError("not a file of tombstones"));
    }
    if cursor.read_number(4)? != u64::from(VERSION) {
        return Err(DecodeError("unknown version"));
    }
    let mut set = StoreTombstones {
        in_order: read_runs(&mut cursor)?,
        ..StoreTombstones::default()
    };
    for _ in 0..cursor.read_count(LATE_BYTES)? {
        set.late.push(LateTombstones {
            sequence: cursor.read_uvarint()?,
            position: LogPosition(cursor.read_uvarint()?),
            runs: read_runs(&mut cursor)?,
        });
    }
    for _ in 0..cursor.read_count(BLOCK_BYTES)? {
        let id = cursor.read_bytes(16)?.try_into();
        let id = BlockId::from_bytes(id.map_err(|_| DecodeError("truncated"))?);
        set.blocks.insert(id, Arc::new(read_runs(&mut cursor)?));
    }
    if !cursor.is_empty() {
        return Err(DecodeError("bytes after the end"));
    }
    Ok(set)
}

fn read_runs(cursor: &mut DecodeCursor<'_>) -> Result<DeletedRuns, DecodeError> {
    const ORDER: DecodeError = DecodeError("runs of series do not ascend");
    let mut runs = RunsBuilder::default();
    let (mut before, mut min) = (None, 0i64);
    for _ in 0..cursor.read_count(RUN_BYTES)? {
        let step = cursor.read_uvarint()?;
        let first = before.unwrap_or(0u64).checked_add(step).ok_or(ORDER)?;
        if before.is_some_and(|before| first <= before) {
            return Err(ORDER);
        }
        let last = first.checked_add(cursor.read_uvarint()?).ok_or(ORDER)?;
        let mut times: Vec<TimeRange> = Vec::new();
        for _ in 0..cursor.read_count(RANGE_BYTES)? {
            min = min.wrapping_add(unzigzag(cursor.read_uvarint()?));
            let max = min.wrapping_add(cursor.read_uvarint()? as i64);
            if max < min || times.last().is_some_and(|last| min <= last.max) {
                return Err(DecodeError("deleted times do not ascend"));
            }
            times.push(TimeRange::new(min, max));
        }
        if times.is_empty() {
            return Err(DecodeError("a run without deleted times"));
        }
        let times = times.into();
        runs.push(DeletedRun { first, last, times });
        before = Some(last);
    }
    Ok(runs.finish())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seeds::seeds;
    use firn_model::env::Rng;
    use firn_model::env::sim::SimRng;

    fn example() -> StoreTombstones {
        let runs = |series: &[(u64, i64, i64)]| -> DeletedRuns {
            let series = series.iter();
            series
                .map(|(id, min, max)| (*id, TimeRange::new(*min, *max)))
                .collect()
        };
        let block = runs(&[(0, -1, 5), (1, -1, 5), (9, 0, 0)]);
        StoreTombstones {
            in_order: runs(&[(512, i64::MIN, 1_763_000_000_000)])
                .join(&runs(&[(512, i64::MAX, i64::MAX), (u64::MAX, 7, 8)])),
            late: vec![LateTombstones {
                sequence: 300,
                position: LogPosition(70_000),
                runs: runs(&[(512, i64::MIN, i64::MAX)]),
            }],
            blocks: [(BlockId::new(1, 2), Arc::new(block))].into(),
        }
    }

    #[test]
    fn file_reads_as_it_was_written() {
        for set in [StoreTombstones::default(), example()] {
            assert_eq!(decode(&encode(&set)), Ok(set));
        }
    }

    #[test]
    fn file_has_its_golden_bytes() {
        let golden = "4649524e44454c00010000000280040002ffffffffffffffffff0180bcf4d7a7b380 \
                      8080010100fffbffffffffffffff010001efffffffffffffffff010101ac02f0a204 \
                      0180040001ffffffffffffffffff01ffffffffffffffffff01010000000000010000 \
                      00000000000000020200010101060800010200416d34cb";
        let text: String = encode(&example())
            .iter()
            .map(|b| format!("{b:02x}"))
            .collect();
        let golden: String = golden.split_whitespace().collect();
        assert_eq!(text, golden);
    }

    #[test]
    fn file_with_any_changed_byte_is_rejected() {
        let bytes = encode(&example());
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert!(decode(&changed).is_err(), "at {at}");
            assert!(decode(&bytes[..at]).is_err(), "cut at {at}");
        }
    }

    /// Damage with a valid checksum must not panic either.
    #[test]
    fn decoder_takes_any_bytes_or_rejects_them() {
        let bytes = encode(&example());
        for seed in seeds(20_000) {
            let rng = SimRng::new(seed);
            let mut body = bytes[..bytes.len() - 4].to_vec();
            for _ in 0..1 + rng.next_below(3) {
                let at = 12 + rng.next_below(body.len() as u64 - 12) as usize;
                body[at] = rng.next_u64() as u8;
            }
            body.truncate(12 + rng.next_below(body.len() as u64 - 11) as usize);
            let sum = crc32c::crc32c(&body);
            body.extend_from_slice(&sum.to_le_bytes());
            if let Ok(set) = decode(&body) {
                assert_eq!(decode(&encode(&set)), Ok(set), "seed {seed}");
            }
        }
    }
}

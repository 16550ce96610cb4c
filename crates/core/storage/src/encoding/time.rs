//! Encoding of timestamps as delta of delta: one byte each for a steady scrape interval, and a
//! fraction of a byte for an exact one.
//!
//! ```text
//! 00..bf       zigzag of the change, -96..=95
//! c0..df       a run of 1..=32 unchanged distances; the last run grows in place
//! e0..ef XX    zigzag of the change, 12 bits
//! f0..f7 X*    zigzag of the change, 1..=8 bytes
//! ```
//!
//! Arithmetic wraps, so every pair of timestamps is representable.

use super::DecodeError;
use super::cursor::DecodeCursor;
use super::sink::EncodeSink;
use super::varint::{byte_len, unzigzag, zigzag};
use firn_model::sample::TimestampMs;

const RUN: u8 = 0xc0;
const RUN_MAX: u8 = 32;
const TWELVE_BITS: u8 = 0xe0;
const BYTES: u8 = 0xf0;
const BYTES_LAST: u8 = 0xf7;

/// A decoded operation of the time encoding: the next deltas, relative to the newest one.
#[derive(Clone, Copy, Debug)]
pub(crate) enum TimeDeltaOp {
    /// This number of timestamps with an unchanged delta.
    Repeats(u32),
    /// The zigzag of a change of the delta.
    Change(u64),
}

impl TimeDeltaOp {
    /// Decodes the operation `op` and the bytes that belong to it.
    #[inline(always)]
    pub(crate) fn read(op: u8, cursor: &mut DecodeCursor<'_>) -> Result<Self, DecodeError> {
        Ok(Self::Change(match op {
            ..RUN => u64::from(op),
            RUN..TWELVE_BITS => return Ok(Self::Repeats(u32::from(op - RUN) + 1)),
            TWELVE_BITS..BYTES => u64::from(op & 0x0f) << 8 | u64::from(cursor.read_byte()?),
            BYTES..=BYTES_LAST => cursor.read_number(usize::from(op - BYTES) + 1)?,
            _ => return Err(DecodeError("unknown time code")),
        }))
    }
}

/// Appends the zigzag of a change of the delta. `run_at` is the position of the growing run in
/// `out`, zero for none.
#[inline]
pub(crate) fn push_change(out: &mut impl EncodeSink, run_at: &mut u16, change: u64) {
    if change == 0 {
        return push_repeat(out, run_at, RUN, RUN_MAX);
    }
    *run_at = 0;
    if change < u64::from(RUN) {
        out.put(change as u8);
    } else if change < 1 << 12 {
        out.put(TWELVE_BITS | (change >> 8) as u8);
        out.put(change as u8);
    } else {
        let len = byte_len(change);
        out.put(BYTES + len as u8 - 1);
        out.put_low(change, len);
    }
}

/// The state that the next timestamp is encoded against. An encoder and its decoder go through the
/// same states.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TimeState {
    /// The newest timestamp, to which the next delta is added.
    pub(crate) time: TimestampMs,
    /// The difference between the newest timestamp and the one before.
    pub(crate) delta: i64,
}

impl TimeState {
    /// Returns the state before the first timestamp, which costs one byte if it is equal to `time`.
    pub(crate) fn from_start(time: TimestampMs) -> Self {
        Self { time, delta: 0 }
    }

    /// Appends `time`. `run_at` is the position of the growing run in `out`, zero for none.
    #[inline]
    pub(crate) fn push(&mut self, out: &mut impl EncodeSink, run_at: &mut u16, time: TimestampMs) {
        let delta = time.wrapping_sub(self.time);
        let change = zigzag(delta.wrapping_sub(self.delta));
        *self = Self { time, delta };
        push_change(out, run_at, change);
    }

    /// Advances by one unchanged delta and returns the timestamp.
    #[inline]
    pub(crate) fn repeat_delta(&mut self) -> TimestampMs {
        self.time = self.time.wrapping_add(self.delta);
        self.time
    }

    /// Decodes and applies an operation. For a run, returns how often [`TimeState::repeat_delta`]
    /// is due, and leaves the state unchanged; otherwise advances the state by one timestamp and
    /// returns zero.
    #[inline(always)]
    pub(crate) fn apply_op(
        &mut self,
        op: u8,
        cursor: &mut DecodeCursor<'_>,
    ) -> Result<u32, DecodeError> {
        // The fast path for nearly all samples, whose operation is one byte.
        if op < RUN {
            self.change_delta(u64::from(op));
            return Ok(0);
        }
        if op < TWELVE_BITS {
            return Ok(u32::from(op - RUN) + 1);
        }
        match TimeDeltaOp::read(op, cursor)? {
            TimeDeltaOp::Repeats(repeats) => Ok(repeats),
            TimeDeltaOp::Change(change) => {
                self.change_delta(change);
                Ok(0)
            }
        }
    }

    #[inline(always)]
    fn change_delta(&mut self, change: u64) {
        self.delta = self.delta.wrapping_add(unzigzag(change));
        self.repeat_delta();
    }
}

/// Counts one more repeat: in the run at `run_at`, or in a new one.
#[inline]
pub(super) fn push_repeat(out: &mut impl EncodeSink, run_at: &mut u16, run: u8, run_max: u8) {
    if *run_at != 0 && out.increment(usize::from(*run_at), run + run_max - 1) {
        return;
    }
    // A run beyond the range of the offset is not recorded, so it does not grow any more.
    *run_at = u16::try_from(out.position()).unwrap_or(0);
    out.put(run);
}

//! Start timestamps of the samples in a chunk (`tsdb/chunkenc/st.go`).
//!
//! The highest bit of a header byte is set if the first sample has one; the other seven bits
//! contain the index of the first sample whose start differs (0: none). From there on, each sample
//! is followed by the distance of its start from the previous sample's timestamp: first the
//! distance itself, then its changes.

use super::bits::{XorBitReader, XorBitWriter};
use crate::error::MalformedTsdbBytes;
use firn_model::sample::{START_UNKNOWN, TimestampMs};

/// Largest index of the sample at which starts begin to differ, limited by seven bits.
const CHANGE_MAX: u16 = 0x7f;

/// Reads the start timestamps of a chunk, in the order of its samples.
#[derive(Clone, Debug)]
pub(super) struct StartTimeReader {
    has_first: bool,
    change: u16,
    distance: i64,
    start: TimestampMs,
}

impl StartTimeReader {
    /// Returns a reader for a chunk with this header byte.
    pub fn new(header: u8) -> Self {
        Self {
            has_first: header & 0x80 != 0,
            change: u16::from(header & 0x7f),
            distance: 0,
            start: START_UNKNOWN,
        }
    }

    /// Reads the start timestamp of the sample `index`, given its timestamp `time` and the previous
    /// one `before`.
    pub fn read(
        &mut self,
        bits: &mut XorBitReader<'_>,
        index: u16,
        time: TimestampMs,
        before: TimestampMs,
    ) -> Result<TimestampMs, MalformedTsdbBytes> {
        if index == 0 {
            if self.has_first {
                self.start = time.wrapping_sub(bits.read_varint()?);
            }
        } else if self.change > 0 && index >= self.change {
            let number = bits.read_varbit()?;
            self.distance = if index == self.change {
                number
            } else {
                self.distance.wrapping_add(number)
            };
            self.start = before.wrapping_sub(self.distance);
        }
        Ok(self.start)
    }
}

/// Writes the start timestamps of a chunk, in the order of its samples.
#[derive(Clone, Debug, Default)]
pub(super) struct StartTimeWriter {
    has_first: bool,
    change: u16,
    distance: i64,
    start: TimestampMs,
}

impl StartTimeWriter {
    /// Writes the start timestamp of the sample `index`, given its timestamp `time` and the
    /// previous one `before`.
    pub fn write(
        &mut self,
        out: &mut XorBitWriter,
        index: u16,
        start: TimestampMs,
        time: TimestampMs,
        before: TimestampMs,
    ) {
        let distance = before.wrapping_sub(start);
        if index == 0 {
            if start != START_UNKNOWN {
                out.write_varint(time.wrapping_sub(start));
                self.has_first = true;
            }
        } else if self.change > 0 {
            out.write_varbit(distance.wrapping_sub(self.distance));
            self.distance = distance;
        } else if start != self.start || index == CHANGE_MAX {
            self.change = index;
            out.write_varbit(distance);
            self.distance = distance;
        }
        self.start = start;
    }

    /// Returns the header byte.
    pub fn header(&self) -> u8 {
        u8::from(self.has_first) << 7 | self.change as u8
    }
}

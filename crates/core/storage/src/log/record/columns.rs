//! The columns of a record: slots, times, values, and start timestamps if there are any.
//!
//! ```text
//! rows   = count varint | slots | times | values | starts        each: bytes varint, bytes
//! slots  = time codes of `encoding::time`; neighbours in order of creation are runs
//! times  = time codes; the samples of a target share one
//! values = value codes of `encoding::value`
//! starts = empty if no row has one, else time codes
//! ```

use super::decimal_of;
use crate::encoding::cursor::DecodeCursor;
use crate::encoding::time::TimeState;
use crate::encoding::value::ValueState;
use crate::encoding::{DecodeError, push_prefixed};
use firn_model::log::FloatRows;

/// Maximum number of rows for which a column reserves memory in advance; requests have thousands.
const ROWS_RESERVED: u64 = 1 << 16;

/// Appends a column of numbers to `out`. `column` is working memory.
pub(super) fn push_numbers(
    numbers: impl Iterator<Item = i64>,
    column: &mut Vec<u8>,
    out: &mut Vec<u8>,
) {
    column.clear();
    let (mut state, mut run_at) = (TimeState::default(), 0);
    for number in numbers {
        state.push(column, &mut run_at, number);
    }
    push_prefixed(out, column);
}

/// Sets `out` to the encoded values, each relative to the previous row.
pub(super) fn push_values(floats: &FloatRows, out: &mut Vec<u8>) {
    out.clear();
    let (mut state, mut run_at) = (ValueState::default(), 0);
    for (i, value) in floats.values.iter().enumerate() {
        state.push_with_int(out, &mut run_at, *value, decimal_of(floats, i));
    }
}

fn finish(cursor: &DecodeCursor<'_>) -> Result<(), DecodeError> {
    if cursor.is_empty() {
        Ok(())
    } else {
        Err(DecodeError("log block has more in a column than rows"))
    }
}

/// Decodes a column of integers: slots, times or start timestamps.
pub(super) struct IntegerColumnReader<'a> {
    cursor: DecodeCursor<'a>,
    state: TimeState,
}

impl<'a> IntegerColumnReader<'a> {
    /// Returns a reader of the column in `bytes`.
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self {
            cursor: DecodeCursor::new(bytes),
            state: TimeState::default(),
        }
    }

    /// Appends `count` numbers to `into`. Returns an error if the column contains more or fewer.
    pub(super) fn read<T>(
        &mut self,
        count: u64,
        into: &mut Vec<T>,
        number: impl Fn(i64) -> Result<T, DecodeError>,
    ) -> Result<(), DecodeError> {
        into.reserve(count.min(ROWS_RESERVED) as usize);
        let mut left = count;
        while left > 0 {
            let op = self.cursor.read_byte()?;
            let repeats = u64::from(self.state.apply_op(op, &mut self.cursor)?);
            if repeats == 0 {
                into.push(number(self.state.time)?);
                left -= 1;
                continue;
            }
            if repeats > left {
                return Err(DecodeError("log block has more in a column than rows"));
            }
            for _ in 0..repeats {
                into.push(number(self.state.repeat_delta())?);
            }
            left -= repeats;
        }
        finish(&self.cursor)
    }
}

/// Decodes values that are encoded relative to each other.
pub(super) struct ValueColumnReader<'a> {
    cursor: DecodeCursor<'a>,
    state: ValueState,
    repeats: u32,
}

impl<'a> ValueColumnReader<'a> {
    /// Returns a reader of the column in `bytes`.
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self {
            cursor: DecodeCursor::new(bytes),
            state: ValueState::default(),
            repeats: 0,
        }
    }

    /// Returns the next value of the column, or an error if the bytes are malformed.
    #[inline]
    pub(super) fn next(&mut self) -> Result<f64, DecodeError> {
        if self.repeats == 0 {
            let op = self.cursor.read_byte()?;
            self.repeats = self.state.apply_op(op, &mut self.cursor)?;
        }
        self.repeats = self.repeats.saturating_sub(1);
        Ok(f64::from_bits(self.state.bits))
    }

    /// Returns an error if bytes or repeats remain after the last value.
    pub(super) fn finish(&self) -> Result<(), DecodeError> {
        finish(&self.cursor)
    }
}

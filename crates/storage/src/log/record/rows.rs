//! Float samples in columns: slots, times, values, and start timestamps where there are any.
//!
//! ```text
//! rows   = count varint | slots | times | values | starts        each: bytes varint, bytes
//! slots  = time codes of `encoding::time`; neighbours in order of creation are runs
//! times  = time codes; the samples of a target share one
//! values = value codes of `encoding::value`
//! starts = empty if no row has one, else time codes
//! ```

use crate::encoding::cursor::Cursor;
use crate::encoding::decimal::Scale;
use crate::encoding::time::TimeState;
use crate::encoding::value::ValueState;
use crate::encoding::{Malformed, push_prefixed, push_uvarint};
use firn_model::sample::{START_UNKNOWN, TimestampMs};

/// A float sample.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    /// Its series.
    pub(crate) slot: u32,
    /// Its time.
    pub(crate) time: TimestampMs,
    /// Its start timestamp.
    pub(crate) start: TimestampMs,
    /// Its value.
    pub(crate) value: f64,
}

/// A column of numbers.
#[derive(Debug, Default)]
struct Numbers {
    bytes: Vec<u8>,
    state: TimeState,
    run_at: u16,
}

impl Numbers {
    #[inline]
    fn push(&mut self, number: i64) {
        self.state.push(&mut self.bytes, &mut self.run_at, number);
    }

    fn finish(&mut self, out: &mut Vec<u8>) {
        push_prefixed(out, &self.bytes);
        self.bytes.clear();
        self.state = TimeState::default();
        self.run_at = 0;
    }
}

/// Builds the columns.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    count: u64,
    slots: Numbers,
    times: Numbers,
    starts: Numbers,
    has_starts: bool,
    values: Vec<u8>,
    value: ValueState,
    value_run_at: u16,
}

impl Rows {
    /// Adds a row; `known` is the value's scale and integer, if it has them.
    #[inline]
    pub(crate) fn push(&mut self, row: Row, known: Option<(Scale, i64)>) {
        if row.start != START_UNKNOWN || self.has_starts {
            self.push_start(row.start);
        }
        self.count += 1;
        self.slots.push(i64::from(row.slot));
        self.times.push(row.time);
        self.value
            .push_known(&mut self.values, &mut self.value_run_at, row.value, known);
    }

    #[cold]
    fn push_start(&mut self, start: TimestampMs) {
        if !self.has_starts {
            self.has_starts = true;
            for _ in 0..self.count {
                self.starts.push(START_UNKNOWN);
            }
        }
        self.starts.push(start);
    }

    /// Whether there is no row.
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Bytes encoded so far.
    pub(super) fn memory_bytes(&self) -> usize {
        let numbers = [&self.slots, &self.times, &self.starts];
        numbers.iter().map(|n| n.bytes.len()).sum::<usize>() + self.values.len()
    }

    /// Appends the columns to `out` and empties them.
    pub(super) fn finish(&mut self, out: &mut Vec<u8>) {
        push_uvarint(out, self.count);
        self.slots.finish(out);
        self.times.finish(out);
        push_prefixed(out, &self.values);
        self.starts.finish(out);
        self.count = 0;
        self.has_starts = false;
        self.values.clear();
        self.value = ValueState::default();
        self.value_run_at = 0;
    }
}

/// A column of values that is read from its beginning.
pub(super) trait ReadValues<'a> {
    /// The column in `bytes`.
    fn new(bytes: &'a [u8]) -> Self;

    /// The next value.
    fn next(&mut self) -> Result<f64, Malformed>;

    /// Checks that nothing is left.
    fn finish(&self) -> Result<(), Malformed>;
}

/// Reads the columns and calls `each` for the rows.
pub(super) fn read<'a, V: ReadValues<'a>>(
    cursor: &mut Cursor<'a>,
    mut each: impl FnMut(Row),
) -> Result<(), Malformed> {
    let count = cursor.uvarint()?;
    let mut slots = NumberReader::new(cursor.prefixed()?);
    let mut times = NumberReader::new(cursor.prefixed()?);
    let mut values = V::new(cursor.prefixed()?);
    let mut starts = NumberReader::new(cursor.prefixed()?);
    let has_starts = !starts.cursor.is_empty();
    for _ in 0..count {
        each(Row {
            slot: slots.next_slot()?,
            time: times.next()?,
            start: if has_starts {
                starts.next()?
            } else {
                START_UNKNOWN
            },
            value: values.next()?,
        });
    }
    slots.finish()?;
    times.finish()?;
    values.finish()?;
    starts.finish()
}

fn finish(cursor: &Cursor<'_>) -> Result<(), Malformed> {
    match cursor.is_empty() {
        true => Ok(()),
        false => Err(Malformed("log block has more in a column than rows")),
    }
}

/// Reads slots, times or start timestamps.
pub(super) struct NumberReader<'a> {
    cursor: Cursor<'a>,
    state: TimeState,
    repeats: u32,
}

impl<'a> NumberReader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self {
            cursor: Cursor::new(bytes),
            state: TimeState::default(),
            repeats: 0,
        }
    }

    #[inline]
    fn next(&mut self) -> Result<i64, Malformed> {
        if self.repeats == 0 {
            let op = self.cursor.byte()?;
            self.repeats = self.state.apply(op, &mut self.cursor)?;
            if self.repeats == 0 {
                return Ok(self.state.time);
            }
        }
        self.repeats -= 1;
        Ok(self.state.repeat())
    }

    #[inline]
    pub(super) fn next_slot(&mut self) -> Result<u32, Malformed> {
        u32::try_from(self.next()?).map_err(|_| Malformed("slot out of range"))
    }

    pub(super) fn finish(&self) -> Result<(), Malformed> {
        finish(&self.cursor)
    }
}

/// Reads values as they are logged.
pub(super) struct ValueReader<'a> {
    cursor: Cursor<'a>,
    state: ValueState,
    repeats: u32,
}

impl ValueReader<'_> {
    /// Scale and integer of the newest value, if it was written so.
    #[inline]
    pub(super) fn known(&self) -> Option<(Scale, i64)> {
        self.state.known()
    }
}

impl<'a> ReadValues<'a> for ValueReader<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        Self {
            cursor: Cursor::new(bytes),
            state: ValueState::default(),
            repeats: 0,
        }
    }

    #[inline]
    fn next(&mut self) -> Result<f64, Malformed> {
        if self.repeats == 0 {
            let op = self.cursor.byte()?;
            self.repeats = self.state.apply(op, &mut self.cursor)?;
        }
        self.repeats = self.repeats.saturating_sub(1);
        Ok(f64::from_bits(self.state.bits))
    }

    fn finish(&self) -> Result<(), Malformed> {
        finish(&self.cursor)
    }
}

/// Reads plain values.
pub(super) struct PlainReader<'a>(Cursor<'a>);

impl<'a> ReadValues<'a> for PlainReader<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        Self(Cursor::new(bytes))
    }

    #[inline]
    fn next(&mut self) -> Result<f64, Malformed> {
        Ok(f64::from_bits(self.0.u64()?))
    }

    fn finish(&self) -> Result<(), Malformed> {
        finish(&self.0)
    }
}

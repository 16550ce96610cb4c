//! The parts of a record around the values of its floats, for a log that writes those in another
//! way.
//!
//! A record whose values are *plain* has bit 7 of its version set, and eight bytes for each value,
//! little endian. The store appends no such record: the local log hands it out when it reads its
//! segments, since to code values only for replay to decode them again would cost more than the
//! rest of reading.

use super::rows::{NumberReader, ReadValues, ValueReader};
use super::{PLAIN, VERSION, VERSION_WITH_EXEMPLARS};
use crate::encoding::cursor::Cursor;
use crate::encoding::decimal::Scale;
use crate::encoding::{Malformed, push_prefixed, push_uvarint};

/// Rows of a record that has an outline: plain values take 8 MiB at most. Requests have thousands.
pub(crate) const ROWS_MAX: usize = 1 << 20;

/// The parts of a record; see the module.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outline<'a> {
    /// All before the length of the values.
    before: &'a [u8],
    count: u64,
    slots: &'a [u8],
    values: &'a [u8],
    behind: &'a [u8],
}

impl<'a> Outline<'a> {
    /// Finds the parts of a record as it was appended.
    pub(crate) fn of(payload: &'a [u8]) -> Result<Self, Malformed> {
        let mut cursor = Cursor::new(payload);
        match cursor.byte()? {
            VERSION => {}
            VERSION_WITH_EXEMPLARS => {
                cursor.prefixed()?;
            }
            _ => return Err(Malformed("log block of an unknown version")),
        }
        cursor.uvarint()?;
        cursor.prefixed()?;
        let count = cursor.uvarint()?;
        let slots = cursor.prefixed()?;
        cursor.prefixed()?;
        let before = &payload[..payload.len() - cursor.len()];
        Ok(Self {
            before,
            count,
            slots,
            values: cursor.prefixed()?,
            behind: cursor.rest(),
        })
    }

    /// How many floats there are; an error if that is more than [`ROWS_MAX`].
    pub(crate) fn rows(&self) -> Result<usize, Malformed> {
        let rows = usize::try_from(self.count).unwrap_or(usize::MAX);
        match rows {
            ..=ROWS_MAX => Ok(rows),
            _ => Err(Malformed("more rows than a log block has")),
        }
    }

    /// Appends the slots of `rows` floats to `into`.
    pub(crate) fn slots(&self, rows: usize, into: &mut Vec<u32>) -> Result<(), Malformed> {
        let mut slots = NumberReader::new(self.slots);
        into.reserve(rows);
        for _ in 0..rows {
            into.push(slots.next_slot()?);
        }
        slots.finish()
    }

    /// Calls `each` with the bits of each of `rows` values, and with scale and integer if the value
    /// was written so.
    pub(crate) fn values(
        &self,
        rows: usize,
        mut each: impl FnMut(u64, Option<(Scale, i64)>),
    ) -> Result<(), Malformed> {
        let mut values = ValueReader::new(self.values);
        for _ in 0..rows {
            let bits = values.next()?.to_bits();
            each(bits, values.known());
        }
        values.finish()
    }

    /// The bytes in the place of the values, in whatever form they are.
    pub(crate) fn value_bytes(&self) -> &'a [u8] {
        self.values
    }

    /// Appends the record with something else in the place of the values.
    pub(crate) fn push_with_values(&self, into: &mut Vec<u8>, values: &[u8]) {
        into.extend_from_slice(self.before);
        push_prefixed(into, values);
        into.extend_from_slice(self.behind);
    }

    /// The record with plain values, as far as the `rows` values that are to be appended next.
    pub(crate) fn begin_plain(&self, rows: usize) -> Vec<u8> {
        let bytes = rows * size_of::<u64>();
        let mut out = Vec::with_capacity(self.before.len() + bytes + self.behind.len() + 10);
        out.extend_from_slice(self.before);
        if let Some(version) = out.first_mut() {
            *version |= PLAIN;
        }
        push_uvarint(&mut out, bytes as u64);
        out
    }

    /// Appends what stands behind the values.
    pub(crate) fn end_plain(&self, into: &mut Vec<u8>) {
        into.extend_from_slice(self.behind);
    }
}

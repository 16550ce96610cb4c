//! Tables of units, which locate the units of a section.
//!
//! ```text
//! table = units varint | first numbers | offsets | lengths | crc32c u32 of each
//! ```
//!
//! The lists are integer columns. The unit of measure of the first numbers depends on the section:
//! series, terms or bytes of posting lists. Invariant: first numbers ascend.

use super::numbers;
use crate::encoding::DecodeError;
use crate::encoding::cursor::DecodeCursor;
use crate::encoding::push_uvarint;
use crate::page::planner::IntRunPlanner;

/// The location and checksum of a unit, with the number of its first item.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct UnitEntry {
    pub(crate) first: u64,
    pub(crate) offset: u64,
    pub(crate) bytes: u32,
    pub(crate) crc: u32,
}

/// The entries of all units of a section, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct UnitTable(Vec<UnitEntry>);

impl UnitTable {
    /// Appends an entry; its first number must be greater than that of the entry before.
    pub(crate) fn push(&mut self, entry: UnitEntry) {
        debug_assert!(self.0.last().is_none_or(|last| last.first < entry.first));
        self.0.push(entry);
    }

    /// Returns the number of units.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the entry of the unit with this index.
    pub(crate) fn get(&self, index: usize) -> Option<&UnitEntry> {
        self.0.get(index)
    }

    /// Returns the entries in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &UnitEntry> {
        self.0.iter()
    }

    /// Returns the index of the unit that contains the item with this number, or `None` if it is
    /// before the first unit.
    pub(crate) fn find(&self, number: u64) -> Option<usize> {
        self.0
            .partition_point(|unit| unit.first <= number)
            .checked_sub(1)
    }

    /// Returns the number of bytes that the table takes in memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.0.capacity() * size_of::<UnitEntry>()
    }

    /// Appends the encoded table to `out`, with `planner` choosing the encoding of the integer
    /// columns.
    pub(crate) fn encode(&self, planner: &mut IntRunPlanner, out: &mut Vec<u8>) {
        push_uvarint(out, self.0.len() as u64);
        let mut list = |number: fn(&UnitEntry) -> u64| {
            numbers::push_numbers(out, planner, self.0.iter().map(number));
        };
        list(|unit| unit.first);
        list(|unit| unit.offset);
        list(|unit| unit.bytes.into());
        for unit in &self.0 {
            out.extend_from_slice(&unit.crc.to_le_bytes());
        }
    }

    /// Decodes a table. Rejects units that end after the offset `end` and first numbers that do not
    /// ascend.
    pub(crate) fn decode(cursor: &mut DecodeCursor<'_>, end: u64) -> Result<Self, DecodeError> {
        let count = cursor.read_count(4)?;
        let firsts = numbers::read_numbers(cursor, count)?;
        let offsets = numbers::read_numbers(cursor, count)?;
        let lengths = numbers::read_numbers(cursor, count)?;
        let mut units = Vec::with_capacity(count);
        for ((first, offset), bytes) in firsts.into_iter().zip(offsets).zip(lengths) {
            let entry = UnitEntry {
                first,
                offset,
                bytes: u32::try_from(bytes).map_err(|_| DecodeError("unit too long"))?,
                crc: cursor.read_number(4)? as u32,
            };
            if offset.checked_add(bytes).is_none_or(|behind| behind > end) {
                return Err(DecodeError("unit outside of the file"));
            }
            let last: Option<&UnitEntry> = units.last();
            if last.is_some_and(|last| last.first >= entry.first) {
                return Err(DecodeError("units out of order"));
            }
            units.push(entry);
        }
        Ok(Self(units))
    }
}

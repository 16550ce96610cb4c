//! Tables of units: where the units of a section lie.
//!
//! ```text
//! table = units varint | first numbers | offsets | lengths | crc32c u32 of each
//! ```
//!
//! Numbers are integer columns. What a first number counts is the section's: series, terms, bytes
//! of postings. Invariant: first numbers ascend.

use super::numbers;
use crate::encoding::Malformed;
use crate::encoding::cursor::Cursor;
use crate::encoding::push_uvarint;
use crate::page::planner::Planner;

/// A unit: its first number, and where its bytes lie.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct UnitEntry {
    pub(crate) first: u64,
    pub(crate) offset: u64,
    pub(crate) bytes: u32,
    pub(crate) crc: u32,
}

/// The units of a section, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct UnitTable(Vec<UnitEntry>);

impl UnitTable {
    /// Adds a unit behind the others.
    pub(crate) fn push(&mut self, entry: UnitEntry) {
        debug_assert!(self.0.last().is_none_or(|last| last.first < entry.first));
        self.0.push(entry);
    }

    /// How many.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The unit with this index.
    pub(crate) fn get(&self, index: usize) -> Option<&UnitEntry> {
        self.0.get(index)
    }

    /// All of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &UnitEntry> {
        self.0.iter()
    }

    /// The index of the unit that holds what has this number.
    pub(crate) fn find(&self, number: u64) -> Option<usize> {
        self.0
            .partition_point(|unit| unit.first <= number)
            .checked_sub(1)
    }

    /// Bytes of memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.0.capacity() * size_of::<UnitEntry>()
    }

    /// Appends the table.
    pub(crate) fn encode(&self, planner: &mut Planner, out: &mut Vec<u8>) {
        push_uvarint(out, self.0.len() as u64);
        let mut list = |number: fn(&UnitEntry) -> u64| {
            numbers::push(out, planner, self.0.iter().map(number));
        };
        list(|unit| unit.first);
        list(|unit| unit.offset);
        list(|unit| unit.bytes.into());
        for unit in &self.0 {
            out.extend_from_slice(&unit.crc.to_le_bytes());
        }
    }

    /// Reads a table of units that lie in front of `end`.
    pub(crate) fn decode(cursor: &mut Cursor<'_>, end: u64) -> Result<Self, Malformed> {
        let count = cursor.count(4)?;
        let firsts = numbers::read(cursor, count)?;
        let offsets = numbers::read(cursor, count)?;
        let lengths = numbers::read(cursor, count)?;
        let mut units = Vec::with_capacity(count);
        for ((first, offset), bytes) in firsts.into_iter().zip(offsets).zip(lengths) {
            let entry = UnitEntry {
                first,
                offset,
                bytes: u32::try_from(bytes).map_err(|_| Malformed("unit too long"))?,
                crc: cursor.number(4)? as u32,
            };
            if offset.checked_add(bytes).is_none_or(|behind| behind > end) {
                return Err(Malformed("unit outside of the file"));
            }
            let last: Option<&UnitEntry> = units.last();
            if last.is_some_and(|last| last.first >= entry.first) {
                return Err(Malformed("units out of order"));
            }
            units.push(entry);
        }
        Ok(Self(units))
    }
}

//! The sections of label names and term units. They are kept in memory and lead from a matcher to
//! the units that it needs.
//!
//! ```text
//! labels = labels varint | labels x label
//! label  = name | values varint | series varint | list offset varint | list bytes varint
//! terms  = table of units | first value of each unit
//! ```
//!
//! Names and values are length-prefixed. Labels are sorted by name. The list of a label contains
//! the series that have the label with any value.

use super::terms::TermPostings;
use super::unit::UnitTable;
use crate::encoding::DecodeError;
use crate::encoding::cursor::DecodeCursor;
use crate::encoding::{push_prefixed, push_uvarint};
use crate::page::planner::IntRunPlanner;
use std::ops::Range;

/// A label name of a block, with its range of terms and the series that have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BlockLabel {
    pub(crate) name: Box<str>,
    /// Numbers of its terms, one per value.
    pub(crate) terms: Range<u32>,
    /// Posting list of the series that have the label.
    pub(crate) present: TermPostings,
}

impl BlockLabel {
    /// Returns the number of distinct values of the label.
    pub(crate) fn value_count(&self) -> u32 {
        self.terms.end - self.terms.start
    }

    /// Returns the term of the value with this number, or `None` if there is no such value.
    pub(crate) fn value_term(&self, value: i64) -> Option<u32> {
        let value = u32::try_from(value).ok()?;
        (value < self.value_count()).then(|| self.terms.start + value)
    }
}

/// All labels of a block, sorted by name. The number of a label is its index in this table.
#[derive(Clone, Debug, Default)]
pub(crate) struct LabelTable(Vec<BlockLabel>);

impl LabelTable {
    /// Appends a label. Names must ascend, and its terms must follow those of the label before.
    pub(crate) fn push(&mut self, label: BlockLabel) {
        self.0.push(label);
    }

    /// Returns the number of terms of all labels, which is also the end of the last label's range.
    pub(crate) fn term_count(&self) -> u32 {
        self.0.last().map_or(0, |last| last.terms.end)
    }

    /// Returns the number of the label named `name`, or `None` if no series has it.
    pub(crate) fn find(&self, name: &str) -> Option<u32> {
        let found = self.0.binary_search_by(|label| (*label.name).cmp(name));
        found.ok().map(|at| at as u32)
    }

    /// Returns the label with this number.
    pub(crate) fn get(&self, label: u32) -> Option<&BlockLabel> {
        self.0.get(label as usize)
    }

    /// Returns the label whose range of terms contains `term`, or `None` if there is no such term.
    pub(crate) fn find_by_term(&self, term: u32) -> Option<&BlockLabel> {
        let at = self.0.partition_point(|label| label.terms.end <= term);
        self.0.get(at)
    }

    /// Returns all labels, sorted by name.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &BlockLabel> {
        self.0.iter()
    }

    /// Returns the number of bytes that the table takes in memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        let names: usize = self.0.iter().map(|label| label.name.len()).sum();
        names + self.0.capacity() * size_of::<BlockLabel>()
    }

    /// Encodes the section that [`LabelTable::decode`] reads.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        push_uvarint(&mut out, self.0.len() as u64);
        for label in &self.0 {
            push_prefixed(&mut out, label.name.as_bytes());
            push_uvarint(&mut out, label.value_count().into());
            push_uvarint(&mut out, label.present.series.into());
            push_uvarint(&mut out, label.present.offset);
            push_uvarint(&mut out, label.present.bytes.into());
        }
        out
    }

    /// Decodes the section of a block with `series` series. Rejects names that do not ascend and
    /// impossible counts.
    pub(crate) fn decode(bytes: &[u8], series: u32) -> Result<Self, DecodeError> {
        let mut cursor = DecodeCursor::new(bytes);
        let count = cursor.read_count(6)?;
        let mut table = Self(Vec::with_capacity(count));
        for _ in 0..count {
            let name = std::str::from_utf8(cursor.read_prefixed()?);
            let name = name.map_err(|_| DecodeError("label name is not UTF-8"))?;
            if table.0.last().is_some_and(|last| &*last.name >= name) || name.is_empty() {
                return Err(DecodeError("label names out of order"));
            }
            let mut short = || {
                u32::try_from(cursor.read_uvarint()?).map_err(|_| DecodeError("number too large"))
            };
            let start = table.term_count();
            let end = start.checked_add(short()?);
            let label = BlockLabel {
                name: name.into(),
                terms: start..end.ok_or(DecodeError("too many terms"))?,
                present: TermPostings {
                    series: short()?,
                    offset: cursor.read_uvarint()?,
                    bytes: u32::try_from(cursor.read_uvarint()?)
                        .map_err(|_| DecodeError("number too large"))?,
                },
            };
            let has_series = (1..=series).contains(&label.present.series);
            if !has_series || label.value_count() == 0 || label.value_count() > label.present.series
            {
                return Err(DecodeError("label with no values or too many values"));
            }
            table.push(label);
        }
        if cursor.is_empty() {
            Ok(table)
        } else {
            Err(DecodeError("bytes after the last label"))
        }
    }
}

/// The units of terms, with the first value of each.
#[derive(Clone, Debug, Default)]
pub(crate) struct TermsTable {
    pub(crate) units: UnitTable,
    firsts: Vec<Box<[u8]>>,
}

impl TermsTable {
    /// Appends the first value of the unit that was last added to `units`.
    pub(crate) fn push_first_value(&mut self, value: Vec<u8>) {
        self.firsts.push(value.into());
    }

    /// Encodes the section that [`TermsTable::decode`] reads.
    pub(crate) fn encode(&self, planner: &mut IntRunPlanner) -> Vec<u8> {
        let mut out = Vec::new();
        self.units.encode(planner, &mut out);
        self.firsts
            .iter()
            .for_each(|value| push_prefixed(&mut out, value));
        out
    }

    /// Decodes a section whose units all end at or before the offset `end`.
    pub(crate) fn decode(bytes: &[u8], end: u64) -> Result<Self, DecodeError> {
        let mut cursor = DecodeCursor::new(bytes);
        let units = UnitTable::decode(&mut cursor, end)?;
        let firsts = (0..units.len()).map(|_| cursor.read_prefixed().map(Box::from));
        let firsts = firsts.collect::<Result<_, _>>()?;
        if cursor.is_empty() {
            Ok(Self { units, firsts })
        } else {
            Err(DecodeError("bytes after the last unit of terms"))
        }
    }

    /// Returns the index of the only unit that can contain `value` of the label, or `None` for a
    /// corrupt table.
    pub(crate) fn find(&self, label: &BlockLabel, value: &[u8]) -> Option<usize> {
        let first = self.units.find(label.terms.start.into())?;
        let end = self.units.find(u64::from(label.terms.end) - 1)? + 1;
        // The first unit may begin with terms of the preceding label; the others begin with terms
        // of this one.
        let others = self.firsts.get(first + 1..end)?;
        Some(first + others.partition_point(|first| **first <= *value))
    }

    /// Returns a range of terms of the label that contains every value with `prefix`, rounded to
    /// whole units.
    pub(crate) fn find_prefix_range(&self, label: &BlockLabel, prefix: &[u8]) -> Range<u32> {
        let units = self.units.find(label.terms.start.into()).unwrap_or(0);
        let end = self
            .units
            .find(u64::from(label.terms.end).saturating_sub(1));
        let others = self
            .firsts
            .get(units + 1..end.unwrap_or(0) + 1)
            .unwrap_or(&[]);
        let head = |first: &[u8]| first[..first.len().min(prefix.len())].cmp(prefix);
        // Values with the prefix may start in the unit before the first one that begins with it.
        let low = units + others.partition_point(|first| head(first).is_lt());
        let high = units + 1 + others.partition_point(|first| head(first).is_le());
        let number = |unit: usize| match self.units.get(unit) {
            Some(unit) => u32::try_from(unit.first).unwrap_or(u32::MAX),
            None => u32::MAX,
        };
        let start = number(low).clamp(label.terms.start, label.terms.end);
        start..number(high).clamp(start, label.terms.end)
    }

    /// Returns the number of bytes that the table takes in memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        let firsts: usize = self.firsts.iter().map(|first| first.len() + 16).sum();
        self.units.memory_bytes() + firsts
    }
}

//! The names of labels, in order, with what is known of each before anything else is read; and the
//! first values of the units of terms.
//!
//! ```text
//! labels = labels varint | labels x label
//! label  = name | values varint | series varint | list offset varint | list bytes varint
//! terms  = table of units | first value of each unit
//! ```
//!
//! Names and values are a length and as many bytes. The list of a label is that of the series that
//! have it.

use super::terms::TermPostings;
use super::unit::UnitTable;
use crate::encoding::Malformed;
use crate::encoding::cursor::Cursor;
use crate::encoding::{push_prefixed, push_uvarint};
use crate::page::planner::Planner;
use std::ops::Range;

/// A label of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Label {
    pub(crate) name: Box<str>,
    /// The numbers of its terms: as many as it has values.
    pub(crate) terms: Range<u32>,
    /// The series that have it.
    pub(crate) present: TermPostings,
}

impl Label {
    /// How many values it has.
    pub(crate) fn values(&self) -> u32 {
        self.terms.end - self.terms.start
    }
}

/// All labels, by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct LabelTable(Vec<Label>);

impl LabelTable {
    /// Adds a label; names ascend, terms follow each other.
    pub(crate) fn push(&mut self, label: Label) {
        self.0.push(label);
    }

    /// How many terms.
    pub(crate) fn terms(&self) -> u32 {
        self.0.last().map_or(0, |last| last.terms.end)
    }

    /// The number of the label with this name.
    pub(crate) fn find(&self, name: &str) -> Option<u32> {
        let found = self.0.binary_search_by(|label| (*label.name).cmp(name));
        found.ok().map(|at| at as u32)
    }

    /// The label with this number.
    pub(crate) fn get(&self, label: u32) -> Option<&Label> {
        self.0.get(label as usize)
    }

    /// The label that a term belongs to.
    pub(crate) fn of_term(&self, term: u32) -> Option<&Label> {
        let at = self.0.partition_point(|label| label.terms.end <= term);
        self.0.get(at)
    }

    /// All of them, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Label> {
        self.0.iter()
    }

    /// Bytes of memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        let names: usize = self.0.iter().map(|label| label.name.len()).sum();
        names + self.0.capacity() * size_of::<Label>()
    }

    /// The bytes of the section.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        push_uvarint(&mut out, self.0.len() as u64);
        for label in &self.0 {
            push_prefixed(&mut out, label.name.as_bytes());
            push_uvarint(&mut out, label.values().into());
            push_uvarint(&mut out, label.present.series.into());
            push_uvarint(&mut out, label.present.offset);
            push_uvarint(&mut out, label.present.bytes.into());
        }
        out
    }

    /// Reads a section of a block of `series` series.
    pub(crate) fn decode(bytes: &[u8], series: u32) -> Result<Self, Malformed> {
        let mut cursor = Cursor::new(bytes);
        let count = cursor.count(6)?;
        let mut table = Self(Vec::with_capacity(count));
        for _ in 0..count {
            let name = std::str::from_utf8(cursor.prefixed()?);
            let name = name.map_err(|_| Malformed("label name is not UTF-8"))?;
            if table.0.last().is_some_and(|last| &*last.name >= name) || name.is_empty() {
                return Err(Malformed("label names out of order"));
            }
            let mut short =
                || u32::try_from(cursor.uvarint()?).map_err(|_| Malformed("number too large"));
            let start = table.terms();
            let end = start.checked_add(short()?);
            let label = Label {
                name: name.into(),
                terms: start..end.ok_or(Malformed("too many terms"))?,
                present: TermPostings {
                    series: short()?,
                    offset: cursor.uvarint()?,
                    bytes: u32::try_from(cursor.uvarint()?)
                        .map_err(|_| Malformed("number too large"))?,
                },
            };
            let has_series = (1..=series).contains(&label.present.series);
            if !has_series || label.values() == 0 || label.values() > label.present.series {
                return Err(Malformed("label with no values or too many values"));
            }
            table.push(label);
        }
        match cursor.is_empty() {
            true => Ok(table),
            false => Err(Malformed("bytes after the last label")),
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
    /// The first value of a unit that was added to the table.
    pub(crate) fn push_first(&mut self, value: Vec<u8>) {
        self.firsts.push(value.into());
    }

    /// The bytes of the section.
    pub(crate) fn encode(&self, planner: &mut Planner) -> Vec<u8> {
        let mut out = Vec::new();
        self.units.encode(planner, &mut out);
        self.firsts
            .iter()
            .for_each(|value| push_prefixed(&mut out, value));
        out
    }

    /// Reads a section of units in front of `end`.
    pub(crate) fn decode(bytes: &[u8], end: u64) -> Result<Self, Malformed> {
        let mut cursor = Cursor::new(bytes);
        let units = UnitTable::decode(&mut cursor, end)?;
        let firsts = (0..units.len()).map(|_| cursor.prefixed().map(Box::from));
        let firsts = firsts.collect::<Result<_, _>>()?;
        match cursor.is_empty() {
            true => Ok(Self { units, firsts }),
            false => Err(Malformed("bytes after the last unit of terms")),
        }
    }

    /// The index of the unit that holds `value` of a label with these terms, if any does.
    pub(crate) fn find(&self, label: &Label, value: &[u8]) -> Option<usize> {
        let first = self.units.find(label.terms.start.into())?;
        let end = self.units.find(u64::from(label.terms.end) - 1)? + 1;
        // The first unit may begin with terms of the label before; all others begin with its own.
        let others = self.firsts.get(first + 1..end)?;
        Some(first + others.partition_point(|first| **first <= *value))
    }

    /// Terms of a label among which are all whose values begin with `prefix`: whole units.
    pub(crate) fn with_prefix(&self, label: &Label, prefix: &[u8]) -> Range<u32> {
        let units = self.units.find(label.terms.start.into()).unwrap_or(0);
        let end = self
            .units
            .find(u64::from(label.terms.end).saturating_sub(1));
        let others = self
            .firsts
            .get(units + 1..end.unwrap_or(0) + 1)
            .unwrap_or(&[]);
        let head = |first: &[u8]| first[..first.len().min(prefix.len())].cmp(prefix);
        // Values with the prefix may begin in the unit in front of the first that begins with it.
        let low = units + others.partition_point(|first| head(first).is_lt());
        let high = units + 1 + others.partition_point(|first| head(first).is_le());
        let number = |unit: usize| match self.units.get(unit) {
            Some(unit) => u32::try_from(unit.first).unwrap_or(u32::MAX),
            None => u32::MAX,
        };
        let start = number(low).clamp(label.terms.start, label.terms.end);
        start..number(high).clamp(start, label.terms.end)
    }

    /// Bytes of memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        let firsts: usize = self.firsts.iter().map(|first| first.len() + 16).sum();
        self.units.memory_bytes() + firsts
    }
}

//! The section of exemplars, which a block may lack: those of its series, by their ordinals.
//!
//! ```text
//! section = exemplars varint | oldest time zigzag varint | (newest - oldest) varint | table
//! unit    = exemplars as in the log, with ordinals for slots, the first measured against nothing
//! ```
//!
//! A unit is known by its first ordinal and how many exemplars of it lie in units before. Times are
//! those of the exemplars, which may lie a little before those of the block. Invariant: ordinals
//! ascend, and the exemplars of one in their order; none is there twice.

use super::cache::Unit;
use super::reader::Block;
use super::unit::{UnitEntry, UnitTable};
use crate::encoding::cursor::Cursor;
use crate::encoding::{Malformed, push_uvarint, unzigzag, zigzag};
use crate::error::StorageError;
use crate::exemplars::{ExemplarEncoder, each_exemplar};
use crate::ids::Slot;
use crate::page::planner::Planner;
use firn_model::exemplar::{SeriesExemplars, TimedExemplar};
use firn_model::sample::TimeRange;
use std::cmp::Ordering;
use std::sync::Arc;

/// Bytes after which a unit ends: some thousand exemplars.
const UNIT_BYTES: usize = 32 << 10;

/// Exemplars of a block, about: some 50 MB of them, whatever its range. Where there are more, each
/// series keeps one in so many.
const EXEMPLARS_MAX: u64 = 1 << 20;

/// Exemplars of a series in a block: a megabyte or two while they are merged, at most a few.
const OF_SERIES_MAX: usize = 1 << 12;

/// Where the exemplars of a block are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ExemplarsTable {
    pub(crate) count: u64,
    /// Of their times.
    pub(crate) range: TimeRange,
    pub(crate) units: UnitTable,
}

impl ExemplarsTable {
    /// Appends the section.
    pub(crate) fn encode(&self, planner: &mut Planner, out: &mut Vec<u8>) {
        push_uvarint(out, self.count);
        push_uvarint(out, zigzag(self.range.min));
        push_uvarint(out, self.range.max.wrapping_sub(self.range.min) as u64);
        self.units.encode(planner, out);
    }

    /// Reads a section whose units lie in front of `end`.
    pub(crate) fn decode(bytes: &[u8], end: u64) -> Result<Self, Malformed> {
        let mut cursor = Cursor::new(bytes);
        let count = cursor.uvarint()?;
        let oldest = unzigzag(cursor.uvarint()?);
        let newest = oldest.wrapping_add(cursor.uvarint()? as i64);
        let units = UnitTable::decode(&mut cursor, end)?;
        if !cursor.is_empty() || count == 0 || units.len() == 0 || newest < oldest {
            return Err(Malformed("invalid section of exemplars"));
        }
        Ok(Self {
            count,
            range: TimeRange::new(oldest, newest),
            units,
        })
    }
}

/// Exemplars on their way into units.
#[derive(Default)]
pub(crate) struct ExemplarsDraft {
    encoder: ExemplarEncoder,
    bytes: Vec<u8>,
    /// The key of the unit under way.
    first: u64,
    /// The newest series, and how many exemplars it has so far.
    newest: (u32, u32),
    count: u64,
    range: Option<TimeRange>,
    units: UnitTable,
}

impl ExemplarsDraft {
    /// Adds an exemplar behind the others. Whether the unit is to be ended.
    pub(crate) fn push(&mut self, ordinal: u32, exemplar: &TimedExemplar<'_>) -> bool {
        if self.newest.0 != ordinal {
            self.newest = (ordinal, 0);
        }
        if self.bytes.is_empty() {
            self.first = key(ordinal, self.newest.1);
        }
        self.newest.1 += 1;
        self.count += 1;
        let time = Some(TimeRange::new(exemplar.time, exemplar.time));
        self.range = TimeRange::hull_of(self.range, time);
        self.encoder
            .push(&mut self.bytes, Slot(u64::from(ordinal)), exemplar);
        self.bytes.len() >= UNIT_BYTES
    }

    /// Ends the unit under way, which `append` writes.
    pub(crate) fn end_unit(
        &mut self,
        append: impl FnOnce(u64, &[u8]) -> Result<UnitEntry, StorageError>,
    ) -> Result<(), StorageError> {
        if !self.bytes.is_empty() {
            self.units.push(append(self.first, &self.bytes)?);
            self.bytes.clear();
            self.encoder.clear();
        }
        Ok(())
    }

    /// The section, if there is an exemplar. All units were ended.
    pub(crate) fn into_table(self) -> Option<ExemplarsTable> {
        Some(ExemplarsTable {
            count: self.count,
            range: self.range?,
            units: self.units,
        })
    }
}

/// How few of the exemplars that are offered to a block it keeps: of each series the newest one of
/// so many that follow each other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Thinning(usize);

impl Thinning {
    /// For a block that is offered so many exemplars.
    pub(crate) fn of(count: u64) -> Self {
        let each = count.div_ceil(EXEMPLARS_MAX).max(1);
        Self(usize::try_from(each).unwrap_or(usize::MAX))
    }

    /// Those that are kept of what several sources have of one series: in order, each once.
    pub(crate) fn kept<'a>(
        &self,
        of_series: impl Iterator<Item = TimedExemplar<'a>>,
    ) -> Vec<TimedExemplar<'a>> {
        let mut all: Vec<TimedExemplar<'a>> = of_series.collect();
        all.sort_by(TimedExemplar::order);
        all.dedup_by(|a, b| a.order(b) == Ordering::Equal);
        let each = self.0.max(all.len().div_ceil(OF_SERIES_MAX));
        // Counted from the newest one, which stays.
        let first = all.len().saturating_sub(1) % each;
        all.into_iter().skip(first).step_by(each).collect()
    }
}

fn key(ordinal: u32, before: u32) -> u64 {
    u64::from(ordinal) << u32::BITS | u64::from(before)
}

/// A unit.
#[derive(Debug)]
pub(crate) struct ExemplarsUnit(SeriesExemplars);

impl Unit for ExemplarsUnit {
    fn memory_bytes(&self) -> usize {
        self.0.memory_bytes()
    }
}

impl ExemplarsUnit {
    /// Opens the bytes of a unit whose key is `first`.
    pub(crate) fn open(bytes: &[u8], first: u64) -> Result<Self, Malformed> {
        let mut exemplars = SeriesExemplars::default();
        let mut last: Option<(u64, i64)> = None;
        each_exemplar(bytes, |ordinal, exemplar| {
            let begins = last.is_some() || ordinal == first >> u32::BITS;
            let ascends = last.is_none_or(|last| last <= (ordinal, exemplar.time));
            // What is no longer than it may be bounds what a few bytes become.
            if !begins || !ascends || exemplar.is_too_long() {
                return Err(Malformed("exemplars out of order"));
            }
            last = Some((ordinal, exemplar.time));
            exemplars.push(ordinal, exemplar);
            Ok(())
        })?;
        match exemplars.is_empty() {
            true => Err(Malformed("unit without exemplars")),
            false => Ok(Self(exemplars)),
        }
    }

    /// Whether they are what is said of them: those of one series ascend, none is there twice.
    /// Returns how many there are.
    pub(crate) fn check(&self, series: u32) -> Result<u64, Malformed> {
        let mut last: Option<(u64, TimedExemplar<'_>)> = None;
        for (ordinal, exemplar) in self.0.iter() {
            let is_behind = |(before, of_before): (u64, TimedExemplar<'_>)| {
                before < ordinal || of_before.order(&exemplar) == Ordering::Less
            };
            if ordinal >= u64::from(series) || !last.is_none_or(is_behind) {
                return Err(Malformed("exemplars out of order"));
            }
            last = Some((ordinal, exemplar));
        }
        Ok(self.0.len() as u64)
    }
}

impl Block {
    /// How many exemplars it has.
    pub fn exemplar_count(&self) -> u64 {
        self.exemplars.as_ref().map_or(0, |table| table.count)
    }

    /// Whether exemplars of it may lie in `range`.
    pub fn has_exemplars_in(&self, range: TimeRange) -> bool {
        let table = self.exemplars.as_ref();
        table.is_some_and(|table| table.range.overlaps(&range))
    }

    /// Calls `each` with the exemplars of the series with these ordinals, and the place of their
    /// series among those, until it fails.
    pub fn exemplars<E: From<StorageError>>(
        &self,
        series: &[u32],
        mut each: impl FnMut(usize, TimedExemplar<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let Some(table) = &self.exemplars else {
            return Ok(());
        };
        let mut newest: Option<(usize, Arc<ExemplarsUnit>)> = None;
        for (place, ordinal) in series.iter().enumerate() {
            let mut index = table.units.find(key(*ordinal, 0)).unwrap_or(0);
            let is_behind = |entry: &&UnitEntry| entry.first > key(*ordinal, u32::MAX);
            while let Some(entry) = table.units.get(index).filter(|entry| !is_behind(entry)) {
                let unit = match newest.take().filter(|(newest, _)| *newest == index) {
                    Some((_, unit)) => unit,
                    None => self.exemplars_unit(entry)?,
                };
                for exemplar in unit.0.of_series(u64::from(*ordinal)) {
                    each(place, exemplar)?;
                }
                newest = Some((index, unit));
                index += 1;
            }
        }
        Ok(())
    }

    fn exemplars_unit(&self, entry: &UnitEntry) -> Result<Arc<ExemplarsUnit>, StorageError> {
        let first = entry.first;
        self.unit(Some(entry), |bytes| ExemplarsUnit::open(&bytes, first))
    }
}

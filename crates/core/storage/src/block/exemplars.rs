//! The optional section that holds the exemplars of a block, keyed by the ordinals of their series.
//!
//! ```text
//! section = exemplars varint | oldest time zigzag varint | (newest - oldest) varint | table
//! unit    = exemplars encoded as in the WAL, with ordinals in place of slots; no base exemplar
//! ```
//!
//! The key of a unit consists of the first ordinal in it and the number of exemplars of that series
//! in earlier units. The times are those of the exemplars; they may begin slightly before the time
//! range of the block. Invariant: ordinals ascend, the exemplars of one series are sorted, and no
//! exemplar occurs twice.

use super::cache::BlockUnit;
use super::files::BlockFiles;
use super::unit::{UnitEntry, UnitTable};
use crate::encoding::cursor::DecodeCursor;
use crate::encoding::{DecodeError, push_uvarint, unzigzag, zigzag};
use crate::error::StorageError;
use crate::exemplars::{ExemplarEncoder, for_each_exemplar};
use crate::ids::SeriesSlot;
use crate::page::planner::IntRunPlanner;
use firn_model::exemplar::{SeriesExemplars, TimedExemplar};
use firn_model::sample::TimeRange;
use std::cmp::Ordering;
use std::sync::Arc;

/// Number of bytes after which a unit ends: about a thousand exemplars.
const UNIT_BYTES: usize = 32 << 10;

/// Approximate maximum number of exemplars in a block, about 50 MB regardless of its time range. If
/// there are more, each series keeps every n-th exemplar.
const EXEMPLARS_MAX: u64 = 1 << 20;

/// Maximum number of exemplars of one series in a block. A merge holds one series in memory, so
/// this limits it to a megabyte or two.
const OF_SERIES_MAX: usize = 1 << 12;

/// The decoded section: the number and time range of the exemplars, and the locations of their
/// units.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ExemplarsTable {
    pub(crate) count: u64,
    /// Time range of the exemplars.
    pub(crate) range: TimeRange,
    pub(crate) units: UnitTable,
}

impl ExemplarsTable {
    /// Appends the encoded section to `out`, with `planner` choosing the encoding of the integer
    /// columns.
    pub(crate) fn encode(&self, planner: &mut IntRunPlanner, out: &mut Vec<u8>) {
        push_uvarint(out, self.count);
        push_uvarint(out, zigzag(self.range.min));
        push_uvarint(out, self.range.max.wrapping_sub(self.range.min) as u64);
        self.units.encode(planner, out);
    }

    /// Decodes a section whose units all end at or before the offset `end`.
    pub(crate) fn decode(bytes: &[u8], end: u64) -> Result<Self, DecodeError> {
        let mut cursor = DecodeCursor::new(bytes);
        let count = cursor.read_uvarint()?;
        let oldest = unzigzag(cursor.read_uvarint()?);
        let newest = oldest.wrapping_add(cursor.read_uvarint()? as i64);
        let units = UnitTable::decode(&mut cursor, end)?;
        if !cursor.is_empty() || count == 0 || units.len() == 0 || newest < oldest {
            return Err(DecodeError("invalid section of exemplars"));
        }
        Ok(Self {
            count,
            range: TimeRange::new(oldest, newest),
            units,
        })
    }
}

/// The exemplars of a block that is being written, collected into units.
#[derive(Default)]
pub(crate) struct ExemplarsDraft {
    encoder: ExemplarEncoder,
    bytes: Vec<u8>,
    /// Key of the current unit.
    first: u64,
    /// Ordinal of the current series, and the number of its exemplars so far.
    newest: (u32, u32),
    count: u64,
    range: Option<TimeRange>,
    units: UnitTable,
}

impl ExemplarsDraft {
    /// Appends an exemplar; ordinals must ascend. Returns true if the current unit is full and
    /// should be ended.
    pub(crate) fn push(&mut self, ordinal: u32, exemplar: &TimedExemplar<'_>) -> bool {
        if self.newest.0 != ordinal {
            self.newest = (ordinal, 0);
        }
        if self.bytes.is_empty() {
            self.first = exemplar_key(ordinal, self.newest.1);
        }
        self.newest.1 += 1;
        self.count += 1;
        let time = Some(TimeRange::new(exemplar.time, exemplar.time));
        self.range = TimeRange::hull_of(self.range, time);
        self.encoder
            .push(&mut self.bytes, SeriesSlot(u64::from(ordinal)), exemplar);
        self.bytes.len() >= UNIT_BYTES
    }

    /// Ends the current unit, if it has exemplars, and writes it with `append`.
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

    /// Returns the section, or `None` if there are no exemplars. All units must have been ended.
    pub(crate) fn into_table(self) -> Option<ExemplarsTable> {
        Some(ExemplarsTable {
            count: self.count,
            range: self.range?,
            units: self.units,
        })
    }
}

/// The rate at which a block thins out its exemplars: of every n consecutive exemplars of a series,
/// the newest is kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExemplarThinning(usize);

impl ExemplarThinning {
    /// Returns the rate for a block for which `count` exemplars are available.
    pub(crate) fn from_count(count: u64) -> Self {
        let each = count.div_ceil(EXEMPLARS_MAX).max(1);
        Self(usize::try_from(each).unwrap_or(usize::MAX))
    }

    /// Merges the exemplars that several sources have of one series: sorts them, removes duplicates
    /// and applies the rate.
    pub(crate) fn select_exemplars<'a>(
        &self,
        of_series: impl Iterator<Item = TimedExemplar<'a>>,
    ) -> Vec<TimedExemplar<'a>> {
        let mut all: Vec<TimedExemplar<'a>> = of_series.collect();
        all.sort_by(TimedExemplar::compare);
        all.dedup_by(|a, b| a.compare(b) == Ordering::Equal);
        let each = self.0.max(all.len().div_ceil(OF_SERIES_MAX));
        // Count from the end, so that the newest exemplar is always kept.
        let first = all.len().saturating_sub(1) % each;
        all.into_iter().skip(first).step_by(each).collect()
    }
}

fn exemplar_key(ordinal: u32, before: u32) -> u64 {
    u64::from(ordinal) << u32::BITS | u64::from(before)
}

/// A decoded unit of exemplars of consecutive series, as the cache holds it.
#[derive(Debug)]
pub(crate) struct ExemplarsUnit(SeriesExemplars);

impl BlockUnit for ExemplarsUnit {
    fn memory_bytes(&self) -> usize {
        self.0.memory_bytes()
    }
}

impl ExemplarsUnit {
    /// Decodes a unit whose key is `first`. Rejects exemplars that are out of order or too long.
    pub(crate) fn open(bytes: &[u8], first: u64) -> Result<Self, DecodeError> {
        let mut exemplars = SeriesExemplars::default();
        let mut last: Option<(u64, i64)> = None;
        for_each_exemplar(bytes, |ordinal, exemplar| {
            let begins = last.is_some() || ordinal == first >> u32::BITS;
            let ascends = last.is_none_or(|last| last <= (ordinal, exemplar.time));
            // Rejecting exemplars above the length limit bounds the memory that a few bytes can
            // decode to.
            if !begins || !ascends || exemplar.is_too_long() {
                return Err(DecodeError("exemplars out of order"));
            }
            last = Some((ordinal, exemplar.time));
            exemplars.push(ordinal, exemplar);
            Ok(())
        })?;
        if exemplars.is_empty() {
            Err(DecodeError("unit without exemplars"))
        } else {
            Ok(Self(exemplars))
        }
    }

    /// Verifies that the exemplars of each series are sorted without duplicates and that all
    /// ordinals are below `series`. Returns the number of exemplars.
    pub(crate) fn check(&self, series: u32) -> Result<u64, DecodeError> {
        let mut last: Option<(u64, TimedExemplar<'_>)> = None;
        for (ordinal, exemplar) in self.0.iter() {
            let is_behind = |(before, of_before): (u64, TimedExemplar<'_>)| {
                before < ordinal || of_before.compare(&exemplar) == Ordering::Less
            };
            if ordinal >= u64::from(series) || !last.is_none_or(is_behind) {
                return Err(DecodeError("exemplars out of order"));
            }
            last = Some((ordinal, exemplar));
        }
        Ok(self.0.len() as u64)
    }
}

impl ExemplarsTable {
    /// Calls `each` with every exemplar of the series with these ordinals, along with the index of
    /// the series in `series`. Stops at the first error that `each` returns.
    pub(super) fn read<E: From<StorageError>>(
        &self,
        files: &BlockFiles,
        series: &[u32],
        mut each: impl FnMut(usize, TimedExemplar<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut newest: Option<(usize, Arc<ExemplarsUnit>)> = None;
        for (place, ordinal) in series.iter().enumerate() {
            let mut index = self.units.find(exemplar_key(*ordinal, 0)).unwrap_or(0);
            let is_behind = |entry: &&UnitEntry| entry.first > exemplar_key(*ordinal, u32::MAX);
            while let Some(entry) = self.units.get(index).filter(|entry| !is_behind(entry)) {
                let unit = match newest.take().filter(|(newest, _)| *newest == index) {
                    Some((_, unit)) => unit,
                    None => open_unit(files, entry)?,
                };
                for exemplar in unit.0.iter_series(u64::from(*ordinal)) {
                    each(place, exemplar)?;
                }
                newest = Some((index, unit));
                index += 1;
            }
        }
        Ok(())
    }
}

fn open_unit(files: &BlockFiles, entry: &UnitEntry) -> Result<Arc<ExemplarsUnit>, StorageError> {
    let first = entry.first;
    files.load_unit(Some(entry), |bytes| ExemplarsUnit::open(&bytes, first))
}

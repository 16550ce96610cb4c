//! Fast path for series of floats with at most one chunk in the head: decodes them directly into a
//! batch.
//!
//! Values are decoded to their final place in the batch. Times consist of pieces: those of pages,
//! and those of the chunk. Consecutive series that were scraped together have the same pieces, so
//! that the batch already contains their times, and they are neither assembled nor compared.
//! Invariant: equal pieces contain equal times.

use super::{HeadSelection, OpenPageGroup, SeriesReadScratch};
use crate::chunk::{ChunkView, DecodedTimesCache};
use crate::encoding::DecodeError;
use crate::head::copies::SeriesCopy;
use crate::page::{ColumnEntry, PageReader};
use firn_model::columns::{SeriesBatch, TimeColumnRange};
use firn_model::error::Error;
use firn_model::sample::{TimeRange, TimestampMs};
use std::ops::Range;
use std::sync::Arc;

/// The times of the last series of a batch, with the pieces that they consist of.
#[derive(Debug, Default)]
pub(super) struct BatchTimes {
    /// The times of pages, oldest first, followed by memory of earlier pieces. A piece is written
    /// in place, because moving a freshly written struct stalls on store forwarding.
    pieces: Vec<PageTimesSlice>,
    /// Number of pieces in use.
    count: usize,
    /// Generation of the times of the chunk; none without a chunk.
    of_chunk: Option<u64>,
    /// Position of the times in the batch; none if they differ from those of the previous series.
    kept: Option<TimeColumnRange>,
    /// Buffer in which the times are assembled.
    all: Vec<TimestampMs>,
}

/// The wanted part of a time column of a page.
#[derive(Debug)]
struct PageTimesSlice {
    /// Index of the page in its group.
    page: usize,
    /// Number of the time column in the page.
    column: usize,
    /// The requested time range; samples outside of it are skipped.
    range: TimeRange,
    times: Arc<[TimestampMs]>,
    wanted: Range<usize>,
    /// Start of the range for later pages: samples that are in two pages are read from the first
    /// one.
    rest: TimestampMs,
}

impl BatchTimes {
    /// Resets the state before another batch, another group, or after a series that does not use
    /// this path.
    pub(super) fn reset(&mut self) {
        self.cut(0);
        self.kept = None;
    }

    /// Drops all pieces from number `pieces` on.
    #[inline]
    fn cut(&mut self, pieces: usize) {
        if self.count > pieces {
            self.count = pieces;
            self.kept = None;
        }
    }

    /// Returns the piece with this number: the times of a page's column in `range`.
    #[inline]
    fn load_piece(
        &mut self,
        number: usize,
        of_group: usize,
        page: &PageReader,
        column: &ColumnEntry,
        range: TimeRange,
    ) -> Result<&PageTimesSlice, DecodeError> {
        let column_number = column.time_column();
        let wanted = (of_group, column_number, range);
        let is_it = |piece: &PageTimesSlice| (piece.page, piece.column, piece.range) == wanted;
        if !self.pieces[..self.count].get(number).is_some_and(is_it) {
            let times = page.times(column)?;
            self.count = number + 1;
            self.kept = None;
            if self.pieces.len() == number {
                self.pieces.push(PageTimesSlice::empty(range));
            }
            self.pieces[number].load_column(of_group, column_number, range, times);
        }
        Ok(&self.pieces[number])
    }

    /// Sets the times after the pieces: those of a chunk, or none.
    #[inline]
    fn set_chunk_times(&mut self, of_chunk: Option<u64>) {
        if self.of_chunk != of_chunk {
            self.of_chunk = of_chunk;
            self.kept = None;
        }
    }

    /// Adds the series to `batch`, which contains `values` values of it.
    #[inline]
    fn push_series_to(
        &mut self,
        batch: &mut SeriesBatch,
        values: usize,
        known: &DecodedTimesCache,
        range: TimeRange,
    ) {
        if let Some(kept) = &self.kept {
            return batch.end_floats_as(kept, values);
        }
        let pieces = self.pieces[..self.count].iter();
        let of_pieces = pieces.map(|piece| &piece.times[piece.wanted.clone()]);
        let of_chunk = self.of_chunk.map(|_| known.newest());
        self.all.clear();
        for times in of_pieces.chain(of_chunk) {
            self.all.extend_from_slice(times);
        }
        self.kept = Some(batch.end_floats(&self.all, range));
    }
}

impl PageTimesSlice {
    /// Returns an empty piece.
    fn empty(range: TimeRange) -> Self {
        Self {
            page: 0,
            column: 0,
            range,
            times: Arc::default(),
            wanted: 0..0,
            rest: range.min,
        }
    }

    /// Sets the piece to the times of a page's column in a range.
    #[inline]
    fn load_column(
        &mut self,
        page: usize,
        column: usize,
        range: TimeRange,
        times: Arc<[TimestampMs]>,
    ) {
        (self.page, self.column, self.range) = (page, column, range);
        self.wanted = range.indexes(&times);
        let newest = times[self.wanted.clone()].last();
        self.rest = newest.map_or(range.min, |newest| newest.saturating_add(1));
        self.times = times;
    }
}

impl HeadSelection {
    /// Adds a series to the batch. Returns false and adds nothing if it has more than floats in
    /// pages and a chunk, or is damaged. Its group must be open.
    pub(super) fn read_plain(
        &self,
        series: usize,
        open: &mut OpenPageGroup<'_>,
        memory: &mut SeriesReadScratch,
        into: &mut SeriesBatch,
    ) -> Result<bool, Error> {
        let copy = self.head_copy(series);
        let chunk = copy.and_then(SeriesCopy::sole_chunk);
        if copy.is_some() != chunk.is_some() {
            return Ok(false);
        }
        let values = into.values_mut();
        let base = values.len();
        let is_plain = self.read_pages(series, chunk, open, memory, values)?
            && self.read_chunk(chunk, memory, values);
        if !is_plain {
            values.truncate(base);
            return Ok(false);
        }
        let appended = values.len() - base;
        memory
            .made
            .push_series_to(into, appended, &memory.known, self.range);
        Ok(true)
    }

    /// Appends the values of a series from pages that are older than its chunk. Returns false, with
    /// arbitrary values appended, if it has more than floats or is damaged.
    fn read_pages(
        &self,
        series: usize,
        chunk: Option<(ChunkView<'_>, usize)>,
        open: &mut OpenPageGroup<'_>,
        memory: &mut SeriesReadScratch,
        values: &mut Vec<f64>,
    ) -> Result<bool, Error> {
        let (mut range, mut pieces) = (self.range, 0);
        if let Some((chunk, _)) = chunk {
            // Pages are older than the samples in the head.
            let sealed_max = chunk.range().min.saturating_sub(1);
            range.max = range.max.min(sealed_max);
            if self.newest_only || range.min > range.max {
                memory.made.cut(0);
                return Ok(true);
            }
        }
        let slot = self.numbers.slot(self.slots[series]);
        let entries = open.entries;
        for (of_group, (entry, opened)) in entries.iter().zip(&mut open.pages).enumerate() {
            if !entry.has_series(slot) {
                continue;
            }
            let Some(page) = self.open_cached(entry, opened, &mut open.memory)? else {
                continue;
            };
            // Moving a freshly written struct stalls on store forwarding; borrow it.
            let found = page.find_column(slot);
            let column = match &found {
                Ok(Some(column)) => column,
                Ok(None) => continue,
                Err(_) => return Ok(false),
            };
            // A page with samples that replay restored from the log may contain older samples than
            // the pages before it.
            let is_behind = pieces == 0 || column.range().min >= range.min;
            let is_before = chunk.is_none_or(|(chunk, _)| column.range().max < chunk.range().min);
            if !column.is_plain() || !is_behind || !is_before {
                return Ok(false);
            }
            let Ok(piece) = memory
                .made
                .load_piece(pieces, of_group, page, column, range)
            else {
                return Ok(false);
            };
            let (wanted, scratch) = (piece.wanted.clone(), &mut memory.page);
            let decoded = page.decode_plain(column, wanted, scratch, values);
            if decoded.is_err() {
                return Ok(false);
            }
            range.min = piece.rest;
            pieces += 1;
            if open.is_last {
                opened.close(&mut open.memory);
            }
        }
        memory.made.cut(pieces);
        Ok(true)
    }

    /// Appends the values of a chunk. Returns false and appends nothing if it has more than floats
    /// or is damaged.
    fn read_chunk(
        &self,
        chunk: Option<(ChunkView<'_>, usize)>,
        memory: &mut SeriesReadScratch,
        values: &mut Vec<f64>,
    ) -> bool {
        let Some((chunk, samples)) = chunk else {
            memory.made.set_chunk_times(None);
            return true;
        };
        let is_plain = chunk.decode_plain(samples, &mut memory.known, values);
        memory.made.set_chunk_times(Some(memory.known.generation()));
        is_plain.unwrap_or(false)
    }
}

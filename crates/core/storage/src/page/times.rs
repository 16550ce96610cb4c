//! Time columns: each distinct column is stored once, and many are stored as a part of another one.
//!
//! ```text
//! times = 0 | step zigzag varint | integer column         time i = first time + i step + integer i
//!       | 1 | base varint | from varint                   consecutive times of the base
//!       | 2 | base varint | from varint | span varint | mask    those of them whose bit is set
//! ```
//!
//! Count, first and last time are in the directory. A base is a column of the first form. A series
//! that missed scrapes, or that started or ended within the window, takes a few bytes this way.

use super::equal::hash_numbers;
use super::ints;
use super::limits::SAMPLES_MAX;
use super::planner::IntRunPlanner;
use crate::encoding::cursor::DecodeCursor;
use crate::encoding::lanes::VECTOR;
use crate::encoding::{DecodeError, push_uvarint, unzigzag, zigzag};
use firn_model::sample::TimestampMs;
use std::collections::BTreeMap;

const OWN: u8 = 0;
const PART: u8 = 1;
const MASKED: u8 = 2;

/// Maximum number of bases that are tried for each column.
const BASES_MAX: usize = 64;

/// The distinct time columns of a page under construction.
#[derive(Debug, Default)]
pub(crate) struct TimeColumns {
    columns: Vec<Vec<TimestampMs>>,
    by_hash: BTreeMap<u64, Vec<u32>>,
    last: usize,
}

impl TimeColumns {
    /// Returns the number of the column with these times; adds it if necessary.
    pub(crate) fn intern_times(&mut self, times: &[TimestampMs]) -> usize {
        if self.columns.get(self.last).is_some_and(|c| c == times) {
            return self.last;
        }
        let hash = hash_numbers(times.iter().map(|t| *t as u64));
        let same = self.by_hash.entry(hash).or_default();
        let known = same.iter().find(|i| self.columns[**i as usize] == times);
        self.last = match known {
            Some(i) => *i as usize,
            None => {
                assert!(is_ascending(times), "times of a column ascend");
                same.push(self.columns.len() as u32);
                self.columns.push(times.to_vec());
                self.columns.len() - 1
            }
        };
        self.last
    }

    /// Returns the columns, by number.
    pub(crate) fn columns(&self) -> &[Vec<TimestampMs>] {
        &self.columns
    }

    /// Returns the encoded columns, by number.
    pub(crate) fn encode(&self, planner: &mut IntRunPlanner) -> Vec<Vec<u8>> {
        // The longest first, because others may be a part of it.
        let mut order: Vec<usize> = (0..self.columns.len()).collect();
        order.sort_by_key(|i| std::cmp::Reverse(self.columns[*i].len()));
        let mut encoded = vec![Vec::new(); self.columns.len()];
        let mut bases: Vec<usize> = Vec::new();
        for i in order {
            let times = &self.columns[i];
            let mut own = Vec::new();
            push_standalone(&mut own, planner, times);
            let parts = bases.iter().take(BASES_MAX);
            let part = parts
                .filter_map(|base| encode_as_part(*base, &self.columns[*base], times))
                .min_by_key(Vec::len);
            match part.filter(|part| part.len() < own.len()) {
                Some(part) => encoded[i] = part,
                None => {
                    bases.push(i);
                    encoded[i] = own;
                }
            }
        }
        encoded
    }
}

/// Encodes times on their own: the median interval, and the distances from a line with that
/// interval.
fn push_standalone(out: &mut Vec<u8>, planner: &mut IntRunPlanner, times: &[TimestampMs]) {
    let mut steps: Vec<i64> = times.windows(2).map(|w| w[1].wrapping_sub(w[0])).collect();
    let middle = steps.len() / 2;
    let step = if steps.is_empty() {
        0
    } else {
        *steps.select_nth_unstable(middle).1
    };
    let first = times.first().copied().unwrap_or(0);
    let line = |i: usize| first.wrapping_add(step.wrapping_mul(i as i64));
    let rest = times
        .iter()
        .enumerate()
        .map(|(i, t)| t.wrapping_sub(line(i)));
    let rest: Vec<i64> = rest.collect();
    out.push(OWN);
    push_uvarint(out, zigzag(step));
    ints::push_column(out, planner, &rest);
}

/// Encodes `times` as a part of the column with number `base`, if they are one.
fn encode_as_part(base: usize, of: &[TimestampMs], times: &[TimestampMs]) -> Option<Vec<u8>> {
    let from = of.binary_search(times.first()?).ok()?;
    let to = of.binary_search(times.last()?).ok()?;
    let span = &of[from..=to];
    let mut mask = vec![0u8; span.len().div_ceil(8)];
    let mut rest = times.iter().peekable();
    for (i, time) in span.iter().enumerate() {
        if rest.next_if_eq(&time).is_some() {
            mask[i / 8] |= 1 << (i % 8);
        }
    }
    if rest.next().is_some() {
        return None;
    }
    let is_all = span.len() == times.len();
    let mut out = vec![if is_all { PART } else { MASKED }];
    push_uvarint(&mut out, base as u64);
    push_uvarint(&mut out, from as u64);
    if !is_all {
        push_uvarint(&mut out, span.len() as u64);
        out.extend_from_slice(&mask);
    }
    Some(out)
}

/// The directory entry of a time column.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TimeColumnEntry {
    /// Number of times, at most [`SAMPLES_MAX`].
    pub(crate) count: usize,
    /// The first time of the column, in milliseconds.
    pub(crate) first: TimestampMs,
    /// The last time of the column, in milliseconds.
    pub(crate) last: TimestampMs,
}

/// Decodes the times of a column. `base` returns those of the column with the given number, which
/// must be of the first form.
pub(crate) fn read_column(
    mut cursor: DecodeCursor<'_>,
    entry: TimeColumnEntry,
    base: impl FnOnce(usize) -> Result<Vec<TimestampMs>, DecodeError>,
) -> Result<Vec<TimestampMs>, DecodeError> {
    let outside = DecodeError("times outside of their base");
    let form = cursor.read_byte()?;
    let times = match form {
        OWN => read_standalone(cursor, entry)?,
        PART | MASKED => {
            let of = base(cursor.read_uvarint()? as usize)?;
            let from = cursor.read_uvarint()? as usize;
            let rest = of.get(from..).ok_or(outside)?;
            if form == PART {
                rest.get(..entry.count).ok_or(outside)?.to_vec()
            } else {
                let span = cursor.read_uvarint()? as usize;
                let span = rest.get(..span).ok_or(outside)?;
                let mask = cursor.read_bytes(span.len().div_ceil(8))?;
                let is_set = |i: usize| mask[i / 8] & 1 << (i % 8) != 0;
                let set = span.iter().enumerate().filter(|(i, _)| is_set(*i));
                set.map(|(_, t)| *t).collect()
            }
        }
        _ => return Err(DecodeError("unknown form of times")),
    };
    check_times(&times, entry)?;
    Ok(times)
}

/// Decodes a column that is a base of others. It must be encoded on its own.
pub(crate) fn read_base(
    mut cursor: DecodeCursor<'_>,
    entry: TimeColumnEntry,
) -> Result<Vec<TimestampMs>, DecodeError> {
    if cursor.read_byte()? != OWN {
        return Err(DecodeError("base of times that is a part itself"));
    }
    read_standalone(cursor, entry)
}

/// Decodes times that are encoded on their own.
fn read_standalone(
    mut cursor: DecodeCursor<'_>,
    entry: TimeColumnEntry,
) -> Result<Vec<TimestampMs>, DecodeError> {
    let step = unzigzag(cursor.read_uvarint()?);
    debug_assert!(entry.count <= SAMPLES_MAX);
    let mut times = Vec::with_capacity(entry.count.next_multiple_of(VECTOR));
    ints::read_column(cursor, entry.count, 0..entry.count, &mut times)?;
    let mut line = entry.first;
    for time in &mut times {
        *time = time.wrapping_add(line);
        line = line.wrapping_add(step);
    }
    Ok(times)
}

/// Checks the properties that readers rely on: count, first and last time, and strictly ascending
/// order.
fn check_times(times: &[TimestampMs], entry: TimeColumnEntry) -> Result<(), DecodeError> {
    let ends = (times.first(), times.last());
    if times.len() != entry.count || ends != (Some(&entry.first), Some(&entry.last)) {
        return Err(DecodeError("times that differ from the directory"));
    }
    is_ascending(times)
        .then_some(())
        .ok_or(DecodeError("times do not increase"))
}

fn is_ascending(times: &[TimestampMs]) -> bool {
    times.windows(2).fold(true, |all, w| all & (w[0] < w[1]))
}

//! Division of columns into runs of 1,024 samples, each of which can be decoded on its own.
//!
//! ```text
//! column = { length of run varint }* for all runs but the last | runs
//! ```

use crate::encoding::cursor::DecodeCursor;
use crate::encoding::lanes::VECTOR;
use crate::encoding::{DecodeError, push_uvarint};
use std::ops::Range;

/// Number of samples of a run: the maximum that is decoded for access to one sample.
pub(super) const RUN: usize = 1_024;

/// Appends the runs of a column of `count` samples, with their lengths; `push_runs` appends
/// the run of the given samples.
pub(super) fn push_runs(
    out: &mut Vec<u8>,
    count: usize,
    mut push: impl FnMut(&mut Vec<u8>, Range<usize>),
) {
    if count <= RUN {
        return push(out, 0..count);
    }
    let (mut runs, mut lens) = (Vec::new(), Vec::new());
    for start in (0..count).step_by(RUN) {
        let before = runs.len();
        push(&mut runs, start..count.min(start + RUN));
        lens.push(runs.len() - before);
    }
    lens.pop();
    for len in lens {
        push_uvarint(out, len as u64);
    }
    out.extend_from_slice(&runs);
}

/// One run of a column, with the wanted part of it.
#[derive(Clone, Debug)]
pub(super) struct ColumnRun {
    /// Index of the run within its column.
    pub(super) index: usize,
    /// Number of samples of the run.
    pub(super) count: usize,
    /// Range of the wanted samples within the run.
    pub(super) wanted: Range<usize>,
}

impl ColumnRun {
    /// Returns the number of places for its unpacked integers: whole vectors.
    pub(super) fn padded_count(&self) -> usize {
        self.count.next_multiple_of(VECTOR)
    }
}

/// Returns the runs that contain the samples `wanted` of a column of `count` samples.
pub(super) fn find_covering_runs(
    count: usize,
    wanted: Range<usize>,
) -> impl Iterator<Item = ColumnRun> {
    let end = wanted.end.min(count);
    let first = wanted.start / RUN;
    let runs = if wanted.start < end {
        first..end.div_ceil(RUN)
    } else {
        0..0
    };
    runs.map(move |index| {
        let base = index * RUN;
        ColumnRun {
            index,
            count: (count - base).min(RUN),
            wanted: wanted.start.saturating_sub(base)..(end - base).min(RUN),
        }
    })
}

/// Moves a cursor from the start of a column of `count` samples to the start of a run.
pub(super) fn seek_run(
    cursor: &mut DecodeCursor<'_>,
    count: usize,
    run: usize,
) -> Result<(), DecodeError> {
    if count <= RUN {
        return Ok(());
    }
    let mut before = 0usize;
    for index in 0..count.div_ceil(RUN) - 1 {
        // Each length is limited by the remaining bytes, so the sum of a few hundred cannot
        // overflow.
        let len = cursor.read_count(1)?;
        if index < run {
            before += len;
        }
    }
    cursor.read_bytes(before).map(|_| ())
}

/// Skips a column of `count` samples; `skip` skips one run.
pub(super) fn skip_runs(
    cursor: &mut DecodeCursor<'_>,
    count: usize,
    mut skip: impl FnMut(&mut DecodeCursor<'_>, usize) -> Result<(), DecodeError>,
) -> Result<(), DecodeError> {
    let Some(last) = count.div_ceil(RUN).checked_sub(1) else {
        return Ok(());
    };
    seek_run(cursor, count, last)?;
    skip(cursor, count - last * RUN)
}

//! Where the runs of a column stand: a column of any length is cut into runs of 1,024 samples
//! that decode each from itself.
//!
//! ```text
//! column = { length of run varint }* for all runs but the last | runs
//! ```

use crate::encoding::cursor::Cursor;
use crate::encoding::lanes::VECTOR;
use crate::encoding::{Malformed, push_uvarint};
use std::ops::Range;

/// Samples of a run: what a reader of one sample decodes at most.
pub(super) const RUN: usize = 1_024;

/// Puts the runs that a column of `count` samples needs behind each other; `push` appends the one
/// that covers the given samples.
pub(super) fn push(
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

/// One run of a column and what is wanted of it.
#[derive(Clone, Debug)]
pub(super) struct Run {
    /// Which one.
    pub(super) index: usize,
    /// Its samples.
    pub(super) count: usize,
    /// Those of them that are wanted.
    pub(super) wanted: Range<usize>,
}

impl Run {
    /// Places that its integers are unpacked to: whole vectors.
    pub(super) fn room(&self) -> usize {
        self.count.next_multiple_of(VECTOR)
    }
}

/// The runs that hold the samples `wanted` of a column of `count` samples.
pub(super) fn covering(count: usize, wanted: Range<usize>) -> impl Iterator<Item = Run> {
    let end = wanted.end.min(count);
    let first = wanted.start / RUN;
    let runs = if wanted.start < end {
        first..end.div_ceil(RUN)
    } else {
        0..0
    };
    runs.map(move |index| {
        let base = index * RUN;
        Run {
            index,
            count: (count - base).min(RUN),
            wanted: wanted.start.saturating_sub(base)..(end - base).min(RUN),
        }
    })
}

/// Moves a cursor from the first byte of a column of `count` samples to that of a run.
pub(super) fn seek(cursor: &mut Cursor<'_>, count: usize, run: usize) -> Result<(), Malformed> {
    if count <= RUN {
        return Ok(());
    }
    let mut before = 0usize;
    for index in 0..count.div_ceil(RUN) - 1 {
        // Each is bounded by what is left, so the sum of a few hundred is no large number.
        let len = cursor.count(1)?;
        if index < run {
            before += len;
        }
    }
    cursor.bytes(before).map(|_| ())
}

/// Passes over a column of `count` samples, of whose runs `skip` passes over one.
pub(super) fn pass(
    cursor: &mut Cursor<'_>,
    count: usize,
    mut skip: impl FnMut(&mut Cursor<'_>, usize) -> Result<(), Malformed>,
) -> Result<(), Malformed> {
    let Some(last) = count.div_ceil(RUN).checked_sub(1) else {
        return Ok(());
    };
    seek(cursor, count, last)?;
    skip(cursor, count - last * RUN)
}

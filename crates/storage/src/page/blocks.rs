//! Where the blocks of a column stand: a column of any length is cut into blocks of 1,024 samples
//! that decode each from itself.
//!
//! ```text
//! column = { length of block varint }* for all blocks but the last | blocks
//! ```

use super::bits::VECTOR;
use crate::encoding::cursor::Cursor;
use crate::encoding::{Malformed, push_uvarint};
use std::ops::Range;

/// Samples of a block: what a reader of one sample decodes at most.
pub(super) const BLOCK: usize = 1_024;

/// Puts the blocks that a column of `count` samples needs behind each other; `push` appends the one
/// that covers the given samples.
pub(super) fn push(
    out: &mut Vec<u8>,
    count: usize,
    mut push: impl FnMut(&mut Vec<u8>, Range<usize>),
) {
    if count <= BLOCK {
        return push(out, 0..count);
    }
    let (mut blocks, mut lens) = (Vec::new(), Vec::new());
    for start in (0..count).step_by(BLOCK) {
        let before = blocks.len();
        push(&mut blocks, start..count.min(start + BLOCK));
        lens.push(blocks.len() - before);
    }
    lens.pop();
    for len in lens {
        push_uvarint(out, len as u64);
    }
    out.extend_from_slice(&blocks);
}

/// One block of a column and what is wanted of it.
#[derive(Clone, Debug)]
pub(super) struct Block {
    /// Which one.
    pub(super) index: usize,
    /// Its samples.
    pub(super) count: usize,
    /// Those of them that are wanted.
    pub(super) wanted: Range<usize>,
}

impl Block {
    /// Places that its integers are unpacked to: whole vectors.
    pub(super) fn room(&self) -> usize {
        self.count.next_multiple_of(VECTOR)
    }
}

/// The blocks that hold the samples `wanted` of a column of `count` samples.
pub(super) fn covering(count: usize, wanted: Range<usize>) -> impl Iterator<Item = Block> {
    let end = wanted.end.min(count);
    let first = wanted.start / BLOCK;
    let blocks = if wanted.start < end {
        first..end.div_ceil(BLOCK)
    } else {
        0..0
    };
    blocks.map(move |index| {
        let base = index * BLOCK;
        Block {
            index,
            count: (count - base).min(BLOCK),
            wanted: wanted.start.saturating_sub(base)..(end - base).min(BLOCK),
        }
    })
}

/// Moves a cursor from the first byte of a column of `count` samples to that of a block.
pub(super) fn seek(cursor: &mut Cursor<'_>, count: usize, block: usize) -> Result<(), Malformed> {
    if count <= BLOCK {
        return Ok(());
    }
    let mut before = 0usize;
    for index in 0..count.div_ceil(BLOCK) - 1 {
        // Each is bounded by what is left, so the sum of a few hundred is no large number.
        let len = cursor.count(1)?;
        if index < block {
            before += len;
        }
    }
    cursor.bytes(before).map(|_| ())
}

/// Passes over a column of `count` samples, of whose blocks `skip` passes over one.
pub(super) fn pass(
    cursor: &mut Cursor<'_>,
    count: usize,
    mut skip: impl FnMut(&mut Cursor<'_>, usize) -> Result<(), Malformed>,
) -> Result<(), Malformed> {
    let Some(last) = count.div_ceil(BLOCK).checked_sub(1) else {
        return Ok(());
    };
    seek(cursor, count, last)?;
    skip(cursor, count - last * BLOCK)
}

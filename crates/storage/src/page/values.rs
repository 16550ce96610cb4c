//! Columns of floats: blocks behind each other, and the sibling whose integers they may lean on.
//!
//! ```text
//! floats = sibling varint | column        the sibling begins so many bytes before; 0 for none
//! ```
//!
//! Siblings are neighbouring buckets of one family, which grow together. A chain of them is at most
//! [`CHAIN_MAX`] long and stays in its stripe. Whoever reads neighbours one after the other finds
//! the sibling's integers still there.

use super::blocks::{self, BLOCK, Block};
use super::floats::{FloatEncoder, Head, Scaled};
use super::instructions::Instructions;
use super::ints;
use crate::encoding::cursor::Cursor;
use crate::encoding::decimal::Scale;
use crate::encoding::{Malformed, push_uvarint, unzigzag};
use std::ops::Range;
use std::sync::Arc;

/// Columns that a reader of one decodes at most.
pub(super) const CHAIN_MAX: usize = 16;

/// A column that was appended, for the next one to lean on.
#[derive(Debug, Default)]
pub(super) struct Pushed {
    /// Where it stands.
    pub(super) at: usize,
    /// Its integers, block by block.
    blocks: Vec<Scaled>,
    /// How many columns a reader decodes for it.
    pub(super) chain: usize,
}

/// Appends a column, and says in `pushed` what the next one can lean on.
pub(super) fn push(
    out: &mut Vec<u8>,
    encoder: &mut FloatEncoder,
    values: &[f64],
    sibling: Option<&Pushed>,
    pushed: &mut Pushed,
) {
    let sibling = sibling.filter(|s| s.chain < CHAIN_MAX);
    pushed.at = out.len();
    pushed.chain = 1;
    let count = values.len().div_ceil(BLOCK);
    pushed.blocks.resize_with(count, Scaled::default);
    let mut column = Vec::new();
    let mut used = false;
    blocks::push(&mut column, values.len(), |out, range| {
        let index = range.start / BLOCK;
        let of_sibling = sibling.and_then(|s| s.blocks.get(index));
        used |= encoder.push(out, &values[range], of_sibling, &mut pushed.blocks[index]);
    });
    let mut distance = 0;
    if used && let Some(sibling) = sibling {
        pushed.chain = sibling.chain + 1;
        distance = pushed.at - sibling.at;
    }
    push_uvarint(out, distance as u64);
    out.extend_from_slice(&column);
}

/// Appends a column that leans on none and has no place for a sibling.
pub(super) fn push_alone(out: &mut Vec<u8>, encoder: &mut FloatEncoder, values: &[f64]) {
    let mut scaled = Scaled::default();
    blocks::push(out, values.len(), |out, range| {
        encoder.push(out, &values[range], None, &mut scaled);
    });
}

/// Appends the values `wanted` of a column of `count` that leans on none to `into`.
pub(super) fn read_alone(
    cursor: Cursor<'_>,
    count: usize,
    wanted: Range<usize>,
    into: &mut Vec<f64>,
) -> Result<(), Malformed> {
    let with = Instructions::best();
    let mut values = Vec::new();
    for block in blocks::covering(count, wanted) {
        make_room(&mut values, &block);
        let head = read_block(cursor, count, &block, (with, &mut values))?;
        if head.has_sibling() {
            return Err(Malformed("sibling of a column that has none"));
        }
        append(&head, &values, &block, (with, into))?;
    }
    Ok(())
}

/// Integers of a column that was read.
#[derive(Debug, Default)]
struct Read {
    /// Which column of the page: stripe, place and what of it. None while they are read.
    column: Option<(usize, usize, Range<usize>)>,
    blocks: Vec<Vec<i64>>,
    scales: Vec<u8>,
}

/// Reads columns. Reuse one to keep its memory and what neighbours share.
#[derive(Debug, Default)]
pub(super) struct FloatReader {
    /// The page of which columns were read.
    page: Option<Arc<[u8]>>,
    now: Read,
    last: Read,
    sibling: Vec<i64>,
    with: Instructions,
}

/// A stripe of a page.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stripe<'a> {
    /// What tells the page from others.
    pub(super) page: &'a Arc<[u8]>,
    /// Which stripe.
    pub(super) index: usize,
    /// Its bytes.
    pub(super) bytes: &'a [u8],
}

impl<'a> Stripe<'a> {
    fn column(&self, at: usize) -> Result<(usize, Cursor<'a>), Malformed> {
        let bytes = self.bytes.get(at..);
        let mut cursor = Cursor::new(bytes.ok_or(Malformed("column beyond its stripe"))?);
        let distance = usize::try_from(cursor.uvarint()?).unwrap_or(usize::MAX);
        Ok((distance, cursor))
    }

    fn sibling_of(&self, at: usize, distance: usize) -> Result<usize, Malformed> {
        let before = at.checked_sub(distance).filter(|_| distance > 0);
        before.ok_or(Malformed("sibling outside of the stripe"))
    }
}

impl FloatReader {
    /// One that reads with these instructions.
    pub(super) fn new(with: Instructions) -> Self {
        Self {
            with,
            ..Self::default()
        }
    }

    /// Whether the column read last is one of this page.
    pub(super) fn remembers(&self, page: &Arc<[u8]>) -> bool {
        self.page.as_ref().is_some_and(|p| Arc::ptr_eq(p, page))
    }

    /// Appends the values `wanted` of the column at `at`, which has `count`, to `into`.
    pub(super) fn read(
        &mut self,
        stripe: Stripe<'_>,
        at: usize,
        count: usize,
        wanted: Range<usize>,
        into: &mut Vec<f64>,
    ) -> Result<(), Malformed> {
        let (distance, cursor) = stripe.column(at)?;
        if !self.remembers(stripe.page) {
            self.page = Some(stripe.page.clone());
            self.last.column = None;
        }
        self.now.column = None;
        self.now.scales.clear();
        for (i, block) in blocks::covering(count, wanted.clone()).enumerate() {
            if self.now.blocks.len() == i {
                self.now.blocks.push(Vec::new());
            }
            let values = &mut self.now.blocks[i];
            make_room(values, &block);
            let head = read_block(cursor, count, &block, (self.with, &mut *values))?;
            self.now.scales.push(head.scale);
            if head.has_sibling() {
                let sibling = stripe.sibling_of(at, distance)?;
                match self
                    .last
                    .block((stripe.index, sibling, &wanted), i, head.scale)
                {
                    Some(of_sibling) if of_sibling.len() >= block.wanted.end => {
                        add(values, of_sibling, &block.wanted);
                    }
                    _ => {
                        let chain = (sibling, head.scale);
                        let sum = (self.with, &mut values[..], &mut self.sibling);
                        add_chain(&stripe, chain, count, &block, sum)?;
                    }
                }
            }
            append(&head, &self.now.blocks[i], &block, (self.with, &mut *into))?;
        }
        self.now.column = Some((stripe.index, at, wanted));
        std::mem::swap(&mut self.now, &mut self.last);
        Ok(())
    }
}

impl Read {
    /// The integers of the `nth` block read, if they are those of this column.
    fn block(
        &self,
        (stripe, at, wanted): (usize, usize, &Range<usize>),
        nth: usize,
        scale: u8,
    ) -> Option<&[i64]> {
        let column = self.column.as_ref()?;
        let is_it = (column.0, column.1, &column.2) == (stripe, at, wanted)
            && self.scales.get(nth) == Some(&scale);
        self.blocks.get(nth).filter(|_| is_it).map(Vec::as_slice)
    }
}

/// Adds the integers of the column at `at` and of those on which it leans.
fn add_chain(
    stripe: &Stripe<'_>,
    (mut at, scale): (usize, u8),
    count: usize,
    block: &Block,
    (with, values, of_sibling): (Instructions, &mut [i64], &mut Vec<i64>),
) -> Result<(), Malformed> {
    make_room(of_sibling, block);
    for _ in 1..CHAIN_MAX {
        let (distance, cursor) = stripe.column(at)?;
        let head = read_block(cursor, count, block, (with, &mut *of_sibling))?;
        if head.scale != scale {
            return Err(Malformed("sibling with another scale"));
        }
        add(values, of_sibling, &block.wanted);
        if !head.has_sibling() {
            return Ok(());
        }
        at = stripe.sibling_of(at, distance)?;
    }
    Err(Malformed("chain of siblings too long"))
}

/// Grows memory to the places that a block's integers take. What is there already stays: readers go
/// from block to block, and to clear it took longer than to read few values.
fn make_room(values: &mut Vec<i64>, block: &Block) {
    if values.len() < block.room() {
        values.resize(block.room(), 0);
    }
}

fn add(values: &mut [i64], more: &[i64], wanted: &Range<usize>) {
    let pairs = values[wanted.clone()].iter_mut().zip(&more[wanted.clone()]);
    for (value, more) in pairs {
        *value = value.wrapping_add(*more);
    }
}

/// Reads the integers of a block of the column at the cursor.
#[inline]
fn read_block<'a>(
    mut cursor: Cursor<'a>,
    count: usize,
    block: &Block,
    (with, values): (Instructions, &mut [i64]),
) -> Result<Head<'a>, Malformed> {
    blocks::seek(&mut cursor, count, block.index)?;
    let head = Head::read(&mut cursor)?;
    let tag = head.tag_of_ints();
    ints::read(&mut cursor, tag, block, (with, values))?;
    Ok(head)
}

#[inline]
fn append(
    head: &Head<'_>,
    values: &[i64],
    block: &Block,
    (with, into): (Instructions, &mut Vec<f64>),
) -> Result<(), Malformed> {
    head.append(
        &values[block.wanted.clone()],
        block.wanted.start,
        (with, into),
    )
}

/// Scale of a constant that is stored as its bits.
pub(super) const BITS: u8 = 16;

/// Reads the value of a constant column.
pub(super) fn read_constant(mut cursor: Cursor<'_>) -> Result<f64, Malformed> {
    match cursor.byte()? {
        BITS => cursor.u64().map(f64::from_bits),
        code => {
            let scale = Scale::from_code(code).ok_or(Malformed("unknown scale"))?;
            Ok(scale.float(unzigzag(cursor.uvarint()?)))
        }
    }
}

/// Whether the column at `at` of a stripe has exactly these values.
pub(super) fn holds(stripe: &[u8], at: usize, values: &[f64]) -> bool {
    let (mut reader, mut read) = (FloatReader::default(), Vec::new());
    let stripe = Stripe {
        page: &Arc::from([]),
        index: 0,
        bytes: stripe,
    };
    let decoded = reader.read(stripe, at, values.len(), 0..values.len(), &mut read);
    let same = |(a, b): (&f64, &f64)| a.to_bits() == b.to_bits();
    decoded.is_ok() && read.iter().zip(values).all(same)
}

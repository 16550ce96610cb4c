//! Columns of floats: runs, and the reference column that their integers may be relative to.
//!
//! ```text
//! floats = reference varint | column    distance back to the reference column in bytes; 0: none
//! ```
//!
//! A column and its reference are neighbouring buckets of one family, which grow together. A chain
//! of references has at most [`CHAIN_MAX`] columns and stays within its stripe. A reader that
//! decodes neighbours one after the other caches the integers of the previous column and need not
//! decode them again.

use super::floats::{FloatEncoder, FloatRunHeader, ScaledRun};
use super::ints;
use super::runs::{self, ColumnRun, RUN};
use crate::encoding::cursor::DecodeCursor;
use crate::encoding::decimal::{BITS, DecimalScale};
use crate::encoding::{DecodeError, push_uvarint, unzigzag};
use std::ops::Range;
use std::sync::Arc;

/// Maximum number of columns that are decoded for access to one.
pub(super) const CHAIN_MAX: usize = 16;

/// The last appended column, a possible reference of the next one.
#[derive(Debug, Default)]
pub(super) struct ReferenceColumn {
    /// Its offset in the stripe.
    pub(super) at: usize,
    /// Its integers, run by run.
    runs: Vec<ScaledRun>,
    /// Number of columns that are decoded for access to it.
    pub(super) chain: usize,
}

/// Appends a column, and stores in `pushed` the data for using it as a reference.
pub(super) fn push_column(
    out: &mut Vec<u8>,
    encoder: &mut FloatEncoder,
    values: &[f64],
    reference: Option<&ReferenceColumn>,
    pushed: &mut ReferenceColumn,
) {
    let reference = reference.filter(|s| s.chain < CHAIN_MAX);
    pushed.at = out.len();
    pushed.chain = 1;
    let count = values.len().div_ceil(RUN);
    pushed.runs.resize_with(count, ScaledRun::default);
    let mut column = Vec::new();
    let mut used = false;
    runs::push_runs(&mut column, values.len(), |out, range| {
        let index = range.start / RUN;
        let of_reference = reference.and_then(|s| s.runs.get(index));
        used |= encoder.push_run(out, &values[range], of_reference, &mut pushed.runs[index]);
    });
    let mut distance = 0;
    if used && let Some(reference) = reference {
        pushed.chain = reference.chain + 1;
        distance = pushed.at - reference.at;
    }
    push_uvarint(out, distance as u64);
    out.extend_from_slice(&column);
}

/// Appends a column without a reference and without a field for one.
pub(super) fn push_standalone(out: &mut Vec<u8>, encoder: &mut FloatEncoder, values: &[f64]) {
    let mut scaled = ScaledRun::default();
    runs::push_runs(out, values.len(), |out, range| {
        encoder.push_run(out, &values[range], None, &mut scaled);
    });
}

/// Decodes the values `wanted` of a column of `count` without a reference and appends them to
/// `into`.
pub(super) fn read_standalone(
    cursor: DecodeCursor<'_>,
    count: usize,
    wanted: Range<usize>,
    into: &mut Vec<f64>,
) -> Result<(), DecodeError> {
    let mut values = Vec::new();
    for run in runs::find_covering_runs(count, wanted) {
        grow_for_run(&mut values, &run);
        let head = read_run(cursor, count, &run, &mut values)?;
        if head.has_reference() {
            return Err(DecodeError(
                "column refers to a sibling that does not exist",
            ));
        }
        append_floats(&head, &values, &run, into)?;
    }
    Ok(())
}

/// Cached integers of one decoded column, by run, with the scale of each run.
#[derive(Debug, Default)]
struct DecodedFloatRuns {
    /// Stripe, offset and decoded range of the column. None while it is being decoded.
    column: Option<(usize, usize, Range<usize>)>,
    runs: Vec<Vec<i64>>,
    scales: Vec<u8>,
}

/// Reads columns. Reuse an instance to keep its memory and the data that neighbours share.
#[derive(Debug, Default)]
pub(crate) struct FloatColumnReader {
    /// The page of the cached columns.
    page: Option<Arc<[u8]>>,
    now: DecodedFloatRuns,
    last: DecodedFloatRuns,
    reference: Vec<i64>,
}

/// A stripe of a page, which contains whole columns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageStripe<'a> {
    /// The bytes of the page, which also identify it.
    pub(crate) page: &'a Arc<[u8]>,
    /// Index of the stripe within its page.
    pub(crate) index: usize,
    /// The bytes of the stripe.
    pub(crate) bytes: &'a [u8],
}

impl<'a> PageStripe<'a> {
    fn open_column(&self, at: usize) -> Result<(usize, DecodeCursor<'a>), DecodeError> {
        let bytes = self.bytes.get(at..);
        let mut cursor = DecodeCursor::new(bytes.ok_or(DecodeError("column beyond its stripe"))?);
        let distance = usize::try_from(cursor.read_uvarint()?).unwrap_or(usize::MAX);
        Ok((distance, cursor))
    }

    fn reference_offset(&self, at: usize, distance: usize) -> Result<usize, DecodeError> {
        let before = at.checked_sub(distance).filter(|_| distance > 0);
        before.ok_or(DecodeError("sibling outside of the stripe"))
    }
}

impl FloatColumnReader {
    /// Returns whether the last decoded column is from this page.
    pub(super) fn is_reading_page(&self, page: &Arc<[u8]>) -> bool {
        self.page.as_ref().is_some_and(|p| Arc::ptr_eq(p, page))
    }

    /// Decodes the values `wanted` of the column at offset `at`, which has `count` values, and
    /// appends them to `into`.
    pub(crate) fn read(
        &mut self,
        stripe: PageStripe<'_>,
        at: usize,
        count: usize,
        wanted: Range<usize>,
        into: &mut Vec<f64>,
    ) -> Result<(), DecodeError> {
        let (distance, cursor) = stripe.open_column(at)?;
        if !self.is_reading_page(stripe.page) {
            self.page = Some(stripe.page.clone());
            self.last.column = None;
        }
        self.now.column = None;
        self.now.scales.clear();
        for (i, run) in runs::find_covering_runs(count, wanted.clone()).enumerate() {
            if self.now.runs.len() == i {
                self.now.runs.push(Vec::new());
            }
            let values = &mut self.now.runs[i];
            grow_for_run(values, &run);
            let head = read_run(cursor, count, &run, &mut *values)?;
            self.now.scales.push(head.scale);
            if head.has_reference() {
                let reference = stripe.reference_offset(at, distance)?;
                match self
                    .last
                    .cached_run(stripe.index, reference, &wanted, i, head.scale)
                {
                    Some(of_reference) if of_reference.len() >= run.wanted.end => {
                        add_values(values, of_reference, &run.wanted);
                    }
                    _ => {
                        let (scale, buffer) = (head.scale, &mut self.reference);
                        add_reference_chain(
                            &stripe, reference, scale, count, &run, values, buffer,
                        )?;
                    }
                }
            }
            append_floats(&head, &self.now.runs[i], &run, into)?;
        }
        self.now.column = Some((stripe.index, at, wanted));
        std::mem::swap(&mut self.now, &mut self.last);
        Ok(())
    }
}

impl DecodedFloatRuns {
    /// Returns the integers of the `nth` decoded run, if they belong to this column.
    fn cached_run(
        &self,
        stripe: usize,
        at: usize,
        wanted: &Range<usize>,
        nth: usize,
        scale: u8,
    ) -> Option<&[i64]> {
        let column = self.column.as_ref()?;
        let is_it = (column.0, column.1, &column.2) == (stripe, at, wanted)
            && self.scales.get(nth) == Some(&scale);
        self.runs.get(nth).filter(|_| is_it).map(Vec::as_slice)
    }
}

/// Adds the integers of the column at `at` and of its chain of references to `values`.
/// `of_reference` is a buffer for the integers of one of them.
fn add_reference_chain(
    stripe: &PageStripe<'_>,
    mut at: usize,
    scale: u8,
    count: usize,
    run: &ColumnRun,
    values: &mut [i64],
    of_reference: &mut Vec<i64>,
) -> Result<(), DecodeError> {
    grow_for_run(of_reference, run);
    for _ in 1..CHAIN_MAX {
        let (distance, cursor) = stripe.open_column(at)?;
        let head = read_run(cursor, count, run, of_reference)?;
        if head.scale != scale {
            return Err(DecodeError("sibling with another scale"));
        }
        add_values(values, of_reference, &run.wanted);
        if !head.has_reference() {
            return Ok(());
        }
        at = stripe.reference_offset(at, distance)?;
    }
    Err(DecodeError("chain of siblings too long"))
}

/// Grows memory to the places of a run's integers. The content is kept: clearing it for each run
/// would take longer than decoding a few values.
fn grow_for_run(values: &mut Vec<i64>, run: &ColumnRun) {
    if values.len() < run.padded_count() {
        values.resize(run.padded_count(), 0);
    }
}

fn add_values(values: &mut [i64], more: &[i64], wanted: &Range<usize>) {
    let pairs = values[wanted.clone()].iter_mut().zip(&more[wanted.clone()]);
    for (value, more) in pairs {
        *value = value.wrapping_add(*more);
    }
}

/// Decodes the integers of a run of the column at the cursor.
#[inline]
fn read_run<'a>(
    mut cursor: DecodeCursor<'a>,
    count: usize,
    run: &ColumnRun,
    values: &mut [i64],
) -> Result<FloatRunHeader<'a>, DecodeError> {
    runs::seek_run(&mut cursor, count, run.index)?;
    let head = FloatRunHeader::read(&mut cursor)?;
    let tag = head.ints_tag();
    ints::read_run(&mut cursor, tag, run, values)?;
    Ok(head)
}

#[inline]
fn append_floats(
    head: &FloatRunHeader<'_>,
    values: &[i64],
    run: &ColumnRun,
    into: &mut Vec<f64>,
) -> Result<(), DecodeError> {
    head.append_floats(&values[run.wanted.clone()], run.wanted.start, into)
}

/// Decodes the value of a constant column: raw bits, or a decimal scale and an integer.
pub(crate) fn read_constant(mut cursor: DecodeCursor<'_>) -> Result<f64, DecodeError> {
    match cursor.read_byte()? {
        BITS => cursor.read_u64().map(f64::from_bits),
        code => {
            let scale = DecimalScale::from_code(code).ok_or(DecodeError("unknown scale"))?;
            Ok(scale.to_float(unzigzag(cursor.read_uvarint()?)))
        }
    }
}

/// Returns whether the column at `at` of a stripe has exactly these values.
pub(super) fn is_column_equal(stripe: &[u8], at: usize, values: &[f64]) -> bool {
    let (mut reader, mut read) = (FloatColumnReader::default(), Vec::new());
    let stripe = PageStripe {
        page: &Arc::from([]),
        index: 0,
        bytes: stripe,
    };
    let decoded = reader.read(stripe, at, values.len(), 0..values.len(), &mut read);
    let same = |(a, b): (&f64, &f64)| a.to_bits() == b.to_bits();
    decoded.is_ok() && read.iter().zip(values).all(same)
}

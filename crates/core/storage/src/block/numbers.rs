//! Lists of numbers encoded as integer columns of pages: runs of 1,024 numbers, each in its
//! shortest encoding.

use crate::encoding::DecodeError;
use crate::encoding::cursor::DecodeCursor;
use crate::page::ints;
use crate::page::planner::IntRunPlanner;

/// Appends `numbers`. Their count is not stored; the reader must get it from elsewhere.
pub(crate) fn push_numbers(
    out: &mut Vec<u8>,
    planner: &mut IntRunPlanner,
    numbers: impl Iterator<Item = u64>,
) {
    let numbers: Vec<i64> = numbers.map(|n| n as i64).collect();
    if !numbers.is_empty() {
        ints::push_column(out, planner, &numbers);
    }
}

/// Reads `count` numbers. The caller must have validated the count, because memory is reserved for
/// it.
pub(crate) fn read_numbers(
    cursor: &mut DecodeCursor<'_>,
    count: usize,
) -> Result<Vec<u64>, DecodeError> {
    if count == 0 {
        return Ok(Vec::new());
    }
    // The decoder unpacks whole vectors, so it may write one more than `count` needs.
    let mut numbers = Vec::with_capacity(count.next_multiple_of(128) + 128);
    ints::read_column(*cursor, count, 0..count, &mut numbers)?;
    ints::skip_column(cursor, count)?;
    Ok(numbers.into_iter().map(|n| n as u64).collect())
}

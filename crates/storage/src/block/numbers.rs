//! Lists of numbers as integer columns of pages: runs of 1,024, each in its smallest form.

use crate::encoding::Malformed;
use crate::encoding::cursor::Cursor;
use crate::page::ints;
use crate::page::planner::Planner;

/// Appends `numbers`; how many there are must be known from elsewhere.
pub(crate) fn push(out: &mut Vec<u8>, planner: &mut Planner, numbers: impl Iterator<Item = u64>) {
    let numbers: Vec<i64> = numbers.map(|n| n as i64).collect();
    if !numbers.is_empty() {
        ints::push_column(out, planner, &numbers);
    }
}

/// Reads `count` numbers, which the caller has bounded.
pub(crate) fn read(cursor: &mut Cursor<'_>, count: usize) -> Result<Vec<u64>, Malformed> {
    if count == 0 {
        return Ok(Vec::new());
    }
    // Whole vectors are unpacked, so that there is room for one more.
    let mut numbers = Vec::with_capacity(count.next_multiple_of(128) + 128);
    ints::read_column(*cursor, count, 0..count, &mut numbers)?;
    ints::skip_column(cursor, count)?;
    Ok(numbers.into_iter().map(|n| n as u64).collect())
}

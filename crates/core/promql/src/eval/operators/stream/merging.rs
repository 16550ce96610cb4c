//! Merges series that became equal when their metric names were removed.

use super::NameCollisionRule;
use crate::eval::account::{QueryAccount, grow};
use crate::eval::rows::frame::SeriesFrame;
use crate::eval::rows::row::{ABSENT, StepRowBuffer, is_absent};
use crate::value::PromqlError;
use rustc_hash::FxHashMap;

/// Returns the error for two series with equal labels.
pub(crate) fn same_labelset_error() -> PromqlError {
    PromqlError::Execution("vector cannot contain metrics with the same labelset".into())
}

/// Merges series with equal labels, or fails, depending on `collision`.
pub(crate) fn merge_equal(
    frame: SeriesFrame,
    collision: NameCollisionRule,
    account: &QueryAccount<'_>,
) -> Result<SeriesFrame, PromqlError> {
    // An entry with a list of one, in a map with capacity for twice as many, and an entry in
    // `order`.
    const PLACE_BYTES: usize = 2 * size_of::<(&[u8], Vec<usize>)>() + 64;
    let mut places = account.reserve(frame.len() * PLACE_BYTES)?;
    let mut labels = Vec::with_capacity(frame.len());
    for series in 0..frame.len() {
        account.check()?;
        let of_series = frame.labels(series);
        grow(&mut places, of_series.as_bytes().len())?;
        labels.push(of_series);
    }
    let mut members: FxHashMap<&[u8], Vec<usize>> = FxHashMap::default();
    let mut order = Vec::new();
    for (series, labels) in labels.iter().enumerate() {
        account.check()?;
        let group = members.entry(labels.as_bytes()).or_default();
        if group.is_empty() {
            order.push(series);
        }
        group.push(series);
    }
    if order.len() == frame.len() {
        drop(members);
        return Ok(frame);
    }
    if collision == NameCollisionRule::Refused {
        return Err(same_labelset_error());
    }
    let mut out = frame.new_like(frame.steps());
    // Both frames are in memory until the copy is complete.
    let _copied = account.reserve(frame.bytes())?;
    let mut row = StepRowBuffer::default();
    for first in order {
        account.check()?;
        row.copy_from(frame.row(first));
        for other in &members[labels[first].as_bytes()][1..] {
            account.check()?;
            merge_rows(&mut row, &frame, *other, collision)?;
        }
        out.push_with_labels_of(&frame, first, row.row());
    }
    drop(members);
    out.take_memory_of(frame.into(), account)?;
    Ok(out)
}

/// Adds the values of a series to a row. Fails if the row already has a value at such a step.
fn merge_rows(
    row: &mut StepRowBuffer,
    frame: &SeriesFrame,
    series: usize,
    collision: NameCollisionRule,
) -> Result<(), PromqlError> {
    let other = frame.row(series);
    for (step, value) in other.values.iter().enumerate() {
        let own = (
            !is_absent(row.values[step]),
            row.row().histogram(step).is_some(),
        );
        let more = (!is_absent(*value), other.histogram(step).is_some());
        let of_one_kind = (own.0 && more.0) || (own.1 && more.1);
        let of_two_kinds = (own.0 && more.1) || (own.1 && more.0);
        if of_one_kind || (of_two_kinds && collision != NameCollisionRule::MergedByKind) {
            return Err(same_labelset_error());
        }
        if value.to_bits() != ABSENT.to_bits() {
            row.values[step] = *value;
        }
    }
    row.histograms.extend_from_slice(other.histograms);
    row.histograms.sort_by_key(|(step, _)| *step);
    Ok(())
}

//! Adds exponential histograms with different resolutions.
//!
//! Both are reduced to the coarser scale, and further until the result has at most [`BUCKETS_MAX`]
//! buckets on each side, as in the collector. Totals therefore stay small, however wide the range
//! of values is.

use super::add_known_sums;
use firn_wire::otlp::{ExponentialBuckets, ExponentialHistogramPoint};

/// Largest number of buckets on one side.
const BUCKETS_MAX: i64 = 160;

/// Adds `new` to `total`, which may get a coarser scale and a wider zero bucket.
pub(super) fn add_histogram(
    total: &mut ExponentialHistogramPoint,
    mut new: ExponentialHistogramPoint,
) {
    let coarser = total.scale.min(new.scale);
    coarsen_to(total, coarser);
    coarsen_to(&mut new, coarser);
    let fits = |a: &ExponentialBuckets, b: &ExponentialBuckets| find_common_scale(coarser, a, b);
    let scale = fits(&total.positive, &new.positive).min(fits(&total.negative, &new.negative));
    coarsen_to(total, scale);
    coarsen_to(&mut new, scale);
    let (of_total, of_new) = (total.zero_threshold, new.zero_threshold);
    if of_total < of_new {
        widen_zero(total, of_new);
    } else if of_new < of_total {
        widen_zero(&mut new, of_total);
    }
    merge_buckets(&mut total.positive, &new.positive);
    merge_buckets(&mut total.negative, &new.negative);
    total.count = total.count.wrapping_add(new.count);
    total.zero_count = total.zero_count.wrapping_add(new.zero_count);
    total.sum = add_known_sums(total.sum, new.sum);
    total.times.time = new.times.time;
}

/// Reduces a histogram to `scale`, if it is finer. The counts of merged buckets are added.
fn coarsen_to(point: &mut ExponentialHistogramPoint, scale: i32) {
    let shift = i64::from(point.scale) - i64::from(scale);
    if shift > 0 {
        coarsen(&mut point.positive, shift);
        coarsen(&mut point.negative, shift);
        point.scale = scale;
    }
}

/// Merges groups of 2^`shift` buckets into one each, aligned at bucket 0.
fn coarsen(buckets: &mut ExponentialBuckets, shift: i64) {
    let shift = shift.min(62) as u32;
    let first = i64::from(buckets.offset);
    let offset = first >> shift;
    let mut merged: Vec<u64> = Vec::new();
    for (i, count) in buckets.counts.iter().enumerate() {
        let at = (((first + i as i64) >> shift) - offset) as usize;
        // The index grows by at most one.
        match merged.get_mut(at) {
            Some(known) => *known = known.wrapping_add(*count),
            None => merged.push(*count),
        }
    }
    *buckets = ExponentialBuckets {
        offset: offset as i32,
        counts: merged,
    };
}

/// Returns the number of the first bucket that is not empty, and the number after the last one.
fn occupied_range(buckets: &ExponentialBuckets) -> Option<(i64, i64)> {
    let place = |at: usize| i64::from(buckets.offset) + at as i64;
    let first = buckets.counts.iter().position(|count| *count > 0)?;
    let last = buckets.counts.iter().rposition(|count| *count > 0)?;
    Some((place(first), place(last) + 1))
}

/// Returns the range of buckets that covers both. Returns `None` if both are empty.
fn joint_occupied_range(a: &ExponentialBuckets, b: &ExponentialBuckets) -> Option<(i64, i64)> {
    match (occupied_range(a), occupied_range(b)) {
        (Some((a, b)), Some((c, d))) => Some((a.min(c), b.max(d))),
        (one, other) => one.or(other),
    }
}

/// Returns the finest scale, at most `scale`, at which both together have at most [`BUCKETS_MAX`]
/// buckets.
fn find_common_scale(scale: i32, a: &ExponentialBuckets, b: &ExponentialBuckets) -> i32 {
    let Some((mut lower, mut upper)) = joint_occupied_range(a, b) else {
        return scale;
    };
    let mut scale = scale;
    while upper - lower > BUCKETS_MAX {
        lower /= 2;
        upper /= 2;
        scale -= 1;
    }
    scale
}

fn merge_buckets(total: &mut ExponentialBuckets, new: &ExponentialBuckets) {
    if new.counts.is_empty() {
        return;
    }
    if total.counts.is_empty() {
        total.clone_from(new);
        return;
    }
    let Some((lower, upper)) = joint_occupied_range(total, new) else {
        *total = ExponentialBuckets::default();
        return;
    };
    let mut counts = vec![0u64; (upper - lower) as usize];
    for buckets in [&*total, new] {
        for (i, count) in buckets.counts.iter().enumerate() {
            let at = usize::try_from(i64::from(buckets.offset) + i as i64 - lower);
            if let Some(sum) = at.ok().and_then(|at| counts.get_mut(at)) {
                *sum = sum.wrapping_add(*count);
            }
        }
    }
    *total = ExponentialBuckets {
        offset: lower.clamp(i64::from(i32::MIN), i64::from(i32::MAX)) as i32,
        counts,
    };
}

/// Moves all buckets that are completely within `width` of zero to the zero count.
fn widen_zero(point: &mut ExponentialHistogramPoint, width: f64) {
    if !(width.is_finite() && width >= f64::MIN_POSITIVE) {
        return;
    }
    let last = bucket_index(width, point.scale);
    let mut moved = 0u64;
    for side in [&mut point.positive, &mut point.negative] {
        let within = last + 1 - i64::from(side.offset);
        let within = within.clamp(0, side.counts.len() as i64) as usize;
        let counts = side.counts.drain(..within);
        moved = counts.fold(moved, u64::wrapping_add);
        side.offset = side.offset.saturating_add(within as i32);
    }
    point.zero_count = point.zero_count.wrapping_add(moved);
    let step = std::f64::consts::LN_2 * 2f64.powi(-point.scale);
    point.zero_threshold = ((last + 1) as f64 * step).exp();
}

/// Returns the number of the bucket that contains `value`, which must be a positive normal number.
fn bucket_index(value: f64, scale: i32) -> i64 {
    const FRACTION_BITS: u32 = 52;
    let bits = value.to_bits();
    let exponent = (bits >> FRACTION_BITS) as i64 - 1023;
    // Powers of two are bucket bounds; the logarithm would miss them by rounding.
    if bits.trailing_zeros() >= FRACTION_BITS {
        return match scale {
            0.. => (exponent << scale.min(40)) - 1,
            _ => (exponent - 1) >> (-i64::from(scale)).min(62),
        };
    }
    let factor = std::f64::consts::LOG2_E * 2f64.powi(scale);
    (value.ln() * factor).floor() as i64
}

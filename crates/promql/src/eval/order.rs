//! Sorting that can be stopped, and that says what it takes.
//!
//! Invariant: stable, as `slice::sort_by`. Runs are sorted one by one and merged pair by pair; the
//! cancel flag is looked at between pieces that take well under a millisecond.

use crate::eval::account::Account;
use crate::value::QueryError;
use std::cmp::Ordering;

/// Elements in a run, and those merged between two looks at the cancel flag.
const RUN: usize = 1024;

/// Sorts the numbers in `order` by `compare`.
pub(crate) fn ordered(
    order: &mut Vec<usize>,
    account: &Account<'_>,
    compare: impl Fn(usize, usize) -> Ordering,
) -> Result<(), QueryError> {
    for run in order.chunks_mut(RUN) {
        account.check()?;
        run.sort_by(|a, b| compare(*a, *b));
    }
    if order.len() <= RUN {
        return Ok(());
    }
    let _memory = account.reserve(size_of_val(&order[..]))?;
    let mut merged = Vec::with_capacity(order.len());
    let mut run = RUN;
    while run < order.len() {
        for pair in order.chunks(2 * run) {
            let (left, right) = pair.split_at(run.min(pair.len()));
            merge(left, right, account, &compare, &mut merged)?;
        }
        std::mem::swap(order, &mut merged);
        merged.clear();
        run *= 2;
    }
    Ok(())
}

/// Appends both sorted lists to `out` as one; of equals the left one first.
fn merge(
    mut left: &[usize],
    mut right: &[usize],
    account: &Account<'_>,
    compare: impl Fn(usize, usize) -> Ordering,
    out: &mut Vec<usize>,
) -> Result<(), QueryError> {
    let mut taken = 0usize;
    while let ([l, left_rest @ ..], [r, right_rest @ ..]) = (left, right) {
        if taken.is_multiple_of(RUN) {
            account.check()?;
        }
        taken += 1;
        if compare(*r, *l).is_lt() {
            out.push(*r);
            right = right_rest;
        } else {
            out.push(*l);
            left = left_rest;
        }
    }
    out.extend_from_slice(left);
    out.extend_from_slice(right);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_model::budget::Budget;
    use firn_model::cancel::{Cancel, Reason};

    fn check(count: usize, keys: impl Fn(usize) -> usize) {
        let (budget, cancel) = (Budget::new("query", 1 << 30), Cancel::new());
        let account = Account::new(&budget, &cancel, 0);
        let mut order: Vec<usize> = (0..count).collect();
        ordered(&mut order, &account, |a, b| keys(a).cmp(&keys(b))).unwrap();
        let mut want: Vec<usize> = (0..count).collect();
        want.sort_by_key(|i| keys(*i));
        assert!(order == want, "{count}");
        assert_eq!(budget.used_bytes(), 0);
    }

    #[test]
    fn ordered_is_stable_at_any_length() {
        for count in [0, 1, RUN, RUN + 1, 3 * RUN - 1, 10 * RUN + 17] {
            check(count, |i| i);
            check(count, |i| usize::MAX - i);
            check(count, |i| i.wrapping_mul(0x9e37_79b9) % 97);
        }
    }

    #[test]
    fn ordered_stops_when_told_and_asks_for_its_memory() {
        let (budget, cancel) = (Budget::new("query", 100), Cancel::new());
        let account = Account::new(&budget, &cancel, 0);
        let mut order: Vec<usize> = (0..RUN + 1).collect();
        let refused = ordered(&mut order, &account, |a, b| a.cmp(&b)).unwrap_err();
        assert!(matches!(refused, QueryError::Limited(_)), "{refused:?}");
        cancel.cancel(Reason::Canceled);
        let stopped = ordered(&mut order, &account, |a, b| a.cmp(&b)).unwrap_err();
        assert!(matches!(stopped, QueryError::Canceled(_)), "{stopped:?}");
    }
}

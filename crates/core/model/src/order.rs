//! Sorting that can be canceled.
//!
//! Invariant: the sort is stable, like `slice::sort_by`. Runs are sorted one by one and merged in
//! pairs. The caller's check runs between pieces, which take much less than a millisecond.

use std::cmp::Ordering;

/// Number of elements in a run, and number of merged elements between two checks.
const RUN: usize = 1024;

/// Returns the bytes that [`sort_checked`] allocates in addition to the list.
pub fn bytes_beside(order: &[usize]) -> usize {
    if order.len() > RUN {
        size_of_val(order)
    } else {
        0
    }
}

/// Returns the bytes that [`sort_list_checked`] allocates in addition to the list.
pub fn list_sort_bytes<T>(list: &[T]) -> usize {
    list.len() * (2 * size_of::<usize>() + size_of::<Option<T>>())
}

/// Sorts `list` by `compare`. Returns the first error of `check`; the list is then unchanged.
pub fn sort_list_checked<T, E>(
    list: &mut Vec<T>,
    check: impl Fn() -> Result<(), E>,
    compare: impl Fn(&T, &T) -> Ordering,
) -> Result<(), E> {
    let mut order: Vec<usize> = (0..list.len()).collect();
    sort_checked(&mut order, check, |a, b| compare(&list[a], &list[b]))?;
    let mut places: Vec<Option<T>> = list.drain(..).map(Some).collect();
    list.extend(order.into_iter().filter_map(|place| places[place].take()));
    Ok(())
}

/// Sorts the indexes in `order` by `compare`. Returns the first error of `check`; the order is then
/// unspecified.
pub fn sort_checked<E>(
    order: &mut Vec<usize>,
    check: impl Fn() -> Result<(), E>,
    compare: impl Fn(usize, usize) -> Ordering,
) -> Result<(), E> {
    for run in order.chunks_mut(RUN) {
        check()?;
        run.sort_by(|a, b| compare(*a, *b));
    }
    if order.len() <= RUN {
        return Ok(());
    }
    let mut merged = Vec::with_capacity(order.len());
    let mut run = RUN;
    while run < order.len() {
        for pair in order.chunks(2 * run) {
            let (left, right) = pair.split_at(run.min(pair.len()));
            merge(left, right, &check, &compare, &mut merged)?;
        }
        std::mem::swap(order, &mut merged);
        merged.clear();
        run *= 2;
    }
    Ok(())
}

/// Merges two sorted lists into `out`. Of equal elements, those of the left list are first.
fn merge<E>(
    mut left: &[usize],
    mut right: &[usize],
    check: impl Fn() -> Result<(), E>,
    compare: impl Fn(usize, usize) -> Ordering,
    out: &mut Vec<usize>,
) -> Result<(), E> {
    let mut taken = 0usize;
    while let ([l, left_rest @ ..], [r, right_rest @ ..]) = (left, right) {
        if taken.is_multiple_of(RUN) {
            check()?;
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

    fn check(count: usize, keys: impl Fn(usize) -> usize) {
        let mut order: Vec<usize> = (0..count).collect();
        let go_on = || Ok::<_, ()>(());
        sort_checked(&mut order, go_on, |a, b| keys(a).cmp(&keys(b))).unwrap();
        let mut want: Vec<usize> = (0..count).collect();
        want.sort_by_key(|i| keys(*i));
        assert!(order == want, "{count}");
        let mut list: Vec<usize> = (0..count).collect();
        sort_list_checked(&mut list, go_on, |a, b| keys(*a).cmp(&keys(*b))).unwrap();
        assert!(list == want, "{count}");
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
    fn ordered_stops_at_any_question() {
        let mut questions = 0;
        loop {
            let left = std::cell::Cell::new(questions);
            let go_on = || match left.get() {
                0 => Err("stopped"),
                more => {
                    left.set(more - 1);
                    Ok(())
                }
            };
            let mut order: Vec<usize> = (0..4 * RUN).collect();
            match sort_checked(&mut order, go_on, |a, b| b.cmp(&a)) {
                Ok(()) => break,
                Err(why) => assert_eq!(why, "stopped"),
            }
            questions += 1;
        }
        // Four runs, two merges of pairs of them, and one merge of all in two pieces.
        assert_eq!(questions, 8);
    }
}

//! Sorting that can be canceled and that accounts for its memory.

use crate::eval::account::QueryAccount;
use crate::value::PromqlError;
use firn_model::order::{self, bytes_beside};
use std::cmp::Ordering;

/// Sorts the indexes in `order` by `compare`. The sort is stable, checks for cancellation, and
/// reserves its temporary memory.
pub(crate) fn sort_indexes(
    order: &mut Vec<usize>,
    account: &QueryAccount<'_>,
    compare: impl Fn(usize, usize) -> Ordering,
) -> Result<(), PromqlError> {
    let _memory = account.reserve(bytes_beside(order))?;
    order::sort_checked(order, || account.check(), compare)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script::OPTIONS;
    use firn_model::budget::Budget;
    use firn_model::cancel::{CancelReason, CancelToken};

    #[test]
    fn ordered_stops_when_told_and_asks_for_its_memory() {
        let (budget, cancel) = (Budget::new("query", 100), CancelToken::new());
        let account = QueryAccount::new(&budget, &cancel, &OPTIONS);
        let mut order: Vec<usize> = (0..2_000).collect();
        let refused = sort_indexes(&mut order, &account, |a, b| a.cmp(&b)).unwrap_err();
        assert!(matches!(refused, PromqlError::Limited(_)), "{refused:?}");
        order.truncate(10);
        assert_eq!(sort_indexes(&mut order, &account, |a, b| b.cmp(&a)), Ok(()));
        assert_eq!((order[0], budget.used_bytes()), (9, 0));
        cancel.cancel(CancelReason::Canceled);
        let stopped = sort_indexes(&mut order, &account, |a, b| a.cmp(&b)).unwrap_err();
        assert!(matches!(stopped, PromqlError::Canceled(_)), "{stopped:?}");
    }
}

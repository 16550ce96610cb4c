//! Memory budgets: memory must be reserved before it is allocated.
//!
//! Budgets form a tree: the budget of a query is a child of the budget of all queries, which is a
//! child of the budget of the process. A reservation either counts in the whole chain, or fails and
//! counts nowhere. A share is a part that was set aside. It also counts in the whole chain, but the
//! budgets above cannot reject it, because all shares together are not larger than the whole
//! ([`crate::shares`]).

use crate::error::{Error, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A limit in bytes and the used part of it. Cloning is cheap, and clones share the counters.
#[derive(Clone, Debug)]
pub struct Budget(Arc<BudgetNode>);

#[derive(Debug)]
struct BudgetNode {
    name: &'static str,
    limit_bytes: usize,
    used_bytes: AtomicUsize,
    peak_bytes: AtomicUsize,
    parent: Option<Budget>,
    /// True if this is a share: the parent counts its reservations and cannot reject them.
    is_set_aside: bool,
    /// If present, usage above this number of bytes also counts in the other budget.
    beyond: Option<(usize, Budget)>,
}

impl BudgetNode {
    /// Returns how many of the last `bytes` of `used` are above the limit for small reservations.
    fn count_large(&self, used: usize, bytes: usize) -> usize {
        let Some((small, _)) = &self.beyond else {
            return 0;
        };
        used.saturating_sub(*small) - (used - bytes).saturating_sub(*small)
    }

    /// Releases `bytes`. When they were reserved, `large` of them were above the limit for
    /// small reservations, and `counted` of those were counted in the other budget. The bytes above
    /// that limit may belong to other reservations now. The sums are nevertheless correct, because
    /// each change of the usage is counted once.
    fn release(&self, bytes: usize, large: usize, counted: usize) {
        let used = self.used_bytes.fetch_sub(bytes, Ordering::Relaxed);
        let Some((_, beyond)) = &self.beyond else {
            return;
        };
        beyond.reserve_unchecked(large - counted);
        beyond.release_bytes(self.count_large(used, bytes));
    }
}

impl Budget {
    /// Creates a budget without a parent. The error of an exceeded budget contains `name`.
    pub fn new(name: &'static str, limit_bytes: usize) -> Self {
        Self::with_parent(name, limit_bytes, None, false)
    }

    /// Creates a budget inside this one: its reservations also count here.
    pub fn create_child(&self, name: &'static str, limit_bytes: usize) -> Self {
        Self::with_parent(name, limit_bytes, Some(self.clone()), false)
    }

    /// Creates a share that is set aside from this budget. Its reservations also count here but are
    /// never rejected here, so that other budgets cannot use it up.
    pub fn create_share(&self, name: &'static str, limit_bytes: usize) -> Self {
        Self::with_parent(name, limit_bytes, Some(self.clone()), true)
    }

    /// Creates a budget inside this one. Its usage above `small_bytes` also counts in
    /// `count_large`. If `count_large` has a lower limit than this budget, some of this budget
    /// always remains available for small reservations.
    pub fn create_child_beyond(
        &self,
        name: &'static str,
        limit_bytes: usize,
        small_bytes: usize,
        large: &Budget,
    ) -> Self {
        let node = BudgetNode {
            beyond: Some((small_bytes, large.clone())),
            ..Self::create_node(name, limit_bytes, Some(self.clone()), false)
        };
        Self(Arc::new(node))
    }

    fn with_parent(
        name: &'static str,
        limit_bytes: usize,
        parent: Option<Budget>,
        is_set_aside: bool,
    ) -> Self {
        Self(Arc::new(Self::create_node(
            name,
            limit_bytes,
            parent,
            is_set_aside,
        )))
    }

    fn create_node(
        name: &'static str,
        limit_bytes: usize,
        parent: Option<Budget>,
        is_set_aside: bool,
    ) -> BudgetNode {
        BudgetNode {
            name,
            limit_bytes,
            used_bytes: AtomicUsize::new(0),
            peak_bytes: AtomicUsize::new(0),
            parent,
            is_set_aside,
            beyond: None,
        }
    }

    /// Reserves `bytes` in this budget and in all its parents. Fails with [`ErrorKind::Limited`] if
    /// any limit would be exceeded.
    pub fn reserve(&self, bytes: usize) -> Result<Reservation, Error> {
        self.reserve_bytes(bytes)?;
        Ok(Reservation {
            budget: self.clone(),
            bytes,
        })
    }

    /// Creates an empty reservation, for memory that is used before it can be reserved: see
    /// [`Reservation::set`].
    pub fn create_reservation(&self) -> Reservation {
        Reservation {
            budget: self.clone(),
            bytes: 0,
        }
    }

    /// Counts `bytes` in this budget and in all its parents, like [`Budget::reserve`], without an
    /// owner that releases them.
    pub(crate) fn reserve_bytes(&self, bytes: usize) -> Result<(), Error> {
        let node = &*self.0;
        let used = node
            .used_bytes
            .fetch_add(bytes, Ordering::Relaxed)
            .saturating_add(bytes);
        let large = node.count_large(used, bytes);
        if used > node.limit_bytes {
            node.release(bytes, large, 0);
            return Err(Error::new(
                ErrorKind::Limited,
                format!(
                    "{} memory limit reached: {used} bytes needed, limit {}",
                    node.name, node.limit_bytes
                ),
            ));
        }
        if let Some((_, beyond)) = &node.beyond
            && large > 0
            && let Err(e) = beyond.reserve_bytes(large)
        {
            node.release(bytes, large, 0);
            return Err(e);
        }
        match &node.parent {
            Some(parent) if node.is_set_aside => parent.reserve_unchecked(bytes),
            Some(parent) => {
                if let Err(e) = parent.reserve_bytes(bytes) {
                    node.release(bytes, large, large);
                    return Err(e);
                }
            }
            None => {}
        }
        node.peak_bytes.fetch_max(used, Ordering::Relaxed);
        Ok(())
    }

    /// Counts `bytes` that are already in use, regardless of the limits.
    fn reserve_unchecked(&self, bytes: usize) {
        let node = &*self.0;
        let before = node.used_bytes.fetch_add(bytes, Ordering::Relaxed);
        let used = before.saturating_add(bytes);
        node.peak_bytes.fetch_max(used, Ordering::Relaxed);
        if let Some((_, beyond)) = &node.beyond {
            beyond.reserve_unchecked(node.count_large(used, bytes));
        }
        if let Some(parent) = &node.parent {
            parent.reserve_unchecked(bytes);
        }
    }

    /// Releases `bytes`, which were reserved before.
    pub(crate) fn release_bytes(&self, bytes: usize) {
        self.0.release(bytes, 0, 0);
        if let Some(parent) = &self.0.parent {
            parent.release_bytes(bytes);
        }
    }

    /// Returns the number of bytes reserved now, including those of child budgets.
    pub fn used_bytes(&self) -> usize {
        self.0.used_bytes.load(Ordering::Relaxed)
    }

    /// Returns the maximum number of bytes that were reserved at one time.
    pub fn peak_bytes(&self) -> usize {
        self.0.peak_bytes.load(Ordering::Relaxed)
    }

    /// Returns the limit in bytes. A limit of `usize::MAX` means that there is none.
    pub fn limit_bytes(&self) -> usize {
        self.0.limit_bytes
    }
}

/// Bytes reserved in a budget. They are released when the reservation is dropped.
#[derive(Debug)]
pub struct Reservation {
    budget: Budget,
    bytes: usize,
}

impl Reservation {
    /// Grows the reservation by `bytes`. If this fails, the reservation is unchanged.
    pub fn grow(&mut self, bytes: usize) -> Result<(), Error> {
        // Avoid access to the counters, which are shared by all threads.
        if bytes == 0 {
            return Ok(());
        }
        self.budget.reserve_bytes(bytes)?;
        self.bytes += bytes;
        Ok(())
    }

    /// Releases all except `bytes`. Does nothing if the reservation is smaller.
    pub fn shrink_to(&mut self, bytes: usize) {
        let surplus = self.bytes.saturating_sub(bytes);
        self.budget.release_bytes(surplus);
        self.bytes -= surplus;
    }

    /// Sets the reservation to `bytes` that are in use and cannot be rejected any more. As long as
    /// a limit is exceeded in this way, all other reservations are rejected.
    pub fn set(&mut self, bytes: usize) {
        self.budget
            .reserve_unchecked(bytes.saturating_sub(self.bytes));
        self.budget.release_bytes(self.bytes.saturating_sub(bytes));
        self.bytes = bytes;
    }

    /// Returns the size of the reservation in bytes, which may be zero.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.budget.release_bytes(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budget_beyond_small_leaves_room_for_those_who_take_little() {
        let all = Budget::new("all queries", 100);
        let large = Budget::new("large queries", 60);
        let query = || all.create_child_beyond("query", 100, 10, &large);
        let (one, two) = (query(), query());
        let held = one.reserve(70).unwrap();
        assert_eq!((all.used_bytes(), large.used_bytes()), (70, 60));
        let e = one.reserve(1).unwrap_err();
        assert!(
            e.message
                .starts_with("large queries memory limit reached: 61")
        );
        let e = two.reserve(11).unwrap_err();
        assert!(e.message.starts_with("large queries"), "{e}");
        let small = two.reserve(10).unwrap();
        assert_eq!((all.used_bytes(), large.used_bytes()), (80, 60));
        let mut three = query().create_reservation();
        three.set(15);
        assert_eq!(
            large.used_bytes(),
            65,
            "what is used already is not refused"
        );
        drop((held, small, three));
        assert_eq!((all.used_bytes(), large.used_bytes()), (0, 0));
    }

    #[test]
    fn budget_beyond_small_sums_up_on_many_threads() {
        let all = Budget::new("all queries", 300);
        let large = Budget::new("large queries", 100);
        let query = all.create_child_beyond("query", 200, 50, &large);
        std::thread::scope(|threads| {
            for seed in 1..5usize {
                let query = &query;
                threads.spawn(move || {
                    for turn in 0..5_000 {
                        drop(query.reserve(turn * seed % 97));
                    }
                });
            }
        });
        assert_eq!((all.used_bytes(), large.used_bytes()), (0, 0));
    }

    #[test]
    fn budget_reserve_over_parent_limit_counts_nowhere() {
        let all = Budget::new("all queries", 100);
        let one = all.create_child("query", 80);
        let held = one.reserve(60).unwrap();
        let other = all.create_child("query", 80);
        let e = other.reserve(50).unwrap_err();
        assert_eq!(e.kind, ErrorKind::Limited);
        assert_eq!(
            e.message,
            "all queries memory limit reached: 110 bytes needed, limit 100"
        );
        assert_eq!((other.used_bytes(), all.used_bytes()), (0, 60));
        drop(held);
        assert_eq!((all.used_bytes(), all.peak_bytes()), (0, 60));
    }

    #[test]
    fn budget_held_over_limit_refuses_those_who_ask() {
        let all = Budget::new("process", 100);
        let queries = all.create_child("all queries", 100);
        let mut head = all.create_reservation();
        head.set(70);
        let query = queries.reserve(30).unwrap();
        head.set(90);
        assert_eq!((all.used_bytes(), all.peak_bytes()), (120, 120));
        assert_eq!(
            queries.reserve(1).unwrap_err().message,
            "process memory limit reached: 121 bytes needed, limit 100"
        );
        drop(query);
        head.set(40);
        assert!(queries.reserve(60).is_ok());
        drop(head);
        assert_eq!(all.used_bytes(), 0);
    }

    #[test]
    fn budget_share_that_was_set_aside_is_not_refused_for_others() {
        let all = Budget::new("process", 100);
        let writes = all.create_share("writes", 30);
        let mut head = all.create_reservation();
        head.set(95);
        let write = writes.reserve(30).unwrap();
        assert_eq!((all.used_bytes(), writes.used_bytes()), (125, 30));
        assert_eq!(
            writes.reserve(1).unwrap_err().message,
            "writes memory limit reached: 31 bytes needed, limit 30"
        );
        assert!(all.create_child("query", 10).reserve(1).is_err());
        drop((write, head));
        assert_eq!(all.used_bytes(), 0);
    }
}

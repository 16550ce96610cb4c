//! The locks and atomics of head, index and store: those of std, but in the tests of
//! `make interleavings` those of a scheduler that tries orders of threads.

#[cfg(all(test, shuttle))]
pub(crate) use shuttle::sync::{Condvar, Mutex, MutexGuard, atomic};
#[cfg(not(all(test, shuttle)))]
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard, atomic};

use std::sync::PoisonError;

/// Takes the lock, poisoned or not: what it guards is sound after each statement.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

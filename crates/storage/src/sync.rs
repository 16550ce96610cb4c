//! The locks and atomics of head, index and store: those of std, but in the tests of
//! `make interleavings` those of a scheduler that tries orders of threads.

#[cfg(not(all(test, feature = "shuttle")))]
pub(crate) use firn_model::sync::lock;
#[cfg(all(test, feature = "shuttle"))]
pub(crate) use shuttle::sync::{Condvar, Mutex, MutexGuard, atomic};
#[cfg(not(all(test, feature = "shuttle")))]
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard, atomic};

/// Like [`firn_model::sync::lock`], for the scheduler's locks.
#[cfg(all(test, feature = "shuttle"))]
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

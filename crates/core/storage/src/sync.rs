//! The locks and atomics of head, index and store: those of std, or, in the tests of `make
//! interleavings`, those of a scheduler that tries many interleavings.

#[cfg(not(all(test, feature = "shuttle")))]
pub(crate) use firn_model::sync::{into_inner, lock, wait};
#[cfg(all(test, feature = "shuttle"))]
pub(crate) use scheduled::{into_inner, lock, wait};
#[cfg(all(test, feature = "shuttle"))]
pub(crate) use shuttle::sync::{Condvar, Mutex, MutexGuard, atomic};
#[cfg(not(all(test, feature = "shuttle")))]
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard, atomic};

/// The functions of [`firn_model::sync`] for the scheduler's locks.
#[cfg(all(test, feature = "shuttle"))]
mod scheduled {
    use super::{Condvar, Mutex, MutexGuard};
    use std::sync::PoisonError;

    pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn wait<'m, T>(signal: &Condvar, guard: MutexGuard<'m, T>) -> MutexGuard<'m, T> {
        signal.wait(guard).unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn into_inner<T>(mutex: Mutex<T>) -> T {
        mutex.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

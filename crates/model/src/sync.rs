//! Locks that outlive a panic.
//!
//! A thread that panics while it holds a lock poisons the lock. What a lock guards here is sound
//! after each statement, so the threads that are left go on with it as it is.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Takes the lock, poisoned or not.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Gives the lock up, waits for a signal and takes the lock again, poisoned or not. Like every wait
/// for a condition it may return without a signal: the caller must look again.
pub fn wait<'m, T>(signal: &Condvar, guard: MutexGuard<'m, T>) -> MutexGuard<'m, T> {
    signal.wait(guard).unwrap_or_else(PoisonError::into_inner)
}

/// Takes the lock for reading, poisoned or not.
pub fn read<T: ?Sized>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

/// Takes the lock for writing, poisoned or not.
pub fn write<T: ?Sized>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}

/// What the lock guards, poisoned or not.
pub fn into_inner<T>(mutex: Mutex<T>) -> T {
    mutex.into_inner().unwrap_or_else(PoisonError::into_inner)
}

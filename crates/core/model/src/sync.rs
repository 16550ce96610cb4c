//! Locks that remain usable after a panic.
//!
//! A thread that panics while it holds a lock poisons the lock. The data guarded by these locks is
//! valid after each statement, so the other threads can continue to use it.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Acquires the lock, even if it is poisoned by a panic.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Releases the lock, waits for a signal and acquires the lock again, even if it is poisoned. Like
/// any wait for a condition it may return without a signal, so the caller must check the condition
/// again.
pub fn wait<'m, T>(signal: &Condvar, guard: MutexGuard<'m, T>) -> MutexGuard<'m, T> {
    signal.wait(guard).unwrap_or_else(PoisonError::into_inner)
}

/// Acquires the lock for reading, even if it is poisoned.
pub fn read<T: ?Sized>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

/// Acquires the lock for writing, even if it is poisoned.
pub fn write<T: ?Sized>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the guarded data, even if the lock is poisoned.
pub fn into_inner<T>(mutex: Mutex<T>) -> T {
    mutex.into_inner().unwrap_or_else(PoisonError::into_inner)
}

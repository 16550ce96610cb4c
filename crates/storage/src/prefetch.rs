//! Asking for memory before it is read.
//!
//! Series and their chunks lie all over. A processor that reads one after the other waits for each;
//! one that was told where the next ones lie fetches a dozen at a time. Nothing depends on it:
//! where there is no such instruction, reading takes as long as it takes.

#![allow(unsafe_code)]

/// Bytes of a line of the cache.
const LINE: usize = 64;

/// Asks for the lines of a value.
#[inline(always)]
pub(crate) fn value<T>(value: &T) {
    lines(std::ptr::from_ref(value).cast(), size_of::<T>());
}

/// Asks for the lines of bytes.
#[inline(always)]
pub(crate) fn bytes(bytes: &[u8]) {
    lines(bytes.as_ptr(), bytes.len());
}

#[inline(always)]
fn lines(start: *const u8, len: usize) {
    let first = start.addr() % LINE;
    for line in 0..(first + len).div_ceil(LINE) {
        line_at(start.wrapping_add(line * LINE));
    }
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn line_at(place: *const u8) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: a hint; it reads nothing, and no address is wrong.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(place.cast()) }
}

#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
fn line_at(_: *const u8) {}

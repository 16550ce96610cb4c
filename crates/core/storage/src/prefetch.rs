//! Software prefetch: hints that the processor should load memory before it is read.
//!
//! Series and their chunks are scattered over the heap. A reader that visits one after the other
//! waits for each of them; a reader that prefetches those of the next iterations waits for a dozen
//! at a time. No result depends on it: without such an instruction, nothing is prefetched.
//! docs/adr/0094 contains measurements.

#![allow(unsafe_code)]

/// Bytes of a cache line.
const LINE: usize = 64;

/// Prefetches all cache lines of a value.
#[inline(always)]
pub(crate) fn prefetch_value<T>(value: &T) {
    prefetch_lines(std::ptr::from_ref(value).cast(), size_of::<T>());
}

/// Prefetches all cache lines of a slice.
#[inline(always)]
pub(crate) fn prefetch_bytes(bytes: &[u8]) {
    prefetch_lines(bytes.as_ptr(), bytes.len());
}

#[inline(always)]
fn prefetch_lines(start: *const u8, len: usize) {
    let first = start.addr() % LINE;
    for line in 0..(first + len).div_ceil(LINE) {
        line_at(start.wrapping_add(line * LINE));
    }
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn line_at(place: *const u8) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: a prefetch is a hint that reads nothing and accepts any address.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(place.cast()) }
}

#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
fn line_at(_: *const u8) {}

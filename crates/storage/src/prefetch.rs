//! Software prefetch: a hint that the processor loads memory before it is read.
//!
//! Series and their chunks lie all over the heap. A reader of one after the other waits for each; a
//! reader that prefetches those of the next turns waits for a dozen at a time. No result depends on
//! it: where there is no such instruction, nothing is prefetched. docs/adr/0094 says what it is
//! worth.

#![allow(unsafe_code)]

/// Bytes of a cache line.
const LINE: usize = 64;

/// Prefetches a value.
#[inline(always)]
pub(crate) fn value<T>(value: &T) {
    lines(std::ptr::from_ref(value).cast(), size_of::<T>());
}

/// Prefetches bytes.
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

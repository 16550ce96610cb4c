//! Numbers of packs followed eight at a time, for processors with AVX-512 and its permutations of
//! bytes.
//!
//! Eight numbers of up to 56 bits begin at a byte, if those before them are eights too, and fit a
//! vector: one permutation gives each the eight bytes that it is in, whatever the width, so that no
//! branch depends on it. [`Steps::follow`] and [`Behind::follow`] are the twins that every other
//! processor runs, and that tests compare with; they take two to three times as long.

#![allow(unsafe_code)]

use super::times::{self, Behind};
use super::{Steps, values_with};
use crate::encoding::Malformed;
use crate::encoding::avx512::{
    Avx512, EACH, add_up, first_lane, floats_of, ints_of, last_of, load, store_first, to_floats,
    unzigzag,
};
use crate::encoding::decimal::Scaling;
use crate::encoding::time::TimeState;
use crate::encoding::value::ValueState;
use firn_model::sample::TimestampMs;
use std::arch::x86_64::*;

impl Avx512 {
    /// As [`super::values`].
    #[inline]
    pub(super) fn values(
        self,
        bytes: &[u8],
        state: &mut ValueState,
        out: &mut [f64],
    ) -> Result<(), Malformed> {
        // SAFETY: `self` exists, so the processor has what the function is compiled for.
        unsafe { values(bytes, state, out) }
    }

    /// As [`times::follow`].
    #[inline]
    pub(super) fn times(
        self,
        bytes: &[u8],
        state: &mut TimeState,
        out: &mut [TimestampMs],
    ) -> Result<(), Malformed> {
        // SAFETY: `self` exists, so the processor has what the function is compiled for.
        unsafe { times_of(bytes, state, out) }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vbmi")]
fn values(bytes: &[u8], state: &mut ValueState, out: &mut [f64]) -> Result<(), Malformed> {
    values_with(bytes, state, out, |steps, before, scaling, out| {
        follow(steps, before, scaling, out)
    })
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vbmi")]
fn follow(steps: Steps<'_>, before: i64, scaling: Scaling, out: &mut [f64]) -> i64 {
    let eights = Eights::of(steps.width);
    let mut bytes = steps.bytes;
    let mut follow = |last: __m512i| {
        let mut numbers = eights.read(load(bytes));
        bytes = bytes.get(steps.width..).unwrap_or(&[]);
        if steps.are_zigzags {
            numbers = unzigzag(numbers);
        }
        _mm512_add_epi64(add_up(numbers), last)
    };
    let mut last = _mm512_set1_epi64(before);
    let (whole, rest) = out.as_chunks_mut::<EACH>();
    for eight in whole {
        let ints = follow(last);
        *eight = floats_of(to_floats(scaling, ints));
        last = last_of(ints);
    }
    if let Some(newest) = rest.len().checked_sub(1) {
        let ints = follow(last);
        store_first(rest, to_floats(scaling, ints));
        last = _mm512_permutexvar_epi64(_mm512_set1_epi64(newest as i64), ints);
    }
    first_lane(last)
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vbmi")]
fn times_of(bytes: &[u8], state: &mut TimeState, out: &mut [TimestampMs]) -> Result<(), Malformed> {
    times::follow_with(bytes, state, out, |behind, time, distance, out| {
        follow_line(behind, time, distance, out);
    })
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vbmi")]
fn follow_line(behind: Behind<'_>, time: i64, distance: i64, out: &mut [i64]) {
    let eights = Eights::of(behind.width);
    let mut bytes = behind.bytes;
    let distances = _mm512_set_epi64(8, 7, 6, 5, 4, 3, 2, 1);
    let distances = _mm512_mullo_epi64(distances, _mm512_set1_epi64(distance));
    let mut line = _mm512_add_epi64(_mm512_set1_epi64(time), distances);
    let of_eight = _mm512_set1_epi64(distance.wrapping_mul(EACH as i64));
    let mut follow = || {
        let times = _mm512_add_epi64(eights.read(load(bytes)), line);
        bytes = bytes.get(behind.width..).unwrap_or(&[]);
        line = _mm512_add_epi64(line, of_eight);
        ints_of(times)
    };
    let (whole, rest) = out.as_chunks_mut::<EACH>();
    for eight in whole {
        *eight = follow();
    }
    if !rest.is_empty() {
        rest.copy_from_slice(&follow()[..rest.len()]);
    }
}

/// How eight numbers lie in the bytes that begin with them.
#[derive(Clone, Copy)]
struct Eights {
    /// For each byte of the numbers' lanes, where it is.
    places: __m512i,
    /// Bits before each number in the first of its bytes.
    before: __m512i,
    mask: __m512i,
}

impl Eights {
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vbmi")]
    fn of(width: usize) -> Self {
        let numbers = _mm512_set_epi64(7, 6, 5, 4, 3, 2, 1, 0);
        let bits = _mm512_mul_epu32(numbers, _mm512_set1_epi64(width as i64));
        let bytes = _mm512_srli_epi64::<3>(bits);
        let first_of_lane = _mm512_set4_epi32(0x0808_0808, 0x0808_0808, 0, 0);
        let in_lane = _mm512_set1_epi64(0x0706_0504_0302_0100);
        Self {
            places: _mm512_add_epi8(_mm512_shuffle_epi8(bytes, first_of_lane), in_lane),
            before: _mm512_and_si512(bits, _mm512_set1_epi64(7)),
            mask: _mm512_set1_epi64(((1u64 << width) - 1) as i64),
        }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vbmi")]
    fn read(self, bytes: __m512i) -> __m512i {
        let words = _mm512_permutexvar_epi8(self.places, bytes);
        _mm512_and_si512(_mm512_srlv_epi64(words, self.before), self.mask)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunk::pack::{FIRST_MAX, WIDTH_MAX};
    use crate::encoding::decimal::Scale;
    use firn_model::env::Rng;
    use firn_model::env::sim::SimRng;

    /// Random numbers of a pack, with or without something behind them: bytes, width and how many.
    fn numbers(rng: &SimRng) -> (Vec<u8>, usize, usize) {
        let width = rng.below(WIDTH_MAX as u64 + 1) as usize;
        let samples = 1 + rng.below(FIRST_MAX as u64) as usize;
        let behind = [0, rng.below(80) as usize][rng.below(2) as usize];
        let len = (width * samples).div_ceil(8) + behind;
        let bytes = (0..len).map(|_| rng.next_u64() as u8).collect();
        (bytes, width, samples)
    }

    #[test]
    fn steps_followed_eight_at_a_time_lead_where_they_lead_one_by_one() {
        // Another processor has the twin alone.
        let follow_eights = |steps: Steps<'_>, before, scaling, out: &mut [f64]| {
            match Avx512::detect() {
                // SAFETY: the processor has what the function is compiled for.
                Some(_) => unsafe { follow(steps, before, scaling, out) },
                None => steps.follow(before, scaling, out),
            }
        };
        let scales = (0..32).filter_map(Scale::from_code).map(Scale::scaling);
        let scalings: Vec<Scaling> = scales.chain([Scaling::Ordered]).collect();
        for seed in 0..20_000 {
            let rng = SimRng::new(seed);
            let (bytes, width, samples) = numbers(&rng);
            let steps = Steps {
                bytes: &bytes,
                width,
                are_zigzags: rng.one_in(2),
            };
            let before = rng.next_u64() as i64 >> rng.below(64);
            let scaling = scalings[rng.below(scalings.len() as u64) as usize];
            let (mut fast, mut plain) = (vec![0.0; samples], vec![0.0; samples]);
            let last = follow_eights(steps, before, scaling, &mut fast);
            let plain_last = steps.follow(before, scaling, &mut plain);
            assert_eq!(last, plain_last, "seed {seed}");
            let bits = |floats: &[f64]| floats.iter().map(|f| f.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(&fast), bits(&plain), "seed {seed}");
        }
    }

    #[test]
    fn times_of_a_line_eight_at_a_time_are_those_one_by_one() {
        let follow = |behind: Behind<'_>, time, distance, out: &mut [i64]| match Avx512::detect() {
            // SAFETY: the processor has what the function is compiled for.
            Some(_) => unsafe { follow_line(behind, time, distance, out) },
            None => behind.follow(time, distance, out),
        };
        for seed in 0..20_000 {
            let rng = SimRng::new(seed);
            let (bytes, width, samples) = numbers(&rng);
            let behind = Behind {
                bytes: &bytes,
                width,
            };
            let [time, distance] = [(); 2].map(|()| rng.next_u64() as i64 >> rng.below(64));
            let (mut fast, mut plain) = (vec![0; samples], vec![0; samples]);
            follow(behind, time, distance, &mut fast);
            behind.follow(time, distance, &mut plain);
            assert_eq!(fast, plain, "seed {seed}");
        }
    }
}

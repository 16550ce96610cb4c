//! Which instructions decode: those that every processor has, or faster ones that this one was seen
//! to have. Both give the same bits.

#[cfg(target_arch = "x86_64")]
use super::avx2::Avx2;
#[cfg(target_arch = "x86_64")]
use super::bits::NARROW;
#[cfg(target_arch = "x86_64")]
use crate::encoding::Avx512;
use crate::encoding::decimal::Scaling;

/// A choice of instructions.
#[derive(Clone, Copy, Debug)]
pub struct Instructions {
    #[cfg(target_arch = "x86_64")]
    avx2: Option<Avx2>,
    #[cfg(target_arch = "x86_64")]
    avx512: Option<Avx512>,
}

impl Default for Instructions {
    fn default() -> Self {
        Self::best()
    }
}

impl Instructions {
    /// The best of this processor.
    pub fn best() -> Self {
        Self {
            #[cfg(target_arch = "x86_64")]
            avx2: Avx2::detect(),
            #[cfg(target_arch = "x86_64")]
            avx512: Avx512::detect(),
        }
    }

    /// Those of every processor.
    pub fn portable() -> Self {
        Self {
            #[cfg(target_arch = "x86_64")]
            avx2: None,
            #[cfg(target_arch = "x86_64")]
            avx512: None,
        }
    }

    /// All that this processor has, the portable ones first.
    #[cfg(test)]
    pub(super) fn all() -> Vec<Self> {
        let (portable, best) = (Self::portable(), Self::best());
        let mut all = vec![portable, best];
        #[cfg(target_arch = "x86_64")]
        all.push(Self {
            avx512: None,
            ..best
        });
        all
    }

    /// Whether there are better ones than the portable.
    pub fn is_fast(self) -> bool {
        #[cfg(target_arch = "x86_64")]
        return self.avx2.is_some();
        #[cfg(not(target_arch = "x86_64"))]
        false
    }
}

/// Without faster instructions nothing is done, and the caller does it.
#[cfg(not(target_arch = "x86_64"))]
#[expect(clippy::unused_self, reason = "there are none on this processor")]
impl Instructions {
    pub(super) fn unpack(
        self,
        _rest: &[u8],
        _bytes: &[u8],
        _width: usize,
        _low: i64,
        _out: &mut [i64],
    ) -> bool {
        false
    }

    pub(super) fn add_up(self, _before: i64, _out: &mut [i64]) -> Option<i64> {
        None
    }

    pub(super) fn convert(self, _scaling: Scaling, _ints: &[i64], _into: &mut Vec<f64>) -> bool {
        false
    }
}

/// Without faster instructions nothing is done, and the caller does it.
#[cfg(target_arch = "x86_64")]
impl Instructions {
    /// Does what [`super::bits::unpack`] does of numbers of 1 to 64 bits that lie in `bytes`, with
    /// which `rest` begins; whether that is done.
    #[inline]
    pub(super) fn unpack(
        self,
        rest: &[u8],
        bytes: &[u8],
        width: usize,
        low: i64,
        out: &mut [i64],
    ) -> bool {
        if let (Some(avx512), ..=NARROW) = (self.avx512, width) {
            avx512.unpack_narrow(bytes, width, low, out);
            return true;
        }
        let Some(avx2) = self.avx2 else {
            return false;
        };
        let rows = rest.as_chunks().0;
        if bytes.len().is_multiple_of(16) && rows.len() > bytes.len() / 16 {
            avx2.unpack(rows, width, low, out);
            return true;
        }
        // Memory is cleared for as many words as there can be.
        match width {
            0..=8 => avx2.unpack(&whole_words::<4, 9>(bytes), width, low, out),
            9..=16 => avx2.unpack(&whole_words::<4, 17>(bytes), width, low, out),
            17..=32 => avx2.unpack(&whole_words::<4, 33>(bytes), width, low, out),
            _ => avx2.unpack(&whole_words::<8, 65>(bytes), width, low, out),
        }
        true
    }

    /// Does what [`super::ints::add_up`] does.
    #[inline]
    pub(super) fn add_up(self, before: i64, out: &mut [i64]) -> Option<i64> {
        match (self.avx512, self.avx2) {
            (Some(avx512), _) => Some(avx512.add_up(before, out)),
            (None, Some(avx2)) => Some(avx2.add_up(before, out)),
            (None, None) => None,
        }
    }

    /// Appends floats for `ints` under a scaling, if all are small enough; whether that is done.
    #[inline]
    pub(super) fn convert(self, scaling: Scaling, ints: &[i64], into: &mut Vec<f64>) -> bool {
        let base = into.len();
        into.resize(base + ints.len(), 0.0);
        let floats = &mut into[base..];
        let is_done = match (self.avx512, self.avx2) {
            (Some(avx512), _) => {
                avx512.convert(scaling, ints, floats);
                true
            }
            (None, Some(avx2)) => avx2.convert(scaling, ints, floats),
            (None, None) => false,
        };
        if !is_done {
            into.truncate(base);
        }
        is_done
    }
}

/// The words of lanes whose last ones may not be whole in `bytes`, and a row of zeros.
#[cfg(target_arch = "x86_64")]
#[inline]
fn whole_words<const WORD: usize, const ROWS: usize>(bytes: &[u8]) -> [[u8; 16]; ROWS] {
    let mut rows = [[0; 16]; ROWS];
    let (full, partial) = bytes.as_chunks();
    for (row, bytes) in rows.iter_mut().zip(full) {
        *row = *bytes;
    }
    if let Some(row) = rows.get_mut(full.len())
        && !partial.is_empty()
    {
        let lane_bytes = partial.len() / (16 / WORD);
        let words = row.as_chunks_mut::<WORD>().0.iter_mut();
        for (word, bytes) in words.zip(partial.chunks(lane_bytes)) {
            // Not a copy of so many bytes, which would be a call.
            for (to, from) in word.iter_mut().zip(bytes) {
                *to = *from;
            }
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::super::bits::VECTOR;
    use super::super::floats::append_floats;
    use super::super::ints::add_up;
    use super::*;
    use crate::encoding::decimal::Scale;
    use firn_model::env::Rng;
    use firn_model::env::sim::SimRng;

    fn scalings() -> impl Iterator<Item = Scaling> {
        let scales = (0..32).filter_map(Scale::from_code).map(Scale::scaling);
        scales.chain([Scaling::Ordered])
    }

    #[test]
    fn convert_with_any_instructions_gives_the_same_bits() {
        for seed in 0..400 {
            let rng = SimRng::new(seed);
            let width = rng.next_u64() % 62;
            let edge = [0, 1, -1, (1 << 51) - 1, -(1 << 51), 1 << 51, i64::MIN];
            let int = |i: usize| match rng.next_u64() % 40 {
                0 => edge[(i + seed as usize) % edge.len()],
                _ => rng.next_u64() as i64 >> (63 - width.min(50)),
            };
            let ints: Vec<i64> = (0..seed as usize % 300).map(int).collect();
            // Without those that are too large too, so that the fast way is gone to its end.
            let small: Vec<i64> = ints.iter().map(|int| int >> 12).collect();
            for (scaling, ints) in scalings().flat_map(|s| [(s, &ints), (s, &small)]) {
                let bits = |with| {
                    let mut floats = vec![7.0];
                    append_floats(scaling, ints, (with, &mut floats));
                    floats.into_iter().map(f64::to_bits).collect::<Vec<_>>()
                };
                let portable = bits(Instructions::portable());
                for with in Instructions::all() {
                    let same = bits(with) == portable;
                    assert!(same, "seed {seed}, {with:?}, {scaling:?}, {ints:?}");
                }
            }
        }
    }

    #[test]
    fn add_up_with_any_instructions_gives_the_same_sums() {
        for seed in 0..200 {
            let rng = SimRng::new(seed);
            let numbers = [(); VECTOR].map(|()| rng.next_u64() as i64 >> (seed % 64));
            let sums = |with| {
                let mut sums = numbers;
                (add_up(-3, (with, &mut sums)), sums)
            };
            let portable = sums(Instructions::portable());
            for with in Instructions::all() {
                assert_eq!(sums(with), portable, "seed {seed}, {with:?}");
            }
        }
    }
}

//! A predictor of the next value for each series, by slot. Takes twelve bytes per series.

use super::number::DeltaNumber;
use std::collections::HashMap;

/// Slots of a slab. The series of a target have neighbouring slots, so slabs are full while the
/// target exists; and a slab has few enough slots that it is soon unused after its targets have
/// ended.
pub(super) const SLAB_SLOTS: u64 = 64;

/// Form of a series that has no value in the context yet.
const UNKNOWN: u8 = 0xff;

/// The predictors of [`SLAB_SLOTS`] neighbouring slots. Takes 768 bytes.
#[derive(Debug)]
pub(super) struct PredictorSlab {
    ints: [i64; SLAB_SLOTS as usize],
    predictors: [TrendPredictor; SLAB_SLOTS as usize],
}

impl PredictorSlab {
    fn new() -> Box<Self> {
        let unknown = TrendPredictor {
            step: PredictorStep(0),
            form: UNKNOWN,
            width: 0,
        };
        Box::new(Self {
            ints: [0; SLAB_SLOTS as usize],
            predictors: [unknown; SLAB_SLOTS as usize],
        })
    }

    /// Returns the predictor of the series at `index`.
    #[inline]
    pub(super) fn series(&mut self, index: u32) -> SeriesPredictor<'_> {
        let index = index as usize % SLAB_SLOTS as usize;
        SeriesPredictor {
            int: &mut self.ints[index],
            predictor: &mut self.predictors[index],
        }
    }
}

/// The trend of a series; read and written as one word.
#[derive(Clone, Copy, Debug)]
struct TrendPredictor {
    step: PredictorStep,
    form: u8,
    width: u8,
}

/// Mutable access to the predictor of one series.
#[derive(Debug)]
pub(super) struct SeriesPredictor<'a> {
    int: &'a mut i64,
    predictor: &'a mut TrendPredictor,
}

impl SeriesPredictor<'_> {
    /// Returns the form of the newest number, if there is one.
    #[inline]
    pub(super) fn form(&self) -> Option<u8> {
        (self.predictor.form != UNKNOWN).then_some(self.predictor.form)
    }

    /// Returns the predicted integer of the next number.
    #[inline]
    pub(super) fn predict_next(&self) -> i64 {
        self.int.wrapping_add(self.predictor.step.get())
    }

    /// Returns the number of low bits of a difference that are stored uncoded.
    #[inline]
    pub(super) fn width(&self) -> u32 {
        u32::from(self.predictor.width)
    }

    /// Updates the predictor with the integer of the next number.
    #[inline]
    pub(super) fn update(&mut self, int: i64, width: u32) {
        let step = int.wrapping_sub(*self.int);
        let before = self.predictor.step.get();
        // The mean of the last step and the one before: for a gauge that fluctuates, the last step
        // alone is a worse prediction.
        let step = before.wrapping_add(step.wrapping_sub(before) >> 1);
        *self.int = int;
        *self.predictor = TrendPredictor {
            step: PredictorStep::from_difference(step),
            form: self.predictor.form,
            width: width as u8,
        };
    }

    /// Restarts the predictor with this number: the next value is predicted to be equal.
    pub(super) fn restart(&mut self, number: DeltaNumber) {
        *self.int = number.int;
        self.predictor.form = number.form;
        self.predictor.step = PredictorStep(0);
    }
}

/// A step rounded to nine significant bits, which suffice for a prediction: ten bits with the sign,
/// and six bits for the number of zeros that follow.
#[derive(Clone, Copy, Debug, Default)]
struct PredictorStep(i16);

const STEP_SHIFT_BITS: u32 = 6;
const STEP_BITS: u32 = 9;

impl PredictorStep {
    #[inline]
    fn from_difference(step: i64) -> Self {
        let magnitude = (step ^ (step >> 63)) as u64;
        let bits = u64::BITS - magnitude.leading_zeros();
        let shift = bits.saturating_sub(STEP_BITS);
        Self((step >> shift << STEP_SHIFT_BITS) as i16 | shift as i16)
    }

    #[inline]
    fn get(self) -> i64 {
        let shift = self.0 & ((1 << STEP_SHIFT_BITS) - 1);
        i64::from(self.0 >> STEP_SHIFT_BITS) << shift
    }
}

/// The predictors of all series of a segment, allocated in slabs on first use.
#[derive(Debug, Default)]
pub(super) struct PredictorContext {
    slabs: HashMap<u64, Box<PredictorSlab>>,
}

impl PredictorContext {
    /// Removes all predictors and releases their memory.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Returns the slab with this number; creates it if necessary.
    pub(super) fn slab(&mut self, number: u64) -> &mut PredictorSlab {
        self.slabs.entry(number).or_insert_with(PredictorSlab::new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn step_keeps_its_first_nine_bits() {
        let cases = [
            (0, 0),
            (511, 511),
            (-512, -512),
            (512, 512),
            (513, 512),
            (-513, -514),
            (1_000_003, 999_424),
            (i64::MAX, 0x1ff << 54),
            (i64::MIN, i64::MIN),
        ];
        for (step, kept) in cases {
            assert_eq!(PredictorStep::from_difference(step).get(), kept, "{step}");
        }
    }

    #[test]
    fn slab_takes_twelve_bytes_a_series() {
        assert_eq!(size_of::<PredictorSlab>(), 12 * SLAB_SLOTS as usize);
    }
}

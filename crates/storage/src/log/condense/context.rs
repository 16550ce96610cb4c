//! What was logged last of each series, by slot: twelve bytes a series.

use super::number::Number;
use std::collections::HashMap;

/// Slots of a page. Series of a target have neighbouring slots, so pages are full while the target
/// lives, and few enough share one that a page of targets that ended is soon not asked for.
pub(super) const PAGE_SLOTS: u32 = 64;

/// In the place of a form: nothing was logged of the series.
const UNKNOWN: u8 = 0xff;

/// The newest numbers of neighbouring slots: 768 bytes.
#[derive(Debug)]
pub(super) struct Page {
    ints: [i64; PAGE_SLOTS as usize],
    laws: [Law; PAGE_SLOTS as usize],
}

impl Page {
    fn new() -> Box<Self> {
        let unknown = Law {
            step: Step(0),
            form: UNKNOWN,
            width: 0,
        };
        Box::new(Self {
            ints: [0; PAGE_SLOTS as usize],
            laws: [unknown; PAGE_SLOTS as usize],
        })
    }

    /// What is known of a series.
    #[inline]
    pub(super) fn series(&mut self, index: u32) -> Series<'_> {
        let index = (index % PAGE_SLOTS) as usize;
        Series {
            int: &mut self.ints[index],
            law: &mut self.laws[index],
        }
    }
}

/// How a series goes on: read and written in one move.
#[derive(Clone, Copy, Debug)]
struct Law {
    step: Step,
    form: u8,
    width: u8,
}

/// What is known of one series.
#[derive(Debug)]
pub(super) struct Series<'a> {
    int: &'a mut i64,
    law: &'a mut Law,
}

impl Series<'_> {
    /// The form of its newest number, if there was one.
    #[inline]
    pub(super) fn form(&self) -> Option<u8> {
        (self.law.form != UNKNOWN).then_some(self.law.form)
    }

    /// The integer that would follow if it went on as before.
    #[inline]
    pub(super) fn expected(&self) -> i64 {
        self.int.wrapping_add(self.law.step.get())
    }

    /// How many low bits of a difference are written as they are.
    #[inline]
    pub(super) fn width(&self) -> u32 {
        u32::from(self.law.width)
    }

    /// The next number has this integer.
    #[inline]
    pub(super) fn go_to(&mut self, int: i64, width: u32) {
        let step = int.wrapping_sub(*self.int);
        let before = self.law.step.get();
        // Between the last step and the one before: less astray of gauges that waver.
        let step = before.wrapping_add(step.wrapping_sub(before) >> 1);
        *self.int = int;
        *self.law = Law {
            step: Step::near(step),
            form: self.law.form,
            width: width as u8,
        };
    }

    /// It begins anew with this number.
    pub(super) fn restart(&mut self, number: Number) {
        *self.int = number.int;
        self.law.form = number.form;
        self.law.step = Step(0);
    }
}

/// A step to nine significant bits, which is all that a guess is worth: ten bits with the sign, and
/// six for the zeros behind them.
#[derive(Clone, Copy, Debug, Default)]
struct Step(i16);

const STEP_SHIFT_BITS: u32 = 6;
const STEP_BITS: u32 = 9;

impl Step {
    #[inline]
    fn near(step: i64) -> Self {
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

/// What was logged last of each series.
#[derive(Debug, Default)]
pub(super) struct Context {
    pages: HashMap<u32, Box<Page>>,
}

impl Context {
    /// Forgets everything, and gives the memory back.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// The page with this number.
    pub(super) fn page(&mut self, number: u32) -> &mut Page {
        self.pages.entry(number).or_insert_with(Page::new)
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
            assert_eq!(Step::near(step).get(), kept, "{step}");
        }
    }

    #[test]
    fn page_takes_twelve_bytes_a_series() {
        assert_eq!(size_of::<Page>(), 12 * PAGE_SLOTS as usize);
    }
}

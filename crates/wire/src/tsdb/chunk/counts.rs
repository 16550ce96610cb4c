//! Encodes the counts of the histograms in a chunk: integers as deltas of deltas, floats as XOR
//! (`tsdb/chunkenc/histogram.go`, `float_histogram.go`).

use super::bits::{BitReader, BitWriter};
use super::xor::Xor;
use crate::tsdb::error::Malformed;
use firn_model::histogram::Counts;
use firn_model::sample::is_stale;

/// An integer that is encoded as the change of its change, as timestamps are.
#[derive(Clone, Copy, Debug, Default)]
struct Stepped {
    value: i64,
    delta: i64,
}

impl Stepped {
    fn new(value: i64) -> Self {
        Self { value, delta: 0 }
    }

    fn read(&mut self, bits: &mut BitReader<'_>) -> Result<(), Malformed> {
        self.delta = self.delta.wrapping_add(bits.varbit()?);
        self.value = self.value.wrapping_add(self.delta);
        Ok(())
    }

    fn write(&mut self, out: &mut BitWriter, value: i64) {
        let delta = value.wrapping_sub(self.value);
        out.varbit(delta.wrapping_sub(self.delta));
        *self = Self { value, delta };
    }
}

/// The counts of the latest histogram that was read or written, to which the next ones are
/// relative.
#[derive(Clone, Debug)]
pub(super) struct CountsState {
    sum: Xor,
    numbers: Numbers,
}

#[derive(Clone, Debug)]
enum Numbers {
    Integer {
        count: Stepped,
        zero_count: Stepped,
        positive: Vec<Stepped>,
        negative: Vec<Stepped>,
    },
    Float {
        count: Xor,
        zero_count: Xor,
        positive: Vec<Xor>,
        negative: Vec<Xor>,
    },
}

impl CountsState {
    /// Returns the state before the first histogram.
    pub fn new(is_float: bool) -> Self {
        let numbers = match is_float {
            true => Numbers::Float {
                count: Xor::default(),
                zero_count: Xor::default(),
                positive: Vec::new(),
                negative: Vec::new(),
            },
            false => Numbers::Integer {
                count: Stepped::default(),
                zero_count: Stepped::default(),
                positive: Vec::new(),
                negative: Vec::new(),
            },
        };
        Self {
            sum: Xor::default(),
            numbers,
        }
    }

    /// Returns the sum of the histogram.
    pub fn sum(&self) -> f64 {
        self.sum.value
    }

    /// Reads the counts of the first histogram, given its numbers of positive and negative buckets.
    /// Fails if the chunk has fewer bits.
    pub fn read_first(
        &mut self,
        bits: &mut BitReader<'_>,
        (positives, negatives): (usize, usize),
    ) -> Result<(), Malformed> {
        // A bucket takes at least one bit.
        if (positives + negatives) as u64 > bits.remaining() {
            return Err(Malformed::CutShort);
        }
        match &mut self.numbers {
            Numbers::Integer {
                count,
                zero_count,
                positive,
                negative,
            } => {
                *count = Stepped::new(bits.uvarbit()? as i64);
                *zero_count = Stepped::new(bits.uvarbit()? as i64);
                self.sum = Xor::new(f64::from_bits(bits.bits(64)?));
                for (side, buckets) in [(positive, positives), (negative, negatives)] {
                    let numbers = (0..buckets).map(|_| bits.varbit().map(Stepped::new));
                    *side = numbers.collect::<Result<_, _>>()?;
                }
            }
            Numbers::Float {
                count,
                zero_count,
                positive,
                negative,
            } => {
                let mut float = || Ok(Xor::new(f64::from_bits(bits.bits(64)?)));
                *count = float()?;
                *zero_count = float()?;
                self.sum = float()?;
                for (side, buckets) in [(positive, positives), (negative, negatives)] {
                    let mut numbers = Vec::new();
                    for _ in 0..buckets {
                        numbers.push(float()?);
                    }
                    *side = numbers;
                }
            }
        }
        Ok(())
    }

    /// Reads the counts of the next histogram. A staleness marker has no buckets. Fails if the
    /// chunk is cut off.
    pub fn read_next(&mut self, bits: &mut BitReader<'_>) -> Result<(), Malformed> {
        match &mut self.numbers {
            Numbers::Integer {
                count, zero_count, ..
            } => {
                count.read(bits)?;
                zero_count.read(bits)?;
            }
            Numbers::Float {
                count, zero_count, ..
            } => {
                count.read(bits)?;
                zero_count.read(bits)?;
            }
        }
        self.sum.read(bits)?;
        if is_stale(self.sum.value) {
            return Ok(());
        }
        match &mut self.numbers {
            Numbers::Integer {
                positive, negative, ..
            } => {
                let mut buckets = positive.iter_mut().chain(negative);
                buckets.try_for_each(|bucket| bucket.read(bits))
            }
            Numbers::Float {
                positive, negative, ..
            } => {
                let mut buckets = positive.iter_mut().chain(negative);
                buckets.try_for_each(|bucket| bucket.read(bits))
            }
        }
    }

    /// Returns the counts of the latest histogram. They are a copy; the state remains for the next
    /// histogram.
    pub fn counts(&self) -> Counts {
        let integers = |side: &[Stepped]| side.iter().map(|number| number.value).collect();
        let floats = |side: &[Xor]| side.iter().map(|number| number.value).collect();
        match &self.numbers {
            Numbers::Integer {
                count,
                zero_count,
                positive,
                negative,
            } => Counts::Integer {
                count: count.value as u64,
                zero_count: zero_count.value as u64,
                positive: integers(positive),
                negative: integers(negative),
            },
            Numbers::Float {
                count,
                zero_count,
                positive,
                negative,
            } => Counts::Float {
                count: count.value,
                zero_count: zero_count.value,
                positive: floats(positive),
                negative: floats(negative),
            },
        }
    }

    /// Writes the counts of the first histogram, which must be of the kind of the state and have
    /// the buckets of the layout.
    pub fn write_first(&mut self, out: &mut BitWriter, sum: f64, counts: &Counts) {
        self.sum = Xor::new(sum);
        match counts {
            Counts::Integer {
                count,
                zero_count,
                positive,
                negative,
            } => {
                out.uvarbit(*count);
                out.uvarbit(*zero_count);
                out.bits(sum.to_bits(), 64);
                let buckets = positive.iter().chain(negative);
                buckets.for_each(|bucket| out.varbit(*bucket));
                let side = |side: &[i64]| side.iter().copied().map(Stepped::new).collect();
                self.numbers = Numbers::Integer {
                    count: Stepped::new(*count as i64),
                    zero_count: Stepped::new(*zero_count as i64),
                    positive: side(positive),
                    negative: side(negative),
                };
            }
            Counts::Float {
                count,
                zero_count,
                positive,
                negative,
            } => {
                let numbers = [count, zero_count, &sum].into_iter();
                let buckets = positive.iter().chain(negative);
                let numbers = numbers.chain(buckets);
                numbers.for_each(|number| out.bits(number.to_bits(), 64));
                let side = |side: &[f64]| side.iter().copied().map(Xor::new).collect();
                self.numbers = Numbers::Float {
                    count: Xor::new(*count),
                    zero_count: Xor::new(*zero_count),
                    positive: side(positive),
                    negative: side(negative),
                };
            }
        }
    }

    /// Writes the counts of the next histogram, which must have the same buckets as the first one.
    pub fn write_next(&mut self, out: &mut BitWriter, sum: f64, counts: &Counts) {
        match (&mut self.numbers, counts) {
            (
                Numbers::Integer {
                    count,
                    zero_count,
                    positive,
                    negative,
                },
                Counts::Integer {
                    count: new_count,
                    zero_count: new_zero_count,
                    positive: new_positive,
                    negative: new_negative,
                },
            ) => {
                count.write(out, *new_count as i64);
                zero_count.write(out, *new_zero_count as i64);
                self.sum.write(out, sum);
                let numbers = positive.iter_mut().chain(negative);
                let new = new_positive.iter().chain(new_negative);
                numbers.zip(new).for_each(|(n, new)| n.write(out, *new));
            }
            (
                Numbers::Float {
                    count,
                    zero_count,
                    positive,
                    negative,
                },
                Counts::Float {
                    count: new_count,
                    zero_count: new_zero_count,
                    positive: new_positive,
                    negative: new_negative,
                },
            ) => {
                count.write(out, *new_count);
                zero_count.write(out, *new_zero_count);
                self.sum.write(out, sum);
                let numbers = positive.iter_mut().chain(negative);
                let new = new_positive.iter().chain(new_negative);
                numbers.zip(new).for_each(|(n, new)| n.write(out, *new));
            }
            (Numbers::Integer { .. }, Counts::Float { .. })
            | (Numbers::Float { .. }, Counts::Integer { .. }) => {
                unreachable!("a chunk holds histograms of one kind")
            }
        }
    }

    /// Writes a staleness marker after other histograms: its counts are the predicted ones, and it
    /// has no buckets.
    pub fn write_stale(&mut self, out: &mut BitWriter, sum: f64) {
        match &mut self.numbers {
            Numbers::Integer {
                count, zero_count, ..
            } => {
                out.varbit(0);
                out.varbit(0);
                for number in [count, zero_count] {
                    number.value = number.value.wrapping_add(number.delta);
                }
            }
            Numbers::Float {
                count, zero_count, ..
            } => {
                count.write(out, 0.0);
                zero_count.write(out, 0.0);
            }
        }
        self.sum.write(out, sum);
    }
}

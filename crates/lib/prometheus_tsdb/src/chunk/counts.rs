//! Encodes the counts of the histograms in a chunk: integers as deltas of deltas, floats as XOR
//! (`tsdb/chunkenc/histogram.go`, `float_histogram.go`).

use super::bits::{XorBitReader, XorBitWriter};
use super::xor::XorFloat;
use crate::error::MalformedTsdbBytes;
use firn_model::histogram::HistogramCounts;
use firn_model::sample::is_stale;

/// An integer that is encoded as the change of its change, as timestamps are.
#[derive(Clone, Copy, Debug, Default)]
struct DeltaOfDelta {
    value: i64,
    delta: i64,
}

impl DeltaOfDelta {
    fn new(value: i64) -> Self {
        Self { value, delta: 0 }
    }

    fn read(&mut self, bits: &mut XorBitReader<'_>) -> Result<(), MalformedTsdbBytes> {
        self.delta = self.delta.wrapping_add(bits.read_varbit()?);
        self.value = self.value.wrapping_add(self.delta);
        Ok(())
    }

    fn write(&mut self, out: &mut XorBitWriter, value: i64) {
        let delta = value.wrapping_sub(self.value);
        out.write_varbit(delta.wrapping_sub(self.delta));
        *self = Self { value, delta };
    }
}

/// The counts of the latest histogram that was read or written, to which the next ones are
/// relative.
#[derive(Clone, Debug)]
pub(super) struct HistogramCountsState {
    sum: XorFloat,
    numbers: HistogramCountDeltas,
}

#[derive(Clone, Debug)]
enum HistogramCountDeltas {
    Integer {
        count: DeltaOfDelta,
        zero_count: DeltaOfDelta,
        positive: Vec<DeltaOfDelta>,
        negative: Vec<DeltaOfDelta>,
    },
    Float {
        count: XorFloat,
        zero_count: XorFloat,
        positive: Vec<XorFloat>,
        negative: Vec<XorFloat>,
    },
}

impl HistogramCountsState {
    /// Returns the state before the first histogram.
    pub fn new(is_float: bool) -> Self {
        let numbers = if is_float {
            HistogramCountDeltas::Float {
                count: XorFloat::default(),
                zero_count: XorFloat::default(),
                positive: Vec::new(),
                negative: Vec::new(),
            }
        } else {
            HistogramCountDeltas::Integer {
                count: DeltaOfDelta::default(),
                zero_count: DeltaOfDelta::default(),
                positive: Vec::new(),
                negative: Vec::new(),
            }
        };
        Self {
            sum: XorFloat::default(),
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
        bits: &mut XorBitReader<'_>,
        positives: usize,
        negatives: usize,
    ) -> Result<(), MalformedTsdbBytes> {
        // A bucket takes at least one bit.
        if (positives + negatives) as u64 > bits.remaining() {
            return Err(MalformedTsdbBytes::CutShort);
        }
        match &mut self.numbers {
            HistogramCountDeltas::Integer {
                count,
                zero_count,
                positive,
                negative,
            } => {
                *count = DeltaOfDelta::new(bits.read_uvarbit()? as i64);
                *zero_count = DeltaOfDelta::new(bits.read_uvarbit()? as i64);
                self.sum = XorFloat::new(f64::from_bits(bits.read_bits(64)?));
                for (side, buckets) in [(positive, positives), (negative, negatives)] {
                    let numbers = (0..buckets).map(|_| bits.read_varbit().map(DeltaOfDelta::new));
                    *side = numbers.collect::<Result<_, _>>()?;
                }
            }
            HistogramCountDeltas::Float {
                count,
                zero_count,
                positive,
                negative,
            } => {
                let mut float = || Ok(XorFloat::new(f64::from_bits(bits.read_bits(64)?)));
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
    pub fn read_next(&mut self, bits: &mut XorBitReader<'_>) -> Result<(), MalformedTsdbBytes> {
        match &mut self.numbers {
            HistogramCountDeltas::Integer {
                count, zero_count, ..
            } => {
                count.read(bits)?;
                zero_count.read(bits)?;
            }
            HistogramCountDeltas::Float {
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
            HistogramCountDeltas::Integer {
                positive, negative, ..
            } => {
                let mut buckets = positive.iter_mut().chain(negative);
                buckets.try_for_each(|bucket| bucket.read(bits))
            }
            HistogramCountDeltas::Float {
                positive, negative, ..
            } => {
                let mut buckets = positive.iter_mut().chain(negative);
                buckets.try_for_each(|bucket| bucket.read(bits))
            }
        }
    }

    /// Returns the counts of the latest histogram. They are a copy; the state remains for the next
    /// histogram.
    pub fn counts(&self) -> HistogramCounts {
        let integers = |side: &[DeltaOfDelta]| side.iter().map(|number| number.value).collect();
        let floats = |side: &[XorFloat]| side.iter().map(|number| number.value).collect();
        match &self.numbers {
            HistogramCountDeltas::Integer {
                count,
                zero_count,
                positive,
                negative,
            } => HistogramCounts::Integer {
                count: count.value as u64,
                zero_count: zero_count.value as u64,
                positive: integers(positive),
                negative: integers(negative),
            },
            HistogramCountDeltas::Float {
                count,
                zero_count,
                positive,
                negative,
            } => HistogramCounts::Float {
                count: count.value,
                zero_count: zero_count.value,
                positive: floats(positive),
                negative: floats(negative),
            },
        }
    }

    /// Writes the counts of the first histogram, which must be of the kind of the state and have
    /// the buckets of the layout.
    pub fn write_first(&mut self, out: &mut XorBitWriter, sum: f64, counts: &HistogramCounts) {
        self.sum = XorFloat::new(sum);
        match counts {
            HistogramCounts::Integer {
                count,
                zero_count,
                positive,
                negative,
            } => {
                out.write_uvarbit(*count);
                out.write_uvarbit(*zero_count);
                out.write_bits(sum.to_bits(), 64);
                let buckets = positive.iter().chain(negative);
                buckets.for_each(|bucket| out.write_varbit(*bucket));
                let side = |side: &[i64]| side.iter().copied().map(DeltaOfDelta::new).collect();
                self.numbers = HistogramCountDeltas::Integer {
                    count: DeltaOfDelta::new(*count as i64),
                    zero_count: DeltaOfDelta::new(*zero_count as i64),
                    positive: side(positive),
                    negative: side(negative),
                };
            }
            HistogramCounts::Float {
                count,
                zero_count,
                positive,
                negative,
            } => {
                let numbers = [count, zero_count, &sum].into_iter();
                let buckets = positive.iter().chain(negative);
                let numbers = numbers.chain(buckets);
                numbers.for_each(|number| out.write_bits(number.to_bits(), 64));
                let side = |side: &[f64]| side.iter().copied().map(XorFloat::new).collect();
                self.numbers = HistogramCountDeltas::Float {
                    count: XorFloat::new(*count),
                    zero_count: XorFloat::new(*zero_count),
                    positive: side(positive),
                    negative: side(negative),
                };
            }
        }
    }

    /// Writes the counts of the next histogram, which must have the same buckets as the first one.
    pub fn write_next(&mut self, out: &mut XorBitWriter, sum: f64, counts: &HistogramCounts) {
        match (&mut self.numbers, counts) {
            (
                HistogramCountDeltas::Integer {
                    count,
                    zero_count,
                    positive,
                    negative,
                },
                HistogramCounts::Integer {
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
                HistogramCountDeltas::Float {
                    count,
                    zero_count,
                    positive,
                    negative,
                },
                HistogramCounts::Float {
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
            (HistogramCountDeltas::Integer { .. }, HistogramCounts::Float { .. })
            | (HistogramCountDeltas::Float { .. }, HistogramCounts::Integer { .. }) => {
                unreachable!("a chunk holds histograms of one kind")
            }
        }
    }

    /// Writes a staleness marker after other histograms: its counts are the predicted ones, and it
    /// has no buckets.
    pub fn write_stale(&mut self, out: &mut XorBitWriter, sum: f64) {
        match &mut self.numbers {
            HistogramCountDeltas::Integer {
                count, zero_count, ..
            } => {
                out.write_varbit(0);
                out.write_varbit(0);
                for number in [count, zero_count] {
                    number.value = number.value.wrapping_add(number.delta);
                }
            }
            HistogramCountDeltas::Float {
                count, zero_count, ..
            } => {
                count.write(out, 0.0);
                zero_count.write(out, 0.0);
            }
        }
        self.sum.write(out, sum);
    }
}

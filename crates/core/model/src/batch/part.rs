//! Copies a part of a batch to another batch, series by series.
//!
//! Invariant: copied samples have the same order, and the labels of copied series are decoded.

use super::Batch;
use crate::sample::TimestampMs;
use std::ops::RangeInclusive;

impl Batch {
    /// Adds the samples of series `number` in `from` within `times` as a series of this batch,
    /// unless there are none. The labels of the series must be decoded, and this batch must have no
    /// current series.
    pub fn push_part(&mut self, from: &Batch, number: usize, times: &RangeInclusive<TimestampMs>) {
        let series = from.series(number);
        let labels = series.labels.as_bytes();
        self.label_bytes().extend_from_slice(labels);
        let mut is_empty = true;
        for (i, (time, value)) in series.times.iter().zip(series.values).enumerate() {
            if !times.contains(time) {
                continue;
            }
            is_empty = false;
            match series.start_times.get(i) {
                Some(start) => self.push_float_with_start(*time, *value, *start),
                None => self.push_float(*time, *value),
            }
        }
        let histograms = series.histograms.iter();
        for sample in histograms.filter(|sample| times.contains(&sample.time)) {
            is_empty = false;
            self.push_histogram(sample.clone());
        }
        let exemplars = from.exemplars().iter_series(number as u64);
        for exemplar in exemplars.filter(|exemplar| times.contains(&exemplar.time)) {
            is_empty = false;
            self.push_exemplar(exemplar);
        }
        if is_empty {
            self.drop_series()
        } else {
            self.end_series()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::labels::{Labels, METRIC_NAME};

    #[test]
    fn part_of_a_batch_has_what_lies_within_its_times_and_no_empty_series() {
        let mut whole = Batch::default();
        for (name, times) in [("a", [1, 2, 3]), ("b", [5, 6, 7]), ("c", [3, 4, 5])] {
            let labels = Labels::from_pairs([(METRIC_NAME, name)]);
            whole.push_series(labels.as_ref(), &times.map(|time| (time, time as f64)));
        }
        let mut part = Batch::default();
        (0..3).for_each(|number| part.push_part(&whole, number, &(2..=4)));
        part.assert_complete();
        let left: Vec<_> = part
            .iter()
            .map(|s| (s.labels.get(METRIC_NAME).to_vec(), s.times.to_vec()))
            .collect();
        assert_eq!(
            left,
            [(b"a".to_vec(), vec![2, 3]), (b"c".to_vec(), vec![3, 4])]
        );
    }
}

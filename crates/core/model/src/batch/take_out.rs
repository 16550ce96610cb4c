//! Removes series from a batch, for series that are aggregated and not stored.
//!
//! Invariant: the columns of the remaining series match, as before.

use super::{Batch, SampleColumnEnds};

impl Batch {
    /// Removes `series` with their samples and exemplars. `series` contains indexes in ascending
    /// order, and the following series get lower indexes. There must be no current series.
    pub fn remove_series(&mut self, series: &[u32]) {
        let Some(first) = series.first() else { return };
        let mut taken = series.iter().peekable();
        let first = *first as usize;
        let mut to = first;
        let start = self.previous_ends(first);
        let (mut floats, mut histograms) = (start.floats as usize, start.histograms as usize);
        let mut before = start;
        let has_starts = !self.start_times.is_empty();
        for from in first..self.ends.len() {
            let end = self.ends[from];
            let samples = before.floats as usize..end.floats as usize;
            let values = before.histograms as usize..end.histograms as usize;
            before = end;
            if taken.next_if(|taken| **taken as usize == from).is_some() {
                continue;
            }
            self.times.copy_within(samples.clone(), floats);
            self.values.copy_within(samples.clone(), floats);
            if has_starts {
                self.start_times.copy_within(samples.clone(), floats);
            }
            floats += samples.len();
            for value in values {
                self.histograms.swap(value, histograms);
                histograms += 1;
            }
            self.labels[to] = self.labels[from];
            self.ends[to] = SampleColumnEnds {
                floats: floats as u32,
                histograms: histograms as u32,
            };
            to += 1;
        }
        self.labels.truncate(to);
        self.ends.truncate(to);
        self.times.truncate(floats);
        self.values.truncate(floats);
        self.start_times.truncate(floats);
        self.histograms.truncate(histograms);
        self.exemplars.remove_series(series);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exemplar::TimedExemplar;
    use crate::histogram::{Histogram, HistogramCounts, ResetHint};
    use crate::labels::{Labels, LabelsRef};

    fn histogram(sum: f64) -> crate::batch::HistogramSample {
        crate::batch::HistogramSample {
            time: 7,
            start_time: 0,
            histogram: Histogram {
                reset_hint: ResetHint::Unknown,
                schema: 0,
                zero_threshold: 0.0,
                sum,
                counts: HistogramCounts::Float {
                    count: 1.0,
                    zero_count: 1.0,
                    positive: Vec::new(),
                    negative: Vec::new(),
                },
                positive_spans: Vec::new(),
                negative_spans: Vec::new(),
                custom_values: Vec::new(),
            },
        }
    }

    /// Creates a batch in which series `i` has `i % 3` floats with start timestamps, a histogram if
    /// `i` is even, and an exemplar.
    fn batch(of: &[u32]) -> Batch {
        let mut batch = Batch::default();
        for i in of {
            let labels = Labels::from_pairs([("a", i.to_string())]);
            batch.label_bytes().extend_from_slice(labels.as_bytes());
            for k in 0..i % 3 {
                batch.push_float_with_start(i64::from(k), f64::from(*i), i64::from(*i));
            }
            if i % 2 == 0 {
                batch.push_histogram(histogram(f64::from(*i)));
            }
            batch.push_exemplar(TimedExemplar {
                labels: LabelsRef::from_canonical(&[]),
                value: f64::from(*i),
                time: 1,
                has_own_time: true,
            });
            batch.end_series();
        }
        batch
    }

    fn shown(batch: &Batch) -> String {
        let series = (0..batch.series_count()).map(|i| format!("{:?}", batch.series(i)));
        let exemplars: Vec<_> = batch.exemplars().iter().collect();
        format!("{:?} {exemplars:?}", series.collect::<Vec<_>>())
    }

    #[test]
    fn take_out_leaves_the_batch_that_the_others_alone_make() {
        for out in 0..1u32 << 7 {
            let all: Vec<u32> = (0..7).collect();
            let (gone, left): (Vec<u32>, Vec<u32>) = all.iter().partition(|i| out >> **i & 1 == 1);
            let mut taken = batch(&all);
            taken.remove_series(&gone);
            taken.assert_complete();
            assert_eq!(shown(&taken), shown(&batch(&left)), "{gone:?}");
        }
    }
}

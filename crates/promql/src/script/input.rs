//! Samples in the notation of scripts that are loaded as time goes on: the input series of a test
//! of rules, which must not see what is still to come.

use super::command::read_load;
use super::push_series;
use super::sequence::LoadSample;
use firn_model::batch::Batch;
use firn_model::labels::Labels;
use firn_model::sample::{START_UNKNOWN, TimestampMs};
use firn_model::units::format_duration;
use std::time::Duration;

/// Series whose samples are taken bit by bit.
#[derive(Debug)]
pub struct Input {
    /// The samples that are still to come, the last one first.
    series: Vec<(Labels, Vec<LoadSample>)>,
}

impl Input {
    /// Reads `lines` such as `x{a="b"} 1+2x10`, whose values lie `step` apart from `start` on.
    pub fn read(step: Duration, start: TimestampMs, lines: &[&str]) -> Result<Self, String> {
        let head = format!("load {}", format_duration(step));
        let mut series = read_load(&head, 1, lines)?.series;
        for (_, samples) in &mut series {
            for sample in samples.iter_mut() {
                sample.time = sample.time.saturating_add(start);
                if sample.start_time != START_UNKNOWN {
                    sample.start_time = sample.start_time.saturating_add(start);
                }
            }
            samples.reverse();
        }
        Ok(Self { series })
    }

    /// The samples up to `time` that were not taken yet.
    pub fn take_until(&mut self, time: TimestampMs) -> Batch {
        let mut batch = Batch::default();
        for (labels, samples) in &mut self.series {
            let first = samples.partition_point(|sample| sample.time > time);
            let mut taken = samples.split_off(first);
            taken.reverse();
            if !taken.is_empty() {
                push_series(&mut batch, labels, &taken);
            }
        }
        batch
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn input_is_taken_once_and_not_before_its_time() {
        let step = Duration::from_secs(60);
        let mut input = Input::read(step, 5, &["x 1+1x3", "y _ _ 7"]).unwrap();
        let mut shown = Vec::new();
        for time in [4, 5, 60_005, 1_000_000] {
            let batch = input.take_until(time);
            let series = (0..batch.series_count()).map(|i| {
                let series = batch.series(i);
                format!("{:?}{:?}", series.times, series.values)
            });
            shown.push(series.collect::<String>());
        }
        assert_eq!(
            shown,
            [
                "",
                "[5][1.0]",
                "[60005][2.0]",
                "[120005, 180005][3.0, 4.0][120005][7.0]"
            ]
        );
    }
}

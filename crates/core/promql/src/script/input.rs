//! Samples in the notation of scripts that become visible over time: the input series of rule
//! tests, which must not read samples of the future.

use super::command::parse_load;
use super::push_series;
use super::sequence::{LoadSample, ScriptSampleValue};
use firn_model::batch::Batch;
use firn_model::labels::Labels;
use firn_model::sample::{START_UNKNOWN, TimestampMs};
use firn_model::units::format_duration;
use std::time::Duration;

/// Input series whose samples are taken in time order, step by step.
#[derive(Debug)]
pub struct InputSeries {
    /// The remaining samples of each series, newest first, so that the oldest can be removed
    /// cheaply.
    series: Vec<(Labels, Vec<LoadSample>)>,
}

impl InputSeries {
    /// Parses `lines` such as `x{a="b"} 1+2x10`. The first value has the timestamp `start`, and
    /// values are `step` apart. As in Prometheus, an empty line or a comment ends the input.
    pub fn parse_lines(step: Duration, start: TimestampMs, lines: &[&str]) -> Result<Self, String> {
        let head = format!("load {}", format_duration(step));
        let lines = lines.iter().flat_map(|line| line.trim().split('\n'));
        let lines = lines.map(str::trim);
        let lines: Vec<&str> = lines
            .take_while(|line| !line.is_empty() && !line.starts_with('#'))
            .collect();
        let mut series = parse_load(&head, 1, &lines)?.series;
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

    /// Returns the samples up to `time` that were not taken yet. If one of them cannot be stored,
    /// takes none and returns the reason; later calls return the same error.
    pub fn take_until(&mut self, time: TimestampMs) -> Result<Batch, String> {
        for (labels, samples) in &self.series {
            let first = samples.partition_point(|sample| sample.time > time);
            for sample in samples[first..].iter().rev() {
                check_sample(labels, sample)?;
            }
        }
        let mut batch = Batch::default();
        for (labels, samples) in &mut self.series {
            let first = samples.partition_point(|sample| sample.time > time);
            let mut taken = samples.split_off(first);
            taken.reverse();
            if !taken.is_empty() {
                push_series(&mut batch, labels, &taken);
            }
        }
        Ok(batch)
    }
}

/// Returns an error in the words of Prometheus if the sample cannot be stored.
fn check_sample(labels: &Labels, sample: &LoadSample) -> Result<(), String> {
    if labels.is_empty() {
        return Err("empty labelset: invalid sample".into());
    }
    match &sample.value {
        ScriptSampleValue::Histogram(histogram) => {
            histogram.value.validate().map_err(|e| e.message)
        }
        ScriptSampleValue::Float(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn input_is_taken_once_and_not_before_its_time() {
        let step = Duration::from_secs(60);
        let mut input = InputSeries::parse_lines(step, 5, &["x 1+1x3", "y _ _ 7"]).unwrap();
        let mut shown = Vec::new();
        for time in [4, 5, 60_005, 1_000_000] {
            let batch = input.take_until(time).unwrap();
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

    #[test]
    fn input_that_cannot_be_stored_is_told_each_time_from_its_time_on() {
        let step = Duration::from_secs(60);
        for (line, want) in [
            ("{} _ 1", "empty labelset: invalid sample"),
            (
                "x _ {{count:-1}}",
                "observation count is  -1: histogram's observation count is negative",
            ),
            (
                "x 1 {{schema:9}} 2",
                "histogram has an invalid schema, which must be between -4 and 8 for exponential \
                 buckets, or -53 for custom buckets, got schema 9",
            ),
        ] {
            let mut input = InputSeries::parse_lines(step, 0, &["y 1", line]).unwrap();
            assert!(input.take_until(0).is_ok(), "{line}");
            for _ in 0..2 {
                assert_eq!(input.take_until(60_000).unwrap_err(), want, "{line}");
            }
        }
    }

    #[test]
    fn input_ends_with_an_empty_line() {
        let step = Duration::from_secs(60);
        for (lines, want) in [
            (&["x 1\n", "y 1"][..], 2),
            (&["x 1", " ", "y 1"], 1),
            (&["x 1\n\ny 1"], 1),
            (&["# x 1", "y 1"], 0),
        ] {
            let mut input = InputSeries::parse_lines(step, 0, lines).unwrap();
            assert_eq!(
                input.take_until(0).unwrap().series_count(),
                want,
                "{lines:?}"
            );
        }
        assert!(InputSeries::parse_lines(step, 0, &["x 1\n2"]).is_err());
    }
}

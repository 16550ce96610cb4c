//! Statistics of a query with Prometheus's names, for the `stats` of a response and for the query
//! log.
//!
//! ```text
//! {"timings": {evalTotalTime, ...}, "samples": {totalQueryableSamples, samplesRead, peakSamples}}
//! ```
//!
//! Parsing and sorting are not measured separately from the evaluation. `firn_promql` defines the
//! sample counts.

use firn_model::sample::TimestampMs;
use firn_promql::EvalTime;
use firn_promql::value::SampleCounts;
use serde::{Serialize, Serializer};
use std::time::Duration;

/// Time that a query spent in the queue, in total, and in look-ups of series in the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct QueryTimings {
    pub(crate) queue: Duration,
    pub(crate) run: Duration,
    pub(crate) look_ups: Duration,
}

/// Serialized form of [`QueryTimings`] with Prometheus's names, in seconds.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct TimingsDocument {
    eval_total_time: f64,
    result_sort_time: f64,
    query_preparation_time: f64,
    inner_eval_time: f64,
    exec_queue_time: f64,
    exec_total_time: f64,
}

/// Serialized statistics of a query: timings and sample counts, optionally per step.
#[derive(Serialize)]
pub(crate) struct StatsDocument {
    timings: TimingsDocument,
    samples: SamplesDocument,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SamplesDocument {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    total_queryable_samples_per_step: Vec<StepSamplesDocument>,
    total_queryable_samples: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    samples_read_per_step: Vec<StepSamplesDocument>,
    samples_read: u64,
    peak_samples: u64,
}

/// Time and number of samples of a step.
#[derive(Serialize)]
struct StepSamplesDocument(StatsSeconds, u64);

/// A time that is serialized in seconds, as an integer if it has no fraction.
struct StatsSeconds(TimestampMs);

impl Serialize for StatsSeconds {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 % 1000 {
            0 => serializer.serialize_i64(self.0 / 1000),
            _ => serializer.serialize_f64(self.0 as f64 / 1000.0),
        }
    }
}

impl StatsDocument {
    /// Creates the statistics of a query over `time`. With `by_step`, includes the samples of each
    /// step.
    pub(crate) fn from_stats(
        timings: &QueryTimings,
        counts: &SampleCounts,
        time: EvalTime,
        by_step: bool,
    ) -> Self {
        let steps = |samples_at: &[u64]| {
            let (start, step_ms) = match time {
                EvalTime::Instant(at) => (at, 0),
                EvalTime::Range { start, .. } => (start, time.step_ms()),
            };
            let step = |(step, samples): (usize, &u64)| {
                let at = start.saturating_add(step_ms.saturating_mul(step as i64));
                StepSamplesDocument(StatsSeconds(at), *samples)
            };
            if by_step {
                samples_at.iter().enumerate().map(step).collect()
            } else {
                Vec::new()
            }
        };
        let inner = timings.run.saturating_sub(timings.look_ups);
        Self {
            timings: TimingsDocument {
                eval_total_time: timings.run.as_secs_f64(),
                result_sort_time: 0.0,
                query_preparation_time: timings.look_ups.as_secs_f64(),
                inner_eval_time: inner.as_secs_f64(),
                exec_queue_time: timings.queue.as_secs_f64(),
                exec_total_time: timings.run.as_secs_f64(),
            },
            samples: SamplesDocument {
                total_queryable_samples_per_step: steps(&counts.total_at),
                total_queryable_samples: counts.total,
                samples_read_per_step: steps(&counts.read_at),
                samples_read: counts.read,
                peak_samples: counts.peak,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_have_their_times_in_seconds_as_go_writes_them() {
        let counts = SampleCounts {
            total: 5,
            read: 4,
            peak: 6,
            total_at: vec![2, 3],
            read_at: vec![2, 2],
        };
        let time = EvalTime::range(1_700_000_000_000, 1_700_000_002_000, 1_500);
        let document = StatsDocument::from_stats(&QueryTimings::default(), &counts, time, true);
        let text = serde_json::to_string(&document.samples).unwrap();
        let expected = r#"{"totalQueryableSamplesPerStep":[[1700000000,2],[1700000001.5,3]],"#
            .to_owned()
            + r#""totalQueryableSamples":5,"#
            + r#""samplesReadPerStep":[[1700000000,2],[1700000001.5,2]],"#
            + r#""samplesRead":4,"peakSamples":6}"#;
        assert_eq!(text, expected);
        let document = StatsDocument::from_stats(&QueryTimings::default(), &counts, time, false);
        let text = serde_json::to_string(&document.samples).unwrap();
        assert!(!text.contains("PerStep"), "{text}");
    }
}

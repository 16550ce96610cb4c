//! What real senders do beside plain scrapes: pairs of servers that scrape the same, samples that
//! come late, and exemplars. What comes late has none.
//!
//! Invariant: what is added depends on the seed, the series and its time alone.

use crate::error::MirrorError;
use crate::fleet::Observation;
use crate::fleet::random::{Random, mix};
use crate::request::{Queues, Request};
use firn_model::exemplar::TimedExemplar;
use firn_model::histogram::Histogram;
use firn_model::labels::{Labels, LabelsBuilder, METRIC_NAME};
use firn_model::sample::{TimestampMs, is_stale};
use std::collections::VecDeque;

/// The label that tells the servers of a pair apart, by which receivers de-duplicate.
const REPLICA: &str = "__replica__";

/// What is added to the samples of a fleet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Extras {
    /// Servers that scrape the fleet, each with a label of its own if there are several.
    pub replicas: u64,
    /// The share of samples that come late.
    pub late_share: f64,
    /// How late they come, in data time.
    pub late_by_ms: i64,
    /// The share of samples of histograms that have an exemplar.
    pub exemplar_share: f64,
}

impl Default for Extras {
    fn default() -> Self {
        Self {
            replicas: 1,
            late_share: 0.0,
            late_by_ms: 0,
            exemplar_share: 0.0,
        }
    }
}

/// A sample that was scraped and not sent.
#[derive(Debug)]
struct Held {
    due_ms: TimestampMs,
    series: u64,
    labels: Labels,
    time_ms: TimestampMs,
    value: f64,
    histogram: Option<Histogram>,
}

/// Samples on their way to the queues.
#[derive(Debug)]
pub(super) struct Adding {
    extras: Extras,
    seed: u64,
    held: VecDeque<Held>,
    /// Samples that were sent.
    pub sent: u64,
}

impl Adding {
    pub(super) fn new(extras: Extras, seed: u64) -> Self {
        Self {
            extras,
            seed,
            held: VecDeque::new(),
            sent: 0,
        }
    }

    /// Sends a sample as every replica has it, or holds it back.
    pub(super) fn push(
        &mut self,
        sample: &Observation<'_>,
        queues: &mut Queues,
        emit: &mut impl FnMut(usize, Request) -> Result<(), MirrorError>,
    ) -> Result<(), MirrorError> {
        if self.extras.replicas == 1 && self.extras.late_share == 0.0 {
            return self.send(sample, queues, emit);
        }
        for replica in 0..self.extras.replicas {
            let series = sample.series * self.extras.replicas + replica;
            let labels = match self.extras.replicas {
                1 => sample.labels.to_owned(),
                _ => with_replica(sample, replica),
            };
            if self.is_late(series, sample) {
                self.held.push_back(Held {
                    due_ms: sample.time_ms.saturating_add(self.extras.late_by_ms),
                    series,
                    labels,
                    time_ms: sample.time_ms,
                    value: sample.value,
                    histogram: sample.histogram.cloned(),
                });
                continue;
            }
            let sample = Observation {
                series,
                labels: labels.as_ref(),
                ..*sample
            };
            self.send(&sample, queues, emit)?;
        }
        Ok(())
    }

    /// Sends a sample in time, with an exemplar if it has one.
    fn send(
        &mut self,
        sample: &Observation<'_>,
        queues: &mut Queues,
        emit: &mut impl FnMut(usize, Request) -> Result<(), MirrorError>,
    ) -> Result<(), MirrorError> {
        self.sent += 1;
        match self.trace_of(sample) {
            None => queues.push(sample, emit),
            Some((labels, value)) => {
                let exemplar = TimedExemplar {
                    labels: labels.as_ref(),
                    value,
                    time: sample.time_ms,
                    has_own_time: true,
                };
                queues.push_at(sample, Some(exemplar), sample.time_ms, emit)
            }
        }
    }

    /// The labels and the value of the exemplar of a sample, if it has one.
    fn trace_of(&self, sample: &Observation<'_>) -> Option<(Labels, f64)> {
        let share = self.extras.exemplar_share;
        if share == 0.0 || is_stale(sample.value) {
            return None;
        }
        let name = sample.labels.get(METRIC_NAME);
        if sample.histogram.is_none() && !name.ends_with(b"_bucket") {
            return None;
        }
        let parts = [self.seed, 9, sample.series, sample.time_ms as u64];
        let mut random = Random::new(mix(&parts));
        if random.unit() >= share {
            return None;
        }
        let trace = format!("{:016x}{:016x}", mix(&[parts[2], 1]), mix(&parts));
        let bound = std::str::from_utf8(sample.labels.get("le")).ok();
        let bound = bound.and_then(|le| le.parse::<f64>().ok());
        let bound = bound.filter(|bound| bound.is_finite()).unwrap_or(1.0);
        let labels = Labels::from_pairs([("trace_id", trace)]);
        Some((labels, bound * random.unit()))
    }

    /// Sends what was held back up to `now_ms`.
    pub(super) fn release(
        &mut self,
        now_ms: TimestampMs,
        queues: &mut Queues,
        emit: &mut impl FnMut(usize, Request) -> Result<(), MirrorError>,
    ) -> Result<(), MirrorError> {
        while let Some(held) = self.held.pop_front_if(|held| held.due_ms <= now_ms) {
            self.sent += 1;
            let sample = Observation {
                series: held.series,
                labels: held.labels.as_ref(),
                time_ms: held.time_ms,
                value: held.value,
                histogram: held.histogram.as_ref(),
            };
            queues.push_at(&sample, None, held.due_ms, emit)?;
        }
        Ok(())
    }

    /// A marker ends a series: one that came late would end it in the middle.
    fn is_late(&self, series: u64, sample: &Observation<'_>) -> bool {
        let parts = [self.seed, 8, series, sample.time_ms as u64];
        self.extras.late_share > 0.0
            && !is_stale(sample.value)
            && Random::new(mix(&parts)).unit() < self.extras.late_share
    }
}

fn with_replica(sample: &Observation<'_>, replica: u64) -> Labels {
    let mut labels = LabelsBuilder::from_labels(sample.labels);
    labels.set(REPLICA, format!("replica-{replica}").as_bytes());
    labels.build()
}

//! Behaviour of real senders beyond regular scrapes: pairs of replicas that scrape the same
//! targets, late samples, and exemplars. Late samples have no exemplars.
//!
//! Invariant: all additions depend only on the seed, the series and the timestamp of the sample.

use crate::error::MirrorError;
use crate::fleet::FleetSample;
use crate::fleet::random::{FleetRandom, mix_parts};
use crate::request::{Request, SenderQueues};
use firn_model::exemplar::TimedExemplar;
use firn_model::histogram::Histogram;
use firn_model::labels::{Labels, LabelsBuilder, METRIC_NAME};
use firn_model::sample::{TimestampMs, is_stale};
use std::collections::VecDeque;

/// Label that distinguishes the replicas of a pair and by which receivers deduplicate.
const REPLICA: &str = "__replica__";

/// Options for replicas, late samples and exemplars, from the flags of `firn load`. By default
/// there are none of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LoadExtras {
    /// Number of replicas that scrape the fleet; with more than one, each adds a label of its own.
    pub replicas: u64,
    /// Share of samples that are late, from 0 to 1.
    pub late_share: f64,
    /// Delay of late samples in milliseconds of data time.
    pub late_by_ms: i64,
    /// Share of histogram samples that have an exemplar, from 0 to 1.
    pub exemplar_share: f64,
}

impl Default for LoadExtras {
    fn default() -> Self {
        Self {
            replicas: 1,
            late_share: 0.0,
            late_by_ms: 0,
            exemplar_share: 0.0,
        }
    }
}

/// A late sample that waits for its delay to pass, with the values it had when it was scraped.
#[derive(Debug)]
struct DelayedSample {
    due_ms: TimestampMs,
    series: u64,
    labels: Labels,
    time_ms: TimestampMs,
    value: f64,
    histogram: Option<Histogram>,
}

/// Applies the [`LoadExtras`] to samples on their way from the fleet to the queues. It holds late
/// samples back.
#[derive(Debug)]
pub(super) struct ExtrasInjector {
    extras: LoadExtras,
    seed: u64,
    held: VecDeque<DelayedSample>,
    /// Number of samples that have been passed to the queues.
    pub sent: u64,
}

impl ExtrasInjector {
    pub(super) fn new(extras: LoadExtras, seed: u64) -> Self {
        Self {
            extras,
            seed,
            held: VecDeque::new(),
            sent: 0,
        }
    }

    /// Sends a sample once per replica, or holds it back if it is late.
    pub(super) fn push(
        &mut self,
        sample: &FleetSample<'_>,
        queues: &mut SenderQueues,
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
                self.held.push_back(DelayedSample {
                    due_ms: sample.time_ms.saturating_add(self.extras.late_by_ms),
                    series,
                    labels,
                    time_ms: sample.time_ms,
                    value: sample.value,
                    histogram: sample.histogram.cloned(),
                });
                continue;
            }
            let sample = FleetSample {
                series,
                labels: labels.as_ref(),
                ..*sample
            };
            self.send(&sample, queues, emit)?;
        }
        Ok(())
    }

    /// Sends a sample that is not late, with an exemplar if it has one.
    fn send(
        &mut self,
        sample: &FleetSample<'_>,
        queues: &mut SenderQueues,
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

    /// Returns labels and value of the sample's exemplar, if it has one. Only histograms have
    /// exemplars.
    fn trace_of(&self, sample: &FleetSample<'_>) -> Option<(Labels, f64)> {
        let share = self.extras.exemplar_share;
        if share == 0.0 || is_stale(sample.value) {
            return None;
        }
        let name = sample.labels.get(METRIC_NAME);
        if sample.histogram.is_none() && !name.ends_with(b"_bucket") {
            return None;
        }
        let parts = [self.seed, 9, sample.series, sample.time_ms as u64];
        let mut random = FleetRandom::new(mix_parts(&parts));
        if random.unit() >= share {
            return None;
        }
        let trace = format!(
            "{:016x}{:016x}",
            mix_parts(&[parts[2], 1]),
            mix_parts(&parts)
        );
        let bound = std::str::from_utf8(sample.labels.get("le")).ok();
        let bound = bound.and_then(|le| le.parse::<f64>().ok());
        let bound = bound.filter(|bound| bound.is_finite()).unwrap_or(1.0);
        let labels = Labels::from_pairs([("trace_id", trace)]);
        Some((labels, bound * random.unit()))
    }

    /// Sends the held samples whose delay has passed at `now_ms`.
    pub(super) fn release(
        &mut self,
        now_ms: TimestampMs,
        queues: &mut SenderQueues,
        emit: &mut impl FnMut(usize, Request) -> Result<(), MirrorError>,
    ) -> Result<(), MirrorError> {
        while let Some(held) = self.held.pop_front_if(|held| held.due_ms <= now_ms) {
            self.sent += 1;
            let sample = FleetSample {
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

    /// Returns whether the sample is late. Staleness markers never are, because a late one would
    /// end the series in the middle.
    fn is_late(&self, series: u64, sample: &FleetSample<'_>) -> bool {
        let parts = [self.seed, 8, series, sample.time_ms as u64];
        self.extras.late_share > 0.0
            && !is_stale(sample.value)
            && FleetRandom::new(mix_parts(&parts)).unit() < self.extras.late_share
    }
}

fn with_replica(sample: &FleetSample<'_>, replica: u64) -> Labels {
    let mut labels = LabelsBuilder::from_labels(sample.labels);
    labels.set(REPLICA, format!("replica-{replica}").as_bytes());
    labels.build()
}

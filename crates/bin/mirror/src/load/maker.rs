//! Generates the requests of a fleet, a number of rounds at a time.
//!
//! Invariant: the requests depend only on the options and on the ends of the stretches, never on
//! the speed at which they are consumed. The module sends nothing.

use super::Emit;
use super::extras::ExtrasInjector;
use super::options::Options;
use crate::error::MirrorError;
use crate::fleet::Fleet;
use crate::prepared::PreparedLoadSummary;
use crate::request::{Request, SenderQueues};

/// Generator of the requests of a fleet, which keeps its state between calls, so that a load can be
/// sent in parts.
#[derive(Debug)]
pub struct FleetRequestGenerator {
    fleet: Fleet,
    queues: SenderQueues,
    adding: ExtrasInjector,
    /// Number of replicas that scrape the fleet, for the summary.
    replicas: u64,
    /// Number of samples that have been scraped so far.
    scraped: u64,
    summary: PreparedLoadSummary,
}

impl FleetRequestGenerator {
    /// Creates a generator for the fleet of `options`, before its first round, with empty queues.
    pub fn new(options: &Options) -> Self {
        let fleet =
            Fleet::with_extra_series(options.fleet, options.more).with_ramp(options.trial.ramp_ms);
        let extras = options.trial.extras;
        let summary = PreparedLoadSummary {
            senders: options.senders,
            series: fleet.series_count() as u64 * extras.replicas,
            targets: fleet.pod_count() as u64,
            start_ms: options.fleet.start_ms,
            interval_ms: options.fleet.interval_ms,
            ..PreparedLoadSummary::default()
        };
        Self {
            fleet,
            queues: SenderQueues::new(options.senders, options.deadline_ms, options.protocol),
            adding: ExtrasInjector::new(extras, options.fleet.seed),
            replicas: extras.replicas,
            scraped: 0,
            summary,
        }
    }

    /// Generates the requests of the next `rounds`, including incomplete ones at the end, and
    /// passes them to `emit`.
    pub fn make(&mut self, rounds: u64, emit: Emit<'_>) -> Result<(), MirrorError> {
        let Self {
            fleet,
            queues,
            adding,
            scraped,
            summary,
            ..
        } = self;
        let series_per_pod = fleet.series_per_pod() as u64;
        let (mut requests, mut body_bytes) = (0, 0);
        let mut emit = |sender, request: Request| {
            requests += 1;
            body_bytes += request.body.len() as u64;
            emit(sender, request)
        };
        for _ in 0..rounds {
            fleet.scrape_round(&mut |sample| {
                if scraped.is_multiple_of(series_per_pod) {
                    adding.release(sample.time_ms, queues, &mut emit)?;
                    queues.expire(sample.time_ms, &mut emit)?;
                }
                *scraped += 1;
                summary.end_ms = summary.end_ms.max(sample.time_ms);
                adding.push(&sample, queues, &mut emit)
            })?;
        }
        // Samples that are still held back are sent late at the end of the stretch.
        adding.release(i64::MAX, queues, &mut emit)?;
        queues.expire(i64::MAX, &mut emit)?;
        summary.samples = adding.sent;
        summary.requests += requests;
        summary.body_bytes += body_bytes;
        Ok(())
    }

    /// Returns the summary of everything generated so far, by all calls of
    /// [`FleetRequestGenerator::make`].
    pub fn summary(&self) -> PreparedLoadSummary {
        PreparedLoadSummary {
            series_created: self.fleet.created_count() * self.replicas,
            ..self.summary.clone()
        }
    }
}

//! Makes the requests of a fleet, some rounds at a time.
//!
//! Invariant: what is made depends on the options and on where the stretches end, never on how fast
//! it is taken. Nothing here sends anything.

use super::Emit;
use super::options::Options;
use crate::error::MirrorError;
use crate::fleet::{Fleet, SERIES_PER_POD};
use crate::prepared::Summary;
use crate::request::{Queues, Request};

/// A fleet on its way through time.
#[derive(Debug)]
pub struct Maker {
    fleet: Fleet,
    queues: Queues,
    summary: Summary,
}

impl Maker {
    /// The fleet of `options` before its first round.
    pub fn new(options: &Options) -> Self {
        let fleet = Fleet::new(options.fleet).with_ramp(options.trial.ramp_ms);
        let summary = Summary {
            senders: options.senders,
            series: fleet.series_count() as u64,
            start_ms: options.fleet.start_ms,
            interval_ms: options.fleet.interval_ms,
            ..Summary::default()
        };
        Self {
            fleet,
            queues: Queues::new(options.senders, options.deadline_ms),
            summary,
        }
    }

    /// Hands over the requests of the next `rounds`, up to the last sample of them.
    pub fn make(&mut self, rounds: u64, emit: Emit<'_>) -> Result<(), MirrorError> {
        let Self {
            fleet,
            queues,
            summary,
        } = self;
        let (mut requests, mut body_bytes) = (0, 0);
        let mut emit = |sender, request: Request| {
            requests += 1;
            body_bytes += request.body.len() as u64;
            emit(sender, request)
        };
        for _ in 0..rounds {
            fleet.scrape_round(&mut |sample| {
                if summary.samples.is_multiple_of(SERIES_PER_POD as u64) {
                    queues.expire(sample.time_ms, &mut emit)?;
                }
                summary.samples += 1;
                summary.end_ms = summary.end_ms.max(sample.time_ms);
                queues.push(&sample, &mut emit)
            })?;
        }
        queues.expire(i64::MAX, &mut emit)?;
        summary.requests += requests;
        summary.body_bytes += body_bytes;
        Ok(())
    }

    /// What was made up to now.
    pub fn summary(&self) -> Summary {
        Summary {
            series_created: self.fleet.created_count(),
            ..self.summary.clone()
        }
    }
}

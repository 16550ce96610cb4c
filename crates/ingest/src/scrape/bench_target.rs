//! The scrapes of one target without network, clock and store, for benchmarks.

use super::settings::JobSettings;
use super::state::ScrapeState;
use super::status::TargetStatus;
use super::target::{Found, populate};
use firn_discovery::Group;
use firn_http_client::Body;
use firn_http_client::MemoryShare;
use firn_model::batch::Batch;
use firn_model::budget::Budget;
use firn_model::error::{Error, ErrorKind};
use firn_model::sample::TimestampMs;
use firn_wire::WireLimits;
use std::sync::Arc;
use std::time::Duration;

/// A target whose bodies the benchmark provides, with its series cache.
#[derive(Debug)]
pub struct BenchTarget(ScrapeState);

impl BenchTarget {
    /// Returns the target at `address` of a job in its initial state; the cache of its series may
    /// use `memory_bytes`.
    pub fn new(job: JobSettings, address: &str, memory_bytes: usize) -> Result<Self, Error> {
        let invalid = |why: String| Error::new(ErrorKind::Invalid, why);
        let found = populate(&job, address, &Group::default()).map_err(invalid)?;
        let Found::Target(target) = found else {
            return Err(invalid(format!("target dropped: {address}")));
        };
        Ok(Self(ScrapeState::new(
            Arc::new(job),
            &target,
            Arc::new(TargetStatus::default()),
            WireLimits::default(),
            MemoryShare::new(
                &Budget::new("bench target", memory_bytes),
                "cache of series",
            )?,
        )))
    }

    /// Processes a body like that of a scrape at `time`; returns the resulting batch. Fails if the
    /// body cannot be parsed or exceeds a limit.
    pub fn take(&mut self, body: Body, time: TimestampMs) -> Result<&Batch, Error> {
        self.0.take(Ok(body), time, || Duration::ZERO).outcome?;
        Ok(self.0.batch())
    }
}

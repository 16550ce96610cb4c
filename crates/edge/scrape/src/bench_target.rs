//! The scrapes of one target without network, clock and store, for benchmarks.

use super::settings::ScrapeJobSettings;
use super::state::ScrapeState;
use super::target::{TargetCandidate, target_from_address};
use firn_discovery::TargetGroup;
use firn_http_client::DecodedBody;
use firn_http_client::MemoryShare;
use firn_ingest::targets::TargetStatus;
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
    pub fn new(job: ScrapeJobSettings, address: &str, memory_bytes: usize) -> Result<Self, Error> {
        let invalid = |why: String| Error::new(ErrorKind::Invalid, why);
        let found = target_from_address(&job, address, &TargetGroup::default()).map_err(invalid)?;
        let TargetCandidate::Target(target) = found else {
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
    pub fn process_body(&mut self, body: DecodedBody, time: TimestampMs) -> Result<&Batch, Error> {
        self.0
            .process_response(Ok(body), time, || Duration::ZERO)
            .outcome?;
        Ok(self.0.batch())
    }
}

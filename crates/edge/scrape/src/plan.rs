//! The plans by which jobs and their targets are scraped.

use super::fetch::{Fetch, FetchFactory};
use super::settings::ScrapeJobSettings;
use firn_ingest::targets::ScrapeTarget;
use std::sync::Arc;

/// The plan for scraping one target, which its runner gets again whenever something changes.
pub(super) struct ScrapePlan {
    pub(super) job: Arc<ScrapeJobSettings>,
    pub(super) target: Arc<ScrapeTarget>,
    pub(super) fetch: Arc<dyn Fetch>,
    /// Reason why the target must not be scraped, if there is one.
    pub(super) refusal: Option<String>,
}

/// The behaviour of a job at its start and end, and the source of its fetchers. Fixed for the
/// lifetime of the job.
pub(super) struct ScrapeJobLifecycle {
    pub(super) maker: Arc<dyn FetchFactory>,
    /// True if new targets are scraped immediately instead of at their scheduled offset.
    pub(super) begins_at_once: bool,
    /// True if the series get staleness markers when the server stops, because no other server
    /// scrapes them.
    pub(super) marks_at_stop: bool,
}

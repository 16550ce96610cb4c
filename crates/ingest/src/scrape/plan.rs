//! The plans by which jobs and their targets are scraped.

use super::fetch::{Fetch, MakeFetch};
use super::settings::JobSettings;
use super::target::Target;
use std::sync::Arc;

/// The plan for scraping one target, which its runner gets again whenever something changes.
pub(super) struct Plan {
    pub(super) job: Arc<JobSettings>,
    pub(super) target: Arc<Target>,
    pub(super) fetch: Arc<dyn Fetch>,
    /// Reason why the target must not be scraped, if there is one.
    pub(super) refusal: Option<String>,
}

/// The behaviour of a job at its start and end, and the source of its fetchers. Fixed for the
/// lifetime of the job.
pub(super) struct Manner {
    pub(super) maker: Arc<dyn MakeFetch>,
    /// True if new targets are scraped immediately instead of at their scheduled offset.
    pub(super) begins_at_once: bool,
    /// True if the series get staleness markers when the server stops, because no other server
    /// scrapes them.
    pub(super) marks_at_stop: bool,
}

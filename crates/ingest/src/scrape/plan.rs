//! How a job and each of its targets are scraped.

use super::fetch::{Fetch, MakeFetch};
use super::settings::JobSettings;
use super::target::Target;
use std::sync::Arc;

/// How one target is scraped.
pub(super) struct Plan {
    pub(super) job: Arc<JobSettings>,
    pub(super) target: Arc<Target>,
    pub(super) fetch: Arc<dyn Fetch>,
    /// Why it is not scraped, if it is not.
    pub(super) refusal: Option<String>,
}

/// How a job begins and ends, and what fetches its targets.
pub(super) struct Manner {
    pub(super) maker: Arc<dyn MakeFetch>,
    /// Whether targets are scraped at once when they are new.
    pub(super) begins_at_once: bool,
    /// Whether the series are marked as stale when the server ends: no other server scrapes them.
    pub(super) marks_at_stop: bool,
}

//! The current state of a job for the API: its targets, including dropped ones.

use super::settings::JobSettings;
use super::status::TargetStatus;
use super::target::Target;
use firn_model::labels::Labels;
use firn_model::sync::lock;
use std::sync::{Arc, Mutex, MutexGuard};

/// A target that is being scraped, with its current status. The API returns a list of them.
#[derive(Clone, Debug)]
pub struct ActiveTarget {
    /// Labels and settings of the target.
    pub target: Arc<Target>,
    /// Status of its latest scrape.
    pub status: Arc<TargetStatus>,
}

/// The current state of a job, updated by its task whenever its targets change.
#[derive(Debug)]
pub struct PoolView {
    name: String,
    seen: Mutex<Seen>,
}

#[derive(Debug)]
pub(super) struct Seen {
    pub(super) job: Arc<JobSettings>,
    /// Active targets, sorted by URL.
    pub(super) active: Vec<ActiveTarget>,
    /// Labels of dropped targets before relabelling, limited to the number that the job keeps.
    pub(super) dropped: Arc<Vec<Labels>>,
    pub(super) dropped_count: usize,
}

impl PoolView {
    pub(super) fn new(job: Arc<JobSettings>) -> Self {
        Self {
            name: job.name.clone(),
            seen: Mutex::new(Seen {
                job,
                active: Vec::new(),
                dropped: Arc::default(),
                dropped_count: 0,
            }),
        }
    }

    /// Returns the name of the job.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the settings of the job.
    pub fn job(&self) -> Arc<JobSettings> {
        self.seen().job.clone()
    }

    /// Returns the active targets.
    pub fn active(&self) -> Vec<ActiveTarget> {
        self.seen().active.clone()
    }

    /// Returns the labels of dropped targets before relabelling.
    pub fn dropped(&self) -> Arc<Vec<Labels>> {
        self.seen().dropped.clone()
    }

    /// Returns the number of dropped targets, including those that are not remembered.
    pub fn dropped_count(&self) -> usize {
        self.seen().dropped_count
    }

    pub(super) fn seen(&self) -> MutexGuard<'_, Seen> {
        lock(&self.seen)
    }
}

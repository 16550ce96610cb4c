//! The current state of a job for the API: its targets, including dropped ones.

use super::settings::ScrapeJobSettings;
use super::status::TargetStatus;
use super::target::ScrapeTarget;
use firn_model::labels::Labels;
use firn_model::sync::lock;
use std::sync::{Arc, Mutex, MutexGuard};

/// A target that is being scraped, with its current status. The API returns a list of them.
#[derive(Clone, Debug)]
pub struct ActiveTarget {
    /// Labels and settings of the target.
    pub target: Arc<ScrapeTarget>,
    /// Status of its latest scrape.
    pub status: Arc<TargetStatus>,
}

/// The current state of a job, updated by its task whenever its targets change.
#[derive(Debug)]
pub struct ScrapePoolView {
    name: String,
    seen: Mutex<ScrapePoolSnapshot>,
}

#[derive(Debug)]
pub(super) struct ScrapePoolSnapshot {
    pub(super) job: Arc<ScrapeJobSettings>,
    /// Active targets, sorted by URL.
    pub(super) active: Vec<ActiveTarget>,
    /// Labels of dropped targets before relabelling, limited to the number that the job keeps.
    pub(super) dropped: Arc<Vec<Labels>>,
    pub(super) dropped_count: usize,
}

impl ScrapePoolView {
    pub(super) fn new(job: Arc<ScrapeJobSettings>) -> Self {
        Self {
            name: job.name.clone(),
            seen: Mutex::new(ScrapePoolSnapshot {
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
    pub fn job_settings(&self) -> Arc<ScrapeJobSettings> {
        self.lock_snapshot().job.clone()
    }

    /// Returns the active targets.
    pub fn active_targets(&self) -> Vec<ActiveTarget> {
        self.lock_snapshot().active.clone()
    }

    /// Returns the labels of dropped targets before relabelling.
    pub fn dropped_targets(&self) -> Arc<Vec<Labels>> {
        self.lock_snapshot().dropped.clone()
    }

    /// Returns the number of dropped targets, including those that are not remembered.
    pub fn dropped_count(&self) -> usize {
        self.lock_snapshot().dropped_count
    }

    pub(super) fn lock_snapshot(&self) -> MutexGuard<'_, ScrapePoolSnapshot> {
        lock(&self.seen)
    }
}

//! What a job looks like from outside: its targets, and those that it dropped.

use super::settings::JobSettings;
use super::status::TargetStatus;
use super::target::Target;
use firn_model::labels::Labels;
use firn_model::sync::lock;
use std::sync::{Arc, Mutex, MutexGuard};

/// A target that is scraped.
#[derive(Clone, Debug)]
pub struct ActiveTarget {
    /// What it is.
    pub target: Arc<Target>,
    /// How it is.
    pub status: Arc<TargetStatus>,
}

/// A job as it is now.
#[derive(Debug)]
pub struct PoolView {
    name: String,
    seen: Mutex<Seen>,
}

#[derive(Debug)]
pub(super) struct Seen {
    pub(super) job: Arc<JobSettings>,
    /// In the order of their URLs.
    pub(super) active: Vec<ActiveTarget>,
    /// Labels before relabelling, of as many as the job keeps.
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

    /// The job's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The job's settings.
    pub fn job(&self) -> Arc<JobSettings> {
        self.seen().job.clone()
    }

    /// The targets.
    pub fn active(&self) -> Vec<ActiveTarget> {
        self.seen().active.clone()
    }

    /// Labels, before relabelling, of targets that it dropped.
    pub fn dropped(&self) -> Arc<Vec<Labels>> {
        self.seen().dropped.clone()
    }

    /// How many targets relabelling dropped, those included of which nothing more is kept.
    pub fn dropped_count(&self) -> usize {
        self.seen().dropped_count
    }

    pub(super) fn seen(&self) -> MutexGuard<'_, Seen> {
        lock(&self.seen)
    }
}

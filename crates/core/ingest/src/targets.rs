//! Scrape targets with the state of their jobs, and discovered Alertmanagers, for the API.
//!
//! The crate of the scraper creates and updates them; the server only reads. They are plain data in
//! this crate, so that the server does not depend on the scraper.

mod status;

pub use status::{LastScrape, TargetHealth, TargetMetadataTable, TargetStatus};

use crate::relabel::RelabelRule;
use firn_model::labels::Labels;
use firn_model::sync::lock;
use firn_model::tenant::TenantId;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// A target, with the settings in which it differs from its job. Created whenever a discovery
/// returns a list.
#[derive(Clone, Debug, PartialEq)]
pub struct ScrapeTarget {
    /// Tenant to which its samples belong.
    pub tenant: TenantId,
    /// Labels that all its series get, including `job` and `instance`.
    pub labels: Labels,
    /// Labels before relabelling, including meta labels.
    pub discovered: Labels,
    /// URL to scrape, including parameters.
    pub url: String,
    /// Time between two scrapes, from the job or a label.
    pub interval: Duration,
    /// The interval as written in the label.
    pub interval_text: String,
    /// Longest duration of a scrape, from the job or a label.
    pub timeout: Duration,
    /// The timeout as written in the label.
    pub timeout_text: String,
    /// True if native histograms are scraped.
    pub native_histograms: bool,
    /// True if classic histograms are kept beside native ones.
    pub always_classic: bool,
    /// True if classic histograms are converted to native ones.
    pub convert_classic: bool,
}

impl ScrapeTarget {
    /// Returns the identity of the target: targets of one job with the same labels and URL are the
    /// same.
    pub fn identity(&self) -> (Labels, String) {
        (self.labels.clone(), self.url.clone())
    }
}

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

/// Targets and relabelling rules of a job at one time.
#[derive(Debug, Default)]
pub struct ScrapePoolSnapshot {
    /// `relabel_configs` of the job.
    pub relabel: Arc<Vec<RelabelRule>>,
    /// Active targets, sorted by URL.
    pub active: Vec<ActiveTarget>,
    /// Labels of dropped targets before relabelling, limited to the number that the job keeps.
    pub dropped: Arc<Vec<Labels>>,
    /// Number of dropped targets, including those that are not remembered.
    pub dropped_count: usize,
}

impl ScrapePoolView {
    /// Creates the view of the job `name` before its first targets.
    pub fn new(name: &str, relabel: Arc<Vec<RelabelRule>>) -> Self {
        Self {
            name: name.to_owned(),
            seen: Mutex::new(ScrapePoolSnapshot {
                relabel,
                ..ScrapePoolSnapshot::default()
            }),
        }
    }

    /// Replaces the state of the job.
    pub fn update(&self, snapshot: ScrapePoolSnapshot) {
        *self.lock_snapshot() = snapshot;
    }

    /// Returns the name of the job.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the relabelling rules of the job.
    pub fn relabel_rules(&self) -> Arc<Vec<RelabelRule>> {
        self.lock_snapshot().relabel.clone()
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

    fn lock_snapshot(&self) -> MutexGuard<'_, ScrapePoolSnapshot> {
        lock(&self.seen)
    }
}

/// The URLs of the discovered Alertmanagers, as the API shows them and the notifier uses them. The
/// lists are computed again whenever a discovery changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiscoveredAlertmanagers {
    /// URLs that receive alerts, without duplicates.
    pub active: Vec<String>,
    /// URLs of Alertmanagers that relabelling dropped, as they were before relabelling.
    pub dropped: Vec<String>,
}

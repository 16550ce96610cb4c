//! Combines the target lists of several independently watched sources into one list, at a limited
//! rate.
//!
//! Invariant: the first list is published as soon as every known source has reported its targets,
//! or after a timeout. A reloaded job therefore does not lose targets temporarily.

use super::group::TargetGroup;
use super::published::PublishedTargets;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::Receiver;
use tokio::time::{Instant, sleep_until};

/// Pauses and timeouts of a watch; tests use other values.
#[derive(Clone, Copy, Debug)]
pub(super) struct WatchTiming {
    /// Minimum time between two published lists.
    pub(super) pause: Duration,
    /// Time for which the first list waits for sources that have not reported yet.
    pub(super) first: Duration,
    /// Pause between a failure and the next attempt.
    pub(super) retry: Duration,
}

/// Pauses and timeouts with the same values as in upstream.
pub(super) const TIMING: WatchTiming = WatchTiming {
    pause: Duration::from_secs(5),
    first: Duration::from_secs(5),
    retry: Duration::from_secs(15),
};

/// Rate limiter for the publication of lists, used by watched mechanisms.
#[derive(Debug)]
pub(super) struct PublishRateLimiter {
    timing: WatchTiming,
    first_news: Option<Instant>,
    last: Option<Instant>,
}

impl PublishRateLimiter {
    /// Creates a rate limiter without pending changes.
    pub(super) fn new(timing: WatchTiming) -> Self {
        Self {
            timing,
            first_news: None,
            last: None,
        }
    }

    /// Records that there are changes to publish. The time of the first one counts.
    pub(super) fn record_change(&mut self) {
        self.first_news.get_or_insert_with(Instant::now);
    }

    /// Records that a list has been published, so that no changes are pending.
    pub(super) fn record_publication(&mut self) {
        self.first_news = None;
        self.last = Some(Instant::now());
    }

    /// Returns the time at which the next list is due, or `None` without pending changes. The first
    /// list is due later if `is_complete` is false.
    pub(super) fn next_publication(&self, is_complete: bool) -> Option<Instant> {
        let first_news = self.first_news?;
        Some(match self.last {
            Some(last) => last + self.timing.pause,
            None if is_complete => first_news,
            None => first_news + self.timing.first,
        })
    }
}

/// Waits until `due`; forever if it is `None`.
pub(super) async fn wait_until_due(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due).await,
        None => std::future::pending().await,
    }
}

/// A change that a watch reports to [`publish_combined`].
#[derive(Debug)]
pub(super) enum WatchUpdate {
    /// The complete set of existing sources. Groups of other sources are dropped.
    Sources(BTreeSet<String>),
    /// The current groups of one source, which replace its previous groups.
    Groups(String, Vec<TargetGroup>),
}

/// Publishes the combined groups of all sources until every sender of `news` has been dropped.
pub(super) async fn publish_combined(
    mut news: Receiver<WatchUpdate>,
    to: Arc<PublishedTargets>,
    timing: WatchTiming,
) {
    let mut parts: BTreeMap<String, Option<Vec<TargetGroup>>> = BTreeMap::new();
    let mut pace = PublishRateLimiter::new(timing);
    loop {
        let is_complete = parts.values().all(Option::is_some);
        tokio::select! {
            one = news.recv() => {
                match one {
                    None => return,
                    Some(WatchUpdate::Sources(names)) => {
                        parts.retain(|name, _| names.contains(name));
                        for name in names {
                            parts.entry(name).or_default();
                        }
                    }
                    Some(WatchUpdate::Groups(name, groups)) => {
                        // The source may have been removed in the meantime.
                        if let Some(part) = parts.get_mut(&name) {
                            *part = Some(groups);
                        }
                    }
                }
                pace.record_change();
            }
            () = wait_until_due(pace.next_publication(is_complete)) => {
                pace.record_publication();
                to.publish(parts.values().flatten().flatten().cloned().collect());
            }
        }
    }
}

//! One list made of the lists of several sources that are watched apart, at a bounded pace.
//!
//! Invariant: the first list is published when each source that is known to be there has answered,
//! or when it has waited long enough; so a job that is reloaded does not lose targets in between.

use super::group::Group;
use super::published::Published;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::Receiver;
use tokio::time::{Instant, sleep_until};

/// How fast a watch goes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timing {
    /// From one list to the next, at least.
    pub(super) pause: Duration,
    /// How long the first list waits for sources that have not answered.
    pub(super) first: Duration,
    /// From a failure to the next try.
    pub(super) retry: Duration,
}

/// Upstream's numbers.
pub(super) const TIMING: Timing = Timing {
    pause: Duration::from_secs(5),
    first: Duration::from_secs(5),
    retry: Duration::from_secs(15),
};

/// When lists may be published.
#[derive(Debug)]
pub(super) struct Pace {
    timing: Timing,
    first_news: Option<Instant>,
    last: Option<Instant>,
}

impl Pace {
    /// Nothing new yet.
    pub(super) fn new(timing: Timing) -> Self {
        Self {
            timing,
            first_news: None,
            last: None,
        }
    }

    /// Says that there is something new.
    pub(super) fn has_news(&mut self) {
        self.first_news.get_or_insert_with(Instant::now);
    }

    /// Says that a list was published.
    pub(super) fn has_published(&mut self) {
        self.first_news = None;
        self.last = Some(Instant::now());
    }

    /// When the next list is due; `None` while there is nothing new. One that is not complete
    /// waits for the rest.
    pub(super) fn due(&self, is_complete: bool) -> Option<Instant> {
        let first_news = self.first_news?;
        Some(match self.last {
            Some(last) => last + self.timing.pause,
            None if is_complete => first_news,
            None => first_news + self.timing.first,
        })
    }
}

/// Waits until `due`, or forever.
pub(super) async fn wait(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due).await,
        None => std::future::pending().await,
    }
}

/// What a watch has to say.
#[derive(Debug)]
pub(super) enum News {
    /// These sources are there, and no others.
    Sources(BTreeSet<String>),
    /// What a source says now.
    Groups(String, Vec<Group>),
}

/// Publishes what the sources say until no watch is left that could say anything.
pub(super) async fn assemble(mut news: Receiver<News>, to: Arc<Published>, timing: Timing) {
    let mut parts: BTreeMap<String, Option<Vec<Group>>> = BTreeMap::new();
    let mut pace = Pace::new(timing);
    loop {
        let is_complete = parts.values().all(Option::is_some);
        tokio::select! {
            one = news.recv() => {
                match one {
                    None => return,
                    Some(News::Sources(names)) => {
                        parts.retain(|name, _| names.contains(name));
                        for name in names {
                            parts.entry(name).or_default();
                        }
                    }
                    Some(News::Groups(name, groups)) => {
                        // The source may have gone meanwhile.
                        if let Some(part) = parts.get_mut(&name) {
                            *part = Some(groups);
                        }
                    }
                }
                pace.has_news();
            }
            () = wait(pace.due(is_complete)) => {
                pace.has_published();
                to.publish(parts.values().flatten().flatten().cloned().collect());
            }
        }
    }
}

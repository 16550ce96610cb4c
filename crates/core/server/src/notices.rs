//! Conditions that need the operator's attention: the server is starting or stopping, the newest
//! configuration was rejected, or samples are not being forwarded. The texts are Prometheus's where
//! it has them.
//!
//! Invariant: each notice is active at most once, with the time at which it was last reported.

use firn_model::env::Clock;
use firn_model::sample::TimestampMs;
use firn_model::sync::lock;
use std::sync::{Arc, Mutex};
use tokio::sync::broadcast::{Receiver, Sender, channel};

/// Number of changes by which a slow subscriber may lag. At most four notices are active.
const CHANGES_KEPT: usize = 16;

/// A condition that can be reported to operators. Each is either active or inactive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    Starting,
    Stopping,
    ConfigRefused,
    NothingSentOn,
}

impl Notice {
    /// Returns the text of the notice, which is Prometheus's where it has one.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Notice::Starting => "Firn is starting and replaying its log.",
            Notice::Stopping => "Firn is shutting down and gracefully stopping all operations.",
            Notice::ConfigRefused => "Configuration reload has failed.",
            Notice::NothingSentOn => {
                "Samples are not sent on: the queue of remote_write cannot be opened."
            }
        }
    }
}

/// A notice with the time at which it was last reported, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ActiveNotice {
    pub(crate) notice: Notice,
    pub(crate) since: TimestampMs,
    pub(crate) is_active: bool,
}

/// The active notices and their subscribers. One instance exists per server; methods take a short
/// lock.
pub(crate) struct Notices {
    clock: Arc<dyn Clock>,
    active: Mutex<Vec<ActiveNotice>>,
    changes: Sender<ActiveNotice>,
}

impl Notices {
    /// Creates the notices of a server that is starting: the notice of the start is active.
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        let notices = Self {
            clock,
            active: Mutex::default(),
            changes: channel(CHANGES_KEPT).0,
        };
        notices.set(Notice::Starting, true);
        notices
    }

    /// Sets whether `notice` is active, and notifies subscribers of the change.
    pub(crate) fn set(&self, notice: Notice, holds: bool) {
        let mut active = lock(&self.active);
        let new = ActiveNotice {
            notice,
            since: self.clock.now_ms(),
            is_active: true,
        };
        let at = active.iter().position(|noted| noted.notice == notice);
        let noted = match (at, holds) {
            (Some(at), false) => ActiveNotice {
                is_active: false,
                ..active.remove(at)
            },
            // Reported again as in upstream, because each reload may be rejected.
            (Some(at), true) => {
                active[at] = new;
                new
            }
            (None, true) => {
                active.push(new);
                new
            }
            (None, false) => return,
        };
        // Fails if there are no subscribers.
        let _ = self.changes.send(noted);
    }

    /// Returns the active notices, in the order in which they became active.
    pub(crate) fn active(&self) -> Vec<ActiveNotice> {
        lock(&self.active).clone()
    }

    /// Returns the active notices, and a receiver for all later changes, without a gap between the
    /// two.
    pub(crate) fn subscribe(&self) -> (Vec<ActiveNotice>, Receiver<ActiveNotice>) {
        let active = lock(&self.active);
        (active.clone(), self.changes.subscribe())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_model::env::sim::SimClock;

    #[test]
    fn notice_is_told_each_time_it_is_said_to_hold_and_once_when_it_ends() {
        let clock = Arc::new(SimClock::default());
        let notices = Notices::new(clock.clone());
        let (first, mut changes) = notices.subscribe();
        assert_eq!(first.len(), 1);
        clock.set_ms(5);
        for holds in [true, true, false, false] {
            notices.set(Notice::ConfigRefused, holds);
        }
        notices.set(Notice::Starting, false);
        let told = |notice, since, is_active| ActiveNotice {
            notice,
            since,
            is_active,
        };
        let want = [
            told(Notice::ConfigRefused, 5, true),
            told(Notice::ConfigRefused, 5, true),
            told(Notice::ConfigRefused, 5, false),
            told(Notice::Starting, first[0].since, false),
        ];
        for want in want {
            assert_eq!(changes.try_recv(), Ok(want));
        }
        assert!(changes.try_recv().is_err());
        assert_eq!(notices.active(), []);
    }
}

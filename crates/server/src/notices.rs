//! What an operator should know right now: that the server starts or stops, that its newest config
//! was not taken over, or that nothing is sent on. With Prometheus's words, where it has them.
//!
//! Invariant: a notice is there once, from the moment it was last said to hold.

use firn_model::env::Clock;
use firn_model::sample::TimestampMs;
use firn_model::sync::lock;
use std::sync::{Arc, Mutex};
use tokio::sync::broadcast::{Receiver, Sender, channel};

/// Changes that a slow reader may fall behind; there are four notices at most.
const CHANGES_KEPT: usize = 16;

/// A notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    Starting,
    Stopping,
    ConfigRefused,
    NothingSentOn,
}

impl Notice {
    /// What it says.
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

/// A notice and when it was last said to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Noted {
    pub(crate) notice: Notice,
    pub(crate) since: TimestampMs,
    pub(crate) is_active: bool,
}

/// The notices that hold, and those who follow them.
pub(crate) struct Notices {
    clock: Arc<dyn Clock>,
    active: Mutex<Vec<Noted>>,
    changes: Sender<Noted>,
}

impl Notices {
    /// Those of a server that is starting.
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        let notices = Self {
            clock,
            active: Mutex::default(),
            changes: channel(CHANGES_KEPT).0,
        };
        notices.set(Notice::Starting, true);
        notices
    }

    /// Says whether `notice` holds from now on.
    pub(crate) fn set(&self, notice: Notice, holds: bool) {
        let mut active = lock(&self.active);
        let new = Noted {
            notice,
            since: self.clock.now_ms(),
            is_active: true,
        };
        let at = active.iter().position(|noted| noted.notice == notice);
        let noted = match (at, holds) {
            (Some(at), false) => Noted {
                is_active: false,
                ..active.remove(at)
            },
            // Once more, as upstream: a config is refused with each try.
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
        // Fails if no one listens.
        let _ = self.changes.send(noted);
    }

    /// Those that hold.
    pub(crate) fn active(&self) -> Vec<Noted> {
        lock(&self.active).clone()
    }

    /// Those that hold, and what changes from then on.
    pub(crate) fn follow(&self) -> (Vec<Noted>, Receiver<Noted>) {
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
        let (first, mut changes) = notices.follow();
        assert_eq!(first.len(), 1);
        clock.set_ms(5);
        for holds in [true, true, false, false] {
            notices.set(Notice::ConfigRefused, holds);
        }
        notices.set(Notice::Starting, false);
        let told = |notice, since, is_active| Noted {
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

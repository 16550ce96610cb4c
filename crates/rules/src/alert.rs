//! One alert of a rule: its labels, and what has become of it.
//!
//! ```text
//! pending --for passed--> firing --gone, and keep_firing_for passed--> inactive (resolved)
//!    `--gone--> forgotten                                     resolved for 15 min --> forgotten
//! ```
//!
//! Facts are from upstream's `rules/alerting.go`.

use crate::instant::Instant;
use firn_model::labels::Labels;
use std::time::Duration;

/// The name of the series that show which alerts are active.
pub const ALERTS: &str = "ALERTS";

/// The name of the series that keep since when alerts are active.
pub const ALERTS_FOR_STATE: &str = "ALERTS_FOR_STATE";

/// The label with the name of the rule.
pub const ALERT_NAME: &str = "alertname";

/// The label of [`ALERTS`] with the state.
pub const ALERT_STATE: &str = "alertstate";

/// How an alert is. A later state is the more urgent one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AlertState {
    /// Its condition held, and does so no more.
    #[default]
    Inactive,
    /// Its condition holds, and not for long enough yet.
    Pending,
    /// Its condition holds.
    Firing,
}

impl AlertState {
    /// The state as series and answers name it.
    pub const fn as_str(self) -> &'static str {
        match self {
            AlertState::Inactive => "inactive",
            AlertState::Pending => "pending",
            AlertState::Firing => "firing",
        }
    }
}

/// Texts by name, in the order of the names, each once; a text may be empty.
pub type Annotations = Vec<(String, String)>;

/// An alert of a rule.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Alert {
    /// What tells it from the other alerts: those of the series and of the rule, expanded.
    pub labels: Labels,
    /// Those of the rule, expanded.
    pub annotations: Annotations,
    /// How it is.
    pub state: AlertState,
    /// The value at the newest evaluation that found it.
    pub value: f64,
    /// Since when its condition holds.
    pub active_at: Instant,
    /// Since when it fires.
    pub fired_at: Option<Instant>,
    /// Since when it does so no more.
    pub resolved_at: Option<Instant>,
    /// The newest evaluation that it was sent after.
    pub last_sent_at: Option<Instant>,
    /// Until when the receiver may take it as firing if it hears no more of it.
    pub valid_until: Option<Instant>,
    /// Since when it fires by `keep_firing_for` alone.
    pub keep_firing_since: Option<Instant>,
}

impl Alert {
    /// Moves all that it remembers to so much earlier.
    pub(crate) fn set_back(&mut self, by: Duration) {
        self.active_at = self.active_at.before(by);
        let known = [
            &mut self.fired_at,
            &mut self.resolved_at,
            &mut self.last_sent_at,
            &mut self.valid_until,
            &mut self.keep_firing_since,
        ];
        for moment in known.into_iter().flatten() {
            *moment = moment.before(by);
        }
    }

    /// Whether it was not sent since it fired or resolved.
    pub fn is_changed(&self) -> bool {
        match (self.last_sent_at, self.resolved_at) {
            (None, _) => true,
            (Some(sent), Some(resolved)) => resolved > sent,
            (Some(_), None) => false,
        }
    }

    /// Whether it is due to be sent at `now`: at once when it fires or resolves, then once more
    /// each time that `resend_delay` has passed.
    pub fn needs_sending(&self, now: Instant, resend_delay: Duration) -> bool {
        if self.state == AlertState::Pending {
            return false;
        }
        let Some(sent) = self.last_sent_at else {
            return true;
        };
        self.resolved_at.is_some_and(|resolved| resolved > sent) || sent.after(resend_delay) < now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alert_is_sent_at_each_change_and_when_the_delay_has_passed() {
        let at = Instant::from_seconds;
        let alert = |state, resolved: Option<i64>, sent: Option<i64>| Alert {
            state,
            resolved_at: resolved.map(at),
            last_sent_at: sent.map(at),
            ..Alert::default()
        };
        for (state, resolved, sent, now, want) in [
            (AlertState::Pending, None, None, 100, false),
            (AlertState::Firing, None, None, 100, true),
            (AlertState::Firing, None, Some(100), 160, false),
            (AlertState::Firing, None, Some(100), 161, true),
            (AlertState::Inactive, Some(110), Some(100), 110, true),
            (AlertState::Inactive, Some(110), Some(110), 170, false),
            (AlertState::Inactive, Some(110), Some(110), 171, true),
        ] {
            let alert = alert(state, resolved, sent);
            let delay = Duration::from_secs(60);
            assert_eq!(alert.needs_sending(at(now), delay), want, "{alert:?} {now}");
        }
    }
}

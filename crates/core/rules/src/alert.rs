//! A single alert of an alerting rule: its labels, annotations, state and the times of its
//! transitions.
//!
//! ```text
//! pending --`for` elapsed--> firing --condition false and keep_firing_for elapsed--> inactive
//!    |                                                                              (resolved)
//!    `--condition false--> removed                           resolved for 15 min --> removed
//! ```
//!
//! [`crate::alerts`] performs the transitions. Follows upstream's `rules/alerting.go`.

use crate::instant::RuleInstant;
use firn_model::labels::Labels;
use std::time::Duration;

/// Metric name of the synthetic series that expose active alerts with the value 1.
pub const ALERTS: &str = "ALERTS";

/// Metric name of the synthetic series whose value is the activation time of an alert, in seconds
/// since the epoch.
pub const ALERTS_FOR_STATE: &str = "ALERTS_FOR_STATE";

/// Label of alerts and their series that contains the name of the alerting rule.
pub const ALERT_NAME: &str = "alertname";

/// Label of the series [`ALERTS`] that contains the state of the alert.
pub const ALERT_STATE: &str = "alertstate";

/// State of an alert or, as the maximum of its alerts, of a rule. States are ordered by urgency:
/// firing is the greatest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AlertState {
    /// The condition was true earlier and no longer is: the alert is resolved.
    #[default]
    Inactive,
    /// The condition is true, but not yet for the duration of `for`.
    Pending,
    /// The condition has been true for the duration of `for`, or `keep_firing_for` keeps the alert
    /// active.
    Firing,
}

impl AlertState {
    /// Returns the name of the state in series and API responses.
    pub const fn as_str(self) -> &'static str {
        match self {
            AlertState::Inactive => "inactive",
            AlertState::Pending => "pending",
            AlertState::Firing => "firing",
        }
    }
}

/// Pairs of annotation name and text, sorted by name, with unique names. A text may be empty.
pub type Annotations = Vec<(String, String)>;

/// An alert of one rule. Created by [`crate::alerts::Alerts`] when the condition first becomes true
/// for its label set, updated by each evaluation, and removed some time after its resolution.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Alert {
    /// Labels that identify the alert within its rule: those of the result series, overridden by
    /// the expanded labels of the rule.
    pub labels: Labels,
    /// Annotations of the rule with expanded templates, from the newest evaluation that found the
    /// alert.
    pub annotations: Annotations,
    /// Current state of the alert.
    pub state: AlertState,
    /// Value of the expression at the newest evaluation that found the alert.
    pub value: f64,
    /// Time at which the condition became true.
    pub active_at: RuleInstant,
    /// Time at which the alert started to fire; `None` if it has not fired.
    pub fired_at: Option<RuleInstant>,
    /// Time at which the alert was resolved; `None` while it is active.
    pub resolved_at: Option<RuleInstant>,
    /// Evaluation after which the alert was last sent to receivers; `None` if it was never sent.
    pub last_sent_at: Option<RuleInstant>,
    /// Time until which a receiver considers the alert firing if it receives no update.
    pub valid_until: Option<RuleInstant>,
    /// First evaluation at which the condition was false while `keep_firing_for` kept the alert
    /// firing.
    pub keep_firing_since: Option<RuleInstant>,
}

impl Alert {
    /// Moves all times of the alert back by `by`, after the clock was set back.
    pub(crate) fn shift_times_back(&mut self, by: Duration) {
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

    /// Returns whether the alert started to fire or was resolved since it was last sent.
    pub fn is_changed(&self) -> bool {
        match (self.last_sent_at, self.resolved_at) {
            (None, _) => true,
            (Some(sent), Some(resolved)) => resolved > sent,
            (Some(_), None) => false,
        }
    }

    /// Returns whether the alert is due to be sent at `now`: immediately after it fires or
    /// resolves, and again each time that `resend_delay` has elapsed since the last delivery.
    /// Pending alerts are never sent.
    pub fn needs_sending(&self, now: RuleInstant, resend_delay: Duration) -> bool {
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
        let at = RuleInstant::from_seconds;
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

//! The state of rules in memory, and the part of a group's state that survives restarts.

use crate::alert::Alert;
use crate::alerts::RuleAlerts;
use crate::file::Texts;
use crate::instant::RuleInstant;
use crate::rule::{Rule, RuleError};
use firn_model::labels::Labels;
use std::time::Duration;

/// Outcome of the newest evaluation of a rule, as the API shows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RuleHealth {
    /// The rule was not evaluated since it was loaded or changed.
    #[default]
    Unknown,
    /// The evaluation succeeded.
    Good,
    /// The evaluation failed, or its samples were not stored.
    Bad,
}

impl RuleHealth {
    /// Returns the name of the health in API responses: `unknown`, `ok` or `err`.
    pub const fn as_str(self) -> &'static str {
        match self {
            RuleHealth::Unknown => "unknown",
            RuleHealth::Good => "ok",
            RuleHealth::Bad => "err",
        }
    }
}

/// State of a rule in a running group: outcome of its newest evaluation, counters and alerts. Kept
/// in memory by the machine.
#[derive(Clone, Debug, Default)]
pub struct RuleState {
    /// Outcome of the newest evaluation.
    pub health: RuleHealth,
    /// Error of the newest evaluation; empty if it succeeded.
    pub last_error: String,
    /// Duration of the newest evaluation.
    pub took: Duration,
    /// Total duration of all evaluations by this process.
    pub took_in_all: Duration,
    /// Start of the newest evaluation by the clock; `None` before the first one.
    pub evaluated: Option<RuleInstant>,
    /// Number of samples that the newest evaluation produced; zero if it failed.
    pub samples: u64,
    /// Failures by reason, in the order of [`RuleError::REASONS`].
    pub failures: [u64; RuleError::REASONS.len()],
    /// Alerts of the rule; empty for a recording rule.
    pub alerts: RuleAlerts,
    /// Labels of the series that the previous evaluation wrote. Those that the next evaluation does
    /// not produce get stale markers.
    pub(super) previous: Vec<Labels>,
}

impl RuleState {
    /// Creates the state of a rule without history, or with saved alerts.
    pub(super) fn new(rule: &Rule, saved: Option<SavedRule>) -> Self {
        let is_shown = saved.as_ref().is_some_and(|saved| saved.is_shown);
        let alerts = match (rule.alert_settings(), saved) {
            (Some(_), Some(saved)) => RuleAlerts::from_saved(saved.alerts, saved.is_restored),
            _ => RuleAlerts::from_saved(Vec::new(), true),
        };
        let made = if is_shown {
            alerts.samples(&rule.name, &rule.labels)
        } else {
            Vec::new()
        };
        Self {
            previous: made.into_iter().map(|(labels, _)| labels).collect(),
            alerts,
            ..Self::default()
        }
    }

    /// Records the failure of an evaluation: sets health and error, and counts its reason.
    pub(super) fn fail(&mut self, error: &RuleError) {
        self.health = RuleHealth::Bad;
        self.last_error = error.to_string();
        let counts = RuleError::REASONS.iter().zip(&mut self.failures);
        for (reason, count) in counts {
            *count += u64::from(*reason == error.reason());
        }
    }
}

/// A range of consecutive instants of which samples are still to be stored. Such a range is filled
/// by a backfill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackfillRange {
    /// First instant of the range, inclusive; not later than the last one.
    pub first: RuleInstant,
    /// Last instant of the range, inclusive.
    pub last: RuleInstant,
}

impl BackfillRange {
    /// Returns the smallest range that contains both ranges, including the instants between them.
    pub(super) fn union(self, other: Option<Self>) -> Self {
        let other = other.unwrap_or(self);
        Self {
            first: self.first.min(other.first),
            last: self.last.max(other.last),
        }
    }
}

/// The state of a group that is persisted by [`crate::journal`] and survives restarts. Series of
/// recording rules are not saved; they are queried again.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SavedGroup {
    /// Path of the rule file.
    pub file: String,
    /// Name of the group.
    pub name: String,
    /// Evaluation interval at the time of saving.
    pub interval: Duration,
    /// Instant of the newest evaluation, at which a restarted machine continues.
    pub instant: RuleInstant,
    /// Range of instants whose recorded samples are not stored yet.
    pub owed: Option<BackfillRange>,
    /// Evaluations until alerts are restored; zero if they are.
    pub restore_after: u32,
    /// States of the alerting rules, in the order of the group.
    pub rules: Vec<SavedRule>,
}

/// Saved alerts of one alerting rule. Name and labels identify the rule in the file after a
/// restart.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SavedRule {
    /// Name of the rule.
    pub name: String,
    /// Labels of the rule. Name and labels together identify the rule after a restart.
    pub labels: Texts,
    /// True if the alerts from before the start of the process were restored.
    pub is_restored: bool,
    /// True if the evaluation wrote synthetic series for the alerts.
    pub is_shown: bool,
    /// All alerts of the rule, including resolved ones.
    pub alerts: Vec<Alert>,
}

//! How a rule is, and what of a group outlives the process.

use crate::alert::Alert;
use crate::alerts::Alerts;
use crate::file::Texts;
use crate::instant::Instant;
use crate::rule::{Rule, RuleError};
use firn_model::labels::Labels;
use std::time::Duration;

/// Whether the newest evaluation of a rule succeeded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Health {
    /// There was none.
    #[default]
    Unknown,
    /// It did.
    Good,
    /// It did not.
    Bad,
}

impl Health {
    /// The health as answers name it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Health::Unknown => "unknown",
            Health::Good => "ok",
            Health::Bad => "err",
        }
    }
}

/// How a rule is.
#[derive(Clone, Debug, Default)]
pub struct RuleState {
    /// Whether its newest evaluation succeeded.
    pub health: Health,
    /// Why not; empty if it did.
    pub last_error: String,
    /// How long that took.
    pub took: Duration,
    /// How long all evaluations of this process took.
    pub took_in_all: Duration,
    /// When the newest one began.
    pub evaluated: Option<Instant>,
    /// The samples that it made.
    pub samples: u64,
    /// How often the rule failed, by [`RuleError::REASONS`].
    pub failures: [u64; RuleError::REASONS.len()],
    /// Its alerts; empty if it makes none.
    pub alerts: Alerts,
    /// The series that the evaluation before made.
    pub(super) previous: Vec<Labels>,
}

impl RuleState {
    /// The state of a rule of which nothing is known, or of which alerts were saved.
    pub(super) fn new(rule: &Rule, saved: Option<SavedRule>) -> Self {
        let is_shown = saved.as_ref().is_some_and(|saved| saved.is_shown);
        let alerts = match (rule.alerting(), saved) {
            (Some(_), Some(saved)) => Alerts::of_saved(saved.alerts, saved.is_restored),
            _ => Alerts::of_saved(Vec::new(), true),
        };
        let made = match is_shown {
            true => alerts.samples(&rule.name, &rule.labels),
            false => Vec::new(),
        };
        Self {
            previous: made.into_iter().map(|(labels, _)| labels).collect(),
            alerts,
            ..Self::default()
        }
    }

    /// The evaluation failed.
    pub(super) fn fail(&mut self, error: &RuleError) {
        self.health = Health::Bad;
        self.last_error = error.to_string();
        let counts = RuleError::REASONS.iter().zip(&mut self.failures);
        for (reason, count) in counts {
            *count += u64::from(*reason == error.reason());
        }
    }
}

/// Instants, one behind the other, of which samples are still to be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owed {
    /// The first one.
    pub first: Instant,
    /// The last one.
    pub last: Instant,
}

impl Owed {
    /// All of these instants, those of `other`, and what lies between them.
    pub(super) fn and(self, other: Option<Self>) -> Self {
        let other = other.unwrap_or(self);
        Self {
            first: self.first.min(other.first),
            last: self.last.max(other.last),
        }
    }
}

/// What of a group is kept over the end of the process.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SavedGroup {
    /// The path of its file.
    pub file: String,
    /// Its name.
    pub name: String,
    /// Its interval.
    pub interval: Duration,
    /// The instant of its newest evaluation.
    pub instant: Instant,
    /// The instants before of which it still owes what is recorded.
    pub owed: Option<Owed>,
    /// Evaluations until its alerts are restored; zero if they are.
    pub restore_after: u32,
    /// Its rules that make alerts.
    pub rules: Vec<SavedRule>,
}

/// The alerts of a rule.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SavedRule {
    /// The name of the rule.
    pub name: String,
    /// Its labels.
    pub labels: Texts,
    /// Whether it is known what was before the start of the first process.
    pub is_restored: bool,
    /// Whether the evaluation wrote the series about its alerts.
    pub is_shown: bool,
    /// Its alerts, those that are resolved included.
    pub alerts: Vec<Alert>,
}

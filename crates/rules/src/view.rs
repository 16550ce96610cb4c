//! Groups as they show themselves to the API and to metrics.

use crate::alert::{Alert, AlertState};
use crate::group::Group;
use crate::instant::Instant;
use crate::machine::{Counts, Health, LastEvaluation, Machine};
use crate::rule::RuleError;
use std::sync::Arc;
use std::time::Duration;

/// A group at a moment.
#[derive(Clone, Debug)]
pub struct GroupView {
    /// The group.
    pub group: Arc<Group>,
    /// How its rules are, in their order.
    pub rules: Vec<RuleView>,
    /// Its newest evaluation.
    pub last: LastEvaluation,
    /// What it counted.
    pub counts: Counts,
}

/// How a rule is at a moment.
#[derive(Clone, Debug)]
pub struct RuleView {
    /// Whether its newest evaluation succeeded.
    pub health: Health,
    /// Why not; empty if it did.
    pub last_error: String,
    /// How long it took.
    pub took: Duration,
    /// How long all evaluations of this process took.
    pub took_in_all: Duration,
    /// When the newest one began.
    pub evaluated: Option<Instant>,
    /// The samples that it made.
    pub samples: u64,
    /// How often the rule failed, by [`RuleError::REASONS`].
    pub failures: [u64; RuleError::REASONS.len()],
    /// The most urgent state of its alerts.
    pub state: AlertState,
    /// Its alerts that are not resolved.
    pub alerts: Vec<Alert>,
}

impl Machine {
    /// The group as it is now; without alerts if they are not wanted.
    pub fn view(&self, with_alerts: bool) -> GroupView {
        let rules = self.rules().iter().map(|state| RuleView {
            health: state.health,
            last_error: state.last_error.clone(),
            took: state.took,
            took_in_all: state.took_in_all,
            evaluated: state.evaluated,
            samples: state.samples,
            failures: state.failures,
            state: state.alerts.state(),
            alerts: match with_alerts {
                true => state.alerts.active().cloned().collect(),
                false => Vec::new(),
            },
        });
        GroupView {
            group: self.group().clone(),
            rules: rules.collect(),
            last: self.last(),
            counts: self.counts(),
        }
    }
}

/// What a group is to make for times that are gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackfillRequest {
    /// The name of the group.
    pub group: String,
    /// The path of its file; empty if the name says enough.
    pub file: String,
    /// From the first instant of the grid that is not earlier.
    pub start: Instant,
    /// To the last one that is not later.
    pub end: Instant,
}

/// How far a back-fill is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackfillView {
    /// What was asked for; the file is always told.
    pub request: BackfillRequest,
    /// Instants that are done.
    pub done: u64,
    /// Instants in all.
    pub total: u64,
    /// Samples that the rules made.
    pub samples: u64,
    /// Whether it has ended.
    pub is_over: bool,
    /// The newest failure of a rule; empty if there was none.
    pub last_error: String,
}

/// Why a back-fill does not begin.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BackfillError {
    /// There is no group of that name.
    #[error("no rule group {0:?}")]
    NoGroup(String),
    /// There are several groups of that name.
    #[error("more than one rule group {0:?}: set the parameter file")]
    SeveralGroups(String),
    /// It has too many instants.
    #[error("too many instants: {count}, limit {limit}")]
    TooLong {
        /// How many.
        count: u64,
        /// The limit.
        limit: u64,
    },
    /// Too many others have not ended: to be tried again.
    #[error("too many running backfills: limit {0}")]
    TooMany(usize),
    /// The server has just started: to be tried again.
    #[error("rules are not running yet")]
    NotYet,
}

/// The groups of a server.
pub trait Groups: Send + Sync {
    /// All of them, by file and name; without alerts if they are not wanted.
    fn groups(&self, with_alerts: bool) -> Vec<GroupView>;

    /// Begins to make what the recording rules of a group would have made. Asking for the same
    /// while it goes on changes nothing.
    fn backfill(&self, request: BackfillRequest) -> Result<BackfillView, BackfillError>;

    /// Back-fills that go on, and the newest ones that have ended.
    fn backfills(&self) -> Vec<BackfillView>;
}

/// A server without rules.
impl Groups for () {
    fn groups(&self, _: bool) -> Vec<GroupView> {
        Vec::new()
    }

    fn backfill(&self, request: BackfillRequest) -> Result<BackfillView, BackfillError> {
        Err(BackfillError::NoGroup(request.group))
    }

    fn backfills(&self) -> Vec<BackfillView> {
        Vec::new()
    }
}

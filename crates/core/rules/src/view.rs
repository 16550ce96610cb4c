//! Snapshots of groups and backfills for the HTTP API and for metrics.

use crate::alert::{Alert, AlertState};
use crate::group::RuleGroup;
use crate::instant::RuleInstant;
use crate::machine::{GroupCounters, GroupMachine, LastGroupEvaluation, RuleHealth};
use crate::rule::RuleError;
use std::sync::Arc;
use std::time::Duration;

/// Snapshot of a group and its rules at a point in time, created by [`GroupMachine::view`].
#[derive(Clone, Debug)]
pub struct GroupView {
    /// The group with its parsed rules, shared with the machine.
    pub group: Arc<RuleGroup>,
    /// Snapshots of the rules, in the order of the group, at the same point in time.
    pub rules: Vec<RuleView>,
    /// Timing of the newest evaluation, with empty fields before the first one.
    pub last: LastGroupEvaluation,
    /// Counters of the group.
    pub counts: GroupCounters,
}

/// Snapshot of the state of one rule, with copies of its alerts if they were requested.
#[derive(Clone, Debug)]
pub struct RuleView {
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
    /// Number of samples that the newest evaluation produced.
    pub samples: u64,
    /// Failures by reason, in the order of [`RuleError::REASONS`].
    pub failures: [u64; RuleError::REASONS.len()],
    /// Most urgent state of the alerts of the rule.
    pub state: AlertState,
    /// Pending and firing alerts; empty if the caller did not request alerts.
    pub alerts: Vec<Alert>,
}

impl GroupMachine {
    /// Returns a snapshot of the group. Copies active alerts only if `with_alerts` is set.
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
            alerts: if with_alerts {
                state.alerts.active().cloned().collect()
            } else {
                Vec::new()
            },
        });
        GroupView {
            group: self.group().clone(),
            rules: rules.collect(),
            last: self.last_evaluation(),
            counts: self.counts(),
        }
    }
}

/// A request to evaluate the recording rules of a group for a past time range, at each instant of
/// the group's grid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackfillRequest {
    /// Name of the group.
    pub group: String,
    /// Path of the rule file; empty if the name is unique.
    pub file: String,
    /// Start of the range; rounded up to the next instant of the grid.
    pub start: RuleInstant,
    /// End of the range; rounded down to an instant of the grid.
    pub end: RuleInstant,
}

/// Progress of a backfill that is running or ended recently, for the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackfillView {
    /// The request, with the path of the file always set.
    pub request: BackfillRequest,
    /// Number of instants that were evaluated so far.
    pub done: u64,
    /// Number of instants in the whole range, evaluated or not.
    pub total: u64,
    /// Number of samples that the rules produced so far, stored or rejected.
    pub samples: u64,
    /// True if the backfill has ended.
    pub is_over: bool,
    /// Newest error of a rule; empty if all evaluations succeeded.
    pub last_error: String,
}

/// Error of a backfill request that was not accepted. A running backfill reports errors in its
/// [`BackfillView`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BackfillError {
    /// No group has the requested name and file.
    #[error("no rule group {0:?}")]
    NoGroup(String),
    /// Several groups have the requested name, and no file was given.
    #[error("more than one rule group {0:?}: set the parameter file")]
    SeveralGroups(String),
    /// The range contains too many instants; the request must be split.
    #[error("too many instants: {count}, limit {limit}")]
    TooLong {
        /// Number of instants in the range.
        count: u64,
        /// Maximum number of instants.
        limit: u64,
    },
    /// Too many backfills are running; retry later.
    #[error("too many running backfills: limit {0}")]
    TooMany(usize),
    /// The server has just started and runs no rules yet; retry later.
    #[error("rules are not running yet")]
    NotYet,
}

/// Access to the rule groups of a server for the HTTP API and for metrics. Implemented by the
/// component that runs the machines.
pub trait RuleGroups: Send + Sync {
    /// Returns snapshots of all groups, sorted by file and name. Copies alerts only if
    /// `with_alerts` is set.
    fn groups(&self, with_alerts: bool) -> Vec<GroupView>;

    /// Starts to evaluate the recording rules of a group for a past time range. If an equal request
    /// is running, returns its progress.
    fn backfill(&self, request: BackfillRequest) -> Result<BackfillView, BackfillError>;

    /// Returns the running backfills and the newest ones that have ended.
    fn backfills(&self) -> Vec<BackfillView>;
}

/// Implements a server without rules: there are no groups, and backfills fail.
impl RuleGroups for () {
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

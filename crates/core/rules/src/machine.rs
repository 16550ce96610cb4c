//! The state machine of a running rule group: events in, actions out.
//!
//! ```text
//! Woke --an instant is due--> Query for each rule without unfinished dependencies
//! Answered --> update alerts; Append new samples; Send due alerts
//! Stored --> Query for the rules that waited for these samples
//! all rules done --> Append stale markers for series of removed rules --> Ended --> Wait
//! ```
//!
//! After a start, the recording rules are queried once at the last evaluated instant, so that
//! series which have disappeared since then get stale markers. Alerts continue from the saved
//! state. Without a saved state they are restored from their synthetic series after the second
//! evaluation, as upstream does.
//!
//! Invariant: the machine is pure. Time, query results and store outcomes are inputs of
//! [`GroupMachine::step`], and the same events produce the same actions.
//! [`GroupAction::QuerySlice`], [`GroupAction::Append`] and [`GroupAction::Restore`] are each
//! answered by exactly one event.

mod evaluation;
mod lifecycle;
mod state;
#[cfg(test)]
mod tests;
mod waiting;

pub use state::{BackfillRange, RuleHealth, RuleState, SavedGroup, SavedRule};

use crate::alert::Alert;
use crate::alerts::{AlertStateSample, RestoreSettings};
use crate::group::RuleGroup;
use crate::instant::RuleInstant;
use crate::order::GroupProgress;
use crate::rule::{RuleError, RuleResult};
use crate::schedule::{CatchUpSettings, GroupSchedule, ScheduledOperation};
use evaluation::GroupEvaluation;
use firn_model::batch::Batch;
use firn_model::error::Error;
use firn_model::labels::Labels;
use firn_model::matcher::Matcher;
use firn_model::sample::TimestampMs;
use firn_model::store::AppendOutcome;
use std::sync::Arc;
use std::time::Duration;
use waiting::AlertSampleQueue;

/// Settings that apply to all groups of a server, from flags and the configuration. They may change
/// while a machine runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GroupMachineSettings {
    /// Settings for the catch-up on missed evaluations, passed on to the schedule.
    pub catch_up: CatchUpSettings,
    /// Settings for the restoration of alerts after an outage or after skipped instants.
    pub restore: RestoreSettings,
    /// Value of `--rules.alert.resend-delay`: the minimum time between two deliveries of an
    /// unchanged alert.
    pub resend_delay: Duration,
    /// Value of `global.rule_query_offset`, for groups without an own offset.
    pub query_offset: Duration,
    /// Maximum number of rules of a group that are evaluated concurrently; at least one.
    pub rules_at_once: usize,
}

/// Input of the machine, passed to [`GroupMachine::step`]: the passage of time, or the outcome of
/// an action.
#[derive(Clone, Debug)]
pub enum GroupEvent {
    /// Time has passed. Also the first event of every machine.
    Woke,
    /// The groups that this one reads have caught up for this instant, after [`GroupAction::Hold`].
    Cleared(RuleInstant),
    /// The query of a rule has finished, after [`GroupAction::QuerySlice`].
    Answered {
        /// Index of the rule in its group.
        rule: usize,
        /// Samples or alerts that the rule found, or the error of its evaluation, which becomes the
        /// rule's last error.
        found: Result<RuleResult, RuleError>,
        /// Duration of the evaluation.
        took: Duration,
    },
    /// The store has made samples durable or has failed, after [`GroupAction::Append`].
    Stored {
        /// Origin of the samples, as in the action.
        of: AppendOrigin,
        /// Result of the append. An error of the kind `Unavailable` means that the samples must be
        /// written later.
        outcome: Result<AppendOutcome, Error>,
    },
    /// The look-up of alert series from an earlier process has finished, after
    /// [`GroupAction::Restore`].
    Restored {
        /// Index of the rule in its group.
        rule: usize,
        /// Samples of the series [`ALERTS_FOR_STATE`](crate::alert::ALERTS_FOR_STATE). Empty if the
        /// look-up failed; the alerts then keep their current activation times.
        kept: Vec<AlertStateSample>,
    },
}

/// Origin of the samples of an append. The caller returns it with the outcome, so that the machine
/// can attribute it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppendOrigin {
    /// Output of the rule with this index.
    Rule(usize),
    /// Stale markers for series of removed rules.
    Gone,
    /// Alert samples of an earlier evaluation, which the store was unable to write at that time.
    Waiting,
}

/// Output of the machine, returned by [`GroupMachine::step`]: an operation that the caller must
/// perform.
#[derive(Clone, Debug)]
pub enum GroupAction {
    /// Send [`GroupEvent::Woke`] at this time, unless another event occurs before.
    Wait(RuleInstant),
    /// Send [`GroupEvent::Cleared`] as soon as the groups that this one reads have caught up to
    /// this instant, usually immediately. If they have not, send [`GroupEvent::Woke`] once; see
    /// [`crate::order`].
    Hold(RuleInstant),
    /// Evaluate a rule and send [`GroupEvent::Answered`].
    Query {
        /// Index of the rule in its group.
        rule: usize,
        /// Instant of the evaluation. The query time is earlier by the query offset.
        instant: RuleInstant,
        /// True if other rules of the group are being evaluated at the same time.
        is_extra: bool,
    },
    /// Store samples and send [`GroupEvent::Stored`] when they are durable.
    Append {
        /// Origin of the samples, to be returned in the event.
        of: AppendOrigin,
        /// True if the samples belong to a catch-up evaluation.
        is_late: bool,
        /// Samples and stale markers, all with the same timestamp.
        batch: Box<Batch>,
    },
    /// Send alerts to the receivers of notifications.
    Send {
        /// Index of the rule in its group.
        rule: usize,
        /// Alerts that are due.
        alerts: Vec<Alert>,
    },
    /// Look up the newest samples of the alert series of a rule and send [`GroupEvent::Restored`].
    Restore {
        /// Index of the rule in its group.
        rule: usize,
        /// Matchers that select the series of the rule's alerts.
        matchers: Vec<Matcher>,
        /// Start of the time range of the samples.
        min: TimestampMs,
        /// End of the time range of the samples.
        max: TimestampMs,
    },
    /// Evaluate the recording rules again at these instants, whose samples the store was unable to
    /// write, and report progress with [`GroupMachine::record_backfilled`].
    Backfill(BackfillRange),
    /// An evaluation has ended. If the action contains a state, persist it before the next
    /// evaluation.
    Ended(Option<SavedGroup>),
}

/// Counters of a group since it was added. They only increase, except for `samples`; a successor of
/// the machine continues them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GroupCounters {
    /// Instants that became due, evaluated or missed.
    pub iterations: u64,
    /// Instants that were skipped because they were too old.
    pub missed: u64,
    /// Instants that were evaluated late, during catch-up.
    pub made_up: u64,
    /// Evaluations of single rules, successful or not.
    pub evaluations: u64,
    /// Samples that the rules produced in the newest evaluation.
    pub samples: u64,
}

/// Timing of the newest evaluation of a group, for the API and for metrics. Updated when an
/// evaluation ends.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LastGroupEvaluation {
    /// Start of the evaluation by the clock.
    pub began: Option<RuleInstant>,
    /// Instant for which the rules were evaluated.
    pub instant: Option<RuleInstant>,
    /// Duration of the evaluation, from its start until all samples were stored.
    pub took: Duration,
}

/// The state machine of one group. The caller passes events to [`GroupMachine::step`] and performs
/// the returned actions. If the file changes, [`GroupMachine::changed`] creates the successor.
#[derive(Debug)]
pub struct GroupMachine {
    group: Arc<RuleGroup>,
    settings: GroupMachineSettings,
    rules: Vec<RuleState>,
    /// Series of removed rules that have no stale marker yet.
    gone: Vec<Labels>,
    schedule: GroupSchedule,
    /// True if no new evaluation may start.
    is_stopping: bool,
    work: GroupActivity,
    /// Evaluations until alerts are restored; `None` once they are.
    restore_after: Option<u32>,
    /// Time by the clock at which unchanged alerts were last sent again.
    sent: RuleInstant,
    /// Range of instants whose recorded samples the store was unable to write.
    unstored: Option<BackfillRange>,
    /// Part of such a range that is being evaluated again at the moment.
    making_up: Option<BackfillRange>,
    /// Alert samples of such instants, kept until the store can write them.
    waiting: AlertSampleQueue,
    /// Instant of the newest state that was passed to the caller to persist.
    kept: Option<RuleInstant>,
    counts: GroupCounters,
    last: LastGroupEvaluation,
}

/// Current activity of the machine. A new evaluation only starts when the machine is idle.
#[derive(Debug)]
enum GroupActivity {
    /// Waiting for the next instant.
    Idle,
    /// Querying the recording rules at the last instant before the start, to find its series.
    Recalling {
        instant: RuleInstant,
        /// Number of running queries, and the rules that are still to be queried.
        running: usize,
        waiting: Vec<usize>,
    },
    /// Evaluating the rules of the group.
    Evaluating(GroupEvaluation),
    /// Waiting for the look-up of alert series; contains the number of rules left.
    Restoring(usize),
}

impl GroupMachine {
    /// Returns the group that the machine runs, with its parsed rules.
    pub fn group(&self) -> &Arc<RuleGroup> {
        &self.group
    }

    /// Returns the states of the rules, in the order of the group. Alerts are part of the state.
    pub fn rules(&self) -> &[RuleState] {
        &self.rules
    }

    /// Returns the counters of the group since it was added, for metrics.
    pub fn counts(&self) -> GroupCounters {
        self.counts
    }

    /// Returns the timing of the newest evaluation; all fields are empty before the first one.
    pub fn last_evaluation(&self) -> LastGroupEvaluation {
        self.last
    }

    /// Returns the progress of the group, which is passed to [`crate::order::Order`] for the order
    /// in which groups catch up.
    pub fn progress(&self) -> GroupProgress {
        GroupProgress {
            instant: match &self.work {
                GroupActivity::Evaluating(evaluation) => evaluation.instant,
                _ => self.schedule.upcoming(),
            },
            waited_for_until: self.schedule.waited_for_until(),
            owed: self.oldest_unstored(),
            query_offset: self.query_offset(),
        }
    }

    /// Returns the settings that the machine currently uses; see [`GroupMachine::set_settings`].
    pub fn settings(&self) -> GroupMachineSettings {
        self.settings
    }

    /// Returns the query offset of the group, or the global one if the group has none.
    pub fn query_offset(&self) -> Duration {
        let own = self.group.query_offset;
        own.unwrap_or(self.settings.query_offset)
    }

    /// Returns whether the machine was stopped and its last evaluation has ended.
    pub fn is_stopped(&self) -> bool {
        self.is_stopping && matches!(self.work, GroupActivity::Idle)
    }

    /// Starts an evaluation at `instant` in a stopped machine, regardless of the schedule. Used for
    /// rule tests and backfills. The caller performs the actions as usual until
    /// [`GroupMachine::is_stopped`].
    pub fn start_evaluation_at(&mut self, instant: RuleInstant) -> Vec<GroupAction> {
        let mut actions = Vec::new();
        self.begin(instant, false, 0, instant);
        self.start_work(instant, &mut actions);
        actions
    }

    /// Queries, in a stopped machine, the series that its rules produced at `instant`, so that the
    /// next evaluation writes stale markers for those that disappear. The caller performs the
    /// actions as usual.
    pub fn query_series_at(&mut self, instant: RuleInstant) -> Vec<GroupAction> {
        let mut actions = Vec::new();
        self.work = self.recall_activity(instant);
        self.start_work(instant, &mut actions);
        actions
    }

    /// Reports that the range of [`GroupAction::Backfill`] is stored up to `next`, the first
    /// instant that is missing.
    pub fn record_backfilled(&mut self, next: RuleInstant) {
        let left = self.making_up.filter(|owed| next <= owed.last);
        self.making_up = left.map(|owed| BackfillRange {
            first: owed.first.max(next),
            ..owed
        });
    }

    /// Returns the oldest instant whose recorded samples are missing in the store.
    fn oldest_unstored(&self) -> Option<RuleInstant> {
        let owed = [self.unstored, self.making_up];
        owed.into_iter().flatten().map(|owed| owed.first).min()
    }

    /// Returns and clears the range of instants that could not be stored.
    pub fn take_unstored(&mut self) -> Option<BackfillRange> {
        self.unstored.take()
    }

    /// Applies an event at `now` and returns the actions that the caller must perform.
    pub fn step(&mut self, now: RuleInstant, event: GroupEvent) -> Vec<GroupAction> {
        let mut actions = Vec::new();
        match event {
            GroupEvent::Woke => {}
            GroupEvent::Cleared(instant) => self.schedule.mark_cleared(instant, now),
            GroupEvent::Answered { rule, found, took } => match &mut self.work {
                GroupActivity::Recalling { running, .. } => {
                    *running -= 1;
                    self.finish_recall(rule, found);
                }
                _ => self.handle_answer(rule, found, took, now, &mut actions),
            },
            GroupEvent::Stored { of, outcome } => self.handle_stored(of, outcome),
            GroupEvent::Restored { rule, kept } => self.restore_alerts(rule, &kept, now),
        }
        self.start_work(now, &mut actions);
        actions
    }

    /// Starts all work that is possible at `now`, and adds its actions.
    fn start_work(&mut self, now: RuleInstant, actions: &mut Vec<GroupAction>) {
        loop {
            let is_done = match &mut self.work {
                GroupActivity::Idle if self.is_stopping => return,
                GroupActivity::Idle => match self.schedule.next(&self.group, now) {
                    ScheduledOperation::Wait(until) => {
                        actions.push(GroupAction::Wait(until));
                        return;
                    }
                    ScheduledOperation::Hold(instant) => {
                        actions.push(GroupAction::Hold(instant));
                        return;
                    }
                    ScheduledOperation::Evaluate {
                        instant,
                        is_late,
                        missed,
                    } => {
                        self.begin(instant, is_late, missed, now);
                        true
                    }
                },
                GroupActivity::Recalling { .. } => self.start_recall(actions),
                GroupActivity::Evaluating(_) => self.evaluate(now, actions),
                GroupActivity::Restoring(0) => {
                    self.work = GroupActivity::Idle;
                    true
                }
                GroupActivity::Restoring(_) => false,
            };
            if !is_done {
                return;
            }
        }
    }
}

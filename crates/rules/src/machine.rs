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
//! [`Machine::step`], and the same events produce the same actions. [`Action::Query`],
//! [`Action::Append`] and [`Action::Restore`] are each answered by exactly one event.

mod evaluation;
mod lifecycle;
mod state;
#[cfg(test)]
mod tests;
mod waiting;

pub use state::{Health, Owed, RuleState, SavedGroup, SavedRule};

use crate::alert::Alert;
use crate::alerts::{KeptSince, RestoreSettings};
use crate::group::Group;
use crate::instant::Instant;
use crate::order::Reached;
use crate::rule::{Found, RuleError};
use crate::schedule::{CatchUp, Next, Schedule};
use evaluation::Evaluation;
use firn_model::batch::Batch;
use firn_model::error::Error;
use firn_model::labels::Labels;
use firn_model::matcher::Matcher;
use firn_model::sample::TimestampMs;
use firn_model::store::Appended;
use std::sync::Arc;
use std::time::Duration;
use waiting::Waiting;

/// Settings that apply to all groups of a server, from flags and the configuration. They may change
/// while a machine runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MachineSettings {
    /// Settings for the catch-up on missed evaluations, passed on to the schedule.
    pub catch_up: CatchUp,
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

/// Input of the machine, passed to [`Machine::step`]: the passage of time, or the outcome of an
/// action.
#[derive(Clone, Debug)]
pub enum Event {
    /// Time has passed. Also the first event of every machine.
    Woke,
    /// The groups that this one reads have caught up for this instant, after [`Action::Hold`].
    Cleared(Instant),
    /// The query of a rule has finished, after [`Action::Query`].
    Answered {
        /// Index of the rule in its group.
        rule: usize,
        /// Samples or alerts that the rule found, or the error of its evaluation, which becomes the
        /// rule's last error.
        found: Result<Found, RuleError>,
        /// Duration of the evaluation.
        took: Duration,
    },
    /// The store has made samples durable or has failed, after [`Action::Append`].
    Stored {
        /// Origin of the samples, as in the action.
        of: Origin,
        /// Result of the append. An error of the kind `Unavailable` means that the samples must be
        /// written later.
        outcome: Result<Appended, Error>,
    },
    /// The look-up of alert series from an earlier process has finished, after [`Action::Restore`].
    Restored {
        /// Index of the rule in its group.
        rule: usize,
        /// Samples of the series [`ALERTS_FOR_STATE`](crate::alert::ALERTS_FOR_STATE). Empty if the
        /// look-up failed; the alerts then keep their current activation times.
        kept: Vec<KeptSince>,
    },
}

/// Origin of the samples of an append. The caller returns it with the outcome, so that the machine
/// can attribute it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Output of the rule with this index.
    Rule(usize),
    /// Stale markers for series of removed rules.
    Gone,
    /// Alert samples of an earlier evaluation, which the store was unable to write at that time.
    Waiting,
}

/// Output of the machine, returned by [`Machine::step`]: an operation that the caller must perform.
#[derive(Clone, Debug)]
pub enum Action {
    /// Send [`Event::Woke`] at this time, unless another event occurs before.
    Wait(Instant),
    /// Send [`Event::Cleared`] as soon as the groups that this one reads have caught up to this
    /// instant, usually immediately. If they have not, send [`Event::Woke`] once; see
    /// [`crate::order`].
    Hold(Instant),
    /// Evaluate a rule and send [`Event::Answered`].
    Query {
        /// Index of the rule in its group.
        rule: usize,
        /// Instant of the evaluation. The query time is earlier by the query offset.
        instant: Instant,
        /// True if other rules of the group are being evaluated at the same time.
        is_extra: bool,
    },
    /// Store samples and send [`Event::Stored`] when they are durable.
    Append {
        /// Origin of the samples, to be returned in the event.
        of: Origin,
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
    /// Look up the newest samples of the alert series of a rule and send [`Event::Restored`].
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
    /// write, and report progress with [`Machine::made_up_before`].
    Backfill(Owed),
    /// An evaluation has ended. If the action contains a state, persist it before the next
    /// evaluation.
    Ended(Option<SavedGroup>),
}

/// Counters of a group since it was added. They only increase, except for `samples`; a successor of
/// the machine continues them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counts {
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
pub struct LastEvaluation {
    /// Start of the evaluation by the clock.
    pub began: Option<Instant>,
    /// Instant for which the rules were evaluated.
    pub instant: Option<Instant>,
    /// Duration of the evaluation, from its start until all samples were stored.
    pub took: Duration,
}

/// The state machine of one group. The caller passes events to [`Machine::step`] and performs the
/// returned actions. If the file changes, [`Machine::changed`] creates the successor.
#[derive(Debug)]
pub struct Machine {
    group: Arc<Group>,
    settings: MachineSettings,
    rules: Vec<RuleState>,
    /// Series of removed rules that have no stale marker yet.
    gone: Vec<Labels>,
    schedule: Schedule,
    /// True if no new evaluation may start.
    is_stopping: bool,
    work: Work,
    /// Evaluations until alerts are restored; `None` once they are.
    restore_after: Option<u32>,
    /// Time by the clock at which unchanged alerts were last sent again.
    sent: Instant,
    /// Range of instants whose recorded samples the store was unable to write.
    unstored: Option<Owed>,
    /// Part of such a range that is being evaluated again at the moment.
    making_up: Option<Owed>,
    /// Alert samples of such instants, kept until the store can write them.
    waiting: Waiting,
    /// Instant of the newest state that was passed to the caller to persist.
    kept: Option<Instant>,
    counts: Counts,
    last: LastEvaluation,
}

/// Current activity of the machine. A new evaluation only starts when the machine is idle.
#[derive(Debug)]
enum Work {
    /// Waiting for the next instant.
    Idle,
    /// Querying the recording rules at the last instant before the start, to find its series.
    Recalling {
        instant: Instant,
        /// Number of running queries, and the rules that are still to be queried.
        running: usize,
        waiting: Vec<usize>,
    },
    /// Evaluating the rules of the group.
    Evaluating(Evaluation),
    /// Waiting for the look-up of alert series; contains the number of rules left.
    Restoring(usize),
}

impl Machine {
    /// Returns the group that the machine runs, with its parsed rules.
    pub fn group(&self) -> &Arc<Group> {
        &self.group
    }

    /// Returns the states of the rules, in the order of the group. Alerts are part of the state.
    pub fn rules(&self) -> &[RuleState] {
        &self.rules
    }

    /// Returns the counters of the group since it was added, for metrics.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Returns the timing of the newest evaluation; all fields are empty before the first one.
    pub fn last(&self) -> LastEvaluation {
        self.last
    }

    /// Returns the progress of the group, which is passed to [`crate::order::Order`] for the order
    /// in which groups catch up.
    pub fn reached(&self) -> Reached {
        Reached {
            instant: match &self.work {
                Work::Evaluating(evaluation) => evaluation.instant,
                _ => self.schedule.upcoming(),
            },
            waited_for_until: self.schedule.waited_for_until(),
            owed: self.owed(),
            query_offset: self.query_offset(),
        }
    }

    /// Returns the settings that the machine currently uses; see [`Machine::set_settings`].
    pub fn settings(&self) -> MachineSettings {
        self.settings
    }

    /// Returns the query offset of the group, or the global one if the group has none.
    pub fn query_offset(&self) -> Duration {
        let own = self.group.query_offset;
        own.unwrap_or(self.settings.query_offset)
    }

    /// Returns whether the machine was stopped and its last evaluation has ended.
    pub fn is_stopped(&self) -> bool {
        self.is_stopping && matches!(self.work, Work::Idle)
    }

    /// Starts an evaluation at `instant` in a stopped machine, regardless of the schedule. Used for
    /// rule tests and backfills. The caller performs the actions as usual until
    /// [`Machine::is_stopped`].
    pub fn begin_at(&mut self, instant: Instant) -> Vec<Action> {
        let mut actions = Vec::new();
        self.begin(instant, false, 0, instant);
        self.go_on(instant, &mut actions);
        actions
    }

    /// Queries, in a stopped machine, the series that its rules produced at `instant`, so that the
    /// next evaluation writes stale markers for those that disappear. The caller performs the
    /// actions as usual.
    pub fn recall_at(&mut self, instant: Instant) -> Vec<Action> {
        let mut actions = Vec::new();
        self.work = self.recalling(instant);
        self.go_on(instant, &mut actions);
        actions
    }

    /// Reports that the range of [`Action::Backfill`] is stored up to `next`, the first instant
    /// that is missing.
    pub fn made_up_before(&mut self, next: Instant) {
        let left = self.making_up.filter(|owed| next <= owed.last);
        self.making_up = left.map(|owed| Owed {
            first: owed.first.max(next),
            ..owed
        });
    }

    /// Returns the oldest instant whose recorded samples are missing in the store.
    fn owed(&self) -> Option<Instant> {
        let owed = [self.unstored, self.making_up];
        owed.into_iter().flatten().map(|owed| owed.first).min()
    }

    /// Returns and clears the range of instants that could not be stored.
    pub fn take_unstored(&mut self) -> Option<Owed> {
        self.unstored.take()
    }

    /// Applies an event at `now` and returns the actions that the caller must perform.
    pub fn step(&mut self, now: Instant, event: Event) -> Vec<Action> {
        let mut actions = Vec::new();
        match event {
            Event::Woke => {}
            Event::Cleared(instant) => self.schedule.clear(instant, now),
            Event::Answered { rule, found, took } => match &mut self.work {
                Work::Recalling { running, .. } => {
                    *running -= 1;
                    self.recall(rule, found);
                }
                _ => self.answered(rule, found, took, now, &mut actions),
            },
            Event::Stored { of, outcome } => self.stored(of, outcome),
            Event::Restored { rule, kept } => self.restored(rule, &kept, now),
        }
        self.go_on(now, &mut actions);
        actions
    }

    /// Starts all work that is possible at `now`, and adds its actions.
    fn go_on(&mut self, now: Instant, actions: &mut Vec<Action>) {
        loop {
            let is_done = match &mut self.work {
                Work::Idle if self.is_stopping => return,
                Work::Idle => match self.schedule.next(&self.group, now) {
                    Next::Wait(until) => {
                        actions.push(Action::Wait(until));
                        return;
                    }
                    Next::Hold(instant) => {
                        actions.push(Action::Hold(instant));
                        return;
                    }
                    Next::Evaluate {
                        instant,
                        is_late,
                        missed,
                    } => {
                        self.begin(instant, is_late, missed, now);
                        true
                    }
                },
                Work::Recalling { .. } => self.ask_for_recall(actions),
                Work::Evaluating(_) => self.evaluate(now, actions),
                Work::Restoring(0) => {
                    self.work = Work::Idle;
                    true
                }
                Work::Restoring(_) => false,
            };
            if !is_done {
                return;
            }
        }
    }
}

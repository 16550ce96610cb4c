//! A group as it runs: from events to actions.
//!
//! ```text
//! Woke --an instant is due--> Query a rule, and all that need not wait for it
//! Answered --> alerts go on; Append what is to be stored; Send what is due
//! Stored --> rules that waited for it
//! all done --> Append the ends of series whose rule is gone --> Ended --> Wait
//! ```
//!
//! After a start the series of the evaluation before are looked up (their rules are asked once more
//! for it), so that those that end get their markers; alerts go on as they were saved. Without a
//! saved state they are restored from the series about them, after the second evaluation, as
//! upstream does.
//!
//! Invariant: pure. Time, answers and outcomes come in with [`Machine::step`], what is to be done
//! goes out; the same events give the same actions. [`Action::Query`], [`Action::Append`] and
//! [`Action::Restore`] are answered by one event each.

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

/// How all groups of a server run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MachineSettings {
    /// How evaluations that were missed are made up for.
    pub catch_up: CatchUp,
    /// How alerts go on after a stop.
    pub restore: RestoreSettings,
    /// `--rules.alert.resend-delay`
    pub resend_delay: Duration,
    /// `global.rule_query_offset`
    pub query_offset: Duration,
    /// Rules of a group that may be evaluated at one time; one at least.
    pub rules_at_once: usize,
}

/// What happened.
#[derive(Clone, Debug)]
pub enum Event {
    /// Time passed: also what begins it all.
    Woke,
    /// What the group reads for this instant is there.
    Cleared(Instant),
    /// A query was answered.
    Answered {
        /// The rule.
        rule: usize,
        /// What it found.
        found: Result<Found, RuleError>,
        /// How long that took.
        took: Duration,
    },
    /// Samples are durable, or will never be.
    Stored {
        /// Whose they are.
        of: Origin,
        /// What became of them.
        outcome: Result<Appended, Error>,
    },
    /// What a process before this one wrote about alerts was looked up.
    Restored {
        /// The rule.
        rule: usize,
        /// What was found; nothing if the look-up failed.
        kept: Vec<KeptSince>,
    },
}

/// Whose samples are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// What a rule makes.
    Rule(usize),
    /// The ends of series whose rule is gone.
    Gone,
    /// What a rule made of its alerts earlier, when the store could not write.
    Waiting,
}

/// What is to be done.
#[derive(Clone, Debug)]
pub enum Action {
    /// To wake at this moment, unless another event comes first.
    Wait(Instant),
    /// To say by [`Event::Cleared`] when the groups that this one reads have made up for what is
    /// before this instant, which is so at once in the ordinary course; to wake, once, if it is
    /// not: see [`crate::order`].
    Hold(Instant),
    /// To evaluate a rule and say what it found.
    Query {
        /// The rule.
        rule: usize,
        /// At this instant.
        instant: Instant,
        /// Whether others of the group are being evaluated.
        is_extra: bool,
    },
    /// To store samples and say when they are durable.
    Append {
        /// Whose they are.
        of: Origin,
        /// Whether they are for an instant that is made up for.
        is_late: bool,
        /// The samples.
        batch: Box<Batch>,
    },
    /// To tell receivers of alerts.
    Send {
        /// The rule.
        rule: usize,
        /// The alerts.
        alerts: Vec<Alert>,
    },
    /// To look up the newest samples of series about alerts.
    Restore {
        /// The rule.
        rule: usize,
        /// What finds the series.
        matchers: Vec<Matcher>,
        /// When they were written, at the earliest.
        min: TimestampMs,
        /// And at the latest.
        max: TimestampMs,
    },
    /// To make what recording rules make of these instants, which the store could not take then,
    /// and to tell by [`Machine::made_up_before`] how far that is.
    Backfill(Owed),
    /// An evaluation has ended: to keep the state over the end of the process, if it says one.
    Ended(Option<SavedGroup>),
}

/// What the group counted.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counts {
    /// Instants that were due, evaluated or missed.
    pub iterations: u64,
    /// Instants that were left out.
    pub missed: u64,
    /// Instants that were evaluated late.
    pub made_up: u64,
    /// Evaluations of rules.
    pub evaluations: u64,
    /// Samples that the rules of the newest evaluation made.
    pub samples: u64,
}

/// The newest evaluation of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LastEvaluation {
    /// When it began.
    pub began: Option<Instant>,
    /// The instant that it was for.
    pub instant: Option<Instant>,
    /// How long it took.
    pub took: Duration,
}

/// A group that runs.
#[derive(Debug)]
pub struct Machine {
    group: Arc<Group>,
    settings: MachineSettings,
    rules: Vec<RuleState>,
    /// Series of rules that are gone, which have no end yet.
    gone: Vec<Labels>,
    schedule: Schedule,
    /// Whether nothing new may begin.
    is_stopping: bool,
    work: Work,
    /// Evaluations until alerts are restored; `None` when they are.
    restore_after: Option<u32>,
    /// When alerts were last repeated, by the clock.
    sent: Instant,
    /// The instants of which the store could not take for a while what was recorded.
    unstored: Option<Owed>,
    /// Those of them that are being made up for.
    making_up: Option<Owed>,
    /// What alerts were then.
    waiting: Waiting,
    /// The instant of the newest state that was told to be kept.
    kept: Option<Instant>,
    counts: Counts,
    last: LastEvaluation,
}

/// What the machine is at.
#[derive(Debug)]
enum Work {
    /// Waiting for the next instant.
    Idle,
    /// Looking up the series of the evaluation before the start, at its instant.
    Recalling {
        instant: Instant,
        /// Rules that are asked, and those that are not yet.
        running: usize,
        waiting: Vec<usize>,
    },
    /// Evaluating.
    Evaluating(Evaluation),
    /// Looking up what is known of the alerts of so many rules.
    Restoring(usize),
}

impl Machine {
    /// The group that runs.
    pub fn group(&self) -> &Arc<Group> {
        &self.group
    }

    /// How its rules are, in their order.
    pub fn rules(&self) -> &[RuleState] {
        &self.rules
    }

    /// What it counted.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Its newest evaluation.
    pub fn last(&self) -> LastEvaluation {
        self.last
    }

    /// How far it is.
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

    /// How it runs.
    pub fn settings(&self) -> MachineSettings {
        self.settings
    }

    /// How far behind its instants the group looks.
    pub fn query_offset(&self) -> Duration {
        let own = self.group.query_offset;
        own.unwrap_or(self.settings.query_offset)
    }

    /// Whether it was stopped, and nothing is under way.
    pub fn is_stopped(&self) -> bool {
        self.is_stopping && matches!(self.work, Work::Idle)
    }

    /// Begins an evaluation at `instant`, whatever is due, in a group that was stopped: for tests
    /// of rules, and for times that are long gone. What it says is to be done as ever, until
    /// [`Machine::is_stopped`].
    pub fn begin_at(&mut self, instant: Instant) -> Vec<Action> {
        let mut actions = Vec::new();
        self.begin(instant, false, 0, instant);
        self.go_on(instant, &mut actions);
        actions
    }

    /// Looks up, in a group that was stopped, the series that its rules made at `instant`, so that
    /// the next evaluation ends those that it does not find. What it says is to be done as ever.
    pub fn recall_at(&mut self, instant: Instant) -> Vec<Action> {
        let mut actions = Vec::new();
        self.work = self.recalling(instant);
        self.go_on(instant, &mut actions);
        actions
    }

    /// What was to be made up for is stored up to `next`, the first instant that is not.
    pub fn made_up_before(&mut self, next: Instant) {
        let left = self.making_up.filter(|owed| next <= owed.last);
        self.making_up = left.map(|owed| Owed {
            first: owed.first.max(next),
            ..owed
        });
    }

    /// The oldest instant of which the store still lacks what was recorded.
    fn owed(&self) -> Option<Instant> {
        let owed = [self.unstored, self.making_up];
        owed.into_iter().flatten().map(|owed| owed.first).min()
    }

    /// The instants that an evaluation could not store, which count as told from here on.
    pub fn take_unstored(&mut self) -> Option<Owed> {
        self.unstored.take()
    }

    /// Goes on to `now` with what happened, and says what is to be done.
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

    /// Begins what can begin.
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

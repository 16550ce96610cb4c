//! Start and end of a machine: with a new group, from a saved state, or as the successor of a
//! machine whose file changed.

use super::evaluation::build_batch;
use super::state::{RuleState, SavedGroup};
use super::waiting::AlertSampleQueue;
use super::{
    GroupAction, GroupActivity, GroupCounters, GroupMachine, GroupMachineSettings,
    LastGroupEvaluation,
};
use crate::alerts::{AlertStateSample, RuleAlerts};
use crate::group::RuleGroup;
use crate::instant::RuleInstant;
use crate::rule::{Rule, RuleError, RuleResult};
use crate::schedule::GroupSchedule;
use firn_model::batch::Batch;
use firn_model::labels::Labels;
use std::sync::Arc;

/// Evaluations before alerts are restored. The first evaluations lack scraped and recorded samples.
const EVALUATIONS_BEFORE_RESTORE: u32 = 2;

impl GroupMachine {
    /// Creates the machine of a group in a process that has just started. It continues from `saved`
    /// or, without a saved state, restores its alerts from their series.
    pub fn start(
        group: Arc<RuleGroup>,
        settings: GroupMachineSettings,
        saved: Option<SavedGroup>,
        now: RuleInstant,
    ) -> Self {
        let Some(saved) = saved else {
            let mut machine = Self::start_added(group, settings, now);
            machine.restore_after = Some(EVALUATIONS_BEFORE_RESTORE);
            for state in &mut machine.rules {
                state.alerts.is_restored = false;
            }
            return machine;
        };
        let mut machine = Self::start_added(group, settings, now);
        let mut known = saved.rules;
        for (rule, state) in machine.group.rules.iter().zip(&mut machine.rules) {
            let is_it = |k: &super::SavedRule| k.name == rule.name && k.labels == rule.labels;
            let found = known.iter().position(is_it);
            *state = RuleState::new(rule, found.map(|at| known.remove(at)));
        }
        let (last, catch_up) = (saved.instant, settings.catch_up);
        let due = last.after(saved.interval);
        machine.schedule = GroupSchedule::new(&machine.group, catch_up, Some(due), now);
        machine.restore_after = Some(saved.restore_after).filter(|left| *left > 0);
        machine.last.instant = Some(last);
        (machine.kept, machine.unstored) = (Some(last), saved.owed);
        // Series that disappeared longer ago need no stale markers.
        if now.since(last) <= catch_up.span.max(saved.interval) {
            machine.work = machine.recall_activity(last);
        }
        machine
    }

    /// Returns the activity that queries the recording rules at `instant`, in order to find their
    /// series.
    pub(super) fn recall_activity(&self, instant: RuleInstant) -> GroupActivity {
        let recording = |i: &usize| self.group.rules[*i].alert_settings().is_none();
        GroupActivity::Recalling {
            instant,
            running: 0,
            waiting: (0..self.rules.len()).rev().filter(recording).collect(),
        }
    }

    /// Creates the machine of a group that a changed file added. It starts at `now` without earlier
    /// state.
    pub fn start_added(
        group: Arc<RuleGroup>,
        settings: GroupMachineSettings,
        now: RuleInstant,
    ) -> Self {
        Self {
            rules: group
                .rules
                .iter()
                .map(|r| RuleState::new(r, None))
                .collect(),
            schedule: GroupSchedule::new(&group, settings.catch_up, None, now),
            group,
            settings,
            gone: Vec::new(),
            is_stopping: false,
            work: GroupActivity::Idle,
            restore_after: None,
            sent: now,
            unstored: None,
            making_up: None,
            kept: None,
            waiting: AlertSampleQueue::default(),
            counts: GroupCounters::default(),
            last: LastGroupEvaluation::default(),
        }
    }

    /// Creates the machine that replaces this one after its file or settings changed. Rules with
    /// the same name and labels keep their alerts and series; the series of others get stale
    /// markers. Must be called after the machine has stopped.
    pub fn start_successor(
        &self,
        group: Arc<RuleGroup>,
        settings: GroupMachineSettings,
        now: RuleInstant,
    ) -> Self {
        let mut next = Self::start_added(group, settings, now);
        let before = self.group.rules.iter().zip(&self.rules);
        let mut before: Vec<Option<(&Rule, &RuleState)>> = before.map(Some).collect();
        for (rule, state) in next.group.rules.iter().zip(&mut next.rules) {
            let is_it = |b: &&mut Option<(&Rule, &RuleState)>| {
                b.as_ref().is_some_and(|(b, _)| rule.is_successor_of(b))
            };
            let Some((known, old)) = before.iter_mut().find(is_it).and_then(Option::take) else {
                continue;
            };
            state.previous.clone_from(&old.previous);
            if known.alert_settings().is_some() && rule.alert_settings().is_some() {
                state.alerts.take_over(&old.alerts);
                state.alerts.is_restored = old.alerts.is_restored;
            }
        }
        next.gone.clone_from(&self.gone);
        let lost = before.into_iter().flatten();
        let lost = lost.flat_map(|(_, state)| &state.previous);
        next.gone.extend(lost.cloned());
        next.schedule = if next.group.interval == self.group.interval {
            self.schedule.clone()
        } else {
            self.schedule.with_interval(&next.group, now)
        };
        next.restore_after = self.restore_after;
        (next.counts, next.last, next.sent) = (self.counts, self.last, self.sent);
        next.unstored = match (self.unstored, self.making_up) {
            (Some(owed), other) | (None, other @ Some(owed)) => Some(owed.union(other)),
            (None, None) => None,
        };
        next.kept = self.kept;
        next.waiting.clone_from(&self.waiting);
        next
    }

    /// Returns stale markers at `now` for all series of a removed group. Store them two intervals
    /// later, because its rules may have moved to another group.
    pub fn end(&self, now: RuleInstant) -> Batch {
        let time = now.before(self.query_offset()).ms();
        let series = self.rules.iter().flat_map(|state| &state.previous);
        let series: Vec<Labels> = series.chain(&self.gone).cloned().collect();
        build_batch(&[], &series, time)
    }

    /// Prevents new evaluations. [`GroupMachine::is_stopped`] returns true once the current one has
    /// ended.
    pub fn stop(&mut self) {
        self.is_stopping = true;
    }

    /// Applies changed settings of the server to a machine whose group did not change. A current
    /// evaluation continues.
    pub fn set_settings(&mut self, settings: GroupMachineSettings) {
        self.settings = settings;
        self.schedule.set_catch_up(settings.catch_up);
    }

    /// Starts queries for the series of the evaluation before the start. Returns whether other work
    /// may start.
    pub(super) fn start_recall(&mut self, actions: &mut Vec<GroupAction>) -> bool {
        let GroupActivity::Recalling {
            instant,
            running,
            waiting,
        } = &mut self.work
        else {
            return false;
        };
        while *running < self.settings.rules_at_once.max(1)
            && let Some(rule) = waiting.pop()
        {
            actions.push(GroupAction::Query {
                rule,
                instant: *instant,
                is_extra: *running > 0,
            });
            *running += 1;
        }
        if *running > 0 {
            return false;
        }
        self.work = GroupActivity::Idle;
        true
    }

    /// Stores the series of the evaluation before the start. If the query failed, they get no stale
    /// markers.
    pub(super) fn finish_recall(&mut self, rule: usize, found: Result<RuleResult, RuleError>) {
        if let Ok(RuleResult::Samples(samples)) = found {
            let labels = samples.into_iter().map(|sample| sample.labels);
            self.rules[rule].previous = labels.collect();
        }
    }

    /// Adjusts alerts after the instants before `next` were skipped. Does nothing before the first
    /// evaluation.
    pub(super) fn handle_skip(&mut self, next: RuleInstant) {
        let Some(last) = self.last.instant else {
            return;
        };
        let settings = self.settings.restore;
        for (rule, state) in self.group.rules.iter().zip(&mut self.rules) {
            if let Some(alerting) = rule.alert_settings() {
                state
                    .alerts
                    .resume_after_skip(last, next, alerting.hold, &settings);
            }
        }
    }

    /// Moves times of alerts back if the clock was set back and `next` is not later than the newest
    /// instant. Otherwise a firing alert would become pending until the clock has caught up.
    pub(super) fn handle_clock_set_back(&mut self, next: RuleInstant) {
        let Some(last) = self.last.instant.filter(|last| *last >= next) else {
            return;
        };
        let by = last.after(self.group.interval).since(next);
        for state in &mut self.rules {
            state.alerts.shift_times_back(by);
        }
        self.sent = self.sent.before(by);
    }

    /// Starts the look-up of alert series once enough evaluations have run.
    pub(super) fn restore_if_due(&mut self, now: RuleInstant) -> Vec<GroupAction> {
        let mut actions = Vec::new();
        let Some(left) = &mut self.restore_after else {
            return actions;
        };
        *left -= 1;
        if *left > 0 {
            return actions;
        }
        self.restore_after = None;
        let settings = self.settings.restore;
        for (i, (rule, state)) in self.group.rules.iter().zip(&mut self.rules).enumerate() {
            let Some(alerting) = rule.alert_settings() else {
                continue;
            };
            if alerting.hold < settings.grace_period {
                state.alerts.is_restored = true;
                continue;
            }
            actions.push(GroupAction::Restore {
                rule: i,
                matchers: RuleAlerts::matchers(&rule.name, &rule.labels),
                min: now.before(settings.outage_tolerance).ms(),
                max: now.ms(),
            });
        }
        self.work = GroupActivity::Restoring(actions.len());
        actions
    }

    /// Restores the alerts of a rule from the samples that the look-up found.
    pub(super) fn restore_alerts(
        &mut self,
        rule: usize,
        kept: &[AlertStateSample],
        now: RuleInstant,
    ) {
        let GroupActivity::Restoring(left) = &mut self.work else {
            return;
        };
        *left = left.saturating_sub(1);
        if let Some(alerting) = self.group.rules[rule].alert_settings() {
            let settings = self.settings.restore;
            let alerts = &mut self.rules[rule].alerts;
            alerts.restore(kept, now, alerting.hold, &settings);
        }
    }
}

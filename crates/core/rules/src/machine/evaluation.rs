//! A single evaluation of a group. Rules run concurrently if the result equals that of sequential
//! evaluation.

use super::{
    AppendOrigin, BackfillRange, GroupAction, GroupActivity, GroupMachine, RuleHealth, SavedGroup,
    SavedRule,
};
use crate::alerts::AlertSendParams;
use crate::dependencies::DependencyMilestone;
use crate::instant::RuleInstant;
use crate::rule::{RecordedSample, RuleError, RuleResult};
use firn_model::batch::{Batch, HistogramSample};
use firn_model::error::{Error, ErrorKind};
use firn_model::labels::Labels;
use firn_model::sample::{START_UNKNOWN, TimestampMs, stale_nan};
use firn_model::store::{AppendOutcome, SampleRejection};
use firn_promql::value::QueryPointValue;
use std::collections::HashSet;
use std::time::Duration;

/// An evaluation in progress, with the state of each rule. Exists from the start of the first query
/// until all samples are stored.
#[derive(Debug)]
pub(super) struct GroupEvaluation {
    pub(super) instant: RuleInstant,
    /// Start of the evaluation by the clock.
    began: RuleInstant,
    /// True if a later instant was already due at the start: this is a catch-up evaluation.
    is_late: bool,
    /// True if unchanged alerts are sent again by this evaluation.
    repeats_alerts: bool,
    progress: Vec<RuleProgress>,
    /// True once the stale markers for series of removed rules were passed to the store.
    is_clearing: bool,
    /// Error of the store if it was unable to write samples of this evaluation.
    store_away: Option<String>,
}

/// Progress of one rule in an evaluation: waiting for dependencies, queried, storing samples, or
/// done.
#[derive(Debug)]
enum RuleProgress {
    Waiting,
    Asked {
        began: RuleInstant,
    },
    /// The samples are being stored. Contains the labels of all series that the rule produced.
    Storing(Vec<Labels>),
    Done,
}

impl GroupEvaluation {
    fn new(instant: RuleInstant, is_late: bool, rules: usize, now: RuleInstant) -> Self {
        Self {
            instant,
            began: now,
            is_late,
            repeats_alerts: true,
            progress: (0..rules).map(|_| RuleProgress::Waiting).collect(),
            is_clearing: false,
            store_away: None,
        }
    }

    fn queried_count(&self) -> usize {
        let asked = |progress: &&RuleProgress| matches!(progress, RuleProgress::Asked { .. });
        self.progress.iter().filter(asked).count()
    }

    fn is_done(&self) -> bool {
        self.progress
            .iter()
            .all(|p| matches!(p, RuleProgress::Done))
    }

    /// Returns whether a rule has made the progress for which a dependent rule waits.
    fn has_reached(&self, rule: usize, until: DependencyMilestone) -> bool {
        match (&self.progress[rule], until) {
            (RuleProgress::Done, _) | (RuleProgress::Storing(_), DependencyMilestone::Answered) => {
                true
            }
            (_, _) => false,
        }
    }
}

impl GroupMachine {
    pub(super) fn begin(
        &mut self,
        instant: RuleInstant,
        is_late: bool,
        missed: u64,
        now: RuleInstant,
    ) {
        self.counts.iterations += missed + 1;
        self.counts.missed += missed;
        self.counts.made_up += u64::from(is_late);
        self.counts.samples = 0;
        if missed > 0 {
            self.handle_skip(instant);
        }
        self.handle_clock_set_back(instant);
        let rules = self.group.rules.len();
        let mut evaluation = GroupEvaluation::new(instant, is_late, rules, now);
        evaluation.repeats_alerts =
            !is_late || now.has_elapsed_since(self.sent, self.group.interval);
        if evaluation.repeats_alerts {
            self.sent = now;
        }
        self.work = GroupActivity::Evaluating(evaluation);
    }

    /// Starts queries for all rules that are ready, or ends the evaluation. Returns whether other
    /// work may start.
    pub(super) fn evaluate(&mut self, now: RuleInstant, actions: &mut Vec<GroupAction>) -> bool {
        let GroupActivity::Evaluating(evaluation) = &mut self.work else {
            return false;
        };
        if evaluation.is_done() {
            return self.finish(now, actions);
        }
        let mut asked = evaluation.queried_count();
        for rule in 0..self.group.rules.len() {
            if asked >= self.settings.rules_at_once.max(1) {
                break;
            }
            let mut needs = self.group.dependencies[rule].iter();
            let is_ready = needs.all(|need| evaluation.has_reached(need.rule, need.until));
            if !is_ready || !matches!(evaluation.progress[rule], RuleProgress::Waiting) {
                continue;
            }
            evaluation.progress[rule] = RuleProgress::Asked { began: now };
            actions.push(GroupAction::Query {
                rule,
                instant: evaluation.instant,
                is_extra: asked > 0,
            });
            asked += 1;
        }
        false
    }

    /// Processes the result of a rule's query: updates alerts and passes samples to the store.
    pub(super) fn handle_answer(
        &mut self,
        rule: usize,
        found: Result<RuleResult, RuleError>,
        took: Duration,
        now: RuleInstant,
        actions: &mut Vec<GroupAction>,
    ) {
        let GroupActivity::Evaluating(evaluation) = &mut self.work else {
            return;
        };
        let progress = std::mem::replace(&mut evaluation.progress[rule], RuleProgress::Done);
        let RuleProgress::Asked { began } = progress else {
            evaluation.progress[rule] = progress;
            return;
        };
        let (instant, is_late) = (evaluation.instant, evaluation.is_late);
        let repeats = evaluation.repeats_alerts;
        let store_away = evaluation.store_away.clone();
        self.counts.evaluations += 1;
        self.rules[rule].took = took;
        self.rules[rule].took_in_all += took;
        self.rules[rule].samples = 0;
        self.rules[rule].evaluated = Some(began);
        let samples = match found.and_then(|found| self.result_samples(rule, found, instant)) {
            Ok(samples) => samples,
            Err(e) => {
                self.rules[rule].fail(&e);
                return;
            }
        };
        // The rule may depend on samples that the store was unable to write, so it is evaluated
        // again together with those.
        if let Some(why) = store_away
            && self.group.rules[rule].alert_settings().is_none()
        {
            self.mark_for_backfill(instant);
            self.rules[rule].fail(&RuleError::Storage(why));
            return;
        }
        let state = &mut self.rules[rule];
        state.health = RuleHealth::Good;
        state.last_error.clear();
        state.samples = samples.len() as u64;
        self.counts.samples += state.samples;
        self.send_due(rule, instant, is_late, repeats, now, actions);
        let time = instant.before(self.query_offset()).ms();
        let batch = build_batch(&samples, &self.rules[rule].previous, time);
        let made = samples.into_iter().map(|sample| sample.labels).collect();
        if batch.is_empty() {
            self.rules[rule].previous = made;
            return;
        }
        if let GroupActivity::Evaluating(evaluation) = &mut self.work {
            evaluation.progress[rule] = RuleProgress::Storing(made);
        }
        let of = AppendOrigin::Rule(rule);
        let batch = Box::new(batch);
        actions.push(GroupAction::Append { of, is_late, batch });
    }

    /// Sends the due alerts of a rule. A catch-up evaluation sends changed alerts, and repeats
    /// unchanged ones only if none were repeated for an interval.
    fn send_due(
        &mut self,
        rule: usize,
        instant: RuleInstant,
        is_late: bool,
        repeats: bool,
        now: RuleInstant,
        actions: &mut Vec<GroupAction>,
    ) {
        let alerts = self.rules[rule].alerts.take_due(&AlertSendParams {
            instant,
            valid_from: if is_late { now } else { instant },
            resend_delay: self.settings.resend_delay,
            interval: self.group.interval,
            only_changes: !repeats,
        });
        if !alerts.is_empty() {
            actions.push(GroupAction::Send { rule, alerts });
        }
    }

    /// Returns the samples that a rule writes for its result. Updates the alerts of an alerting
    /// rule.
    fn result_samples(
        &mut self,
        rule: usize,
        found: RuleResult,
        instant: RuleInstant,
    ) -> Result<Vec<RecordedSample>, RuleError> {
        let settings = &self.group.rules[rule];
        match (found, settings.alert_settings()) {
            (RuleResult::Samples(samples), _) => Ok(samples),
            // Not reachable: recording rules return samples.
            (RuleResult::Alerts(_), None) => Ok(Vec::new()),
            (RuleResult::Alerts(found), Some(alerting)) => {
                let alerts = &mut self.rules[rule].alerts;
                alerts.advance(found, instant, alerting, self.group.limit)?;
                Ok(self.alert_samples(rule))
            }
        }
    }

    /// Returns samples for the synthetic series of the rule's alerts in their current state.
    fn alert_samples(&self, rule: usize) -> Vec<RecordedSample> {
        let settings = &self.group.rules[rule];
        let samples = self.rules[rule]
            .alerts
            .samples(&settings.name, &settings.labels);
        let sample = |(labels, value)| RecordedSample {
            labels,
            value: QueryPointValue::Float(value),
        };
        samples.into_iter().map(sample).collect()
    }

    /// Processes the outcome of an append. If the store was unavailable, the samples are stored
    /// later.
    pub(super) fn handle_stored(
        &mut self,
        of: AppendOrigin,
        outcome: Result<AppendOutcome, Error>,
    ) {
        let GroupActivity::Evaluating(evaluation) = &mut self.work else {
            return;
        };
        if let Err(e) = &outcome
            && e.kind == ErrorKind::Unavailable
        {
            evaluation.store_away = Some(e.message.clone());
        }
        match of {
            AppendOrigin::Rule(rule) => self.handle_rule_stored(rule, outcome),
            AppendOrigin::Gone if outcome.is_ok() => self.gone.clear(),
            AppendOrigin::Gone => {}
            AppendOrigin::Waiting if evaluation.store_away.is_some() => {}
            // The store rejects these samples for good, so they are dropped.
            AppendOrigin::Waiting => self.waiting.pop(),
        }
    }

    fn handle_rule_stored(&mut self, rule: usize, outcome: Result<AppendOutcome, Error>) {
        let GroupActivity::Evaluating(evaluation) = &mut self.work else {
            return;
        };
        let progress = std::mem::replace(&mut evaluation.progress[rule], RuleProgress::Done);
        let RuleProgress::Storing(made) = progress else {
            return;
        };
        match outcome {
            Err(e) => {
                if e.kind == ErrorKind::Unavailable {
                    self.store_later(rule, made);
                }
                self.rules[rule].fail(&RuleError::Storage(e.message));
            }
            Ok(appended) => {
                let state = &mut self.rules[rule];
                // A rejected stale marker is not an error: another rule writes the series.
                let is_made = |labels: &Labels| made.contains(labels);
                let mut refused = appended.rejected.iter();
                let refused = refused.rfind(|r| is_made(&r.first_labels));
                if let Some(refused) = refused {
                    let why = refusal_text(refused.rejection).into();
                    state.fail(&RuleError::Storage(why));
                }
                state.previous = made;
            }
        }
    }

    /// Marks `instant` as one whose recording rules must be evaluated again.
    fn mark_for_backfill(&mut self, instant: RuleInstant) {
        let owed = BackfillRange {
            first: instant,
            last: instant,
        };
        self.unstored = Some(owed.union(self.unstored));
    }

    /// Handles samples of a rule that the store was unable to write. Alert samples are queued;
    /// recording rules are evaluated again later.
    fn store_later(&mut self, rule: usize, made: Vec<Labels>) {
        let GroupActivity::Evaluating(evaluation) = &self.work else {
            return;
        };
        let instant = evaluation.instant;
        if self.group.rules[rule].alert_settings().is_none() {
            self.mark_for_backfill(instant);
            return;
        }
        let time = instant.before(self.query_offset()).ms();
        let piece = build_batch(&self.alert_samples(rule), &self.rules[rule].previous, time);
        let span = self.settings.catch_up.span;
        self.waiting.push(instant, piece, span);
        self.rules[rule].previous = made;
    }

    /// Completes the evaluation after all rules are done: writes stale markers for removed rules
    /// and queued alert samples. Returns whether other work may start.
    fn finish(&mut self, now: RuleInstant, actions: &mut Vec<GroupAction>) -> bool {
        let offset = self.query_offset();
        let GroupActivity::Evaluating(evaluation) = &mut self.work else {
            return false;
        };
        if !self.gone.is_empty() && !evaluation.is_clearing {
            evaluation.is_clearing = true;
            let time = evaluation.instant.before(offset).ms();
            actions.push(GroupAction::Append {
                of: AppendOrigin::Gone,
                is_late: evaluation.is_late,
                batch: Box::new(build_batch(&[], &self.gone, time)),
            });
            return false;
        }
        if let Some(piece) = self.waiting.oldest()
            && evaluation.store_away.is_none()
        {
            actions.push(GroupAction::Append {
                of: AppendOrigin::Waiting,
                is_late: true,
                batch: Box::new(piece.clone()),
            });
            return false;
        }
        let (instant, began) = (evaluation.instant, evaluation.began);
        let is_store_away = evaluation.store_away.is_some();
        self.last.took = now.since(began);
        self.last.began = Some(began);
        self.last.instant = Some(instant);
        self.work = GroupActivity::Idle;
        if let Some(owed) = self.unstored
            && owed.last < instant
            && self.making_up.is_none()
        {
            self.unstored = None;
            // The newest instant was evaluated, but series that started and ended in the range need
            // stale markers.
            let owed = BackfillRange {
                last: instant,
                ..owed
            };
            self.making_up = Some(owed);
            actions.push(GroupAction::Backfill(owed));
        }
        let asks = self.restore_if_due(now);
        let keep = !self.can_be_evaluated_again(instant, is_store_away);
        if keep {
            self.kept = Some(instant);
        }
        actions.push(GroupAction::Ended(
            keep.then(|| self.to_saved_group(instant)),
        ));
        actions.extend(asks);
        true
    }

    /// Returns whether samples of the evaluation are not stored, and a restart from the previously
    /// saved state would evaluate the instant again. In that case the previous state is kept.
    fn can_be_evaluated_again(&self, instant: RuleInstant, is_store_away: bool) -> bool {
        let is_stored = !is_store_away && self.waiting.oldest().is_none();
        let span = self.settings.catch_up.span;
        let is_near = |kept| instant.since(kept) <= span;
        !is_stored && self.kept.is_some_and(is_near)
    }

    pub(super) fn to_saved_group(&self, instant: RuleInstant) -> SavedGroup {
        let rules = self.group.rules.iter().zip(&self.rules);
        let of_alerts = rules.filter(|(rule, _)| rule.alert_settings().is_some());
        SavedGroup {
            file: self.group.file.clone(),
            name: self.group.name.clone(),
            interval: self.group.interval,
            instant,
            owed: self
                .unstored
                .map_or(self.making_up, |owed| Some(owed.union(self.making_up))),
            restore_after: match &self.work {
                // The look-up is not finished, so it is repeated after a restart.
                GroupActivity::Restoring(_) => 1,
                _ => self.restore_after.unwrap_or(0),
            },
            rules: of_alerts
                .map(|(rule, state)| SavedRule {
                    name: rule.name.clone(),
                    labels: rule.labels.clone(),
                    is_restored: state.alerts.is_restored,
                    is_shown: !state.previous.is_empty(),
                    alerts: state.alerts.iter().cloned().collect(),
                })
                .collect(),
        }
    }
}

/// Returns the samples of a rule at `time`, and stale markers for the `previous` series that are
/// not among them.
pub(super) fn build_batch(
    samples: &[RecordedSample],
    previous: &[Labels],
    time: TimestampMs,
) -> Batch {
    let mut batch = Batch::default();
    for sample in samples {
        batch
            .label_bytes()
            .extend_from_slice(sample.labels.as_bytes());
        match &sample.value {
            QueryPointValue::Float(value) => batch.push_float(time, *value),
            QueryPointValue::Histogram(histogram) => batch.push_histogram(HistogramSample {
                time,
                start_time: START_UNKNOWN,
                histogram: (**histogram).clone(),
            }),
        }
        batch.end_series();
    }
    let labels = samples.iter().map(|sample| &sample.labels);
    // Fast path: most evaluations produce the same series as the previous one.
    if labels.clone().eq(previous) {
        return batch;
    }
    let made: HashSet<&Labels> = labels.collect();
    for labels in previous.iter().filter(|labels| !made.contains(labels)) {
        batch.push_series(labels.as_ref(), &[(time, stale_nan())]);
    }
    batch
}

/// Returns upstream's error message for a rejected sample, which becomes the last error of the
/// rule.
fn refusal_text(rejection: SampleRejection) -> &'static str {
    match rejection {
        SampleRejection::OutOfOrder => "out of order sample",
        SampleRejection::DuplicateTimestamp => "duplicate sample for timestamp",
        SampleRejection::OutOfBounds => "out of bounds",
        SampleRejection::TooOld => "too old sample",
        SampleRejection::TooFarInFuture => "sample is too far in the future",
        SampleRejection::SeriesLimit
        | SampleRejection::ActiveSeriesLimit
        | SampleRejection::NewSeriesLimit
        | SampleRejection::JobSeriesLimit => "too many new series",
    }
}

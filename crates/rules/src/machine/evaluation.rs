//! A single evaluation of a group. Rules run concurrently if the result equals that of sequential
//! evaluation.

use super::{Action, Health, Machine, Origin, Owed, SavedGroup, SavedRule, Work};
use crate::alerts::Sending;
use crate::dependencies::Until;
use crate::instant::Instant;
use crate::rule::{Found, FoundSample, RuleError};
use firn_model::batch::{Batch, HistogramSample};
use firn_model::error::{Error, ErrorKind};
use firn_model::labels::Labels;
use firn_model::sample::{START_UNKNOWN, TimestampMs, stale_nan};
use firn_model::store::{Appended, Rejection};
use firn_promql::value::PointValue;
use std::collections::HashSet;
use std::time::Duration;

/// An evaluation in progress, with the state of each rule. Exists from the start of the first query
/// until all samples are stored.
#[derive(Debug)]
pub(super) struct Evaluation {
    pub(super) instant: Instant,
    /// Start of the evaluation by the clock.
    began: Instant,
    /// True if a later instant was already due at the start: this is a catch-up evaluation.
    is_late: bool,
    /// True if unchanged alerts are sent again by this evaluation.
    repeats_alerts: bool,
    progress: Vec<Progress>,
    /// True once the stale markers for series of removed rules were passed to the store.
    is_clearing: bool,
    /// Error of the store if it was unable to write samples of this evaluation.
    store_away: Option<String>,
}

/// Progress of one rule in an evaluation: waiting for dependencies, queried, storing samples, or
/// done.
#[derive(Debug)]
enum Progress {
    Waiting,
    Asked {
        began: Instant,
    },
    /// The samples are being stored. Contains the labels of all series that the rule produced.
    Storing(Vec<Labels>),
    Done,
}

impl Evaluation {
    fn new(instant: Instant, is_late: bool, rules: usize, now: Instant) -> Self {
        Self {
            instant,
            began: now,
            is_late,
            repeats_alerts: true,
            progress: (0..rules).map(|_| Progress::Waiting).collect(),
            is_clearing: false,
            store_away: None,
        }
    }

    fn asked_count(&self) -> usize {
        let asked = |progress: &&Progress| matches!(progress, Progress::Asked { .. });
        self.progress.iter().filter(asked).count()
    }

    fn is_done(&self) -> bool {
        self.progress.iter().all(|p| matches!(p, Progress::Done))
    }

    /// Returns whether a rule has made the progress for which a dependent rule waits.
    fn is_past(&self, rule: usize, until: Until) -> bool {
        match (&self.progress[rule], until) {
            (Progress::Done, _) | (Progress::Storing(_), Until::Answered) => true,
            (_, _) => false,
        }
    }
}

impl Machine {
    pub(super) fn begin(&mut self, instant: Instant, is_late: bool, missed: u64, now: Instant) {
        self.counts.iterations += missed + 1;
        self.counts.missed += missed;
        self.counts.made_up += u64::from(is_late);
        self.counts.samples = 0;
        if missed > 0 {
            self.skip(instant);
        }
        self.set_back(instant);
        let rules = self.group.rules.len();
        let mut evaluation = Evaluation::new(instant, is_late, rules, now);
        evaluation.repeats_alerts = !is_late || now.is_since(self.sent, self.group.interval);
        if evaluation.repeats_alerts {
            self.sent = now;
        }
        self.work = Work::Evaluating(evaluation);
    }

    /// Starts queries for all rules that are ready, or ends the evaluation. Returns whether other
    /// work may start.
    pub(super) fn evaluate(&mut self, now: Instant, actions: &mut Vec<Action>) -> bool {
        let Work::Evaluating(evaluation) = &mut self.work else {
            return false;
        };
        if evaluation.is_done() {
            return self.finish(now, actions);
        }
        let mut asked = evaluation.asked_count();
        for rule in 0..self.group.rules.len() {
            if asked >= self.settings.rules_at_once.max(1) {
                break;
            }
            let mut needs = self.group.dependencies[rule].iter();
            let is_ready = needs.all(|need| evaluation.is_past(need.rule, need.until));
            if !is_ready || !matches!(evaluation.progress[rule], Progress::Waiting) {
                continue;
            }
            evaluation.progress[rule] = Progress::Asked { began: now };
            actions.push(Action::Query {
                rule,
                instant: evaluation.instant,
                is_extra: asked > 0,
            });
            asked += 1;
        }
        false
    }

    /// Processes the result of a rule's query: updates alerts and passes samples to the store.
    pub(super) fn answered(
        &mut self,
        rule: usize,
        found: Result<Found, RuleError>,
        took: Duration,
        now: Instant,
        actions: &mut Vec<Action>,
    ) {
        let Work::Evaluating(evaluation) = &mut self.work else {
            return;
        };
        let progress = std::mem::replace(&mut evaluation.progress[rule], Progress::Done);
        let Progress::Asked { began } = progress else {
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
        let samples = match found.and_then(|found| self.samples_of(rule, found, instant)) {
            Ok(samples) => samples,
            Err(e) => {
                self.rules[rule].fail(&e);
                return;
            }
        };
        // The rule may depend on samples that the store was unable to write, so it is evaluated
        // again together with those.
        if let Some(why) = store_away
            && self.group.rules[rule].alerting().is_none()
        {
            self.owe(instant);
            self.rules[rule].fail(&RuleError::Storage(why));
            return;
        }
        let state = &mut self.rules[rule];
        state.health = Health::Good;
        state.last_error.clear();
        state.samples = samples.len() as u64;
        self.counts.samples += state.samples;
        self.send_due(rule, instant, (is_late, repeats), now, actions);
        let time = instant.before(self.query_offset()).ms();
        let batch = batch_of(&samples, &self.rules[rule].previous, time);
        let made = samples.into_iter().map(|sample| sample.labels).collect();
        if batch.is_empty() {
            self.rules[rule].previous = made;
            return;
        }
        if let Work::Evaluating(evaluation) = &mut self.work {
            evaluation.progress[rule] = Progress::Storing(made);
        }
        let of = Origin::Rule(rule);
        let batch = Box::new(batch);
        actions.push(Action::Append { of, is_late, batch });
    }

    /// Sends the due alerts of a rule. A catch-up evaluation sends changed alerts, and repeats
    /// unchanged ones only if none were repeated for an interval.
    fn send_due(
        &mut self,
        rule: usize,
        instant: Instant,
        (is_late, repeats): (bool, bool),
        now: Instant,
        actions: &mut Vec<Action>,
    ) {
        let alerts = self.rules[rule].alerts.due(&Sending {
            instant,
            valid_from: if is_late { now } else { instant },
            resend_delay: self.settings.resend_delay,
            interval: self.group.interval,
            only_changes: !repeats,
        });
        if !alerts.is_empty() {
            actions.push(Action::Send { rule, alerts });
        }
    }

    /// Returns the samples that a rule writes for its result. Updates the alerts of an alerting
    /// rule.
    fn samples_of(
        &mut self,
        rule: usize,
        found: Found,
        instant: Instant,
    ) -> Result<Vec<FoundSample>, RuleError> {
        let settings = &self.group.rules[rule];
        match (found, settings.alerting()) {
            (Found::Samples(samples), _) => Ok(samples),
            // Not reachable: recording rules return samples.
            (Found::Alerts(_), None) => Ok(Vec::new()),
            (Found::Alerts(found), Some(alerting)) => {
                let alerts = &mut self.rules[rule].alerts;
                alerts.advance(found, instant, alerting, self.group.limit)?;
                Ok(self.alert_samples(rule))
            }
        }
    }

    /// Returns samples for the synthetic series of the rule's alerts in their current state.
    fn alert_samples(&self, rule: usize) -> Vec<FoundSample> {
        let settings = &self.group.rules[rule];
        let samples = self.rules[rule]
            .alerts
            .samples(&settings.name, &settings.labels);
        let sample = |(labels, value)| FoundSample {
            labels,
            value: PointValue::Float(value),
        };
        samples.into_iter().map(sample).collect()
    }

    /// Processes the outcome of an append. If the store was unavailable, the samples are stored
    /// later.
    pub(super) fn stored(&mut self, of: Origin, outcome: Result<Appended, Error>) {
        let Work::Evaluating(evaluation) = &mut self.work else {
            return;
        };
        if let Err(e) = &outcome
            && e.kind == ErrorKind::Unavailable
        {
            evaluation.store_away = Some(e.message.clone());
        }
        match of {
            Origin::Rule(rule) => self.stored_of_rule(rule, outcome),
            Origin::Gone if outcome.is_ok() => self.gone.clear(),
            Origin::Gone => {}
            Origin::Waiting if evaluation.store_away.is_some() => {}
            // The store rejects these samples for good, so they are dropped.
            Origin::Waiting => self.waiting.pop(),
        }
    }

    fn stored_of_rule(&mut self, rule: usize, outcome: Result<Appended, Error>) {
        let Work::Evaluating(evaluation) = &mut self.work else {
            return;
        };
        let progress = std::mem::replace(&mut evaluation.progress[rule], Progress::Done);
        let Progress::Storing(made) = progress else {
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
                    let why = refusal(refused.rejection).into();
                    state.fail(&RuleError::Storage(why));
                }
                state.previous = made;
            }
        }
    }

    /// Marks `instant` as one whose recording rules must be evaluated again.
    fn owe(&mut self, instant: Instant) {
        let owed = Owed {
            first: instant,
            last: instant,
        };
        self.unstored = Some(owed.and(self.unstored));
    }

    /// Handles samples of a rule that the store was unable to write. Alert samples are queued;
    /// recording rules are evaluated again later.
    fn store_later(&mut self, rule: usize, made: Vec<Labels>) {
        let Work::Evaluating(evaluation) = &self.work else {
            return;
        };
        let instant = evaluation.instant;
        if self.group.rules[rule].alerting().is_none() {
            self.owe(instant);
            return;
        }
        let time = instant.before(self.query_offset()).ms();
        let piece = batch_of(&self.alert_samples(rule), &self.rules[rule].previous, time);
        let span = self.settings.catch_up.span;
        self.waiting.push(instant, piece, span);
        self.rules[rule].previous = made;
    }

    /// Completes the evaluation after all rules are done: writes stale markers for removed rules
    /// and queued alert samples. Returns whether other work may start.
    fn finish(&mut self, now: Instant, actions: &mut Vec<Action>) -> bool {
        let offset = self.query_offset();
        let Work::Evaluating(evaluation) = &mut self.work else {
            return false;
        };
        if !self.gone.is_empty() && !evaluation.is_clearing {
            evaluation.is_clearing = true;
            let time = evaluation.instant.before(offset).ms();
            actions.push(Action::Append {
                of: Origin::Gone,
                is_late: evaluation.is_late,
                batch: Box::new(batch_of(&[], &self.gone, time)),
            });
            return false;
        }
        if let Some(piece) = self.waiting.oldest()
            && evaluation.store_away.is_none()
        {
            actions.push(Action::Append {
                of: Origin::Waiting,
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
        self.work = Work::Idle;
        if let Some(owed) = self.unstored
            && owed.last < instant
            && self.making_up.is_none()
        {
            self.unstored = None;
            // The newest instant was evaluated, but series that started and ended in the range need
            // stale markers.
            let owed = Owed {
                last: instant,
                ..owed
            };
            self.making_up = Some(owed);
            actions.push(Action::Backfill(owed));
        }
        let asks = self.restore_if_due(now);
        let keep = !self.can_be_evaluated_again(instant, is_store_away);
        if keep {
            self.kept = Some(instant);
        }
        actions.push(Action::Ended(keep.then(|| self.saved(instant))));
        actions.extend(asks);
        true
    }

    /// Returns whether samples of the evaluation are not stored, and a restart from the previously
    /// saved state would evaluate the instant again. In that case the previous state is kept.
    fn can_be_evaluated_again(&self, instant: Instant, is_store_away: bool) -> bool {
        let is_stored = !is_store_away && self.waiting.oldest().is_none();
        let span = self.settings.catch_up.span;
        let is_near = |kept| instant.since(kept) <= span;
        !is_stored && self.kept.is_some_and(is_near)
    }

    pub(super) fn saved(&self, instant: Instant) -> SavedGroup {
        let rules = self.group.rules.iter().zip(&self.rules);
        let of_alerts = rules.filter(|(rule, _)| rule.alerting().is_some());
        SavedGroup {
            file: self.group.file.clone(),
            name: self.group.name.clone(),
            interval: self.group.interval,
            instant,
            owed: self
                .unstored
                .map_or(self.making_up, |owed| Some(owed.and(self.making_up))),
            restore_after: match &self.work {
                // The look-up is not finished, so it is repeated after a restart.
                Work::Restoring(_) => 1,
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
pub(super) fn batch_of(samples: &[FoundSample], previous: &[Labels], time: TimestampMs) -> Batch {
    let mut batch = Batch::default();
    for sample in samples {
        batch
            .label_bytes()
            .extend_from_slice(sample.labels.as_bytes());
        match &sample.value {
            PointValue::Float(value) => batch.push_float(time, *value),
            PointValue::Histogram(histogram) => batch.push_histogram(HistogramSample {
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
fn refusal(rejection: Rejection) -> &'static str {
    match rejection {
        Rejection::OutOfOrder => "out of order sample",
        Rejection::DuplicateTimestamp => "duplicate sample for timestamp",
        Rejection::OutOfBounds => "out of bounds",
        Rejection::TooOld => "too old sample",
        Rejection::TooFarInFuture => "sample is too far in the future",
        Rejection::SeriesLimit => "too many new series",
    }
}

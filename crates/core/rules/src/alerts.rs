//! The set of alerts of one rule and its transitions from one evaluation to the next.
//!
//! Transitions, their order and the limit follow upstream's `rules/alerting.go`, with one
//! difference: a resolved alert is kept until it has been sent, because catch-up evaluations may
//! not send it.
//!
//! Invariant: alerts have unique label sets, and the condition of each has been true at least once.

use crate::alert::{ALERT_NAME, ALERT_STATE, ALERTS, ALERTS_FOR_STATE, Alert, AlertState};
use crate::file::Texts;
use crate::instant::RuleInstant;
use crate::rule::{ActiveAlert, AlertSettings, RuleError};
use firn_model::labels::{Labels, LabelsBuilder, METRIC_NAME};
use firn_model::matcher::{MatchOp, Matcher};
use firn_model::sample::TimestampMs;
use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

/// Time for which a resolved alert is sent to receivers, so that a receiver that was unavailable
/// still gets the resolution.
const RESOLVED_KEPT: Duration = Duration::from_secs(15 * 60);

/// A sent alert remains valid for this many intervals or resend delays, whichever is longer, so
/// that two evaluations or deliveries may fail.
const VALID_FACTOR: u32 = 4;

/// The alerts of one rule, keyed by label set. Contains pending and firing alerts, and resolved
/// ones that are still sent to receivers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RuleAlerts {
    active: BTreeMap<Labels, Alert>,
    /// True if the state from before the start has been restored. Synthetic series are only written
    /// from then on.
    pub is_restored: bool,
}

/// The newest sample of a series [`ALERTS_FOR_STATE`] that was written by an earlier process.
/// Alerts are restored from these samples if no saved state exists.
#[derive(Clone, Debug, PartialEq)]
pub struct AlertStateSample {
    /// Labels of the series: those of the alert and the metric name.
    pub labels: Labels,
    /// Timestamp of the sample.
    pub time: TimestampMs,
    /// Activation time of the alert, in seconds since the epoch.
    pub value: f64,
}

/// Parameters that decide which alerts are sent after an evaluation. Created by the machine for
/// each rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AlertSendParams {
    /// Instant of the evaluation, which is recorded as the time of sending.
    pub instant: RuleInstant,
    /// Start of the period for which a receiver considers the sent alerts firing.
    pub valid_from: RuleInstant,
    /// Value of `--rules.alert.resend-delay`: the minimum time between two deliveries of an
    /// unchanged alert.
    pub resend_delay: Duration,
    /// Evaluation interval of the group, which determines how long a sent alert remains valid.
    pub interval: Duration,
    /// True if alerts are only sent after a change, and unchanged ones are not repeated.
    pub only_changes: bool,
}

/// Settings for the restoration of alerts after an outage, from the flags of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestoreSettings {
    /// Value of `--rules.alert.for-outage-tolerance`: the longest outage after which pending alerts
    /// are restored.
    pub outage_tolerance: Duration,
    /// Value of `--rules.alert.for-grace-period`: the minimum time between a start and the firing
    /// of a restored alert.
    pub grace_period: Duration,
}

impl RuleAlerts {
    /// Creates the set from alerts that were saved by an earlier process.
    pub fn from_saved(saved: Vec<Alert>, is_restored: bool) -> Self {
        Self {
            active: saved.into_iter().map(|a| (a.labels.clone(), a)).collect(),
            is_restored,
        }
    }

    /// Returns all alerts sorted by label set, including resolved ones that are still sent to
    /// receivers.
    pub fn iter(&self) -> impl Iterator<Item = &Alert> {
        self.active.values()
    }

    /// Returns the pending and firing alerts, sorted by label set; resolved alerts are not
    /// included.
    pub fn active(&self) -> impl Iterator<Item = &Alert> {
        self.iter().filter(|alert| alert.resolved_at.is_none())
    }

    /// Returns the most urgent state of all alerts, or inactive if there are none.
    pub fn state(&self) -> AlertState {
        let states = self.iter().map(|alert| alert.state);
        states.max().unwrap_or_default()
    }

    /// Adds the alerts of `before`, the same rule before its file changed.
    pub fn take_over(&mut self, before: &RuleAlerts) {
        let before = before.active.iter();
        self.active
            .extend(before.map(|(labels, alert)| (labels.clone(), alert.clone())));
    }

    /// Applies an evaluation at `now` that found the condition true for `found`. If more than
    /// `limit` alerts are active, removes all alerts and returns an error. A limit of zero means no
    /// limit.
    pub fn advance(
        &mut self,
        found: Vec<ActiveAlert>,
        now: RuleInstant,
        settings: &AlertSettings,
        limit: usize,
    ) -> Result<(), RuleError> {
        let holds: HashSet<Labels> = found.iter().map(|alert| alert.labels.clone()).collect();
        for alert in found {
            self.activate(alert, now);
        }
        let mut active_count = 0;
        self.active.retain(|labels, alert| {
            let holds = holds.contains(labels);
            let (is_active, is_kept) = advance_alert(alert, holds, now, settings);
            active_count += usize::from(is_active);
            is_kept
        });
        if limit > 0 && active_count > limit {
            self.active.clear();
            let (count, of) = (active_count, "alerts");
            return Err(RuleError::Limit { limit, count, of });
        }
        Ok(())
    }

    fn activate(&mut self, found: ActiveAlert, now: RuleInstant) {
        match self.active.get_mut(&found.labels) {
            Some(known) if known.state != AlertState::Inactive => {
                known.value = found.value;
                known.annotations = found.annotations;
            }
            _ => {
                let alert = Alert {
                    labels: found.labels.clone(),
                    annotations: found.annotations,
                    state: AlertState::Pending,
                    value: found.value,
                    active_at: now,
                    ..Alert::default()
                };
                self.active.insert(found.labels, alert);
            }
        }
    }

    /// Returns two synthetic samples for each pending or firing alert, [`ALERTS`] and
    /// [`ALERTS_FOR_STATE`]. Returns none until [`RuleAlerts::is_restored`] is set.
    pub fn samples(&self, name: &str, labels: &Texts) -> Vec<(Labels, f64)> {
        let mut samples = Vec::new();
        let shown = self.iter().filter(|a| a.state != AlertState::Inactive);
        for alert in shown.filter(|_| self.is_restored) {
            let mut builder = series_labels(name, labels, Some(alert));
            builder.set(METRIC_NAME, ALERTS.as_bytes());
            builder.set(ALERT_STATE, alert.state.as_str().as_bytes());
            samples.push((builder.build(), 1.0));
            let mut builder = series_labels(name, labels, Some(alert));
            builder.set(METRIC_NAME, ALERTS_FOR_STATE.as_bytes());
            samples.push((builder.build(), alert.active_at.seconds() as f64));
        }
        samples
    }

    /// Returns the alerts that are due to be sent, and marks them as sent at this evaluation.
    pub fn take_due(&mut self, sending: &AlertSendParams) -> Vec<Alert> {
        let mut due = Vec::new();
        for alert in self.active.values_mut() {
            let is_wanted = !sending.only_changes || alert.is_changed();
            if is_wanted && alert.needs_sending(sending.instant, sending.resend_delay) {
                alert.last_sent_at = Some(sending.instant);
                let longer = sending.interval.max(sending.resend_delay);
                let validity = longer.saturating_mul(VALID_FACTOR);
                alert.valid_until = Some(sending.valid_from.after(validity));
                due.push(alert.clone());
            }
        }
        due
    }

    /// Returns matchers for the series [`ALERTS_FOR_STATE`] that an earlier process wrote for a
    /// rule.
    pub fn matchers(name: &str, labels: &Texts) -> Vec<Matcher> {
        let mut builder = series_labels(name, labels, None);
        builder.set(METRIC_NAME, ALERTS_FOR_STATE.as_bytes());
        // The value of a templated label is not available before the expression is evaluated.
        let is_plain = |value: &[u8]| !value.windows(2).any(|pair| pair == b"{{");
        let pairs = builder.iter().filter(|(_, value)| is_plain(value));
        let equal = |(name, value)| Matcher::new(name, MatchOp::Equal, value);
        pairs.filter_map(|pair| equal(pair).ok()).collect()
    }

    /// Restores the activation times of active alerts from `kept`. The time that an alert was
    /// pending before the outage counts towards `for`; the outage itself does not.
    pub fn restore(
        &mut self,
        kept: &[AlertStateSample],
        now: RuleInstant,
        hold: Duration,
        settings: &RestoreSettings,
    ) {
        for since in kept {
            let mut labels = LabelsBuilder::from_labels(since.labels.as_ref());
            let labels = labels.remove(METRIC_NAME).build();
            if let Some(alert) = self.active.get_mut(&labels) {
                let down_at = RuleInstant::from_seconds(since.time.div_euclid(1000));
                let active_at = RuleInstant::from_seconds(since.value as i64);
                alert.active_at = restored_active_at(active_at, down_at, now, hold, settings);
            }
        }
        self.is_restored = true;
    }

    /// Moves all times back by `by` after the clock was set back, so that durations stay the same
    /// relative to the new clock.
    pub fn shift_times_back(&mut self, by: Duration) {
        for alert in self.active.values_mut() {
            alert.shift_times_back(by);
        }
    }

    /// Resumes at `now` after evaluations from `from` on were skipped. Pending alerts are treated
    /// as by [`RuleAlerts::restore`] and removed after a long outage. Firing alerts keep firing
    /// until the next evaluation.
    pub fn resume_after_skip(
        &mut self,
        from: RuleInstant,
        now: RuleInstant,
        hold: Duration,
        settings: &RestoreSettings,
    ) {
        let is_long = now.since(from) > settings.outage_tolerance;
        self.active
            .retain(|_, alert| alert.state != AlertState::Pending || !is_long);
        for alert in self.active.values_mut() {
            if alert.state == AlertState::Pending {
                alert.active_at = restored_active_at(alert.active_at, from, now, hold, settings);
            }
        }
    }
}

/// Advances one alert. Returns whether the alert is pending or firing, and whether it is kept in
/// the set.
fn advance_alert(
    alert: &mut Alert,
    holds: bool,
    now: RuleInstant,
    settings: &AlertSettings,
) -> (bool, bool) {
    if holds {
        alert.keep_firing_since = None;
    } else {
        let keeps_firing = keeps_firing(alert, now, settings);
        let is_told = match alert.resolved_at {
            Some(resolved) => {
                let is_sent = alert.last_sent_at.is_some_and(|sent| sent >= resolved);
                is_sent && now.since(resolved) > RESOLVED_KEPT
            }
            None => false,
        };
        let is_kept = alert.state != AlertState::Pending && !is_told;
        if !keeps_firing {
            if alert.state != AlertState::Inactive {
                alert.state = AlertState::Inactive;
                alert.resolved_at = Some(now);
            }
            return (false, is_kept);
        }
    }
    let is_due = now.has_elapsed_since(alert.active_at, settings.hold);
    match alert.state {
        AlertState::Pending if is_due => {
            alert.state = AlertState::Firing;
            alert.fired_at = Some(now);
        }
        // The duration of `for` was increased in the rule file.
        AlertState::Firing if !is_due => {
            alert.state = AlertState::Pending;
            alert.fired_at = None;
            alert.last_sent_at = None;
            alert.keep_firing_since = None;
        }
        _ => {}
    }
    (true, true)
}

/// Returns whether `keep_firing_for` keeps an alert firing whose condition is false. Records when
/// that started.
fn keeps_firing(alert: &mut Alert, now: RuleInstant, settings: &AlertSettings) -> bool {
    if alert.state != AlertState::Firing || settings.keep_firing_for.is_zero() {
        return false;
    }
    let since = *alert.keep_firing_since.get_or_insert(now);
    !now.has_elapsed_since(since, settings.keep_firing_for)
}

/// Returns the common labels of the synthetic series of `alert` or, without one, of all alerts of a
/// rule.
fn series_labels(name: &str, labels: &Texts, alert: Option<&Alert>) -> LabelsBuilder {
    let mut builder = LabelsBuilder::default();
    for (name, value) in labels {
        builder.set(name, value.as_bytes());
    }
    for (name, value) in alert.iter().flat_map(|alert| alert.labels.iter()) {
        builder.set(name, value);
    }
    builder.set(ALERT_NAME, name.as_bytes());
    builder
}

/// Returns the restored activation time of an alert that was active from `active_at` until the
/// outage at `down_at`.
fn restored_active_at(
    active_at: RuleInstant,
    down_at: RuleInstant,
    now: RuleInstant,
    hold: Duration,
    settings: &RestoreSettings,
) -> RuleInstant {
    let pending = down_at.since(active_at);
    match hold.checked_sub(pending) {
        // The alert was firing. If its condition is true, it fires again with the next evaluation.
        None | Some(Duration::ZERO) => active_at,
        Some(left) if left < settings.grace_period => now.after(settings.grace_period).before(hold),
        Some(_) => active_at.after(now.since(down_at)),
    }
}

#[cfg(test)]
mod tests;

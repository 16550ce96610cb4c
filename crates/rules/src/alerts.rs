//! The alerts of one rule from evaluation to evaluation.
//!
//! Transitions, their order and the limit are those of upstream's `rules/alerting.go`. One thing
//! differs: a resolved alert is not forgotten before it was sent, since evaluations that are made
//! up send nothing.
//!
//! Invariant: every alert is one whose condition held once; of a set of labels there is one.

use crate::alert::{ALERT_NAME, ALERT_STATE, ALERTS, ALERTS_FOR_STATE, Alert, AlertState};
use crate::file::Texts;
use crate::instant::Instant;
use crate::rule::{AlertSettings, FoundAlert, RuleError};
use firn_model::labels::{Labels, LabelsBuilder, METRIC_NAME};
use firn_model::matcher::{MatchOp, Matcher};
use firn_model::sample::TimestampMs;
use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

/// How long a resolved alert is told to receivers, so that it comes through if one is down.
const RESOLVED_KEPT: Duration = Duration::from_secs(15 * 60);

/// An alert is taken as firing for so many intervals or resend delays behind its sending: two
/// evaluations or sendings may fail.
const VALID_FACTOR: u32 = 4;

/// The alerts of a rule.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Alerts {
    active: BTreeMap<Labels, Alert>,
    /// Whether it is known what was before the start: the series about alerts are written then.
    pub is_restored: bool,
}

/// The newest sample of a series [`ALERTS_FOR_STATE`] that a process before this one wrote.
#[derive(Clone, Debug, PartialEq)]
pub struct KeptSince {
    /// The labels of the alert.
    pub labels: Labels,
    /// When it was written.
    pub time: TimestampMs,
    /// Since when the alert was active, in seconds.
    pub value: f64,
}

/// How alerts are sent after an evaluation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sending {
    /// The instant of the evaluation.
    pub instant: Instant,
    /// From when on the receiver may take them as firing.
    pub valid_from: Instant,
    /// `--rules.alert.resend-delay`
    pub resend_delay: Duration,
    /// That of the group.
    pub interval: Duration,
    /// Whether those are left out that were sent as they are.
    pub only_changes: bool,
}

/// How alerts go on after a stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestoreSettings {
    /// `--rules.alert.for-outage-tolerance`: what was active longer ago is not taken up.
    pub outage_tolerance: Duration,
    /// `--rules.alert.for-grace-period`: the least time from a start to an alert that fires anew.
    pub grace_period: Duration,
}

impl Alerts {
    /// Alerts that were saved.
    pub fn of_saved(saved: Vec<Alert>, is_restored: bool) -> Self {
        Self {
            active: saved.into_iter().map(|a| (a.labels.clone(), a)).collect(),
            is_restored,
        }
    }

    /// All of them, those that are resolved included, by their labels.
    pub fn iter(&self) -> impl Iterator<Item = &Alert> {
        self.active.values()
    }

    /// Those that are not resolved.
    pub fn active(&self) -> impl Iterator<Item = &Alert> {
        self.iter().filter(|alert| alert.resolved_at.is_none())
    }

    /// The most urgent state.
    pub fn state(&self) -> AlertState {
        let states = self.iter().map(|alert| alert.state);
        states.max().unwrap_or_default()
    }

    /// Takes over those of the rule before the file changed.
    pub fn take_over(&mut self, before: &Alerts) {
        let before = before.active.iter();
        self.active
            .extend(before.map(|(labels, alert)| (labels.clone(), alert.clone())));
    }

    /// Goes on to `now`, when the condition holds for `found`. Fails, and forgets all, if more than
    /// `limit` are active; zero is no limit.
    pub fn advance(
        &mut self,
        found: Vec<FoundAlert>,
        now: Instant,
        settings: &AlertSettings,
        limit: usize,
    ) -> Result<(), RuleError> {
        let holds: HashSet<Labels> = found.iter().map(|alert| alert.labels.clone()).collect();
        for alert in found {
            self.find(alert, now);
        }
        let mut active_count = 0;
        self.active.retain(|labels, alert| {
            let holds = holds.contains(labels);
            let (is_active, is_kept) = step(alert, holds, now, settings);
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

    fn find(&mut self, found: FoundAlert, now: Instant) {
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

    /// The samples about those that are pending or fire, two each; none before
    /// [`Alerts::is_restored`].
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

    /// Those that are due to be sent; they count as sent from here on.
    pub fn due(&mut self, sending: &Sending) -> Vec<Alert> {
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

    /// What finds the series that a process before this one wrote about the alerts of a rule.
    pub fn matchers(name: &str, labels: &Texts) -> Vec<Matcher> {
        let mut builder = series_labels(name, labels, None);
        builder.set(METRIC_NAME, ALERTS_FOR_STATE.as_bytes());
        // What a template becomes is not known.
        let is_plain = |value: &[u8]| !value.windows(2).any(|pair| pair == b"{{");
        let pairs = builder.iter().filter(|(_, value)| is_plain(value));
        let equal = |(name, value)| Matcher::new(name, MatchOp::Equal, value);
        pairs.filter_map(|pair| equal(pair).ok()).collect()
    }

    /// Takes up at `now` what `kept` says of alerts that are active again: the time for which they
    /// were pending counts, the time of the outage does not.
    pub fn restore(
        &mut self,
        kept: &[KeptSince],
        now: Instant,
        hold: Duration,
        settings: &RestoreSettings,
    ) {
        for since in kept {
            let mut labels = LabelsBuilder::from_labels(since.labels.as_ref());
            let labels = labels.remove(METRIC_NAME).build();
            if let Some(alert) = self.active.get_mut(&labels) {
                let down_at = Instant::from_seconds(since.time.div_euclid(1000));
                let active_at = Instant::from_seconds(since.value as i64);
                alert.active_at = resumed(active_at, down_at, now, hold, settings);
            }
        }
        self.is_restored = true;
    }

    /// The clock was set back by so much: what was so for a time is so for the same time by the new
    /// clock.
    pub fn set_back(&mut self, by: Duration) {
        for alert in self.active.values_mut() {
            alert.set_back(by);
        }
    }

    /// Goes on at `now` after evaluations from `from` on were skipped: pending alerts as
    /// [`Alerts::restore`] has it; those that fired go on firing until an evaluation says
    /// otherwise.
    pub fn skip(
        &mut self,
        from: Instant,
        now: Instant,
        hold: Duration,
        settings: &RestoreSettings,
    ) {
        let is_long = now.since(from) > settings.outage_tolerance;
        self.active
            .retain(|_, alert| alert.state != AlertState::Pending || !is_long);
        for alert in self.active.values_mut() {
            if alert.state == AlertState::Pending {
                alert.active_at = resumed(alert.active_at, from, now, hold, settings);
            }
        }
    }
}

/// Goes on with one alert. Says whether it is pending or fires, and whether it is kept.
fn step(alert: &mut Alert, holds: bool, now: Instant, settings: &AlertSettings) -> (bool, bool) {
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
    let is_due = now.is_since(alert.active_at, settings.hold);
    match alert.state {
        AlertState::Pending if is_due => {
            alert.state = AlertState::Firing;
            alert.fired_at = Some(now);
        }
        // The rule was given a longer `for`.
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

/// Whether an alert whose condition holds no more goes on firing.
fn keeps_firing(alert: &mut Alert, now: Instant, settings: &AlertSettings) -> bool {
    if alert.state != AlertState::Firing || settings.keep_firing_for.is_zero() {
        return false;
    }
    let since = *alert.keep_firing_since.get_or_insert(now);
    !now.is_since(since, settings.keep_firing_for)
}

/// The labels that the series about an alert, or about all alerts of a rule, have.
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

/// Since when an alert counts as active that was so from `active_at` to `down_at`.
fn resumed(
    active_at: Instant,
    down_at: Instant,
    now: Instant,
    hold: Duration,
    settings: &RestoreSettings,
) -> Instant {
    let pending = down_at.since(active_at);
    match hold.checked_sub(pending) {
        // It fired: it will again with the next evaluation, if it should.
        None | Some(Duration::ZERO) => active_at,
        Some(left) if left < settings.grace_period => now.after(settings.grace_period).before(hold),
        Some(_) => active_at.after(now.since(down_at)),
    }
}

#[cfg(test)]
mod tests;

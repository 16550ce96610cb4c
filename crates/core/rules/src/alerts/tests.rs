//! Tests of alert transitions with evaluations ten seconds apart.

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn at(evaluation: usize) -> RuleInstant {
    RuleInstant::from_seconds(10 * evaluation as i64)
}

fn found(i: &str) -> ActiveAlert {
    ActiveAlert {
        labels: Labels::from_pairs([("alertname", "A"), ("i", i)]),
        annotations: Vec::new(),
        value: 1.0,
    }
}

/// Evaluates once for each character of `holds`; `x` means that the condition is true. Compares the
/// resulting states with `want`: `p`, `f`, `r` (resolved) or `-` (removed).
fn check(hold: u64, keep: u64, holds: &str, want: &str) {
    let settings = AlertSettings {
        hold: SECOND * hold as u32,
        keep_firing_for: SECOND * keep as u32,
        annotations: Vec::new(),
    };
    let mut alerts = RuleAlerts::from_saved(Vec::new(), true);
    let mut states = String::new();
    for (i, c) in holds.chars().enumerate() {
        let found = (c == 'x').then(|| found("1")).into_iter().collect();
        alerts.advance(found, at(i), &settings, 0).unwrap();
        states.push(match alerts.iter().next().map(|alert| alert.state) {
            None => '-',
            Some(AlertState::Pending) => 'p',
            Some(AlertState::Firing) => 'f',
            Some(AlertState::Inactive) => 'r',
        });
        alerts.take_due(&AlertSendParams {
            instant: at(i),
            valid_from: at(i),
            resend_delay: SECOND * 60,
            interval: SECOND * 10,
            only_changes: false,
        });
    }
    assert_eq!(
        states, want,
        "for {hold}s, keep_firing_for {keep}s: {holds}"
    );
}

#[test]
fn alerts_fire_and_resolve_as_in_prometheus() {
    check(0, 0, "xx..x", "ffrrf");
    check(20, 0, "xxxx.", "ppffr");
    check(20, 0, "xx.xxx", "pp-ppf");
    check(0, 20, "x...x", "fffrf");
    check(0, 20, "x.x...", "fffffr");
    // A resolved alert is sent for fifteen minutes.
    let quiet = ".".repeat(92);
    let want = format!("f{}-", "r".repeat(91));
    check(0, 0, &format!("x{quiet}"), &want);
}

#[test]
fn alerts_over_the_limit_are_forgotten_with_an_error() {
    let settings = AlertSettings::default();
    let mut alerts = RuleAlerts::from_saved(Vec::new(), true);
    alerts
        .advance(vec![found("1")], at(0), &settings, 1)
        .unwrap();
    let two = vec![found("1"), found("2")];
    let e = alerts.advance(two, at(1), &settings, 1).unwrap_err();
    assert_eq!(e.to_string(), "exceeded limit of 1 with 2 alerts");
    assert_eq!(alerts.iter().count(), 0);
}

#[test]
fn alerts_of_a_rule_with_a_longer_for_turn_pending() {
    let mut alerts = RuleAlerts::from_saved(Vec::new(), true);
    let mut settings = AlertSettings::default();
    alerts
        .advance(vec![found("1")], at(0), &settings, 0)
        .unwrap();
    assert_eq!(alerts.state(), AlertState::Firing);
    settings.hold = SECOND * 60;
    alerts
        .advance(vec![found("1")], at(1), &settings, 0)
        .unwrap();
    assert_eq!(alerts.state(), AlertState::Pending);
    assert_eq!(alerts.iter().next().unwrap().fired_at, None);
}

#[test]
fn alerts_are_shown_by_two_series_each() {
    let settings = AlertSettings {
        hold: SECOND * 10,
        ..AlertSettings::default()
    };
    let mut alerts = RuleAlerts::from_saved(Vec::new(), false);
    let labels = Texts::from([("severity".to_owned(), "page".to_owned())]);
    let shown = |alerts: &RuleAlerts| -> Vec<String> {
        let samples = alerts.samples("A", &labels).into_iter();
        samples
            .map(|(labels, value)| format!("{labels} {value}"))
            .collect()
    };
    alerts
        .advance(vec![found("1")], at(7), &settings, 0)
        .unwrap();
    assert_eq!(shown(&alerts), [""; 0], "nothing before it is restored");
    alerts.is_restored = true;
    let series = |name: &str, state: &str, value: i64| {
        format!(
            "{{__name__=\"{name}\", alertname=\"A\"{state}, i=\"1\", severity=\"page\"}} {value}"
        )
    };
    let both = |state: &str| {
        let state = format!(", alertstate=\"{state}\"");
        [
            series("ALERTS", &state, 1),
            series("ALERTS_FOR_STATE", "", 70),
        ]
    };
    assert_eq!(shown(&alerts), both("pending"));
    alerts
        .advance(vec![found("1")], at(8), &settings, 0)
        .unwrap();
    assert_eq!(shown(&alerts), both("firing"));
    alerts.advance(Vec::new(), at(9), &settings, 0).unwrap();
    assert_eq!(shown(&alerts), [""; 0]);
}

/// Restores at second 10,000 an alert that was active from second `since` to second `down`.
fn check_restore(since: i64, down: i64, want: i64) {
    let settings = RestoreSettings {
        outage_tolerance: SECOND * 3600,
        grace_period: SECOND * 600,
    };
    let hold = SECOND * 1800;
    let rule = AlertSettings {
        hold,
        ..AlertSettings::default()
    };
    let now = RuleInstant::from_seconds(10_000);
    let mut alerts = RuleAlerts::from_saved(Vec::new(), false);
    alerts.advance(vec![found("1")], now, &rule, 0).unwrap();
    let mut labels = LabelsBuilder::from_labels(found("1").labels.as_ref());
    labels.set(METRIC_NAME, ALERTS_FOR_STATE.as_bytes());
    let kept = AlertStateSample {
        labels: labels.build(),
        time: down * 1000,
        value: since as f64,
    };
    alerts.restore(&[kept], now, hold, &settings);
    let alert = alerts.iter().next().unwrap();
    assert_eq!(alert.active_at.seconds(), want, "{since} {down}");
    assert!(alerts.is_restored);
}

#[test]
fn alerts_that_are_restored_count_the_time_that_they_were_pending() {
    // It was firing, so it fires again immediately.
    check_restore(5_000, 9_000, 5_000);
    // Pending for 1,000 of 1,800 seconds: the outage does not count.
    check_restore(8_000, 9_000, 9_000);
    // Less time was left than the grace period, which is used instead.
    check_restore(7_300, 9_000, 10_000 + 600 - 1_800);
}

#[test]
fn alerts_after_skipped_instants_go_on_firing_and_pending() {
    let settings = RestoreSettings {
        outage_tolerance: SECOND * 3600,
        grace_period: SECOND * 600,
    };
    let alert = |i: &str, state, active: i64| Alert {
        labels: found(i).labels,
        state,
        active_at: RuleInstant::from_seconds(active),
        ..Alert::default()
    };
    let start = || {
        let saved = vec![
            alert("1", AlertState::Firing, 0),
            alert("2", AlertState::Pending, 900),
        ];
        RuleAlerts::from_saved(saved, true)
    };
    let active = |alerts: &RuleAlerts| -> Vec<i64> {
        alerts
            .iter()
            .map(|alert| alert.active_at.seconds())
            .collect()
    };
    let hold = SECOND * 1800;
    let from = RuleInstant::from_seconds(1_000);
    let mut alerts = start();
    alerts.resume_after_skip(from, from.after(SECOND * 3000), hold, &settings);
    assert_eq!(active(&alerts), [0, 3_900]);
    let mut alerts = start();
    alerts.resume_after_skip(from, from.after(SECOND * 4000), hold, &settings);
    assert_eq!(active(&alerts), [0], "too long ago for what was pending");
}

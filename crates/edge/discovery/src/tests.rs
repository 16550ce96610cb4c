//! Tests of target groups in JSON, and of the metrics of running discoveries.

use super::*;
use firn_model::env::sim::SimClock;
use firn_model::metrics::{Collect, MetricSink, MetricValue};

#[test]
fn group_with_a_field_unknown_is_refused() {
    let read = serde_json::from_str::<Vec<TargetGroup>>;
    let e = read(r#"[{"targets": [], "lables": {}}]"#).unwrap_err();
    assert!(e.to_string().starts_with("unknown field `lables`"), "{e}");
    assert_eq!(read("[{}]").unwrap(), [TargetGroup::default()]);
}

#[test]
fn groups_in_yaml_are_validated_and_read() {
    let groups = read_yaml_groups("- targets: [a, b]\n  labels: {x: y}\n- targets: [c]\n").unwrap();
    assert_eq!(groups.len(), 2);
    assert_eq!(groups[0].labels["x"], "y");
    assert_eq!(read_yaml_groups("").unwrap(), []);
    for (text, want) in [
        ("a: b", "1:1: expected a list of target groups"),
        (
            "- targets: [a]\n  label: {}",
            "2:3: unknown key \"label\" in groups[0]",
        ),
        ("-\n", "1:2: nil target group item found"),
    ] {
        assert_eq!(read_yaml_groups(text).unwrap_err(), want, "{text}");
    }
}

/// Metric sink that formats each metric as a line.
#[derive(Default)]
struct Lines(Vec<String>);

impl MetricSink for Lines {
    fn metric(&mut self, name: &str, _: &str, labels: &[(&str, &str)], value: MetricValue<'_>) {
        let value = match value {
            MetricValue::Counter(value) | MetricValue::Gauge(value) => value.to_string(),
            MetricValue::Histogram(_) => "histogram".to_owned(),
        };
        let labels: Vec<String> = labels.iter().map(|(n, v)| format!("{n}={v}")).collect();
        self.0.push(format!("{name} {} {value}", labels.join(",")));
    }
}

#[test]
fn discoveries_are_counted_by_owner_and_mechanism_while_they_run() {
    let clock = Arc::new(SimClock::default());
    clock.set_ms(5_000);
    let lent = DiscoveryContext {
        bytes_max: 1 << 20,
        clock,
        metrics: DiscoveryMetrics::default(),
    };
    let start = |purpose, config: &str, count: usize| {
        let owner = DiscoveryOwner {
            purpose,
            config: config.into(),
        };
        let group = TargetGroup {
            targets: vec!["a".into(); count],
            ..TargetGroup::default()
        };
        let settings = DiscoverySettings::Static(vec![group]);
        Discovery::start(&settings, &lent, &owner, Arc::new(Notify::new()))
    };
    let _held = (start("scrape", "web", 2), start("scrape", "web", 1));
    let gone = start("notify", "config-0", 1);
    let seen = |name: &str| {
        let mut lines = Lines::default();
        lent.metrics.collect(&mut lines);
        lines.0.retain(|line| line.starts_with(name));
        lines.0
    };
    let scraped = "config=web,mechanism=static,name=scrape";
    assert_eq!(
        seen("firn_sd_discovered_targets"),
        [
            "firn_sd_discovered_targets config=config-0,mechanism=static,name=notify 1".to_owned(),
            format!("firn_sd_discovered_targets {scraped} 3"),
        ]
    );
    drop(gone);
    assert_eq!(
        seen(""),
        [
            format!("firn_sd_received_updates_total {scraped} 2"),
            format!("firn_sd_refresh_failures_total {scraped} 0"),
            format!("firn_sd_discovered_targets {scraped} 3"),
            format!("firn_sd_last_update_timestamp_seconds {scraped} 5"),
            format!("firn_sd_refresh_duration_seconds {scraped} histogram"),
        ]
    );
}

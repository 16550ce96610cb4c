//! Bodies as batches, with the labels of their target.

use super::*;
use crate::limits::WireLimits;
use firn_model::batch::Batch;
use firn_model::labels::Labels;
use firn_model::metrics::{Counter, DurationHistogram, Sink, Value as Metric};
use std::time::Duration;

fn options() -> ParseOptions {
    ParseOptions {
        target_labels: Labels::from_pairs([("instance", "i"), ("job", "j")]),
        honor_labels: false,
        honor_timestamps: true,
        time: 1000,
        limits: WireLimits::default(),
    }
}

/// What a text parses to: one line a series, or the error.
fn parsed(text: &str, options: &ParseOptions) -> String {
    let mut batch = Batch::default();
    match parse(text.as_bytes(), options, &mut batch) {
        Err(e) => format!("error: {e}"),
        Ok(_) => batch
            .iter()
            .map(|s| format!("{} {}@{}\n", s.labels, s.values[0], s.times[0]))
            .collect(),
    }
}

#[test]
fn parse_target_labels_win_unless_honored() {
    let text = "a{job=\"x\",exported_job=\"y\",z=\"1\"} 1 5\nb 2";
    let wanted = r#"{__name__="a", exported_exported_job="x", exported_job="y", instance="i", job="j", z="1"} 1@5
{__name__="b", instance="i", job="j"} 2@1000
"#;
    assert_eq!(parsed(text, &options()), wanted);
    let honoring = ParseOptions {
        honor_labels: true,
        honor_timestamps: false,
        ..options()
    };
    let wanted = r#"{__name__="a", exported_job="y", instance="i", job="x", z="1"} 1@1000
{__name__="b", instance="i", job="j"} 2@1000
"#;
    assert_eq!(parsed(text, &honoring), wanted);
    let exposition = parse(text.as_bytes(), &options(), &mut Batch::default()).unwrap();
    assert_eq!(exposition.with_own_time, [0]);
}

#[test]
fn parse_over_a_label_limit_fails() {
    let mut options = options();
    options.limits.label_value_bytes_max = 3;
    let wanted = "error: label value too long: 4 bytes, limit 3";
    assert_eq!(parsed("a{b=\"1234\"} 1", &options), wanted);
    options.limits.label_count_max = 3;
    let wanted = "error: too many labels: 4, limit 3";
    assert_eq!(parsed("a{b=\"1\"} 1", &options), wanted);
}

#[test]
fn parse_of_what_the_sink_wrote_gives_back_the_same() {
    let counter = Counter::default();
    counter.add(3);
    let histogram = DurationHistogram::default();
    histogram.observe(Duration::from_millis(2));
    histogram.observe(Duration::from_secs(100));
    let mut sink = TextSink::new();
    sink.metric(
        "a_total",
        "All \\ of\nit.",
        &[("x", "1")],
        Metric::Counter(counter.get() as f64),
    );
    sink.metric(
        "a_total",
        "All \\ of\nit.",
        &[("x", "a\"b\\\n")],
        Metric::Counter(0.0),
    );
    for value in [f64::NAN, f64::INFINITY, -1e300, 1e-9, 0.1, 123456789.0] {
        sink.metric("g", "", &[], Metric::Gauge(value));
    }
    sink.metric(
        "h_seconds",
        "h",
        &[("z", "1")],
        Metric::Histogram(&histogram),
    );
    let text = sink.into_text();
    assert!(text.starts_with(
        "# HELP a_total All \\\\ of\\nit.\n# TYPE a_total counter\na_total{x=\"1\"} 3\n"
    ));
    assert_eq!(text.matches("# TYPE a_total").count(), 1);
    assert!(
        text.contains("h_seconds_bucket{le=\"0.0025\",z=\"1\"} 1\n"),
        "{text}"
    );
    assert!(text.contains("h_seconds_bucket{le=\"+Inf\",z=\"1\"} 2\n"));
    assert!(text.ends_with("h_seconds_sum{z=\"1\"} 100.002\nh_seconds_count{z=\"1\"} 2\n"));
    let mut batch = Batch::default();
    parse(text.as_bytes(), &options(), &mut batch).unwrap();
    let value = |i: usize| batch.series(i).values[0];
    assert_eq!(batch.series(1).labels.get("x"), b"a\"b\\\n");
    assert!(value(2).is_nan());
    let values: Vec<f64> = (3..8).map(value).collect();
    assert_eq!(values, [f64::INFINITY, -1e300, 1e-9, 0.1, 123456789.0]);
}

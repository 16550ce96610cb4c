//! Tests that the metrics of this process can be parsed again.

use super::*;
use firn_model::metrics::{Counter, DurationHistogram, MetricSink, MetricValue as Metric};
use std::time::Duration;

#[test]
fn sink_text_reads_back_the_same() {
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
    let (mut parser, mut pairs) = (
        ExpositionParser::new(
            ExpositionFormat::Text,
            text.as_bytes(),
            ParserSwitches::default(),
        ),
        LabelPairs::default(),
    );
    let mut values = Vec::new();
    while parser.advance().unwrap() {
        if let ExpositionEvent::Sample(ExpositionSample {
            value: ExpositionValue::Float(value),
            ..
        }) = parser.event()
        {
            parser.labels(&mut pairs).unwrap();
            if values.len() == 1 {
                assert_eq!(pairs.iter().last(), Some((&b"x"[..], &b"a\"b\\\n"[..])));
            }
            values.push(value);
        }
    }
    assert!(values[2].is_nan());
    assert_eq!(
        values[3..8],
        [f64::INFINITY, -1e300, 1e-9, 0.1, 123456789.0]
    );
}

#[test]
fn sink_of_families_reads_back_the_same_with_native_histograms() {
    let histogram = DurationHistogram::default();
    for millis in [0, 1, 1, 9, 200_000] {
        histogram.observe(Duration::from_millis(millis));
    }
    let mut sink = FamilySink::new();
    for x in ["1", "2"] {
        sink.metric("a_total", "All.", &[("x", x)], Metric::Counter(3.0));
    }
    sink.metric("g", "", &[], Metric::Gauge(-0.5));
    sink.metric(
        "h_seconds",
        "h",
        &[("z", "1")],
        Metric::Histogram(&histogram),
    );
    let body = sink.into_body();
    let both = ParserSwitches {
        native_histograms: true,
        always_classic_histograms: true,
        ..ParserSwitches::default()
    };
    let shown = read(ExpositionFormat::Protobuf, &body, both);
    let native = show_histogram(&histogram.to_native_histogram());
    for part in ["a_total", "-0.5", "h_seconds_bucket", &native] {
        assert!(shown.contains(part), "{part}\n{shown}");
    }
    assert!(!shown.contains("error"), "{shown}");
    assert_eq!(shown.matches("type a_total counter").count(), 1);
}

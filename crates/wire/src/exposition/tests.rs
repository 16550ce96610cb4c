//! Expositions as exporters write them, and as they should not.

use super::*;
use firn_model::env::sim::SimRng;
use firn_model::labels::is_canonical;
use firn_model::metrics::{Counter, DurationHistogram, Sink, Value};
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

fn check(text: &str, wanted: &str) {
    let mut options = options();
    options.target_labels = Labels::empty();
    assert_eq!(parsed(text, &options).trim_end(), wanted, "{text}");
}

#[test]
fn parse_series_lines_as_prometheus() {
    check("a 1", r#"{__name__="a"} 1@1000"#);
    check("a:b_1 \t 1.5e3 \t -5 ", r#"{__name__="a:b_1"} 1500@-5"#);
    check("  a{} 1", r#"{__name__="a"} 1@1000"#);
    check("a {b=\"c\"} 1", r#"{__name__="a", b="c"} 1@1000"#);
    check("a{b=\"c\",}1", r#"{__name__="a", b="c"} 1@1000"#);
    check(
        "a{ b = \"c\" , d=\"\" } +1",
        r#"{__name__="a", b="c"} 1@1000"#,
    );
    check(
        r#"a{b="\\ \" \x"} 1"#,
        r#"{__name__="a", b="\\ \" \\x"} 1@1000"#,
    );
    check(r#"a{b="1\n2"} 1"#, r#"{__name__="a", b="1\n2"} 1@1000"#);
    check(
        r##"a{b="}, {",c="#"} 1"##,
        r##"{__name__="a", b="}, {", c="#"} 1@1000"##,
    );
    check(
        r#"{"my.name",b="é"} 1"#,
        r#"{__name__="my.name", b="é"} 1@1000"#,
    );
    check(r#"{b="c","n"} 1"#, r#"{__name__="n", b="c"} 1@1000"#);
    check(r#"a{"x.y"="z"} 1"#, r#"{__name__="a", x.y="z"} 1@1000"#);
    for (word, value) in [
        ("NaN", "NaN"),
        ("+Inf", "inf"),
        ("-inf", "-inf"),
        ("Infinity", "inf"),
    ] {
        check(
            &format!("a {word}"),
            &format!(r#"{{__name__="a"}} {value}@1000"#),
        );
    }
    check("# c\n#HELP a b\n\n#\n  # x", "");
}

#[test]
fn parse_bad_line_fails_with_its_number() {
    let cases = [
        (
            "a 1\nb",
            "line 2: expected a value after the metric, got \"\"",
        ),
        ("1a 1", "line 1: expected a metric name, got \"1a 1\""),
        ("a{b} 1", "line 1: expected an equal sign, got \"} 1\""),
        (
            "a{1=\"2\"} 1",
            "line 1: expected a label name, got \"1=\\\"2\\\"} 1\"",
        ),
        ("a{b=c} 1", "line 1: expected a label value, got \"c} 1\""),
        ("a{b=\"c} 1", "line 1: expected a closing quote"),
        (
            "a{b=\"c\" d=\"e\"} 1",
            "line 1: expected a comma or a closing brace, got \"d=\\\"e\\\"} 1\"",
        ),
        (
            "a{b=\"c\"",
            "line 1: expected a comma or a closing brace, got \"\"",
        ),
        ("a{\"\"=\"c\"} 1", "line 1: label name is empty"),
        (
            "a{b=\"c\",b=\"d\"} 1",
            "line 1: label name \"b\" is not unique",
        ),
        ("{b=\"c\"} 1", "line 1: metric name is missing"),
        ("a 1_0", "line 1: invalid value \"1_0\""),
        ("a 0x1p3", "line 1: invalid value \"0x1p3\""),
        ("a 1\r", "line 1: invalid value \"1\\r\""),
        ("a{} ", "line 1: invalid value \"\""),
        ("a 1 1.5", "line 1: invalid timestamp \"1.5\""),
        (
            "a 1 1 1",
            "line 1: expected the end of the line, got \" 1\"",
        ),
        ("# TYPE a thing", "line 1: invalid metric type \"thing\""),
        (
            "# HELP 1",
            "line 1: expected a metric name after HELP, got \"1\"",
        ),
    ];
    for (text, wanted) in cases {
        check(text, &format!("error: {wanted}"));
    }
    let e = parse(b"a\xff 1", &options(), &mut Batch::default()).unwrap_err();
    assert_eq!(e.to_string(), "line 1: invalid UTF-8: \"a\u{fffd} 1\"");
}

#[test]
fn parse_metadata_is_collected_by_family() {
    let text = "# HELP a say \\\\ \\n\n# TYPE a counter\na 1\n# UNIT a seconds\n# TYPE b untyped\n";
    let exposition = parse(text.as_bytes(), &options(), &mut Batch::default()).unwrap();
    let a = Metadata {
        name: "a".into(),
        kind: "counter",
        help: "say \\ \n".into(),
        unit: "seconds".into(),
    };
    let b = Metadata {
        name: "b".into(),
        kind: "unknown",
        ..Metadata::default()
    };
    assert_eq!(exposition.metadata, [a, b]);
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
    let wanted = "error: line 1: label value too long: 4 bytes, limit 3";
    assert_eq!(parsed("a{b=\"1234\"} 1", &options), wanted);
    options.limits.label_count_max = 3;
    let wanted = "error: line 1: too many labels: 4, limit 3";
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
        Value::Counter(counter.get() as f64),
    );
    sink.metric(
        "a_total",
        "All \\ of\nit.",
        &[("x", "a\"b\\\n")],
        Value::Counter(0.0),
    );
    for value in [f64::NAN, f64::INFINITY, -1e300, 1e-9, 0.1, 123456789.0] {
        sink.metric("g", "", &[], Value::Gauge(value));
    }
    sink.metric(
        "h_seconds",
        "h",
        &[("z", "1")],
        Value::Histogram(&histogram),
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

#[test]
fn parse_of_mutated_text_never_panics_and_stays_canonical() {
    let sound =
        "# HELP a \\\\ é\n# TYPE a counter\na{b=\"1\",c=\"\\n\"} 1 5\n{\"x\",d=\"é\"} NaN\n";
    let pieces = [
        "{", "}", "\"", "\\", ",", "=", "\n", " ", "#", "é", "\u{0}", "-", "9",
    ];
    for seed in 1..=5_000 {
        let random = SimRng::new(seed);
        let mut text = sound.as_bytes().to_vec();
        for _ in 0..random.below(6) {
            let at = random.below(text.len() as u64 + 1) as usize;
            let piece = pieces[random.below(pieces.len() as u64) as usize].as_bytes();
            match random.below(4) {
                0 => text.truncate(at),
                1 if at < text.len() => text[at] ^= 1 << random.below(8),
                2 if at < text.len() => drop(text.remove(at)),
                _ => drop(text.splice(at..at, piece.iter().copied())),
            }
        }
        let mut batch = Batch::default();
        if parse(&text, &options(), &mut batch).is_ok() {
            for series in batch.iter() {
                assert!(is_canonical(series.labels.as_bytes()), "seed {seed}");
                assert!(!series.labels.get(METRIC_NAME).is_empty(), "seed {seed}");
            }
        }
    }
}

//! Compares templates with results recorded from upstream, and tests the limits that upstream does
//! not have.

use super::*;
use firn_model::cancel::CancelReason;
use firn_model::env::Rng;
use firn_model::env::sim::SimRng;
use firn_model::histogram::{BucketSpan, Histogram, HistogramCounts, ResetHint};
use firn_model::labels::Labels;
use firn_model::sample::TimestampMs;
use std::io::Read;
use std::sync::Arc;

/// Recorded cases, one per line, compressed with gzip. The head of the file describes how they were
/// recorded.
const ANSWERS: &[u8] = include_bytes!("../tests/text.jsonl.gz");

/// Returns the text of a recorded file.
pub(crate) fn unpack_answers(packed: &[u8]) -> String {
    let mut text = String::new();
    let mut reader = flate2::read::GzDecoder::new(packed);
    reader.read_to_string(&mut text).unwrap();
    text
}

#[derive(Debug, serde::Deserialize)]
struct Case {
    /// Value of the sample; 91.5 if it is missing.
    value: Option<String>,
    text: String,
    gives: Option<String>,
    fails: Option<String>,
}

fn histogram() -> Arc<Histogram> {
    Arc::new(Histogram {
        reset_hint: ResetHint::Unknown,
        schema: 0,
        zero_threshold: 0.001,
        sum: 18.5,
        positive_spans: vec![
            BucketSpan {
                offset: 0,
                length: 2,
            },
            BucketSpan {
                offset: 1,
                length: 1,
            },
        ],
        negative_spans: vec![BucketSpan {
            offset: 0,
            length: 1,
        }],
        custom_values: Vec::new(),
        counts: HistogramCounts::Float {
            count: 10.0,
            zero_count: 2.0,
            positive: vec![1.0, 3.0, 2.0],
            negative: vec![2.0],
        },
    })
}

pub(super) fn labels(pairs: &[(&str, &str)]) -> Labels {
    Labels::from_pairs(pairs.iter().copied())
}

fn sample(pairs: &[(&str, &str)], value: TemplateSampleValue) -> QueriedSample {
    QueriedSample {
        labels: labels(pairs),
        value,
    }
}

/// Returns the query results that were used for the recordings.
pub(super) fn answer(query: &str, time: TimestampMs) -> Result<Vec<QueriedSample>, String> {
    let up = |instance, zone, value| {
        let pairs = [("__name__", "up"), ("instance", instance), ("zone", zone)];
        sample(&pairs, TemplateSampleValue::Float(value))
    };
    Ok(match query {
        "empty" => Vec::new(),
        "fail" => return Err("the store is gone".to_owned()),
        "up" => vec![up("c", "x", 1.0), up("a", "y", 0.0), up("b", "x", 2.5)],
        "hist" => vec![sample(
            &[("job", "h")],
            TemplateSampleValue::Histogram(histogram()),
        )],
        "str" => vec![sample(
            &[("__value__", "text of it")],
            TemplateSampleValue::Float(1e9),
        )],
        _ => {
            let pairs = [("query", query), ("at", &time.to_string())];
            vec![sample(&pairs, TemplateSampleValue::Float(7.0))]
        }
    })
}

fn expand_case(value: Option<&str>, text: &str, limits: &TemplateLimits) -> Result<String, String> {
    let value = match value {
        None => TemplateSampleValue::Float(91.5),
        Some("histogram") => TemplateSampleValue::Histogram(histogram()),
        Some(number) => TemplateSampleValue::Float(number::parse_float(number).unwrap()),
    };
    let data = AlertData {
        alert: "Up",
        labels: &Labels::from_pairs([
            ("instance", "web-1.example.org:9100"),
            ("job", "node"),
            ("path", "/a b?c=<d>&e='f'"),
            ("word", "ünï 日本"),
            ("number", "12.5"),
        ]),
        value,
        external_labels: &labels(&[("region", "eu"), ("replica", "r1")]),
        external_url: "http://prom.example.org:9090/a%20b",
        path_prefix: "/a b",
        time: 1_700_000_000_123,
    };
    expand(text, &data, &mut answer, limits).map_err(|e| e.to_string())
}

#[test]
fn templates_give_what_upstream_gives() {
    let mut wrong = Vec::new();
    let answers = unpack_answers(ANSWERS);
    let lines = answers.lines().filter(|line| !line.starts_with('#'));
    let mut count = 0;
    for line in lines {
        let case: Case = serde_json::from_str(line).unwrap();
        let expected = case.gives.ok_or_else(|| case.fails.unwrap());
        let got = expand_case(
            case.value.as_deref(),
            &case.text,
            &TemplateLimits::default(),
        );
        count += 1;
        if got != expected {
            let value = case.value.unwrap_or_default();
            wrong.push(format!(
                "{value} {}\n  want {expected:?}\n  got  {got:?}",
                case.text
            ));
        }
    }
    assert!(count > 1500, "{count} cases");
    assert!(
        wrong.is_empty(),
        "{} of {count}:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

#[test]
fn templates_that_do_too_much_are_stopped() {
    let twice = "{{ $x = print $x $x }}".repeat(40);
    let args = "{{ $x = args $x $x }}".repeat(60);
    let nested = |count: usize| format!("{{{{ {}1{} }}}}", "(".repeat(count), ")".repeat(count));
    let chain = |count: usize| {
        let middle = "{{ else if false }}".repeat(count);
        format!("{{{{ if false }}}}{middle}{{{{ else }}}}end{{{{ end }}}}")
    };
    let wide = r#"{{ $s := printf "%1000000d" 1 }}{{ range 100 }}{{ $s = toUpper $s }}{{ end }}"#;
    let cases = [
        (
            "{{ range 1000000000 }}{{ end }}".to_owned(),
            "more than 1000000 steps",
        ),
        (
            "{{ range 1000000 }}{{ range 1000000 }}{{ end }}{{ end }}".into(),
            "more than 1000000 s",
        ),
        (
            "{{ define \"x\" }}{{ template \"x\" }}{{ end }}{{ template \"x\" }}".into(),
            "depth (1000)",
        ),
        (format!("{{{{ $x := \"ab\" }}}}{twice}"), "text is too long"),
        (
            wide.to_owned(),
            "more than 16777216 bytes made by functions",
        ),
        (
            "{{ range 100000 }}0123456789ABCDEF{{ end }}".into(),
            "output is longer than 1048576 b",
        ),
        ("{{ printf \"%9999999d\" 1 }}".into(), "text is too long"),
        ("{{ printf \"%.9999999f\" 1.0 }}".into(), "text is too long"),
        (
            "{{ range 1001 }}{{ $x := query \"up\" }}{{ end }}".into(),
            "more than 1000 queries",
        ),
        (nested(1200), "max expression depth exceeded"),
        (chain(1200), "max expression depth exceeded"),
        (
            "{{ range (toDuration 5) }}{{ end }}".into(),
            "more than 1000000 steps",
        ),
        (
            "{{ $x := 1 }}{{ range 200000 }}{{ $x = args $x }}{{ end }}{{ $x }}".into(),
            "more than 100 values within values",
        ),
        (
            format!("{{{{ $x := 1 }}}}{args}{{{{ $x }}}}"),
            "text is longer than 1048576 bytes",
        ),
        (
            "{{ reReplaceAll \"\\\\pL{1000}\" \"\" \"a\" }}".into(),
            "needs more than 1048576 bytes",
        ),
    ];
    for (text, expected) in cases {
        let error = expand_case(None, &text, &TemplateLimits::default()).unwrap_err();
        assert!(error.contains(expected), "{expected}: {:.300}", error);
    }
    assert_eq!(
        expand_case(None, &nested(900), &TemplateLimits::default()),
        Ok("1".to_owned())
    );
    assert_eq!(
        expand_case(None, &chain(900), &TemplateLimits::default()),
        Ok("end".to_owned())
    );
}

#[test]
fn template_that_is_given_up_ends_with_its_next_step() {
    let limits = TemplateLimits {
        steps_max: usize::MAX,
        ..TemplateLimits::default()
    };
    limits.cancel.cancel(CancelReason::Timeout);
    let endless = "{{ range 9223372036854775807 }}{{ end }}";
    let error = expand_case(None, endless, &limits).unwrap_err();
    assert!(error.ends_with("query timed out"), "{error}");
}

#[test]
fn check_finds_what_cannot_be_read() {
    assert_eq!(
        check("Up", "{{ $labels.job }} {{ $value | humanize }}"),
        Ok(())
    );
    let error = check("Up", "a\n{{ $x }}").unwrap_err();
    assert_eq!(error, "template: __alert_Up:2: undefined variable \"$x\"");
}

/// Calls `expand` with 20,000 randomly changed texts and limits that keep each run short.
pub(super) fn expand_mutated(texts: &[String], mut expand: impl FnMut(&str, &TemplateLimits)) {
    let limits = TemplateLimits {
        steps_max: 2_000,
        output_bytes_max: 4 << 10,
        made_bytes_max: 64 << 10,
        queries_max: 20,
        depth_max: 50,
        ..TemplateLimits::default()
    };
    for seed in 0..20_000 {
        let rng = SimRng::new(seed);
        let below = |end: usize| (rng.next_u64() % end.max(1) as u64) as usize;
        let mut chars: Vec<char> = texts[below(texts.len())].chars().collect();
        for _ in 0..=below(4) {
            let at = below(chars.len());
            let other: Vec<char> = texts[below(texts.len())].chars().collect();
            let start = below(other.len());
            let piece = &other[start..other.len().min(start + 1 + below(12))];
            match below(3) {
                0 if !chars.is_empty() => drop(chars.remove(at)),
                1 => drop(chars.splice(at..at, piece.iter().copied())),
                _ => chars.truncate(at + 1),
            }
        }
        let text: String = chars.into_iter().collect();
        println!("seed {seed}: {text}");
        expand(&text, &limits);
    }
}

#[test]
fn mutated_templates_end_without_a_panic() {
    let answers = unpack_answers(ANSWERS);
    let texts: Vec<String> = answers
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| serde_json::from_str::<Case>(line).unwrap().text)
        .collect();
    expand_mutated(&texts, |text, limits| {
        let _ = expand_case(None, text, limits);
    });
}

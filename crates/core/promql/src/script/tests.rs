//! Tests of each form of the script format, and of whole scripts on a store in memory.

mod examples;
mod memory;

use super::command::{EvalCommand, ExpectedValue, ScriptCommand, parse_script};
use super::sequence::{ScriptSampleValue, Sequence, parse_scalar, parse_series, parse_start_times};
use super::*;
use crate::EvalTime;
use crate::grid::StepGrid;
use crate::mutation;
use firn_model::env::sim::InlineCompute;
use firn_model::histogram::HistogramCounts;
use memory::MemoryStore;

/// Returns the labels and values of a series line as text: `{a="b"} 1 _ stale`.
fn series_text(line: &str) -> Result<String, String> {
    let (labels, values) = parse_series(line)?;
    Ok(format!("{labels} {}", values_text(&values)))
}

fn values_text(values: &Sequence) -> String {
    let text = |value: &Option<ScriptSampleValue>| match value {
        None => "_".into(),
        Some(ScriptSampleValue::Float(v)) if firn_model::sample::is_stale(*v) => "stale".into(),
        Some(value) => value.describe(),
    };
    values.iter().map(text).collect::<Vec<String>>().join(" ")
}

#[test]
fn parse_series_reads_labels_and_repeats() {
    let cases = [
        ("x 1 2 3", r#"{__name__="x"} 1 2 3"#),
        (r#"x{a="b",c='d',} 1"#, r#"{__name__="x", a="b", c="d"} 1"#),
        (
            r#"{"x.y", `l.m`="n"} 1"#,
            r#"{__name__="x.y", "l.m"="n"} 1"#,
        ),
        (r#"{__name__="x"}	-1.5e-3"#, r#"{__name__="x"} -0.0015"#),
        (r#"x{__name__="y"} 1"#, r#"{__name__="x"} 1"#),
        ("{} 1", "{} 1"),
        ("sum{} 1", r#"{__name__="sum"} 1"#),
        ("x 1x2", r#"{__name__="x"} 1 1 1"#),
        ("x 1+2x2 3", r#"{__name__="x"} 1 3 5 3"#),
        ("x -1-2x2", r#"{__name__="x"} -1 -3 -5"#),
        ("x 1 +2", r#"{__name__="x"} 1 2"#),
        ("x 1e2+1e-1x1", r#"{__name__="x"} 100 100.1"#),
        ("x 0x3 1_000", r#"{__name__="x"} 0 0 0 0 1000"#),
        ("x _ _x2 stale 1", r#"{__name__="x"} _ _ _ stale 1"#),
        ("x NaN Inf -Inf +inf", r#"{__name__="x"} NaN inf -inf inf"#),
        ("x", r#"{__name__="x"} "#),
    ];
    for (line, expected) in cases {
        assert_eq!(series_text(line).as_deref(), Ok(expected), "{line}");
    }
}

#[test]
fn parse_series_refuses_what_is_no_series() {
    let cases = [
        "1",
        "x {a=\"b\"} 1",
        "x{a} 1",
        "x{a=\"b\" 1",
        "x{a=\"b\",a=\"b\"} 1",
        "x 1y",
        "x 1+2",
        "x 1x",
        "x _y",
        "x stalex3",
        "x foo",
        "x {{",
        "x {{schema:1}}y",
        "x {{schema:1 schema:2}}",
        "x {{nonsense:1}}",
        "x {{sum}}",
        "x {{count:a}}",
        "x {{buckets:1}}",
        "x {{z_bucket_w:-1}}",
        "x {{schema:1}}+{{schema:0}}x2",
        "x {{}}+{{}}",
        "x 1x100000",
        "x 1x99999 1x10",
        "x _x99999999999999999999",
        "x {{}}x100000",
    ];
    for line in cases {
        assert!(parse_series(line).is_err(), "{line}");
    }
}

#[test]
fn parse_scalar_reads_numbers_as_go_does() {
    let cases = [
        ("1", 1.0),
        ("-1.5", -1.5),
        ("0x10", 16.0),
        ("010", 8.0),
        ("1e3", 1000.0),
    ];
    for (line, expected) in cases {
        assert_eq!(parse_scalar(line), Some(expected), "{line}");
    }
    assert_eq!(parse_scalar("+Inf"), Some(f64::INFINITY));
    assert!(parse_scalar("NaN").is_some_and(f64::is_nan));
    for line in ["x", "--1", "+-1", "1 2", "{}"] {
        assert_eq!(parse_scalar(line), None, "{line}");
    }
}

#[test]
fn parse_series_reads_histograms() {
    let line = "x {{schema:1 sum:-0.3 count:3.5 z_bucket:7.1 z_bucket_w:0.05 \
                buckets:[5.1 10 0 7] offset:-3 n_buckets:[4.1 5] n_offset:-5 \
                counter_reset_hint:gauge}}";
    let (_, values) = parse_series(line).unwrap();
    let Some(Some(ScriptSampleValue::Histogram(found))) = values.first() else {
        panic!("no histogram in {values:?}");
    };
    assert!(found.hint_written);
    let found = &found.value;
    assert_eq!(
        (found.schema, found.sum, found.zero_threshold),
        (1, -0.3, 0.05)
    );
    assert_eq!(
        found.positive_spans,
        [firn_model::histogram::BucketSpan {
            offset: -3,
            length: 4
        }]
    );
    assert_eq!(
        found.negative_spans,
        [firn_model::histogram::BucketSpan {
            offset: -5,
            length: 2
        }]
    );
    let expected = HistogramCounts::Float {
        count: 3.5,
        zero_count: 7.1,
        positive: vec![5.1, 10.0, 0.0, 7.0],
        negative: vec![4.1, 5.0],
    };
    assert_eq!(found.counts, expected);
    found.validate().unwrap();
}

#[test]
fn parse_series_adds_histograms_up() {
    let cases = [
        (
            "{{sum:1 count:1}}+{{sum:2 count:3}}x1",
            "{{sum:1 count:1}} {{sum:3 count:4}}",
        ),
        (
            "{{sum:1 count:1}}-{{sum:2 count:3}}x1",
            "{{sum:1 count:1}} {{sum:-1 count:-2}}",
        ),
        (
            "{{buckets:[1 2]}}+{{buckets:[1 1] offset:1}}x2",
            "{{buckets:[1 2]}} {{buckets:[1 3 1]}} {{buckets:[1 4 2]}}",
        ),
        (
            "{{schema:-1 buckets:[1] offset:1}}+{{schema:0 buckets:[2 2] offset:1}}x1",
            "{{schema:-1 buckets:[1] offset:1}} {{schema:-1 buckets:[5] offset:1}}",
        ),
        (
            "{{n_buckets:[1]}}+{{n_buckets:[2]}}x1",
            "{{n_buckets:[1]}} {{n_buckets:[3]}}",
        ),
        ("{{count:1}}x1", "{{count:1}} {{count:1}}"),
    ];
    for (written, expected) in cases {
        let parse = |values: &str| parse_series(&format!("x {values}")).unwrap().1;
        let (found, expected) = (parse(written), parse(expected));
        assert_eq!(found.len(), expected.len(), "{written}");
        for (found, expected) in found.iter().flatten().zip(expected.iter().flatten()) {
            let (ScriptSampleValue::Histogram(found), ScriptSampleValue::Histogram(expected)) =
                (found, expected)
            else {
                panic!("{written} holds no histograms");
            };
            assert!(expected.matches(&found.value), "{written}: {found:?}");
        }
    }
}

#[test]
fn parse_start_times_reads_offsets() {
    let read = |line| parse_start_times(line).unwrap();
    let (labels, offsets) = read("x{a=\"b\"}@st -1m _ 30sx1 _x2 -1m+10sx2 -1ms-1msx1").unwrap();
    assert_eq!(labels.to_string(), r#"{__name__="x", a="b"}"#);
    let some = |ms: &[i64]| ms.iter().map(|ms| Some(*ms)).collect::<Vec<_>>();
    let mut expected = some(&[-60_000]);
    expected.push(None);
    expected.extend(some(&[30_000, 30_000]));
    expected.extend([None, None]);
    expected.extend(some(&[-60_000, -50_000, -40_000, -1, -2]));
    assert_eq!(offsets, expected);
    for line in ["x@st 5", "x@st 1m+", "x@st 1mx", "x{@st 1m", "x@st 1my"] {
        assert!(read(line).is_err(), "{line}");
    }
    assert!(parse_start_times("x 1 2").is_none());
}

fn read_one_eval(text: &str) -> EvalCommand {
    let mut commands = parse_script(text);
    match (commands.pop(), commands.is_empty()) {
        (Some(Ok(ScriptCommand::Eval(eval))), true) => *eval,
        other => panic!("{text}: {other:?}"),
    }
}

#[test]
fn read_eval_takes_times_and_expectations() {
    let eval = read_one_eval(
        "eval  range from 1m to 2m step 10s sum by (a) (x)\n  expect warn msg: PromQL warning: w\n\
         expect no_info\n {a=\"b\"} 1 2\n",
    );
    assert_eq!(eval.text, "sum by (a) (x)");
    let expected = EvalTime::range(60_000, 120_000, 10_000);
    assert_eq!(eval.time, expected);
    let warning = "PromQL warning: w (1:5)".to_owned();
    assert_eq!(
        eval.expectations.warnings.check("warnings", &[warning]),
        Ok(())
    );
    assert!(eval.expectations.warnings.check("warnings", &[]).is_err());
    assert!(
        eval.expectations
            .infos
            .check("infos", &["PromQL info: i".into()])
            .is_err()
    );
    assert!(matches!(eval.expected, ExpectedValue::Series(series) if series.len() == 1));

    let eval = read_one_eval("eval_fail instant at 1h x\nexpected_fail_message a (b)");
    assert_eq!(eval.time, EvalTime::Instant(3_600_000));
    let fail = eval.expectations.fail.expect("it must fail");
    assert!(fail.matches("a (b)") && !fail.matches("a"));

    let eval = read_one_eval("eval instant at 0 x\nexpect fail regex:^a.*b$");
    let fail = eval.expectations.fail.expect("it must fail");
    assert!(fail.matches("a..b") && !fail.matches("xa..b"));

    let eval = read_one_eval("eval instant at 0 \"a\"\nexpect string `a\"b`");
    assert!(matches!(eval.expected, ExpectedValue::String(s) if s == b"a\"b"));
    let eval = read_one_eval("eval instant at 0 1\n0x10");
    assert!(matches!(eval.expected, ExpectedValue::Scalar(16.0)));
    let eval = read_one_eval(
        "eval instant at 1m x[1m]\nexpect range vector from 10s to 1m step 10s\nx 1 2",
    );
    assert!(matches!(
        eval.expected,
        ExpectedValue::RangeVector(grid, _) if grid == StepGrid::from_bounds(10_000, 60_000, 10_000)
    ));
}

#[test]
fn read_broken_command_fails_alone() {
    let script = "nonsense\n\nload\n\nload 5\n x 1\n\nload 5m\n x 1y\n\neval instant x\n\n\
                  eval instant at 1m x\n expect nonsense\n\neval range from 2m to 1m step 1m x\n\n\
                  load 1m\n x@st 1m\n y 1\n\nload 1m\n x@st 1m 2m\n x 1\n\nload 1m\n x@st 1m\n\n\
                  eval instant at 0 x\n x 1 2\n\neval instant at 0 x\n expect warn\n \
                  expect no_warn\n\neval instant at 0 x\n expect fail\n expect fail\n\nclear";
    let commands = parse_script(script);
    assert_eq!(commands.len(), 14);
    let (last, broken) = commands.split_last().expect("there are commands");
    assert!(matches!(last, Ok(ScriptCommand::Clear { .. })), "{last:?}");
    for command in broken {
        assert!(command.is_err(), "{command:?}");
    }
}

fn run_on_memory(text: &str) -> ScriptFileReport {
    run("test", text, &mut MemoryStore::default(), &InlineCompute)
}

#[test]
fn run_script_that_holds_passes() {
    let report = run_on_memory(include_str!("tests/holds.test"));
    assert_eq!((report.failed, report.broken), (vec![], vec![]));
    assert_eq!(report.passed, 14);
}

#[test]
fn run_script_that_does_not_hold_fails_each_evaluation() {
    let report = run_on_memory(include_str!("tests/fails.test"));
    assert_eq!((report.passed, report.broken), (0, vec![]));
    let lines: Vec<usize> = report.failed.iter().map(|f| f.line).collect();
    let text = include_str!("tests/fails.test");
    let evals = text
        .lines()
        .enumerate()
        .filter(|(_, l)| l.starts_with("eval"));
    assert_eq!(
        lines,
        evals.map(|(i, _)| i + 1).collect::<Vec<_>>(),
        "{:?}",
        report.failed
    );
}

#[test]
fn run_unreadable_eval_counts_as_failed() {
    let report = run_on_memory("EVAL instant 1\n\nload 1\n\neval instant at 0 1\n 1");
    assert_eq!(report.passed, 1);
    assert_eq!((report.failed.len(), report.broken.len()), (1, 1));
}

#[test]
fn run_load_with_nhcb_adds_native_histograms() {
    let mut store = MemoryStore::default();
    let text = concat!(
        "load_with_nhcb 1m\n",
        " h_bucket{le=\"1\",a=\"b\"} 1 2\n",
        " h_bucket{le=\"+Inf\",a=\"b\"} 3 4\n",
        " h_count{a=\"b\"} 3 4\n",
        " h_sum{a=\"b\"} 7 8\n",
        " h_bucket{le=\"x\"} 5\n",
        " other 1\n",
    );
    let report = run("test", text, &mut store, &InlineCompute);
    assert_eq!(report.broken, []);
    let samples = store.samples_of(&Labels::from_pairs([("__name__", "h"), ("a", "b")]));
    let expected = [
        "{{schema:-53 count:3 sum:7 custom_values:[1] buckets:[1 2]}}",
        "{{schema:-53 count:4 sum:8 custom_values:[1] buckets:[2 2]}}",
    ];
    assert_eq!(samples.len(), expected.len());
    for (found, expected) in samples.iter().zip(expected) {
        let (expected, _) = super::histogram::parse_histogram(expected).unwrap();
        assert!(expected.matches(found), "{found:?}");
    }
    let report = run(
        "test",
        "load_with_nhcb 1m\n h_bucket{le=\"1\"} 5\n h_bucket{le=\"2\"} 4\n",
        &mut store,
        &InlineCompute,
    );
    assert_eq!(report.broken.len(), 1);
}

#[test]
fn report_ends_with_the_sums() {
    let failure = ScriptFailure {
        line: 3,
        text: "x".into(),
        why: "expected 1, got 2".into(),
    };
    let report = ScriptReport {
        files: vec![
            ScriptFileReport {
                name: "a".into(),
                passed: 2,
                ..ScriptFileReport::default()
            },
            ScriptFileReport {
                name: "b".into(),
                passed: 1,
                failed: vec![failure],
                broken: vec![],
            },
        ],
    };
    assert!(!report.is_success());
    let expected = "a: 2/2\nb: 1/2\n  line 3: x\n    expected 1, got 2\n3 passed, 1 failed";
    assert_eq!(report.to_string(), expected);
}

/// A fuzz target: parsing arbitrary text neither panics nor takes long.
fn fuzz_read(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    for failure in parse_script(&text).into_iter().filter_map(Result::err) {
        assert!(
            failure.line >= 1 && failure.line <= text.split('\n').count(),
            "{failure}"
        );
    }
}

#[test]
fn read_mutated_scripts_never_panics() {
    let corpus = [
        include_str!("tests/holds.test"),
        include_str!("tests/forms.test"),
    ];
    let pieces = [
        "eval",
        "instant",
        "range",
        "at",
        "from",
        "to",
        "step",
        "expect",
        "load",
        "clear",
        "5m",
        "0",
        "{{",
        "}}",
        "schema:",
        "buckets:[",
        "x",
        "_",
        "stale",
        "+",
        "-",
        "1e9",
        "@st",
        "{",
        "}",
        "\"",
        "\n",
        "\n\n",
        " ",
        "#",
        "regex:",
        "msg:",
        "(",
        "99999999999999999999",
    ];
    mutation::run(&corpus, &pieces, fuzz_read);
}

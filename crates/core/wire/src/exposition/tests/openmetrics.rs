//! Compares the OpenMetrics parser with upstream's.

use super::*;

fn check(body: &[u8], wanted: &str) {
    let found = read(
        ExpositionFormat::OpenMetrics,
        body,
        ParserSwitches::default(),
    );
    assert_eq!(found.trim_end(), wanted, "{}", quote(body));
}

const SOUND: &str = r#"# HELP a say \\ \n \" x
# TYPE a_seconds counter
# UNIT a_seconds seconds
a_seconds_total{b="1",c="x\"y"} 1 5 # {t="1",u="2"} 3.5 1.25
a_seconds_created{b="1",c="x\"y"} 1.5
a_seconds_total{b="2"} 1 # {} 7
{"x y",d="é"} NaN
# TYPE h histogram
h_bucket{le="1"} 1 # {t="1"} 0.5
h_bucket{x="1",le="+Inf"} 2
h_created{x="1"} 77.125
# TYPE i info
i_info{} 1 0.0015
# EOF
"#;

#[test]
fn openmetrics_sound_text_reads_as_upstream() {
    let wanted = r#"help a "say \\ \n \" x"
type a_seconds counter
unit a_seconds "seconds"
{__name__="a_seconds_total", b="1", c="x\"y"} 1 @5000 # {t="1", u="2"} 3.5 @1250
{__name__="a_seconds_created", b="1", c="x\"y"} 1.5
{__name__="a_seconds_total", b="2"} 1 # {} 7
{__name__="x y", d="é"} NaN
type h histogram
{__name__="h_bucket", le="1.0"} 1 # {t="1"} 0.5
{__name__="h_bucket", le="+Inf", x="1"} 2
{__name__="h_created", x="1"} 77.125
type i info
{__name__="i_info"} 1 @1"#;
    check(SOUND.as_bytes(), wanted);
    check(b"# EOF", "");
    check(b"{b=\"c\",\"n\"} 1\n# EOF", r#"{__name__="n", b="c"} 1"#);
    check(b"a{b=\"c\",} +Inf\n# EOF", r#"{__name__="a", b="c"} inf"#);
    check(
        b"# TYPE \"b c\" gaugehistogram\n# UNIT b \n# TYPE d stateset\n# TYPE e unknown\n# EOF",
        "type b c gaugehistogram\nunit b \"\"\ntype d stateset\ntype e unknown",
    );
}

#[test]
fn openmetrics_refusal_has_upstreams_words() {
    let cases: [(&[u8], &str); 26] = [
        (b"", "data does not end with # EOF"),
        (b"# TYPE a counter\n", "data does not end with # EOF"),
        (b"# EOF\n\n", "unexpected data after # EOF"),
        (
            b"\n# EOF\n",
            r#"expected a valid start token, got "\n" ("INVALID") while parsing: "\n""#,
        ),
        (
            b"# comment\n# EOF",
            "expected a valid start token, got \"# c\" (\"INVALID\") while parsing: \"# c\"",
        ),
        (
            b"a  1\n# EOF",
            r#"expected value after metric, got "  " ("INVALID") while parsing: "a  ""#,
        ),
        (
            b"a{b=\"c\" ,d=\"e\"} 1\n# EOF",
            "expected comma or brace close, got \" \" (\"INVALID\") while parsing: \
             \"a{b=\\\"c\\\" \"",
        ),
        (
            b"a{b=\"c\nd\"} 1\n# EOF",
            r#"expected label value, got "\"c\n" ("INVALID") while parsing: "a{b=\"c\n""#,
        ),
        (
            b"{b=\"c\"} 1\n# EOF",
            r#"metric name not set while parsing: "{b=\"c\"} 1""#,
        ),
        (
            b"a{b=\"\xff\"} 1\n# EOF",
            r#"invalid UTF-8 label value: "\"\xff\"""#,
        ),
        (b"a 1", "data does not end with # EOF"),
        (
            b"a 1 \n# EOF",
            r#"expected a valid start token, got "\n#" ("LINEBREAK") while parsing: "\n#""#,
        ),
        (b"a 1 Inf\n# EOF", "invalid timestamp +Inf"),
        (
            b"a 1 x\n# EOF",
            r#"strconv.ParseFloat: parsing "x": invalid syntax while parsing: "a 1 x""#,
        ),
        (
            b"a 1 2 3\n# EOF",
            r#"expected next entry after timestamp, got " 3\n" ("TIMESTAMP") while parsing: "a 1 2 3\n""#,
        ),
        (
            b"a 1 # {b=\"c\"}\n# EOF",
            "expected value after exemplar labels, got \"\\n\" (\"INVALID\") while parsing: \
             \"a 1 # {b=\\\"c\\\"}\\n\"",
        ),
        (
            b"a 1 # {\"b\"} 1\n# EOF",
            "expected label name, got \"} \" (\"BCLOSE\") while parsing: \"a 1 # {\\\"b\\\"} \"",
        ),
        (
            b"a 1 # {b=\"c\" d=\"e\"} 1\n# EOF",
            "expected comma or brace close, got \" \" (\"INVALID\") while parsing: \
             \"a 1 # {b=\\\"c\\\" \"",
        ),
        (b"a 1 # {} 1", "data does not end with # EOF"),
        (b"a 1 # {} 1 NaN\n# EOF", "invalid exemplar timestamp NaN"),
        (
            b"a 1 # {} 1 2 3\n# EOF",
            "expected next entry after exemplar timestamp, got \" 3\\n\" (\"TIMESTAMP\") while \
             parsing: \"a 1 # {} 1 2 3\\n\"",
        ),
        (
            b"# TYPE a untyped\n# EOF",
            r#"invalid metric type "untyped""#,
        ),
        (b"# TYPE a\n# EOF", "expected text in TYPE"),
        (
            b"# UNIT a_seconds bytes\n# EOF",
            r#"unit "bytes" not a suffix of metric "a_seconds""#,
        ),
        (
            b"# UNIT seconds seconds\n# EOF",
            r#"unit "seconds" not a suffix of metric "seconds""#,
        ),
        (
            b"# HELP a \xff\n# EOF",
            r#"help text "\xff" is not a valid utf8 string"#,
        ),
    ];
    for (body, wanted) in cases {
        let found = read(
            ExpositionFormat::OpenMetrics,
            body,
            ParserSwitches::default(),
        );
        let found = found.lines().last().unwrap_or_default();
        assert_eq!(found, format!("error: {wanted}"), "{}", quote(body));
    }
}

#[test]
fn openmetrics_start_times_come_from_created_samples() {
    let switches = ParserSwitches {
        start_times: true,
        ..ParserSwitches::default()
    };
    let body = r#"# TYPE c counter
c_total{a="1"} 1
c_created{a="1"} 1.5
c_total{a="2"} 2
c_total{a="3"} 3
c_created{a="3"} 3.5
# TYPE h histogram
h_bucket{le="1",x="y"} 1
h_bucket{le="+Inf",x="y"} 2
h_sum{x="y"} 2
h_created{x="y"} 4
h_count{x="y"} 2
# TYPE s summary
s{quantile="0.5"} 1
s_created 5
# TYPE "q r" counter
{"q r_total"} 1
{"q r_created"} 6
# TYPE g gauge
g 1
g_created 7
# EOF
"#;
    let wanted = r#"type c counter
{__name__="c_total", a="1"} 1 since 1500
{__name__="c_total", a="2"} 2
{__name__="c_total", a="3"} 3 since 3500
type h histogram
{__name__="h_bucket", le="1.0", x="y"} 1 since 4000
{__name__="h_bucket", le="+Inf", x="y"} 2 since 4000
{__name__="h_sum", x="y"} 2 since 4000
{__name__="h_count", x="y"} 2 since 4000
type s summary
{__name__="s", quantile="0.5"} 1 since 5000
type q r counter
{__name__="q r_total"} 1 since 6000
type g gauge
{__name__="g"} 1
{__name__="g_created"} 7
"#;
    assert_eq!(
        read(ExpositionFormat::OpenMetrics, body.as_bytes(), switches),
        wanted
    );
}

#[test]
fn openmetrics_start_times_of_a_long_family_cost_linear_time() {
    let mut body = String::from("# TYPE c counter\n");
    for i in 0..50_000 {
        let _ = writeln!(body, "c_total{{a=\"{i}\"}} 1");
    }
    body.push_str("c_created{a=\"49999\"} 1\n# EOF\n");
    let switches = ParserSwitches {
        start_times: true,
        ..ParserSwitches::default()
    };
    let mut parser =
        ExpositionParser::new(ExpositionFormat::OpenMetrics, body.as_bytes(), switches);
    let mut with_start = 0;
    while parser.advance().unwrap() {
        if let ExpositionEvent::Sample(ExpositionSample { start: Some(_), .. }) = parser.event() {
            with_start += 1;
        }
    }
    assert_eq!(with_start, 1);
}

#[test]
fn openmetrics_unit_becomes_a_label_if_asked_for() {
    let switches = ParserSwitches {
        type_and_unit_labels: true,
        ..ParserSwitches::default()
    };
    let body = b"# TYPE a_s gauge\n# UNIT a_s s\na_s{__unit__=\"x\"} 1\n# EOF";
    let wanted = "type a_s gauge\nunit a_s \"s\"\n\
                  {__name__=\"a_s\", __type__=\"gauge\", __unit__=\"s\"} 1\n";
    assert_eq!(read(ExpositionFormat::OpenMetrics, body, switches), wanted);
}

#[test]
fn openmetrics_expected_series_reads_the_same() {
    let keys = keys_of(ExpositionFormat::OpenMetrics, SOUND.as_bytes());
    let (wanted, hits) = read_expecting(ExpositionFormat::OpenMetrics, SOUND.as_bytes(), &keys);
    assert_eq!((keys.len(), hits), (8, 8));
    for at in 0..keys.len() {
        let mut turned = keys.clone();
        turned.rotate_left(at);
        let found = read_expecting(ExpositionFormat::OpenMetrics, SOUND.as_bytes(), &turned);
        assert_eq!(found.0, wanted);
    }
}

#[test]
fn openmetrics_mutated_never_panics_and_reads_the_same_with_any_expectation() {
    let switches = ParserSwitches {
        type_and_unit_labels: true,
        start_times: true,
        ..ParserSwitches::default()
    };
    check_mutated(ExpositionFormat::OpenMetrics, SOUND, switches);
}

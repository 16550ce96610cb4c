//! Tests the conversion of classic histograms in the text formats to native ones with custom
//! buckets.

use super::*;

const CONVERTING: ParserSwitches = ParserSwitches {
    type_and_unit_labels: false,
    start_times: false,
    native_histograms: false,
    convert_classic_histograms: true,
    always_classic_histograms: false,
};

fn check(body: &str, switches: ParserSwitches, wanted: &str) {
    let found = read(ExpositionFormat::Text, body.as_bytes(), switches);
    assert_eq!(found.trim_end(), wanted, "{body}");
}

const TWO: &str = "# TYPE h histogram
h_bucket{a=\"1\",le=\"1\"} 1
h_bucket{a=\"1\",le=\"2.5\"} 1
h_bucket{a=\"1\",le=\"+Inf\"} 4
h_sum{a=\"1\"} 7
h_count{a=\"1\"} 4 9
h_bucket{a=\"2\",le=\"1\"} 0.5
h_bucket{a=\"2\",le=\"+Inf\"} 0.5
h_count{a=\"2\"} 0.5
# HELP g x
g 1
";

#[test]
fn convert_classic_histograms_are_told_as_one_sample() {
    let wanted = r#"type h histogram
{__name__="h", a="1"} integer schema -53 sum 7 count 4, 0 in 0, [1, -1, 3], [] (0:3) () [1.0, 2.5]
{__name__="h", a="2"} float schema -53 sum 0 count 0.5, 0 in 0, [0.5], [] (0:1) () [1.0]
help g "x"
{__name__="g"} 1"#;
    check(TWO, CONVERTING, wanted);
    let off = ParserSwitches {
        convert_classic_histograms: false,
        ..CONVERTING
    };
    let unconverted = read(ExpositionFormat::Text, TWO.as_bytes(), off);
    assert_eq!(unconverted.matches("h_bucket").count(), 5);
}

#[test]
fn convert_keeps_classic_samples_if_told_to() {
    let keeping = ParserSwitches {
        always_classic_histograms: true,
        ..CONVERTING
    };
    let body = "# TYPE h histogram\nh_bucket{le=\"+Inf\"} 1\nh_sum 2\nh_count 1\nother 1";
    let wanted = r#"type h histogram
{__name__="h_bucket", le="+Inf"} 1
{__name__="h_sum"} 2
{__name__="h_count"} 1
{__name__="h"} integer schema -53 sum 2 count 1, 0 in 0, [1], [] (0:1) () []
{__name__="other"} 1"#;
    check(body, keeping, wanted);
}

#[test]
fn convert_takes_buckets_in_any_order_and_drops_what_is_no_histogram() {
    let h = |lines: &str| format!("# TYPE h histogram\n{lines}");
    let none = "type h histogram";
    // Out of order, with a duplicate, without a count and without the bucket of infinity.
    check(
        &h("h_bucket{le=\"2\"} 3\nh_bucket{le=\"1\"} 1\nh_bucket{le=\"2\"} 9"),
        CONVERTING,
        "type h histogram\n{__name__=\"h\"} integer schema -53 sum 0 count 3, 0 in 0, [1, 1], [] \
         (0:2) () [1.0, 2.0]",
    );
    check(
        &h("h_count 2"),
        CONVERTING,
        "type h histogram\n{__name__=\"h\"} integer schema -53 sum 0 count 2, 0 in 0, [2], [] \
         (0:1) () []",
    );
    for lines in [
        "h_bucket{le=\"1\"} 3\nh_bucket{le=\"2\"} 1",
        "h_bucket{le=\"2\"} 1\nh_bucket{le=\"1\"} 3",
        "h_bucket{le=\"1\"} -1",
        "h_count -1",
        "h_bucket{le=\"+Inf\"} 1\nh_count 2",
    ] {
        check(&h(lines), CONVERTING, none);
    }
    // A bound that is not a number, and a sample of another family.
    check(
        &h("h_bucket{le=\"x\"} 1\nh_bucket{le=\"NaN\"} 1\ni_count 1"),
        CONVERTING,
        "type h histogram\n{__name__=\"h_bucket\", le=\"x\"} 1\n{__name__=\"h_bucket\", \
         le=\"NaN\"} 1\n{__name__=\"i_count\"} 1",
    );
    // A comment ends a histogram, and so does a syntax error, which also ends the parse.
    check(
        &h("h_count 1\n# c\nh_sum 2\nh_count{"),
        CONVERTING,
        "type h histogram\n{__name__=\"h\"} integer schema -53 sum 0 count 1, 0 in 0, [1], [] \
         (0:1) () []\nerror: expected label name, got \"\\n\" (\"INVALID\") while parsing: \
         \"h_count{\\n\"",
    );
}

#[test]
fn convert_leaves_out_long_runs_of_empty_buckets() {
    let mut body = String::from("# TYPE h histogram\n");
    for (bound, count) in [
        (1, 0),
        (2, 1),
        (3, 1),
        (4, 1),
        (5, 2),
        (6, 2),
        (7, 2),
        (8, 2),
        (9, 3),
    ] {
        let _ = writeln!(body, "h_bucket{{le=\"{bound}\"}} {count}");
    }
    body.push_str("h_count 3\n");
    let wanted = "type h histogram\n{__name__=\"h\"} integer schema -53 sum 0 count 3, 0 in 0, \
        [1, -1, 0, 1, 0], [] (1:4 3:1) () [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]";
    check(&body, CONVERTING, wanted);
}

#[test]
fn convert_openmetrics_carries_exemplars_and_start_time() {
    let body = r#"# TYPE h histogram
h_bucket{le="1"} 1 # {t="1"} 0.5 3
h_bucket{le="+Inf"} 2 # {t="2"} 1.5
h_count 2
h_created 5
# TYPE c counter
c_created 7
# EOF
"#;
    let switches = ParserSwitches {
        start_times: true,
        ..CONVERTING
    };
    let sample =
        r#"{__name__="h"} integer schema -53 sum 0 count 2, 0 in 0, [1, 0], [] (0:2) () [1.0]"#;
    let exemplars = r#" # {t="1"} 0.5 @3000 # {t="2"} 1.5"#;
    let wanted = format!("type h histogram\n{sample} since 5000{exemplars}\ntype c counter\n");
    assert_eq!(
        read(ExpositionFormat::OpenMetrics, body.as_bytes(), switches),
        wanted
    );
    // Reading start times removes the `_created` samples, as in upstream.
    let wanted = format!("type h histogram\n{sample}{exemplars}\ntype c counter\n");
    assert_eq!(
        read(ExpositionFormat::OpenMetrics, body.as_bytes(), CONVERTING),
        wanted
    );
}

#[test]
fn convert_expected_series_are_told_by_their_keys() {
    let mut keys: Vec<Vec<u8>> = Vec::new();
    for round in 0..2 {
        let mut parser = ExpositionParser::new(ExpositionFormat::Text, TWO.as_bytes(), CONVERTING);
        let mut at = 0;
        while parser
            .advance_expecting(keys.get(at).map_or(b"", |key| key))
            .unwrap()
        {
            if let ExpositionEvent::Sample(sample) = parser.event() {
                assert_eq!(sample.is_expected, round == 1);
                if round == 0 {
                    keys.push(sample.key.to_vec());
                }
                at += 1;
            }
        }
    }
    assert_eq!(keys, [&b"h{a=\"1\"}"[..], b"h{a=\"2\"}", b"g"]);
}

#[test]
fn convert_mutated_text_never_panics() {
    for always_classic_histograms in [false, true] {
        let switches = ParserSwitches {
            always_classic_histograms,
            start_times: true,
            ..CONVERTING
        };
        check_mutated(ExpositionFormat::Text, TWO, switches);
        check_mutated(ExpositionFormat::OpenMetrics, TWO, switches);
    }
}

//! Compares the parser of the Prometheus text format with upstream's.

use super::*;

fn check(body: &[u8], wanted: &str) {
    let found = read(ExpositionFormat::Text, body, ParserSwitches::default());
    assert_eq!(found.trim_end(), wanted, "{}", quote(body));
}

#[test]
fn text_series_reads_as_upstream() {
    let cases = [
        ("a 1", r#"{__name__="a"} 1"#),
        ("a:b_1 \t 1.5e3 \t 5 ", r#"{__name__="a:b_1"} 1500 @5"#),
        // A name includes the blanks before it.
        ("  a{} 1", r#"{__name__="  a"} 1"#),
        ("a {b=\"c\"} 1", r#"{__name__="a", b="c"} 1"#),
        ("a{b=\"c\",}1", r#"{__name__="a", b="c"} 1"#),
        (
            "a{ b = \"c\" , d=\"\" } +1",
            r#"{__name__="a", b="c", d=""} 1"#,
        ),
        (r#"a{b="c" d="e"} 1"#, r#"{__name__="a", b="c", d="e"} 1"#),
        (r#"a{b="\\ \" \x"} 1"#, r#"{__name__="a", b="\\ \" \\x"} 1"#),
        (r#"a{b="1\n2"} 1"#, r#"{__name__="a", b="1\n2"} 1"#),
        ("a{b=\"1\n2\0\"} 1", r#"{__name__="a", b="1\n2\x00"} 1"#),
        (
            r##"a{b="}, {",c="#"} 1"##,
            r##"{__name__="a", b="}, {", c="#"} 1"##,
        ),
        (r#"{"my.name",b="é"} 1"#, r#"{__name__="my.name", b="é"} 1"#),
        (r#"{b="c","n"} 1"#, r#"{__name__="n", b="c"} 1"#),
        (r#"a{"x.y"="z"} 1"#, r#"{__name__="a", x.y="z"} 1"#),
        (r#"a{"\""="z"} 1"#, "{\"=\"z\", __name__=\"a\"} 1"),
        // These are validated later.
        (r#"a{""="c"} 1"#, r#"{="c", __name__="a"} 1"#),
        (r#"a{b="d",b="c"} 1"#, r#"{__name__="a", b="d", b="c"} 1"#),
        ("# c\n#HELP a b\n\n#\n# x\0y\n", ""),
        ("a 1\n\0 all that follows is nothing", r#"{__name__="a"} 1"#),
        ("#a\0b\na 1", ""),
    ];
    for (body, wanted) in cases {
        check(body.as_bytes(), wanted);
    }
    check(b"{\"a\xff\"} 1", r#"{__name__="a\xff"} 1"#);
}

#[test]
fn text_refusal_has_upstreams_words() {
    let cases: [(&[u8], &str); 30] = [
        (
            b"b",
            r#"expected value after metric, got "\n" ("INVALID") while parsing: "b\n""#,
        ),
        (
            b"1a 1",
            r#"expected a valid start token, got "1" ("INVALID") while parsing: "1""#,
        ),
        (
            b"a{b} 1",
            r#"expected equal, got "} " ("BCLOSE") while parsing: "a{b} ""#,
        ),
        (
            b"a{1=\"2\"} 1",
            r#"expected label name, got "1" ("INVALID") while parsing: "a{1""#,
        ),
        (
            b"a{b=c} 1",
            r#"expected label value, got "c" ("INVALID") while parsing: "a{b=c""#,
        ),
        (
            b"a{b=\"c} 1",
            r#"expected label value, got "\"c} 1\n" ("INVALID") while parsing: "a{b=\"c} 1\n""#,
        ),
        (
            b"a{b=\"c\\\n\"} 1",
            r#"expected label value, got "\"c\\\n" ("INVALID") while parsing: "a{b=\"c\\\n""#,
        ),
        (
            b"a{b=\"c\"",
            r#"expected label name, got "\n" ("INVALID") while parsing: "a{b=\"c\"\n""#,
        ),
        (
            b"{b=\"c\"} 1",
            r#"metric name not set while parsing: "{b=\"c\"} 1""#,
        ),
        (
            b"{\"a\",\"b\"} 1",
            r#"metric name already set while parsing: "{\"a\",\"b\"}""#,
        ),
        (
            b"a{\"b\"} 1",
            r#"metric name already set while parsing: "a{\"b\"}""#,
        ),
        (
            b"a{b=\"\xff\"} 1",
            r#"invalid UTF-8 label value: "\"\xff\"""#,
        ),
        (
            b"a,b 1",
            r#"strconv.ParseFloat: parsing ",b": invalid syntax while parsing: "a,b""#,
        ),
        (
            b"a 1_0",
            r#"unsupported character in float while parsing: "a 1_0""#,
        ),
        (
            b"a 0x1p3",
            r#"unsupported character in float while parsing: "a 0x1p3""#,
        ),
        (
            b"a 1\r",
            r#"strconv.ParseFloat: parsing "1\r": invalid syntax while parsing: "a 1\r""#,
        ),
        (
            b"a 1e400",
            r#"strconv.ParseFloat: parsing "1e400": value out of range while parsing: "a 1e400""#,
        ),
        (
            b"a\xff 1",
            r#"strconv.ParseFloat: parsing "\xff": invalid syntax while parsing: "a\xff""#,
        ),
        (
            b"a +nan",
            r#"strconv.ParseFloat: parsing "+nan": invalid syntax while parsing: "a +nan""#,
        ),
        (
            b"a{} ",
            r#"expected value after metric, got "\n" ("INVALID") while parsing: "a{} \n""#,
        ),
        (
            b"a 1 -5",
            r#"expected timestamp or new record, got "-" ("INVALID") while parsing: "a 1 -""#,
        ),
        (
            b"a 1 1.5",
            r#"expected next entry after timestamp, got "." ("INVALID") while parsing: "a 1 1.""#,
        ),
        (
            b"a 1 1 2",
            "expected next entry after timestamp, got \"2\\n\" (\"TIMESTAMP\") while parsing: \
             \"a 1 1 2\\n\"",
        ),
        (
            b"a 1 99999999999999999999",
            "strconv.ParseInt: parsing \"99999999999999999999\": value out of range while \
             parsing: \"a 1 99999999999999999999\"",
        ),
        (b"# TYPE a thing", r#"invalid metric type "thing""#),
        (b"# TYPE a counter ", r#"invalid metric type "counter ""#),
        (b"# TYPE a", r#"invalid metric type """#),
        (
            b"# TYPE 1",
            "expected metric name after TYPE, got \"1\" (\"INVALID\") while parsing: \"# TYPE 1\"",
        ),
        (
            b"# HELP a \xff",
            r#"help text "\xff" is not a valid utf8 string"#,
        ),
        (
            b"# HELP \"a",
            "expected metric name after HELP, got \"\\\"a\\n\" (\"INVALID\") while parsing: \
             \"# HELP \\\"a\\n\"",
        ),
    ];
    for (body, wanted) in cases {
        check(body, &format!("error: {wanted}"));
    }
}

#[test]
fn text_refusal_of_an_endless_line_shows_its_beginning() {
    let body = format!("a{{b=\"{}", "x".repeat(1 << 20));
    let found = read(
        ExpositionFormat::Text,
        body.as_bytes(),
        ParserSwitches::default(),
    );
    assert!(found.len() < 10_000, "{} bytes", found.len());
    assert!(
        found.contains("xxx\"... (\"INVALID\") while parsing: \"a{b="),
        "{found}"
    );
}

#[test]
fn text_metadata_reads_as_upstream() {
    let body = "# HELP a say \\\\ \\n \\\"\n# TYPE a counter\n#\tTYPE \t\"b c\"  untyped\n\
                # UNIT a seconds\n# HELP d\n# TYPES a b\n";
    let found = read(
        ExpositionFormat::Text,
        body.as_bytes(),
        ParserSwitches::default(),
    );
    // A single blank separates the name from the rest.
    let wanted = "help a \"say \\\\ \\n \\\\\\\"\"\ntype a counter\n\
                  error: invalid metric type \" untyped\"\n";
    assert_eq!(found, wanted);
    check(
        b"# TYPE \"b c\" untyped\n# HELP d",
        "type b c unknown\nhelp d \"\"",
    );
}

#[test]
fn text_bounds_read_in_one_notation_by_the_type_last_stated() {
    let body = "a{le=\"1\"} 1\n# TYPE h histogram\nh{le=\"1\",quantile=\"1\"} 1\n\
                h{le=\"1e6\"} 1\nh{le=\"x\"} 1\nh{le=\"0x1p-2\"} 1\n\
                # TYPE s summary\ns{le=\"1\",quantile=\"1\"} 1\n# TYPE g gauge\nh{le=\"1\"} 1";
    let wanted = r#"{__name__="a", le="1"} 1
type h histogram
{__name__="h", le="1.0", quantile="1"} 1
{__name__="h", le="1e+06"} 1
{__name__="h", le="x"} 1
{__name__="h", le="0.25"} 1
type s summary
{__name__="s", le="1", quantile="1.0"} 1
type g gauge
{__name__="h", le="1"} 1"#;
    check(body.as_bytes(), wanted);
}

#[test]
fn text_type_becomes_a_label_if_asked_for() {
    let switches = ParserSwitches {
        type_and_unit_labels: true,
        ..ParserSwitches::default()
    };
    let body =
        b"a{__type__=\"x\"} 1\n# TYPE a counter\na{__type__=\"x\",__name__=\"y\"} 1\n{\"\"} 1";
    let wanted = r#"{__name__="a", __type__="x"} 1
type a counter
{__name__="a", __type__="counter"} 1
{__type__="counter"} 1
"#;
    assert_eq!(read(ExpositionFormat::Text, body, switches), wanted);
}

const SOUND: &str = "# HELP a \\\\ é\n# TYPE a histogram\na{le=\"1\",c=\"\\n\"} 1 5\n \
    {\"x\",d=\"é\"} NaN\nab {} 3\na 4\nab 5\n a 6\nab\t{b=\"c\"} 7\n";

#[test]
fn text_expected_series_reads_the_same() {
    let keys = keys_of(ExpositionFormat::Text, SOUND.as_bytes());
    assert_eq!(keys.len(), 7);
    let (wanted, hits) = read_expecting(ExpositionFormat::Text, SOUND.as_bytes(), &keys);
    assert_eq!(hits, 7);
    for at in 0..keys.len() {
        let mut turned = keys.clone();
        turned.rotate_left(at);
        assert_eq!(
            read_expecting(ExpositionFormat::Text, SOUND.as_bytes(), &turned).0,
            wanted
        );
    }
}

#[test]
fn text_mutated_never_panics_and_reads_the_same_with_any_expectation() {
    check_mutated(ExpositionFormat::Text, SOUND, ParserSwitches::default());
}

//! Compares console pages with responses recorded from upstream, and tests intended differences.

use crate::tests::{answer, expand_mutated, labels, unpack_answers};
use crate::{ConsoleRequest, TemplateLimits, expand_console};

/// Recorded cases, one per line, compressed with gzip. The head of the file describes how they were
/// recorded.
const ANSWERS: &[u8] = include_bytes!("../../tests/html.jsonl.gz");

/// Parameters of the requests: texts that would be harmful in some context.
const PARAMS: [(&str, &str); 20] = [
    ("a", "b"),
    ("a", "c&d"),
    ("evil", "</script><b x=\"y\">"),
    ("js", "javascript:alert(1)"),
    ("q", "a\"b'c<d>&e+f=g`h"),
    ("url", "http://h/p?a=b&c=ü%20 d#f"),
    ("css", "expression(1)"),
    ("color", "#ff00aa"),
    ("word", "w1"),
    ("uni", "ünï 日\u{2028}本"),
    ("num", "12.5"),
    ("ctl", "a\0b\tc\nd\re\u{c}f\u{7f}"),
    ("empty", ""),
    ("back", "a\\b${c}/d.e*"),
    ("src", "a.png 1x, javascript:x 2x,/b?c 200w"),
    ("ent", "a&amp;b&lt;c"),
    ("rel", "//h/p"),
    ("mail", "mailto:a@b"),
    ("esc", "\\22\\ \\3c b"),
    ("ffff", "a\u{ffff}b\u{fdd0}c"),
];

#[derive(Debug, serde::Deserialize)]
struct Case {
    text: String,
    #[serde(default)]
    libs: Vec<(String, String)>,
    gives: Option<String>,
    fails: Option<String>,
}

fn expand_case(
    text: &str,
    libs: &[(String, String)],
    limits: &TemplateLimits,
) -> Result<String, String> {
    let params = PARAMS.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let console = ConsoleRequest {
        path: "/pages/a.html",
        text,
        libraries: libs,
        params: &params,
        external_labels: &labels(&[("region", "eu"), ("replica", "r1")]),
        external_url: "http://prom.example.org:9090/a%20b",
        path_prefix: "/a b",
        time: 1_700_000_000_123,
    };
    match expand_console(&console, &mut answer, limits) {
        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Err(e) => Err(e.to_string()),
    }
}

fn cases() -> Vec<Case> {
    let answers = unpack_answers(ANSWERS);
    let lines = answers.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn pages_are_what_upstream_makes_of_them() {
    let (mut count, mut wrong) = (0, Vec::new());
    for case in cases() {
        let expected = case.gives.ok_or_else(|| case.fails.unwrap());
        let got = expand_case(&case.text, &case.libs, &TemplateLimits::default());
        count += 1;
        if got != expected {
            wrong.push(format!(
                "{:?} {:?}\n  want {expected:?}\n  got  {got:?}",
                case.text, case.libs
            ));
        }
    }
    assert!(count > 2000, "{count} cases");
    let shown = wrong.join("\n");
    assert!(wrong.is_empty(), "{} of {count}:\n{shown}", wrong.len());
}

#[test]
fn definition_called_twice_goes_on_where_it_ends_each_time() {
    let text = r#"{{ define "o" }}<a href="{{ end }}{{ template "o" }}{{ $params.js }}">
{{- template "o" }}{{ $params.js }}">"#;
    // Go interprets the second value as ordinary text.
    let expected = "<a href=\"#ZgotmplZ\"><a href=\"#ZgotmplZ\">";
    let got = expand_case(text, &[], &TemplateLimits::default());
    assert_eq!(got.as_deref(), Ok(expected));
}

#[test]
fn name_of_a_character_in_a_script_is_refused_if_it_is_unknown() {
    let text = r#"<a onclick="f(&eacute;{{ 1 }})">"#;
    let error = expand_case(text, &[], &TemplateLimits::default()).unwrap_err();
    let expected = "\"&eacute;\" in a script or style is not supported";
    assert!(error.ends_with(expected), "{error}");
}

#[test]
fn pages_that_do_too_much_are_stopped() {
    let loops = |count: usize| {
        let (start, end) = ("{{ range 2 }}".repeat(count), "{{ end }}".repeat(count));
        format!("{start}x{end}")
    };
    let doubled = "{{ $x = args $x $x }}".repeat(60);
    let cases = [
        (
            format!("{{{{ $x := 1 }}}}{doubled}<script>f({{{{ $x }}}})</script>"),
            "text is longer than 1048576 bytes",
        ),
        (loops(30), "more than 100000 nodes in all places"),
        (
            r#"{{ define "t" }}{{ tmpl "t" . }}{{ end }}{{ tmpl "t" . }}"#.to_owned(),
            "exceeded maximum template depth (1000)",
        ),
        (
            r#"{{ range 100000 }}{{ safeHtml "0123456789ABCDEF" }}{{ end }}"#.to_owned(),
            "output is longer than 1048576 bytes",
        ),
        (
            r#"{{ $x := printf "%300000d" 1 }}<a title="{{ range 99 }}{{ $x }}{{ end }}">"#.to_owned(),
            "output is longer than 1048576 bytes",
        ),
        (
            r#"{{ range 99 }}{{ $x := tmpl "t" . }}{{ end }}{{ define "t" }}{{ printf "%999999d" 1 }}{{ end }}"#
                .to_owned(),
            "more than 16777216 bytes made by functions",
        ),
    ];
    for (text, expected) in cases {
        let error = expand_case(&text, &[], &TemplateLimits::default()).unwrap_err();
        assert!(error.contains(expected), "{expected}: {error:.300}");
    }
}

#[test]
fn long_script_is_looked_through_once() {
    let script = "f('a', \"b\", /c/); // d\n".repeat(40_000);
    let text = format!("<script>{script}{{{{ 1 }}}}</script>");
    let got = expand_case(&text, &[], &TemplateLimits::default()).unwrap();
    let lines = "f('a', \"b\", /c/); \n".repeat(40_000);
    assert!(got == format!("<script>{lines} 1 </script>"));
}

#[test]
fn mutated_pages_end_without_a_panic() {
    let texts: Vec<String> = cases().into_iter().map(|case| case.text).collect();
    expand_mutated(&texts, |text, limits| {
        let _ = expand_case(text, &[], limits);
    });
}

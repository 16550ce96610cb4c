//! Tests of the parser: cases in data files, and properties of random expressions.

use super::*;
use crate::ast::{
    DurationExpr, DurationExprKind, ExprKind, NumberLiteral, PositionRange, QueryDuration,
    VectorSelector,
};
use crate::durations::{DurationContext, resolve};
use crate::printer::pretty;
use firn_model::matcher::MatchOp;

const OFF: Features = Features {
    experimental_functions: false,
    extended_range_selectors: false,
    binop_fill_modifiers: false,
    duration_expressions: false,
    delayed_name_removal: false,
    use_start_timestamps: false,
    type_and_unit_labels: false,
};

/// Checks the cases of a file: an expression, followed by `= printed form` or `! error`.
fn check_file(file: &str, features: Features) {
    let mut lines = file
        .lines()
        .filter(|l| !l.is_empty() && !l.starts_with('#'));
    let mut failures = Vec::new();
    while let Some(text) = lines.next() {
        let expected = lines
            .next()
            .expect("an expectation follows each expression")
            .trim_start();
        let found = match parse(text, features) {
            Ok(expr) => format!("= {expr}"),
            Err(error) => format!("! {error}"),
        };
        if found != expected {
            failures.push(format!("{text}\n  expected {expected}\n  found    {found}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn parse_valid_expression_prints_as_upstream() {
    check_file(include_str!("cases/accepted.txt"), Features::ALL);
}

#[test]
fn parse_mistaken_expression_fails_as_upstream() {
    check_file(include_str!("cases/refused.txt"), Features::ALL);
}

#[test]
fn parse_experimental_syntax_without_its_switch_fails_as_upstream() {
    check_file(include_str!("cases/switched_off.txt"), OFF);
}

fn check_error(text: &str, expected: &str) {
    let found = parse(text, Features::ALL).map(|e| e.to_string());
    assert_eq!(found, Err(PromqlError::Parse(expected.into())), "{text:?}");
}

#[test]
fn parse_mistake_in_several_lines_tells_line_and_column() {
    check_error(
        "",
        "unknown position: parse error: no expression found in input",
    );
    check_error(" \n ", "1:1: parse error: no expression found in input");
    check_error(
        "# only a comment\n",
        "1:1: parse error: no expression found in input",
    );
    check_error(
        "sum(\n  foo,\n  ü)",
        "3:3: parse error: unexpected character: 'ü'",
    );
    check_error(
        "foo\n\n\nbar",
        "4:1: parse error: unexpected identifier \"bar\"",
    );
    check_error("\"a\nb\"", "1:1: parse error: unterminated quoted string");
    check_error(
        "\"日本\" foo",
        "1:10: parse error: unexpected identifier \"foo\"",
    );
}

fn nest(open: &str, close: &str, n: u32) -> String {
    format!("{}a{}", open.repeat(n as usize), close.repeat(n as usize))
}

fn chain(op: &str, operators: u32) -> String {
    vec!["a"; operators as usize + 1].join(op)
}

#[test]
fn parse_chains_and_nests_up_to_the_limits() {
    for op in [" or ", " + ", " ^ ", " / on (b) group_left () "] {
        assert!(parse(&chain(op, 10_000), Features::ALL).is_ok(), "{op}");
    }
    let too_many = "expression has too many operators in a row: 11001 or more, limit 11000";
    let error = format!("1:1: parse error: {too_many}");
    check_error(&chain(" or ", HEIGHT_MAX + 1), &error);
    for op in [" or ", " ^ "] {
        let error = parse(&chain(op, 100_000), Features::ALL).unwrap_err();
        assert!(error.to_string().ends_with(too_many), "{op}: {error}");
    }
    for (open, close) in [("(", ")"), ("-", ""), ("abs(", ")"), ("sum(", ")")] {
        assert!(parse(&nest(open, close, NESTING_MAX), Features::ALL).is_ok());
        let error = parse(&nest(open, close, 100_000), Features::ALL).unwrap_err();
        let wanted = "expression nests too deeply: 1001 levels, limit 1000";
        assert!(error.to_string().ends_with(wanted), "{open}: {error}");
    }
    let window = |n: usize| format!("a[{}1m{}]", "(".repeat(n), ")".repeat(n));
    assert!(parse(&window(300), Features::ALL).is_ok());
    assert!(parse(&window(100_000), Features::ALL).is_err());
    let window = |n: usize| format!("a[{}]", vec!["1m"; n].join("+"));
    assert!(parse(&window(900), Features::ALL).is_ok());
    let error = parse(&window(100_000), Features::ALL).unwrap_err();
    let wanted = "duration expression has too many operators: 1001 or more, limit 1000";
    assert!(error.to_string().ends_with(wanted), "{error}");
}

#[test]
fn parse_of_high_trees_gives_trees_that_are_printed_and_copied() {
    let texts = [
        chain(" or ", 10_000),
        chain(" ^ ", 10_000),
        nest("-(", ")", 500),
        nest("abs(", ")", 1000),
        nest("max_over_time(", "[1m:10s])", 999),
        format!("sum({})", chain(" + ", 9_000)),
    ];
    for text in texts {
        let shown = &text[..20];
        let tree = parse(&text, Features::ALL).unwrap();
        assert_eq!(tree.to_string(), text, "{shown}");
        let copy = tree.clone();
        drop(tree);
        let mut nodes = 0;
        copy.visit(&mut |_| nodes += 1);
        assert!(nodes >= 1000, "{shown}: {nodes}");
    }
    let tree = parse(&chain(" or ", 1_500), Features::ALL).unwrap();
    let lines = pretty(&tree, &mut unlimited_reservation()).unwrap();
    assert_eq!(lines.lines().count(), 2 * 1_500 + 1 - 2 * 19);
    let mut little = Budget::new("query", 1 << 20).create_reservation();
    let error = pretty(&tree, &mut little).unwrap_err();
    assert!(error.message.starts_with("query memory limit reached"));
}

#[test]
fn parse_without_memory_for_the_tree_is_refused() {
    let mut memory = Budget::new("query", 100_000).create_reservation();
    let texts = [
        chain(" or ", 1_000),
        format!("{{a=~\"{}\"}}", "b|".repeat(1_000)),
        format!("{{{}}}", vec!["a=\"b\""; 1_000].join(",")),
        format!("sum by ({}) (a)", vec!["b"; 1_000].join(",")),
    ];
    for text in texts {
        let error = parse_within(&text, Features::ALL, &mut memory).unwrap_err();
        assert!(matches!(error, PromqlError::Limited(_)), "{error:?}");
        memory.shrink_to(0);
    }
}

#[test]
fn parse_expression_marks_where_nodes_stand() {
    let text = "sum by (a) (rate(x{b=\"c\"}[5m] offset 1m)) / -y @ 7 ^ 2";
    let mut found = Vec::new();
    parse(text, Features::ALL).unwrap().visit(&mut |node| {
        found.push(&text[node.span.start as usize..node.span.end as usize]);
    });
    let expected = [
        text,
        "sum by (a) (rate(x{b=\"c\"}[5m] offset 1m))",
        "rate(x{b=\"c\"}[5m] offset 1m)",
        "x{b=\"c\"}[5m] offset 1m",
        "-y @ 7 ^ 2",
        "y @ 7 ^ 2",
        "y @ 7",
        "2",
    ];
    assert_eq!(found, expected);
}

#[test]
fn parse_string_keeps_bytes() {
    let cases: [(&str, &[u8]); 4] = [
        (r#""\xff\x00\377""#, b"\xff\x00\xff"),
        (r#""\u00ff\U0001F600""#, "ÿ😀".as_bytes()),
        (r#"'\a\b\f\n\r\t\v\\\''"#, b"\x07\x08\x0c\n\r\t\x0b\\'"),
        ("`\\n\n'`", b"\\n\n'"),
    ];
    for (text, expected) in cases {
        let expr = parse(text, Features::ALL).unwrap();
        assert_eq!(expr.kind, ExprKind::String(expected.to_vec()), "{text}");
    }
}

#[test]
fn parse_selector_returns_matchers_with_the_name_last() {
    let found = parse_selector("up{a=\"b\", \"c.d\"!~'e'}").unwrap();
    let found: Vec<_> = found
        .iter()
        .map(|m| (m.name(), m.op(), m.value()))
        .collect();
    let expected = [
        ("a", MatchOp::Equal, &b"b"[..]),
        ("c.d", MatchOp::NotRegex, b"e"),
        ("__name__", MatchOp::Equal, b"up"),
    ];
    assert_eq!(found, expected);
    assert_eq!(parse_selector("{}").unwrap(), []);
    for (text, expected) in [
        ("up[5m]", "1:3: parse error: unexpected \"[\""),
        ("sum(up)", "1:4: parse error: unexpected \"(\""),
        ("", "unknown position: parse error: unexpected end of input"),
        ("1", "1:1: parse error: unexpected number \"1\""),
    ] {
        assert_eq!(
            parse_selector(text),
            Err(PromqlError::Parse(expected.into())),
            "{text}"
        );
    }
}

#[test]
fn parse_duration_literal_reads_units_from_large_to_small() {
    let cases = [
        ("5m", Ok(300.0)),
        ("1h30m", Ok(5400.0)),
        ("1y1w1d1h1m1s1ms", Ok(32_230_861.001)),
        ("1s1m", Err("not a valid duration string: \"1s1m\"")),
        ("300y", Err("duration out of range")),
        (
            "99999999999999999999s",
            Err("not a valid duration string: \"99999999999999999999s\""),
        ),
    ];
    for (text, expected) in cases {
        let found = parse(text, Features::ALL).map(|expr| expr.kind);
        let expected = match expected {
            Ok(value) => Ok(ExprKind::Number(NumberLiteral {
                value,
                is_duration: true,
            })),
            Err(why) => Err(PromqlError::Parse(format!("1:1: parse error: {why}"))),
        };
        assert_eq!(found, expected, "{text}");
    }
}

#[test]
fn parse_printed_expression_where_ours_differs_from_upstream_is_the_same_tree() {
    for (text, printed) in [
        ("up offset (2) * 3", "up offset (2) * 3"),
        ("up offset - -2 * 3", "up offset (2) * 3"),
        ("up offset + +step() * 3", "up offset ++step() * 3"),
        ("up offset - +step() * 3", "up offset -+step() * 3"),
        ("up offset - -step() * 3", "up offset --step() * 3"),
        ("up offset -+2 ^ 2", "up offset -+2 ^ 2"),
        ("up offset -+2 ^ 2 * 3", "up offset -+2 ^ 2 * 3"),
        ("up[(-2) ^ 2]", "up[(-2) ^ 2]"),
        ("Inf ^ up", "Inf ^ up"),
        ("info(up, {})", "info(up, {})"),
    ] {
        let tree = parse(text, Features::ALL).unwrap();
        assert_eq!(tree.to_string(), printed);
        assert_round_trip(&tree, text);
    }
}

/// A fuzz target. Parsing an arbitrary text does not panic. All spans of a valid expression are
/// within the text, it can be printed on one or several lines and parsed again to the same tree,
/// and its durations can be resolved.
fn fuzz_parse(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let _ = parse(&text, OFF);
    let _ = parse_selector(&text);
    let Ok(mut tree) = parse(&text, Features::ALL) else {
        return;
    };
    tree.visit(&mut |node| {
        let (start, end) = (node.span.start as usize, node.span.end as usize);
        assert!(
            start < end && text.get(start..end).is_some(),
            "{start}..{end} of {text:?}"
        );
    });
    // A window below a millisecond is printed as zero, which is not a valid window.
    if !has_window_of_zero(&tree) {
        assert_round_trip(&tree, &text);
        let lines = pretty(&tree, &mut unlimited_reservation()).unwrap();
        assert_same(&tree, &lines, &text);
    }
    let context = DurationContext {
        step_ns: 15_000_000_000,
        range_ms: 3_600_000,
    };
    if resolve(&mut tree, context).is_ok() {
        assert!(
            resolve(&mut tree.clone(), DurationContext::default()).is_ok(),
            "{text:?}"
        );
    }
}

fn has_window_of_zero(tree: &Expr) -> bool {
    let mut found = false;
    tree.visit(&mut |node| {
        found |= match &node.kind {
            ExprKind::Matrix(matrix) => matrix.range == QueryDuration::Millis(0),
            ExprKind::Subquery(subquery) => {
                let zero = QueryDuration::Millis(0);
                subquery.range == zero || subquery.step.as_ref() == Some(&zero)
            }
            _ => false,
        };
    });
    found
}

#[test]
fn parse_mutated_expressions_never_panics_and_round_trips() {
    let files = [
        include_str!("cases/accepted.txt"),
        include_str!("cases/refused.txt"),
        include_str!("cases/switched_off.txt"),
    ];
    let corpus: Vec<&str> = files
        .iter()
        .flat_map(|file| file.lines())
        .filter(|line| !line.is_empty() && !line.starts_with(['#', ' ']))
        .collect();
    let pieces = [
        "sum",
        " by ",
        "without",
        "on",
        "ignoring",
        "group_left",
        "fill",
        "bool",
        " offset ",
        "@",
        "start()",
        "end()",
        "step()",
        "range()",
        "max_of(",
        "anchored",
        "smoothed",
        "and",
        "or",
        "unless",
        "atan2",
        "inf",
        "nan",
        "foo",
        "rate(",
        "5m",
        "0",
        "1e3",
        "0x1f",
        "1y",
        "-",
        "+",
        "*",
        "/",
        "%",
        "^",
        "==",
        "!=",
        "<",
        ">",
        "</",
        ">/",
        "=~",
        "!~",
        "=",
        "(",
        ")",
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        "\"",
        "'",
        "`",
        "\\",
        "\n",
        "#",
        " ",
        "é",
        "\u{fffd}",
    ];
    crate::mutation::run(&corpus, &pieces, fuzz_parse);
}

/// Checks that the printed form of a tree parses to the same tree.
fn assert_round_trip(tree: &Expr, text: &str) {
    let printed = tree.to_string();
    assert_same(tree, &printed, text);
}

fn assert_same(tree: &Expr, printed: &str, text: &str) {
    let again = parse(printed, Features::ALL)
        .unwrap_or_else(|e| panic!("{text:?} printed as {printed:?}: {e}"));
    let same = bare(tree.clone()) == bare(again);
    assert!(same, "{text:?} printed as {printed:?} is another tree");
}

/// Returns the tree without the properties that the printed form does not contain: positions, and
/// the order of matchers.
fn bare(mut tree: Expr) -> Expr {
    strip(&mut tree);
    tree
}

fn strip(tree: &mut Expr) {
    tree.span = PositionRange::default();
    match &mut tree.kind {
        ExprKind::Number(literal) => strip_number(literal),
        ExprKind::Vector(vector) => strip_selector(vector),
        ExprKind::Matrix(matrix) => {
            matrix.vector_span = PositionRange::default();
            strip_selector(&mut matrix.vector);
            strip_duration(&mut matrix.range);
        }
        ExprKind::Subquery(subquery) => {
            strip_duration(&mut subquery.range);
            strip_duration(&mut subquery.offset);
            subquery.step.iter_mut().for_each(strip_duration);
        }
        ExprKind::Binary(binary) => {
            if let Some(matching) = &mut binary.matching {
                let fills = [&mut matching.fill_left, &mut matching.fill_right];
                fills.into_iter().flatten().for_each(strip_nan);
            }
        }
        _ => {}
    }
    tree.for_each_child_mut(&mut strip);
}

fn strip_selector(vector: &mut VectorSelector) {
    strip_duration(&mut vector.offset);
    vector
        .matchers
        .sort_by_key(|m| (m.name().to_owned(), m.op().as_str(), m.value().to_vec()));
}

fn strip_duration(duration: &mut QueryDuration) {
    if let QueryDuration::Expr(expr) = duration {
        strip_duration_expr(expr);
    }
}

fn strip_duration_expr(expr: &mut DurationExpr) {
    expr.span = PositionRange::default();
    match &mut expr.kind {
        DurationExprKind::Number(literal) => strip_number(literal),
        DurationExprKind::Step | DurationExprKind::Range => {}
        DurationExprKind::Negative(inner) | DurationExprKind::Paren(inner) => {
            strip_duration_expr(inner)
        }
        DurationExprKind::Binary(_, left, right)
        | DurationExprKind::MinOf(left, right)
        | DurationExprKind::MaxOf(left, right) => {
            strip_duration_expr(left);
            strip_duration_expr(right);
        }
    }
}

fn strip_number(literal: &mut NumberLiteral) {
    strip_nan(&mut literal.value);
}

/// Replaces NaN by a number, because NaN does not equal itself and its sign is not printed.
fn strip_nan(value: &mut f64) {
    if value.is_nan() {
        *value = f64::from_bits(1);
    }
}

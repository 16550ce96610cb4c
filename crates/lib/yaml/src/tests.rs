//! Tests of documents and their trees. `cases.txt` contains cases with the results of Go's `yaml`.

use super::scalar::{YamlScalar, interpret_scalar};
use super::*;

/// Decodes the escapes of a Go string.
fn unescape(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        let escaped = match (first, tail) {
            (b'\\', [b'n', ..]) => b'\n',
            (b'\\', [b'r', ..]) => b'\r',
            (b'\\', [b't', ..]) => b'\t',
            (b'\\', [b'\\', ..]) => b'\\',
            (b'\\', [b'x', high, low, after @ ..]) => {
                let digits = [*high, *low];
                let digits = str::from_utf8(&digits).unwrap();
                bytes.push(u8::from_str_radix(digits, 16).unwrap());
                rest = after;
                continue;
            }
            (c, _) => {
                bytes.push(*c);
                continue;
            }
        };
        bytes.push(escaped);
        rest = &tail[1..];
    }
    bytes
}

fn escape(text: &str) -> String {
    let escape = |b: u8| match b {
        b'\n' => r"\n".to_owned(),
        b'\t' => r"\t".to_owned(),
        b'\\' => r"\\".to_owned(),
        b' '..=b'~' => char::from(b).to_string(),
        b => format!("\\x{b:02x}"),
    };
    text.bytes().map(escape).collect()
}

/// Formats a tree with the meaning of its scalars, such as `{a:1 b:["x" null]}`. `!` marks a key
/// with a rival.
fn shown(node: &YamlNode) -> String {
    let rival = |e: &YamlEntry| if e.has_rival { "!" } else { "" };
    match (&node.value, interpret_scalar(node)) {
        (YamlValue::Scalar { .. }, Some(YamlScalar::Null)) => "null".into(),
        (YamlValue::Scalar { .. }, Some(YamlScalar::Bool(is_on))) => is_on.to_string(),
        (YamlValue::Scalar { .. }, Some(YamlScalar::Whole(whole))) => whole.to_string(),
        (YamlValue::Scalar { .. }, Some(YamlScalar::Number(number))) => format!("{number:e}"),
        (YamlValue::Scalar { text, .. }, _) => format!("\"{}\"", escape(text)),
        (YamlValue::List(items), _) => {
            let items: Vec<_> = items.iter().map(shown).collect();
            format!("[{}]", items.join(" "))
        }
        (YamlValue::Map(entries), _) => {
            let entry =
                |e: &YamlEntry| format!("{}{}:{}", escape(&e.key), rival(e), shown(&e.node));
            let entries: Vec<_> = entries.iter().map(entry).collect();
            format!("{{{}}}", entries.join(" "))
        }
    }
}

/// Converts a number such as `1.5e+00` to Rust's notation.
fn without_zeros(number: &str) -> String {
    let Some((digits, exponent)) = number.split_once('e') else {
        return number.replace("+Inf", "inf").replace("-Inf", "-inf");
    };
    match exponent.parse::<i32>() {
        Ok(exponent) => format!("{digits}e{exponent}"),
        Err(_) => number.to_owned(),
    }
}

/// Converts the expected tree to Rust's notation of numbers.
fn expected(tree: &str) -> String {
    let is_number = |c: char| !matches!(c, ' ' | '[' | ']' | '{' | '}' | ':');
    let mut out = String::new();
    let mut rest = tree;
    while let Some(c) = rest.chars().next() {
        let token = match c {
            '"' => &rest[..=rest[1..].find('"').map_or(0, |end| end + 1)],
            c if is_number(c) => rest.split(|c| !is_number(c)).next().unwrap_or(rest),
            _ => &rest[..c.len_utf8()],
        };
        let is_numeric = token.starts_with(|c: char| c.is_ascii_digit() || "+-".contains(c));
        if is_numeric {
            out += &without_zeros(token)
        } else {
            out += token
        }
        rest = &rest[token.len()..];
    }
    out
}

fn read(bytes: &[u8], dialect: YamlDialect) -> Result<String, YamlError> {
    let root = parse_as(&decode(bytes)?, dialect)?;
    Ok(root.map_or_else(|| "nothing".into(), |root| shown(&root)))
}

fn check(text: &str, want: &str) {
    let got = read(text.as_bytes(), YamlDialect::V2);
    let got = got.unwrap_or_else(|e| format!("error {e}"));
    assert_eq!(got, want, "{text}");
}

#[test]
fn parse_reads_what_go_reads() {
    let is_case = |line: &&str| line.contains('\t');
    for line in include_str!("cases.txt").lines().filter(is_case) {
        let columns: Vec<&str> = line.split('\t').collect();
        let bytes = unescape(columns[0]);
        let wants = [columns[1], columns[columns.len() - 1]];
        for (dialect, want) in [YamlDialect::V2, YamlDialect::V3].into_iter().zip(wants) {
            let got = read(&bytes, dialect);
            match want {
                "refused" => assert!(got.is_err(), "{dialect:?} {line}: {got:?}"),
                want => assert_eq!(got.as_deref(), Ok(&*expected(want)), "{dialect:?} {line}"),
            }
        }
    }
}

#[test]
fn parse_finds_the_sign_behind_a_key_within_1024_characters() {
    let key = |length: usize| "k".repeat(length);
    check(
        &format!("{}: 1", key(1024)),
        &format!("{{{}:1}}", key(1024)),
    );
    check(
        &format!("{}: 1", key(1025)),
        "error 1:1026: mapping values are not allowed in this context",
    );
    check(
        &format!("a: 1\n{}: 1", key(1025)),
        "error 2:1026: could not find expected ':'",
    );
}

#[test]
fn parse_block_scalars_begin_with_their_sign() {
    for (text, line, column) in [
        ("a: |\n  x\n", 1, 4),
        ("- &b\n  a: !!str >-\n\n    x\n", 2, 12),
        ("a: 'c|d'\nb: | # |\n  x\n", 2, 4),
        ("é: é\nü: >\n\n\n    x\n", 2, 4),
    ] {
        let root = parse(text).unwrap().unwrap();
        let map = root.items().first().unwrap_or(&root);
        let YamlValue::Map(entries) = &map.value else {
            panic!("{text}");
        };
        let place = entries.last().unwrap().node.place;
        assert_eq!(place, YamlPosition { line, column }, "{text}");
    }
}

#[test]
fn parse_malformed_text_names_line_and_column() {
    check(
        "a: 1\nb: 2\na: 3\n",
        "error 3:1: duplicate key \"a\", first set at 1:1",
    );
    check(
        "a: [1\nb: 2\n",
        "error 2:2: did not find expected ',' or ']'",
    );
    check(
        "a: *nowhere\n",
        "error 1:4: unknown anchor 'nowhere' referenced",
    );
    check(
        "a: &x [*x]\n",
        "error 1:8: anchor 'x' value contains itself",
    );
    check("[a]: 1\n", "error 1:1: a key must be a scalar");
    check(
        "a: 1\n\tb: 2\n",
        "error 2:1: found a tab character that violates indentation, in a plain scalar that \
         starts at 1:4",
    );
    check(
        "a:\n\tb: 2\n",
        "error 2:1: found character that cannot start any token",
    );
    check(
        "a: b: c\n",
        "error 1:5: mapping values are not allowed in this context",
    );
    check(
        "a: 1\nb\nc: 2\n",
        "error 3:1: could not find expected ':', in a key that starts at 2:1",
    );
    check(
        "a: \"b\nc: d\n",
        "error 3:1: found unexpected end of stream, in a quoted scalar that starts at 1:4",
    );
    check(
        "a: x\nb: \u{7}\n",
        "error 2:4: control characters are not allowed",
    );
    check(
        "a:\n  - b\n  c: d\n",
        "error 3:3: did not find expected '-' indicator",
    );
    check("a:\n  b: c\n - d\n", "error 3:2: did not find expected key");
    check("a: !!int x\n", "error 1:10: cannot decode `x` as a !!int");
    check(
        "%YAML 1.2\n---\na: b\n",
        "error 1:1: found incompatible YAML document",
    );
    let e = decode(b"a: 1\nb: \xff\n").unwrap_err();
    assert_eq!(e.to_string(), "2:4: invalid UTF-8 octet 0xff");
}

#[test]
fn parse_hostile_text_is_refused_early() {
    let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for i in 1..9 {
        let items = vec![format!("*a{}", i - 1); 10].join(", ");
        bomb += &format!("a{i}: &a{i} [{items}]\n");
    }
    let e = parse(&bomb).unwrap_err();
    assert_eq!(e.message, "too many values: limit 1000000");
    for (open, close) in [
        ("[", "]"),
        ("{a: ", "}"),
        ("- ", ""),
        ("? ", ""),
        ("[? ", "]"),
    ] {
        let deep = open.repeat(5000) + "x" + &close.repeat(5000);
        let e = parse(&deep).unwrap_err();
        assert_eq!(e.message, "nested too deeply: 101 levels, limit 100");
    }
}

//! Formats a tree as YAML text in block style, with the layout of Go's `yaml`, so that people and
//! tools can compare the text with that of a Prometheus server.
//!
//! Unquoted scalars remain unchanged. Text is quoted if it would have another meaning without
//! quotes, multi-line text becomes a literal block scalar, and long lines break at spaces. The
//! rules follow the emitter of libyaml.

use super::node::{YamlNode, YamlValue};
use super::scalar::{YamlScalar, resolve};
use std::fmt::Write;

/// Column after which a line breaks at the next space.
const WIDTH: usize = 80;

/// Maximum length in bytes of a key without `?`; libyaml's limit.
const KEY_BYTES_MAX: usize = 128;

/// Keys whose lists are formatted on one line.
const IN_ONE_LINE: [&str; 1] = ["source_labels"];

/// Formats a tree as YAML text that ends with a line break.
pub fn print(root: &YamlNode) -> String {
    let mut printer = YamlPrinter::default();
    printer.write_node(root, 0);
    printer.out.push('\n');
    printer.out
}

/// Context of a scalar, which determines whether it needs quotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum YamlScalarContext {
    Block,
    OneLine,
    Key,
}

#[derive(Default)]
struct YamlPrinter {
    out: String,
    column: usize,
}

impl YamlPrinter {
    fn put(&mut self, text: &str) {
        self.out.push_str(text);
        self.column += text.chars().count();
    }

    fn begin_line(&mut self, indent: usize) {
        self.out.push('\n');
        self.column = 0;
        self.put(&" ".repeat(indent));
    }

    /// Formats `node` at the current position. Its further lines are indented by `at` spaces.
    fn write_node(&mut self, node: &YamlNode, at: usize) {
        match &node.value {
            YamlValue::List(items) if !items.is_empty() => {
                for (i, item) in items.iter().enumerate() {
                    if i > 0 {
                        self.begin_line(at);
                    }
                    self.put("- ");
                    self.write_node(item, item_indent(item, at));
                }
            }
            YamlValue::Map(entries) if !entries.is_empty() => {
                for (i, entry) in entries.iter().enumerate() {
                    if i > 0 {
                        self.begin_line(at);
                    }
                    self.write_key(&entry.key, at);
                    self.write_value(&entry.key, &entry.node, at);
                }
            }
            YamlValue::List(_) => self.put("[]"),
            YamlValue::Map(_) => self.put("{}"),
            YamlValue::Scalar { text, plain } => {
                self.write_scalar(text, *plain, at, YamlScalarContext::Block)
            }
        }
    }

    /// Formats a key with its `:` in a mapping that is indented by `indent` spaces. A long key gets
    /// a `?`, because readers find others only if their `:` is near.
    fn write_key(&mut self, key: &str, indent: usize) {
        let is_long = key.len() > KEY_BYTES_MAX;
        if is_long {
            self.put("? ");
        }
        self.write_text(key, indent, YamlScalarContext::Key);
        if is_long {
            self.begin_line(indent);
        }
        self.put(":");
    }

    /// Formats the value of a key in a mapping that is indented by `indent` spaces.
    fn write_value(&mut self, key: &str, node: &YamlNode, indent: usize) {
        match &node.value {
            YamlValue::List(items) if !items.is_empty() && IN_ONE_LINE.contains(&key) => {
                self.write_one_line(items, indent);
            }
            YamlValue::List(items) if !items.is_empty() => {
                self.begin_line(indent);
                self.write_node(node, indent);
            }
            YamlValue::Map(entries) if !entries.is_empty() => {
                self.begin_line(indent + 2);
                self.write_node(node, indent + 2);
            }
            YamlValue::Scalar { text, plain: true } if text.is_empty() => {}
            _ => {
                self.put(" ");
                self.write_node(node, indent);
            }
        }
    }

    fn write_one_line(&mut self, items: &[YamlNode], indent: usize) {
        self.put(" [");
        for (i, item) in items.iter().enumerate() {
            if i > 0 {
                self.put(",");
                if self.column > WIDTH {
                    self.begin_line(indent + 2)
                } else {
                    self.put(" ")
                }
            }
            if let YamlValue::Scalar { text, plain } = &item.value {
                self.write_scalar(text, *plain, indent, YamlScalarContext::OneLine);
            }
        }
        self.put("]");
    }

    fn write_scalar(&mut self, text: &str, plain: bool, indent: usize, place: YamlScalarContext) {
        // A scalar without quotes in the document may need them in another context.
        if plain && (text.is_empty() || can_be_plain(text, place)) {
            self.write_folded(
                text,
                (place != YamlScalarContext::Key).then_some(indent + 2),
            )
        } else {
            self.write_text(text, indent, place)
        }
    }

    fn write_text(&mut self, text: &str, indent: usize, place: YamlScalarContext) {
        if text.contains('\n') && place == YamlScalarContext::Block && text.chars().all(is_shown) {
            return self.write_literal(text, indent + 2);
        }
        let breaks = (place != YamlScalarContext::Key).then_some(indent + 2);
        let means_itself = resolve(text) == YamlScalar::Text && !is_time(text) && text != "<<";
        if means_itself && can_be_plain(text, place) {
            return self.write_folded(text, breaks);
        }
        if means_itself && text.chars().all(|c| is_shown(c) && c != '\n') && !has_odd_space(text) {
            let quoted = format!("'{}'", text.replace('\'', "''"));
            return self.write_folded(&quoted, breaks);
        }
        let mut quoted = String::from("\"");
        for c in text.chars() {
            escape(c, &mut quoted);
        }
        quoted.push('"');
        self.put(&quoted);
    }

    /// Writes a text, which may break at single spaces. Further lines are indented by `breaks`
    /// spaces; `None` prohibits breaks.
    fn write_folded(&mut self, text: &str, breaks: Option<usize>) {
        let mut words = text.split(' ').peekable();
        while let Some(word) = words.next() {
            self.put(word);
            let Some(next) = words.peek() else { return };
            let is_single = !word.is_empty() && !next.is_empty();
            match breaks.filter(|_| is_single && self.column > WIDTH) {
                Some(indent) => self.begin_line(indent),
                None => self.put(" "),
            }
        }
    }

    fn write_literal(&mut self, text: &str, indent: usize) {
        self.put("|");
        if text.starts_with([' ', '\n']) {
            self.put("2");
        }
        let body = text.strip_suffix('\n');
        match body {
            None => self.put("-"),
            Some(body) if body.is_empty() || body.ends_with('\n') => self.put("+"),
            Some(_) => {}
        }
        for line in body.unwrap_or(text).split('\n') {
            if line.is_empty() {
                self.begin_line(0)
            } else {
                self.begin_line(indent);
                self.put(line);
            }
        }
    }
}

/// Returns the indentation of the further lines of a list item whose dash is at `indent`.
fn item_indent(item: &YamlNode, indent: usize) -> usize {
    match &item.value {
        YamlValue::Scalar { .. } => indent,
        YamlValue::List(_) | YamlValue::Map(_) => indent + 2,
    }
}

/// Returns whether a character can be written without an escape.
fn is_shown(c: char) -> bool {
    c == '\n' || !c.is_control() && !matches!(c, '\u{feff}' | '\u{2028}' | '\u{2029}')
}

fn escape(c: char, out: &mut String) {
    match c {
        '"' => out.push_str("\\\""),
        '\\' => out.push_str("\\\\"),
        '\n' => out.push_str("\\n"),
        '\t' => out.push_str("\\t"),
        '\r' => out.push_str("\\r"),
        '\0' => out.push_str("\\0"),
        '\u{feff}' => out.push_str("\\uFEFF"),
        '\u{85}' => out.push_str("\\N"),
        '\u{2028}' => out.push_str("\\L"),
        '\u{2029}' => out.push_str("\\P"),
        c if c.is_control() => write!(out, "\\x{:02X}", c as u32).expect("to a string"),
        c => out.push(c),
    }
}

/// Returns whether a text can be written without quotes in this context, apart from its meaning.
fn can_be_plain(text: &str, place: YamlScalarContext) -> bool {
    let Some(first) = text.chars().next() else {
        return false;
    };
    let is_space = |c: Option<char>| c.is_none_or(|c| c == ' ');
    let second = text.chars().nth(1);
    let begins_badly = match first {
        '#' | ',' | '[' | ']' | '{' | '}' | '&' | '*' | '!' | '|' | '>' | '\'' | '"' | '%'
        | '@' | '`' | ' ' => true,
        '?' | ':' => place == YamlScalarContext::OneLine || is_space(second),
        '-' => is_space(second),
        _ => text.starts_with("---") || text.starts_with("..."),
    };
    if begins_badly || text.starts_with("---") || text.ends_with(' ') {
        return false;
    }
    let mut before = None;
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        let stands = match c {
            ',' | '?' | '[' | ']' | '{' | '}' => place != YamlScalarContext::OneLine,
            ':' => place != YamlScalarContext::OneLine && !is_space(rest.peek().copied()),
            '#' => before != Some(' '),
            c => is_shown(c) && c != '\n',
        };
        if !stands {
            return false;
        }
        before = Some(c);
    }
    true
}

/// Returns whether the text contains spaces that single quotes would not preserve.
fn has_odd_space(text: &str) -> bool {
    text.starts_with(' ') && text.trim().is_empty()
}

/// Returns whether a YAML 1.1 reader interprets the text as a date, a time or a base 60 number.
fn is_time(text: &str) -> bool {
    let is_digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let whole = unsigned
        .split_once('.')
        .map_or(unsigned, |(whole, _)| whole);
    let mut parts = whole.split(':');
    let first = parts.next().unwrap_or_default();
    let is_sixtieth = |part: &str| {
        is_digits(part) && part.len() <= 2 && part.parse().is_ok_and(|number: u32| number < 60)
    };
    let rest: Vec<&str> = parts.collect();
    if is_digits(&first.replace('_', "")) && !rest.is_empty() && rest.iter().all(|p| is_sixtieth(p))
    {
        return true;
    }
    let date = text.split(['T', 't', ' ']).next().unwrap_or_default();
    let parts: Vec<&str> = date.split('-').collect();
    matches!(parts[..], [year, month, day] if year.len() == 4
        && [month, day].iter().all(|part| part.len() <= 2)
        && [year, month, day].iter().all(|part| is_digits(part)))
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;

    fn check(text: &str, want: &str) {
        let root = parse(text).unwrap().unwrap();
        let printed = print(&root);
        assert_eq!(printed, want, "{text}");
        // The printed text has the same meaning, and printing it again does not change it.
        let again = parse(&printed).unwrap().unwrap();
        assert_eq!(print(&again), printed);
    }

    #[test]
    fn tree_is_laid_out_as_go_does_it() {
        check(
            "{a: {b: [c, {d: 1, e: [x]}], f: {}}, g: []}",
            "a:\n  b:\n  - c\n  - d: 1\n    e:\n    - x\n  f: {}\ng: []\n",
        );
        check("[[a, b], c]", "- - a\n  - b\n- c\n");
        check("a: [-, -1, ~]", "a:\n- '-'\n- -1\n- ~\n");
        check(
            "x: {source_labels: ['a b', 'c,d']}",
            "x:\n  source_labels: [a b, 'c,d']\n",
        );
    }

    #[test]
    fn long_key_is_explicit() {
        for (length, want) in [(128, "K:"), (129, "? K\n:"), (2000, "? K\n:")] {
            let key = "k".repeat(length);
            for value in [" x", "\n- x\n- b", "\n  a: b"] {
                let want = format!("{want}{value}\nz: a\n").replace('K', &key);
                check(&format!("? {key}\n:{value}\nz: a\n"), &want);
            }
        }
    }

    #[test]
    fn text_has_quotes_where_it_would_mean_something_else() {
        for (text, want) in [
            ("plain", "plain"),
            ("y", "\"y\""),
            ("5", "\"5\""),
            ("2026-01-02", "\"2026-01-02\""),
            ("1:20", "\"1:20\""),
            ("", "\"\""),
            ("~", "\"~\""),
            ("a: b", "'a: b'"),
            ("it's: b", "'it''s: b'"),
            ("it's", "it's"),
            ("# .*", "'# .*'"),
            ("[::1]:9090", "'[::1]:9090'"),
            ("C:\\x", "C:\\x"),
            ("- a", "'- a'"),
            ("-a", "-a"),
            ("a\tb", "\"a\\tb\""),
            (";", ";"),
            (",", "','"),
            ("a\u{2028}b", "\"a\\Lb\""),
            ("---", "'---'"),
            ("a #b", "'a #b'"),
            ("true|yes", "true|yes"),
        ] {
            let root = YamlNode {
                place: super::super::YamlPosition { line: 1, column: 1 },
                value: YamlValue::Scalar {
                    text: text.to_owned(),
                    plain: false,
                },
            };
            assert_eq!(print(&root), format!("{want}\n"), "{text:?}");
        }
    }

    #[test]
    fn text_of_several_lines_is_a_literal_and_long_lines_break() {
        check("k: \"a\\nb\\n\"", "k: |\n  a\n  b\n");
        check("k: \"a\\nb\"", "k: |-\n  a\n  b\n");
        check("k: \"a\\n\\nb\\n\\n\"", "k: |+\n  a\n\n  b\n\n");
        let words = ["word"; 20].join(" ");
        let long = format!("k: '{words}'");
        let (first, rest) = (["word"; 16].join(" "), ["word"; 4].join(" "));
        check(&long, &format!("k: {first}\n  {rest}\n"));
    }
}

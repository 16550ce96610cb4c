//! A tree back to YAML: block style, comments and anchors gone.
//!
//! Invariant: reading what is printed gives the same tree, places aside.

use super::{Node, Value};
use std::fmt::Write;

/// The tree as YAML text.
pub fn print(root: &Node) -> String {
    let mut out = String::new();
    print_node(root, 0, &mut out);
    out
}

/// Prints `node` from the start of a line (or behind `- `) on; ends with a line break.
fn print_node(node: &Node, indent: usize, out: &mut String) {
    match &node.value {
        Value::List(items) if !items.is_empty() => {
            for (i, item) in items.iter().enumerate() {
                pad(i, indent, out);
                out.push_str("- ");
                print_node(item, indent + 2, out);
            }
        }
        Value::Map(entries) if !entries.is_empty() => {
            for (i, entry) in entries.iter().enumerate() {
                pad(i, indent, out);
                out.push_str(&scalar(&entry.key, is_plain_key(&entry.key)));
                out.push(':');
                if is_block(&entry.node) {
                    out.push('\n');
                    out.push_str(&" ".repeat(indent + 2));
                    print_node(&entry.node, indent + 2, out);
                } else {
                    out.push(' ');
                    print_node(&entry.node, indent, out);
                }
            }
        }
        Value::List(_) => out.push_str("[]\n"),
        Value::Map(_) => out.push_str("{}\n"),
        Value::Scalar { text, plain } => {
            out.push_str(&scalar(text, *plain));
            out.push('\n');
        }
    }
}

/// Indents all lines but the first, which stands where the caller left off.
fn pad(line: usize, indent: usize, out: &mut String) {
    if line > 0 {
        out.push_str(&" ".repeat(indent));
    }
}

fn is_block(node: &Node) -> bool {
    match &node.value {
        Value::List(items) => !items.is_empty(),
        Value::Map(entries) => !entries.is_empty(),
        Value::Scalar { .. } => false,
    }
}

/// Whether a key can stand without quotes; more than these characters are allowed, but never
/// needed.
fn is_plain_key(key: &str) -> bool {
    let mut chars = key.chars();
    chars
        .next()
        .is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// A scalar as it stood if it was plain, else in double quotes with JSON's escapes, which are
/// YAML's too.
fn scalar(text: &str, plain: bool) -> String {
    if plain && !text.contains('\n') {
        return text.to_owned();
    }
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            c if c.is_control() => write!(out, "\\u{:04x}", c as u32).expect("to a string"),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

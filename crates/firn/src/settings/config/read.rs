//! Values of a tree that the walk has checked already: what a key holds, as a type.
//!
//! `None` is a key that is missing or null. Zero durations are unset, as upstream.

use firn_model::units::{parse_duration, parse_size};
use firn_model::yaml::scalar::{Scalar, scalar_of};
use firn_model::yaml::{Entry, Node, Value};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The text of `key`.
pub fn text<'n>(node: &'n Node, key: &str) -> Option<&'n str> {
    node.get(key)?.text()
}

/// The text of `key`, empty if there is none.
pub fn string(node: &Node, key: &str) -> String {
    text(node, key).unwrap_or_default().to_owned()
}

/// The text of `key`, or its default; one that is there without a value is empty.
pub fn string_or(node: &Node, key: &str, default: &str) -> String {
    let value = string_or_empty(node, key);
    value.unwrap_or_else(|| default.to_owned())
}

/// The text of `key`, which is empty if the key is there without a value.
pub fn string_or_empty(node: &Node, key: &str) -> Option<String> {
    let value = node.get(key)?;
    Some(value.text().unwrap_or_default().to_owned())
}

/// The texts of the list `key`.
pub fn texts(node: &Node, key: &str) -> Option<Vec<String>> {
    let list = node.get(key).filter(|list| !list.is_null())?;
    let text = |item: &Node| item.text().unwrap_or_default().to_owned();
    Some(list.items().iter().map(text).collect())
}

fn scalar(node: &Node, key: &str) -> Option<Scalar> {
    scalar_of(node.get(key)?)
}

/// The boolean of `key`.
pub fn flag(node: &Node, key: &str) -> Option<bool> {
    match scalar(node, key)? {
        Scalar::Bool(value) => Some(value),
        _ => None,
    }
}

/// The boolean of `key`, or its default; one that is there without a value is false.
pub fn flag_or(node: &Node, key: &str, default: bool) -> bool {
    match node.get(key) {
        None => default,
        Some(_) => flag(node, key).unwrap_or(false),
    }
}

/// The duration of `key`, unless it is zero.
pub fn duration(node: &Node, key: &str) -> Option<Duration> {
    let duration = parse_duration(text(node, key)?).ok()?;
    Some(duration).filter(|d| !d.is_zero())
}

/// The duration of `key`, or its default; one that is there without a value is zero.
pub fn duration_or(node: &Node, key: &str, default: Duration) -> Duration {
    match node.get(key) {
        None => default,
        Some(_) => duration(node, key).unwrap_or_default(),
    }
}

/// The size of `key`, unless it is zero or less.
pub fn size(node: &Node, key: &str) -> Option<u64> {
    let text = text(node, key)?;
    let size = parse_size(text.strip_prefix('+').unwrap_or(text));
    size.ok().filter(|size| *size > 0)
}

/// The count of `key`, unless it is zero.
pub fn count(node: &Node, key: &str) -> Option<u64> {
    scalar(node, key)?.count().filter(|count| *count > 0)
}

/// The whole number of `key`, or its default; one that is there without a value is zero.
pub fn integer_or(node: &Node, key: &str, default: i64) -> i64 {
    match scalar(node, key) {
        None => default,
        Some(scalar) => scalar.integer().unwrap_or(0),
    }
}

/// The number of `key`.
pub fn number(node: &Node, key: &str) -> Option<f64> {
    scalar(node, key)?.number()
}

/// The path of `key`, taken from `dir` if it is relative.
pub fn path(node: &Node, key: &str, dir: &Path) -> Option<PathBuf> {
    let path = text(node, key).filter(|path| !path.is_empty())?;
    Some(dir.join(path))
}

/// The entries of a mapping.
pub fn entries(node: Option<&Node>) -> &[Entry] {
    match node.map(|node| &node.value) {
        Some(Value::Map(entries)) => entries,
        _ => &[],
    }
}

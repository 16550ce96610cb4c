//! Typed access to the values of a YAML tree that was already validated against the schema.
//!
//! `None` means that a key is missing or null. A duration, size or count of zero is also `None`, as
//! in upstream.

use firn_model::units::{parse_duration, parse_size};
use firn_yaml::scalar::{YamlScalar, interpret_scalar};
use firn_yaml::{YamlEntry, YamlNode, YamlValue};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Returns the text of `key`, or `None` if the key is missing or null.
pub fn text<'n>(node: &'n YamlNode, key: &str) -> Option<&'n str> {
    node.get(key)?.text()
}

/// Returns whether `key` has a text that is not empty.
pub fn is_set(node: &YamlNode, key: &str) -> bool {
    text(node, key).is_some_and(|text| !text.is_empty())
}

/// Returns the text of `key`, or an empty string if the key is missing or null.
pub fn string(node: &YamlNode, key: &str) -> String {
    text(node, key).unwrap_or_default().to_owned()
}

/// Returns the text of `key`, or the default if the key is missing. A key without a value is empty.
pub fn string_or(node: &YamlNode, key: &str, default: &str) -> String {
    let value = string_or_empty(node, key);
    value.unwrap_or_else(|| default.to_owned())
}

/// Returns the text of `key`, or `None` if the key is missing. A key without a value is empty.
pub fn string_or_empty(node: &YamlNode, key: &str) -> Option<String> {
    let value = node.get(key)?;
    Some(value.text().unwrap_or_default().to_owned())
}

/// Returns the texts of the list `key`. Null items become empty texts.
pub fn texts(node: &YamlNode, key: &str) -> Option<Vec<String>> {
    let list = node.get(key).filter(|list| !list.is_null())?;
    let text = |item: &YamlNode| item.text().unwrap_or_default().to_owned();
    Some(list.items().iter().map(text).collect())
}

fn scalar(node: &YamlNode, key: &str) -> Option<YamlScalar> {
    interpret_scalar(node.get(key)?)
}

/// Returns the boolean of `key`, or `None` if the key is missing or null.
pub fn flag(node: &YamlNode, key: &str) -> Option<bool> {
    match scalar(node, key)? {
        YamlScalar::Bool(value) => Some(value),
        _ => None,
    }
}

/// Returns the boolean of `key`, or the default if the key is missing. A key without a value is
/// false.
pub fn flag_or(node: &YamlNode, key: &str, default: bool) -> bool {
    match node.get(key) {
        None => default,
        Some(_) => flag(node, key).unwrap_or(false),
    }
}

/// Returns the duration of `key`, or `None` if it is zero.
pub fn duration(node: &YamlNode, key: &str) -> Option<Duration> {
    let duration = parse_duration(text(node, key)?).ok()?;
    Some(duration).filter(|d| !d.is_zero())
}

/// Returns the duration of `key`, or the default if the key is missing. A key without a value is
/// zero.
pub fn duration_or(node: &YamlNode, key: &str, default: Duration) -> Duration {
    match node.get(key) {
        None => default,
        Some(_) => duration(node, key).unwrap_or_default(),
    }
}

/// Returns the size of `key` in bytes, or `None` if it is zero or negative.
pub fn size(node: &YamlNode, key: &str) -> Option<u64> {
    let text = text(node, key)?;
    let size = parse_size(text.strip_prefix('+').unwrap_or(text));
    size.ok().filter(|size| *size > 0)
}

/// Returns the count of `key`, or `None` if it is zero.
pub fn count(node: &YamlNode, key: &str) -> Option<u64> {
    scalar(node, key)?.to_unsigned().filter(|count| *count > 0)
}

/// Returns the integer of `key`, or the default if the key is missing. A key without a value is
/// zero.
pub fn integer_or(node: &YamlNode, key: &str, default: i64) -> i64 {
    match scalar(node, key) {
        None => default,
        Some(scalar) => scalar.to_integer().unwrap_or(0),
    }
}

/// Returns the number of `key`, or `None` if the key is missing or null.
pub fn number(node: &YamlNode, key: &str) -> Option<f64> {
    scalar(node, key)?.to_float()
}

/// Returns the path of `key`, relative to `dir` unless it is absolute.
pub fn path(node: &YamlNode, key: &str, dir: &Path) -> Option<PathBuf> {
    let path = text(node, key).filter(|path| !path.is_empty())?;
    Some(dir.join(path))
}

/// Returns the entries of a mapping, or none for other values.
pub fn entries(node: Option<&YamlNode>) -> &[YamlEntry] {
    match node.map(|node| &node.value) {
        Some(YamlValue::Map(entries)) => entries,
        _ => &[],
    }
}

/// Returns whether `text` is a UUID in the common form with four dashes.
pub fn is_uuid(text: &str) -> bool {
    text.len() == 36
        && text.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}

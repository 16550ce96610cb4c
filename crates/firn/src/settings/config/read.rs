//! Values of a tree that the walk has checked already: what a key holds, as a type.
//!
//! `None` is a key that is missing or null. Zero durations are unset, as upstream.

use super::schema::parse_bool;
use firn_model::units::{parse_duration, parse_size};
use firn_model::yaml::{Entry, Node, Value, YamlError};
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

/// The boolean of `key`.
pub fn flag(node: &Node, key: &str) -> Option<bool> {
    parse_bool(text(node, key)?)
}

/// The duration of `key`, unless it is zero.
pub fn duration(node: &Node, key: &str) -> Option<Duration> {
    let duration = parse_duration(text(node, key)?).ok()?;
    Some(duration).filter(|d| !d.is_zero())
}

/// The size of `key`, unless it is zero.
pub fn size(node: &Node, key: &str) -> Option<u64> {
    parse_size(text(node, key)?).ok().filter(|size| *size > 0)
}

/// The count of `key`, unless it is zero; a negative one is an error.
pub fn count(node: &Node, key: &str) -> Result<Option<u64>, YamlError> {
    let Some(value) = node.get(key) else {
        return Ok(None);
    };
    let Some(text) = value.text() else {
        return Ok(None);
    };
    match text.parse::<u64>() {
        Ok(count) => Ok(Some(count).filter(|count| *count > 0)),
        Err(_) => Err(value.error(format!("{key}: must not be negative: {text}"))),
    }
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

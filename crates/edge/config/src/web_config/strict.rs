//! Reads a YAML tree with the rules of Go's library in strict mode: every field must be known and
//! have the expected type. Errors are collected with their lines and reported together.

use firn_yaml::scalar::{YamlScalar, interpret_scalar};
use firn_yaml::{YamlNode, YamlValue};
use std::time::Duration;

/// Reader of values that collects the errors found so far. Used for one web config.
#[derive(Default)]
pub(super) struct StrictValueReader {
    errors: Vec<String>,
}

impl StrictValueReader {
    /// Returns all errors in the format of Go's library, if there are any.
    pub(super) fn finish(self) -> Result<(), String> {
        if self.errors.is_empty() {
            Ok(())
        } else {
            Err(format!(
                "yaml: unmarshal errors:\n  {}",
                self.errors.join("\n  ")
            ))
        }
    }

    /// Returns the fields of a struct of this type that are set, in the order of the file. Unknown
    /// fields are errors.
    pub(super) fn fields<'n>(
        &mut self,
        node: Option<&'n YamlNode>,
        type_name: &str,
        known: &[&'static str],
    ) -> Vec<(&'static str, &'n YamlNode)> {
        let mut fields = Vec::new();
        let Some(node) = node.filter(|node| !node.is_null()) else {
            return fields;
        };
        let YamlValue::Map(entries) = &node.value else {
            self.mismatch(node, type_name);
            return fields;
        };
        for entry in entries {
            match known.iter().find(|known| **known == entry.key) {
                Some(known) => fields.push((*known, &entry.node)),
                None => self.errors.push(format!(
                    "line {}: field {} not found in type {type_name}",
                    entry.place.line, entry.key
                )),
            }
        }
        fields
    }

    /// Returns the entries of a mapping with arbitrary keys and text values.
    pub(super) fn map(&mut self, node: &YamlNode, type_name: &str) -> Vec<(String, String)> {
        if node.is_null() {
            return Vec::new();
        }
        let YamlValue::Map(entries) = &node.value else {
            self.mismatch(node, type_name);
            return Vec::new();
        };
        let text = |e: &firn_yaml::YamlEntry| (e.key.clone(), self.text(&e.node));
        entries.iter().map(text).collect()
    }

    /// Returns the items of a list, or `None` if the value is null or not a list.
    pub(super) fn texts<'n>(
        &mut self,
        node: &'n YamlNode,
        type_name: &str,
    ) -> Option<Vec<&'n YamlNode>> {
        if node.is_null() {
            return None;
        }
        match &node.value {
            YamlValue::List(items) => Some(items.iter().collect()),
            _ => {
                self.mismatch(node, type_name);
                None
            }
        }
    }

    /// Returns a text, which is empty for a null value.
    pub(super) fn text(&mut self, node: &YamlNode) -> String {
        match &node.value {
            YamlValue::Scalar { text, .. } if !node.is_null() => text.clone(),
            YamlValue::Scalar { .. } => String::new(),
            _ => {
                self.mismatch(node, "string");
                String::new()
            }
        }
    }

    /// Returns a boolean, or `None` if the value is null or invalid.
    pub(super) fn flag(&mut self, node: &YamlNode) -> Option<bool> {
        self.scalar(node, "bool", |scalar| match scalar {
            YamlScalar::Bool(value) => Some(value),
            _ => None,
        })
    }

    /// Returns an integer, or `None` if the value is null or invalid.
    pub(super) fn integer(&mut self, node: &YamlNode) -> Option<i64> {
        self.scalar(node, "int", YamlScalar::to_integer)
    }

    /// Returns a duration in Go's format or in nanoseconds, or `None` if the value is null or
    /// invalid. Negative values become zero.
    pub(super) fn duration(&mut self, node: &YamlNode) -> Option<Duration> {
        self.scalar(node, "time.Duration", |scalar| match scalar {
            YamlScalar::Text => go_duration(node.text()?),
            nanos => Some(Duration::from_nanos(
                u64::try_from(nanos.to_integer()?).unwrap_or(0),
            )),
        })
    }

    fn scalar<T>(
        &mut self,
        node: &YamlNode,
        type_name: &str,
        read: impl Fn(YamlScalar) -> Option<T>,
    ) -> Option<T> {
        if node.is_null() {
            return None;
        }
        let value = interpret_scalar(node).and_then(read);
        if value.is_none() {
            self.mismatch(node, type_name);
        }
        value
    }

    /// Records an error for a value whose type differs from `type_name`.
    fn mismatch(&mut self, node: &YamlNode, type_name: &str) {
        let value = match &node.value {
            YamlValue::List(_) => "!!seq".to_owned(),
            YamlValue::Map(_) => "!!map".to_owned(),
            YamlValue::Scalar { text, .. } => {
                let tag = match interpret_scalar(node) {
                    Some(YamlScalar::Whole(_)) => "int",
                    Some(YamlScalar::Number(_)) => "float",
                    Some(YamlScalar::Bool(_)) => "bool",
                    _ => "str",
                };
                match text.char_indices().nth(10) {
                    None => format!("!!{tag} `{text}`"),
                    Some(_) => {
                        let start: String = text.chars().take(7).collect();
                        format!("!!{tag} `{start}...`")
                    }
                }
            }
        };
        let line = node.place.line;
        self.errors.push(format!(
            "line {line}: cannot unmarshal {value} into {type_name}"
        ));
    }
}

/// Parses a duration in Go's format: `1m30s`, `1.5h`, or `0`.
fn go_duration(text: &str) -> Option<Duration> {
    match text {
        "" => return None,
        "0" => return Some(Duration::ZERO),
        _ => {}
    }
    let is_negative = text.starts_with('-');
    let mut rest = text.trim_start_matches(['+', '-']);
    let mut seconds = 0.0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let unit_len = rest
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(rest.len());
        let unit = match &rest[..unit_len] {
            "ns" => 1e-9,
            "us" | "\u{b5}s" | "\u{3bc}s" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return None,
        };
        seconds += number * unit;
        rest = &rest[unit_len..];
    }
    if is_negative {
        Some(Duration::ZERO)
    } else {
        Duration::try_from_secs_f64(seconds).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn go_duration_reads_what_go_reads() {
        let ms = |ms| Some(Duration::from_millis(ms));
        for (text, want) in [
            ("1s", ms(1000)),
            ("1m30s", ms(90_000)),
            ("1.5h", ms(5_400_000)),
            ("250ms", ms(250)),
            ("0", ms(0)),
            ("-1s", ms(0)),
            ("1", None),
            ("", None),
            ("1x", None),
            ("s", None),
            ("1d", None),
            ("1.2.3s", None),
        ] {
            assert_eq!(go_duration(text), want, "{text}");
        }
    }
}

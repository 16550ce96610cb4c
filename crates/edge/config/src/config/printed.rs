//! The config in the format of `/api/v1/status/config`: with its defaults, as Prometheus 3.14
//! prints its own.
//!
//! ```text
//! tree with redacted secrets -> jobs inherit -> sections by their rows, defaults added -> text
//! ```
//!
//! The rows of the [keys](super::keys) determine order, defaults and form. Keys under `firn` and of
//! most discoveries are printed as they were set.
//!
//! Follows upstream's `config/config.go`, whose structs are printed by Go's `yaml`.

mod inherit;
#[cfg(test)]
mod tests;

use super::keys;
use firn_config_schema::read;
use firn_config_schema::schema::{ConfigKey, ConfigValueShape, KeyPrinting};
use firn_model::units::{format_duration, parse_duration, parse_size};
use firn_yaml::scalar::{YamlScalar, interpret_scalar};
use firn_yaml::{YamlEntry, YamlNode, YamlPosition, YamlValue};
use std::path::Path;

pub use inherit::ConfigPrintContext;

/// Position of nodes that are in no file.
const NOWHERE: YamlPosition = YamlPosition { line: 1, column: 1 };

/// Returns the text of the config `root`, whose secrets must be redacted. `None` is an empty
/// config.
pub fn printed(root: Option<YamlNode>, around: &ConfigPrintContext<'_>) -> String {
    let mut root = root.unwrap_or_else(|| map(Vec::new()));
    inherit::complete(&mut root, around);
    let printer = ConfigPrinter { dir: around.dir };
    firn_yaml::print(&map(printer.section(Some(&root), keys::KEYS)))
}

fn entry(key: &str, node: YamlNode) -> YamlEntry {
    YamlEntry {
        key: key.to_owned(),
        place: NOWHERE,
        node,
        has_rival: false,
    }
}

fn node(value: YamlValue) -> YamlNode {
    YamlNode {
        place: NOWHERE,
        value,
    }
}

fn map(entries: Vec<YamlEntry>) -> YamlNode {
    node(YamlValue::Map(entries))
}

/// Creates a plain scalar, which is not a text.
fn plain(text: impl Into<String>) -> YamlNode {
    node(YamlValue::Scalar {
        text: text.into(),
        plain: true,
    })
}

/// Creates a text scalar, which is printed with quotes if needed.
fn text(text: impl Into<String>) -> YamlNode {
    node(YamlValue::Scalar {
        text: text.into(),
        plain: false,
    })
}

/// A value as printed, and whether it is Go's zero value, which may be omitted.
struct PrintedValue {
    node: YamlNode,
    is_zero: bool,
}

/// Prints sections by the rows of their keys. `dir` is the folder of the config.
struct ConfigPrinter<'p> {
    dir: &'p Path,
}

impl ConfigPrinter<'_> {
    /// Returns the entries of a section with these keys.
    fn section(&self, section: Option<&YamlNode>, groups: &[&[ConfigKey]]) -> Vec<YamlEntry> {
        let mut entries = Vec::new();
        for key in groups.iter().copied().flatten() {
            let value = section.and_then(|section| section.get(key.name));
            if let Some(shown) = self.key(value, key)
                && (!shown.is_zero || key.printing == KeyPrinting::Always)
            {
                entries.push(entry(key.name, shown.node));
            }
        }
        entries
    }

    fn key(&self, value: Option<&YamlNode>, key: &ConfigKey) -> Option<PrintedValue> {
        match (value, key.printing) {
            (_, KeyPrinting::Never) | (None, KeyPrinting::IfSet) => None,
            (None, KeyPrinting::AsWritten) => None,
            (Some(value), KeyPrinting::AsWritten) => match key.shape {
                ConfigValueShape::List(_) if value.is_null() => None,
                _ => Some(print_as_written(value)),
            },
            (Some(value), _) => self.print_value(value, key.shape),
            (None, _) => match key.shape {
                ConfigValueShape::Section(groups) => Some(self.map_of(None, groups)),
                shape => self.print_value(&plain(key.default), shape),
            },
        }
    }

    fn map_of(&self, section: Option<&YamlNode>, groups: &[&[ConfigKey]]) -> PrintedValue {
        let entries = self.section(section, groups);
        let is_zero = entries.iter().all(|entry| is_zero(&entry.node));
        PrintedValue {
            node: map(entries),
            is_zero,
        }
    }

    /// Prints a value. A section set to null is a Go struct with zero values, which is omitted.
    fn print_value(&self, value: &YamlNode, shape: ConfigValueShape) -> Option<PrintedValue> {
        let raw = value.text().unwrap_or_default();
        Some(match shape {
            ConfigValueShape::Text
            | ConfigValueShape::Secret
            | ConfigValueShape::Url
            | ConfigValueShape::LabelName
            | ConfigValueShape::TlsVersion
            | ConfigValueShape::Choice(_) => print_text(raw.to_owned()),
            ConfigValueShape::CaselessText => print_text(raw.to_lowercase()),
            ConfigValueShape::Path => print_text(self.path(raw)),
            ConfigValueShape::Duration => {
                let duration = parse_duration(raw).unwrap_or_default();
                print_plain(format_duration(duration), duration.is_zero())
            }
            ConfigValueShape::Size => {
                let bytes = parse_size(raw.strip_prefix('+').unwrap_or(raw)).unwrap_or_default();
                print_plain(size(bytes), bytes == 0)
            }
            ConfigValueShape::Bool => {
                let is_on = interpret_scalar(value) == Some(YamlScalar::Bool(true));
                print_plain(is_on.to_string(), !is_on)
            }
            ConfigValueShape::Integer | ConfigValueShape::Count | ConfigValueShape::WholeCount => {
                let whole = interpret_scalar(value).and_then(|scalar| match scalar {
                    YamlScalar::Whole(whole) => Some(whole),
                    other => other.to_integer().map(i128::from),
                });
                let whole = whole.unwrap_or_default();
                print_plain(whole.to_string(), whole == 0)
            }
            ConfigValueShape::Number => {
                let number = interpret_scalar(value).and_then(YamlScalar::to_float);
                let number = number.unwrap_or_default();
                print_plain(number.to_string(), number == 0.0)
            }
            ConfigValueShape::List(item) => {
                let items = value
                    .items()
                    .iter()
                    .map(|node| self.print_item(node, *item));
                print_list(items.collect())
            }
            ConfigValueShape::Any | ConfigValueShape::Map(ConfigValueShape::Any) => {
                return (!value.is_null()).then(|| print_as_written(value));
            }
            ConfigValueShape::Map(item) => print_sorted_map(value, |n| self.print_item(n, *item)),
            ConfigValueShape::Labels => {
                print_sorted_map(value, |node| self.print_item(node, ConfigValueShape::Text))
            }
            ConfigValueShape::Section(groups) => {
                return (!value.is_null()).then(|| self.map_of(Some(value), groups));
            }
        })
    }

    /// Prints an item of a list or of a mapping, which is never omitted.
    fn print_item(&self, item: &YamlNode, shape: ConfigValueShape) -> YamlNode {
        match shape {
            ConfigValueShape::Section(groups) => map(self.section(Some(item), groups)),
            shape => match self.print_value(item, shape) {
                Some(shown) => shown.node,
                None => text(""),
            },
        }
    }

    fn path(&self, path: &str) -> String {
        if path.is_empty() || Path::new(path).is_absolute() {
            path.to_owned()
        } else {
            self.dir.join(path).display().to_string()
        }
    }
}

fn print_plain(shown: String, is_zero: bool) -> PrintedValue {
    PrintedValue {
        node: plain(shown),
        is_zero,
    }
}

fn print_text(shown: String) -> PrintedValue {
    PrintedValue {
        is_zero: shown.is_empty(),
        node: text(shown),
    }
}

fn print_list(items: Vec<YamlNode>) -> PrintedValue {
    PrintedValue {
        is_zero: items.is_empty(),
        node: node(YamlValue::List(items)),
    }
}

fn print_as_written(value: &YamlNode) -> PrintedValue {
    PrintedValue {
        node: value.clone(),
        is_zero: false,
    }
}

/// Prints a mapping, sorted by its keys.
fn print_sorted_map(of: &YamlNode, value: impl Fn(&YamlNode) -> YamlNode) -> PrintedValue {
    let entries = read::entries(Some(of)).iter();
    let mut entries: Vec<YamlEntry> = entries.map(|e| entry(&e.key, value(&e.node))).collect();
    entries.sort_by(|a, b| a.key.cmp(&b.key));
    PrintedValue {
        is_zero: entries.is_empty(),
        node: map(entries),
    }
}

/// Returns whether Go omits a struct in which all values are like this one.
fn is_zero(node: &YamlNode) -> bool {
    match &node.value {
        YamlValue::Scalar { text, plain: true } => {
            matches!(text.as_str(), "" | "false" | "0" | "0s")
        }
        YamlValue::Scalar { text, .. } => text.is_empty(),
        YamlValue::List(items) => items.is_empty(),
        YamlValue::Map(entries) => entries.iter().all(|entry| is_zero(&entry.node)),
    }
}

/// Formats bytes like Prometheus: `1MiB512KiB`.
fn size(bytes: u64) -> String {
    const UNITS: [&str; 7] = ["EiB", "PiB", "TiB", "GiB", "MiB", "KiB", "B"];
    let mut out = String::new();
    for (i, unit) in UNITS.iter().enumerate() {
        let shift = 10 * (UNITS.len() - 1 - i);
        let count = bytes >> shift & 0x3ff;
        if count > 0 {
            out += &format!("{count}{unit}");
        }
    }
    if out.is_empty() { "0B".to_owned() } else { out }
}

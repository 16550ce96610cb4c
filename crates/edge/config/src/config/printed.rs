//! The config in the format of `/api/v1/status/config`: with its defaults, as Prometheus 3.14
//! prints its own.
//!
//! ```text
//! tree with redacted secrets -> jobs inherit -> sections by the tables, defaults added -> text
//! ```
//!
//! The keys, their order and their defaults are in [`fields`]. Keys under `firn` and of most
//! discoveries are printed as they were set.
//!
//! Follows upstream's `config/config.go`, whose structs are printed by Go's `yaml`.

mod fields;
mod inherit;
#[cfg(test)]
mod tests;

use super::read;
use firn_config_schema::printed::{FieldPresence, PrintedField, PrintedFieldKind};
use firn_discovery::printed_discovery;
use firn_model::units::{format_duration, parse_duration, parse_size};
use firn_yaml::scalar::{YamlScalar, interpret_scalar};
use firn_yaml::{YamlEntry, YamlNode, YamlPosition, YamlValue};
use std::path::Path;

pub use inherit::ConfigPrintContext;

/// Position of nodes that are in no file.
const NOWHERE: YamlPosition = YamlPosition { line: 1, column: 1 };

/// Returns the text of the config `root`, whose secrets must be redacted.
pub fn printed(root: &YamlNode, around: &ConfigPrintContext<'_>) -> String {
    let mut root = root.clone();
    inherit::complete(&mut root, around);
    let printer = ConfigPrinter { dir: around.dir };
    let mut entries = printer.section(Some(&root), &[fields::CONFIG]);
    entries.extend(entry_of(&root, "firn"));
    firn_yaml::print(&map(entries))
}

/// Returns the text of an empty config.
pub fn print_empty_config(around: &ConfigPrintContext<'_>) -> String {
    printed(&map(Vec::new()), around)
}

fn entry_of(node: &YamlNode, key: &str) -> Option<YamlEntry> {
    let mut entries = read::entries(Some(node)).iter();
    entries.find(|entry| entry.key == key).cloned()
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

/// Prints sections as described by their tables. `dir` is the folder of the config.
struct ConfigPrinter<'p> {
    dir: &'p Path,
}

impl ConfigPrinter<'_> {
    /// Returns the entries of a section with these fields.
    fn section(&self, section: Option<&YamlNode>, groups: &[&[PrintedField]]) -> Vec<YamlEntry> {
        let mut entries = Vec::new();
        for field in groups.iter().copied().flatten() {
            if let PrintedFieldKind::Discoveries = field.kind {
                entries.extend(self.discoveries(section));
                continue;
            }
            let shown = self.field(section.and_then(|section| section.get(field.name)), field);
            if let Some(shown) = shown
                && (!shown.is_zero || field.presence == FieldPresence::Always)
            {
                entries.push(entry(field.name, shown.node));
            }
        }
        entries
    }

    fn field(&self, value: Option<&YamlNode>, field: &PrintedField) -> Option<PrintedValue> {
        let default = plain(field.default);
        match (value, field.kind) {
            (None, PrintedFieldKind::Section(groups)) => Some(self.map_of(None, groups)),
            // A section set to null is a Go struct with zero values, which is omitted.
            (Some(value), PrintedFieldKind::Section(_)) if value.is_null() => None,
            (None, _) if field.presence == FieldPresence::IfSet => None,
            (None, kind) => self.print_value(&default, kind),
            (Some(value), kind) => self.print_value(value, kind),
        }
    }

    fn map_of(&self, section: Option<&YamlNode>, groups: &[&[PrintedField]]) -> PrintedValue {
        let entries = self.section(section, groups);
        let is_zero = entries.iter().all(|entry| is_zero(&entry.node));
        PrintedValue {
            node: map(entries),
            is_zero,
        }
    }

    fn print_value(&self, value: &YamlNode, kind: PrintedFieldKind) -> Option<PrintedValue> {
        let raw = value.text().unwrap_or_default();
        Some(match kind {
            PrintedFieldKind::Text => print_text(raw.to_owned()),
            PrintedFieldKind::Lower => print_text(raw.to_lowercase()),
            PrintedFieldKind::Path => print_text(self.path(raw)),
            PrintedFieldKind::Duration => {
                let duration = parse_duration(raw).unwrap_or_default();
                print_plain(format_duration(duration), duration.is_zero())
            }
            PrintedFieldKind::Size => {
                let bytes = parse_size(raw.strip_prefix('+').unwrap_or(raw)).unwrap_or_default();
                print_plain(size(bytes), bytes == 0)
            }
            PrintedFieldKind::Flag => {
                let is_on = interpret_scalar(value) == Some(YamlScalar::Bool(true));
                print_plain(is_on.to_string(), !is_on)
            }
            PrintedFieldKind::Whole => {
                let whole = interpret_scalar(value).and_then(|scalar| match scalar {
                    YamlScalar::Whole(whole) => Some(whole),
                    other => other.to_integer().map(i128::from),
                });
                let whole = whole.unwrap_or_default();
                print_plain(whole.to_string(), whole == 0)
            }
            PrintedFieldKind::Number => {
                let number = interpret_scalar(value).and_then(YamlScalar::to_float);
                let number = number.unwrap_or_default();
                print_plain(number.to_string(), number == 0.0)
            }
            PrintedFieldKind::Texts => print_list(value, |item| text(item)),
            PrintedFieldKind::Paths => print_list(value, |item| text(self.path(item))),
            PrintedFieldKind::TextMap => {
                print_sorted_map(value, |node| text(node.text().unwrap_or_default()))
            }
            PrintedFieldKind::ListMap => {
                print_sorted_map(value, |node| print_list(node, |item| text(item)).node)
            }
            PrintedFieldKind::MapOf(groups) => {
                print_sorted_map(value, |node| self.map_of(Some(node), groups).node)
            }
            PrintedFieldKind::Section(groups) | PrintedFieldKind::Pointer(groups)
                if !value.is_null() =>
            {
                self.map_of(Some(value), groups)
            }
            PrintedFieldKind::List(groups) => {
                let items = value.items().iter();
                let items: Vec<YamlNode> = items
                    .map(|item| map(self.section(Some(item), groups)))
                    .collect();
                PrintedValue {
                    is_zero: items.is_empty(),
                    node: node(YamlValue::List(items)),
                }
            }
            PrintedFieldKind::Loaded if !value.is_null() => PrintedValue {
                node: value.clone(),
                is_zero: false,
            },
            _ => return None,
        })
    }

    fn path(&self, path: &str) -> String {
        if path.is_empty() || Path::new(path).is_absolute() {
            path.to_owned()
        } else {
            self.dir.join(path).display().to_string()
        }
    }

    /// Returns the discoveries of a section, sorted by name.
    fn discoveries(&self, section: Option<&YamlNode>) -> Vec<YamlEntry> {
        let mut found: Vec<&YamlEntry> = read::entries(section).iter().collect();
        found.sort_by(|a, b| a.key.cmp(&b.key));
        let shown = found.into_iter().filter_map(|one| {
            let shown = self.print_value(&one.node, printed_discovery(&one.key)?)?;
            (!shown.is_zero).then(|| entry(&one.key, shown.node))
        });
        shown.collect()
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

fn print_list(list: &YamlNode, item: impl Fn(&str) -> YamlNode) -> PrintedValue {
    let items = list.items().iter();
    let items: Vec<YamlNode> = items
        .map(|node| item(node.text().unwrap_or_default()))
        .collect();
    PrintedValue {
        is_zero: items.is_empty(),
        node: node(YamlValue::List(items)),
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

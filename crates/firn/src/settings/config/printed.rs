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

mod clients;
mod discoveries;
mod fields;
mod inherit;
#[cfg(test)]
mod tests;

use super::read;
use fields::{Field, Kind, Presence};
use firn_model::units::{format_duration, parse_duration, parse_size};
use firn_model::yaml::scalar::{Scalar, scalar_of};
use firn_model::yaml::{self, Entry, Node, Place, Value};
use std::path::Path;

pub use inherit::Around;

/// Position of nodes that are in no file.
const NOWHERE: Place = Place { line: 1, column: 1 };

/// Returns the text of the config `root`, whose secrets must be redacted.
pub fn printed(root: &Node, around: &Around<'_>) -> String {
    let mut root = root.clone();
    inherit::complete(&mut root, around);
    let printer = Printer { dir: around.dir };
    let mut entries = printer.section(Some(&root), &[fields::CONFIG]);
    entries.extend(entry_of(&root, "firn"));
    yaml::print(&map(entries))
}

/// Returns the text of an empty config.
pub fn of_nothing(around: &Around<'_>) -> String {
    printed(&map(Vec::new()), around)
}

fn entry_of(node: &Node, key: &str) -> Option<Entry> {
    let mut entries = read::entries(Some(node)).iter();
    entries.find(|entry| entry.key == key).cloned()
}

fn entry(key: &str, node: Node) -> Entry {
    Entry {
        key: key.to_owned(),
        place: NOWHERE,
        node,
        has_rival: false,
    }
}

fn node(value: Value) -> Node {
    Node {
        place: NOWHERE,
        value,
    }
}

fn map(entries: Vec<Entry>) -> Node {
    node(Value::Map(entries))
}

/// Creates a plain scalar, which is not a text.
fn plain(text: impl Into<String>) -> Node {
    node(Value::Scalar {
        text: text.into(),
        plain: true,
    })
}

/// Creates a text scalar, which is printed with quotes if needed.
fn text(text: impl Into<String>) -> Node {
    node(Value::Scalar {
        text: text.into(),
        plain: false,
    })
}

/// A value as printed, and whether it is Go's zero value, which may be omitted.
struct Shown {
    node: Node,
    is_zero: bool,
}

/// Prints sections as described by their tables. `dir` is the folder of the config.
struct Printer<'p> {
    dir: &'p Path,
}

impl Printer<'_> {
    /// Returns the entries of a section with these fields.
    fn section(&self, section: Option<&Node>, groups: &[&[Field]]) -> Vec<Entry> {
        let mut entries = Vec::new();
        for field in groups.iter().copied().flatten() {
            if let Kind::Discoveries = field.kind {
                entries.extend(self.discoveries(section));
                continue;
            }
            let shown = self.field(section.and_then(|section| section.get(field.name)), field);
            if let Some(shown) = shown
                && (!shown.is_zero || field.presence == Presence::Always)
            {
                entries.push(entry(field.name, shown.node));
            }
        }
        entries
    }

    fn field(&self, value: Option<&Node>, field: &Field) -> Option<Shown> {
        let default = plain(field.default);
        match (value, field.kind) {
            (None, Kind::Section(groups)) => Some(self.map_of(None, groups)),
            // A section set to null is a Go struct with zero values, which is omitted.
            (Some(value), Kind::Section(_)) if value.is_null() => None,
            (None, _) if field.presence == Presence::IfSet => None,
            (None, kind) => self.shown(&default, kind),
            (Some(value), kind) => self.shown(value, kind),
        }
    }

    fn map_of(&self, section: Option<&Node>, groups: &[&[Field]]) -> Shown {
        let entries = self.section(section, groups);
        let is_zero = entries.iter().all(|entry| is_zero(&entry.node));
        Shown {
            node: map(entries),
            is_zero,
        }
    }

    fn shown(&self, value: &Node, kind: Kind) -> Option<Shown> {
        let raw = value.text().unwrap_or_default();
        Some(match kind {
            Kind::Text => of_text(raw.to_owned()),
            Kind::Lower => of_text(raw.to_lowercase()),
            Kind::Path => of_text(self.path(raw)),
            Kind::Duration => {
                let duration = parse_duration(raw).unwrap_or_default();
                of_plain(format_duration(duration), duration.is_zero())
            }
            Kind::Size => {
                let bytes = parse_size(raw.strip_prefix('+').unwrap_or(raw)).unwrap_or_default();
                of_plain(size(bytes), bytes == 0)
            }
            Kind::Flag => {
                let is_on = scalar_of(value) == Some(Scalar::Bool(true));
                of_plain(is_on.to_string(), !is_on)
            }
            Kind::Whole => {
                let whole = scalar_of(value).and_then(|scalar| match scalar {
                    Scalar::Whole(whole) => Some(whole),
                    other => other.integer().map(i128::from),
                });
                let whole = whole.unwrap_or_default();
                of_plain(whole.to_string(), whole == 0)
            }
            Kind::Number => {
                let number = scalar_of(value).and_then(Scalar::number);
                let number = number.unwrap_or_default();
                of_plain(number.to_string(), number == 0.0)
            }
            Kind::Texts => of_list(value, |item| text(item)),
            Kind::Paths => of_list(value, |item| text(self.path(item))),
            Kind::TextMap => of_map(value, |node| text(node.text().unwrap_or_default())),
            Kind::ListMap => of_map(value, |node| of_list(node, |item| text(item)).node),
            Kind::MapOf(groups) => of_map(value, |node| self.map_of(Some(node), groups).node),
            Kind::Section(groups) | Kind::Pointer(groups) if !value.is_null() => {
                self.map_of(Some(value), groups)
            }
            Kind::List(groups) => {
                let items = value.items().iter();
                let items: Vec<Node> = items
                    .map(|item| map(self.section(Some(item), groups)))
                    .collect();
                Shown {
                    is_zero: items.is_empty(),
                    node: node(Value::List(items)),
                }
            }
            Kind::Loaded if !value.is_null() => Shown {
                node: value.clone(),
                is_zero: false,
            },
            _ => return None,
        })
    }

    fn path(&self, path: &str) -> String {
        match path.is_empty() || Path::new(path).is_absolute() {
            true => path.to_owned(),
            false => self.dir.join(path).display().to_string(),
        }
    }

    /// Returns the discoveries of a section, sorted by name.
    fn discoveries(&self, section: Option<&Node>) -> Vec<Entry> {
        let is_one =
            |entry: &&Entry| entry.key == discoveries::STATIC || entry.key.ends_with("_sd_configs");
        let found = read::entries(section).iter().filter(is_one);
        let mut found: Vec<&Entry> = found.collect();
        found.sort_by(|a, b| a.key.cmp(&b.key));
        let shown = found.into_iter().filter_map(|one| {
            let kind = discoveries::kind_of(&one.key);
            let shown = self.shown(&one.node, kind)?;
            (!shown.is_zero).then(|| entry(&one.key, shown.node))
        });
        shown.collect()
    }
}

fn of_plain(shown: String, is_zero: bool) -> Shown {
    Shown {
        node: plain(shown),
        is_zero,
    }
}

fn of_text(shown: String) -> Shown {
    Shown {
        is_zero: shown.is_empty(),
        node: text(shown),
    }
}

fn of_list(list: &Node, item: impl Fn(&str) -> Node) -> Shown {
    let items = list.items().iter();
    let items: Vec<Node> = items
        .map(|node| item(node.text().unwrap_or_default()))
        .collect();
    Shown {
        is_zero: items.is_empty(),
        node: node(Value::List(items)),
    }
}

/// Prints a mapping, sorted by its keys.
fn of_map(of: &Node, value: impl Fn(&Node) -> Node) -> Shown {
    let entries = read::entries(Some(of)).iter();
    let mut entries: Vec<Entry> = entries.map(|e| entry(&e.key, value(&e.node))).collect();
    entries.sort_by(|a, b| a.key.cmp(&b.key));
    Shown {
        is_zero: entries.is_empty(),
        node: map(entries),
    }
}

/// Returns whether Go omits a struct in which all values are like this one.
fn is_zero(node: &Node) -> bool {
    match &node.value {
        Value::Scalar { text, plain: true } => matches!(text.as_str(), "" | "false" | "0" | "0s"),
        Value::Scalar { text, .. } => text.is_empty(),
        Value::List(items) => items.is_empty(),
        Value::Map(entries) => entries.iter().all(|entry| is_zero(&entry.node)),
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
    match out.is_empty() {
        true => "0B".to_owned(),
        false => out,
    }
}

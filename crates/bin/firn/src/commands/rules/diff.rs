//! Formats two JSON documents as one text with colored differences, like promtool.
//!
//! ```text
//! "a": yellow("x" => "y"), red("only": "in the first"), green("only": "in the second")
//! ```

use serde_json::Value;

const ADDED: &str = "\u{1b}[0;32m";
const REMOVED: &str = "\u{1b}[0;31m";
const CHANGED: &str = "\u{1b}[0;33m";
const END: &str = "\u{1b}[0m";
const INDENT: &str = "    ";

/// Returns both documents as one text, or `None` if they are equal.
pub(super) fn compare(before: &Value, after: &Value) -> Option<String> {
    if before == after {
        return None;
    }
    let mut writer = DiffWriter::default();
    writer.write_difference(before, after);
    writer.colour(None);
    Some(writer.out)
}

#[derive(Default)]
struct DiffWriter {
    out: String,
    level: usize,
    colour: Option<&'static str>,
}

/// A member of an array, or the value of a key of an object.
enum DiffItem<'v> {
    Both(&'v Value, &'v Value),
    Removed(&'v Value),
    Added(&'v Value),
}

impl DiffWriter {
    /// Sets the color of the following text; `None` is the default color.
    fn colour(&mut self, colour: Option<&'static str>) {
        if self.colour == colour {
            return;
        }
        if self.colour.is_some() {
            self.out.push_str(END);
        }
        self.out.push_str(colour.unwrap_or_default());
        self.colour = colour;
    }

    /// Starts a new line. A color is ended before the line break and continued after it.
    fn line(&mut self, before: &str) {
        self.out.push_str(before);
        if self.colour.is_some() {
            self.out.push_str(END);
        }
        self.out.push('\n');
        self.out.push_str(&INDENT.repeat(self.level));
        self.out.push_str(self.colour.unwrap_or_default());
    }

    fn write_difference(&mut self, before: &Value, after: &Value) {
        match (before, after) {
            (Value::Array(a), Value::Array(b)) => {
                let items = (0..a.len().max(b.len())).filter_map(|i| {
                    let item = item(a.get(i), b.get(i))?;
                    Some((None, item))
                });
                self.items(['[', ']'], items.collect());
            }
            (Value::Object(a), Value::Object(b)) => {
                let mut keys: Vec<&String> = a.keys().chain(b.keys()).collect();
                keys.sort();
                keys.dedup();
                let items = keys.into_iter().filter_map(|key| {
                    let item = item(a.get(key), b.get(key))?;
                    Some((Some(key.as_str()), item))
                });
                self.items(['{', '}'], items.collect());
            }
            (a, b) if a == b => {
                self.colour(None);
                self.value(a);
            }
            (a, b) => {
                self.colour(Some(CHANGED));
                self.value(a);
                self.out.push_str(" => ");
                self.value(b);
            }
        }
    }

    fn items(&mut self, [open, close]: [char; 2], items: Vec<(Option<&str>, DiffItem<'_>)>) {
        self.colour(None);
        self.out.push(open);
        if !items.is_empty() {
            self.level += 1;
            self.line("");
            let last = items.len() - 1;
            for (i, (key, item)) in items.into_iter().enumerate() {
                self.colour(match item {
                    DiffItem::Both(..) => None,
                    DiffItem::Removed(_) => Some(REMOVED),
                    DiffItem::Added(_) => Some(ADDED),
                });
                if let Some(key) = key {
                    self.out.push_str(&format!("{}: ", Value::from(key)));
                }
                match item {
                    DiffItem::Both(a, b) => self.write_difference(a, b),
                    DiffItem::Removed(value) | DiffItem::Added(value) => self.value(value),
                }
                self.colour(None);
                if i < last {
                    self.line(",");
                }
            }
            self.level -= 1;
            self.line("");
        }
        self.out.push(close);
    }

    /// Writes a value with all its members in the current color.
    fn value(&mut self, value: &Value) {
        let (marks, members): (_, Vec<(Option<&String>, &Value)>) = match value {
            Value::Array(items) => (['[', ']'], items.iter().map(|v| (None, v)).collect()),
            Value::Object(items) => {
                let mut members: Vec<_> = items.iter().map(|(k, v)| (Some(k), v)).collect();
                members.sort_by_key(|(key, _)| *key);
                (['{', '}'], members)
            }
            scalar => {
                self.out.push_str(&scalar.to_string());
                return;
            }
        };
        self.out.push(marks[0]);
        if !members.is_empty() {
            self.level += 1;
            self.line("");
            let last = members.len() - 1;
            for (i, (key, value)) in members.into_iter().enumerate() {
                if let Some(key) = key {
                    self.out
                        .push_str(&format!("{}: ", Value::from(key.as_str())));
                }
                self.value(value);
                if i < last {
                    self.line(",");
                }
            }
            self.level -= 1;
            self.line("");
        }
        self.out.push(marks[1]);
    }
}

fn item<'v>(before: Option<&'v Value>, after: Option<&'v Value>) -> Option<DiffItem<'v>> {
    match (before, after) {
        (Some(a), Some(b)) => Some(DiffItem::Both(a, b)),
        (Some(a), None) => Some(DiffItem::Removed(a)),
        (None, Some(b)) => Some(DiffItem::Added(b)),
        (None, None) => None,
    }
}

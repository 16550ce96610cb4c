//! A YAML document as a tree with the place of each part.
//!
//! Reads the first document of a text, as Prometheus does: anchors, aliases and merge keys (`<<`)
//! are resolved, a key that is set twice is an error. Scalars stay text; what they mean is the
//! schema's business. [`print`] writes a tree as text again.
//!
//! Invariant: a tree has at most [`NODES_MAX`] nodes and [`DEPTH_MAX`] levels, whatever aliases
//! say.

mod print;
pub mod scalar;

pub use print::print;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, ScanError, Tag};
use std::collections::HashMap;
use std::fmt;

/// Most nodes of a tree after aliases are resolved. A node takes about 100 bytes, so that a file of
/// aliases of aliases ends at 100 MB; the largest configs in the field have some 100,000 nodes.
const NODES_MAX: usize = 1_000_000;

/// Deepest nesting: Prometheus's own schema has eight levels.
const DEPTH_MAX: usize = 100;

/// A place in the file, counted from one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Line.
    pub line: usize,
    /// Column, in characters.
    pub column: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// An error and its place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {message}")]
pub struct YamlError {
    /// Where.
    pub place: Place,
    /// What.
    pub message: String,
}

/// A part of the document.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Where it begins.
    pub place: Place,
    /// What it is.
    pub value: Value,
}

/// What a [`Node`] is.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Text, number, boolean or nothing; `plain` if it has no quotes.
    Scalar {
        /// The text.
        text: String,
        /// Whether it stands without quotes, so that `null` and `true` mean something.
        plain: bool,
    },
    /// A sequence.
    List(Vec<Node>),
    /// A mapping, in the order of the file, keys unique.
    Map(Vec<Entry>),
}

/// A key and its value.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// Where the key stands.
    pub place: Place,
    /// The value.
    pub node: Node,
    /// Whether a merge key has a value for it too, which does not count.
    pub has_rival: bool,
}

impl Node {
    /// Whether nothing is there: an empty value, `~` or `null`.
    pub fn is_null(&self) -> bool {
        let Value::Scalar { text, plain: true } = &self.value else {
            return false;
        };
        matches!(text.as_str(), "" | "~" | "null" | "Null" | "NULL")
    }

    /// The value of `key`, if this is a mapping that has it.
    pub fn get(&self, key: &str) -> Option<&Node> {
        let Value::Map(entries) = &self.value else {
            return None;
        };
        entries.iter().find(|e| e.key == key).map(|e| &e.node)
    }

    /// The text, if this is a scalar that is not null.
    pub fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Scalar { text, .. } if !self.is_null() => Some(text),
            _ => None,
        }
    }

    /// The items, if this is a list.
    pub fn items(&self) -> &[Node] {
        match &self.value {
            Value::List(items) => items,
            _ => &[],
        }
    }

    /// An error at this place.
    pub fn error(&self, message: impl Into<String>) -> YamlError {
        YamlError {
            place: self.place,
            message: message.into(),
        }
    }

    fn count(&self) -> usize {
        1 + match &self.value {
            Value::Scalar { .. } => 0,
            Value::List(items) => items.iter().map(Node::count).sum(),
            Value::Map(entries) => entries.iter().map(|e| e.node.count()).sum(),
        }
    }

    fn depth(&self) -> usize {
        1 + match &self.value {
            Value::Scalar { .. } => 0,
            Value::List(items) => items.iter().map(Node::depth).max().unwrap_or(0),
            Value::Map(entries) => entries.iter().map(|e| e.node.depth()).max().unwrap_or(0),
        }
    }
}

/// Reads the first document of `text`; `None` if there is none.
pub fn parse(text: &str) -> Result<Option<Node>, YamlError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let lines: Vec<&str> = text.lines().collect();
    let mut builder = Builder::default();
    let mut behind = Place { line: 1, column: 1 };
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|e| scan_error(&e))?;
        if matches!(event, Event::DocumentEnd) {
            break;
        }
        let place = match event {
            Event::Scalar(_, ScalarStyle::Literal | ScalarStyle::Folded, ..) => {
                block_place(&lines, behind).unwrap_or_else(|| place(span.start))
            }
            _ => place(span.start),
        };
        behind = self::place(span.end);
        builder.take(event, place)?;
    }
    Ok(builder.root.filter(|root| !root.is_null()))
}

fn place(marker: Marker) -> Place {
    Place {
        line: marker.line(),
        column: marker.col() + 1,
    }
}

/// Where the `|` or `>` of a block scalar stands, the first one from `behind` on: for the parser
/// such a scalar begins with its text.
fn block_place(lines: &[&str], behind: Place) -> Option<Place> {
    let mut column = behind.column;
    for (line, text) in (1..).zip(lines).skip(behind.line - 1) {
        let found = (1..).zip(text.chars()).skip(column - 1);
        let mut found = found.filter(|(_, c)| matches!(c, '|' | '>'));
        if let Some((column, _)) = found.next() {
            return Some(Place { line, column });
        }
        column = 1;
    }
    None
}

/// Whether the text of a scalar may be something else than text: by its tag, or else by its style.
fn is_plain(style: ScalarStyle, tag: Option<&Tag>) -> bool {
    match tag {
        None => style == ScalarStyle::Plain,
        Some(tag) if !tag.is_yaml_core_schema() => false,
        Some(tag) => matches!(tag.suffix.as_str(), "bool" | "int" | "float" | "null"),
    }
}

fn scan_error(error: &ScanError) -> YamlError {
    YamlError {
        place: Place {
            line: error.marker().line(),
            column: error.marker().col() + 1,
        },
        message: error.info().to_owned(),
    }
}

/// A list or mapping under way.
struct Open {
    place: Place,
    anchor: usize,
    items: Vec<Node>,
    /// `None` in a list; in a mapping the key that waits for its value.
    map: Option<OpenMap>,
}

#[derive(Default)]
struct OpenMap {
    entries: Vec<Entry>,
    key: Option<PendingKey>,
    /// Values of merge keys; the mapping's own keys win over them.
    merged: Vec<Node>,
}

struct PendingKey {
    text: String,
    place: Place,
    is_merge: bool,
}

impl Open {
    /// Takes the next key or value.
    fn push(&mut self, node: Node) -> Result<(), YamlError> {
        let Some(map) = &mut self.map else {
            self.items.push(node);
            return Ok(());
        };
        match map.key.take() {
            None => {
                let Value::Scalar { text, plain } = node.value else {
                    return Err(YamlError {
                        place: node.place,
                        message: "a key must be a scalar".into(),
                    });
                };
                if let Some(first) = map.entries.iter().find(|e| e.key == text) {
                    return Err(YamlError {
                        place: node.place,
                        message: format!("duplicate key {text:?}, first set at {}", first.place),
                    });
                }
                map.key = Some(PendingKey {
                    is_merge: plain && text == "<<",
                    text,
                    place: node.place,
                });
            }
            Some(key) if key.is_merge => map.merged.push(node),
            Some(key) => map.entries.push(Entry {
                key: key.text,
                place: key.place,
                node,
                has_rival: false,
            }),
        }
        Ok(())
    }

    fn finish(self) -> Result<Node, YamlError> {
        let place = self.place;
        let Some(mut map) = self.map else {
            let value = Value::List(self.items);
            return Ok(Node { place, value });
        };
        for merged in map.merged {
            let sources = match merged.value {
                Value::List(items) => items,
                _ => vec![merged],
            };
            for source in sources {
                let Value::Map(entries) = source.value else {
                    return Err(source.error("a merge key needs a mapping or a list of them"));
                };
                for entry in entries {
                    match map.entries.iter_mut().find(|e| e.key == entry.key) {
                        Some(own) => own.has_rival = true,
                        None => map.entries.push(entry),
                    }
                }
            }
        }
        let value = Value::Map(map.entries);
        Ok(Node { place, value })
    }
}

#[derive(Default)]
struct Builder {
    open: Vec<Open>,
    anchors: HashMap<usize, Node>,
    nodes: usize,
    root: Option<Node>,
}

impl Builder {
    fn take(&mut self, event: Event<'_>, place: Place) -> Result<(), YamlError> {
        self.count(1, place)?;
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let value = Value::Scalar {
                    text: text.into_owned(),
                    plain: is_plain(style, tag.as_deref()),
                };
                self.close(Node { place, value }, anchor)
            }
            Event::SequenceStart(anchor, _) => self.start(place, anchor, None),
            Event::MappingStart(anchor, _) => self.start(place, anchor, Some(OpenMap::default())),
            Event::SequenceEnd | Event::MappingEnd => {
                let open = self
                    .open
                    .pop()
                    .expect("the parser balances starts and ends");
                let anchor = open.anchor;
                self.close(open.finish()?, anchor)
            }
            Event::Alias(anchor) => self.alias(anchor, place),
            Event::Nothing
            | Event::StreamStart
            | Event::StreamEnd
            | Event::DocumentStart(_)
            | Event::DocumentEnd => Ok(()),
        }
    }

    fn start(
        &mut self,
        place: Place,
        anchor: usize,
        map: Option<OpenMap>,
    ) -> Result<(), YamlError> {
        self.check_depth(self.open.len() + 1, place)?;
        self.open.push(Open {
            place,
            anchor,
            items: Vec::new(),
            map,
        });
        Ok(())
    }

    /// Puts a copy of an anchored node here. Its parts keep their own places: that is where a
    /// mistake in them must be mended.
    fn alias(&mut self, anchor: usize, place: Place) -> Result<(), YamlError> {
        let (nodes, depth) = match self.anchors.get(&anchor) {
            Some(node) => (node.count(), node.depth()),
            None => {
                let message = "an alias inside its own anchor".into();
                return Err(YamlError { place, message });
            }
        };
        self.count(nodes, place)?;
        self.check_depth(self.open.len() + depth, place)?;
        let node = self.anchors[&anchor].clone();
        self.close(node, 0)
    }

    fn count(&mut self, nodes: usize, place: Place) -> Result<(), YamlError> {
        self.nodes += nodes;
        if self.nodes > NODES_MAX {
            let message = format!("too many values: limit {NODES_MAX}");
            return Err(YamlError { place, message });
        }
        Ok(())
    }

    fn check_depth(&self, depth: usize, place: Place) -> Result<(), YamlError> {
        if depth > DEPTH_MAX {
            let message = format!("nested too deeply: {depth} levels, limit {DEPTH_MAX}");
            return Err(YamlError { place, message });
        }
        Ok(())
    }

    /// Puts a finished node where it belongs.
    fn close(&mut self, node: Node, anchor: usize) -> Result<(), YamlError> {
        if anchor != 0 {
            self.anchors.insert(anchor, node.clone());
        }
        match self.open.last_mut() {
            None => self.root = Some(node),
            Some(open) => open.push(node)?,
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shows a tree with places left out: `{a: 1, b: [x, "y"]}`.
    fn shown(node: &Node) -> String {
        match &node.value {
            Value::Scalar { text, plain: true } => text.clone(),
            Value::Scalar { text, plain: false } => format!("{text:?}"),
            Value::List(items) => {
                let items: Vec<_> = items.iter().map(shown).collect();
                format!("[{}]", items.join(", "))
            }
            Value::Map(entries) => {
                let entry = |e: &Entry| format!("{}: {}", e.key, shown(&e.node));
                let entries: Vec<_> = entries.iter().map(entry).collect();
                format!("{{{}}}", entries.join(", "))
            }
        }
    }

    fn check(text: &str, want: &str) {
        let got = match parse(text) {
            Ok(None) => "nothing".into(),
            Ok(Some(node)) => shown(&node),
            Err(e) => format!("error {e}"),
        };
        assert_eq!(got, want, "{text}");
    }

    #[test]
    fn parse_reads_trees() {
        check("", "nothing");
        check("# only a comment\n", "nothing");
        check("a: 1\nb:\n- x\n- 'y'\nc:\n", r#"{a: 1, b: [x, "y"], c: }"#);
        check("a: 1\n---\nb: 2\n", "{a: 1}");
    }

    #[test]
    fn parse_block_scalars_begin_with_their_sign() {
        for (text, line, column) in [
            ("a: |\n  x\n", 1, 4),
            ("- &b\n  a: !!str >-\n\n    x\n", 2, 12),
            ("a: 'c|d'\nb: | # |\n  x\n", 2, 4),
            ("é: é\nü: >\n\n\n    x\n", 2, 4),
        ] {
            let root = parse(text).unwrap().unwrap();
            let map = root.items().first().unwrap_or(&root);
            let Value::Map(entries) = &map.value else {
                panic!("{text}");
            };
            let place = entries.last().unwrap().node.place;
            assert_eq!(place, Place { line, column }, "{text}");
        }
    }

    #[test]
    fn parse_resolves_aliases_and_merge_keys() {
        check(
            "a: &x {p: 1, q: 2}\nb: *x\n",
            "{a: {p: 1, q: 2}, b: {p: 1, q: 2}}",
        );
        check(
            "a: &x {p: 1, q: 2}\nb:\n  <<: *x\n  p: 3\n",
            "{a: {p: 1, q: 2}, b: {p: 3, q: 2}}",
        );
    }

    #[test]
    fn parse_malformed_text_names_line_and_column() {
        check(
            "a: 1\nb: 2\na: 3\n",
            "error 3:1: duplicate key \"a\", first set at 1:1",
        );
        check(
            "a: [1\nb: 2\n",
            "error 2:2: illegal placement of ':' indicator",
        );
        check(
            "a: *nowhere\n",
            "error 1:4: while parsing node, found unknown anchor",
        );
        check("[a]: 1\n", "error 1:1: a key must be a scalar");
    }

    #[test]
    fn parse_hostile_text_is_refused_early() {
        let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
        for i in 1..9 {
            let items = vec![format!("*a{}", i - 1); 10].join(", ");
            bomb += &format!("a{i}: &a{i} [{items}]\n");
        }
        let e = parse(&bomb).unwrap_err();
        assert_eq!(e.message, "too many values: limit 1000000");
        let deep = "[".repeat(101) + &"]".repeat(101);
        let e = parse(&deep).unwrap_err();
        assert_eq!(e.message, "nested too deeply: 101 levels, limit 100");
    }
}

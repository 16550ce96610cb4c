//! The tree: nodes with their places, and the limits of their number and depth.

use std::fmt;

/// Most nodes of a tree after aliases are resolved. A node takes about 100 bytes, so that a file of
/// aliases of aliases ends at 100 MB; the largest configs in the field have some 100,000 nodes.
pub(super) const NODES_MAX: usize = 1_000_000;

/// Deepest nesting: Prometheus's own schema has eight levels.
pub(super) const DEPTH_MAX: usize = 100;

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

    /// Nodes of this part of the tree.
    pub(super) fn count(&self) -> usize {
        1 + match &self.value {
            Value::Scalar { .. } => 0,
            Value::List(items) => items.iter().map(Node::count).sum(),
            Value::Map(entries) => entries.iter().map(|e| e.node.count()).sum(),
        }
    }

    /// Levels of this part of the tree.
    pub(super) fn depth(&self) -> usize {
        1 + match &self.value {
            Value::Scalar { .. } => 0,
            Value::List(items) => items.iter().map(Node::depth).max().unwrap_or(0),
            Value::Map(entries) => entries.iter().map(|e| e.node.depth()).max().unwrap_or(0),
        }
    }
}

/// Which of Go's two `yaml` packages read a file. Prometheus reads rule files with version 3 and
/// everything else with version 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// A merge key counts where it is: keys behind it win, and it wins over keys before it. A key
    /// without a name is the empty text.
    V2,
    /// A mapping's own keys win over its merge key, of which it has at most one. A key without a
    /// name is left out.
    V3,
}

//! Tree of a YAML document: nodes with their places, and limits on their number and depth.

use std::fmt;

/// Maximum number of nodes in a tree after aliases are resolved. A node uses about 100 bytes, so a
/// file with nested aliases uses at most 100 MB. The largest known configs have some 100,000 nodes.
pub(super) const NODES_MAX: usize = 1_000_000;

/// Maximum nesting depth. Prometheus's own schema has eight levels.
pub(super) const DEPTH_MAX: usize = 100;

/// A position in the file, for error texts. Lines and columns count from one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct YamlPosition {
    /// Line number, counted from one as editors do.
    pub line: usize,
    /// Column number in characters, counted from one.
    pub column: usize,
}

impl fmt::Display for YamlPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// An error at a place in the file, which precedes the message in its text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {message}")]
pub struct YamlError {
    /// Place that caused the error.
    pub place: YamlPosition,
    /// Text of the error, without the place that precedes it in output.
    pub message: String,
}

/// A part of the document: a scalar, list or mapping with its place.
#[derive(Clone, Debug, PartialEq)]
pub struct YamlNode {
    /// Place at which the node begins.
    pub place: YamlPosition,
    /// Content of the node.
    pub value: YamlValue,
}

/// Content of a [`YamlNode`]: a scalar, a list or a mapping.
#[derive(Clone, Debug, PartialEq)]
pub enum YamlValue {
    /// Text that can represent a string, number, boolean or null.
    Scalar {
        /// The text, without quotes and with escapes resolved.
        text: String,
        /// Whether the scalar has no quotes, so that texts like `null` and `true` have a special
        /// meaning.
        plain: bool,
    },
    /// A sequence of nodes in the order of the file.
    List(Vec<YamlNode>),
    /// A mapping with unique keys, in the order of the file.
    Map(Vec<YamlEntry>),
}

/// A key of a mapping with its value and place.
#[derive(Clone, Debug, PartialEq)]
pub struct YamlEntry {
    /// Text of the key, without quotes and with escapes resolved.
    pub key: String,
    /// Place at which the key begins.
    pub place: YamlPosition,
    /// Value of the key.
    pub node: YamlNode,
    /// Whether a merge key also sets this key; that value is ignored.
    pub has_rival: bool,
}

impl YamlNode {
    /// Returns whether this is an empty value, `~` or `null`.
    pub fn is_null(&self) -> bool {
        let YamlValue::Scalar { text, plain: true } = &self.value else {
            return false;
        };
        matches!(text.as_str(), "" | "~" | "null" | "Null" | "NULL")
    }

    /// Returns the value of `key`, or `None` if this is not a mapping or does not contain the key.
    pub fn get(&self, key: &str) -> Option<&YamlNode> {
        let YamlValue::Map(entries) = &self.value else {
            return None;
        };
        entries.iter().find(|e| e.key == key).map(|e| &e.node)
    }

    /// Returns the text of a scalar that is not null.
    pub fn text(&self) -> Option<&str> {
        match &self.value {
            YamlValue::Scalar { text, .. } if !self.is_null() => Some(text),
            _ => None,
        }
    }

    /// Returns the items of a list; empty for other nodes.
    pub fn items(&self) -> &[YamlNode] {
        match &self.value {
            YamlValue::List(items) => items,
            _ => &[],
        }
    }

    /// Creates an error with this text at the place of this node.
    pub fn error(&self, message: impl Into<String>) -> YamlError {
        YamlError {
            place: self.place,
            message: message.into(),
        }
    }

    /// Returns the number of nodes in this subtree, including this one.
    pub(super) fn count_nodes(&self) -> usize {
        1 + match &self.value {
            YamlValue::Scalar { .. } => 0,
            YamlValue::List(items) => items.iter().map(YamlNode::count_nodes).sum(),
            YamlValue::Map(entries) => entries.iter().map(|e| e.node.count_nodes()).sum(),
        }
    }

    /// Returns the number of levels in this subtree, including this one.
    pub(super) fn depth(&self) -> usize {
        1 + match &self.value {
            YamlValue::Scalar { .. } => 0,
            YamlValue::List(items) => items.iter().map(YamlNode::depth).max().unwrap_or(0),
            YamlValue::Map(entries) => entries.iter().map(|e| e.node.depth()).max().unwrap_or(0),
        }
    }
}

/// Version of Go's `yaml` package whose rules apply. Prometheus reads rule files with version 3 and
/// all other files with version 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum YamlDialect {
    /// A merge key is applied at its position: it overrides keys before it and is overridden by
    /// keys after it. A null key is the empty text.
    V2,
    /// A mapping's own keys override its merge key, of which there can be only one. An entry with a
    /// null key is dropped.
    V3,
}

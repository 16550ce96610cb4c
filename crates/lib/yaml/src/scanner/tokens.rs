//! Tokens of YAML, and their positions in the text.

use crate::node::YamlPosition;

/// Kind of a [`YamlToken`], with its contents: structure, properties or a scalar.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum YamlTokenKind {
    StreamEnd,
    Version { major: u32, minor: u32 },
    TagDirective { handle: String, prefix: String },
    DocumentStart,
    DocumentEnd,
    BlockSequenceStart,
    BlockMappingStart,
    BlockEnd,
    FlowSequenceStart,
    FlowSequenceEnd,
    FlowMappingStart,
    FlowMappingEnd,
    BlockEntry,
    FlowEntry,
    Key,
    Value,
    Alias(String),
    Anchor(String),
    Tag { handle: String, suffix: String },
    Scalar { text: String, is_plain: bool },
}

/// A token with the places of its beginning and end.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct YamlToken {
    pub(crate) kind: YamlTokenKind,
    pub(crate) place: YamlPosition,
    pub(crate) end: YamlPosition,
}

/// A position in the text, with index, line and column counted from zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct YamlScanPosition {
    pub(super) index: usize,
    pub(super) line: usize,
    pub(super) column: usize,
}

impl YamlScanPosition {
    pub(super) fn to_position(self) -> YamlPosition {
        YamlPosition {
            line: self.line + 1,
            column: self.column + 1,
        }
    }
}

/// A position at which a key may have begun, recorded until its `:` is found.
#[derive(Clone, Copy, Debug)]
pub(super) struct YamlKeyCandidate {
    /// Sequence number of the token that would be the key.
    pub(super) token: usize,
    /// Whether only a key is valid at this position.
    pub(super) is_required: bool,
    pub(super) mark: YamlScanPosition,
}

//! Builds the tree of the first document from its tokens.
//!
//! This is a recursive descent parser whose depth is limited to [`DEPTH_MAX`]. An alias becomes a
//! copy of its anchor's node; copies count towards [`NODES_MAX`].

use super::mapping::{Key, MappingBuilder, WANTS_MAPPING};
use super::node::{DEPTH_MAX, Dialect, NODES_MAX, Node, Place, Value, YamlError};
use super::scalar::{Scalar, resolve};
use super::scanner::{Scanner, Token, TokenKind};
use std::collections::HashMap;

/// Prefix of the tags of YAML's own types, for which `!!` is the shorthand.
const CORE: &str = "tag:yaml.org,2002:";

/// Parses the first document of `text`. Returns `None` if there is none.
pub(super) fn read_document(text: &str, dialect: Dialect) -> Result<Option<Node>, YamlError> {
    let mut reader = TreeReader {
        scanner: Scanner::new(text, dialect),
        dialect,
        handles: HashMap::new(),
        anchors: HashMap::new(),
        nodes: 0,
        depth: 0,
    };
    reader.document()
}

struct TreeReader {
    scanner: Scanner,
    dialect: Dialect,
    /// Tag prefixes by handle, as set by directives or by default.
    handles: HashMap<String, String>,
    /// Anchored nodes by name; `None` while the node is incomplete.
    anchors: HashMap<String, Option<Node>>,
    nodes: usize,
    depth: usize,
}

/// Anchor and tag that precede the content of a node.
#[derive(Default)]
struct Properties {
    anchor: Option<String>,
    tag: Option<String>,
    place: Option<Place>,
}

fn error(place: Place, problem: &str) -> YamlError {
    YamlError {
        place,
        message: problem.to_owned(),
    }
}

fn empty(place: Place) -> Node {
    let (text, plain) = (String::new(), true);
    let value = Value::Scalar { text, plain };
    Node { place, value }
}

impl TreeReader {
    fn peek(&mut self) -> Result<&TokenKind, YamlError> {
        Ok(&self.scanner.peek()?.kind)
    }

    /// Returns the place at which the next token begins.
    fn place(&mut self) -> Result<Place, YamlError> {
        Ok(self.scanner.peek()?.place)
    }

    fn next(&mut self) -> Result<Token, YamlError> {
        self.scanner.next()
    }

    fn document(&mut self) -> Result<Option<Node>, YamlError> {
        if *self.peek()? == TokenKind::StreamEnd {
            return Ok(None);
        }
        let has_directives = self.directives()?;
        let is_explicit = *self.peek()? == TokenKind::DocumentStart;
        if has_directives && !is_explicit {
            return Err(error(
                self.place()?,
                "did not find expected <document start>",
            ));
        }
        if is_explicit {
            self.next()?;
        }
        let root = match self.peek()? {
            TokenKind::Version { .. }
            | TokenKind::TagDirective { .. }
            | TokenKind::DocumentStart
            | TokenKind::DocumentEnd
            | TokenKind::StreamEnd
                if is_explicit =>
            {
                empty(self.place()?)
            }
            _ => self.node(true, false)?,
        };
        // A malformed token after the document is an error.
        self.peek()?;
        Ok(Some(root))
    }

    /// Reads the directives before the document. Returns whether there are any.
    fn directives(&mut self) -> Result<bool, YamlError> {
        let (mut has_version, mut has_any) = (false, false);
        loop {
            let place = self.place()?;
            match self.peek()? {
                TokenKind::Version { .. } if has_version => {
                    return Err(error(place, "found duplicate %YAML directive"));
                }
                TokenKind::Version { major: 1, minor: 1 } => has_version = true,
                TokenKind::Version { .. } => {
                    return Err(error(place, "found incompatible YAML document"));
                }
                TokenKind::TagDirective { handle, prefix } => {
                    let (handle, prefix) = (handle.clone(), prefix.clone());
                    if self.handles.insert(handle, prefix).is_some() {
                        return Err(error(place, "found duplicate %TAG directive"));
                    }
                }
                _ => break,
            }
            has_any = true;
            self.next()?;
        }
        for (handle, prefix) in [("!", "!"), ("!!", CORE)] {
            let entry = self.handles.entry(handle.to_owned());
            entry.or_insert_with(|| prefix.to_owned());
        }
        Ok(has_any)
    }

    /// Reads a node. With `may_be_flat`, it may be a list whose items are not indented, as in the
    /// value of a block mapping.
    fn node(&mut self, is_block: bool, may_be_flat: bool) -> Result<Node, YamlError> {
        if let TokenKind::Alias(_) = self.peek()? {
            return self.alias();
        }
        let properties = self.properties()?;
        if let Some(name) = &properties.anchor {
            self.anchors.insert(name.clone(), None);
        }
        let node = self.content(is_block, may_be_flat, &properties)?;
        self.count(1, node.place)?;
        if let Some(name) = properties.anchor {
            self.anchors.insert(name, Some(node.clone()));
        }
        Ok(node)
    }

    fn properties(&mut self) -> Result<Properties, YamlError> {
        let mut properties = Properties::default();
        loop {
            let token = self.scanner.peek()?;
            let place = token.place;
            match &token.kind {
                TokenKind::Anchor(name) if properties.anchor.is_none() => {
                    properties.anchor = Some(name.clone());
                }
                TokenKind::Tag { handle, suffix } if properties.tag.is_none() => {
                    let tag = match (handle.as_str(), self.handles.get(handle)) {
                        ("", _) => suffix.clone(),
                        (_, Some(prefix)) => format!("{prefix}{suffix}"),
                        (_, None) => return Err(error(place, "found undefined tag handle")),
                    };
                    properties.tag = Some(tag);
                }
                _ => return Ok(properties),
            }
            properties.place.get_or_insert(place);
            self.next()?;
        }
    }

    fn content(
        &mut self,
        is_block: bool,
        may_be_flat: bool,
        properties: &Properties,
    ) -> Result<Node, YamlError> {
        let place = self.place()?;
        let value = match self.peek()? {
            TokenKind::BlockEntry if may_be_flat => self.nested(place, Self::flat_sequence)?,
            TokenKind::Scalar { .. } => self.scalar(properties)?,
            TokenKind::FlowSequenceStart => self.nested(place, Self::flow_sequence)?,
            TokenKind::FlowMappingStart => self.nested(place, Self::flow_mapping)?,
            TokenKind::BlockSequenceStart if is_block => {
                self.nested(place, Self::block_sequence)?
            }
            TokenKind::BlockMappingStart if is_block => self.nested(place, Self::block_mapping)?,
            _ => match properties.place {
                Some(place) => {
                    let value = self.tagged(String::new(), true, properties, place)?;
                    return Ok(Node { place, value });
                }
                None => return Err(error(place, "did not find expected node content")),
            },
        };
        Ok(Node { place, value })
    }

    fn nested(
        &mut self,
        place: Place,
        read: impl Fn(&mut Self) -> Result<Value, YamlError>,
    ) -> Result<Value, YamlError> {
        self.depth += 1;
        self.check_depth(self.depth, place)?;
        let value = read(self)?;
        self.depth -= 1;
        Ok(value)
    }

    fn scalar(&mut self, properties: &Properties) -> Result<Value, YamlError> {
        let token = self.next()?;
        match token.kind {
            TokenKind::Scalar { text, is_plain } => {
                self.tagged(text, is_plain, properties, token.place)
            }
            _ => Err(error(token.place, "did not find expected node content")),
        }
    }

    /// Builds a scalar with the type of its tag, or of its style if it has no tag.
    fn tagged(
        &self,
        text: String,
        plain: bool,
        properties: &Properties,
        place: Place,
    ) -> Result<Value, YamlError> {
        let Some(tag) = &properties.tag else {
            return Ok(Value::Scalar { text, plain });
        };
        if tag == "!" && self.dialect == Dialect::V3 {
            return Ok(Value::Scalar { text, plain });
        }
        let Some(name) = tag.strip_prefix(CORE) else {
            // As in upstream, a merge key keeps its meaning.
            let plain = plain && text == "<<" && tag == "!";
            return Ok(Value::Scalar { text, plain });
        };
        if name == "binary" {
            let text = decode_binary(&text).map_err(|problem| error(place, problem))?;
            return Ok(Value::Scalar { text, plain: false });
        }
        let is_one = match (name, resolve(&text)) {
            ("bool", Scalar::Bool(_)) => true,
            ("int", Scalar::Whole(_)) => true,
            ("float", Scalar::Whole(_) | Scalar::Number(_)) => true,
            ("null", Scalar::Null) => true,
            ("bool" | "int" | "float" | "null", _) => false,
            ("merge", _) => true,
            _ => return Ok(Value::Scalar { text, plain: false }),
        };
        if !is_one {
            return Err(error(
                place,
                &format!("cannot decode `{text}` as a !!{name}"),
            ));
        }
        let plain = name != "merge" || text == "<<";
        Ok(Value::Scalar { text, plain })
    }

    /// Returns a copy of an anchored node. Its parts keep their own places, since errors in them
    /// must be corrected there.
    fn alias(&mut self) -> Result<Node, YamlError> {
        let token = self.next()?;
        let TokenKind::Alias(name) = token.kind else {
            return Err(error(token.place, "did not find expected node content"));
        };
        let node = match self.anchors.get(&name) {
            Some(Some(node)) => node.clone(),
            Some(None) => {
                let problem = format!("anchor '{name}' value contains itself");
                return Err(error(token.place, &problem));
            }
            None => {
                let problem = format!("unknown anchor '{name}' referenced");
                return Err(error(token.place, &problem));
            }
        };
        self.count(node.count(), token.place)?;
        self.check_depth(self.depth + node.depth() - 1, token.place)?;
        Ok(node)
    }

    fn count(&mut self, nodes: usize, place: Place) -> Result<(), YamlError> {
        self.nodes += nodes;
        match self.nodes > NODES_MAX {
            true => Err(error(place, &format!("too many values: limit {NODES_MAX}"))),
            false => Ok(()),
        }
    }

    fn check_depth(&self, depth: usize, place: Place) -> Result<(), YamlError> {
        if depth > DEPTH_MAX {
            let problem = format!("nested too deeply: {depth} levels, limit {DEPTH_MAX}");
            return Err(error(place, &problem));
        }
        Ok(())
    }

    /// Reads the item or value after an indicator that ends at `end`. Returns an empty node if the
    /// next token satisfies `is_end`.
    fn node_or_empty(
        &mut self,
        end: Place,
        is_end: impl Fn(&TokenKind) -> bool,
        is_block: bool,
        may_be_flat: bool,
    ) -> Result<Node, YamlError> {
        if is_end(self.peek()?) {
            self.count(1, end)?;
            return Ok(empty(end));
        }
        self.node(is_block, may_be_flat)
    }

    fn block_sequence(&mut self) -> Result<Value, YamlError> {
        self.next()?;
        let mut items = Vec::new();
        loop {
            let token = self.next()?;
            match token.kind {
                TokenKind::BlockEntry => {
                    let is_end =
                        |kind: &_| matches!(kind, TokenKind::BlockEntry | TokenKind::BlockEnd);
                    items.push(self.node_or_empty(token.end, is_end, true, false)?);
                }
                TokenKind::BlockEnd => return Ok(Value::List(items)),
                _ => return Err(error(token.place, "did not find expected '-' indicator")),
            }
        }
    }

    /// Reads a list in a mapping whose items are not indented.
    fn flat_sequence(&mut self) -> Result<Value, YamlError> {
        let mut items = Vec::new();
        while *self.peek()? == TokenKind::BlockEntry {
            let end = self.next()?.end;
            let is_end = |kind: &_| is_key_sign(kind) || *kind == TokenKind::BlockEntry;
            items.push(self.node_or_empty(end, is_end, true, false)?);
        }
        Ok(Value::List(items))
    }

    fn block_mapping(&mut self) -> Result<Value, YamlError> {
        self.next()?;
        let mut mapping = MappingBuilder::new(self.dialect);
        loop {
            let token = self.next()?;
            match token.kind {
                TokenKind::Key => {}
                TokenKind::BlockEnd => return mapping.finish(),
                _ => return Err(error(token.place, "did not find expected key")),
            }
            let key = self.node_or_empty(token.end, is_key_sign, true, true)?;
            let key = checked_key(key, &mut mapping)?;
            let value = match self.peek()? {
                TokenKind::Value => {
                    let end = self.next()?.end;
                    self.check_merge(&key)?;
                    self.node_or_empty(end, is_key_sign, true, true)?
                }
                _ => empty(self.place()?),
            };
            mapping.push(key, value)?;
        }
    }

    fn flow_sequence(&mut self) -> Result<Value, YamlError> {
        self.next()?;
        let mut items = Vec::new();
        while *self.peek()? != TokenKind::FlowSequenceEnd {
            if !items.is_empty() {
                self.expect_comma("did not find expected ',' or ']'")?;
            }
            let place = self.place()?;
            match self.peek()? {
                TokenKind::FlowSequenceEnd => break,
                TokenKind::Key => {
                    let value = self.nested(place, Self::pair)?;
                    self.count(1, place)?;
                    items.push(Node { place, value });
                }
                _ => items.push(self.node(false, false)?),
            }
        }
        self.next()?;
        Ok(Value::List(items))
    }

    fn expect_comma(&mut self, problem: &str) -> Result<(), YamlError> {
        let token = self.next()?;
        match token.kind {
            TokenKind::FlowEntry => Ok(()),
            _ => Err(error(token.place, problem)),
        }
    }

    /// Reads a mapping with a single key in a list: `[a: 1]`.
    fn pair(&mut self) -> Result<Value, YamlError> {
        self.next()?;
        let mut mapping = MappingBuilder::new(self.dialect);
        let is_end = |kind: &_| matches!(kind, TokenKind::FlowEntry | TokenKind::FlowSequenceEnd);
        let key = match self.peek()? {
            kind if is_end(kind) || *kind == TokenKind::Value => {
                // As in upstream, whose parser consumes the indicator as the key.
                empty(self.next()?.end)
            }
            _ => self.node(false, false)?,
        };
        let key = checked_key(key, &mut mapping)?;
        let value = self.flow_value(&key, is_end)?;
        mapping.push(key, value)?;
        mapping.finish()
    }

    fn flow_mapping(&mut self) -> Result<Value, YamlError> {
        self.next()?;
        let mut mapping = MappingBuilder::new(self.dialect);
        let is_end = |kind: &_| matches!(kind, TokenKind::FlowEntry | TokenKind::FlowMappingEnd);
        let mut is_first = true;
        while *self.peek()? != TokenKind::FlowMappingEnd {
            if !is_first {
                self.expect_comma("did not find expected ',' or '}'")?;
            }
            is_first = false;
            let place = self.place()?;
            let (key, value) = match self.peek()? {
                TokenKind::FlowMappingEnd => break,
                TokenKind::Key => {
                    self.next()?;
                    let is_no_key = |kind: &_| is_end(kind) || *kind == TokenKind::Value;
                    let key = self.node_or_empty(place, is_no_key, false, false)?;
                    let key = checked_key(key, &mut mapping)?;
                    let value = self.flow_value(&key, is_end)?;
                    (key, value)
                }
                _ => {
                    let key = self.node(false, false)?;
                    let key = checked_key(key, &mut mapping)?;
                    (key, empty(self.place()?))
                }
            };
            mapping.push(key, value)?;
        }
        self.next()?;
        mapping.finish()
    }

    fn flow_value(
        &mut self,
        key: &Key,
        is_end: impl Fn(&TokenKind) -> bool,
    ) -> Result<Node, YamlError> {
        let place = self.place()?;
        if *self.peek()? != TokenKind::Value {
            return Ok(empty(place));
        }
        self.next()?;
        self.check_merge(key)?;
        let place = self.place()?;
        self.node_or_empty(place, is_end, false, false)
    }

    /// Rejects an alias of a list as the value of a merge key. A list that is written directly is
    /// valid.
    fn check_merge(&mut self, key: &Key) -> Result<(), YamlError> {
        let place = self.place()?;
        let TokenKind::Alias(name) = &self.scanner.peek()?.kind else {
            return Ok(());
        };
        let node = self.anchors.get(name).and_then(Option::as_ref);
        match node.map(|node| &node.value) {
            Some(Value::List(_)) if key.is_merge => Err(error(place, WANTS_MAPPING)),
            _ => Ok(()),
        }
    }
}

fn checked_key(node: Node, mapping: &mut MappingBuilder) -> Result<Key, YamlError> {
    let is_merge = matches!(&node.value, Value::Scalar { text, plain: true } if text == "<<");
    let key = Key { node, is_merge };
    mapping.check_key(&key)?;
    Ok(key)
}

/// Returns whether the next token of a block mapping follows, so that the current value is empty.
fn is_key_sign(kind: &TokenKind) -> bool {
    matches!(
        kind,
        TokenKind::Key | TokenKind::Value | TokenKind::BlockEnd
    )
}

/// Decodes a `!!binary` scalar: base64 with padding, in which line breaks are ignored. Fails if the
/// result is not UTF-8.
fn decode_binary(text: &str) -> Result<String, &'static str> {
    let invalid = "!!binary value contains invalid base64 data";
    let digits = text.bytes().filter(|b| !matches!(b, b'\r' | b'\n'));
    let digits: Vec<u8> = digits.collect();
    let (groups, rest) = digits.as_chunks::<4>();
    if !rest.is_empty() {
        return Err(invalid);
    }
    let mut bytes = Vec::new();
    for (i, group) in groups.iter().enumerate() {
        let padding = group.iter().rev().take_while(|b| **b == b'=').count();
        if padding > 2 || padding > 0 && i + 1 < groups.len() {
            return Err(invalid);
        }
        let mut bits = 0;
        for digit in &group[..4 - padding] {
            bits = bits << 6 | base64_digit(*digit).ok_or(invalid)?;
        }
        let [_, octets @ ..] = (bits << (6 * padding)).to_be_bytes();
        bytes.extend(&octets[..3 - padding]);
    }
    String::from_utf8(bytes).map_err(|_| "!!binary value is not UTF-8")
}

fn base64_digit(digit: u8) -> Option<u32> {
    let value = match digit {
        b'A'..=b'Z' => digit - b'A',
        b'a'..=b'z' => digit - b'a' + 26,
        b'0'..=b'9' => digit - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    };
    Some(value.into())
}

//! Builds the tree of the first document from its tokens.
//!
//! This is a recursive descent parser whose depth is limited to [`DEPTH_MAX`]. An alias becomes a
//! copy of its anchor's node; copies count towards [`NODES_MAX`].

mod flow;

use super::mapping::{WANTS_MAPPING, YamlKey, YamlMappingBuilder};
use super::node::{
    DEPTH_MAX, NODES_MAX, YamlDialect, YamlError, YamlNode, YamlPosition, YamlValue,
};
use super::scalar::{YamlScalar, resolve};
use super::scanner::{YamlScanner, YamlToken, YamlTokenKind};
use std::collections::HashMap;

/// Prefix of the tags of YAML's own types, for which `!!` is the shorthand.
const CORE: &str = "tag:yaml.org,2002:";

/// Parses the first document of `text`. Returns `None` if there is none.
pub(super) fn read_document(
    text: &str,
    dialect: YamlDialect,
) -> Result<Option<YamlNode>, YamlError> {
    let mut reader = YamlTreeReader {
        scanner: YamlScanner::new(text, dialect),
        dialect,
        handles: HashMap::new(),
        anchors: HashMap::new(),
        nodes: 0,
        depth: 0,
    };
    reader.parse_document()
}

struct YamlTreeReader {
    scanner: YamlScanner,
    dialect: YamlDialect,
    /// Tag prefixes by handle, as set by directives or by default.
    handles: HashMap<String, String>,
    /// Anchored nodes by name; `None` while the node is incomplete.
    anchors: HashMap<String, Option<YamlNode>>,
    nodes: usize,
    depth: usize,
}

/// Anchor and tag that precede the content of a node.
#[derive(Default)]
struct YamlNodeProperties {
    anchor: Option<String>,
    tag: Option<String>,
    place: Option<YamlPosition>,
}

fn error(place: YamlPosition, problem: &str) -> YamlError {
    YamlError {
        place,
        message: problem.to_owned(),
    }
}

fn empty(place: YamlPosition) -> YamlNode {
    let (text, plain) = (String::new(), true);
    let value = YamlValue::Scalar { text, plain };
    YamlNode { place, value }
}

impl YamlTreeReader {
    fn peek(&mut self) -> Result<&YamlTokenKind, YamlError> {
        Ok(&self.scanner.peek()?.kind)
    }

    /// Returns the place at which the next token begins.
    fn place(&mut self) -> Result<YamlPosition, YamlError> {
        Ok(self.scanner.peek()?.place)
    }

    fn next(&mut self) -> Result<YamlToken, YamlError> {
        self.scanner.next()
    }

    fn parse_document(&mut self) -> Result<Option<YamlNode>, YamlError> {
        if *self.peek()? == YamlTokenKind::StreamEnd {
            return Ok(None);
        }
        let has_directives = self.parse_directives()?;
        let is_explicit = *self.peek()? == YamlTokenKind::DocumentStart;
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
            YamlTokenKind::Version { .. }
            | YamlTokenKind::TagDirective { .. }
            | YamlTokenKind::DocumentStart
            | YamlTokenKind::DocumentEnd
            | YamlTokenKind::StreamEnd
                if is_explicit =>
            {
                empty(self.place()?)
            }
            _ => self.parse_node(true, false)?,
        };
        // A malformed token after the document is an error.
        self.peek()?;
        Ok(Some(root))
    }

    /// Reads the directives before the document. Returns whether there are any.
    fn parse_directives(&mut self) -> Result<bool, YamlError> {
        let (mut has_version, mut has_any) = (false, false);
        loop {
            let place = self.place()?;
            match self.peek()? {
                YamlTokenKind::Version { .. } if has_version => {
                    return Err(error(place, "found duplicate %YAML directive"));
                }
                YamlTokenKind::Version { major: 1, minor: 1 } => has_version = true,
                YamlTokenKind::Version { .. } => {
                    return Err(error(place, "found incompatible YAML document"));
                }
                YamlTokenKind::TagDirective { handle, prefix } => {
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
    fn parse_node(&mut self, is_block: bool, may_be_flat: bool) -> Result<YamlNode, YamlError> {
        if let YamlTokenKind::Alias(_) = self.peek()? {
            return self.resolve_alias();
        }
        let properties = self.parse_properties()?;
        if let Some(name) = &properties.anchor {
            self.anchors.insert(name.clone(), None);
        }
        let node = self.parse_content(is_block, may_be_flat, &properties)?;
        self.count_node(1, node.place)?;
        if let Some(name) = properties.anchor {
            self.anchors.insert(name, Some(node.clone()));
        }
        Ok(node)
    }

    fn parse_properties(&mut self) -> Result<YamlNodeProperties, YamlError> {
        let mut properties = YamlNodeProperties::default();
        loop {
            let token = self.scanner.peek()?;
            let place = token.place;
            match &token.kind {
                YamlTokenKind::Anchor(name) if properties.anchor.is_none() => {
                    properties.anchor = Some(name.clone());
                }
                YamlTokenKind::Tag { handle, suffix } if properties.tag.is_none() => {
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

    fn parse_content(
        &mut self,
        is_block: bool,
        may_be_flat: bool,
        properties: &YamlNodeProperties,
    ) -> Result<YamlNode, YamlError> {
        let place = self.place()?;
        let value = match self.peek()? {
            YamlTokenKind::BlockEntry if may_be_flat => {
                self.parse_nested(place, Self::parse_flat_sequence)?
            }
            YamlTokenKind::Scalar { .. } => self.parse_scalar(properties)?,
            YamlTokenKind::FlowSequenceStart => {
                self.parse_nested(place, Self::parse_flow_sequence)?
            }
            YamlTokenKind::FlowMappingStart => {
                self.parse_nested(place, Self::parse_flow_mapping)?
            }
            YamlTokenKind::BlockSequenceStart if is_block => {
                self.parse_nested(place, Self::parse_block_sequence)?
            }
            YamlTokenKind::BlockMappingStart if is_block => {
                self.parse_nested(place, Self::parse_block_mapping)?
            }
            _ => match properties.place {
                Some(place) => {
                    let value = self.build_tagged(String::new(), true, properties, place)?;
                    return Ok(YamlNode { place, value });
                }
                None => return Err(error(place, "did not find expected node content")),
            },
        };
        Ok(YamlNode { place, value })
    }

    fn parse_nested(
        &mut self,
        place: YamlPosition,
        read: impl Fn(&mut Self) -> Result<YamlValue, YamlError>,
    ) -> Result<YamlValue, YamlError> {
        self.depth += 1;
        self.check_depth(self.depth, place)?;
        let value = read(self)?;
        self.depth -= 1;
        Ok(value)
    }

    fn parse_scalar(&mut self, properties: &YamlNodeProperties) -> Result<YamlValue, YamlError> {
        let token = self.next()?;
        match token.kind {
            YamlTokenKind::Scalar { text, is_plain } => {
                self.build_tagged(text, is_plain, properties, token.place)
            }
            _ => Err(error(token.place, "did not find expected node content")),
        }
    }

    /// Builds a scalar with the type of its tag, or of its style if it has no tag.
    fn build_tagged(
        &self,
        text: String,
        plain: bool,
        properties: &YamlNodeProperties,
        place: YamlPosition,
    ) -> Result<YamlValue, YamlError> {
        let Some(tag) = &properties.tag else {
            return Ok(YamlValue::Scalar { text, plain });
        };
        if tag == "!" && self.dialect == YamlDialect::V3 {
            return Ok(YamlValue::Scalar { text, plain });
        }
        let Some(name) = tag.strip_prefix(CORE) else {
            // As in upstream, a merge key keeps its meaning.
            let plain = plain && text == "<<" && tag == "!";
            return Ok(YamlValue::Scalar { text, plain });
        };
        if name == "binary" {
            let text = decode_binary(&text).map_err(|problem| error(place, problem))?;
            return Ok(YamlValue::Scalar { text, plain: false });
        }
        let is_one = match (name, resolve(&text)) {
            ("bool", YamlScalar::Bool(_)) => true,
            ("int", YamlScalar::Whole(_)) => true,
            ("float", YamlScalar::Whole(_) | YamlScalar::Number(_)) => true,
            ("null", YamlScalar::Null) => true,
            ("bool" | "int" | "float" | "null", _) => false,
            ("merge", _) => true,
            _ => return Ok(YamlValue::Scalar { text, plain: false }),
        };
        if !is_one {
            return Err(error(
                place,
                &format!("cannot decode `{text}` as a !!{name}"),
            ));
        }
        let plain = name != "merge" || text == "<<";
        Ok(YamlValue::Scalar { text, plain })
    }

    /// Returns a copy of an anchored node. Its parts keep their own places, since errors in them
    /// must be corrected there.
    fn resolve_alias(&mut self) -> Result<YamlNode, YamlError> {
        let token = self.next()?;
        let YamlTokenKind::Alias(name) = token.kind else {
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
        self.count_node(node.count_nodes(), token.place)?;
        self.check_depth(self.depth + node.depth() - 1, token.place)?;
        Ok(node)
    }

    fn count_node(&mut self, nodes: usize, place: YamlPosition) -> Result<(), YamlError> {
        self.nodes += nodes;
        if self.nodes > NODES_MAX {
            Err(error(place, &format!("too many values: limit {NODES_MAX}")))
        } else {
            Ok(())
        }
    }

    fn check_depth(&self, depth: usize, place: YamlPosition) -> Result<(), YamlError> {
        if depth > DEPTH_MAX {
            let problem = format!("nested too deeply: {depth} levels, limit {DEPTH_MAX}");
            return Err(error(place, &problem));
        }
        Ok(())
    }

    /// Reads the item or value after an indicator that ends at `end`. Returns an empty node if the
    /// next token satisfies `is_end`.
    fn parse_node_or_empty(
        &mut self,
        end: YamlPosition,
        is_end: impl Fn(&YamlTokenKind) -> bool,
        is_block: bool,
        may_be_flat: bool,
    ) -> Result<YamlNode, YamlError> {
        if is_end(self.peek()?) {
            self.count_node(1, end)?;
            return Ok(empty(end));
        }
        self.parse_node(is_block, may_be_flat)
    }

    fn parse_block_sequence(&mut self) -> Result<YamlValue, YamlError> {
        self.next()?;
        let mut items = Vec::new();
        loop {
            let token = self.next()?;
            match token.kind {
                YamlTokenKind::BlockEntry => {
                    let is_end = |kind: &_| {
                        matches!(kind, YamlTokenKind::BlockEntry | YamlTokenKind::BlockEnd)
                    };
                    items.push(self.parse_node_or_empty(token.end, is_end, true, false)?);
                }
                YamlTokenKind::BlockEnd => return Ok(YamlValue::List(items)),
                _ => return Err(error(token.place, "did not find expected '-' indicator")),
            }
        }
    }

    /// Reads a list in a mapping whose items are not indented.
    fn parse_flat_sequence(&mut self) -> Result<YamlValue, YamlError> {
        let mut items = Vec::new();
        while *self.peek()? == YamlTokenKind::BlockEntry {
            let end = self.next()?.end;
            let is_end = |kind: &_| is_key_indicator(kind) || *kind == YamlTokenKind::BlockEntry;
            items.push(self.parse_node_or_empty(end, is_end, true, false)?);
        }
        Ok(YamlValue::List(items))
    }

    fn parse_block_mapping(&mut self) -> Result<YamlValue, YamlError> {
        self.next()?;
        let mut mapping = YamlMappingBuilder::new(self.dialect);
        loop {
            let token = self.next()?;
            match token.kind {
                YamlTokenKind::Key => {}
                YamlTokenKind::BlockEnd => return mapping.finish(),
                _ => return Err(error(token.place, "did not find expected key")),
            }
            let key = self.parse_node_or_empty(token.end, is_key_indicator, true, true)?;
            let key = check_mapping_key(key, &mut mapping)?;
            let value = match self.peek()? {
                YamlTokenKind::Value => {
                    let end = self.next()?.end;
                    self.check_merge(&key)?;
                    self.parse_node_or_empty(end, is_key_indicator, true, true)?
                }
                _ => empty(self.place()?),
            };
            mapping.push(key, value)?;
        }
    }

    /// Rejects an alias of a list as the value of a merge key. A list that is written directly is
    /// valid.
    fn check_merge(&mut self, key: &YamlKey) -> Result<(), YamlError> {
        let place = self.place()?;
        let YamlTokenKind::Alias(name) = &self.scanner.peek()?.kind else {
            return Ok(());
        };
        let node = self.anchors.get(name).and_then(Option::as_ref);
        match node.map(|node| &node.value) {
            Some(YamlValue::List(_)) if key.is_merge => Err(error(place, WANTS_MAPPING)),
            _ => Ok(()),
        }
    }
}

fn check_mapping_key(
    node: YamlNode,
    mapping: &mut YamlMappingBuilder,
) -> Result<YamlKey, YamlError> {
    let is_merge = matches!(&node.value, YamlValue::Scalar { text, plain: true } if text == "<<");
    let key = YamlKey { node, is_merge };
    mapping.check_key(&key)?;
    Ok(key)
}

/// Returns whether the next token of a block mapping follows, so that the current value is empty.
fn is_key_indicator(kind: &YamlTokenKind) -> bool {
    matches!(
        kind,
        YamlTokenKind::Key | YamlTokenKind::Value | YamlTokenKind::BlockEnd
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

//! Parses flow collections: `[a, b]` and `{a: b}`.

use super::{YamlTreeReader, check_mapping_key, empty, error};
use crate::mapping::{YamlKey, YamlMappingBuilder};
use crate::node::{YamlError, YamlNode, YamlValue};
use crate::scanner::YamlTokenKind;

impl YamlTreeReader {
    pub(super) fn parse_flow_sequence(&mut self) -> Result<YamlValue, YamlError> {
        self.next()?;
        let mut items = Vec::new();
        while *self.peek()? != YamlTokenKind::FlowSequenceEnd {
            if !items.is_empty() {
                self.expect_comma("did not find expected ',' or ']'")?;
            }
            let place = self.place()?;
            match self.peek()? {
                YamlTokenKind::FlowSequenceEnd => break,
                YamlTokenKind::Key => {
                    let value = self.parse_nested(place, Self::parse_single_pair)?;
                    self.count_node(1, place)?;
                    items.push(YamlNode { place, value });
                }
                _ => items.push(self.parse_node(false, false)?),
            }
        }
        self.next()?;
        Ok(YamlValue::List(items))
    }

    fn expect_comma(&mut self, problem: &str) -> Result<(), YamlError> {
        let token = self.next()?;
        match token.kind {
            YamlTokenKind::FlowEntry => Ok(()),
            _ => Err(error(token.place, problem)),
        }
    }

    /// Reads a mapping with a single key in a list: `[a: 1]`.
    fn parse_single_pair(&mut self) -> Result<YamlValue, YamlError> {
        self.next()?;
        let mut mapping = YamlMappingBuilder::new(self.dialect);
        let is_end = |kind: &_| {
            matches!(
                kind,
                YamlTokenKind::FlowEntry | YamlTokenKind::FlowSequenceEnd
            )
        };
        let key = match self.peek()? {
            kind if is_end(kind) || *kind == YamlTokenKind::Value => {
                // As in upstream, whose parser consumes the indicator as the key.
                empty(self.next()?.end)
            }
            _ => self.parse_node(false, false)?,
        };
        let key = check_mapping_key(key, &mut mapping)?;
        let value = self.parse_flow_value(&key, is_end)?;
        mapping.push(key, value)?;
        mapping.finish()
    }

    pub(super) fn parse_flow_mapping(&mut self) -> Result<YamlValue, YamlError> {
        self.next()?;
        let mut mapping = YamlMappingBuilder::new(self.dialect);
        let is_end = |kind: &_| {
            matches!(
                kind,
                YamlTokenKind::FlowEntry | YamlTokenKind::FlowMappingEnd
            )
        };
        let mut is_first = true;
        while *self.peek()? != YamlTokenKind::FlowMappingEnd {
            if !is_first {
                self.expect_comma("did not find expected ',' or '}'")?;
            }
            is_first = false;
            let place = self.place()?;
            let (key, value) = match self.peek()? {
                YamlTokenKind::FlowMappingEnd => break,
                YamlTokenKind::Key => {
                    self.next()?;
                    let is_no_key = |kind: &_| is_end(kind) || *kind == YamlTokenKind::Value;
                    let key = self.parse_node_or_empty(place, is_no_key, false, false)?;
                    let key = check_mapping_key(key, &mut mapping)?;
                    let value = self.parse_flow_value(&key, is_end)?;
                    (key, value)
                }
                _ => {
                    let key = self.parse_node(false, false)?;
                    let key = check_mapping_key(key, &mut mapping)?;
                    (key, empty(self.place()?))
                }
            };
            mapping.push(key, value)?;
        }
        self.next()?;
        mapping.finish()
    }

    fn parse_flow_value(
        &mut self,
        key: &YamlKey,
        is_end: impl Fn(&YamlTokenKind) -> bool,
    ) -> Result<YamlNode, YamlError> {
        let place = self.place()?;
        if *self.peek()? != YamlTokenKind::Value {
            return Ok(empty(place));
        }
        self.next()?;
        self.check_merge(key)?;
        let place = self.place()?;
        self.parse_node_or_empty(place, is_end, false, false)
    }
}

//! Builder of mappings with unique keys and resolved merge keys (`<<`).
//!
//! Upstream assigns the values of a merge key to the fields of a struct or inserts them into a map.
//! A map rejects a value whose key exists already, so such entries are marked (`has_rival`).

use super::node::{YamlDialect, YamlEntry, YamlError, YamlNode, YamlPosition, YamlValue};
use std::collections::HashMap;

/// A key as it appears in the document, before merge keys are resolved.
#[derive(Clone, Debug)]
pub(super) struct YamlKey {
    pub(super) node: YamlNode,
    /// Whether this is a merge key (`<<`).
    pub(super) is_merge: bool,
}

/// Builder of a mapping whose entries are being read, in the rules of one dialect.
pub(super) struct YamlMappingBuilder {
    dialect: YamlDialect,
    entries: Vec<YamlEntry>,
    /// Index of the entry of each key.
    indexes: HashMap<String, usize>,
    /// Places of the keys that the document sets directly, used to detect duplicates.
    own: HashMap<String, YamlPosition>,
    /// Values of merge keys, deferred until the mapping's own keys are complete (version 3 only).
    merged: Vec<YamlNode>,
}

impl YamlMappingBuilder {
    pub(super) fn new(dialect: YamlDialect) -> Self {
        YamlMappingBuilder {
            dialect,
            entries: Vec::new(),
            indexes: HashMap::new(),
            own: HashMap::new(),
            merged: Vec::new(),
        }
    }

    /// Validates a key before its value is read. Fails if it is not a scalar or is a duplicate.
    pub(super) fn check_key(&mut self, key: &YamlKey) -> Result<(), YamlError> {
        let YamlValue::Scalar { text, .. } = &key.node.value else {
            return Err(key.node.error("a key must be a scalar"));
        };
        if key.is_merge && self.dialect == YamlDialect::V2 {
            return Ok(());
        }
        let is_nameless = self.dialect == YamlDialect::V2 && key.node.is_null();
        let name = if is_nameless { "" } else { text };
        match self.own.insert(name.to_owned(), key.node.place) {
            None => Ok(()),
            Some(first) => {
                let message = format!("duplicate key {text:?}, first set at {first}");
                Err(key.node.error(message))
            }
        }
    }

    /// Adds a key with its value, or the entries of a merge key.
    pub(super) fn push(&mut self, key: YamlKey, node: YamlNode) -> Result<(), YamlError> {
        if key.is_merge {
            match self.dialect {
                YamlDialect::V2 => self.merge(node)?,
                YamlDialect::V3 => self.merged.push(node),
            }
            return Ok(());
        }
        if key.node.is_null() && self.dialect == YamlDialect::V3 {
            return Ok(());
        }
        self.set(YamlEntry {
            key: key.node.text().unwrap_or_default().to_owned(),
            place: key.node.place,
            node,
            has_rival: false,
        });
        Ok(())
    }

    /// Completes the mapping and applies merge keys that were deferred.
    pub(super) fn finish(mut self) -> Result<YamlValue, YamlError> {
        for node in std::mem::take(&mut self.merged) {
            self.merge(node)?;
        }
        Ok(YamlValue::Map(self.entries))
    }

    fn set(&mut self, entry: YamlEntry) {
        let Some(index) = self.indexes.get(&entry.key) else {
            self.indexes.insert(entry.key.clone(), self.entries.len());
            self.entries.push(entry);
            return;
        };
        if self.dialect == YamlDialect::V2 {
            self.entries[*index] = YamlEntry {
                has_rival: true,
                ..entry
            };
        }
    }

    /// Adds the entries of a merge key's value, which is a mapping or a list of mappings. Earlier
    /// mappings take precedence over later ones.
    fn merge(&mut self, node: YamlNode) -> Result<(), YamlError> {
        let mut sources = match node.value {
            YamlValue::List(items) => items,
            _ => vec![node],
        };
        if self.dialect == YamlDialect::V2 {
            sources.reverse();
        }
        for source in sources {
            let YamlValue::Map(entries) = source.value else {
                return Err(source.error(WANTS_MAPPING));
            };
            for entry in entries {
                self.set(entry);
            }
        }
        Ok(())
    }
}

/// Upstream's error text for a merge key with any other value.
pub(super) const WANTS_MAPPING: &str = "map merge requires map or sequence of maps as the value";

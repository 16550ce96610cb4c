//! YAML reader that returns a document as a tree, with the place of each node.
//!
//! Reads the first document of a text by the rules of Go's `yaml`, which Prometheus uses:
//! [`scanner`] produces tokens, [`tree`] builds nodes, and [`mapping`] resolves merge keys (`<<`).
//! Anchors and aliases are resolved, and duplicate keys are errors. Scalars remain text, which the
//! config schema interprets with [`scalar`]. [`print`] converts a tree back to text.
//!
//! Invariant: a tree has at most [`node::NODES_MAX`] nodes and [`node::DEPTH_MAX`] levels,
//! including copies made by aliases.

mod encoding;
mod mapping;
mod node;
mod print;
pub mod scalar;
mod scanner;
mod tree;

pub use encoding::decode;
pub use node::{YamlDialect, YamlEntry, YamlError, YamlNode, YamlPosition, YamlValue};
pub use print::print;

/// Parses the first document of `text` in the dialect of version 2. Returns `None` if there is no
/// document or it is null.
pub fn parse(text: &str) -> Result<Option<YamlNode>, YamlError> {
    parse_as(text, YamlDialect::V2)
}

/// Parses the first document of `text`. Returns `None` if there is no document or it is null. Text
/// after the document is ignored.
pub fn parse_as(text: &str, dialect: YamlDialect) -> Result<Option<YamlNode>, YamlError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    encoding::check_characters(text)?;
    let root = tree::read_document(text, dialect)?;
    Ok(root.filter(|root| !root.is_null()))
}

#[cfg(test)]
mod tests;

//! YAML as Go's `yaml` package reads it: a document becomes a tree with the position of each node.
//!
//! The first document of a text is read by the rules of versions 2 and 3 of that package, which
//! Prometheus uses: [`scanner`] produces tokens, [`tree`] builds nodes, and [`mapping`] resolves
//! merge keys (`<<`). Anchors and aliases are resolved, and duplicate keys are errors. Scalars
//! remain text, which a schema interprets with [`scalar`]. [`print()`] converts a tree back to
//! text.
//!
//! ```
//! use firn_yaml::scalar::{YamlScalar, interpret_scalar};
//!
//! let root = firn_yaml::parse("job: node\nlimits: &limits [10, 0x1f]\n")?.expect("a document");
//! assert_eq!(root.get("job").and_then(|job| job.text()), Some("node"));
//!
//! let limit = &root.get("limits").expect("the key is set").items()[1];
//! assert_eq!(limit.place.to_string(), "2:22");
//! assert_eq!(interpret_scalar(limit), Some(YamlScalar::Whole(31)));
//!
//! let error = firn_yaml::parse("job: node\njob: api\n").expect_err("a key occurs twice");
//! assert_eq!(error.place.line, 2);
//! # Ok::<(), firn_yaml::YamlError>(())
//! ```
//!
//! Invariant: a tree has at most [`node::NODES_MAX`] nodes and [`node::DEPTH_MAX`] levels,
//! including copies made by aliases.
//!
//! The crate does not read files, does not decode documents into structs, and does not keep
//! comments or styles: a printed tree has the meaning of the text that it was read from, not its
//! layout.

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

//! Schema of the sections of a config: the rows of their keys, the validation of a tree against
//! them, and typed access to values.
//!
//! ```
//! use firn_config_schema::schema::{ConfigFindings, ConfigValueShape, KeyGroups, key, walk};
//! use firn_config_schema::section::ConfigSection;
//! use std::path::Path;
//!
//! const KEYS: KeyGroups = &[&[
//!     key("host", ConfigValueShape::Text),
//!     key("port", ConfigValueShape::Count).or("80"),
//! ]];
//!
//! let port = |text: &str| {
//!     let mut root = firn_yaml::parse(text)?.expect("the text has a document");
//!     let shape = ConfigValueShape::Section(KEYS);
//!     walk(&mut root, &shape, "", &mut ConfigFindings::default())?;
//!     let section = ConfigSection::new(Some(&root), KEYS, Path::new("/etc"));
//!     Ok::<u64, firn_yaml::YamlError>(section.count("port"))
//! };
//! assert_eq!(port("port: 9090").expect("a valid section"), 9090);
//! assert_eq!(port("host: a").expect("a valid section"), 80);
//! assert!(port("prot: 9090").is_err());
//! ```
//!
//! The crates that own a section have its tables and its reader; this crate has none.

pub mod go_url;
pub mod read;
pub mod schema;
pub mod section;

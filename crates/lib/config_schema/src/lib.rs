//! Schema of the sections of a config: the rows of their keys, the validation of a tree against
//! them, and typed access to values.
//!
//! ```
//! use firn_config_schema::read;
//! use firn_config_schema::schema::{ConfigFindings, ConfigKey, ConfigValueShape, walk};
//!
//! const KEYS: &[ConfigKey] = &[ConfigKey::new("port", ConfigValueShape::Integer)];
//! const SHAPE: ConfigValueShape = ConfigValueShape::Section(&[KEYS]);
//!
//! let check = |text: &str| {
//!     let mut root = firn_yaml::parse(text)?.expect("the text has a document");
//!     walk(&mut root, &SHAPE, "", &mut ConfigFindings::default())?;
//!     Ok::<i64, firn_yaml::YamlError>(read::integer_or(&root, "port", 80))
//! };
//! assert_eq!(check("port: 9090").expect("a valid section"), 9090);
//! assert!(check("prot: 9090").is_err());
//! ```
//!
//! The crates that own a section have its tables and its reader; this crate has none.

pub mod go_url;
pub mod read;
pub mod schema;

//! Groups of targets, the form in which discoveries publish them.

use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;

/// Addresses and the labels that they share.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Group {
    /// `host:port`, one a target.
    #[serde(deserialize_with = "or_default")]
    pub targets: Vec<String>,
    /// Labels of all of them.
    #[serde(deserialize_with = "or_default")]
    pub labels: BTreeMap<String, String>,
}

/// `null` is the default of a type, as in Go.
pub(super) fn or_default<'d, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'d>,
    T: Deserialize<'d> + Default,
{
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// Reads target groups from YAML. The binary owns the reader of YAML and lends it.
pub type ReadYaml = fn(&str) -> Result<Vec<Group>, String>;

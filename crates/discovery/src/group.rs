//! Groups of targets, the form in which discoveries publish them.

use super::json;
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

/// Reads target groups from JSON; `null` is an empty list.
pub fn read_json_groups(bytes: &[u8]) -> Result<Vec<Group>, String> {
    check_groups(json::from_slice(bytes)?)
}

/// Rejects groups that are `null`, and labels without a name.
pub(super) fn check_groups(groups: Vec<Option<Group>>) -> Result<Vec<Group>, String> {
    let groups: Option<Vec<Group>> = groups.into_iter().collect();
    let groups = groups.ok_or("nil target group item found")?;
    match groups.iter().any(|group| group.labels.contains_key("")) {
        true => Err("\"\" is not a valid label name".into()),
        false => Ok(groups),
    }
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

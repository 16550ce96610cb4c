//! Target groups, the form in which discoveries publish their targets.

use super::json;
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;

/// Target addresses with the labels that they share, as in `static_configs` and target files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TargetGroup {
    /// Addresses in the form `host:port`, one per target.
    #[serde(deserialize_with = "or_default")]
    pub targets: Vec<String>,
    /// Labels of all targets in the group.
    #[serde(deserialize_with = "or_default")]
    pub labels: BTreeMap<String, String>,
}

/// Returns an error if `address` cannot be a host with an optional port.
pub fn check_address(address: &str) -> Result<(), String> {
    if address.contains('/') {
        Err(format!("{address:?} is not a valid hostname"))
    } else {
        Ok(())
    }
}

/// Decodes target groups from JSON; `null` is an empty list.
pub fn read_json_groups(bytes: &[u8]) -> Result<Vec<TargetGroup>, String> {
    check_groups(json::from_slice(bytes)?)
}

/// Rejects groups that are `null` and labels with an empty name, as upstream does.
pub(super) fn check_groups(groups: Vec<Option<TargetGroup>>) -> Result<Vec<TargetGroup>, String> {
    let groups: Option<Vec<TargetGroup>> = groups.into_iter().collect();
    let groups = groups.ok_or("nil target group item found")?;
    if groups.iter().any(|group| group.labels.contains_key("")) {
        Err("\"\" is not a valid label name".into())
    } else {
        Ok(groups)
    }
}

/// Deserializes `null` as the default value of the type, as Go does.
pub(super) fn or_default<'d, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'d>,
    T: Deserialize<'d> + Default,
{
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// Function that decodes target groups from YAML. The binary contains the YAML reader of configs
/// and passes it to this crate.
pub type ReadYaml = fn(&str) -> Result<Vec<TargetGroup>, String>;

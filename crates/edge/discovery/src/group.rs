//! Target groups, the form in which discoveries publish their targets.

use super::json;
use firn_config_schema::read;
use firn_config_schema::schema::{ConfigFindings, ConfigValueShape, TEXTS, key, walk};
use firn_yaml::{YamlNode, YamlValue};
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;

/// Shape of a list of static target groups.
pub(super) const GROUPS: ConfigValueShape =
    ConfigValueShape::List(&ConfigValueShape::Section(&[&[
        key("targets", TEXTS).always(""),
        key("labels", ConfigValueShape::Labels),
    ]]));

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

/// Decodes target groups from YAML; an empty text is an empty list.
pub fn read_yaml_groups(text: &str) -> Result<Vec<TargetGroup>, String> {
    let Some(root) = firn_yaml::parse(text).map_err(|e| e.to_string())? else {
        return Ok(Vec::new());
    };
    let wrong = |node: &YamlNode, what: &str| Err(node.error(what).to_string());
    if !matches!(root.value, YamlValue::List(_)) {
        return wrong(&root, "expected a list of target groups");
    }
    if let Some(node) = root.items().iter().find(|node| node.is_null()) {
        return wrong(node, "nil target group item found");
    }
    walk(
        &mut root.clone(),
        &GROUPS,
        "groups",
        &mut ConfigFindings::default(),
    )
    .map_err(|e| e.to_string())?;
    Ok(root.items().iter().map(read_yaml_group).collect())
}

/// Reads a group that was validated against [`GROUPS`].
pub(super) fn read_yaml_group(node: &YamlNode) -> TargetGroup {
    let labels = read::entries(node.get("labels")).iter();
    TargetGroup {
        targets: read::texts(node, "targets").unwrap_or_default(),
        labels: labels
            .map(|e| (e.key.clone(), e.node.text().unwrap_or_default().to_owned()))
            .collect(),
    }
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

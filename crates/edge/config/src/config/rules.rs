//! Relabeling rules of a config.

use super::read;
use firn_ingest::relabel::{RelabelAction, RelabelRule, RelabelRuleSettings};
use firn_model::names::NameScheme;
use firn_yaml::{YamlError, YamlNode};

/// Reads, validates and compiles the relabeling rules in the list `key`.
pub fn rules(job: &YamlNode, key: &str, names: NameScheme) -> Result<Vec<RelabelRule>, YamlError> {
    let list = job.get(key).map_or(&[][..], YamlNode::items);
    list.iter().map(|node| rule(node, names)).collect()
}

fn rule(node: &YamlNode, names: NameScheme) -> Result<RelabelRule, YamlError> {
    let action = match node.get("action") {
        None => RelabelAction::Replace,
        Some(value) if value.is_null() => {
            return Err(value.error("relabel action cannot be empty"));
        }
        Some(value) => {
            let name = value.text().unwrap_or_default();
            RelabelAction::from_name(name)
                .ok_or_else(|| value.error(format!("unknown relabel action {name:?}")))?
        }
    };
    let settings = RelabelRuleSettings {
        source_labels: read::texts(node, "source_labels"),
        separator: read::string_or_empty(node, "separator"),
        regex: read::string_or_empty(node, "regex"),
        modulus: read::count(node, "modulus").unwrap_or(0),
        target_label: read::string(node, "target_label"),
        replacement: read::string_or_empty(node, "replacement"),
        action,
    };
    settings.compile(names).map_err(|e| node.error(e.message))
}

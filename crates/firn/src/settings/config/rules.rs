//! Relabeling rules of a config.

use super::read;
use firn_ingest::relabel::{Action, Rule, RuleSettings};
use firn_model::names::NameScheme;
use firn_model::yaml::{Node, YamlError};

/// Reads, validates and compiles the relabeling rules in the list `key`.
pub fn rules(job: &Node, key: &str, names: NameScheme) -> Result<Vec<Rule>, YamlError> {
    let list = job.get(key).map_or(&[][..], Node::items);
    list.iter().map(|node| rule(node, names)).collect()
}

fn rule(node: &Node, names: NameScheme) -> Result<Rule, YamlError> {
    let action = match node.get("action") {
        None => Action::Replace,
        Some(value) if value.is_null() => {
            return Err(value.error("relabel action cannot be empty"));
        }
        Some(value) => {
            let name = value.text().unwrap_or_default();
            Action::from_name(name)
                .ok_or_else(|| value.error(format!("unknown relabel action {name:?}")))?
        }
    };
    let settings = RuleSettings {
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

//! Relabeling rules of a config.

use ConfigValueShape::{CaselessText, Count, LabelName, List, Section, Text};
use firn_config_schema::schema::{ConfigValueShape, key};
use firn_config_schema::section::ConfigSection;
use firn_ingest::relabel::{RelabelAction, RelabelRule, RelabelRuleSettings};
use firn_model::names::NameScheme;
use firn_yaml::YamlError;

/// Shape of a list of relabeling rules.
pub const RULES: ConfigValueShape = List(&Section(&[&[
    key("source_labels", List(&LabelName)),
    key("separator", Text).always(";"),
    key("regex", Text),
    key("modulus", Count),
    key("target_label", Text),
    key("replacement", Text).always("$1"),
    key("action", CaselessText).or("replace"),
]]));

/// Reads, validates and compiles the relabeling rules in the list `key`.
pub fn rules(
    section: ConfigSection<'_>,
    key: &str,
    names: NameScheme,
) -> Result<Vec<RelabelRule>, YamlError> {
    section
        .sections(key)
        .map(|rule| compile(rule, names))
        .collect()
}

fn compile(rule: ConfigSection<'_>, names: NameScheme) -> Result<RelabelRule, YamlError> {
    if let Some(value) = rule.get("action").filter(|value| value.is_null()) {
        return Err(value.error("relabel action cannot be empty"));
    }
    let action = rule.text("action");
    let action = RelabelAction::from_name(action).ok_or_else(|| {
        let place = rule.get("action").unwrap_or(rule.node());
        place.error(format!("unknown relabel action {action:?}"))
    })?;
    let optional = |key| rule.text_if_present(key).map(str::to_owned);
    let settings = RelabelRuleSettings {
        source_labels: rule.texts("source_labels"),
        separator: optional("separator"),
        regex: optional("regex"),
        modulus: rule.count("modulus"),
        target_label: rule.text("target_label").to_owned(),
        replacement: optional("replacement"),
        action,
    };
    settings.compile(names).map_err(|e| rule.error(e.message))
}

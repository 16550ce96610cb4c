//! Relabeling rules of a config.

use ConfigValueShape::{CaselessText, Count, LabelName, List, Section, Text};
use firn_config_schema::schema::{ConfigFindings, ConfigValueShape, KeyGroups, key, walk};
use firn_config_schema::section::ConfigSection;
use firn_ingest::relabel::{RelabelAction, RelabelRule, RelabelRuleSettings};
use firn_model::names::NameScheme;
use firn_yaml::{YamlEntry, YamlError, YamlNode, YamlValue};
use std::path::Path;

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

/// The keys of a config whose values are relabeling rules.
const LISTS: KeyGroups = &[&[
    key("relabel_configs", RULES),
    key("metric_relabel_configs", RULES),
    key("alert_relabel_configs", RULES),
    key("write_relabel_configs", RULES),
]];

/// Reads, validates and compiles relabeling rules that are not part of a config file: a list of
/// rules, or a mapping with one of the keys under which a config contains them.
pub fn parse_relabel_rules(text: &str, names: NameScheme) -> Result<Vec<RelabelRule>, YamlError> {
    let root = firn_yaml::parse(text)?;
    let Some(root) = root.filter(|root| !root.is_null()) else {
        return Ok(Vec::new());
    };
    let mut root = match root.value {
        YamlValue::List(_) => under_key("relabel_configs", root),
        YamlValue::Map(_) => root,
        YamlValue::Scalar { .. } => {
            return Err(root.error("expected a list of relabeling rules"));
        }
    };
    let shape = ConfigValueShape::Section(LISTS);
    walk(&mut root, &shape, "", &mut ConfigFindings::default())?;
    let YamlValue::Map(entries) = &root.value else {
        return Ok(Vec::new());
    };
    match entries.as_slice() {
        [] => Ok(Vec::new()),
        [list] => rules(
            ConfigSection::new(Some(&root), LISTS, Path::new("")),
            &list.key,
            names,
        ),
        [_, second, ..] => Err(second.node.error(format!(
            "expected the rules of one key, got also {:?}",
            second.key
        ))),
    }
}

fn under_key(key: &str, node: YamlNode) -> YamlNode {
    let place = node.place;
    let entry = YamlEntry {
        key: key.to_owned(),
        place,
        node,
        has_rival: false,
    };
    YamlNode {
        place,
        value: YamlValue::Map(vec![entry]),
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Result<&[&str], &str>) {
        let actual = parse_relabel_rules(text, NameScheme::Utf8).map_err(|e| e.to_string());
        let actions = actual.as_ref().map(|rules| {
            let actions = rules.iter().map(|rule| rule.settings().action.as_str());
            actions.collect::<Vec<_>>()
        });
        let actions = actions.as_ref().map(Vec::as_slice).map_err(|e| e.as_str());
        assert_eq!(actions, expected, "{text}");
    }

    #[test]
    fn rules_are_a_list_or_the_value_of_one_key() {
        let drop = "- {source_labels: [a], regex: b, action: drop}\n";
        check("", Ok(&[]));
        check(drop, Ok(&["drop"]));
        check(&format!("metric_relabel_configs:\n{drop}"), Ok(&["drop"]));
        check("relabel_configs:", Ok(&[]));
        check(
            "- {action: labeldrop, regex: a}\n- target_label: b\n",
            Ok(&["labeldrop", "replace"]),
        );
        check(
            &format!("relabel_configs:\n{drop}metric_relabel_configs:\n{drop}"),
            Err("4:1: expected the rules of one key, got also \"metric_relabel_configs\""),
        );
    }

    #[test]
    fn errors_have_the_position_of_the_rule() {
        check(
            "- action: drop\n- action: dorp\n",
            Err("2:11: unknown relabel action \"dorp\""),
        );
        check("up", Err("1:1: expected a list of relabeling rules"));
        check(
            "- regex: '('\n",
            Err("1:3: error parsing regexp: missing closing ): `^(?s:()$`"),
        );
    }
}

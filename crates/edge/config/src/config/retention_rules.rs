//! The list `firn.retention`: retention times of matching series.

use ConfigValueShape::{Duration, Text};
use firn_config_schema::schema::{ConfigKey, ConfigValueShape, key};
use firn_config_schema::section::ConfigSection;
use firn_promql::parser::parse_selector;
use firn_storage::store::{RetentionRule, RetentionRules};
use firn_yaml::YamlError;

/// Keys of a rule.
pub const KEYS: &[ConfigKey] = &[
    key("match", Text).required(),
    key("keep", Duration).required(),
];

/// Maximum number of rules. Each query of old samples evaluates all of them.
const RULES_MAX: usize = 100;

/// Reads the rules from the section `firn`, in order of precedence.
pub fn retention_rules(firn: ConfigSection<'_>) -> Result<RetentionRules, YamlError> {
    let sections: Vec<ConfigSection<'_>> = firn.sections("retention").collect();
    if let Some(section) = sections.get(RULES_MAX) {
        return Err(section.error(format!("firn.retention: more than {RULES_MAX} rules")));
    }
    sections.into_iter().map(read_rule).collect()
}

fn read_rule(section: ConfigSection<'_>) -> Result<RetentionRule, YamlError> {
    let node = section.get("match").unwrap_or(section.node());
    let error = |what: String| node.error(format!("firn.retention: match: {what}"));
    let matchers = parse_selector(section.text("match")).map_err(|e| error(e.to_string()))?;
    if matchers.is_empty() {
        return Err(error("the selector has no matcher".to_owned()));
    }
    for matcher in &matchers {
        matcher.prepare().map_err(|e| error(e.message))?;
    }
    let keep = section.exact_duration("keep");
    if keep.is_zero() {
        let node = section.get("keep").unwrap_or(section.node());
        return Err(node.error("firn.retention: keep: must be greater than 0s"));
    }
    Ok(RetentionRule {
        matchers,
        keep_ms: i64::try_from(keep.as_millis()).unwrap_or(i64::MAX),
    })
}

//! Validates the values of groups and rules after the file was read.

use super::{GroupDefinition, RuleDefinition, RuleFile, RuleFileOptions, RuleParseError};
use firn_model::labels::METRIC_NAME;
use firn_model::names::NameScheme;
use firn_model::quote::quote;
use firn_promql::parser;
use firn_yaml::YamlPosition;
use std::collections::HashSet;

/// Returns all errors of `file` in upstream's order and with its messages.
pub(super) fn check(file: &RuleFile, options: RuleFileOptions) -> Vec<RuleParseError> {
    let mut errors = Vec::new();
    let mut names = HashSet::new();
    for group in &file.groups {
        check_group(group, options.names, &mut names, &mut errors);
        for (i, rule) in group.rules.iter().enumerate() {
            for mistake in find_mistakes(rule, options) {
                errors.push(RuleParseError(format!(
                    "{}group {}, rule {}, {}: {}",
                    mistake.place,
                    quote(group.name.as_bytes()),
                    i + 1,
                    quote(rule.name().as_bytes()),
                    mistake.message
                )));
            }
        }
    }
    errors
}

/// Returns all errors of a rule that belongs to no group.
pub(super) fn check_rule(rule: &RuleDefinition, options: RuleFileOptions) -> Vec<RuleParseError> {
    let mistakes = find_mistakes(rule, options);
    let errors = mistakes.into_iter();
    let errors = errors.map(|mistake| format!("{}{}", mistake.place, mistake.message));
    errors.map(RuleParseError).collect()
}

fn check_group<'f>(
    group: &'f GroupDefinition,
    names: NameScheme,
    seen: &mut HashSet<&'f str>,
    errors: &mut Vec<RuleParseError>,
) {
    let place = format_position(group.place);
    if group.name.is_empty() {
        errors.push(RuleParseError(format!(
            "{place}Groupname must not be empty"
        )));
    }
    if !seen.insert(&group.name) {
        errors.push(RuleParseError(format!(
            "{place}groupname: \"{}\" is repeated in the same file",
            group.name
        )));
    }
    for name in group.labels.keys() {
        if !is_label(name, names) {
            errors.push(RuleParseError(format!("invalid label name: {name}")));
        }
    }
}

fn is_label(name: &str, names: NameScheme) -> bool {
    names.allows_label(name) && name != METRIC_NAME
}

/// An error in a rule, without the names of its group and rule, which the caller adds.
struct RuleMistake {
    /// Position in the form `line:column: `, once or twice, or empty.
    place: String,
    message: String,
}

/// Formats a position as `line:column: `, with zeros if the key is missing.
fn format_position(place: Option<YamlPosition>) -> String {
    match place {
        Some(place) => format!("{place}: "),
        None => "0:0: ".into(),
    }
}

fn find_mistakes(rule: &RuleDefinition, options: RuleFileOptions) -> Vec<RuleMistake> {
    let mut mistakes = Vec::new();
    let places = rule.places;
    let both = || format_position(places.record) + &format_position(places.alert);
    let mut add = |place: String, message: String| mistakes.push(RuleMistake { place, message });
    match (rule.record.is_empty(), rule.alert.is_empty()) {
        (false, false) => {
            let message = "only one of 'record' and 'alert' must be set";
            add(both(), message.into());
        }
        (true, true) => add(both(), "one of 'record' or 'alert' must be set".into()),
        _ => {}
    }
    if rule.expr.is_empty() {
        let message = "field 'expr' must be set in rule";
        add(format_position(places.expr), message.into());
    } else if let Err(e) = parser::parse(&rule.expr, options.features) {
        let message = format!("could not parse expression: {e}");
        add(format_position(places.expr), message);
    }
    if !rule.record.is_empty() {
        for message in find_recording_mistakes(rule, options.names) {
            add(format_position(places.record), message);
        }
    }
    for name in rule.labels.keys() {
        if !is_label(name, options.names) {
            add(String::new(), format!("invalid label name: {name}"));
        }
    }
    for name in rule.annotations.keys() {
        if !options.names.allows_label(name) {
            add(String::new(), format!("invalid annotation name: {name}"));
        }
    }
    if !rule.alert.is_empty() {
        let labels = rule.labels.iter().map(|text| ("label", text));
        let annotations = rule.annotations.iter().map(|text| ("annotation", text));
        for (what, (name, text)) in labels.chain(annotations) {
            if let Err(e) = firn_gotemplate::check(&rule.alert, text) {
                let name = quote(name.as_bytes());
                add(String::new(), format!("{what} {name}: {e}"));
            }
        }
    }
    mistakes
}

fn find_recording_mistakes(rule: &RuleDefinition, names: NameScheme) -> Vec<String> {
    let mut mistakes = Vec::new();
    let fields = [
        ("annotations", !rule.annotations.is_empty()),
        ("for", !rule.hold.is_zero()),
        ("keep_firing_for", !rule.keep_firing_for.is_zero()),
    ];
    for (field, _) in fields.into_iter().filter(|(_, is_set)| *is_set) {
        mistakes.push(format!("invalid field '{field}' in recording rule"));
    }
    let name = &rule.record;
    if !names.allows_metric(name) {
        mistakes.push(format!("invalid recording rule name: {name}"));
    }
    if name.contains(['{', '}']) {
        mistakes.push(format!(
            "braces present in the recording rule name; should it be in expr?: {name}"
        ));
    }
    mistakes
}

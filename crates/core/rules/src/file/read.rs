//! Converts a YAML tree into groups and rules, and checks keys and types of values.
//!
//! A value of the wrong type is reported and skipped; the rest of the tree is still read.

use super::{
    GroupDefinition, RuleDefinition, RuleFile, RuleFileOptions, RuleKeyPositions, RuleParseError,
    Texts,
};
use firn_model::tenant::TenantId;
use firn_model::units::parse_duration;
use firn_yaml::scalar::{YamlScalar, interpret_scalar, parse_bool};
use firn_yaml::{YamlEntry, YamlNode, YamlValue};
use std::time::Duration;

/// Reads one YAML tree into a [`RuleFile`] and collects its errors. Invalid values are replaced by
/// defaults.
pub(super) struct RuleFileReader {
    options: RuleFileOptions,
    errors: Vec<RuleParseError>,
}

impl RuleFileReader {
    pub(super) fn new(options: RuleFileOptions) -> Self {
        Self {
            options,
            errors: Vec::new(),
        }
    }

    /// Returns the errors that were found, in the order of the file.
    pub(super) fn into_errors(self) -> Vec<RuleParseError> {
        self.errors
    }

    pub(super) fn read_file(&mut self, root: &YamlNode) -> RuleFile {
        let mut file = RuleFile::default();
        for entry in self.read_entries(root, "a rule file") {
            match entry.key.as_str() {
                "groups" => {
                    for node in self.read_items(&entry.node, "groups") {
                        let group = self.read_group(node);
                        file.groups.push(group);
                    }
                }
                _ => self.report_unknown_key(entry, "rulefmt.RuleGroups"),
            }
        }
        file
    }

    fn read_group(&mut self, node: &YamlNode) -> GroupDefinition {
        let mut group = GroupDefinition {
            place: Some(node.place),
            ..GroupDefinition::default()
        };
        let is_of_ruler = self.options.is_of_ruler;
        let mut evaluation_delay = None;
        for entry in self.read_entries(node, "a group") {
            let value = &entry.node;
            match entry.key.as_str() {
                "name" => group.name = self.read_text(value, "name"),
                "interval" => {
                    let interval = self.read_duration(value, "interval");
                    group.interval = interval.filter(|interval| !interval.is_zero());
                }
                "query_offset" => group.query_offset = self.read_duration(value, "query_offset"),
                "limit" => group.limit = self.read_integer(value, "limit"),
                "labels" => group.labels = self.read_texts(value, "labels"),
                "rules" => {
                    for node in self.read_items(value, "rules") {
                        let rule = self.read_rule(node);
                        group.rules.push(rule);
                    }
                }
                "evaluation_delay" if is_of_ruler => {
                    evaluation_delay = self.read_duration(value, "evaluation_delay");
                }
                "align_evaluation_time_on_interval" if is_of_ruler => {
                    group.is_aligned = self.read_flag(value, "align_evaluation_time_on_interval");
                }
                "tenant" if self.options.has_tenants => group.tenant = self.read_tenant(value),
                "source_tenants" if is_of_ruler => {
                    if !self.read_items(value, "source_tenants").is_empty() {
                        group.ignored.push("source_tenants");
                    }
                }
                _ => self.report_unknown_key(entry, "rulefmt.RuleGroup"),
            }
        }
        // `evaluation_delay` is Mimir's older name of `query_offset`.
        group.query_offset = group.query_offset.or(evaluation_delay);
        group
    }

    fn read_tenant(&mut self, value: &YamlNode) -> Option<TenantId> {
        let id = self.read_text(value, "tenant");
        let tenant = TenantId::new(&id);
        let tenant = tenant.map_err(|e| RuleParseError::with_position(value.place, e.message));
        tenant.map_err(|e| self.errors.push(e)).ok()
    }

    pub(super) fn read_rule(&mut self, node: &YamlNode) -> RuleDefinition {
        let mut rule = RuleDefinition::default();
        let mut places = RuleKeyPositions::default();
        for entry in self.read_entries(node, "a rule") {
            let value = &entry.node;
            match entry.key.as_str() {
                "record" => {
                    places.record = Some(value.place);
                    rule.record = self.read_text(value, "record");
                }
                "alert" => {
                    places.alert = Some(value.place);
                    rule.alert = self.read_text(value, "alert");
                }
                "expr" => {
                    places.expr = Some(value.place);
                    rule.expr = self.read_text(value, "expr");
                }
                "for" => rule.hold = self.read_duration(value, "for").unwrap_or_default(),
                "keep_firing_for" => {
                    let keep = self.read_duration(value, "keep_firing_for");
                    rule.keep_firing_for = keep.unwrap_or_default();
                }
                "labels" => rule.labels = self.read_texts(value, "labels"),
                "annotations" => rule.annotations = self.read_texts(value, "annotations"),
                _ => self.report_unknown_key(entry, "rulefmt.Rule"),
            }
        }
        rule.places = places;
        rule
    }

    fn wrong(&mut self, node: &YamlNode, message: String) {
        self.errors
            .push(RuleParseError::with_position(node.place, message));
    }

    /// Reports an unknown key with upstream's message, which contains the name of a Go type.
    fn report_unknown_key(&mut self, entry: &YamlEntry, kind: &str) {
        if !self.options.ignores_unknown {
            let message = format!("field {} not found in type {kind}", entry.key);
            self.errors
                .push(RuleParseError::with_position(entry.place, message));
        }
    }

    fn read_entries<'n>(&mut self, node: &'n YamlNode, what: &str) -> &'n [YamlEntry] {
        match &node.value {
            YamlValue::Map(entries) => entries,
            _ if node.is_null() => &[],
            _ => {
                self.wrong(node, format!("{what} must be a mapping"));
                &[]
            }
        }
    }

    /// Returns the items of a list without null items, which upstream ignores too.
    fn read_items<'n>(&mut self, node: &'n YamlNode, what: &str) -> Vec<&'n YamlNode> {
        if !matches!(node.value, YamlValue::List(_)) && !node.is_null() {
            self.wrong(node, format!("{what} must be a list"));
        }
        let items = node.items().iter();
        items.filter(|item| !item.is_null()).collect()
    }

    fn read_text(&mut self, node: &YamlNode, what: &str) -> String {
        match &node.value {
            YamlValue::Scalar { .. } => node.text().unwrap_or_default().to_owned(),
            _ => {
                self.wrong(node, format!("{what} must be a single value"));
                String::new()
            }
        }
    }

    fn read_texts(&mut self, node: &YamlNode, what: &str) -> Texts {
        let mut texts = Texts::new();
        for entry in self.read_entries(node, what) {
            let text = self.read_text(&entry.node, &format!("{what}.{}", entry.key));
            texts.insert(entry.key.clone(), text);
        }
        texts
    }

    fn read_duration(&mut self, node: &YamlNode, what: &str) -> Option<Duration> {
        if node.is_null() {
            return None;
        }
        match parse_duration(&self.read_text(node, what)) {
            Ok(duration) => Some(duration),
            Err(e) => {
                self.wrong(node, e.to_string());
                None
            }
        }
    }

    fn read_flag(&mut self, node: &YamlNode, what: &str) -> bool {
        if node.is_null() {
            return false;
        }
        let text = self.read_text(node, what);
        parse_bool(&text).unwrap_or_else(|| {
            self.wrong(node, format!("{what} must be true or false, got {text:?}"));
            false
        })
    }

    fn read_integer(&mut self, node: &YamlNode, what: &str) -> i64 {
        if node.is_null() {
            return 0;
        }
        let text = self.read_text(node, what);
        let number = interpret_scalar(node).and_then(YamlScalar::to_integer);
        number.unwrap_or_else(|| {
            self.wrong(node, format!("{what} must be a whole number, got {text:?}"));
            0
        })
    }
}

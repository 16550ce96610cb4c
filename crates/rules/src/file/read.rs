//! Converts a YAML tree into groups and rules, and checks keys and types of values.
//!
//! A value of the wrong type is reported and skipped; the rest of the tree is still read.

use super::{FileError, GroupSettings, ReadOptions, RuleFile, RulePlaces, RuleSettings, Texts};
use firn_model::units::parse_duration;
use firn_model::yaml::scalar::{Scalar, parse_bool, scalar_of};
use firn_model::yaml::{Entry, Node, Value};
use std::time::Duration;

/// Reads one YAML tree into a [`RuleFile`] and collects its errors. Invalid values are replaced by
/// defaults.
pub(super) struct Reader {
    options: ReadOptions,
    errors: Vec<FileError>,
}

impl Reader {
    pub(super) fn new(options: ReadOptions) -> Self {
        Self {
            options,
            errors: Vec::new(),
        }
    }

    /// Returns the errors that were found, in the order of the file.
    pub(super) fn into_errors(self) -> Vec<FileError> {
        self.errors
    }

    pub(super) fn file(&mut self, root: &Node) -> RuleFile {
        let mut file = RuleFile::default();
        for entry in self.entries(root, "a rule file") {
            match entry.key.as_str() {
                "groups" => {
                    for node in self.items(&entry.node, "groups") {
                        let group = self.group(node);
                        file.groups.push(group);
                    }
                }
                _ => self.unknown(entry, "rulefmt.RuleGroups"),
            }
        }
        file
    }

    fn group(&mut self, node: &Node) -> GroupSettings {
        let mut group = GroupSettings {
            place: Some(node.place),
            ..GroupSettings::default()
        };
        let is_of_ruler = self.options.is_of_ruler;
        let mut evaluation_delay = None;
        for entry in self.entries(node, "a group") {
            let value = &entry.node;
            match entry.key.as_str() {
                "name" => group.name = self.text(value, "name"),
                "interval" => {
                    let interval = self.duration(value, "interval");
                    group.interval = interval.filter(|interval| !interval.is_zero());
                }
                "query_offset" => group.query_offset = self.duration(value, "query_offset"),
                "limit" => group.limit = self.integer(value, "limit"),
                "labels" => group.labels = self.texts(value, "labels"),
                "rules" => {
                    for node in self.items(value, "rules") {
                        let rule = self.rule(node);
                        group.rules.push(rule);
                    }
                }
                "evaluation_delay" if is_of_ruler => {
                    evaluation_delay = self.duration(value, "evaluation_delay");
                }
                "align_evaluation_time_on_interval" if is_of_ruler => {
                    group.is_aligned = self.flag(value, "align_evaluation_time_on_interval");
                }
                "source_tenants" if is_of_ruler => {
                    if !self.items(value, "source_tenants").is_empty() {
                        group.ignored.push("source_tenants");
                    }
                }
                _ => self.unknown(entry, "rulefmt.RuleGroup"),
            }
        }
        // `evaluation_delay` is Mimir's older name of `query_offset`.
        group.query_offset = group.query_offset.or(evaluation_delay);
        group
    }

    fn rule(&mut self, node: &Node) -> RuleSettings {
        let mut rule = RuleSettings::default();
        let mut places = RulePlaces::default();
        for entry in self.entries(node, "a rule") {
            let value = &entry.node;
            match entry.key.as_str() {
                "record" => {
                    places.record = Some(value.place);
                    rule.record = self.text(value, "record");
                }
                "alert" => {
                    places.alert = Some(value.place);
                    rule.alert = self.text(value, "alert");
                }
                "expr" => {
                    places.expr = Some(value.place);
                    rule.expr = self.text(value, "expr");
                }
                "for" => rule.hold = self.duration(value, "for").unwrap_or_default(),
                "keep_firing_for" => {
                    let keep = self.duration(value, "keep_firing_for");
                    rule.keep_firing_for = keep.unwrap_or_default();
                }
                "labels" => rule.labels = self.texts(value, "labels"),
                "annotations" => rule.annotations = self.texts(value, "annotations"),
                _ => self.unknown(entry, "rulefmt.Rule"),
            }
        }
        rule.places = places;
        rule
    }

    fn wrong(&mut self, node: &Node, message: String) {
        self.errors.push(FileError::at(node.place, message));
    }

    /// Reports an unknown key with upstream's message, which contains the name of a Go type.
    fn unknown(&mut self, entry: &Entry, kind: &str) {
        if !self.options.ignores_unknown {
            let message = format!("field {} not found in type {kind}", entry.key);
            self.errors.push(FileError::at(entry.place, message));
        }
    }

    fn entries<'n>(&mut self, node: &'n Node, what: &str) -> &'n [Entry] {
        match &node.value {
            Value::Map(entries) => entries,
            _ if node.is_null() => &[],
            _ => {
                self.wrong(node, format!("{what} must be a mapping"));
                &[]
            }
        }
    }

    /// Returns the items of a list without null items, which upstream ignores too.
    fn items<'n>(&mut self, node: &'n Node, what: &str) -> Vec<&'n Node> {
        if !matches!(node.value, Value::List(_)) && !node.is_null() {
            self.wrong(node, format!("{what} must be a list"));
        }
        let items = node.items().iter();
        items.filter(|item| !item.is_null()).collect()
    }

    fn text(&mut self, node: &Node, what: &str) -> String {
        match &node.value {
            Value::Scalar { .. } => node.text().unwrap_or_default().to_owned(),
            _ => {
                self.wrong(node, format!("{what} must be a single value"));
                String::new()
            }
        }
    }

    fn texts(&mut self, node: &Node, what: &str) -> Texts {
        let mut texts = Texts::new();
        for entry in self.entries(node, what) {
            let text = self.text(&entry.node, &format!("{what}.{}", entry.key));
            texts.insert(entry.key.clone(), text);
        }
        texts
    }

    fn duration(&mut self, node: &Node, what: &str) -> Option<Duration> {
        if node.is_null() {
            return None;
        }
        match parse_duration(&self.text(node, what)) {
            Ok(duration) => Some(duration),
            Err(e) => {
                self.wrong(node, e.to_string());
                None
            }
        }
    }

    fn flag(&mut self, node: &Node, what: &str) -> bool {
        if node.is_null() {
            return false;
        }
        let text = self.text(node, what);
        parse_bool(&text).unwrap_or_else(|| {
            self.wrong(node, format!("{what} must be true or false, got {text:?}"));
            false
        })
    }

    fn integer(&mut self, node: &Node, what: &str) -> i64 {
        if node.is_null() {
            return 0;
        }
        let text = self.text(node, what);
        let number = scalar_of(node).and_then(Scalar::integer);
        number.unwrap_or_else(|| {
            self.wrong(node, format!("{what} must be a whole number, got {text:?}"));
            0
        })
    }
}

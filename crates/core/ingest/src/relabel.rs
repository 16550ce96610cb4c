//! Relabelling: rules that change the labels of a target or of a sample, or drop it.
//!
//! ```text
//! source labels -- joined --> value -- regex --> groups -- templates --> target label
//! ```
//!
//! [`RelabelRuleSettings`] is a rule as written in the configuration; [`RelabelRule`] is its
//! validated and compiled form. All functions are pure. Semantics and error texts are those of
//! Prometheus's `model/relabel/relabel.go`; if `labelmap` maps two labels to the same name, they
//! are processed in the order of their names.

mod action;
mod case;
#[cfg(test)]
mod tests;

pub use action::RelabelAction;

use firn_model::error::{Error, ErrorKind};
use firn_model::labels::{Labels, LabelsBuilder};
use firn_model::names::NameScheme;
use firn_model::regex::{CaptureRegex, Regex};
use md5::{Digest, Md5};

/// Default separator between the source labels.
const SEPARATOR: &str = ";";

/// Default regular expression, which matches everything as one group.
const REGEX: &str = "(.*)";

/// Default replacement, which copies the first group.
const REPLACEMENT: &str = "$1";

/// A rule as written in the configuration. `None` means that the field is absent, which differs
/// from a default value in validation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RelabelRuleSettings {
    /// Labels whose values are joined.
    pub source_labels: Option<Vec<String>>,
    /// Separator between the values; `;` by default.
    pub separator: Option<String>,
    /// Regular expression that must match the whole joined value, or a label name; `(.*)` by
    /// default.
    pub regex: Option<String>,
    /// Divisor for the hash of the joined value.
    pub modulus: u64,
    /// Label to write; for `replace_target` a template.
    pub target_label: String,
    /// Template for the value, or for a label name; `$1` by default.
    pub replacement: Option<String>,
    /// Action of the rule; `replace_target` by default.
    pub action: RelabelAction,
}

impl RelabelRuleSettings {
    /// Returns the separator between source labels, or its default. A separator that is set may be
    /// empty.
    pub fn separator(&self) -> &str {
        self.separator.as_deref().unwrap_or(SEPARATOR)
    }

    /// Returns the regular expression, or its default.
    pub fn regex(&self) -> &str {
        self.regex.as_deref().unwrap_or(REGEX)
    }

    /// Returns the replacement template, or its default.
    pub fn replacement(&self) -> &str {
        self.replacement.as_deref().unwrap_or(REPLACEMENT)
    }

    /// Returns the source labels; none by default.
    pub fn source_labels(&self) -> &[String] {
        self.source_labels.as_deref().unwrap_or_default()
    }

    /// Validates and compiles the rule; fails with [`ErrorKind::Invalid`] and the error text of
    /// Prometheus.
    pub fn compile(self, names: NameScheme) -> Result<RelabelRule, Error> {
        let pattern = RelabelPattern::new(&self)?;
        self.check_fields(names)
            .map_err(|message| Error::new(ErrorKind::Invalid, message))?;
        Ok(RelabelRule {
            settings: self,
            names,
            pattern,
        })
    }

    fn check_fields(&self, names: NameScheme) -> Result<(), String> {
        let action = self.action;
        let (target, replacement) = (self.target_label.as_str(), self.replacement());
        if action == RelabelAction::HashMod && self.modulus == 0 {
            return Err("relabel configuration for hashmod requires non-zero modulus".into());
        }
        if action.needs_target() && target.is_empty() {
            return Err(format!(
                "relabel configuration for {action} action requires 'target_label' value"
            ));
        }
        let is_template = action == RelabelAction::Replace && target.contains('$');
        let is_target_good = if is_template {
            is_name_template(target, names)
        } else {
            names.allows_label(target)
        };
        if action.needs_target() && !is_target_good {
            return Err(format!(
                "{target:?} is invalid 'target_label' for {action} action"
            ));
        }
        let changes_case = matches!(action, RelabelAction::Lowercase | RelabelAction::Uppercase);
        let compares = matches!(action, RelabelAction::KeepEqual | RelabelAction::DropEqual);
        if (changes_case || compares) && replacement != REPLACEMENT {
            return Err(format!("'replacement' can not be set for {action} action"));
        }
        if action == RelabelAction::LabelMap && !is_name_template(replacement, names) {
            return Err(format!(
                "{replacement:?} is invalid 'replacement' for {action} action"
            ));
        }
        self.check_unused_fields(compares)
    }

    /// Rejects fields that the action does not use, with the error text of Prometheus.
    fn check_unused_fields(&self, compares: bool) -> Result<(), String> {
        let action = self.action;
        let sets_other =
            self.modulus != 0 || self.separator() != SEPARATOR || self.replacement() != REPLACEMENT;
        if compares && (self.regex.is_some() || sets_other) {
            return Err(format!(
                "{action} action requires only 'source_labels' and `target_label`, and no other \
                 fields"
            ));
        }
        let is_by_name = matches!(action, RelabelAction::LabelDrop | RelabelAction::LabelKeep);
        if is_by_name
            && (self.source_labels.is_some() || !self.target_label.is_empty() || sets_other)
        {
            return Err(format!(
                "{action} action requires only 'regex', and no other fields"
            ));
        }
        Ok(())
    }
}

/// Returns whether `template` always produces valid label names, whatever its groups match.
fn is_name_template(template: &str, names: NameScheme) -> bool {
    match names {
        NameScheme::Utf8 => !template.is_empty(),
        NameScheme::Legacy => is_legacy_template(template),
    }
}

/// Returns whether the template consists of letters, underscores, digits after one of them, and
/// `$name` or `${name}` anywhere.
fn is_legacy_template(template: &str) -> bool {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let (mut rest, mut has_begun) = (template, false);
    while let Some(c) = rest.chars().next() {
        rest = match rest.strip_prefix('$') {
            None if is_word(c) && (has_begun || !c.is_ascii_digit()) => &rest[1..],
            None => return false,
            Some(after) => {
                let inside = after.strip_prefix('{');
                let word = inside.unwrap_or(after);
                let end = word.find(|c| !is_word(c)).unwrap_or(word.len());
                match (end, inside) {
                    (0, _) => return false,
                    (_, None) => &word[end..],
                    (_, Some(_)) => match word[end..].strip_prefix('}') {
                        Some(rest) => rest,
                        None => return false,
                    },
                }
            }
        };
        has_begun = true;
    }
    has_begun
}

/// The compiled regular expression, in the cheapest form that the action needs.
#[derive(Debug)]
enum RelabelPattern {
    /// The action uses no regular expression.
    Unused,
    /// The default expression and replacement: the whole value is the group.
    Whole,
    /// Only whether the expression matches is needed.
    Matches(Regex),
    /// The groups of the match are needed.
    Captures(CaptureRegex),
}

impl RelabelPattern {
    fn new(settings: &RelabelRuleSettings) -> Result<Self, Error> {
        let pattern = settings.regex().as_bytes();
        // Errors show the anchored expression, whichever form is needed.
        let captures = || CaptureRegex::new(pattern).map_err(Error::from);
        match settings.action {
            RelabelAction::Keep
            | RelabelAction::Drop
            | RelabelAction::LabelDrop
            | RelabelAction::LabelKeep => match Regex::new(pattern) {
                Ok(regex) => Ok(RelabelPattern::Matches(regex)),
                Err(e) => Err(captures().err().unwrap_or_else(|| e.into())),
            },
            RelabelAction::Replace if is_copy(settings) => Ok(RelabelPattern::Whole),
            RelabelAction::Replace | RelabelAction::LabelMap => {
                captures().map(RelabelPattern::Captures)
            }
            _ => captures().map(|_| RelabelPattern::Unused),
        }
    }
}

/// Returns whether the rule copies the joined value unchanged.
fn is_copy(settings: &RelabelRuleSettings) -> bool {
    settings.regex() == REGEX
        && settings.replacement() == REPLACEMENT
        && !settings.target_label.contains('$')
}

/// A validated and compiled rule, which can be applied from several threads. Equality compares the
/// rules as written.
#[derive(Debug)]
pub struct RelabelRule {
    settings: RelabelRuleSettings,
    names: NameScheme,
    pattern: RelabelPattern,
}

impl PartialEq for RelabelRule {
    fn eq(&self, other: &Self) -> bool {
        self.settings == other.settings && self.names == other.names
    }
}

/// The result of one rule in a sequence, for debugging a configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct RelabelStep {
    /// Labels after the rule; empty once the label set was dropped.
    pub output: Labels,
    /// True if the label set was not dropped by this rule or an earlier one.
    pub is_kept: bool,
}

/// Applies `rules` in order and returns whether the label set is kept. Stops at the first rule that
/// drops it.
pub fn apply_rules(rules: &[RelabelRule], labels: &mut LabelsBuilder) -> bool {
    rules.iter().all(|rule| rule.apply_rule(labels))
}

/// Applies `rules` in order and returns the result of each one, including those after a drop. A
/// rule is applied when its result is requested.
pub fn trace_rules(rules: &[RelabelRule], labels: &Labels) -> impl Iterator<Item = RelabelStep> {
    let mut builder = LabelsBuilder::from_labels(labels.as_ref());
    let mut is_kept = true;
    let step = move |rule: &RelabelRule| {
        is_kept = is_kept && rule.apply_rule(&mut builder);
        RelabelStep {
            output: if is_kept {
                builder.build()
            } else {
                Labels::empty()
            },
            is_kept,
        }
    };
    rules.iter().map(step)
}

impl RelabelRule {
    /// Returns the rule as written in the configuration.
    pub fn settings(&self) -> &RelabelRuleSettings {
        &self.settings
    }

    /// Applies the rule to `labels`; returns whether the label set is kept.
    pub fn apply_rule(&self, labels: &mut LabelsBuilder) -> bool {
        let target = self.settings.target_label.as_str();
        match self.settings.action {
            RelabelAction::Keep => self.matches(&self.join_source_values(labels)),
            RelabelAction::Drop => !self.matches(&self.join_source_values(labels)),
            RelabelAction::KeepEqual => labels.get(target) == self.join_source_values(labels),
            RelabelAction::DropEqual => labels.get(target) != self.join_source_values(labels),
            action => {
                match action {
                    RelabelAction::LabelMap => self.map_label_names(labels),
                    RelabelAction::LabelDrop => {
                        labels.retain(|name| !self.matches(name.as_bytes()));
                    }
                    RelabelAction::LabelKeep => {
                        labels.retain(|name| self.matches(name.as_bytes()));
                    }
                    _ => self.write_target_label(labels),
                }
                true
            }
        }
    }

    fn write_target_label(&self, labels: &mut LabelsBuilder) {
        let value = self.join_source_values(labels);
        let target = self.settings.target_label.as_str();
        match self.settings.action {
            RelabelAction::Lowercase => labels.set(target, &case::to_lowercase(&value)),
            RelabelAction::Uppercase => labels.set(target, &case::to_uppercase(&value)),
            RelabelAction::HashMod => {
                let remainder = md5_hash(&value) % self.settings.modulus;
                labels.set(target, remainder.to_string().as_bytes())
            }
            _ => self.replace_target(&value, labels),
        };
    }

    /// Returns the values of the source labels, joined by the separator; absent labels count as
    /// empty.
    fn join_source_values(&self, labels: &LabelsBuilder) -> Vec<u8> {
        let mut joined = Vec::new();
        for (i, name) in self.settings.source_labels().iter().enumerate() {
            if i > 0 {
                joined.extend_from_slice(self.settings.separator().as_bytes());
            }
            joined.extend_from_slice(labels.get(name));
        }
        joined
    }

    fn matches(&self, text: &[u8]) -> bool {
        matches!(&self.pattern, RelabelPattern::Matches(regex) if regex.is_match(text))
    }

    fn replace_target<'l>(
        &self,
        value: &[u8],
        labels: &'l mut LabelsBuilder,
    ) -> &'l mut LabelsBuilder {
        let target = self.settings.target_label.as_str();
        let captures = match &self.pattern {
            RelabelPattern::Whole => return labels.set(target, value),
            RelabelPattern::Captures(regex) => regex.captures(value),
            RelabelPattern::Unused | RelabelPattern::Matches(_) => None,
        };
        let Some(captures) = captures else {
            return labels;
        };
        let mut name = Vec::new();
        captures.expand(target, &mut name);
        match std::str::from_utf8(&name) {
            Ok(name) if self.names.allows_label(name) => {
                let mut replaced = Vec::new();
                captures.expand(self.settings.replacement(), &mut replaced);
                labels.set(name, &replaced)
            }
            _ => labels,
        }
    }

    fn map_label_names(&self, labels: &mut LabelsBuilder) {
        let RelabelPattern::Captures(regex) = &self.pattern else {
            return;
        };
        let mut mapped = Vec::new();
        for (name, value) in labels.iter() {
            if let Some(captures) = regex.captures(name.as_bytes()) {
                let mut new_name = Vec::new();
                captures.expand(self.settings.replacement(), &mut new_name);
                mapped.push((new_name, value.to_vec()));
            }
        }
        for (name, value) in mapped {
            if let Ok(name) = std::str::from_utf8(&name)
                && !name.is_empty()
            {
                labels.set(name, &value);
            }
        }
    }
}

/// Returns the last eight bytes of the MD5 sum, which Prometheus uses for `hashmod`.
fn md5_hash(value: &[u8]) -> u64 {
    let sum: [u8; 16] = Md5::digest(value).into();
    sum[8..]
        .iter()
        .fold(0, |number, byte| number << 8 | u64::from(*byte))
}

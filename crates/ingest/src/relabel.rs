//! Relabelling: rules that change the labels of a target or of a sample, or drop it.
//!
//! ```text
//! source labels -- joined --> value -- regex --> groups -- templates --> target label
//! ```
//!
//! [`RuleSettings`] is a rule as a config writes it; [`Rule`] is the checked and compiled form.
//! Everything here is pure. Meaning and error texts are those of Prometheus's
//! `model/relabel/relabel.go`; two labels that `labelmap` maps to one name are taken in the order
//! of their names.

mod action;
mod case;
#[cfg(test)]
mod tests;

pub use action::Action;

use firn_model::error::{Error, ErrorKind};
use firn_model::labels::{Labels, LabelsBuilder};
use firn_model::names::NameScheme;
use firn_model::regex::{CaptureRegex, Regex};
use md5::{Digest, Md5};

/// What joins the source labels if the rule does not say.
const SEPARATOR: &str = ";";

/// The pattern of a rule that has none.
const REGEX: &str = "(.*)";

/// The template of a rule that has none.
const REPLACEMENT: &str = "$1";

/// A rule as it is written. `None` is what the config does not mention.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleSettings {
    /// Labels whose values are joined.
    pub source_labels: Option<Vec<String>>,
    /// What they are joined with; `;` by default.
    pub separator: Option<String>,
    /// What the joined value, or a label's name, must match as a whole; `(.*)` by default.
    pub regex: Option<String>,
    /// Divisor of the hash.
    pub modulus: u64,
    /// The label that is written; for `replace` a template.
    pub target_label: String,
    /// The template of the value, or of a label's name; `$1` by default.
    pub replacement: Option<String>,
    /// What the rule does.
    pub action: Action,
}

impl RuleSettings {
    /// What joins the source labels.
    pub fn separator(&self) -> &str {
        self.separator.as_deref().unwrap_or(SEPARATOR)
    }

    /// The pattern.
    pub fn regex(&self) -> &str {
        self.regex.as_deref().unwrap_or(REGEX)
    }

    /// The template.
    pub fn replacement(&self) -> &str {
        self.replacement.as_deref().unwrap_or(REPLACEMENT)
    }

    /// The labels that are joined.
    pub fn source_labels(&self) -> &[String] {
        self.source_labels.as_deref().unwrap_or_default()
    }

    /// Checks and compiles the rule; fails with [`ErrorKind::Invalid`] and Prometheus's words.
    pub fn compile(self, names: NameScheme) -> Result<Rule, Error> {
        let pattern = Pattern::new(&self)?;
        self.check(names)
            .map_err(|message| Error::new(ErrorKind::Invalid, message))?;
        Ok(Rule {
            settings: self,
            names,
            pattern,
        })
    }

    fn check(&self, names: NameScheme) -> Result<(), String> {
        let action = self.action;
        let (target, replacement) = (self.target_label.as_str(), self.replacement());
        if action == Action::HashMod && self.modulus == 0 {
            return Err("relabel configuration for hashmod requires non-zero modulus".into());
        }
        if action.needs_target() && target.is_empty() {
            return Err(format!(
                "relabel configuration for {action} action requires 'target_label' value"
            ));
        }
        let is_template = action == Action::Replace && target.contains('$');
        let is_target_good = match is_template {
            true => is_name_template(target, names),
            false => names.allows_label(target),
        };
        if action.needs_target() && !is_target_good {
            return Err(format!(
                "{target:?} is invalid 'target_label' for {action} action"
            ));
        }
        let changes_case = matches!(action, Action::Lowercase | Action::Uppercase);
        let compares = matches!(action, Action::KeepEqual | Action::DropEqual);
        if (changes_case || compares) && replacement != REPLACEMENT {
            return Err(format!("'replacement' can not be set for {action} action"));
        }
        if action == Action::LabelMap && !is_name_template(replacement, names) {
            return Err(format!(
                "{replacement:?} is invalid 'replacement' for {action} action"
            ));
        }
        self.check_alone(compares)
    }

    /// What an action has no use for may not be set.
    fn check_alone(&self, compares: bool) -> Result<(), String> {
        let action = self.action;
        let sets_other =
            self.modulus != 0 || self.separator() != SEPARATOR || self.replacement() != REPLACEMENT;
        if compares && (self.regex.is_some() || sets_other) {
            return Err(format!(
                "{action} action requires only 'source_labels' and `target_label`, and no other \
                 fields"
            ));
        }
        let is_by_name = matches!(action, Action::LabelDrop | Action::LabelKeep);
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

/// Whether `template` makes label names once its references are replaced.
fn is_name_template(template: &str, names: NameScheme) -> bool {
    match names {
        NameScheme::Utf8 => !template.is_empty(),
        NameScheme::Legacy => is_legacy_template(template),
    }
}

/// Letters, underscores, digits after one of them, and `$name` or `${name}` anywhere.
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

/// The compiled pattern, in the form that the action needs.
#[derive(Debug)]
enum Pattern {
    /// The action takes none.
    Unused,
    /// The whole value is the one group: nothing was set.
    Whole,
    /// Only whether it matches counts.
    Matches(Regex),
    /// The groups count too.
    Captures(CaptureRegex),
}

impl Pattern {
    fn new(settings: &RuleSettings) -> Result<Self, Error> {
        let pattern = settings.regex().as_bytes();
        // Errors show the pattern with what stands around it, whichever form is needed.
        let captures = || CaptureRegex::new(pattern);
        match settings.action {
            Action::Keep | Action::Drop | Action::LabelDrop | Action::LabelKeep => {
                match Regex::new(pattern) {
                    Ok(regex) => Ok(Pattern::Matches(regex)),
                    Err(e) => Err(captures().err().unwrap_or(e)),
                }
            }
            Action::Replace if is_copy(settings) => Ok(Pattern::Whole),
            Action::Replace | Action::LabelMap => captures().map(Pattern::Captures),
            _ => captures().map(|_| Pattern::Unused),
        }
    }
}

/// Whether the rule copies the joined value as it is.
fn is_copy(settings: &RuleSettings) -> bool {
    settings.regex() == REGEX
        && settings.replacement() == REPLACEMENT
        && !settings.target_label.contains('$')
}

/// A rule that can be applied.
#[derive(Debug)]
pub struct Rule {
    settings: RuleSettings,
    names: NameScheme,
    pattern: Pattern,
}

impl PartialEq for Rule {
    fn eq(&self, other: &Self) -> bool {
        self.settings == other.settings && self.names == other.names
    }
}

/// What a rule made of a label set, to find a mistake in a config.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// The labels behind the rule; none once the set was dropped.
    pub output: Labels,
    /// Whether the set was still there behind the rule.
    pub is_kept: bool,
}

/// Applies `rules` one after the other. Returns whether the label set is kept; of one that is not,
/// the rules behind the one that dropped it are not applied.
pub fn apply(rules: &[Rule], labels: &mut LabelsBuilder) -> bool {
    rules.iter().all(|rule| rule.apply(labels))
}

/// What each of `rules` makes of `labels`.
pub fn steps(rules: &[Rule], labels: &Labels) -> Vec<Step> {
    let mut builder = LabelsBuilder::from_labels(labels.as_ref());
    let mut is_kept = true;
    let step = |rule: &Rule| {
        is_kept = is_kept && rule.apply(&mut builder);
        Step {
            output: if is_kept {
                builder.build()
            } else {
                Labels::empty()
            },
            is_kept,
        }
    };
    rules.iter().map(step).collect()
}

impl Rule {
    /// The rule as it was written.
    pub fn settings(&self) -> &RuleSettings {
        &self.settings
    }

    /// Changes `labels`; returns whether the label set is kept.
    pub fn apply(&self, labels: &mut LabelsBuilder) -> bool {
        let target = self.settings.target_label.as_str();
        match self.settings.action {
            Action::Keep => self.matches(&self.source(labels)),
            Action::Drop => !self.matches(&self.source(labels)),
            Action::KeepEqual => labels.get(target) == self.source(labels),
            Action::DropEqual => labels.get(target) != self.source(labels),
            action => {
                match action {
                    Action::LabelMap => self.map_names(labels),
                    Action::LabelDrop => {
                        labels.retain(|name| !self.matches(name.as_bytes()));
                    }
                    Action::LabelKeep => {
                        labels.retain(|name| self.matches(name.as_bytes()));
                    }
                    _ => self.write_target(labels),
                }
                true
            }
        }
    }

    fn write_target(&self, labels: &mut LabelsBuilder) {
        let value = self.source(labels);
        let target = self.settings.target_label.as_str();
        match self.settings.action {
            Action::Lowercase => labels.set(target, &case::lower(&value)),
            Action::Uppercase => labels.set(target, &case::upper(&value)),
            Action::HashMod => {
                let remainder = hash(&value) % self.settings.modulus;
                labels.set(target, remainder.to_string().as_bytes())
            }
            _ => self.replace(&value, labels),
        };
    }

    /// The values of the source labels, joined.
    fn source(&self, labels: &LabelsBuilder) -> Vec<u8> {
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
        matches!(&self.pattern, Pattern::Matches(regex) if regex.is_match(text))
    }

    fn replace<'l>(&self, value: &[u8], labels: &'l mut LabelsBuilder) -> &'l mut LabelsBuilder {
        let target = self.settings.target_label.as_str();
        let captures = match &self.pattern {
            Pattern::Whole => return labels.set(target, value),
            Pattern::Captures(regex) => regex.captures(value),
            Pattern::Unused | Pattern::Matches(_) => None,
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

    fn map_names(&self, labels: &mut LabelsBuilder) {
        let Pattern::Captures(regex) = &self.pattern else {
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

/// The last eight bytes of the MD5 sum: what Prometheus spreads targets by.
fn hash(value: &[u8]) -> u64 {
    let sum: [u8; 16] = Md5::digest(value).into();
    sum[8..]
        .iter()
        .fold(0, |number, byte| number << 8 | u64::from(*byte))
}

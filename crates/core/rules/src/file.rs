//! Reads and validates rule files: groups of rules in YAML.
//!
//! ```text
//! text -> tree (firn_yaml) -> RuleFile: keys and types of values -> checks of the values
//! ```
//!
//! Keys, checks, their order and their messages follow Prometheus 3.14 (`model/rulefmt`). Messages
//! of its YAML library are replaced by Firn's own, with line and column. All errors of a file are
//! reported together, except for YAML syntax errors, which end the parsing.

mod check;
mod duplicates;
mod read;

#[cfg(test)]
mod tests;

pub use duplicates::{DuplicateRule, find_duplicates};

use crate::alert::Annotations;
use firn_model::names::NameScheme;
use firn_model::tenant::TenantId;
use firn_promql::Features;
use firn_yaml::{YamlDialect, YamlPosition, YamlValue};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// Texts by name, for example labels or annotations from a YAML mapping. Sorted by name, so that
/// output is deterministic.
pub type Texts = BTreeMap<String, String>;

/// The validated content of one rule file, created by [`parse`]. Expressions and templates are
/// still texts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RuleFile {
    /// Groups in the order of the file. Their names are unique.
    pub groups: Vec<GroupDefinition>,
}

/// A group of rules as written in a file. [`crate::group::Group`] is created from it, with parsed
/// expressions.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GroupDefinition {
    /// Name of the group, unique in its file.
    pub name: String,
    /// Time between evaluations; `None` selects the global evaluation interval.
    pub interval: Option<Duration>,
    /// Time by which queries look behind the instant of an evaluation; `None` selects the global
    /// default.
    pub query_offset: Option<Duration>,
    /// Maximum number of series or alerts that one rule may produce; zero means no limit.
    pub limit: i64,
    /// Rules in the order of the file.
    pub rules: Vec<RuleDefinition>,
    /// Labels that are added to the output of all rules, unless a rule sets the same label.
    pub labels: Texts,
    /// True if evaluations are aligned to multiples of the interval
    /// (`align_evaluation_time_on_interval` of Mimir's ruler).
    pub is_aligned: bool,
    /// Tenant whose data the rules read and write (`tenant`); `None` selects `anonymous`.
    pub tenant: Option<TenantId>,
    /// Keys of Mimir's ruler that are set in the group and have no effect.
    pub ignored: Vec<&'static str>,
    /// Position of the group in the file.
    pub place: Option<YamlPosition>,
}

/// A rule as written in a file. A valid rule has either `record` or `alert` set; an empty text
/// means that the key is missing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RuleDefinition {
    /// Name of the series that the rule records; empty for an alerting rule.
    pub record: String,
    /// Name of the alerts that the rule creates; empty for a recording rule.
    pub alert: String,
    /// PromQL expression in text form, as written in the file.
    pub expr: String,
    /// Value of `for`: the time for which the condition must be true before an alert fires.
    pub hold: Duration,
    /// Time for which an alert continues to fire after its condition became false.
    pub keep_firing_for: Duration,
    /// Labels that the rule adds to its series or alerts.
    pub labels: Texts,
    /// Annotations of the alerts: templates of texts for people.
    pub annotations: Texts,
    /// Positions of the values to which error messages refer.
    pub places: RuleKeyPositions,
}

/// Positions of the values of a rule's keys, to which error messages refer; `None` if the key is
/// missing.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RuleKeyPositions {
    /// Position of the value of `record`.
    pub record: Option<YamlPosition>,
    /// Position of the value of `alert`.
    pub alert: Option<YamlPosition>,
    /// Position of the value of `expr`.
    pub expr: Option<YamlPosition>,
}

impl RuleDefinition {
    /// Returns the name of the alerts or of the recorded series.
    pub fn name(&self) -> &str {
        match self.alert.as_str() {
            "" => &self.record,
            alert => alert,
        }
    }

    /// Returns the annotations as a sorted list, the form that alerts use.
    pub fn annotations(&self) -> Annotations {
        self.annotations.clone().into_iter().collect()
    }
}

/// Options for reading a rule file. The default accepts the keys, names and PromQL features of
/// Prometheus.
#[derive(Clone, Copy, Debug, Default)]
pub struct RuleFileOptions {
    /// True if unknown keys of groups and rules are ignored instead of rejected.
    pub ignores_unknown: bool,
    /// True if the additional group keys of Mimir's ruler are accepted.
    pub is_of_ruler: bool,
    /// True if groups may name a tenant.
    pub has_tenants: bool,
    /// Validation scheme for names of labels and metrics.
    pub names: NameScheme,
    /// Feature switches of the PromQL parser.
    pub features: Features,
}

/// An error in a rule file, with the message of Prometheus and, where it has one, the position.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct RuleParseError(String);

impl RuleParseError {
    /// Creates an error whose message starts with the position `place`, in the form `line:column:
    /// `.
    fn with_position(place: YamlPosition, message: impl fmt::Display) -> Self {
        Self(format!("{place}: {message}"))
    }
}

/// Parses and validates the text of a rule file. Returns all errors of the file, or the file if
/// there are none.
pub fn parse(text: &str, options: RuleFileOptions) -> Result<RuleFile, Vec<RuleParseError>> {
    let root = firn_yaml::parse_as(text, YamlDialect::V3)
        .map_err(|e| vec![RuleParseError(e.to_string())])?;
    let Some(root) = root else {
        return Ok(RuleFile::default());
    };
    let mut reader = read::RuleFileReader::new(options);
    let file = reader.read_file(&root);
    finish(reader, file, |file| check::check(file, options))
}

/// Returns the value that `reader` has read, or all errors of the reader. If there are none, those
/// of `check`.
fn finish<T>(
    reader: read::RuleFileReader,
    value: T,
    check: impl FnOnce(&T) -> Vec<RuleParseError>,
) -> Result<T, Vec<RuleParseError>> {
    let mut errors = reader.into_errors();
    if errors.is_empty() {
        errors = check(&value);
    }
    if errors.is_empty() {
        Ok(value)
    } else {
        Err(errors)
    }
}

/// Parses and validates the text of a single rule: a mapping with the keys of a rule, or a list
/// that contains only this mapping, as copied from a rule file. Returns all its errors.
pub fn parse_rule(
    text: &str,
    options: RuleFileOptions,
) -> Result<RuleDefinition, Vec<RuleParseError>> {
    let root = firn_yaml::parse_as(text, YamlDialect::V3)
        .map_err(|e| vec![RuleParseError(e.to_string())])?;
    let root = root.ok_or_else(|| vec![RuleParseError("the rule is empty".to_owned())])?;
    let node = match &root.value {
        YamlValue::List(items) => match items.as_slice() {
            [rule] => rule,
            items => {
                let message = format!("expected one rule, got {}", items.len());
                return Err(vec![RuleParseError::with_position(root.place, message)]);
            }
        },
        _ => &root,
    };
    let mut reader = read::RuleFileReader::new(options);
    let rule = reader.read_rule(node);
    finish(reader, rule, |rule| check::check_rule(rule, options))
}

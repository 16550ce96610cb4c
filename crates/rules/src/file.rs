//! Rule files: groups of rules as they are written, checked.
//!
//! ```text
//! text -> tree (firn_model::yaml) -> RuleFile: keys and shapes -> checks of what they say
//! ```
//!
//! Keys, checks, their order and their texts are those of Prometheus 3.14 (`model/rulefmt`); what
//! its YAML library would say, Firn says in its own words, with line and column. All mistakes of a
//! file are told at once, but for those that leave no tree.

mod check;
mod duplicates;
mod read;

#[cfg(test)]
mod tests;

pub use duplicates::{Duplicate, duplicates};

use crate::alert::Annotations;
use firn_model::names::NameScheme;
use firn_model::yaml::{self, Place};
use firn_promql::Features;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// Texts by name, as a mapping of YAML has them.
pub type Texts = BTreeMap<String, String>;

/// The groups of one file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RuleFile {
    /// In the order of the file.
    pub groups: Vec<GroupSettings>,
}

/// A group as it is written.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GroupSettings {
    /// Unique in its file.
    pub name: String,
    /// From evaluation to evaluation; `None` is the default of the config.
    pub interval: Option<Duration>,
    /// How far behind its time an evaluation looks; `None` is the default of the config.
    pub query_offset: Option<Duration>,
    /// The most series or alerts that one rule may make; zero is no limit.
    pub limit: i64,
    /// The rules, in the order of the file.
    pub rules: Vec<RuleSettings>,
    /// Labels for what all rules make; those of a rule win.
    pub labels: Texts,
    /// Whether its instants are whole multiples of its interval
    /// (`align_evaluation_time_on_interval` of Mimir's ruler).
    pub is_aligned: bool,
    /// Keys of Mimir's ruler that are set and have no effect.
    pub ignored: Vec<&'static str>,
    /// Where the group begins.
    pub place: Option<Place>,
}

/// A rule as it is written: one with a `record` or one with an `alert`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RuleSettings {
    /// The name of the series that it makes.
    pub record: String,
    /// The name of the alerts that it makes.
    pub alert: String,
    /// The expression.
    pub expr: String,
    /// `for`: how long the condition must hold before the alert fires.
    pub hold: Duration,
    /// How long an alert goes on firing when the condition holds no more.
    pub keep_firing_for: Duration,
    /// Labels for what the rule makes.
    pub labels: Texts,
    /// Texts for those who read the alert.
    pub annotations: Texts,
    /// Where the values of the keys stand that errors point at.
    pub places: RulePlaces,
}

/// Where the values of a rule's keys stand; `None` is a key that is not there.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RulePlaces {
    /// The value of `record`.
    pub record: Option<Place>,
    /// The value of `alert`.
    pub alert: Option<Place>,
    /// The value of `expr`.
    pub expr: Option<Place>,
}

impl RuleSettings {
    /// The name of what it makes.
    pub fn name(&self) -> &str {
        match self.alert.as_str() {
            "" => &self.record,
            alert => alert,
        }
    }

    /// The annotations in the form that alerts have them.
    pub fn annotations(&self) -> Annotations {
        self.annotations.clone().into_iter().collect()
    }
}

/// How a file is read.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReadOptions {
    /// Whether keys that no group and no rule has are passed over.
    pub ignores_unknown: bool,
    /// Whether groups may have the keys that Mimir's ruler adds to them.
    pub is_of_ruler: bool,
    /// Which names labels and metrics may have.
    pub names: NameScheme,
    /// Switches of the language of expressions.
    pub features: Features,
}

/// A mistake in a rule file, as Prometheus words it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct FileError(String);

impl FileError {
    /// The mistake `message` at `place`.
    fn at(place: Place, message: impl fmt::Display) -> Self {
        Self(format!("{place}: {message}"))
    }
}

/// Reads and checks the text of a rule file. The errors are all that is wrong with it.
pub fn parse(text: &str, options: ReadOptions) -> Result<RuleFile, Vec<FileError>> {
    let root = yaml::parse(text).map_err(|e| vec![FileError(e.to_string())])?;
    let Some(root) = root else {
        return Ok(RuleFile::default());
    };
    let mut reader = read::Reader::new(options);
    let file = reader.file(&root);
    let mut errors = reader.into_errors();
    if errors.is_empty() {
        errors = check::check(&file, options);
    }
    match errors.is_empty() {
        true => Ok(file),
        false => Err(errors),
    }
}

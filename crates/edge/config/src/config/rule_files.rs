//! Rule settings of a config: files, intervals, and the evaluation of missed instants.

use super::{Config, ConfigError, JobFeatures, read};
use firn_http_client::named_files::{self, GlobSyntaxError};
use firn_model::units::parse_duration;
use firn_rules::editing::namespace_from_file_name;
use firn_rules::file::{RuleFileOptions, parse};
use firn_rules::group::RuleGroup;
use firn_yaml::{YamlError, YamlNode};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Default of `firn.rules.catch_up`: an hour covers a restart with complications, and is a lateness
/// that the store accepts.
const CATCH_UP: Duration = Duration::from_secs(3600);

/// Settings for evaluating instants that were missed during an outage, from the section
/// `firn.rules`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MissedEvaluationSettings {
    /// `firn.rules.catch_up`: maximum age of missed instants that are still evaluated.
    pub catch_up: Duration,
    /// `firn.rules.catch_up_delay`: time after the start before missed instants are evaluated.
    pub catch_up_delay: Duration,
}

impl Default for MissedEvaluationSettings {
    fn default() -> Self {
        Self {
            catch_up: CATCH_UP,
            catch_up_delay: Duration::ZERO,
        }
    }
}

/// Reads the settings of rules, and finds the files of `rule_files`, whose paths are relative to
/// `dir`.
pub(super) fn read_rules(
    root: &YamlNode,
    dir: &Path,
    config: &mut Config,
) -> Result<(), YamlError> {
    if let Some(global) = root.get("global") {
        config.rule_query_offset = read::duration(global, "rule_query_offset").unwrap_or_default();
    }
    if let Some(rules) = root.get("firn").and_then(|firn| firn.get("rules")) {
        // Zero is a valid value here and does not mean unset.
        let span = |key| parse_duration(read::text(rules, key)?).ok();
        config.rules.catch_up = span("catch_up").unwrap_or(CATCH_UP);
        config.rules.catch_up_delay = span("catch_up_delay").unwrap_or_default();
        config.rule_folder = read::path(rules, "folder", dir);
    }
    let list = root.get("rule_files").map_or(&[][..], YamlNode::items);
    config.names_rule_files = !list.is_empty();
    for item in list {
        let pattern = item.text().unwrap_or_default();
        if !is_pattern(pattern) {
            return Err(item.error(format!("invalid rule file path {pattern:?}")));
        }
        let whole = clean(&dir.join(pattern));
        let shown = || match pattern {
            "" => String::new(),
            _ => whole.display().to_string(),
        };
        // Upstream's server starts if a file is missing, and its checker reports it.
        match named_files::find(&whole) {
            _ if pattern.is_empty() => config
                .rule_files_wrong
                .push(RuleFileError::Missing(shown())),
            Err(GlobSyntaxError) => config.rule_files_wrong.push(RuleFileError::Pattern),
            Ok(found) => {
                if found.is_empty() && !pattern.contains('*') {
                    config
                        .rule_files_wrong
                        .push(RuleFileError::Missing(shown()));
                }
                for path in found {
                    if !config.rule_files.contains(&path) {
                        config.rule_files.push(path);
                    }
                }
            }
        }
    }
    add_folder(config);
    Ok(())
}

/// Error in an entry of `rule_files`, in the words of upstream's checker. A server starts despite a
/// missing file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleFileError {
    /// A path without a `*` names a file that does not exist. Contains the path.
    #[error("{0:?} does not point to an existing file")]
    Missing(String),
    /// The pattern is invalid and can never match.
    #[error("syntax error in pattern")]
    Pattern,
}

impl RuleFileError {
    /// Returns whether the error is independent of the existing files.
    pub fn is_lasting(&self) -> bool {
        matches!(self, RuleFileError::Pattern)
    }
}

/// Returns whether a path contains at most one `*`, and that in its last component.
pub fn is_pattern(path: &str) -> bool {
    match path.split_once('*') {
        None => true,
        Some((_, behind)) => !behind.contains('/'),
    }
}

/// Returns the sorted files of namespaces in the folder of editable rules. A missing folder has no
/// files yet.
pub(super) fn files_of_folder(folder: &Path) -> Vec<PathBuf> {
    let entries = folder.read_dir().into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    let mut paths: Vec<PathBuf> = paths.filter(|path| namespace(path).is_some()).collect();
    paths.sort();
    paths
}

/// Returns the namespace of a file of the folder of editable rules.
fn namespace(path: &Path) -> Option<String> {
    namespace_from_file_name(path.file_name()?.to_str()?)
}

/// Adds the files of the folder of editable rules to the rule files.
fn add_folder(config: &mut Config) {
    let paths = config.rule_folder.as_deref().map(files_of_folder);
    for path in paths.unwrap_or_default() {
        if !config.rule_files.contains(&path) {
            config.rule_files.push(path);
        }
    }
}

/// Returns a path without `.` and, where possible, without `..`. Upstream names rule files this
/// way, and their names determine the instants of groups.
pub(super) fn clean(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        let is_named = matches!(out.components().next_back(), Some(Component::Normal(_)));
        match part {
            Component::CurDir => {}
            Component::ParentDir if is_named => {
                out.pop();
            }
            part => out.push(part),
        }
    }
    out
}

/// Reads the rule files of `config`. The error lists all invalid files and rules.
pub(super) fn load_rules(config: &mut Config, features: JobFeatures) -> Result<(), ConfigError> {
    let options = RuleFileOptions {
        ignores_unknown: false,
        is_of_ruler: false,
        names: config.names,
        features: features.language,
    };
    let mut errors = Vec::new();
    for path in &config.rule_files {
        let file = path.display().to_string();
        let namespace = config.namespace_of(path);
        let options = RuleFileOptions {
            is_of_ruler: namespace.is_some(),
            ..options
        };
        let rules = match named_files::read_text(path) {
            Err(error) => return Err(ConfigError::Read { file, error }),
            Ok(text) => match parse(&text, options) {
                Ok(rules) => rules,
                Err(found) => {
                    errors.extend(found.iter().map(|e| format!("{file}: {e}")));
                    continue;
                }
            },
        };
        for group in &rules.groups {
            let shown = |key| format!("{file}: group {:?}: {key}", group.name);
            config.ignored.extend(group.ignored.iter().map(shown));
        }
        match RuleGroup::from_file(&file, &rules, config.evaluation_interval, features.language) {
            Ok(groups) => config.rule_groups.extend(groups.into_iter().map(|group| {
                Arc::new(RuleGroup {
                    namespace: namespace.clone(),
                    ..group
                })
            })),
            Err(e) => errors.push(e),
        }
    }
    if errors.is_empty() {
        Ok(())
    } else {
        Err(ConfigError::Rules(errors.join("\n")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clean_names_files_as_go_does() {
        for (path, want) in [
            ("rules.yml", "rules.yml"),
            ("./rules.yml", "rules.yml"),
            ("/etc/./p/../rules/*.yml", "/etc/rules/*.yml"),
            ("../a/../b.yml", "../b.yml"),
            ("../../b.yml", "../../b.yml"),
        ] {
            assert_eq!(clean(Path::new(path)), Path::new(want), "{path}");
        }
    }
}

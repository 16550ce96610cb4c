//! Rule files of a config: those of `rule_files`, and those of the folder of editable rules.

use super::{Config, ConfigError, JobFeatures};
use firn_config_schema::section::ConfigSection;
use firn_http_client::named_files::{self, GlobSyntaxError};
use firn_rules::editing::namespace_from_file_name;
use firn_rules::file::{RuleFileOptions, parse};
use firn_rules::group::RuleGroup;
use firn_yaml::YamlError;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

/// Files of rules that a config names.
#[derive(Debug, Default)]
pub(super) struct RuleSources {
    /// Folder of rule files that can be edited over HTTP.
    pub folder: Option<PathBuf>,
    /// Files that match `rule_files`, and those in the folder.
    pub files: Vec<PathBuf>,
    /// Errors in entries of `rule_files`.
    pub wrong: Vec<RuleFileError>,
}

impl RuleSources {
    /// Finds the files of `rule_files` of the config `root`, and those in the folder of editable
    /// rules.
    pub(super) fn find(root: ConfigSection<'_>) -> Result<Self, YamlError> {
        let mut found = Self {
            folder: root.section("firn").section("rules").path("folder"),
            ..Self::default()
        };
        for item in root.items("rule_files") {
            let pattern = item.text().unwrap_or_default();
            if !is_pattern(pattern) {
                return Err(item.error(format!("invalid rule file path {pattern:?}")));
            }
            found.add_pattern(pattern, root.dir());
        }
        let editable = found.folder.as_deref().map(files_of_folder);
        found.add_files(editable.unwrap_or_default());
        Ok(found)
    }

    /// Adds the files that match an entry of `rule_files`, which is relative to `dir`.
    fn add_pattern(&mut self, pattern: &str, dir: &Path) {
        let whole = clean(&dir.join(pattern));
        let missing = || {
            let shown = Some(whole.display().to_string()).filter(|_| !pattern.is_empty());
            RuleFileError::Missing(shown.unwrap_or_default())
        };
        // Upstream's server starts if a file is missing, and its checker reports it.
        match named_files::find(&whole) {
            _ if pattern.is_empty() => self.wrong.push(missing()),
            Err(GlobSyntaxError) => self.wrong.push(RuleFileError::Pattern),
            Ok(files) => {
                if files.is_empty() && !pattern.contains('*') {
                    self.wrong.push(missing());
                }
                self.add_files(files);
            }
        }
    }

    /// Adds files, each once.
    fn add_files(&mut self, files: Vec<PathBuf>) {
        for file in files {
            if !self.files.contains(&file) {
                self.files.push(file);
            }
        }
    }
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
        has_tenants: config.is_multitenant,
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

//! Discovery of targets in JSON or YAML files; the file name extension selects the format.
//!
//! Files are polled frequently, but read only if their modification time or size changed. Unlike
//! notifications, polling detects changes on every file system, including network shares and
//! mounted config maps.

use crate::discover::Discover;
use crate::group::{TargetGroup, read_json_groups, read_yaml_groups};
use crate::provider::{
    DiscoveryMechanism, DiscoveryProvider, DiscoverySettings, DiscoveryStarter, DiscoveryTask,
    ReadResult,
};
use crate::published::PublishedTargets;
use firn_config_schema::read;
use firn_config_schema::schema::{ConfigKey, ConfigValueShape as Shape, PATHS, key};
use firn_http_client::named_files;
use firn_yaml::YamlNode;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval};
use tracing::warn;

/// Time between two polls. New targets appear within seconds, and a poll costs only a few system
/// calls.
const LOOK: Duration = Duration::from_secs(3);

/// Label with the path of the file.
const FILEPATH: &str = "__meta_filepath";

/// The provider of `file_sd_configs`.
pub(super) const PROVIDER: DiscoveryProvider =
    DiscoveryProvider::new("file_sd_configs", &Shape::Section(&[KEYS]), read_entry)
        .printed_with_defaults();

const KEYS: &[ConfigKey] = &[
    key("files", PATHS).always(""),
    key("refresh_interval", Shape::Duration).or("5m"),
];

/// Prometheus's default for `refresh_interval`.
const REFRESH: Duration = Duration::from_secs(5 * 60);

/// Allowed extensions of target files.
const ENDINGS: [&str; 6] = ["json", "yml", "yaml", "JSON", "YML", "YAML"];

/// An entry of `file_sd_configs`: files with target groups in JSON or YAML.
#[derive(Clone, Debug, PartialEq)]
pub struct FileDiscoverySettings {
    /// The `files` key: paths of files, which may contain patterns.
    pub patterns: Vec<PathBuf>,
    /// The `refresh_interval` key: time between two complete reads.
    pub refresh: Duration,
}

impl DiscoveryMechanism for FileDiscoverySettings {
    fn mechanism(&self) -> &'static str {
        "file"
    }

    fn start(&self, starter: &DiscoveryStarter) -> DiscoveryTask {
        let patterns = self.patterns.clone();
        starter.watch(FileDiscovery {
            files: TargetFiles::new(patterns, starter.bytes_max),
            refresh: self.refresh,
        })
    }

    fn target_files(&self) -> &[PathBuf] {
        &self.patterns
    }
}

fn read_entry(node: &YamlNode, dir: &Path) -> ReadResult {
    let patterns = read::texts(node, "files").unwrap_or_default();
    if patterns.is_empty() {
        return Err(node.error("file service discovery config must contain at least one path name"));
    }
    if let Some(pattern) = patterns.iter().find(|p| !is_file_pattern(p)) {
        return Err(node.error(format!(
            "path name {pattern:?} is not valid for file discovery"
        )));
    }
    Ok(DiscoverySettings::provided(FileDiscoverySettings {
        patterns: patterns.iter().map(|p| dir.join(p)).collect(),
        refresh: read::duration(node, "refresh_interval").unwrap_or(REFRESH),
    }))
}

/// Returns whether a path has the extension of a target file and at most one `*`, which must be in
/// the file name.
fn is_file_pattern(pattern: &str) -> bool {
    let Some((stem, ending)) = pattern.rsplit_once('.') else {
        return false;
    };
    let behind_star = stem.split_once('*').map(|(_, behind)| behind);
    ENDINGS.contains(&ending) && behind_star.is_none_or(|behind| !behind.contains('/'))
}

/// Modification time and size of a file when it was last read.
#[derive(Clone, Debug, PartialEq, Eq)]
struct TargetFileStamp {
    modified: Option<SystemTime>,
    bytes: u64,
}

/// The files of one discovery, with the targets last read from each.
#[derive(Debug)]
pub(super) struct TargetFiles {
    patterns: Vec<PathBuf>,
    bytes_max: u64,
    known: BTreeMap<PathBuf, (TargetFileStamp, Vec<TargetGroup>)>,
    /// Total number of failed reads of files.
    failures: u64,
}

impl TargetFiles {
    pub(super) fn new(patterns: Vec<PathBuf>, bytes_max: u64) -> Self {
        Self {
            patterns,
            bytes_max,
            known: BTreeMap::new(),
            failures: 0,
        }
    }

    /// Polls all files. Reads those that changed, or all of them if `reads_all` is set. Blocks on
    /// file IO.
    pub(super) fn poll_files(&mut self, reads_all: bool) {
        let paths = self.find_paths();
        // Targets of deleted files are removed.
        self.known.retain(|path, _| paths.contains(path));
        for path in paths {
            let stamp = match std::fs::metadata(&path) {
                Ok(metadata) => TargetFileStamp {
                    modified: metadata.modified().ok(),
                    bytes: metadata.len(),
                },
                Err(e) => {
                    warn!(path = %path.display(), error = %e, "cannot read target file");
                    self.failures += 1;
                    continue;
                }
            };
            let known = self.known.get(&path);
            if !reads_all && known.is_some_and(|(old, _)| *old == stamp) {
                continue;
            }
            let groups = match self.read_target_file(&path, stamp.bytes) {
                Ok(groups) => groups,
                Err(e) => {
                    warn!(path = %path.display(), error = %e, "cannot read target file");
                    self.failures += 1;
                    known.map(|(_, groups)| groups.clone()).unwrap_or_default()
                }
            };
            self.known.insert(path, (stamp, groups));
        }
    }

    /// Returns the target groups of all files, ordered by path, as last read successfully.
    pub(super) fn groups(&self) -> Vec<TargetGroup> {
        let groups = self.known.values().flat_map(|(_, groups)| groups);
        groups.cloned().collect()
    }

    fn find_paths(&self) -> Vec<PathBuf> {
        let mut paths = Vec::new();
        for pattern in &self.patterns {
            // The config validation rejects malformed patterns; one that is malformed all the same
            // matches no files.
            paths.extend(named_files::find(pattern).unwrap_or_default());
        }
        paths
    }

    fn read_target_file(&self, path: &Path, bytes: u64) -> Result<Vec<TargetGroup>, String> {
        if bytes > self.bytes_max {
            return Err(format!("{bytes} bytes, limit {}", self.bytes_max));
        }
        let bytes = named_files::read(path).map_err(|e| e.to_string())?;
        let ending = path.extension().unwrap_or_default().to_ascii_lowercase();
        let mut groups: Vec<TargetGroup> = if ending == "json" {
            read_json_groups(&bytes)?
        } else {
            read_yaml_groups(&firn_yaml::decode(&bytes).map_err(|e| e.to_string())?)?
        };
        for group in &mut groups {
            let path = path.to_string_lossy().into_owned();
            group.labels.insert(FILEPATH.into(), path);
        }
        Ok(groups)
    }
}

/// Discovery that polls [`TargetFiles`] on a blocking thread and publishes their targets.
#[derive(Debug)]
pub(super) struct FileDiscovery {
    pub(super) files: TargetFiles,
    /// How often all files are read, even if they did not change.
    pub(super) refresh: Duration,
}

impl Discover for FileDiscovery {
    async fn run(self, to: Arc<PublishedTargets>) {
        let mut ticks = interval(LOOK.min(self.refresh));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut since_read = self.refresh;
        let mut held = Some(self.files);
        loop {
            ticks.tick().await;
            let Some(mut files) = held.take() else {
                return;
            };
            let reads_all = since_read >= self.refresh;
            since_read = if reads_all {
                Duration::ZERO
            } else {
                since_read
            };
            since_read += ticks.period();
            let failures = files.failures;
            let looked = spawn_blocking(move || {
                files.poll_files(reads_all);
                files
            });
            if let Ok(files) = looked.await {
                to.failures.add(files.failures - failures);
                to.publish(files.groups());
                held = Some(files);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn addresses(files: &TargetFiles) -> Vec<String> {
        let groups = files.groups();
        groups.iter().flat_map(|g| g.targets.clone()).collect()
    }

    #[test]
    fn files_that_change_are_read_again_and_broken_ones_keep_their_targets() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
        let mut files = TargetFiles::new(vec![dir.path().join("*.json")], 1 << 20);
        files.poll_files(true);
        assert!(files.groups().is_empty());

        write("a.json", r#"[{"targets": ["a:1"], "labels": {"x": "y"}}]"#);
        write("b.json", r#"[{"targets": ["b:1", "b:2"], "labels": null}]"#);
        write("c.yml", "- targets: [c]");
        files.poll_files(false);
        assert_eq!(addresses(&files), ["a:1", "b:1", "b:2"]);
        let first = &files.groups()[0];
        let path = dir.path().join("a.json").display().to_string();
        assert_eq!(first.labels["__meta_filepath"], path);
        assert_eq!(first.labels["x"], "y");

        write("a.json", r#"[{"targets": ["a:1"], "label"#);
        write("b.json", r#"[{"targets": ["b:3"]}]"#);
        files.poll_files(false);
        assert_eq!(addresses(&files), ["a:1", "b:3"]);

        fs::remove_file(dir.path().join("a.json")).unwrap();
        files.poll_files(false);
        assert_eq!(addresses(&files), ["b:3"]);
    }
}

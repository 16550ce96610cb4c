//! Targets from files that others write: JSON or YAML, by the ending of the name.
//!
//! Files are looked at often and read only if their time or length changed; that finds changes on
//! any file system, network shares and mounted config maps included, where notifications are lost.

use super::discover::Discover;
use super::group::{Group, ReadYaml, read_json_groups};
use super::published::Published;
use firn_http_client::named_files;
use firn_model::yaml;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval};
use tracing::warn;

/// How often files are looked at: a new target appears within seconds, and a look costs a few
/// system calls.
const LOOK: Duration = Duration::from_secs(3);

/// The label that names the file.
const FILEPATH: &str = "__meta_filepath";

/// What a file was when it was read last.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stamp {
    modified: Option<SystemTime>,
    bytes: u64,
}

/// The files of one discovery and what they said last.
#[derive(Debug)]
pub(super) struct Files {
    patterns: Vec<PathBuf>,
    read_yaml: ReadYaml,
    bytes_max: u64,
    known: BTreeMap<PathBuf, (Stamp, Vec<Group>)>,
    /// Files that could not be read, ever.
    failures: u64,
}

impl Files {
    pub(super) fn new(patterns: Vec<PathBuf>, read_yaml: ReadYaml, bytes_max: u64) -> Self {
        Self {
            patterns,
            read_yaml,
            bytes_max,
            known: BTreeMap::new(),
            failures: 0,
        }
    }

    /// Looks at all files; reads those that changed, or all of them. May block.
    pub(super) fn look(&mut self, reads_all: bool) {
        let paths = self.paths();
        // What is gone has no targets any more.
        self.known.retain(|path, _| paths.contains(path));
        for path in paths {
            let stamp = match std::fs::metadata(&path) {
                Ok(metadata) => Stamp {
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
            let groups = match self.read(&path, stamp.bytes) {
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

    /// The groups of all files, in the order of their paths.
    pub(super) fn groups(&self) -> Vec<Group> {
        let groups = self.known.values().flat_map(|(_, groups)| groups);
        groups.cloned().collect()
    }

    fn paths(&self) -> Vec<PathBuf> {
        let mut paths = Vec::new();
        for pattern in &self.patterns {
            // The config was checked: a pattern that cannot be read finds nothing.
            paths.extend(named_files::find(pattern).unwrap_or_default());
        }
        paths
    }

    fn read(&self, path: &Path, bytes: u64) -> Result<Vec<Group>, String> {
        if bytes > self.bytes_max {
            return Err(format!("{bytes} bytes, limit {}", self.bytes_max));
        }
        let bytes = named_files::read(path).map_err(|e| e.to_string())?;
        let ending = path.extension().unwrap_or_default().to_ascii_lowercase();
        let mut groups: Vec<Group> = match ending == "json" {
            true => read_json_groups(&bytes)?,
            false => (self.read_yaml)(&yaml::decode(&bytes).map_err(|e| e.to_string())?)?,
        };
        for group in &mut groups {
            let path = path.to_string_lossy().into_owned();
            group.labels.insert(FILEPATH.into(), path);
        }
        Ok(groups)
    }
}

/// Files that are followed.
#[derive(Debug)]
pub(super) struct Followed {
    pub(super) files: Files,
    /// How often all are read, changed or not.
    pub(super) refresh: Duration,
}

impl Discover for Followed {
    async fn run(self, to: Arc<Published>) {
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
                files.look(reads_all);
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

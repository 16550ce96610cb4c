//! The config file: Prometheus's YAML, with everything of ours under the key `firn`.
//!
//! Reading has three steps: text to tree ([`yaml`]), tree held to the tables of known keys
//! ([`schema`], [`keys`]), tree to [`Config`]. An unknown key or a malformed value is an error with
//! file, line and column; a known key without effect is listed in [`Config::ignored`].

mod discovery;
mod keys;
mod print;
mod schema;
mod yaml;

use crate::retention::Retention;
use firn_model::units::{parse_duration, parse_size};
use schema::{Findings, parse_bool, walk};
use std::path::Path;
use std::time::Duration;
use yaml::{Node, YamlError};

/// Prometheus's default for `global.scrape_interval` and `global.evaluation_interval`.
const INTERVAL: Duration = Duration::from_secs(60);

/// Share of the memory that Firn may use when the config says nothing. The rest is for the page
/// cache, which the log's writes and a block's reads go through, and for neighbours.
const MEMORY_SHARE: MemoryLimit = MemoryLimit::Percent(60.0);

/// When an acknowledged write survives power loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WalSync {
    /// Before it is acknowledged.
    Always,
    /// Within a second.
    Interval,
    /// When the system writes it.
    None,
}

/// How much memory Firn may use.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MemoryLimit {
    /// So many bytes.
    Bytes(u64),
    /// So many hundredths of what the cgroup or the machine has.
    Percent(f64),
}

/// What a config says, defaults included.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// `global.evaluation_interval`: the step of a subquery without one.
    pub evaluation_interval: Duration,
    /// `storage.tsdb.retention`, if there is such a section.
    pub retention: Option<Retention>,
    /// `firn.wal_sync`
    pub wal_sync: WalSync,
    /// `firn.memory_limit`
    pub memory_limit: MemoryLimit,
    /// `firn.multitenancy`
    pub is_multitenant: bool,
    /// Keys that are set and have no effect.
    pub ignored: Vec<String>,
    /// The config as YAML, secrets blotted out.
    pub text: String,
}

/// Why a config cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("{file}: {error}")]
    Read {
        /// The file.
        file: String,
        /// Why.
        error: std::io::Error,
    },
    /// The file says what a config cannot.
    #[error("{file}:{error}")]
    Content {
        /// The file.
        file: String,
        /// What and where.
        error: YamlError,
    },
}

/// Reads and checks a config file.
pub fn load(path: &Path) -> Result<Config, ConfigError> {
    let file = path.display().to_string();
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) => return Err(ConfigError::Read { file, error }),
    };
    parse(&text).map_err(|error| ConfigError::Content { file, error })
}

impl Default for Config {
    fn default() -> Self {
        Self {
            evaluation_interval: INTERVAL,
            retention: None,
            wal_sync: WalSync::Always,
            memory_limit: MEMORY_SHARE,
            is_multitenant: false,
            ignored: Vec::new(),
            text: String::new(),
        }
    }
}

/// The config of a server that was given none.
const BUILT_IN: &str = "\
scrape_configs:
- job_name: firn
  scrape_interval: 5s
  static_configs:
  - targets: [localhost:9090]
";

impl Config {
    /// What holds when no file is given: Firn scrapes itself.
    pub fn built_in() -> Config {
        Config {
            text: BUILT_IN.to_owned(),
            ..Config::default()
        }
    }

    /// Keys whose values differ in `newer` although they cannot change while the process runs.
    pub fn fixed_differences(&self, newer: &Config) -> Vec<&'static str> {
        let differences = [
            (
                "storage.tsdb.retention.time",
                self.retention != newer.retention,
            ),
            ("firn.wal_sync", self.wal_sync != newer.wal_sync),
            ("firn.memory_limit", self.memory_limit != newer.memory_limit),
            (
                "firn.multitenancy",
                self.is_multitenant != newer.is_multitenant,
            ),
        ];
        let different = differences.into_iter().filter(|(_, differs)| *differs);
        different.map(|(key, _)| key).collect()
    }
}

/// Checks the text of a config. An empty one is a config that sets nothing.
pub fn parse(text: &str) -> Result<Config, YamlError> {
    let Some(mut root) = yaml::parse(text)? else {
        return Ok(Config::default());
    };
    let mut findings = Findings::default();
    walk(&mut root, &keys::CONFIG, "", &mut findings)?;
    let mut config = Config {
        ignored: findings.ignored,
        text: print::print(&root),
        ..Config::default()
    };
    read_global(&root, &mut config)?;
    read_storage(&root, &mut config)?;
    read_firn(&root, &mut config)?;
    check_jobs(&root)?;
    Ok(config)
}

/// Our own keys as a Markdown table.
pub fn documentation() -> String {
    let mut out = String::from("| Key | Default | What it does |\n|---|---|---|\n");
    for key in keys::FIRN {
        out += &format!(
            "| `firn.{}` | `{}` | {} |\n",
            key.name, key.default, key.help
        );
    }
    out
}

fn read_global(root: &Node, config: &mut Config) -> Result<(), YamlError> {
    let Some(global) = root.get("global") else {
        return Ok(());
    };
    if let Some(interval) = duration(global.get("evaluation_interval")) {
        config.evaluation_interval = interval;
    }
    let interval = duration(global.get("scrape_interval")).unwrap_or(INTERVAL);
    match duration(global.get("scrape_timeout")) {
        Some(timeout) if timeout > interval => {
            Err(global.error("global scrape timeout greater than scrape interval"))
        }
        _ => Ok(()),
    }
}

fn read_storage(root: &Node, config: &mut Config) -> Result<(), YamlError> {
    let tsdb = root.get("storage").and_then(|s| s.get("tsdb"));
    let Some(retention) = tsdb.and_then(|t| t.get("retention")) else {
        return Ok(());
    };
    if !retention.is_null() {
        let time = duration(retention.get("time"));
        config.retention = Some(time.map_or(Retention::Unlimited, Retention::For));
    }
    let percent = retention.get("percentage").and_then(Node::text);
    match percent.and_then(|t| t.parse::<f64>().ok()) {
        Some(percent) if !(0.0..=100.0).contains(&percent) => Err(retention.error(format!(
            "storage.tsdb.retention.percentage must be in the range [0, 100], got {percent}"
        ))),
        _ => Ok(()),
    }
}

fn read_firn(root: &Node, config: &mut Config) -> Result<(), YamlError> {
    let Some(firn) = root.get("firn") else {
        return Ok(());
    };
    config.wal_sync = match firn.get("wal_sync").and_then(Node::text) {
        Some("interval") => WalSync::Interval,
        Some("none") => WalSync::None,
        _ => WalSync::Always,
    };
    let multitenancy = firn.get("multitenancy").and_then(Node::text);
    config.is_multitenant = multitenancy.and_then(parse_bool).unwrap_or(false);
    if let Some(node) = firn.get("memory_limit")
        && let Some(text) = node.text()
    {
        config.memory_limit = parse_memory_limit(text).ok_or_else(|| {
            node.error(format!(
                "firn.memory_limit: neither a size nor a percentage above 0%: {text:?}"
            ))
        })?;
    }
    Ok(())
}

fn parse_memory_limit(text: &str) -> Option<MemoryLimit> {
    match text.strip_suffix('%') {
        Some(percent) => {
            let percent = percent.parse::<f64>().ok()?;
            (percent > 0.0 && percent <= 100.0).then_some(MemoryLimit::Percent(percent))
        }
        None => {
            let bytes = parse_size(text).ok()?;
            (bytes > 0).then_some(MemoryLimit::Bytes(bytes))
        }
    }
}

/// What promtool refuses about scrape jobs although each value is well-formed.
fn check_jobs(root: &Node) -> Result<(), YamlError> {
    let global = root.get("global").and_then(|g| g.get("scrape_interval"));
    let global = duration(global).unwrap_or(INTERVAL);
    let jobs = root.get("scrape_configs").map_or(&[][..], Node::items);
    let mut names: Vec<&str> = Vec::with_capacity(jobs.len());
    for job in jobs {
        let name = job.get("job_name").and_then(Node::text).unwrap_or_default();
        if names.contains(&name) {
            return Err(job.error(format!(
                "found multiple scrape configs with job name {name:?}"
            )));
        }
        names.push(name);
        let interval = duration(job.get("scrape_interval")).unwrap_or(global);
        let timeout = duration(job.get("scrape_timeout"));
        if timeout.is_some_and(|timeout| timeout > interval) {
            return Err(job.error(format!(
                "scrape timeout greater than scrape interval for scrape config with job name \
                 {name:?}"
            )));
        }
    }
    Ok(())
}

/// The duration of a node that the walk has checked already. Zero means unset, as upstream.
fn duration(node: Option<&Node>) -> Option<Duration> {
    parse_duration(node?.text()?).ok().filter(|d| !d.is_zero())
}

#[cfg(test)]
mod tests;

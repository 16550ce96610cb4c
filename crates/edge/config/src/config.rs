//! The config file: Prometheus's YAML, with Firn's own settings under the key `firn`.
//!
//! Loading has three steps: text to tree ([`firn_yaml`]), validation of the tree against the rows
//! of its keys ([`firn_config_schema`], [`keys`]), tree to [`Config`] by the readers of sections.
//! An unknown key or a malformed value is an error with file, line and column. A known key without
//! effect is listed in [`Config::ignored`]. Relative paths are relative to the folder of the file
//! that contains them.

mod access;
mod aggregation;
mod alerting;
pub mod cluster;
mod fingerprint;
mod firn;
mod global;
mod jobs;
mod keys;
mod load;
pub mod mirror;
mod otlp;
mod overrides;
mod printed;
mod remote;
pub mod remote_read;
pub mod remote_write;
mod retention_rules;
mod rule_files;
mod rules;
mod signing;
mod storage;
pub mod tracing;

pub use access::{AccessSettings, TokenSource, check_token};
pub use alerting::AlertingSettings;
pub use fingerprint::fingerprint;
pub use firn::{MemoryLimit, MissedEvaluationSettings, NewSeriesLimits, WalSync};
pub use load::{ConfigError, load, load_alone, load_http, load_with_rules};
pub use rule_files::RuleFileError;
pub use rules::parse_relabel_rules;

pub use crate::features::JobFeatures;

use crate::retention::RetentionSettings;
use aggregation::AggregationDefaults;
use cluster::ClusterSettings;
use firn_aggregation::AggregationSpec;
use firn_config_schema::schema::{ConfigFindings, ConfigKey, ConfigValueShape, walk};
use firn_config_schema::section::ConfigSection;
use firn_model::labels::Labels;
use firn_model::names::NameScheme;
use firn_model::query_limits::QueryLimits;
use firn_model::tenant::TenantId;
use firn_model::tenant_limits::TenantOverrides;
use firn_rules::editing::namespace_from_file_name;
use firn_rules::group::RuleGroup;
use firn_scrape::ScrapeJobSettings;
use firn_storage::store::{DuplicatePolicy, RetentionRules};
use firn_wire::otlp::OtlpTranslation;
use firn_yaml::YamlError;
use global::GlobalSettings;
use remote_read::RemoteReadServerSettings;
use remote_write::RemoteWriteSettings;
use rule_files::RuleSources;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tracing::TracingSettings;

/// The settings of a config file, with all defaults applied. Created by [`load`] and its variants,
/// and never changed.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// `global.query_log_file`: path of the query log, or `None` without one.
    pub query_log_file: Option<PathBuf>,
    /// `global.evaluation_interval`: interval of rule groups and step of subqueries that set none.
    pub evaluation_interval: Duration,
    /// `storage.tsdb.retention`, which replaces the flags if the section is set.
    pub retention: Option<RetentionSettings>,
    /// `firn.retention`: retention times of matching series.
    pub retention_rules: RetentionRules,
    /// `storage.tsdb.out_of_order_time_window`: maximum lateness of accepted samples behind the
    /// newest one. Zero accepts no late samples.
    pub late_window: Duration,
    /// `firn.duplicates`: sample that wins if several have the same timestamp.
    pub duplicates: DuplicatePolicy,
    /// `storage.exemplars.max_exemplars`: number of exemplars kept in memory.
    pub exemplars_max: usize,
    /// `firn.wal_sync`: point in time at which an acknowledged write is durable.
    pub wal_sync: WalSync,
    /// `firn.memory_limit`: maximum memory of the process, applied at the start.
    pub memory_limit: MemoryLimit,
    /// Limits of new series per window, for all and per job.
    pub new_series: NewSeriesLimits,
    /// `firn.overrides`: file with the limits of single tenants.
    pub overrides_file: Option<PathBuf>,
    /// Limits of single tenants from `overrides_file`; none before it is read.
    pub overrides: Arc<TenantOverrides>,
    /// Limits of every query of a tenant without limits of its own. None is set by default:
    /// Prometheus has no such limits, so that its queries must also work in Firn. The limits of
    /// memory and samples apply in addition.
    pub query_limits: Arc<QueryLimits>,
    /// Limits of every query of the tenants in `overrides_file`.
    query_limits_by_tenant: BTreeMap<TenantId, Arc<QueryLimits>>,
    /// `firn.sealing_jitter`: whether groups of series are sealed at different times.
    pub is_sealing_jittered: bool,
    /// `firn.sealing_background`: whether pages are created in the background instead of by writes.
    pub seals_in_background: bool,
    /// `firn.multitenancy`: whether requests must select a tenant with the header `X-Scope-OrgID`.
    pub is_multitenant: bool,
    /// `firn.tenant_idle_time`: time without requests after which the store of a tenant is closed.
    pub tenant_idle_time: Duration,
    /// `global.metric_name_validation_scheme`: which names of metrics and labels are valid.
    pub names: NameScheme,
    /// `global.rule_query_offset`: time that the instants of rule queries are moved back.
    pub rule_query_offset: Duration,
    /// Settings for the evaluation of rule instants that were missed.
    pub rules: MissedEvaluationSettings,
    /// `firn.rules.folder`: folder of rule files that can be edited over HTTP.
    pub rule_folder: Option<PathBuf>,
    /// Files that match `rule_files`, and those in the folder of editable rules.
    pub rule_files: Vec<PathBuf>,
    /// Errors in entries of `rule_files`: missing files and invalid patterns.
    pub rule_files_wrong: Vec<RuleFileError>,
    /// Whether `rule_files` has any entry, even if no file matches.
    pub names_rule_files: bool,
    /// `tracing`: collector and sampling of spans, or `None` without tracing.
    pub tracing: Option<TracingSettings>,
    /// `remote_read`: servers that are queried in addition to the store.
    pub remote_read: Vec<RemoteReadServerSettings>,
    /// Rule groups of the rule files, if the files were read.
    pub rule_groups: Vec<Arc<RuleGroup>>,
    /// `firn.access`: bearer tokens, and the permissions of users in the web config.
    pub access: AccessSettings,
    /// `firn.cluster`: the bucket that holds the log, or `None` for a log in the data folder.
    pub cluster: Option<ClusterSettings>,
    /// `firn.aggregation`: groups and rules of stream aggregation, validated to be streamable.
    pub aggregation: AggregationSpec,
    /// Scrape jobs, including those of `scrape_config_files`, with unique names.
    pub jobs: Vec<Arc<ScrapeJobSettings>>,
    /// `global.external_labels`, with the values of environment variables substituted.
    pub external_labels: Labels,
    /// `alerting`: Alertmanagers, and the relabeling of alerts for all of them.
    pub alerting: AlertingSettings,
    /// `remote_write`: receivers that stored samples are forwarded to, in the order of the config.
    pub remote_write: Vec<RemoteWriteSettings>,
    /// `otlp`: translation of OpenTelemetry metrics into series.
    pub otlp: OtlpTranslation,
    /// `firn.sending_queue_bytes`: maximum bytes that wait for a receiver of `remote_write`.
    pub sending_queue_bytes: u64,
    /// Paths of keys that are set but have no effect.
    pub ignored: Vec<String>,
    /// The config as YAML with defaults, in which secrets are redacted.
    pub text: String,
}

impl Default for Config {
    fn default() -> Self {
        let root = ConfigSection::new(None, keys::KEYS, Path::new(""));
        let global = GlobalSettings::read(root.section("global"), JobFeatures::default());
        let config = global.and_then(|global| Config::read(root, &global));
        config.expect("the defaults of the keys are valid")
    }
}

/// The config of a server that was started without a config file.
const BUILT_IN: &str = "\
scrape_configs:
- job_name: firn
  scrape_interval: 5s
  static_configs:
  - targets: [localhost:9090]
";

impl Config {
    /// Reads the settings of the config `root`, except its text and the files that it names.
    fn read(root: ConfigSection<'_>, global: &GlobalSettings) -> Result<Config, YamlError> {
        let names = global.names;
        let alerting = alerting::alerting(root.section("alerting"), names)?;
        let remote_write = remote_write::remote_write(root, names)?;
        let otlp = otlp::translation(root.section("otlp"), names)?;
        let jobs = jobs::jobs(root, global)?;
        let remote_read = remote_read::remote_read(root)?;
        let tracing = tracing::tracing(root.section("tracing"))?;
        let rules = RuleSources::find(root)?;
        let storage = root.section("storage");
        let tsdb = storage.section("tsdb");
        storage::check_encoding(tsdb)?;
        let retention = storage::retention(tsdb)?;
        let firn = root.section("firn");
        let is_multitenant = firn.flag("multitenancy");
        let defaults = AggregationDefaults {
            interval: global.evaluation_interval,
            delay: global.interval,
        };
        Ok(Config {
            query_log_file: global.query_log_file.clone(),
            evaluation_interval: global.evaluation_interval,
            rule_query_offset: global.rule_query_offset,
            external_labels: global.external_labels.clone(),
            names,
            alerting,
            remote_write,
            otlp,
            jobs,
            remote_read,
            tracing,
            names_rule_files: !root.items("rule_files").is_empty(),
            rule_folder: rules.folder,
            rule_files: rules.files,
            rule_files_wrong: rules.wrong,
            rule_groups: Vec::new(),
            retention,
            retention_rules: retention_rules::retention_rules(firn)?,
            late_window: tsdb.exact_duration("out_of_order_time_window"),
            exemplars_max: storage::exemplars_max(storage),
            wal_sync: firn::wal_sync(firn),
            memory_limit: firn::memory_limit(firn)?,
            new_series: firn::new_series(firn),
            overrides_file: firn.path("overrides"),
            overrides: Arc::default(),
            query_limits: Arc::new(firn::query_limits(firn)?),
            query_limits_by_tenant: BTreeMap::new(),
            duplicates: firn::duplicates(firn),
            is_sealing_jittered: firn.flag("sealing_jitter"),
            seals_in_background: firn.flag("sealing_background"),
            rules: MissedEvaluationSettings::read(firn.section("rules")),
            sending_queue_bytes: firn.size("sending_queue_bytes"),
            is_multitenant,
            tenant_idle_time: firn.duration("tenant_idle_time"),
            access: access::access(firn.section("access"), is_multitenant)?,
            aggregation: aggregation::aggregation(firn.section("aggregation"), defaults)?,
            cluster: cluster::cluster(firn.section("cluster"))?,
            ignored: Vec::new(),
            text: String::new(),
        })
    }

    /// Returns the config of a server without a config file: Firn scrapes itself.
    pub fn built_in() -> Config {
        let features = JobFeatures::from_names(&[]);
        let parsed = parse(BUILT_IN, Path::new(""), features);
        Config {
            text: parsed.map_or_else(|_| String::new(), |parsed| parsed.config.text),
            ..Config::default()
        }
    }

    /// Returns the limits of every query of `tenant`. If it stands for several tenants, the query
    /// is held to the limits of each.
    pub fn query_limits_of(&self, tenant: &TenantId) -> Arc<QueryLimits> {
        let of_one = |tenant: &TenantId| {
            let found = self.query_limits_by_tenant.get(tenant);
            found.unwrap_or(&self.query_limits).clone()
        };
        if !tenant.is_joined() {
            return of_one(tenant);
        }
        let all = tenant.members().into_iter().map(|member| of_one(&member));
        let joined = all.reduce(|all, one| Arc::new(all.join(&one)));
        joined.unwrap_or_else(|| self.query_limits.clone())
    }

    /// Returns a section of the config that upstream rejects in agent mode, if there is one.
    pub fn find_agent_conflict(&self) -> Option<&'static str> {
        let alerting = &self.alerting;
        if !alerting.relabel.is_empty() || !alerting.alertmanagers.is_empty() {
            Some("alerting")
        } else if self.names_rule_files {
            Some("rule_files")
        } else if !self.remote_read.is_empty() {
            Some("remote_read")
        } else {
            None
        }
    }

    /// Returns the namespace of a rule file for the rule API, or `None` if the file is not in the
    /// folder of editable rules.
    pub fn namespace_of(&self, file: &Path) -> Option<String> {
        let is_in = |folder: &PathBuf| file.parent() == Some(folder);
        self.rule_folder.as_ref().filter(|folder| is_in(folder))?;
        namespace_from_file_name(file.file_name()?.to_str()?)
    }

    /// Returns the keys that differ in `newer` and take effect only at the next start. The caller
    /// logs a warning for each. Add each new key that is read only at the start.
    pub fn list_restart_keys(&self, newer: &Config) -> Vec<&'static str> {
        let differences = [
            ("firn.wal_sync", self.wal_sync != newer.wal_sync),
            ("firn.memory_limit", self.memory_limit != newer.memory_limit),
            ("firn.duplicates", self.duplicates != newer.duplicates),
            (
                "firn.sealing_jitter",
                self.is_sealing_jittered != newer.is_sealing_jittered,
            ),
            (
                "firn.sealing_background",
                self.seals_in_background != newer.seals_in_background,
            ),
            (
                "firn.multitenancy",
                self.is_multitenant != newer.is_multitenant,
            ),
            (
                "firn.tenant_idle_time",
                self.tenant_idle_time != newer.tenant_idle_time,
            ),
            ("firn.cluster", self.cluster != newer.cluster),
        ];
        let different = differences.into_iter().filter(|(_, differs)| *differs);
        different.map(|(key, _)| key).collect()
    }
}

/// A parsed config, and the values needed to read the scrape config files that it names.
struct ParsedConfig {
    config: Config,
    global: GlobalSettings,
    /// Patterns of `scrape_config_files`, relative to the folder of the config.
    job_files: Vec<PathBuf>,
}

/// Validates the text of a config in the folder `dir`. An empty text is a config without settings.
fn parse(text: &str, dir: &Path, features: JobFeatures) -> Result<ParsedConfig, YamlError> {
    let root = firn_yaml::parse(text)?;
    let mut findings = ConfigFindings::default();
    // `walk` redacts secrets in the printed copy. The readers below need the secrets.
    let mut shown = root.clone();
    if let Some(shown) = &mut shown {
        walk(shown, &keys::CONFIG, "", &mut findings)?;
    }
    let root = ConfigSection::new(root.as_ref(), keys::KEYS, dir);
    let global = GlobalSettings {
        is_multitenant: root.section("firn").flag("multitenancy"),
        ..GlobalSettings::read(root.section("global"), features)?
    };
    let around = printed::ConfigPrintContext {
        dir,
        retention_time: features.retention.0,
        retention_size: features.retention.1,
        asks_protobuf: features.start_times.are_parsed(),
        extra_metrics: features.extra_metrics,
    };
    let config = Config {
        ignored: findings.ignored,
        text: printed::printed(shown, &around),
        ..Config::read(root, &global)?
    };
    if features.is_agent {
        refuse_in_agents(root, &config)?;
    }
    if config.cluster.is_some() {
        cluster::refuse_in_clusters(root)?;
    }
    Ok(ParsedConfig {
        config,
        job_files: job_files(root)?,
        global,
    })
}

/// Rejects sections that need a store, which an agent does not have.
fn refuse_in_agents(root: ConfigSection<'_>, config: &Config) -> Result<(), YamlError> {
    if let Some(field) = config.find_agent_conflict() {
        let node = root.get(field).unwrap_or(root.node());
        return Err(node.error(format!("field {field} is not allowed in agent mode")));
    }
    let firn = root.section("firn");
    let multitenancy = firn.get("multitenancy");
    let multitenancy = multitenancy.filter(|_| firn.flag("multitenancy"));
    let refused = ["aggregation", "cluster", "retention"].map(|key| (key, firn.get(key)));
    for (key, node) in refused.into_iter().chain([("multitenancy", multitenancy)]) {
        if let Some(node) = node.filter(|node| !node.is_null()) {
            return Err(node.error(format!("field firn.{key} is not allowed in agent mode")));
        }
    }
    Ok(())
}

/// Returns the patterns of `scrape_config_files`, or an error for an invalid one.
fn job_files(root: ConfigSection<'_>) -> Result<Vec<PathBuf>, YamlError> {
    let mut patterns = Vec::new();
    for item in root.items("scrape_config_files") {
        let pattern = item.text().unwrap_or_default();
        if !rule_files::is_pattern(pattern) {
            return Err(item.error(format!("invalid scrape config file path {pattern:?}")));
        }
        patterns.push(root.dir().join(pattern));
    }
    Ok(patterns)
}

/// Returns the documentation of Firn's own keys, one Markdown section per key.
pub fn documentation() -> String {
    let keys = firn::KEYS.iter();
    let sections: Vec<_> = keys.flat_map(|key| sections_of("firn", key)).collect();
    sections.join("\n")
}

/// Returns the section of a documented key, or the sections of the keys in it.
fn sections_of(path: &str, key: &ConfigKey) -> Vec<String> {
    let path = format!("{path}.{}", key.name);
    match key.shape {
        ConfigValueShape::Section(groups) if key.help.is_empty() => {
            let keys = groups.iter().copied().flatten();
            keys.flat_map(|key| sections_of(&path, key)).collect()
        }
        _ => {
            let default = match key.default {
                "" => "none".to_owned(),
                default => format!("`{default}`"),
            };
            vec![format!(
                "### `{path}`\n\n{}\n\nDefault: {default}.\n",
                key.help
            )]
        }
    }
}

#[cfg(test)]
mod tests;

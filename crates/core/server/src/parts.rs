//! Dependencies of the server, which the binary builds and passes to it.
//!
//! The server listens before the store is open: [`AppParts`] contains everything that is available
//! at the start, and [`Backend`] the parts that exist after the replay of the log.

use crate::admission::active::ActiveQueries;
use crate::admission::limits::ServerLimits;
use firn_ingest::Pipeline;
use firn_ingest::relabel::RelabelRule;
use firn_ingest::targets::{DiscoveredAlertmanagers, ScrapePoolView};
use firn_model::budget::Budget;
use firn_model::cluster_status::ClusterStatus;
use firn_model::env::Env;
use firn_model::error::Error;
use firn_model::labels::Labels;
use firn_model::log::LogReplayProgress;
use firn_model::metrics::Collect;
use firn_model::query_limits::QueryLimits;
use firn_model::sample::TimestampMs;
use firn_model::stats::{BlockStoreStats, StoreStats};
use firn_model::store::{DeleteRequest, Select};
use firn_model::tenant::TenantId;
use firn_model::tenant_limits::TenantLimits;
use firn_model::trace::Tracer;
use firn_promql::{Features, Options};
use firn_rules::file::RuleFileOptions;
use firn_rules::view::RuleGroups;
use firn_wire::remote_write::RemoteWriteVersion;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::engine::QueryEngine;
use crate::query_log::QueryLog;

/// Dependencies and settings that are available when the process starts. The binary builds one
/// instance and passes it to [`crate::App::new`].
pub struct AppParts {
    /// Clock, randomness, disk and compute threads of the process.
    pub env: Env,
    /// Limits of connections, requests and queries.
    pub limits: ServerLimits,
    /// Memory budget of the process, from which bodies and queries reserve.
    pub memory: Budget,
    /// Creates spans for requests and rule evaluations.
    pub tracer: Arc<Tracer>,
    /// Parses and evaluates queries; [`crate::engine::PromqlEngine`] except in tests.
    pub engine: Arc<dyn QueryEngine>,
    /// Default options of query evaluation.
    pub query: QuerySettings,
    /// The query log: `global.query_log_file` of the running configuration.
    pub query_log: Arc<QueryLog>,
    /// Features of this binary for `/api/v1/features`, except those of PromQL and the API.
    pub features: Vec<ServerFeature>,
    /// `global.external_labels` of the running configuration, which are added to federated and
    /// remotely read series.
    pub external_labels: Provider<Labels>,
    /// True if requests must contain their tenant in the header `X-Scope-OrgID`.
    pub multitenancy: bool,
    /// Returns the limits of a tenant in the running configuration. A limit that is not in
    /// `firn.overrides` has the value for all tenants, if there is one.
    pub tenant_limits: TenantProvider<TenantLimits>,
    /// Settings of paths, origins and pages.
    pub web: WebSettings,
    /// Content of `/api/v1/status/buildinfo`.
    pub build: BuildInfo,
    /// Returns whether the running configuration allows editing rules through HTTP. Must be cheap.
    pub edits_rules: Provider<bool>,
    /// Content of `/api/v1/status/flags`: all flags with their values.
    pub flags: BTreeMap<String, String>,
    /// Content of `/api/v1/status/settings`: all flags with their defaults and descriptions, in the
    /// order of `--help`.
    pub settings: Vec<ServerSetting>,
    /// Settings of the running configuration for rules that are not part of it.
    pub rule_defaults: Provider<RuleDefaults>,
    /// Parses relabeling rules that are not part of the configuration.
    pub parse_relabel_rules: ParseRelabelRules,
    /// Returns the running configuration as YAML. Must be cheap.
    pub config: Provider<String>,
    /// Returns the content of `/api/v1/status/runtimeinfo`. Must be cheap.
    pub runtime: Provider<RuntimeInfo>,
    /// Value of `--web.search.max-limit`, zero for no limit; `None` without
    /// `--enable-feature=search-api`.
    pub search: Option<usize>,
    /// Progress of the log replay, for `/api/v1/status/walreplay`.
    pub replaying: Arc<LogReplayProgress>,
    /// Metrics of the process and of components that exist from the start.
    pub collectors: Vec<Arc<dyn Collect>>,
    /// Implementation of `/-/reload` and `/-/quit`; `None` without `--web.enable-lifecycle`.
    pub lifecycle: Option<Lifecycle>,
    /// State and control of this node of a cluster; `None` on a single server. Works before the
    /// store is open.
    pub cluster: Option<ClusterControl>,
    /// True if administrative requests such as snapshots are allowed (`--web.enable-admin-api`).
    pub is_admin_enabled: bool,
    /// True if the server stores nothing, so that queries are rejected (`--agent`).
    pub is_agent: bool,
    /// Implementation of `/debug/pprof`; `None` if the binary has no profiler.
    pub profiler: Option<Arc<dyn ProfileSource>>,
    /// Called periodically while a long query runs, to release memory if it is short. May block;
    /// never called on async threads.
    pub watch_memory: Provider<()>,
}

/// A feature with the name that Prometheus uses for it, and its availability in this server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerFeature {
    /// Category of the feature.
    pub category: &'static str,
    /// Name of the feature within its category.
    pub name: &'static str,
    /// True if the feature is enabled.
    pub is_on: bool,
}

/// A flag of the command line, as `/api/v1/status/settings` describes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ServerSetting {
    /// Name of the flag, without dashes.
    pub name: &'static str,
    /// Value in this process.
    pub value: String,
    /// Value without the flag; empty if there is none.
    pub default: &'static str,
    /// True if the value is not the default.
    pub changed: bool,
    /// Description of the flag, as in `--help`.
    pub help: String,
}

/// Settings for reading and evaluating a rule that a request contains.
#[derive(Clone, Copy, Debug, Default)]
pub struct RuleDefaults {
    /// Names and PromQL features that rules may use.
    pub options: RuleFileOptions,
    /// Value of `global.rule_query_offset`.
    pub query_offset: Duration,
}

/// A function that parses relabeling rules in YAML: a list, or a mapping with one of the keys of
/// the configuration. The error is a message for the user that starts with `line:column: `.
pub type ParseRelabelRules = Arc<dyn Fn(&str) -> Result<Vec<RelabelRule>, String> + Send + Sync>;

/// A function that returns the current value of a setting or statistic. May be called from any
/// thread.
pub type Provider<T> = Arc<dyn Fn() -> T + Send + Sync>;

/// A function that returns something of one tenant. May be called from any thread.
pub type TenantProvider<T> = Arc<dyn Fn(&TenantId) -> T + Send + Sync>;

/// A function that returns statistics of the head of a tenant, with this number of lines per table.
pub type ReadHeadStats = Arc<dyn Fn(&TenantId, usize) -> Result<StoreStats, Error> + Send + Sync>;

/// A function that deletes the samples of a request.
pub type DeleteSeries = Arc<dyn Fn(DeleteRequest<'_>) -> Result<(), Error> + Send + Sync>;

/// Components that exist after the replay of the log. Passed to [`crate::App::open`] once. Cloned
/// for requests that see only some of the series.
#[derive(Clone)]
pub struct Backend {
    /// Store for queries: local data and that of remote-read endpoints.
    pub store: Arc<dyn Select>,
    /// Store for federation and alert states: local data only.
    pub local: Arc<dyn Select>,
    /// Store for requests with `X-Firn-Consistency: eventual`, or `None` if all reads of this
    /// server include every acknowledged sample.
    pub eventual: Option<Arc<dyn Select>>,
    /// Store for requests with `partial=true`, whose results may lack partitions of a cluster, each
    /// with a warning. `None` if results are always complete.
    pub partial: Option<Arc<dyn Select>>,
    /// Receives writes: validates, limits and appends samples.
    pub pipeline: Arc<Pipeline>,
    /// Returns the scrape pools with their targets, sorted by name.
    pub scrape_pools: Provider<Vec<Arc<ScrapePoolView>>>,
    /// Rule groups and backfills, for the API.
    pub rules: Arc<dyn RuleGroups>,
    /// Returns the Alertmanagers that receive notifications.
    pub alertmanagers: Provider<DiscoveredAlertmanagers>,
    /// Edits rule files through HTTP.
    pub rule_editor: Arc<dyn RuleEditor>,
    /// Records running queries, which are logged at the next start after a crash.
    pub active: ActiveQueries,
    /// Returns statistics of the head of a tenant. May block.
    pub stats: ReadHeadStats,
    /// Returns the tenants whose stores are open. Must be cheap.
    pub open_tenants: Provider<Vec<TenantId>>,
    /// Returns the blocks of a tenant, and the progress of cuts and compactions. May block.
    pub blocks: TenantProvider<Result<BlockStoreStats, Error>>,
    /// Returns the reason why the store rejects writes after a disk failure. A full disk is
    /// temporary and not reported.
    pub write_fault: Provider<Option<String>>,
    /// Creates a snapshot and returns its name. The argument is true to exclude the head. May
    /// block; never called on async threads.
    pub snapshot: Arc<dyn Fn(bool) -> Result<String, Error> + Send + Sync>,
    /// Deletes samples durably. May block; never called on async threads.
    pub delete_series: DeleteSeries,
    /// Removes deleted samples of a tenant from the disk. May take minutes; never called on async
    /// threads.
    pub clean_tombstones: TenantProvider<Result<(), Error>>,
    /// Metrics of the store. Those of the pipeline are collected separately.
    pub collectors: Vec<Arc<dyn Collect>>,
    /// External URL of the server, for links in console pages.
    pub outside: ExternalUrl,
}

/// The external URL of the server, without a trailing slash. Links in console pages start with it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExternalUrl {
    /// The complete URL.
    pub url: String,
    /// Path of the URL.
    pub path: String,
}

/// Rules that are edited through HTTP, by namespace and group. All methods may block and are never
/// called on async threads. They fail with [`firn_model::error::ErrorKind::NotFound`] for missing
/// objects or if editing is disabled, and with [`firn_model::error::ErrorKind::Invalid`] for
/// invalid rules.
pub trait RuleEditor: Send + Sync {
    /// Returns all namespaces, or only the given one, with their groups as YAML.
    fn list(&self, namespace: Option<&str>) -> Result<String, Error>;

    /// Returns the group `group` of a namespace as YAML.
    fn group(&self, namespace: &str, group: &str) -> Result<String, Error>;

    /// Stores the group in `body`. Replaces the group of the same name in the namespace.
    fn put(&self, namespace: &str, body: &str) -> Result<(), Error>;

    /// Removes a group, or the whole namespace without a group name.
    fn remove(&self, namespace: &str, group: Option<&str>) -> Result<(), Error>;
}

/// Limits and defaults of queries. Plain fields are flags. A [`Provider`] returns the value of the
/// running configuration, so that a reload applies to the next query.
#[derive(Clone)]
pub struct QuerySettings {
    /// Feature switches of PromQL.
    pub features: Features,
    /// True with `--enable-feature=promql-per-step-stats`.
    pub per_step_stats: bool,
    /// Value of `--query.lookback-delta` in milliseconds.
    pub lookback_ms: i64,
    /// Value of `--query.max-samples`.
    pub samples_max: u64,
    /// Returns the limits of queries of a tenant in the running configuration.
    pub limits: TenantProvider<Arc<QueryLimits>>,
    /// Returns `global.evaluation_interval` of the running configuration in milliseconds.
    pub default_subquery_step_ms: Provider<i64>,
}

impl QuerySettings {
    /// Returns the evaluation options of a query of `tenant` without options of its own.
    pub(crate) fn options(&self, tenant: &TenantId, counts_samples: bool) -> Options {
        Options {
            features: self.features,
            lookback_ms: self.lookback_ms,
            default_subquery_step_ms: (self.default_subquery_step_ms)(),
            samples_max: self.samples_max,
            series_max: (self.limits)(tenant).series_max,
            counts_samples,
            detects_range_dependence: false,
        }
    }
}

/// Identifies a rule group in the query log and in traces of rule evaluations.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RuleGroupName {
    /// Path of the rule file.
    pub file: String,
    /// Name of the group in the file.
    pub name: String,
}

/// Settings of paths, origins and pages, from the flags `--web.*`. They do not change while the
/// process runs.
#[derive(Clone, Debug)]
pub struct WebSettings {
    /// Value of `--web.route-prefix` in the form `/a/b`, or empty.
    pub route_prefix: String,
    /// Scheme and authority of `--web.external-url`, such as `https://metrics.example.org`; `None`
    /// if the flag is not set. Pages of this origin may change state.
    pub external_origin: Option<String>,
    /// Value of `--web.cors.origin`, anchored; `None` if pages of other origins may not read
    /// responses.
    pub cors_origin: Option<regex::Regex>,
    /// Value of `--web.remote-write-receiver.accepted-protobuf-messages`.
    pub write_versions: Vec<RemoteWriteVersion>,
    /// Value of `--web.page-title`: the title of the web UI.
    pub page_title: String,
    /// Value of `--web.page-dir`: a folder with the files of the web UI, in place of the embedded
    /// ones.
    pub page_dir: Option<PathBuf>,
    /// Value of `--web.user-assets`: the folder that is served at `/user`.
    pub user_assets: Option<PathBuf>,
    /// Value of `--web.console.templates`: the folder of the templates for `/consoles`.
    pub console_templates: PathBuf,
    /// Value of `--web.console.libraries`: the folder of libraries that the templates share.
    pub console_libraries: PathBuf,
}

impl Default for WebSettings {
    fn default() -> Self {
        Self {
            route_prefix: String::new(),
            external_origin: None,
            cors_origin: None,
            write_versions: RemoteWriteVersion::ALL.to_vec(),
            page_title: "Firn".to_owned(),
            page_dir: None,
            user_assets: None,
            console_templates: "consoles".into(),
            console_libraries: "console_libraries".into(),
        }
    }
}

/// Build information with upstream's fields and Firn's version. Serialized as the response of two
/// endpoints.
#[derive(Clone, Debug, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BuildInfo {
    /// Prometheus version with which responses are compatible. Grafana reads it.
    pub version: String,
    /// Commit of the build.
    pub revision: String,
    /// Branch of the build.
    pub branch: String,
    /// User who ran the build.
    pub build_user: String,
    /// Time of the build.
    pub build_date: String,
    /// Version of the compiler, in upstream's field for the version of Go.
    pub go_version: String,
    /// Version of Firn.
    #[serde(rename = "firn_version")]
    pub firn_version: String,
}

/// Properties of the running process, collected when they are requested.
#[derive(Clone, Debug)]
pub struct RuntimeInfo {
    /// Start time of the process in milliseconds.
    pub start_time: TimestampMs,
    /// Working directory of the process.
    pub working_dir: String,
    /// Host name of the machine.
    pub hostname: String,
    /// True if the newest configuration was applied.
    pub reload_config_success: bool,
    /// Time of the last successful reload in milliseconds.
    pub last_config_time: TimestampMs,
    /// Number of damaged parts that were found in files or memory of the store since the start.
    pub corruption_count: u64,
    /// Number of threads, in upstream's field for the number of goroutines.
    pub thread_count: u64,
    /// Number of cores that the process may use.
    pub cores: u64,
    /// Value of `firn.memory_limit` in bytes.
    pub memory_limit_bytes: u64,
    /// Retention in the form `15d` or `15d or 10GB`.
    pub storage_retention: String,
}

/// Implementation of the lifecycle endpoints. Absent unless `--web.enable-lifecycle` is set.
#[derive(Clone)]
pub struct Lifecycle {
    /// Reloads the configuration file. The error is a message for the user. May block; never called
    /// on async threads.
    pub reload: Arc<dyn Fn() -> Result<(), String> + Send + Sync>,
    /// Requests the termination of the process and returns immediately. Returns false if it is
    /// already terminating.
    pub quit: Arc<dyn Fn() -> bool + Send + Sync>,
}

/// State and control of the node of a cluster that this server is.
#[derive(Clone)]
pub struct ClusterControl {
    /// Returns the state of the cluster. May block; never called on async threads.
    pub status: Provider<ClusterStatus>,
    /// Starts to hand off all partitions and to take over none (true), or ends that (false).
    /// Returns before the hand-off is complete; `status` reports its progress. A repeated call has
    /// no effect. May block; never called on async threads.
    pub drain: Arc<dyn Fn(bool) -> Result<(), Error> + Send + Sync>,
}

/// Stops a running CPU profile and returns it in pprof's format. Called on a thread that may block.
pub type FinishProfile = Box<dyn FnOnce() -> Result<Vec<u8>, Error> + Send>;

/// Profiler of the process, if the binary has one. All methods may block and are never called on
/// async threads.
pub trait ProfileSource: Send + Sync {
    /// Returns a profile of the allocated memory in pprof's format, compressed with gzip.
    fn heap(&self) -> Result<Vec<u8>, Error>;

    /// Starts a CPU profile and returns the function that stops it.
    fn start_cpu(&self) -> Result<FinishProfile, Error>;

    /// Returns a profile of the threads by name in pprof's format. `kind` is the type of the
    /// values.
    fn threads(&self, kind: &str) -> Result<Vec<u8>, Error>;

    /// Returns an empty profile with these types and units of values.
    fn nothing(&self, types: &[(&str, &str)]) -> Result<Vec<u8>, Error>;

    /// Returns the arguments of the command line.
    fn command_line(&self) -> Vec<String>;
}

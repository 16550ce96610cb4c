//! What the server is made of: the binary builds these parts and hands them over.
//!
//! The listener is up before the store is: [`AppParts`] is what is known at the start, [`Backend`]
//! what arrives when the replay is done.

use crate::admission::active::ActiveQueries;
use crate::admission::limits::Limits;
use firn_ingest::Pipeline;
use firn_ingest::alertmanagers::Alertmanagers;
use firn_ingest::scrape::Scraping;
use firn_model::budget::Budget;
use firn_model::env::Env;
use firn_model::error::Error;
use firn_model::labels::Labels;
use firn_model::log::Replaying;
use firn_model::metrics::Collect;
use firn_model::sample::TimestampMs;
use firn_model::stats::{BlocksStats, StoreStats};
use firn_model::store::Select;
use firn_model::trace::Tracer;
use firn_promql::{Features, Options};
use firn_rules::view::Groups;
use firn_wire::remote_write::Version;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use crate::engine::Engine;
use crate::query_log::QueryLog;

/// What is known when the process starts.
pub struct AppParts {
    /// Time and compute threads.
    pub env: Env,
    /// Every bound.
    pub limits: Limits,
    /// The process's memory; bodies and queries reserve from it.
    pub memory: Budget,
    /// Begins spans of what is asked.
    pub tracer: Arc<Tracer>,
    /// Evaluates and parses queries; [`crate::engine::Promql`] outside tests.
    pub engine: Arc<dyn Engine>,
    /// How queries are evaluated.
    pub query: QuerySettings,
    /// `global.query_log_file` of the running configuration.
    pub query_log: Arc<QueryLog>,
    /// What this binary can, for `/api/v1/features`, beside the language and the API.
    pub features: Vec<Feature>,
    /// `global.external_labels` of the running configuration: for what other servers read.
    pub external_labels: Provider<Labels>,
    /// Whether requests name their tenant by `X-Scope-OrgID`.
    pub multitenancy: bool,
    /// Where the server is reachable, and from which pages.
    pub web: WebSettings,
    /// `/api/v1/status/buildinfo`.
    pub build: BuildInfo,
    /// Whether rules may be edited over HTTP by the running configuration; cheap to call.
    pub edits_rules: Provider<bool>,
    /// `/api/v1/status/flags`: every flag with its value.
    pub flags: BTreeMap<String, String>,
    /// The running configuration as YAML; cheap to call.
    pub config: Provider<String>,
    /// `/api/v1/status/runtimeinfo`; cheap to call.
    pub runtime: Provider<RuntimeInfo>,
    /// `--web.search.max-limit`, zero for none; `None` without `--enable-feature=search-api`.
    pub search: Option<usize>,
    /// `/api/v1/status/walreplay`: how far the store's log is replayed.
    pub replaying: Arc<Replaying>,
    /// Metrics of the process and of parts that exist from the start.
    pub collectors: Vec<Arc<dyn Collect>>,
    /// `/-/reload` and `/-/quit`; `None` without `--web.enable-lifecycle`.
    pub lifecycle: Option<Lifecycle>,
    /// Whether requests may make snapshots: `--web.enable-admin-api`.
    pub is_admin_enabled: bool,
    /// Whether nothing is stored, so that there is nothing to ask: `--agent`.
    pub is_agent: bool,
    /// `/debug/pprof`; `None` if the binary has no profiler.
    pub profiler: Option<Arc<dyn Profiler>>,
    /// Called now and then while a query runs that takes long: memory may have become short. May
    /// block, and is called off the async threads.
    pub watch_memory: Provider<()>,
}

/// Something that a server can or cannot, by Prometheus's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Feature {
    /// Its group.
    pub category: &'static str,
    /// Its name there.
    pub name: &'static str,
    /// Whether it can be used.
    pub is_on: bool,
}

/// A function that says how something is now.
pub type Provider<T> = Arc<dyn Fn() -> T + Send + Sync>;

/// What answers once the replay is done.
#[derive(Clone)]
pub struct Backend {
    /// Answers look-ups, from what is stored and what other servers have.
    pub store: Arc<dyn Select>,
    /// Answers them from what is stored here alone: what is federated, and states of alerts.
    pub local: Arc<dyn Select>,
    /// Takes in writes.
    pub pipeline: Arc<Pipeline>,
    /// What is scraped, and how it is.
    pub scraping: Arc<Scraping>,
    /// The groups of rules.
    pub rules: Arc<dyn Groups>,
    /// Where alerts are sent.
    pub alertmanagers: Provider<Alertmanagers>,
    /// Edits rules.
    pub rule_editor: Arc<dyn RuleEditor>,
    /// What runs, for the log of the next start.
    pub active: ActiveQueries,
    /// The head's figures, with so many lines a table.
    pub stats: Arc<dyn Fn(usize) -> StoreStats + Send + Sync>,
    /// The blocks of the store, and the work on them.
    pub blocks: Provider<BlocksStats>,
    /// Why the store cannot take writes, if its disk fails; a full disk ends by itself and is none.
    pub write_fault: Provider<Option<String>>,
    /// Makes a snapshot, without the head if so asked, and says its name. May block, and is called
    /// off the async threads.
    pub snapshot: Arc<dyn Fn(bool) -> Result<String, Error> + Send + Sync>,
    /// Metrics of the store; those of the pipeline are collected anyway.
    pub collectors: Vec<Arc<dyn Collect>>,
    /// Where users reach the server.
    pub outside: OutsideUrl,
}

/// The URL under which users reach the server, without a slash at its end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OutsideUrl {
    /// All of it.
    pub url: String,
    /// Its path.
    pub path: String,
}

/// Rules that are edited over HTTP, by namespace and group. All calls may block and are made off
/// the async threads. Fails with [`firn_model::error::ErrorKind::NotFound`] for what is not there,
/// editing itself included, and with [`firn_model::error::ErrorKind::Invalid`] for bad rules.
pub trait RuleEditor: Send + Sync {
    /// Namespaces with their groups as YAML: all of them, or one.
    fn list(&self, namespace: Option<&str>) -> Result<String, Error>;

    /// A group as YAML.
    fn group(&self, namespace: &str, group: &str) -> Result<String, Error>;

    /// Stores the group in `body`, which replaces the one of its name.
    fn put(&self, namespace: &str, body: &str) -> Result<(), Error>;

    /// Removes a group, or the whole namespace.
    fn remove(&self, namespace: &str, group: Option<&str>) -> Result<(), Error>;
}

/// How queries are evaluated.
#[derive(Clone)]
pub struct QuerySettings {
    /// Language switches.
    pub features: Features,
    /// `--enable-feature=promql-per-step-stats`.
    pub per_step_stats: bool,
    /// `--query.lookback-delta`.
    pub lookback_ms: i64,
    /// `--query.max-samples`.
    pub samples_max: u64,
    /// `firn.query_series_limit` of the running configuration.
    pub series_max: Provider<usize>,
    /// `global.evaluation_interval` of the running configuration.
    pub default_subquery_step_ms: Provider<i64>,
}

impl QuerySettings {
    /// How a query is evaluated that says nothing else.
    pub(crate) fn options(&self, counts_samples: bool) -> Options {
        Options {
            features: self.features,
            lookback_ms: self.lookback_ms,
            default_subquery_step_ms: (self.default_subquery_step_ms)(),
            samples_max: self.samples_max,
            series_max: (self.series_max)(),
            counts_samples,
        }
    }
}

/// Which group a rule is of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RuleGroupName {
    /// The path of its file.
    pub file: String,
    /// Its name there.
    pub name: String,
}

/// Where the server is reachable, and which pages may call it.
#[derive(Clone, Debug)]
pub struct WebSettings {
    /// `--web.route-prefix` as `/a/b`, or empty.
    pub route_prefix: String,
    /// Scheme and authority of `--web.external-url`, like `https://metrics.example.org`, if it was
    /// set: a page from there may change state.
    pub external_origin: Option<String>,
    /// `--web.cors.origin`, anchored; `None` means that no other site's page may read answers.
    pub cors_origin: Option<regex::Regex>,
    /// `--web.remote-write-receiver.accepted-protobuf-messages`
    pub write_versions: Vec<Version>,
    /// `--web.page-title`: what the page is called.
    pub page_title: String,
    /// `--web.user-assets`: the folder of what is below `/user`.
    pub user_assets: Option<PathBuf>,
    /// `--web.console.templates`: the folder of what is below `/consoles`.
    pub console_templates: PathBuf,
    /// `--web.console.libraries`: the folder of what these share.
    pub console_libraries: PathBuf,
}

impl Default for WebSettings {
    fn default() -> Self {
        Self {
            route_prefix: String::new(),
            external_origin: None,
            cors_origin: None,
            write_versions: Version::ALL.to_vec(),
            page_title: "Firn".to_owned(),
            user_assets: None,
            console_templates: "consoles".into(),
            console_libraries: "console_libraries".into(),
        }
    }
}

/// What was built, in upstream's fields and one of Firn's.
#[derive(Clone, Debug, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BuildInfo {
    /// The Prometheus version that answers are compatible with; Grafana reads it.
    pub version: String,
    /// The commit.
    pub revision: String,
    /// The branch.
    pub branch: String,
    /// The builder.
    pub build_user: String,
    /// When it was built.
    pub build_date: String,
    /// The compiler, where upstream names Go's.
    pub go_version: String,
    /// Firn's own version.
    #[serde(rename = "firn_version")]
    pub firn_version: String,
}

/// How the process runs.
#[derive(Clone, Debug)]
pub struct RuntimeInfo {
    /// When it started.
    pub start_time: TimestampMs,
    /// Its working folder.
    pub working_dir: String,
    /// The machine's name.
    pub hostname: String,
    /// Whether the newest configuration was taken over.
    pub reload_config_success: bool,
    /// When a configuration was last taken over.
    pub last_config_time: TimestampMs,
    /// Stretches of damage found in the store's files or memory since the start.
    pub corruption_count: u64,
    /// Threads of the process, where upstream counts goroutines.
    pub thread_count: u64,
    /// Cores that it may use.
    pub cores: u64,
    /// `firn.memory_limit` in bytes.
    pub memory_limit_bytes: u64,
    /// Like `15d` or `15d or 10GB`.
    pub storage_retention: String,
}

/// What the lifecycle endpoints do.
#[derive(Clone)]
pub struct Lifecycle {
    /// Takes over the configuration file anew; may block, and is called off the async threads. The
    /// error is the text for the user.
    pub reload: Arc<dyn Fn() -> Result<(), String> + Send + Sync>,
    /// Asks the process to end; returns at once. `false` if it is ending already.
    pub quit: Arc<dyn Fn() -> bool + Send + Sync>,
}

/// Ends a CPU profile that was started, and gives it in pprof's format.
pub type FinishProfile = Box<dyn FnOnce() -> Result<Vec<u8>, Error> + Send>;

/// Profiles of the process. All calls may block and are made off the async threads.
pub trait Profiler: Send + Sync {
    /// What is allocated now, in pprof's format (compressed with gzip).
    fn heap(&self) -> Result<Vec<u8>, Error>;

    /// Starts a CPU profile.
    fn start_cpu(&self) -> Result<FinishProfile, Error>;

    /// The threads that there are, by their names, in pprof's format; `kind` is the type of the
    /// values.
    fn threads(&self, kind: &str) -> Result<Vec<u8>, Error>;

    /// A profile in which nothing happened, of values of these types and units.
    fn nothing(&self, types: &[(&str, &str)]) -> Result<Vec<u8>, Error>;

    /// The words of the command line.
    fn command_line(&self) -> Vec<String>;
}

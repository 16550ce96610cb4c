//! User settings: the command line of `firn serve` ([`flags`]) with its [`features`], the config
//! file ([`config`]), and the web config with TLS and users of the listener ([`web_config`]).
//!
//! A config file is read into the settings of the crates that it configures. An error contains the
//! line of the file:
//!
//! ```
//! use firn_config::config::{JobFeatures, load};
//!
//! let path = std::env::temp_dir().join(format!("firn-config-{}.yml", std::process::id()));
//! std::fs::write(&path, "scrape_configs:\n- job_name: node\n  scrape_interval: 15s\n")?;
//! let config = load(&path, JobFeatures::default());
//! std::fs::write(&path, "scrape_configs:\n- job_nam: node\n")?;
//! let wrong = load(&path, JobFeatures::default());
//! std::fs::remove_file(&path)?;
//! let jobs = config.expect("a valid file").jobs;
//! assert_eq!(jobs[0].name, "node");
//! assert!(wrong.expect_err("an unknown key").to_string().contains(":2:"));
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! Invariant: only the table in [`flags`] fills [`Settings`], so that each default has a single
//! definition. The crate reads files, but starts nothing: the binary passes the settings on.

pub mod config;
pub mod features;
pub mod flags;
pub mod listen_address;
pub mod retention;
pub mod web_config;

use features::Feature;
use firn_wire::remote_write::RemoteWriteVersion;
use std::path::PathBuf;
use std::time::Duration;

/// Format of log lines on standard error, set by `--log.format`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// Lines of `key=value` pairs, the default.
    #[default]
    Logfmt,
    /// One JSON object per line.
    Json,
}

/// Settings of a server, filled from its command line only. Values are validated, and defaults
/// applied.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// `--config.file`: path of the config file. `None` selects the built-in config.
    pub config_file: Option<PathBuf>,
    /// `--config.auto-reload`: whether the config is reloaded automatically when its files change.
    pub reloads_by_itself: bool,
    /// `--config.auto-reload-interval`: interval of checks whether files of the config changed.
    pub reload_interval: Duration,
    /// `--storage.tsdb.path`: path of the data folder. In agent mode it is replaced by the agent's
    /// folder.
    pub data_dir: PathBuf,
    /// `--agent`: whether the server is an agent, which forwards samples and stores none.
    pub is_agent: bool,
    /// `--storage.agent.path`: path of the data folder that is used in agent mode.
    pub agent_dir: PathBuf,
    /// `--web.listen-address`: listening addresses in the form `host:port`, at least one.
    pub listen: Vec<String>,
    /// `--cluster.node`: name of this node of a cluster, if it replaces that of the config.
    pub cluster_node: Option<String>,
    /// `--cluster.listen-address`: listening address for other nodes, if it replaces that of the
    /// config.
    pub cluster_listen: Option<String>,
    /// `--cluster.advertise-address`: address at which other nodes reach this node, if it replaces
    /// that of the config.
    pub cluster_advertise: Option<String>,
    /// `--web.config.file`: path of the web config, with TLS and authentication of the listener.
    pub web_config_file: Option<PathBuf>,
    /// `--web.read-timeout`: maximum time to read a request, and maximum idle time of a connection.
    /// Zero is no limit.
    pub read_timeout: Duration,
    /// `--web.max-connections`: maximum number of client connections that are open at a time.
    pub connections_max: usize,
    /// `--web.external-url`: URL under which users reach this server, or empty if unknown.
    pub external_url: String,
    /// `--web.route-prefix`: path prefix of all routes. Empty means the path of the external URL.
    pub route_prefix: String,
    /// `--web.enable-lifecycle`: whether HTTP requests may reload the config and stop the process.
    pub enable_lifecycle: bool,
    /// `--web.enable-admin-api`: whether HTTP requests may create snapshots of the data folder.
    pub enable_admin_api: bool,
    /// `--web.cors.origin`: origins from which browsers may send requests, as an anchored regex.
    /// Empty means none.
    pub cors_origin: String,
    /// `--web.page-dir`: folder with the files of the web interface, in place of the embedded ones.
    pub page_dir: Option<PathBuf>,
    /// `--web.user-assets`: folder of static files to serve under `/user`, if any.
    pub user_assets: Option<PathBuf>,
    /// `--web.console.templates`: folder of the console templates that render pages.
    pub console_templates: PathBuf,
    /// `--web.console.libraries`: folder of the template libraries that console templates share.
    pub console_libraries: PathBuf,
    /// `--web.page-title`: title of the web page in the browser.
    pub page_title: String,
    /// `--web.remote-write-receiver.accepted-protobuf-messages`: remote-write versions that the
    /// server accepts from senders.
    pub write_versions: Vec<RemoteWriteVersion>,
    /// `--storage.tsdb.retention.time`: retention time, if the flag is set. A section of the config
    /// takes precedence.
    pub retention_time: Option<Duration>,
    /// `--storage.tsdb.retention.size`: maximum size of the data in bytes, if the flag is set. A
    /// section of the config takes precedence.
    pub retention_size: Option<u64>,
    /// `--query.lookback-delta`: lookback of instant selectors, the maximum age of a sample that
    /// they return.
    pub lookback: Duration,
    /// `--query.timeout`: maximum duration of a query until it is aborted.
    pub query_timeout: Duration,
    /// `--query.max-concurrency`: maximum number of queries that are evaluated concurrently.
    pub query_concurrency: usize,
    /// `--query.max-samples`: maximum number of samples that one query may hold in memory.
    pub query_samples_max: u64,
    /// `--web.max-notifications-subscribers`: maximum number of clients that follow notifications
    /// of the server.
    pub notice_listeners_max: usize,
    /// `--storage.remote.read-sample-limit`: maximum number of samples per remote-read response; 0
    /// is no limit.
    pub remote_read_samples_max: u64,
    /// `--storage.remote.read-concurrent-limit`: maximum number of remote reads that run
    /// concurrently; 0 is no limit.
    pub remote_reads_max: usize,
    /// `--storage.remote.read-max-bytes-in-frame`: maximum number of bytes in a frame of a chunked
    /// remote read.
    pub remote_read_frame_bytes: usize,
    /// `--web.search.max-limit`: maximum number of results of a search; 0 is no limit.
    pub search_limit_max: usize,
    /// `--rules.alert.for-outage-tolerance`: maximum duration of an outage after which the state of
    /// alerts is restored.
    pub alert_outage_tolerance: Duration,
    /// `--rules.alert.for-grace-period`: minimum time from a start until a restored alert fires.
    pub alert_grace_period: Duration,
    /// `--rules.alert.resend-delay`: minimum time before a firing alert is sent again.
    pub alert_resend_delay: Duration,
    /// `--rules.max-concurrent-evals`: maximum number of rules that are evaluated concurrently
    /// within their groups.
    pub rule_evaluations_max: usize,
    /// `--alertmanager.notification-queue-capacity`: maximum number of alerts that wait for each
    /// Alertmanager; the oldest are dropped.
    pub notifications_queued_max: usize,
    /// `--alertmanager.notification-batch-size`: maximum number of alerts in a request to an
    /// Alertmanager.
    pub notifications_batch_max: usize,
    /// `--alertmanager.drain-notification-queue-on-shutdown`: whether queued alerts are sent before
    /// the process ends, or dropped.
    pub drains_notifications: bool,
    /// `--enable-feature`: names of the enabled features, split at commas; some may be unknown.
    pub features: Vec<String>,
    /// `--log.level`: lowest level that is logged, or `None` for the default.
    pub log_level: Option<tracing::Level>,
    /// `--log.format`: format of log lines on standard error.
    pub log_format: LogFormat,
}

impl Settings {
    /// Returns the retention time and the retention size in bytes. The time has a default if
    /// neither is set.
    pub fn retention_limits(&self) -> (Option<Duration>, Option<u64>) {
        let time = self.retention_time.filter(|time| !time.is_zero());
        let size = self.retention_size.filter(|size| *size > 0);
        (time.or(size.is_none().then_some(retention::DEFAULT)), size)
    }

    /// Returns the interval of checks for a changed configuration, if they are enabled.
    pub fn reload_every(&self) -> Option<Duration> {
        self.has_auto_reload().then_some(self.reload_interval)
    }

    /// Returns whether changed files are reloaded, enabled by the flag or by the older feature
    /// name.
    pub fn has_auto_reload(&self) -> bool {
        self.reloads_by_itself || self.has_feature(Feature::AutoReload)
    }
}

//! User settings: the command line of `firn serve` ([`flags`]), the config file ([`config`]), and
//! the page that documents both.
//!
//! Only the table in [`flags`] fills [`Settings`], so that each default has a single definition.

pub mod config;
pub mod documentation;
pub mod flags;
pub mod listen_address;
pub mod retention;
pub mod web_config;

use firn_wire::remote_write::Version;
use std::path::PathBuf;
use std::time::Duration;

/// Format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// `key=value` pairs.
    #[default]
    Logfmt,
    /// One JSON object per line.
    Json,
}

/// Feature name that enabled `--config.auto-reload` before that flag existed.
pub const AUTO_RELOAD: &str = "auto-reload-config";

/// Settings of a server from its command line.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Path of the config file. `None` selects the built-in config.
    pub config_file: Option<PathBuf>,
    /// Whether the config is reloaded when its files change.
    pub reloads_by_itself: bool,
    /// Interval of checks for changed files.
    pub reload_interval: Duration,
    /// Path of the data folder. In agent mode it is the agent's folder.
    pub data_dir: PathBuf,
    /// Whether samples are only forwarded and not stored.
    pub is_agent: bool,
    /// Path of the data folder in agent mode.
    pub agent_dir: PathBuf,
    /// Listening addresses `host:port`, at least one.
    pub listen: Vec<String>,
    /// Path of the web config, with TLS and authentication of the listener.
    pub web_config_file: Option<PathBuf>,
    /// Maximum time to read a request, and maximum idle time of a connection.
    pub read_timeout: Duration,
    /// Maximum number of open connections.
    pub connections_max: usize,
    /// URL under which users reach this server, or empty if unknown.
    pub external_url: String,
    /// Path prefix of all routes. Empty means the path of the external URL.
    pub route_prefix: String,
    /// Whether HTTP requests may reload and stop the process.
    pub enable_lifecycle: bool,
    /// Whether HTTP requests may create snapshots.
    pub enable_admin_api: bool,
    /// Origins from which browsers may send requests, as an anchored regex. Empty means none.
    pub cors_origin: String,
    /// Folder of static files to serve, if any.
    pub user_assets: Option<PathBuf>,
    /// Folder of console templates.
    pub console_templates: PathBuf,
    /// Folder of libraries that console templates share.
    pub console_libraries: PathBuf,
    /// Title of the web page.
    pub page_title: String,
    /// Accepted remote-write versions.
    pub write_versions: Vec<Version>,
    /// Retention time from the command line, if it is set.
    pub retention_time: Option<Duration>,
    /// Maximum size of the data in bytes from the command line, if it is set.
    pub retention_size: Option<u64>,
    /// Lookback of instant selectors.
    pub lookback: Duration,
    /// Maximum duration of a query.
    pub query_timeout: Duration,
    /// Maximum number of concurrent queries.
    pub query_concurrency: usize,
    /// Maximum number of samples in memory per query.
    pub query_samples_max: u64,
    /// Maximum number of clients that follow notifications.
    pub notice_listeners_max: usize,
    /// Maximum number of samples per remote-read response; 0 is no limit.
    pub remote_read_samples_max: u64,
    /// Maximum number of concurrent remote reads.
    pub remote_reads_max: usize,
    /// Maximum bytes per frame of a chunked remote read.
    pub remote_read_frame_bytes: usize,
    /// Maximum number of search results; 0 is no limit.
    pub search_limit_max: usize,
    /// Maximum duration of an outage after which the state of alerts is restored.
    pub alert_outage_tolerance: Duration,
    /// Minimum time from a start until a restored alert fires.
    pub alert_grace_period: Duration,
    /// Minimum time before an alert is sent again.
    pub alert_resend_delay: Duration,
    /// Maximum number of rules evaluated concurrently within groups.
    pub rule_evaluations_max: usize,
    /// Maximum number of alerts that wait for each Alertmanager.
    pub notifications_queued_max: usize,
    /// Maximum number of alerts per request to an Alertmanager.
    pub notifications_batch_max: usize,
    /// Whether queued alerts are sent before the process ends.
    pub drains_notifications: bool,
    /// Names of enabled features, split at commas.
    pub features: Vec<String>,
    /// Lowest level that is logged, or `None` for the default.
    pub log_level: Option<tracing::Level>,
    /// Format of log lines.
    pub log_format: LogFormat,
}

impl Settings {
    /// Returns the interval of checks for a changed configuration, if they are enabled.
    pub fn reload_every(&self) -> Option<Duration> {
        self.reloads_by_itself().then_some(self.reload_interval)
    }

    /// Returns whether changed files are reloaded, enabled by the flag or by the older feature
    /// name.
    pub fn reloads_by_itself(&self) -> bool {
        self.reloads_by_itself || self.features.iter().any(|name| name == AUTO_RELOAD)
    }
}

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

/// Format of log lines on standard error, set by `--log.format`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// Lines of `key=value` pairs, the default.
    #[default]
    Logfmt,
    /// One JSON object per line.
    Json,
}

/// Name of the feature that enabled `--config.auto-reload` before that flag existed.
pub const AUTO_RELOAD: &str = "auto-reload-config";

/// Settings of a server, filled from its command line only. Values are validated, and defaults
/// applied.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Path of the config file. `None` selects the built-in config.
    pub config_file: Option<PathBuf>,
    /// Whether the config is reloaded automatically when its files change.
    pub reloads_by_itself: bool,
    /// Interval of checks whether files of the config changed.
    pub reload_interval: Duration,
    /// Path of the data folder. In agent mode it is the agent's folder.
    pub data_dir: PathBuf,
    /// Whether the server is an agent, which forwards samples and stores none.
    pub is_agent: bool,
    /// Path of the data folder that is used in agent mode.
    pub agent_dir: PathBuf,
    /// Listening addresses in the form `host:port`, at least one.
    pub listen: Vec<String>,
    /// Path of the web config, with TLS and authentication of the listener.
    pub web_config_file: Option<PathBuf>,
    /// Maximum time to read a request, and maximum idle time of a connection.
    pub read_timeout: Duration,
    /// Maximum number of client connections that are open at a time.
    pub connections_max: usize,
    /// URL under which users reach this server, or empty if unknown.
    pub external_url: String,
    /// Path prefix of all routes. Empty means the path of the external URL.
    pub route_prefix: String,
    /// Whether HTTP requests may reload the config and stop the process.
    pub enable_lifecycle: bool,
    /// Whether HTTP requests may create snapshots of the data folder.
    pub enable_admin_api: bool,
    /// Origins from which browsers may send requests, as an anchored regex. Empty means none.
    pub cors_origin: String,
    /// Folder of static files to serve under `/user`, if any.
    pub user_assets: Option<PathBuf>,
    /// Folder of the console templates that render pages.
    pub console_templates: PathBuf,
    /// Folder of the template libraries that console templates share.
    pub console_libraries: PathBuf,
    /// Title of the web page in the browser.
    pub page_title: String,
    /// Remote-write versions that the server accepts from senders.
    pub write_versions: Vec<Version>,
    /// Retention time from the command line, if it is set.
    pub retention_time: Option<Duration>,
    /// Maximum size of the data in bytes from the command line, if it is set.
    pub retention_size: Option<u64>,
    /// Lookback of instant selectors: maximum age of a sample that they return.
    pub lookback: Duration,
    /// Maximum duration of a query until it is aborted.
    pub query_timeout: Duration,
    /// Maximum number of queries that are evaluated concurrently.
    pub query_concurrency: usize,
    /// Maximum number of samples that one query may hold in memory.
    pub query_samples_max: u64,
    /// Maximum number of clients that follow notifications of the server.
    pub notice_listeners_max: usize,
    /// Maximum number of samples per remote-read response; 0 is no limit.
    pub remote_read_samples_max: u64,
    /// Maximum number of remote reads that run concurrently.
    pub remote_reads_max: usize,
    /// Maximum number of bytes in a frame of a chunked remote read.
    pub remote_read_frame_bytes: usize,
    /// Maximum number of results of a search; 0 is no limit.
    pub search_limit_max: usize,
    /// Maximum duration of an outage after which the state of alerts is restored.
    pub alert_outage_tolerance: Duration,
    /// Minimum time from a start until a restored alert fires.
    pub alert_grace_period: Duration,
    /// Minimum time before a firing alert is sent again.
    pub alert_resend_delay: Duration,
    /// Maximum number of rules that are evaluated concurrently within their groups.
    pub rule_evaluations_max: usize,
    /// Maximum number of alerts that wait for each Alertmanager; the oldest are dropped.
    pub notifications_queued_max: usize,
    /// Maximum number of alerts in a request to an Alertmanager.
    pub notifications_batch_max: usize,
    /// Whether queued alerts are sent before the process ends, or dropped.
    pub drains_notifications: bool,
    /// Names of the enabled features, already split at commas.
    pub features: Vec<String>,
    /// Lowest level that is logged, or `None` for the default.
    pub log_level: Option<tracing::Level>,
    /// Format of log lines on standard error.
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

//! What users set: the command line of `firn serve` ([`flags`]), the config file ([`config`]), and
//! the page that documents both.
//!
//! [`Settings`] is filled by the table in [`flags`] and by nothing else, so that a default stands
//! in one place.

pub mod config;
pub mod documentation;
pub mod flags;
pub mod listen_address;
pub mod retention;
pub mod web_config;

use firn_wire::remote_write::Version;
use std::path::PathBuf;
use std::time::Duration;

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// `key=value` pairs.
    #[default]
    Logfmt,
    /// One JSON object a line.
    Json,
}

/// The feature by which `--config.auto-reload` was switched on before it was a flag.
pub const AUTO_RELOAD: &str = "auto-reload-config";

/// The settings of a server.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The config; none means the built-in one.
    pub config_file: Option<PathBuf>,
    /// Whether the config is read again when it changes.
    pub reloads_by_itself: bool,
    /// How often that is looked at.
    pub reload_interval: Duration,
    /// The data folder, that of the agent if it is one.
    pub data_dir: PathBuf,
    /// Whether what comes in is sent on and not stored.
    pub is_agent: bool,
    /// The data folder of an agent.
    pub agent_dir: PathBuf,
    /// `host:port`, one or more.
    pub listen: Vec<String>,
    /// TLS and authentication of the listener.
    pub web_config_file: Option<PathBuf>,
    /// Longest time to read a request, and longest idle time of a connection.
    pub read_timeout: Duration,
    /// Most connections open at one time.
    pub connections_max: usize,
    /// Where users reach this server; empty if unknown.
    pub external_url: String,
    /// Path before every route; empty means the path of the external URL.
    pub route_prefix: String,
    /// Whether HTTP may reload and stop the process.
    pub enable_lifecycle: bool,
    /// Whether HTTP may make snapshots.
    pub enable_admin_api: bool,
    /// Origins that browsers may call from, as an anchored regex; empty means none.
    pub cors_origin: String,
    /// The folder of files that are served as they are.
    pub user_assets: Option<PathBuf>,
    /// The folder of templates that make pages.
    pub console_templates: PathBuf,
    /// The folder of what these share.
    pub console_libraries: PathBuf,
    /// What the page is called.
    pub page_title: String,
    /// Messages of remote write that are taken.
    pub write_versions: Vec<Version>,
    /// How long samples are kept, if the command line says so.
    pub retention_time: Option<Duration>,
    /// Bytes that the data may take, if the command line says so.
    pub retention_size: Option<u64>,
    /// How far back an instant selector looks.
    pub lookback: Duration,
    /// Longest time of a query.
    pub query_timeout: Duration,
    /// Queries that run at one time.
    pub query_concurrency: usize,
    /// Samples that one query may hold at one time.
    pub query_samples_max: u64,
    /// Clients that may follow notifications.
    pub notice_listeners_max: usize,
    /// Samples of a remote read in one message; 0 is any number.
    pub remote_read_samples_max: u64,
    /// Remote reads at one time.
    pub remote_reads_max: usize,
    /// Bytes of a frame of a remote read in chunks.
    pub remote_read_frame_bytes: usize,
    /// Findings of a search at most; 0 is any number.
    pub search_limit_max: usize,
    /// Longest outage after which alerts go on.
    pub alert_outage_tolerance: Duration,
    /// Shortest time from a start to a restored alert.
    pub alert_grace_period: Duration,
    /// Shortest time before an alert is sent again.
    pub alert_resend_delay: Duration,
    /// Rules that are evaluated beside others of their group.
    pub rule_evaluations_max: usize,
    /// Alerts that may wait for each Alertmanager.
    pub notifications_queued_max: usize,
    /// Alerts of one request to an Alertmanager.
    pub notifications_batch_max: usize,
    /// Whether alerts that wait are sent before the process ends.
    pub drains_notifications: bool,
    /// Names of features switched on, split at commas.
    pub features: Vec<String>,
    /// The least severe level that is logged.
    pub log_level: Option<tracing::Level>,
    /// How log lines look.
    pub log_format: LogFormat,
}

impl Settings {
    /// How often it is looked whether the configuration changed, if that is wanted.
    pub fn reload_every(&self) -> Option<Duration> {
        self.reloads_by_itself().then_some(self.reload_interval)
    }

    /// Whether files that change are read again, by the flag or by the feature that was before it.
    pub fn reloads_by_itself(&self) -> bool {
        self.reloads_by_itself || self.features.iter().any(|name| name == AUTO_RELOAD)
    }
}

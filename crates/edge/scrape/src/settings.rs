//! The scrape settings of the configuration: jobs with all defaults filled in.
//!
//! Names follow the keys of Prometheus's `scrape_configs`; a limit of zero means no limit.

use firn_discovery::{DiscoverySettings, TargetGroup};
use firn_http_client::HttpSettings;
use firn_ingest::relabel::RelabelRule;
use firn_model::names::NameScheme;
use firn_wire::exposition::{ScrapeNameEscaping, ScrapeProtocol};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Interval at which Firn scrapes itself: short enough that the web page shows a curve within a
/// minute, at a cost of a few hundred samples.
pub const SELF_SCRAPE_INTERVAL: Duration = Duration::from_secs(5);

/// Limits of one scrape or one job, where zero means no limit. Most of them fail the whole scrape
/// if they are exceeded.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ScrapeLimits {
    /// Largest size of an uncompressed body in bytes.
    pub body_bytes: u64,
    /// Largest number of samples of a scrape after relabelling.
    pub samples: u64,
    /// Largest number of targets of the job.
    pub targets: u64,
    /// Largest number of labels of a sample.
    pub labels: u64,
    /// Largest length of a label name in bytes.
    pub label_name_bytes: u64,
    /// Largest length of a label value in bytes.
    pub label_value_bytes: u64,
    /// Largest number of buckets of a native histogram.
    pub histogram_buckets: u64,
    /// Smallest ratio between the bounds of two neighbouring buckets.
    pub histogram_bucket_factor: f64,
}

/// The treatment of start timestamps, selected by feature flags; they are ignored by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StartTimeSettings {
    /// Store them with the samples (`st-storage`).
    pub are_stored: bool,
    /// Store a zero sample at each of them (`created-timestamp-zero-ingestion`).
    pub make_zeros: bool,
    /// Synthesize them for counters without one, from the first sample on (`st-synthesis`).
    pub are_made: bool,
}

impl StartTimeSettings {
    /// Returns whether start timestamps are parsed. If not, the `_created` lines of OpenMetrics are
    /// ordinary samples.
    pub fn are_parsed(self) -> bool {
        self.are_stored || self.make_zeros
    }
}

/// The settings of a scrape job, compared as a whole to detect changes at a reload.
#[derive(Debug, PartialEq)]
pub struct ScrapeJobSettings {
    /// Whether the label `__tenant_id__` of a target is the tenant of its samples.
    pub has_tenants: bool,
    /// Name of the job: `job_name`.
    pub name: String,
    /// Time between two scrapes: `scrape_interval`.
    pub interval: Duration,
    /// `scrape_timeout`, at most the interval.
    pub timeout: Duration,
    /// `scheme`: `http` or `https`.
    pub scheme: String,
    /// Path of the metrics: `metrics_path`.
    pub metrics_path: String,
    /// URL parameters: `params`.
    pub params: BTreeMap<String, Vec<String>>,
    /// `honor_labels`: true if scraped labels take precedence over target labels.
    pub honor_labels: bool,
    /// `honor_timestamps`: true if timestamps in the body are used.
    pub honor_timestamps: bool,
    /// `track_timestamps_staleness`: true if series with explicit timestamps get staleness markers
    /// too.
    pub track_timestamps_staleness: bool,
    /// `scrape_protocols` in order of preference; not empty.
    pub protocols: Vec<ScrapeProtocol>,
    /// `fallback_scrape_protocol`: format of responses without a usable content type.
    pub fallback_protocol: Option<ScrapeProtocol>,
    /// `scrape_native_histograms`: true if native histograms are scraped.
    pub native_histograms: bool,
    /// `always_scrape_classic_histograms`: true if classic histograms are kept beside native ones.
    pub always_classic: bool,
    /// `convert_classic_histograms_to_nhcb`: true if classic histograms are converted to native
    /// ones.
    pub convert_classic: bool,
    /// Treatment of start timestamps.
    pub start_times: StartTimeSettings,
    /// True if the type and unit of a family become labels.
    pub type_and_unit_labels: bool,
    /// `extra_scrape_metrics`: true if three additional series describe each scrape.
    pub extra_metrics: bool,
    /// `enable_compression`: true if gzip is requested.
    pub enable_compression: bool,
    /// `metric_name_validation_scheme`: the allowed characters in names.
    pub names: NameScheme,
    /// `metric_name_escaping_scheme`: the escaping to request from targets.
    pub escaping: ScrapeNameEscaping,
    /// Limits of the job and its scrapes.
    pub limits: ScrapeLimits,
    /// `keep_dropped_targets`: largest number of dropped targets to remember.
    pub keep_dropped_targets: u64,
    /// Path of the failure log: `scrape_failure_log_file`.
    pub failure_log_file: Option<PathBuf>,
    /// TLS, proxy and authentication settings of the HTTP client.
    pub http: HttpSettings,
    /// Service discoveries that find the targets.
    pub discoveries: Vec<DiscoverySettings>,
    /// `relabel_configs`, applied to targets. The view of the job shares them.
    pub relabel: Arc<Vec<RelabelRule>>,
    /// `metric_relabel_configs`, applied to samples.
    pub metric_relabel: Vec<RelabelRule>,
}

impl ScrapeJobSettings {
    /// Returns the job of a server without a configuration: it scrapes itself at `address`.
    pub fn self_scrape(address: &str) -> Self {
        let group = TargetGroup {
            targets: vec![address.to_owned()],
            ..TargetGroup::default()
        };
        Self {
            interval: SELF_SCRAPE_INTERVAL,
            timeout: SELF_SCRAPE_INTERVAL,
            discoveries: vec![DiscoverySettings::Static(vec![group])],
            ..Self::new("firn")
        }
    }

    /// Returns a job without targets and with Prometheus's defaults.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            interval: Duration::from_secs(60),
            timeout: Duration::from_secs(10),
            scheme: "http".into(),
            metrics_path: "/metrics".into(),
            params: BTreeMap::new(),
            honor_labels: false,
            honor_timestamps: true,
            track_timestamps_staleness: false,
            protocols: ScrapeProtocol::DEFAULT.to_vec(),
            fallback_protocol: None,
            native_histograms: false,
            has_tenants: false,
            always_classic: false,
            convert_classic: false,
            start_times: StartTimeSettings::default(),
            type_and_unit_labels: false,
            extra_metrics: false,
            enable_compression: true,
            names: NameScheme::default(),
            escaping: ScrapeNameEscaping::default(),
            limits: ScrapeLimits::default(),
            keep_dropped_targets: 0,
            failure_log_file: None,
            http: HttpSettings::default(),
            discoveries: Vec::new(),
            relabel: Arc::default(),
            metric_relabel: Vec::new(),
        }
    }
}

//! What a config says about scraping: jobs with all defaults filled in.
//!
//! Names follow the keys of Prometheus's `scrape_configs`; a limit of zero is no limit.

use crate::relabel::Rule;
use firn_discovery::{DiscoverySettings, Group};
use firn_http_client::HttpSettings;
use firn_model::names::NameScheme;
use firn_wire::exposition::{Escaping, ScrapeProtocol};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// How often Firn scrapes itself: often enough that a first look at the page shows a curve within a
/// minute, at a cost of some hundred samples.
pub const SELF_SCRAPE_INTERVAL: Duration = Duration::from_secs(5);

/// Bounds on what one scrape, or one job, may bring.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ScrapeLimits {
    /// Bytes of an unpacked body.
    pub body_bytes: u64,
    /// Samples of a scrape that relabelling keeps.
    pub samples: u64,
    /// Targets of the job.
    pub targets: u64,
    /// Labels of a sample.
    pub labels: u64,
    /// Bytes of a label's name.
    pub label_name_bytes: u64,
    /// Bytes of a label's value.
    pub label_value_bytes: u64,
    /// Buckets of a native histogram.
    pub histogram_buckets: u64,
    /// The least ratio of one bucket's bound to the bound before.
    pub histogram_bucket_factor: f64,
}

/// What becomes of the times since when samples count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StartTimes {
    /// They are stored with the samples (`st-storage`).
    pub are_stored: bool,
    /// A sample of zero is stored at each (`created-timestamp-zero-ingestion`).
    pub make_zeros: bool,
    /// Counters that tell none count from their first sample on (`st-synthesis`).
    pub are_made: bool,
}

impl StartTimes {
    /// Whether they are read at all; without that the lines of OpenMetrics that tell them are
    /// samples like others.
    pub fn are_read(self) -> bool {
        self.are_stored || self.make_zeros
    }
}

/// A scrape job.
#[derive(Debug, PartialEq)]
pub struct JobSettings {
    /// `job_name`
    pub name: String,
    /// `scrape_interval`
    pub interval: Duration,
    /// `scrape_timeout`, at most the interval.
    pub timeout: Duration,
    /// `scheme`: `http` or `https`.
    pub scheme: String,
    /// `metrics_path`
    pub metrics_path: String,
    /// `params`
    pub params: BTreeMap<String, Vec<String>>,
    /// `honor_labels`: whether scraped labels win over the target's.
    pub honor_labels: bool,
    /// `honor_timestamps`: whether times in the exposition count.
    pub honor_timestamps: bool,
    /// `track_timestamps_staleness`: whether series with times of their own go stale too.
    pub track_timestamps_staleness: bool,
    /// `scrape_protocols`, the most wanted first; not empty.
    pub protocols: Vec<ScrapeProtocol>,
    /// `fallback_scrape_protocol`: how to read an answer that does not say what it is.
    pub fallback_protocol: Option<ScrapeProtocol>,
    /// `scrape_native_histograms`
    pub native_histograms: bool,
    /// `always_scrape_classic_histograms`
    pub always_classic: bool,
    /// `convert_classic_histograms_to_nhcb`
    pub convert_classic: bool,
    /// What becomes of start times.
    pub start_times: StartTimes,
    /// Whether a family's type and unit become labels.
    pub type_and_unit_labels: bool,
    /// `extra_scrape_metrics`: whether three more series report on each scrape.
    pub extra_metrics: bool,
    /// `enable_compression`: whether to ask for gzip.
    pub enable_compression: bool,
    /// `metric_name_validation_scheme`
    pub names: NameScheme,
    /// `metric_name_escaping_scheme`
    pub escaping: Escaping,
    /// The limits.
    pub limits: ScrapeLimits,
    /// `keep_dropped_targets`: how many of them are remembered.
    pub keep_dropped_targets: u64,
    /// `scrape_failure_log_file`
    pub failure_log_file: Option<PathBuf>,
    /// How targets are reached.
    pub http: HttpSettings,
    /// Where targets come from.
    pub discoveries: Vec<DiscoverySettings>,
    /// `relabel_configs`
    pub relabel: Vec<Rule>,
    /// `metric_relabel_configs`
    pub metric_relabel: Vec<Rule>,
}

impl JobSettings {
    /// The job of a server without a config: itself, which listens at `address`.
    pub fn itself(address: &str) -> Self {
        let group = Group {
            targets: vec![address.to_owned()],
            ..Group::default()
        };
        Self {
            interval: SELF_SCRAPE_INTERVAL,
            timeout: SELF_SCRAPE_INTERVAL,
            discoveries: vec![DiscoverySettings::Static(vec![group])],
            ..Self::new("firn")
        }
    }

    /// A job without targets and with Prometheus's defaults.
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
            always_classic: false,
            convert_classic: false,
            start_times: StartTimes::default(),
            type_and_unit_labels: false,
            extra_metrics: false,
            enable_compression: true,
            names: NameScheme::default(),
            escaping: Escaping::default(),
            limits: ScrapeLimits::default(),
            keep_dropped_targets: 0,
            failure_log_file: None,
            http: HttpSettings::default(),
            discoveries: Vec::new(),
            relabel: Vec::new(),
            metric_relabel: Vec::new(),
        }
    }
}

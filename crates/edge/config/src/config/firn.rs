//! The section `firn`: keys that only Firn has.
//!
//! Access and aggregation have readers of their own.
//!
//! A new key needs a row in [`KEYS`], a field of [`Config`](crate::config::Config) and a line in
//! its `read`. If a reload does not apply it, it also needs a line in `list_restart_keys`; if an
//! agent or a cluster cannot use it, one in `refuse_in_agents` or `refuse_in_clusters`. Values for
//! the store pass through `store_settings.rs` of the binary, values for queries through
//! `QuerySettings` of the server.

use super::{access, aggregation, cluster, retention_rules};
use ConfigValueShape::{Bool, Choice, Duration, List, Path, Section, Size, Text, WholeCount};
use firn_config_schema::schema::{ConfigKey, ConfigValueShape, key};
use firn_config_schema::section::ConfigSection;
use firn_model::query_limits::{BlockedQuery, QueryLimits};
use firn_model::units::parse_size;
use firn_storage::store::DuplicatePolicy;
use firn_yaml::YamlError;
use std::time;

/// Keys of the section, with their texts for `docs/settings.md`.
pub const KEYS: &[ConfigKey] = &[
    key("wal_sync", Choice(&["always", "interval", "none"])).explained(
        "always",
        "When Firn flushes acknowledged writes to disk: `always` (before the response), \
         `interval` (within 200 ms under load, within a second when idle) or `none` (left to the \
         operating system). This determines which writes survive a power failure. A crash of the \
         process loses no acknowledged write in any mode.",
    ),
    key("memory_limit", Text).explained(
        "60%",
        "Memory for ingestion, queries and caches together: a size (`4GB`) or a percentage \
         (`60%`) of the memory available to the process: the limit of the cgroup, the memory of \
         the machine or `ulimit -v`. All other memory limits are fractions of this value.",
    ),
    key("overrides", Path).explained(
        "",
        "File with limits and settings of single tenants, in the form of Mimir's runtime \
         configuration: `overrides: {TENANT: {KEY: VALUE}}`. They take precedence over the keys \
         of this section. Without multitenancy, the tenant `anonymous` owns all data. A config \
         reload reads the file again. See [limits.md](limits.md).",
    ),
    key("new_series_limit", WholeCount).explained(
        "0",
        "Maximum number of new series per window of data time (`new_series_window`). Firn rejects \
         further new series and continues to accept samples of existing series. \
         `/api/v1/status/discards` lists rejected series. 0 means no limit. A config reload \
         applies changes.",
    ),
    key("new_series_per_job_limit", WholeCount).explained(
        "0",
        "Maximum number of new series per window of data time for each value of the label `job`. \
         `/api/v1/status/tsdb` lists the jobs over the limit. 0 means no limit. A config reload \
         applies changes.",
    ),
    key("new_series_window", Duration).explained(
        "1h",
        "Length of the windows of `new_series_limit` and `new_series_per_job_limit`. Windows are \
         aligned to multiples of their length and follow the newest sample, so that a replay has \
         the same result as the original writes. A config reload applies changes.",
    ),
    key("query_series_limit", WholeCount).explained(
        "0",
        "Maximum number of series that the selectors of one query may match in total, for every \
         tenant. A query that matches more series fails before it reads samples; the error \
         contains their number. A series counts for a selector if it has a sample in one of the \
         two-hour windows that the selector's time range overlaps. 0 means no limit. A config \
         reload applies changes.",
    ),
    key("query_samples_limit", WholeCount).explained(
        "0",
        "Maximum number of samples that one query may read from the store in total, for every \
         tenant. `--query.max-samples` limits the samples that a query holds at one time. A query \
         that reads more samples fails; the error contains their number. 0 means no limit. A \
         config reload applies changes.",
    ),
    key("query_range_limit", Duration).explained(
        "0s",
        "Maximum time between the start and the end of a range query or a remote read, for every \
         tenant, as Mimir's `max_total_query_length`. Firn rejects a longer query before it \
         starts. 0 means no limit. A config reload applies changes.",
    ),
    key("results_cache_size", Size).explained(
        "256MiB",
        "Maximum memory of the results cache, which lets a refreshed dashboard evaluate only the \
         new steps of its range queries, at most 1/64 of `memory_limit`. See \
         [results-cache.md](operations/results-cache.md). 0 disables the cache. A config reload \
         applies changes.",
    ),
    key("blocked_queries", List(&Section(&[BLOCKED]))).explained(
        "[]",
        "Queries that Firn rejects before they start, as Mimir's `blocked_queries`: a list of \
         `{pattern, regex, reason}`. A `pattern` is the text of an instant or range query, as sent \
         or as formatted by PromQL's printer, or the matchers of a remote read in the form \
         `{__name__=\"up\",job=\"node\"}`. With `regex: true` it is a regular expression that must \
         match the whole text. The error contains the `reason`. Rules are not blocked. A config \
         reload applies changes.",
    ),
    key("retention", List(&Section(&[retention_rules::KEYS]))).explained(
        "[]",
        "Retention times of matching series: a list of `{match, keep}`, such as \
         `{match: '{env=\"dev\"}', keep: 3d}`. The first rule whose selector matches a series \
         determines how long Firn keeps its samples, counted from the newest sample of the store; \
         the retention time of the server applies to all other series. A retention size applies \
         in addition. See \
         [retention](operations/retention-and-snapshots.md#retention-of-matching-series). A config \
         reload applies changes.",
    ),
    key("duplicates", Choice(&["keep-first", "keep-last", "max"])).explained(
        "keep-first",
        "Which sample queries return if a series has two samples with the same timestamp: \
         `keep-first` (the sample ingested first; samples ingested in order take precedence over \
         late samples), `keep-last` (the sample ingested last) or `max` (the greatest value; \
         histograms take precedence over floats, and the last histogram over earlier ones). With \
         `keep-last` and `max`, and if late samples are accepted, Firn also accepts a different \
         value at the timestamp of the newest sample of a series.",
    ),
    key("sealing_jitter", Bool).explained(
        "true",
        "Seal groups of series into pages at different times. For benchmarks only (`make bench \
         BENCH=--ablation`): if false, all groups are sealed at once.",
    ),
    key("sealing_background", Bool).explained(
        "true",
        "Create and write pages in the background. For benchmarks only: if false, a write that \
         fills a window waits until its pages are written.",
    ),
    key("rules", Section(&[RULES])),
    key("sending_queue_bytes", Size).explained(
        "4GiB",
        "Maximum size of the queue on disk for one receiver of `remote_write`. When the queue is \
         full, Firn drops the oldest requests of that receiver and counts them. A config reload \
         applies changes.",
    ),
    key("multitenancy", Bool).explained(
        "false",
        "Require the `X-Scope-OrgID` header, which selects the tenant of a request, and keep the \
         data of each tenant in a store of its own. See [tenants.md](operations/tenants.md). A \
         change requires a restart.",
    ),
    key("tenant_idle_time", Duration).explained(
        "5m",
        "Time without requests after which the store of a tenant is closed, with \
         `multitenancy`. The next request opens it again. A change requires a restart.",
    ),
    key("access", Section(&[access::KEYS])),
    key("cluster", Section(&[cluster::KEYS])),
    key("aggregation", Section(&[aggregation::KEYS])).explained(
        "{groups: []}",
        "Rules that aggregate samples during ingestion, so that their source series need not be \
         stored. See [aggregation.md](aggregation.md). A config reload applies changes.",
    ),
];

/// Keys of a blocked query.
pub(super) const BLOCKED: &[ConfigKey] = &[
    key("pattern", Text).required(),
    key("regex", Bool),
    key("reason", Text),
];

const RULES: &[ConfigKey] = &[
    key("catch_up", Duration).explained(
        "1h",
        "Maximum age of missed rule evaluations (after a restart or under overload) that Firn \
         catches up on. It evaluates the rules for their original timestamps, with the data \
         stored at the time of the catch-up. Older missed evaluations are skipped. `0s` disables \
         catching up, as in Prometheus. A config reload applies changes.",
    ),
    key("catch_up_delay", Duration).explained(
        "0s",
        "Delay between the start of the server and catching up, in which senders can deliver \
         their backlog. A config reload applies changes.",
    ),
    key("folder", Path).explained(
        "",
        "Folder with rule files that clients edit over `/config/v1/rules`, as in Mimir's ruler, \
         for `mimirtool rules` and Grafana. Firn evaluates these rules like those of \
         `rule_files`. Without a folder, rules cannot be edited over HTTP. A config reload \
         applies changes.",
    ),
];

/// Time at which an acknowledged write is durable, so that it survives a power failure. A crash of
/// the process alone loses none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WalSync {
    /// The write is synced before it is acknowledged.
    Always,
    /// The write is synced within a second after the acknowledgement.
    Interval,
    /// The operating system decides when the write reaches the disk.
    None,
}

/// Maximum memory that Firn uses, as an absolute number of bytes or relative to the machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MemoryLimit {
    /// An absolute number of bytes.
    Bytes(u64),
    /// A percentage of the memory limit of the cgroup or the machine.
    Percent(f64),
}

/// Limits of new series per window of data time. `None` is no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewSeriesLimits {
    /// `firn.new_series_limit`: limit of all jobs and senders together.
    pub all: Option<usize>,
    /// `firn.new_series_per_job_limit`: limit of each job separately, by the label `job`.
    pub of_job: Option<usize>,
    /// `firn.new_series_window`: length of a window of data time.
    pub window: time::Duration,
}

/// Settings for evaluating instants that were missed during an outage, from the section
/// `firn.rules`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MissedEvaluationSettings {
    /// `firn.rules.catch_up`: maximum age of missed instants that are still evaluated.
    pub catch_up: time::Duration,
    /// `firn.rules.catch_up_delay`: time after the start before missed instants are evaluated.
    pub catch_up_delay: time::Duration,
}

impl MissedEvaluationSettings {
    /// Reads the section `firn.rules`.
    pub fn read(section: ConfigSection<'_>) -> Self {
        Self {
            catch_up: section.exact_duration("catch_up"),
            catch_up_delay: section.exact_duration("catch_up_delay"),
        }
    }
}

/// Returns the `wal_sync` of the section.
pub fn wal_sync(section: ConfigSection<'_>) -> WalSync {
    match section.text("wal_sync") {
        "interval" => WalSync::Interval,
        "none" => WalSync::None,
        _ => WalSync::Always,
    }
}

/// Returns the `duplicates` of the section.
pub fn duplicates(section: ConfigSection<'_>) -> DuplicatePolicy {
    match section.text("duplicates") {
        "keep-last" => DuplicatePolicy::KeepLast,
        "max" => DuplicatePolicy::Max,
        _ => DuplicatePolicy::KeepFirst,
    }
}

/// Returns the count `key`. `None` means no limit: the key is missing, null or zero.
pub fn limit(section: ConfigSection<'_>, key: &str) -> Option<usize> {
    let limit = section.count_if_set(key);
    limit.map(|limit| usize::try_from(limit).unwrap_or(usize::MAX))
}

/// Returns the `results_cache_size` of the section in bytes. Unlike in other sizes, zero does not
/// select the default.
fn results_cache_bytes(section: ConfigSection<'_>) -> usize {
    let text = section.text("results_cache_size");
    let bytes = parse_size(text.strip_prefix('+').unwrap_or(text));
    usize::try_from(bytes.unwrap_or(0)).unwrap_or(usize::MAX)
}

/// Returns the limits of every query.
pub fn query_limits(section: ConfigSection<'_>) -> Result<QueryLimits, YamlError> {
    let range_max = section.exact_duration("query_range_limit");
    Ok(QueryLimits {
        series_max: limit(section, "query_series_limit").unwrap_or(usize::MAX),
        samples_max: section
            .count_if_set("query_samples_limit")
            .unwrap_or(u64::MAX),
        range_max: Some(range_max).filter(|max| !max.is_zero()),
        results_cache_bytes: results_cache_bytes(section),
        blocked: blocked_queries(section, "firn.blocked_queries")?,
        ..QueryLimits::default()
    })
}

/// Returns the `blocked_queries` of a section; `path` is their name in errors.
pub(super) fn blocked_queries(
    section: ConfigSection<'_>,
    path: &str,
) -> Result<Vec<BlockedQuery>, YamlError> {
    let blocked = section.sections("blocked_queries").map(|blocked| {
        let (pattern, reason) = (blocked.text("pattern"), blocked.text("reason"));
        BlockedQuery::new(pattern, blocked.flag("regex"), reason)
            .map_err(|e| blocked.error(format!("{path}: {}", e.message)))
    });
    blocked.collect()
}

/// Returns the limits of new series. The window is at least a second long.
pub fn new_series(section: ConfigSection<'_>) -> NewSeriesLimits {
    NewSeriesLimits {
        all: limit(section, "new_series_limit"),
        of_job: limit(section, "new_series_per_job_limit"),
        window: section
            .duration("new_series_window")
            .max(time::Duration::from_secs(1)),
    }
}

/// Returns the `memory_limit` of the section.
pub fn memory_limit(section: ConfigSection<'_>) -> Result<MemoryLimit, YamlError> {
    let text = section.text("memory_limit");
    parse_memory_limit(text).ok_or_else(|| {
        let node = section.get("memory_limit").unwrap_or(section.node());
        node.error(format!(
            "firn.memory_limit: expected a size or a percentage above 0%: {text:?}"
        ))
    })
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

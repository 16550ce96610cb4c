//! Builds the parts of the server from flags and config.

use super::locks::WebConfigHolder;
use super::running::ActiveConfig;
use super::store_settings::effective_limits;
use super::{damages, features};
use crate::process::host;
use crate::process::metrics::{self, ProcessCollector};
use crate::process::pressure::MemoryPressure;
use crate::process::profile::ProcessProfiler;
use crate::version;
use firn_cluster::partitions::store::PartitionedStore;
use firn_config::Settings;
use firn_config::config::parse_relabel_rules;
use firn_config::features::{Feature, FeatureEffect, JobFeatures};
use firn_config::flags::{CommandLine, FLAGS, Flag, FlagEffect};
use firn_config::retention::RetentionSettings;
use firn_model::budget::Budget;
use firn_model::env::Env;
use firn_model::log::LogReplayProgress;
use firn_model::sample::TimestampMs;
use firn_model::shares::BudgetShares;
use firn_model::tenant_limits::TenantLimits;
use firn_model::trace::Tracer;
use firn_rules::file::RuleFileOptions;
use firn_server::ServerLimits;
use firn_server::engine::PromqlEngine;
use firn_server::parts::{
    AppParts, ClusterControl, Lifecycle, ParseRelabelRules, Provider, QuerySettings, RuleDefaults,
    RuntimeInfo, ServerSetting, TenantProvider, WebSettings,
};
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use tokio::sync::mpsc;
use tracing::{info, warn};

/// Error in the settings that prevents the server from being built. It is printed at the start and
/// ends the process.
#[derive(Debug, thiserror::Error)]
pub enum AppPartsError {
    /// The value of `--web.cors.origin` is not a valid regular expression.
    #[error("flag --web.cors.origin: {0}")]
    Cors(#[from] regex::Error),
    /// The value of `--web.external-url` is neither an http or https URL nor a path.
    #[error("flag --web.external-url: neither an http or https URL nor a path: {0:?}")]
    ExternalUrl(String),
    /// Both features for OTLP delta temporality are enabled, but they exclude each other.
    #[error(
        "cannot enable {} and {} features at the same time",
        Feature::DeltaToCumulative.row().name,
        Feature::NativeDeltaIngestion.row().name
    )]
    Deltas,
}

/// Inputs of [`build`], created by the start of the server before its sockets are open.
pub struct AppPartsInputs<'a> {
    /// The parsed command line, with the settings of the server.
    pub line: &'a CommandLine,
    /// Maximum number of client connections, from the limit of descriptors.
    pub connections_max: usize,
    /// Holder of the active configuration. Parts read it at each use, so that reloads take effect.
    pub running: Arc<ActiveConfig>,
    /// TLS configuration and access rules, which the server enforces.
    pub locks: Arc<WebConfigHolder>,
    /// Clock, disk, randomness and threads of the process, passed on to the parts.
    pub env: Env,
    /// Tracer that starts the spans of requests and queries.
    pub tracer: Arc<Tracer>,
    /// Budget of all memory of the process, which the parts divide into shares.
    pub memory: Budget,
    /// Memory pressure of the process, checked while queries run.
    pub pressure: Arc<MemoryPressure>,
    /// Provider of the retention in the active configuration, for the status API.
    pub retention: Provider<RetentionSettings>,
    /// Progress of the WAL replay, which the API reports during the start.
    pub replaying: Arc<LogReplayProgress>,
    /// The store, empty during the start and set once it is open.
    pub store: Arc<OnceLock<Arc<PartitionedStore>>>,
    /// Channel for HTTP requests to `/-/quit`, which end the process.
    pub quit: mpsc::Sender<()>,
    /// State and control of this node of a cluster; `None` on a single server.
    pub cluster: Option<ClusterControl>,
}

/// Builds the parts of the server. Fails if flags are invalid or exclude each other.
pub fn build(sources: AppPartsInputs<'_>) -> Result<AppParts, AppPartsError> {
    let AppPartsInputs {
        line,
        connections_max,
        running,
        locks,
        env,
        tracer,
        memory,
        pressure,
        retention,
        replaying,
        store,
        quit,
        cluster,
    } = sources;
    let settings = &line.settings;
    let has = |feature| settings.has_feature(feature);
    if has(Feature::DeltaToCumulative) && has(Feature::NativeDeltaIngestion) {
        return Err(AppPartsError::Deltas);
    }
    warn_of_features(&settings.features);
    let config = running.config();
    let text = running.clone();
    let external = running.clone();
    let edited = running.clone();
    let reload = running.clone();
    Ok(AppParts {
        limits: limits(settings, connections_max, memory.limit_bytes()),
        tracer,
        engine: Arc::new(PromqlEngine),
        query: query_settings(settings, &running),
        query_log: running.query_log(),
        features: features::features(settings),
        external_labels: Arc::new(move || external.config().external_labels.clone()),
        multitenancy: config.is_multitenant,
        tenant_limits: tenant_limits(running.clone(), retention.clone()),
        web: web_settings(settings)?,
        build: version::build(),
        edits_rules: Arc::new(move || edited.config().rule_folder.is_some()),
        flags: flag_values(line),
        settings: server_settings(line),
        rule_defaults: rule_defaults(running.clone()),
        parse_relabel_rules: relabel_parser(running.clone()),
        config: Arc::new(move || text.config().text.clone()),
        runtime: runtime_info(running.clone(), &env, &memory, retention, store),
        search: has(Feature::SearchApi).then_some(settings.search_limit_max),
        replaying,
        collectors: vec![
            Arc::new(ProcessCollector::new(memory.clone())),
            running.query_log(),
            running,
            locks,
        ],
        lifecycle: settings.enable_lifecycle.then(|| Lifecycle {
            reload: Arc::new(move || reload.reload()),
            quit: Arc::new(move || quit.try_send(()).is_ok()),
        }),
        cluster,
        is_admin_enabled: settings.enable_admin_api,
        is_agent: settings.is_agent,
        profiler: Some(Arc::new(ProcessProfiler)),
        watch_memory: Arc::new(move || pressure.update_decay_time()),
        env,
        memory,
    })
}

fn flag_values(line: &CommandLine) -> BTreeMap<String, String> {
    let values = line.values.iter();
    values.map(|(n, v)| ((*n).to_owned(), v.clone())).collect()
}

/// Returns the flags with their values, in the order of the table.
fn server_settings(line: &CommandLine) -> Vec<ServerSetting> {
    let value_of = |flag: &Flag| line.values.iter().find(|(name, _)| *name == flag.name);
    let settings = FLAGS.iter().filter_map(|flag| {
        let (_, value) = value_of(flag)?;
        Some(ServerSetting {
            name: flag.name,
            value: value.clone(),
            default: flag.default,
            changed: value != flag.default,
            help: match flag.effect {
                FlagEffect::Ignored => {
                    "Has no effect. Accepted because Prometheus has it.".to_owned()
                }
                FlagEffect::Sets(_) => flag.full_help(),
            },
        })
    });
    settings.collect()
}

fn rule_defaults(running: Arc<ActiveConfig>) -> Provider<RuleDefaults> {
    Arc::new(move || {
        let config = running.config();
        RuleDefaults {
            options: RuleFileOptions {
                names: config.names,
                features: running.features().language,
                ..RuleFileOptions::default()
            },
            query_offset: config.rule_query_offset,
        }
    })
}

fn relabel_parser(running: Arc<ActiveConfig>) -> ParseRelabelRules {
    Arc::new(move |text| {
        let names = running.config().names;
        parse_relabel_rules(text, names).map_err(|e| e.to_string())
    })
}

fn query_settings(settings: &Settings, running: &Arc<ActiveConfig>) -> QuerySettings {
    let (limits, interval) = (running.clone(), running.clone());
    QuerySettings {
        features: JobFeatures::from_command_line(settings).language,
        per_step_stats: settings.has_feature(Feature::PerStepStats),
        lookback_ms: settings.lookback.as_millis() as i64,
        samples_max: settings.query_samples_max,
        limits: Arc::new(move |tenant| limits.config().query_limits_of(tenant)),
        default_subquery_step_ms: Arc::new(move || {
            interval.config().evaluation_interval.as_millis() as i64
        }),
    }
}

/// Returns the limits of tenants for the API.
fn tenant_limits(
    running: Arc<ActiveConfig>,
    retention: Provider<RetentionSettings>,
) -> TenantProvider<TenantLimits> {
    Arc::new(move |tenant| effective_limits(&running.config(), retention().time, tenant))
}

fn limits(settings: &Settings, connections_max: usize, memory_bytes: usize) -> ServerLimits {
    ServerLimits {
        connections_max: settings.connections_max.min(connections_max),
        // Zero means no limit, as upstream.
        idle_max: Some(settings.read_timeout).filter(|timeout| !timeout.is_zero()),
        queries_max: settings.query_concurrency,
        query_timeout: settings.query_timeout,
        // Zero means no limit, as upstream.
        notice_listeners_max: settings.notice_listeners_max,
        reads_max: match settings.remote_reads_max {
            0 => ServerLimits::READS_UNLIMITED,
            reads => reads,
        },
        read_samples_max: settings.remote_read_samples_max,
        read_frame_bytes_max: settings.remote_read_frame_bytes,
        ..ServerLimits::from_shares(&BudgetShares::from_limit(memory_bytes))
    }
}

/// Logs a message for each enabled feature that has no effect in Firn.
fn warn_of_features(names: &[String]) {
    for name in names {
        match Feature::row_of(name).map(|row| row.effect) {
            Some(FeatureEffect::SetsConfig(_) | FeatureEffect::Server) => {}
            Some(FeatureEffect::Obsolete) => {
                info!(feature = name, "feature has no effect, as in Prometheus");
            }
            Some(FeatureEffect::Deprecated(flag)) => {
                warn!(feature = name, "feature is deprecated: use --{flag}");
            }
            Some(FeatureEffect::AlwaysEnabled) => {
                info!(
                    feature = name,
                    "feature has no effect: it is always enabled"
                );
            }
            None => warn!(feature = name, "feature has no effect in Firn"),
        }
    }
}

fn web_settings(settings: &Settings) -> Result<WebSettings, AppPartsError> {
    let url = &settings.external_url;
    let (origin, path) = match url.as_str() {
        "" => (None, ""),
        path if path.starts_with('/') => (None, without_query(path)),
        url => {
            let (origin, path) =
                split_url(url).ok_or_else(|| AppPartsError::ExternalUrl(url.to_owned()))?;
            (Some(origin.to_owned()), path)
        }
    };
    let prefix = match settings.route_prefix.as_str() {
        "" => path,
        prefix => prefix,
    };
    let cors_origin = match settings.cors_origin.as_str() {
        "" => None,
        pattern => Some(regex::Regex::new(&format!("^(?:{pattern})$"))?),
    };
    Ok(WebSettings {
        route_prefix: match prefix.trim_matches('/') {
            "" => String::new(),
            path => format!("/{path}"),
        },
        external_origin: origin,
        cors_origin,
        write_versions: settings.write_versions.clone(),
        page_title: settings.page_title.clone(),
        page_dir: settings.page_dir.clone(),
        user_assets: settings.user_assets.clone(),
        console_templates: settings.console_templates.clone(),
        console_libraries: settings.console_libraries.clone(),
    })
}

/// Splits an HTTP URL into its origin (scheme and authority) and its path. Returns `None` for other
/// URLs.
fn split_url(url: &str) -> Option<(&str, &str)> {
    let authority = ["http://", "https://"]
        .iter()
        .find_map(|s| url.strip_prefix(s))?;
    let end = authority.find(['/', '?', '#']).unwrap_or(authority.len());
    if end == 0 {
        return None;
    }
    let (origin, rest) = url.split_at(url.len() - authority.len() + end);
    Some((origin, without_query(rest)))
}

fn without_query(path: &str) -> &str {
    path.split(['?', '#']).next().unwrap_or_default()
}

fn runtime_info(
    running: Arc<ActiveConfig>,
    env: &Env,
    memory: &Budget,
    retention: Provider<RetentionSettings>,
    store: Arc<OnceLock<Arc<PartitionedStore>>>,
) -> Provider<RuntimeInfo> {
    let start_time: TimestampMs = env.clock.now_ms();
    let memory_limit_bytes = memory.limit_bytes() as u64;
    let hostname = host::name();
    let working_dir = std::env::current_dir().unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
    Arc::new(move || {
        let last_reload = running.last_reload();
        RuntimeInfo {
            start_time,
            working_dir: working_dir.display().to_string(),
            hostname: hostname.clone(),
            reload_config_success: last_reload.is_successful,
            last_config_time: last_reload.success_time,
            corruption_count: store.get().map_or(0, |store| damages::count(&**store)),
            thread_count: metrics::thread_count(),
            cores,
            memory_limit_bytes,
            storage_retention: retention().to_string(),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn web_settings_derive_prefix_and_origin_as_prometheus() {
        for (url, prefix, want_prefix, want_origin) in [
            ("", "", "", None),
            ("", "/", "", None),
            ("", "a/b/", "/a/b", None),
            ("/prometheus/?q", "", "/prometheus", None),
            ("/prometheus", "/", "", None),
            ("https://x.org/p/", "", "/p", Some("https://x.org")),
            ("https://x.org:1/p?q", "/", "", Some("https://x.org:1")),
            ("http://x.org", "", "", Some("http://x.org")),
        ] {
            let settings = Settings {
                external_url: url.into(),
                route_prefix: prefix.into(),
                ..Settings::default()
            };
            let web = web_settings(&settings).unwrap();
            assert_eq!(web.route_prefix, want_prefix, "{url} {prefix}");
            assert_eq!(
                web.external_origin.as_deref(),
                want_origin,
                "{url} {prefix}"
            );
        }
        for url in ["x.org", "ftp://x.org", "http://", "http:///p"] {
            let external_url = url.to_owned();
            let settings = Settings {
                external_url,
                ..Settings::default()
            };
            assert!(web_settings(&settings).is_err(), "{url}");
        }
    }
}

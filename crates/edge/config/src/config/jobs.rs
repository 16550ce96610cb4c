//! Scrape jobs (`scrape_configs`), with inherited settings and Prometheus's checks.

use super::global::{
    GlobalSettings, escaping, escaping_of, limits, name_scheme, protocol, protocols,
};
use super::rules::{RULES, rules};
use ConfigValueShape::{Bool, Count, Duration, Map, Number, Path, Size, Text};
use firn_config_schema::schema::{ConfigKey, ConfigValueShape, KeyGroups, TEXTS, key};
use firn_config_schema::section::ConfigSection;
use firn_discovery::{DISCOVERY_KEYS, DiscoverySettings, check_address, read_discoveries};
use firn_http_client::http_config::{HTTP_CLIENT, http};
use firn_ingest::relabel::RelabelRule;
use firn_model::names::NameScheme;
use firn_scrape::{ScrapeJobSettings, ScrapeLimits};
use firn_wire::exposition::{ScrapeNameEscaping, ScrapeProtocol};
use firn_yaml::{YamlEntry, YamlError, YamlNode};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Keys of an entry of `scrape_configs`.
pub const KEYS: KeyGroups = &[JOB, HTTP_CLIENT, RELABELLING, DISCOVERY_KEYS];

/// Keys of a job without those that other sections have too. A job inherits those that the section
/// `global` has.
pub const JOB: &[ConfigKey] = &[
    key("job_name", Text).always(""),
    key("honor_labels", Bool),
    key("honor_timestamps", Bool).always("true"),
    key("track_timestamps_staleness", Bool).always("false"),
    key("params", Map(&TEXTS)),
    key("scrape_interval", Duration),
    key("scrape_timeout", Duration),
    key("scrape_protocols", TEXTS),
    key("fallback_scrape_protocol", Text),
    key("scrape_native_histograms", Bool).always("false"),
    key("always_scrape_classic_histograms", Bool).always("false"),
    key("convert_classic_histograms_to_nhcb", Bool).always("false"),
    key("scrape_failure_log_file", Path),
    key("metrics_path", Text).or("/metrics"),
    key("scheme", Text).or("http"),
    key("enable_compression", Bool).always("true"),
    key("body_size_limit", Size),
    key("sample_limit", Count),
    key("target_limit", Count),
    key("label_limit", Count),
    key("label_name_length_limit", Count),
    key("label_value_length_limit", Count),
    key("native_histogram_bucket_limit", Count),
    key("native_histogram_min_bucket_factor", Number),
    key("keep_dropped_targets", Count),
    key("metric_name_validation_scheme", Text),
    key("metric_name_escaping_scheme", Text),
    key("extra_scrape_metrics", Bool).always("false"),
];

const RELABELLING: &[ConfigKey] = &[
    key("relabel_configs", RULES),
    key("metric_relabel_configs", RULES),
];

/// Reads the jobs of a config, or of a scrape config file.
pub fn jobs(
    root: ConfigSection<'_>,
    global: &GlobalSettings,
) -> Result<Vec<Arc<ScrapeJobSettings>>, YamlError> {
    let mut jobs: Vec<Arc<ScrapeJobSettings>> = Vec::new();
    for section in root.sections("scrape_configs") {
        let job = job(section, global)?;
        if jobs.iter().any(|known| known.name == job.name) {
            return Err(section.error(format!(
                "found multiple scrape configs with job name {:?}",
                job.name
            )));
        }
        jobs.push(Arc::new(job));
    }
    Ok(jobs)
}

fn job(
    section: ConfigSection<'_>,
    global: &GlobalSettings,
) -> Result<ScrapeJobSettings, YamlError> {
    let name = section.text("job_name");
    if name.is_empty() {
        return Err(section.error("job_name is empty"));
    }
    let flag = |key, inherited| section.flag_if_set(key).unwrap_or(inherited);
    let interval = section.duration_if_set("scrape_interval");
    let interval = interval.unwrap_or(global.interval);
    let timeout = section.duration_if_set("scrape_timeout");
    if timeout.is_some_and(|timeout| timeout > interval) {
        return Err(section.error(format!(
            "scrape timeout greater than scrape interval for scrape config with job name {name:?}"
        )));
    }
    let native_histograms = flag("scrape_native_histograms", global.native_histograms);
    let (names, escaping) = name_settings(section, global)?;
    let whose = || format!("scrape config with job name {name:?}");
    let job = ScrapeJobSettings {
        has_tenants: global.is_multitenant,
        interval,
        timeout: timeout.unwrap_or(global.timeout.min(interval)),
        scheme: section.text("scheme").to_owned(),
        metrics_path: section.text_or_default("metrics_path").to_owned(),
        params: params(section.entries("params")),
        honor_labels: section.flag("honor_labels"),
        honor_timestamps: section.flag_or_false("honor_timestamps"),
        track_timestamps_staleness: section.flag("track_timestamps_staleness"),
        protocols: protocols(section, whose)?
            .or_else(|| global.protocols.clone())
            .unwrap_or_else(|| default_protocols(native_histograms)),
        fallback_protocol: fallback_protocol(section, name)?,
        native_histograms,
        always_classic: flag("always_scrape_classic_histograms", global.always_classic),
        convert_classic: flag("convert_classic_histograms_to_nhcb", global.convert_classic),
        start_times: global.start_times,
        type_and_unit_labels: global.type_and_unit_labels,
        extra_metrics: flag("extra_scrape_metrics", global.extra_metrics),
        enable_compression: section.flag_or_false("enable_compression"),
        names,
        escaping,
        limits: ScrapeLimits {
            histogram_buckets: section.count("native_histogram_bucket_limit"),
            histogram_bucket_factor: section
                .number_if_set("native_histogram_min_bucket_factor")
                .unwrap_or_default(),
            ..limits(section, &global.limits)
        },
        keep_dropped_targets: section
            .count_if_set("keep_dropped_targets")
            .unwrap_or(global.keep_dropped_targets),
        failure_log_file: section
            .path("scrape_failure_log_file")
            .or_else(|| global.failure_log_file.clone()),
        http: http(section.node(), section.dir())?,
        discoveries: read_discoveries(section.node(), section.dir())?,
        relabel: Arc::new(rules(section, "relabel_configs", names)?),
        metric_relabel: rules(section, "metric_relabel_configs", names)?,
        ..ScrapeJobSettings::new(name)
    };
    check_static_targets(section.node(), &job.discoveries, &job.relabel)?;
    Ok(job)
}

fn default_protocols(native_histograms: bool) -> Vec<ScrapeProtocol> {
    if native_histograms {
        ScrapeProtocol::DEFAULT_WITH_NATIVE_HISTOGRAMS.to_vec()
    } else {
        ScrapeProtocol::DEFAULT.to_vec()
    }
}

fn params(entries: &[YamlEntry]) -> BTreeMap<String, Vec<String>> {
    entries
        .iter()
        .map(|entry| {
            let values = entry.node.items().iter();
            let texts = values.map(|value| value.text().unwrap_or_default().to_owned());
            (entry.key.clone(), texts.collect())
        })
        .collect()
}

fn fallback_protocol(
    section: ConfigSection<'_>,
    name: &str,
) -> Result<Option<ScrapeProtocol>, YamlError> {
    let Some(text) = section.text_if_set("fallback_scrape_protocol") else {
        return Ok(None);
    };
    protocol(text).map(Some).map_err(|why| {
        section.error(format!(
            "invalid fallback_scrape_protocol for scrape config with job name {name:?}: {why}"
        ))
    })
}

/// Returns the names that the job allows, and the escaping of other names.
fn name_settings(
    section: ConfigSection<'_>,
    global: &GlobalSettings,
) -> Result<(NameScheme, ScrapeNameEscaping), YamlError> {
    let own = name_scheme(section)?;
    let names = own.unwrap_or(global.names);
    let of_global = global.escaping.clone();
    let of_global = of_global.map_err(|why| section.error(why))?;
    let inherited = match own {
        None => of_global,
        Some(own) => escaping_of(own),
    };
    let own = escaping(section, "scrape config").map_err(|why| section.error(why))?;
    match (own.unwrap_or(inherited), names) {
        (ScrapeNameEscaping::AllowUtf8, NameScheme::Legacy) => {
            Err(section
                .error("utf8 metric names requested but validation scheme is not set to UTF8"))
        }
        pair => Ok((pair.1, pair.0)),
    }
}

/// Rejects a URL as a static target, unless the job has relabeling rules, which may correct it.
pub fn check_static_targets(
    node: &YamlNode,
    discoveries: &[DiscoverySettings],
    relabel: &[RelabelRule],
) -> Result<(), YamlError> {
    if !relabel.is_empty() {
        return Ok(());
    }
    for discovery in discoveries {
        let DiscoverySettings::Static(groups) = discovery else {
            continue;
        };
        for address in groups.iter().flat_map(|group| &group.targets) {
            check_address(address).map_err(|e| node.error(e))?;
        }
    }
    Ok(())
}

//! Scrape jobs (`scrape_configs`), with inherited settings and Prometheus's checks.

use super::global::{
    GlobalSettings, escaping, escaping_of, limits, name_scheme, protocol, protocols,
};
use super::http::http;
use super::read;
use super::rules::rules;
use firn_discovery::{DiscoverySettings, check_address, read_discoveries};
use firn_ingest::relabel::RelabelRule;
use firn_model::names::NameScheme;
use firn_scrape::ScrapeJobSettings;
use firn_wire::exposition::{ScrapeNameEscaping, ScrapeProtocol};
use firn_yaml::{YamlError, YamlNode};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// Reads the jobs of a config file in the folder `dir`.
pub fn jobs(
    root: &YamlNode,
    global: &GlobalSettings,
    dir: &Path,
) -> Result<Vec<Arc<ScrapeJobSettings>>, YamlError> {
    let list = root.get("scrape_configs").map_or(&[][..], YamlNode::items);
    let mut jobs: Vec<Arc<ScrapeJobSettings>> = Vec::with_capacity(list.len());
    for node in list {
        let job = job(node, global, dir)?;
        if jobs.iter().any(|known| known.name == job.name) {
            return Err(node.error(format!(
                "found multiple scrape configs with job name {:?}",
                job.name
            )));
        }
        jobs.push(Arc::new(job));
    }
    Ok(jobs)
}

fn job(
    node: &YamlNode,
    global: &GlobalSettings,
    dir: &Path,
) -> Result<ScrapeJobSettings, YamlError> {
    let name = read::string(node, "job_name");
    if name.is_empty() {
        return Err(node.error("job_name is empty"));
    }
    let flag = |key: &str, inherited: bool| read::flag(node, key).unwrap_or(inherited);
    let interval = read::duration(node, "scrape_interval").unwrap_or(global.interval);
    let timeout = read::duration(node, "scrape_timeout");
    if timeout.is_some_and(|timeout| timeout > interval) {
        return Err(node.error(format!(
            "scrape timeout greater than scrape interval for scrape config with job name {name:?}"
        )));
    }
    let native_histograms = flag("scrape_native_histograms", global.native_histograms);
    let (names, escaping) = name_settings(node, global)?;
    let whose = || format!("scrape config with job name {name:?}");
    let job = ScrapeJobSettings {
        interval,
        timeout: timeout.unwrap_or(global.timeout.min(interval)),
        scheme: read::text(node, "scheme").unwrap_or("http").to_owned(),
        metrics_path: read::text(node, "metrics_path")
            .filter(|path| !path.is_empty())
            .unwrap_or("/metrics")
            .to_owned(),
        params: params(node),
        honor_labels: read::flag_or(node, "honor_labels", false),
        honor_timestamps: read::flag_or(node, "honor_timestamps", true),
        track_timestamps_staleness: read::flag_or(node, "track_timestamps_staleness", false),
        protocols: protocols(node, whose)?
            .or_else(|| global.protocols.clone())
            .unwrap_or_else(|| {
                if native_histograms {
                    ScrapeProtocol::DEFAULT_WITH_NATIVE_HISTOGRAMS.to_vec()
                } else {
                    ScrapeProtocol::DEFAULT.to_vec()
                }
            }),
        fallback_protocol: fallback_protocol(node, &name)?,
        native_histograms,
        always_classic: flag("always_scrape_classic_histograms", global.always_classic),
        convert_classic: flag("convert_classic_histograms_to_nhcb", global.convert_classic),
        start_times: global.start_times,
        type_and_unit_labels: global.type_and_unit_labels,
        extra_metrics: flag("extra_scrape_metrics", global.extra_metrics),
        enable_compression: read::flag_or(node, "enable_compression", true),
        names,
        escaping,
        limits: limits(node, &global.limits),
        keep_dropped_targets: read::count(node, "keep_dropped_targets")
            .unwrap_or(global.keep_dropped_targets),
        failure_log_file: read::path(node, "scrape_failure_log_file", dir)
            .or_else(|| global.failure_log_file.clone()),
        http: http(node, dir)?,
        discoveries: read_discoveries(node, dir)?,
        relabel: rules(node, "relabel_configs", names)?,
        metric_relabel: rules(node, "metric_relabel_configs", names)?,
        ..ScrapeJobSettings::new(&name)
    };
    check_static_targets(node, &job.discoveries, &job.relabel)?;
    Ok(job)
}

fn params(node: &YamlNode) -> BTreeMap<String, Vec<String>> {
    let entries = read::entries(node.get("params")).iter();
    entries
        .map(|entry| {
            let values = entry.node.items().iter();
            let texts = values.map(|value| value.text().unwrap_or_default().to_owned());
            (entry.key.clone(), texts.collect())
        })
        .collect()
}

fn fallback_protocol(node: &YamlNode, name: &str) -> Result<Option<ScrapeProtocol>, YamlError> {
    match read::text(node, "fallback_scrape_protocol") {
        None | Some("") => Ok(None),
        Some(text) => protocol(text).map(Some).map_err(|why| {
            node.error(format!(
                "invalid fallback_scrape_protocol for scrape config with job name {name:?}: {why}"
            ))
        }),
    }
}

/// Returns the names that the job allows, and the escaping of other names.
fn name_settings(
    node: &YamlNode,
    global: &GlobalSettings,
) -> Result<(NameScheme, ScrapeNameEscaping), YamlError> {
    let own = name_scheme(node)?;
    let names = own.unwrap_or(global.names);
    let of_global = global.escaping.clone().map_err(|why| node.error(why))?;
    let inherited = match own {
        None => of_global,
        Some(own) => escaping_of(own),
    };
    let own = escaping(node, "scrape config").map_err(|why| node.error(why))?;
    match (own.unwrap_or(inherited), names) {
        (ScrapeNameEscaping::AllowUtf8, NameScheme::Legacy) => {
            Err(node.error("utf8 metric names requested but validation scheme is not set to UTF8"))
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

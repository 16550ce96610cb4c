//! Completes a config before it is printed: jobs get their inherited settings, and deprecated keys
//! are replaced by current ones.

use super::super::jobs::JOB;
use super::super::{global, storage};
use super::{entry, map, node, plain, text};
use firn_config_schema::schema::{ConfigKey, ConfigValueShape};
use firn_config_schema::section::ConfigSection;
use firn_model::units::{format_duration, parse_duration};
use firn_yaml::scalar::{YamlScalar, interpret_scalar};
use firn_yaml::{YamlEntry, YamlNode, YamlValue};
use std::path::Path;
use std::time::Duration;

/// Values from outside the config file that the printed config contains, from flags and features.
#[derive(Clone, Copy, Debug)]
pub struct ConfigPrintContext<'a> {
    /// Folder of the config, which relative paths start at.
    pub dir: &'a Path,
    /// Retention time from flags, if one of them sets it.
    pub retention_time: Option<Duration>,
    /// Retention size from flags in bytes, if one of them sets it.
    pub retention_size: Option<u64>,
    /// Whether the default scrape protocols begin with protobuf, which transmits start timestamps.
    pub asks_protobuf: bool,
    /// Value of `extra_scrape_metrics` for configs that set none.
    pub extra_metrics: bool,
}

const TEXT_PROTOCOLS: [&str; 4] = [
    "OpenMetricsText1.0.0",
    "OpenMetricsText0.0.1",
    "PrometheusText1.0.0",
    "PrometheusText0.0.4",
];

const PROTOBUF: &str = "PrometheusProto";

/// Keys that jobs and the section `global` have, but that depend on other keys.
const DEPENDENT: [&str; 3] = [
    "scrape_timeout",
    "metric_name_validation_scheme",
    "metric_name_escaping_scheme",
];

/// Completes the config `root` in place, so that each section contains its inherited and default
/// values.
pub fn complete(root: &mut YamlNode, around: &ConfigPrintContext<'_>) {
    if !matches!(root.value, YamlValue::Map(_)) {
        *root = map(Vec::new());
    }
    renew(root);
    if root.get("runtime").is_some_and(YamlNode::is_null) {
        remove(root, "runtime");
    }
    complete_global(root, around);
    complete_storage(root, around);
    let global = root
        .get("global")
        .cloned()
        .unwrap_or_else(|| map(Vec::new()));
    let Some(YamlValue::List(jobs)) = value_mut(root, "scrape_configs") else {
        return;
    };
    for job in jobs {
        complete_job(job, &global);
    }
}

fn complete_global(root: &mut YamlNode, around: &ConfigPrintContext<'_>) {
    if root.get("global").is_none_or(YamlNode::is_null) {
        let whole = entry("metric_name_escaping_scheme", plain("allow-utf-8"));
        set(root, "global", map(vec![whole]));
    }
    let Some(global) = node_mut(root, "global") else {
        return;
    };
    let section = ConfigSection::new(Some(global), &[global::KEYS], around.dir);
    let interval = section.duration("scrape_interval");
    let timeout = section.duration("scrape_timeout").min(interval);
    let names = section
        .text_or_default("metric_name_validation_scheme")
        .to_owned();
    fill(global, "scrape_interval", plain(format_duration(interval)));
    fill(global, "scrape_timeout", plain(format_duration(timeout)));
    if duration(global, "evaluation_interval").is_none() {
        remove(global, "evaluation_interval");
    }
    fill(global, "metric_name_validation_scheme", plain(names));
    if around.asks_protobuf {
        fill(global, "scrape_protocols", protocols(true));
    }
    for flag in ["scrape_native_histograms", "extra_scrape_metrics"] {
        let is_on = flag == "extra_scrape_metrics" && around.extra_metrics;
        set_if_missing(global, flag, plain(is_on.to_string()));
    }
}

fn complete_job(job: &mut YamlNode, global: &YamlNode) {
    for key in inherited_keys() {
        match (key.shape, global.get(key.name)) {
            (ConfigValueShape::Bool, of_all) => {
                let of_all = of_all.cloned().unwrap_or_else(|| plain(key.default));
                set_if_missing(job, key.name, of_all);
            }
            (_, Some(of_all)) => fill(job, key.name, of_all.clone()),
            (_, None) => {}
        }
    }
    let is_native = job
        .get("scrape_native_histograms")
        .and_then(interpret_scalar);
    let is_native = is_native == Some(YamlScalar::Bool(true));
    fill(job, "scrape_protocols", protocols(is_native));
    let of_job = duration(job, "scrape_interval").unwrap_or_default();
    let of_global = duration(global, "scrape_timeout").unwrap_or_default();
    let timeout = of_global.min(of_job);
    fill(job, "scrape_timeout", plain(format_duration(timeout)));
    let scheme_of = |validation: &str| match validation {
        "legacy" => "underscores",
        _ => "allow-utf-8",
    };
    let word = |node: &YamlNode, key: &str| {
        let word = node.get(key).and_then(YamlNode::text).unwrap_or_default();
        word.to_owned()
    };
    let of_all = word(global, "metric_name_validation_scheme");
    let own = word(job, "metric_name_validation_scheme");
    let escaping = match (own.as_str(), word(global, "metric_name_escaping_scheme")) {
        ("", escaping) if !escaping.is_empty() => escaping,
        ("", _) => scheme_of(&of_all).to_owned(),
        (own, _) => scheme_of(own).to_owned(),
    };
    fill(job, "metric_name_validation_scheme", plain(of_all));
    fill(job, "metric_name_escaping_scheme", plain(escaping));
}

/// Returns the keys that jobs inherit from the section `global`: those that both have.
fn inherited_keys() -> impl Iterator<Item = &'static ConfigKey> {
    let is_global = |key: &ConfigKey| global::KEYS.iter().any(|known| known.name == key.name);
    let keys = JOB.iter().filter(move |key| is_global(key));
    keys.filter(|key| !DEPENDENT.contains(&key.name))
}

fn complete_storage(root: &mut YamlNode, around: &ConfigPrintContext<'_>) {
    fill(root, "storage", map(Vec::new()));
    let Some(storage) = node_mut(root, "storage") else {
        return;
    };
    fill(storage, "tsdb", map(Vec::new()));
    let Some(tsdb) = node_mut(storage, "tsdb") else {
        return;
    };
    let section = ConfigSection::new(Some(tsdb), &[storage::TSDB], around.dir);
    let window = section.exact_duration("out_of_order_time_window");
    let late = plain(format_duration(window));
    set_if_missing(tsdb, "out_of_order_time_window", late);
    set(
        tsdb,
        "outofordertimewindow",
        plain(window.as_millis().to_string()),
    );
    let mut retention = Vec::new();
    if let Some(time) = around.retention_time {
        retention.push(entry("time", plain(format_duration(time))));
    }
    if let Some(size) = around.retention_size {
        retention.push(entry("size", plain(format!("{size}B"))));
    }
    set_if_missing(tsdb, "retention", map(retention));
}

/// Replaces bearer tokens of clients by the `authorization` section, in the whole tree.
fn renew(node: &mut YamlNode) {
    match &mut node.value {
        YamlValue::List(items) => items.iter_mut().for_each(renew),
        YamlValue::Map(entries) => entries.iter_mut().for_each(|e| renew(&mut e.node)),
        YamlValue::Scalar { .. } => return,
    }
    for (old, new) in [
        ("bearer_token", "credentials"),
        ("bearer_token_file", "credentials_file"),
    ] {
        let is_set = |node: &YamlNode| node.text().is_some_and(|text| !text.is_empty());
        if let Some(value) = node.get(old).filter(|old| is_set(old)).cloned() {
            set(node, "authorization", map(vec![entry(new, value)]));
        }
    }
}

fn protocols(asks_protobuf: bool) -> YamlNode {
    let first = asks_protobuf.then_some(PROTOBUF).into_iter();
    let all = first.chain(TEXT_PROTOCOLS);
    node(YamlValue::List(all.map(text).collect()))
}

fn duration(node: &YamlNode, key: &str) -> Option<Duration> {
    let duration = parse_duration(node.get(key)?.text()?).ok()?;
    Some(duration).filter(|duration| !duration.is_zero())
}

fn entries_mut(node: &mut YamlNode) -> Option<&mut Vec<YamlEntry>> {
    if node.is_null() {
        *node = map(Vec::new());
    }
    match &mut node.value {
        YamlValue::Map(entries) => Some(entries),
        _ => None,
    }
}

fn node_mut<'n>(node: &'n mut YamlNode, key: &str) -> Option<&'n mut YamlNode> {
    let mut entries = entries_mut(node)?.iter_mut();
    entries.find(|e| e.key == key).map(|e| &mut e.node)
}

fn value_mut<'n>(node: &'n mut YamlNode, key: &str) -> Option<&'n mut YamlValue> {
    Some(&mut node_mut(node, key)?.value)
}

fn remove(node: &mut YamlNode, key: &str) {
    if let Some(entries) = entries_mut(node) {
        entries.retain(|entry| entry.key != key);
    }
}

fn set(node: &mut YamlNode, key: &str, value: YamlNode) {
    remove(node, key);
    if let Some(entries) = entries_mut(node) {
        entries.push(entry(key, value));
    }
}

/// Sets a key of a section if it is missing or null.
fn set_if_missing(node: &mut YamlNode, key: &str, value: YamlNode) {
    if node.get(key).is_none_or(YamlNode::is_null) {
        set(node, key, value);
    }
}

/// Sets a key if it is missing, null or zero.
fn fill(node: &mut YamlNode, key: &str, value: YamlNode) {
    let is_zero = |known: &YamlNode| match &known.value {
        YamlValue::Scalar { text, .. } => {
            matches!(text.as_str(), "" | "0" | "0s" | "0B") || known.is_null()
        }
        YamlValue::List(items) => items.is_empty(),
        YamlValue::Map(_) => false,
    };
    if node.get(key).is_none_or(is_zero) {
        set(node, key, value);
    }
}

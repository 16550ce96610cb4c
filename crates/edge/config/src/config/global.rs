//! The section `global`: defaults of jobs.

use super::{JobFeatures, read};
use firn_model::labels::Labels;
use firn_model::names::NameScheme;
use firn_scrape::{ScrapeLimits, StartTimeSettings};
use firn_wire::exposition::{ScrapeNameEscaping, ScrapeProtocol};
use firn_yaml::{YamlError, YamlNode};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Prometheus's default for `scrape_interval` and `evaluation_interval` of the global section.
pub const INTERVAL: Duration = Duration::from_secs(60);

/// Prometheus's default for `scrape_timeout`, which is never longer than the interval.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Settings of the global section that jobs inherit unless they set the same key themselves.
#[derive(Clone, Debug, PartialEq)]
pub struct GlobalSettings {
    pub interval: Duration,
    pub timeout: Duration,
    pub protocols: Option<Vec<ScrapeProtocol>>,
    pub native_histograms: bool,
    pub always_classic: bool,
    pub convert_classic: bool,
    pub extra_metrics: bool,
    pub start_times: StartTimeSettings,
    pub type_and_unit_labels: bool,
    pub names: NameScheme,
    /// `metric_name_escaping_scheme`. If it is invalid, every job that inherits it returns the
    /// error.
    pub escaping: Result<ScrapeNameEscaping, String>,
    /// Limits of scrapes, without those that only a job can set.
    pub limits: ScrapeLimits,
    pub keep_dropped_targets: u64,
    pub query_log_file: Option<PathBuf>,
    pub failure_log_file: Option<PathBuf>,
    /// `external_labels`, with the values of environment variables substituted.
    pub external_labels: Labels,
}

impl Default for GlobalSettings {
    fn default() -> Self {
        Self {
            interval: INTERVAL,
            timeout: TIMEOUT,
            protocols: None,
            native_histograms: false,
            always_classic: false,
            convert_classic: false,
            extra_metrics: false,
            start_times: StartTimeSettings::default(),
            type_and_unit_labels: false,
            names: NameScheme::Utf8,
            escaping: Ok(ScrapeNameEscaping::AllowUtf8),
            limits: ScrapeLimits::default(),
            keep_dropped_targets: 0,
            query_log_file: None,
            failure_log_file: None,
            external_labels: Labels::empty(),
        }
    }
}

impl GlobalSettings {
    /// Returns the defaults for a config without the section, which depend on features.
    fn from_features(features: JobFeatures) -> Self {
        let asks_for_starts = features.start_times.are_parsed();
        Self {
            // Protobuf transmits the most start timestamps.
            protocols: asks_for_starts
                .then(|| ScrapeProtocol::DEFAULT_WITH_NATIVE_HISTOGRAMS.to_vec()),
            extra_metrics: features.extra_metrics,
            start_times: features.start_times,
            type_and_unit_labels: features.type_and_unit_labels,
            ..Self::default()
        }
    }

    /// Reads the section, or returns the defaults if it is not set.
    pub fn read(root: &YamlNode, dir: &Path, features: JobFeatures) -> Result<Self, YamlError> {
        let defaults = Self::from_features(features);
        let Some(node) = root.get("global").filter(|node| !node.is_null()) else {
            return Ok(defaults);
        };
        let flag = |key: &str| read::flag(node, key).unwrap_or(false);
        let interval = read::duration(node, "scrape_interval").unwrap_or(INTERVAL);
        let timeout = read::duration(node, "scrape_timeout");
        if timeout.is_some_and(|timeout| timeout > interval) {
            return Err(node.error("global scrape timeout greater than scrape interval"));
        }
        let names = name_scheme(node)?.unwrap_or_default();
        Ok(Self {
            interval,
            timeout: timeout.unwrap_or(TIMEOUT.min(interval)),
            protocols: protocols(node, || "global config".into())?.or(defaults.protocols),
            native_histograms: flag("scrape_native_histograms"),
            always_classic: flag("always_scrape_classic_histograms"),
            convert_classic: flag("convert_classic_histograms_to_nhcb"),
            extra_metrics: read::flag(node, "extra_scrape_metrics")
                .unwrap_or(defaults.extra_metrics),
            start_times: defaults.start_times,
            type_and_unit_labels: defaults.type_and_unit_labels,
            names,
            escaping: escaping(node, "global").map(|own| own.unwrap_or(escaping_of(names))),
            limits: limits(node, &ScrapeLimits::default()),
            keep_dropped_targets: read::count(node, "keep_dropped_targets").unwrap_or(0),
            query_log_file: read::path(node, "query_log_file", dir),
            failure_log_file: read::path(node, "scrape_failure_log_file", dir),
            external_labels: external_labels(node.get("external_labels"), names)?,
        })
    }
}

/// Returns the name scheme of `metric_name_validation_scheme`, if it is set.
pub fn name_scheme(node: &YamlNode) -> Result<Option<NameScheme>, YamlError> {
    match read::text(node, "metric_name_validation_scheme") {
        None | Some("") => Ok(None),
        Some("legacy") => Ok(Some(NameScheme::Legacy)),
        Some("utf8") => Ok(Some(NameScheme::Utf8)),
        Some(other) => Err(node.error(format!("unrecognized ValidationScheme: {other:?}"))),
    }
}

/// Returns `metric_name_escaping_scheme`, if it is set. The error contains the name of the section.
pub fn escaping(node: &YamlNode, section: &str) -> Result<Option<ScrapeNameEscaping>, String> {
    let all = [
        ScrapeNameEscaping::AllowUtf8,
        ScrapeNameEscaping::Underscores,
        ScrapeNameEscaping::Dots,
        ScrapeNameEscaping::Values,
    ];
    let Some(name) = read::text(node, "metric_name_escaping_scheme").filter(|n| !n.is_empty())
    else {
        return Ok(None);
    };
    let known = all.into_iter().find(|escaping| escaping.name() == name);
    known.map(Some).ok_or_else(|| {
        let [a, b, c, d] = all.map(|escaping| escaping.name());
        format!(
            "unknown {section} name escaping method specified, must be one of '{a}', '{b}', \
             '{c}', or '{d}', got {name:?}"
        )
    })
}

/// Returns the escaping that a name scheme uses by default.
pub fn escaping_of(names: NameScheme) -> ScrapeNameEscaping {
    match names {
        NameScheme::Legacy => ScrapeNameEscaping::Underscores,
        NameScheme::Utf8 => ScrapeNameEscaping::AllowUtf8,
    }
}

/// Returns `scrape_protocols`, if it is set. Errors contain the name of the owner from `whose`.
pub fn protocols(
    node: &YamlNode,
    whose: impl Fn() -> String,
) -> Result<Option<Vec<ScrapeProtocol>>, YamlError> {
    let Some(list) = node.get("scrape_protocols").filter(|list| !list.is_null()) else {
        return Ok(None);
    };
    let names = list
        .items()
        .iter()
        .map(|item| item.text().unwrap_or_default());
    let names: Vec<&str> = names.collect();
    let mut protocols = Vec::new();
    for (i, item) in list.items().iter().enumerate() {
        let name = names[i];
        if names[..i]
            .iter()
            .any(|known| known.eq_ignore_ascii_case(name))
        {
            return Err(item.error(format!(
                "duplicated protocol in scrape_protocols, got [{}] for {}",
                names.join(" "),
                whose()
            )));
        }
        let protocol = protocol(name);
        protocols.push(
            protocol
                .map_err(|why| item.error(format!("scrape_protocols: {why} for {}", whose())))?,
        );
    }
    if protocols.is_empty() {
        Err(list.error(format!("scrape_protocols cannot be empty for {}", whose())))
    } else {
        Ok(Some(protocols))
    }
}

/// Returns the protocol with this name, or the error for an unknown one.
pub fn protocol(name: &str) -> Result<ScrapeProtocol, String> {
    ScrapeProtocol::from_name(name).ok_or_else(|| {
        let mut known = ScrapeProtocol::DEFAULT_WITH_NATIVE_HISTOGRAMS.map(ScrapeProtocol::name);
        known.sort_unstable();
        let known = known.join(" ");
        format!("unknown scrape protocol {name}, supported: [{known}]")
    })
}

/// Returns the limits of a section. Unset ones are taken from `inherited`.
pub fn limits(node: &YamlNode, inherited: &ScrapeLimits) -> ScrapeLimits {
    let count = |key: &str, inherited: u64| read::count(node, key).unwrap_or(inherited);
    ScrapeLimits {
        body_bytes: read::size(node, "body_size_limit").unwrap_or(inherited.body_bytes),
        samples: count("sample_limit", inherited.samples),
        targets: count("target_limit", inherited.targets),
        labels: count("label_limit", inherited.labels),
        label_name_bytes: count("label_name_length_limit", inherited.label_name_bytes),
        label_value_bytes: count("label_value_length_limit", inherited.label_value_bytes),
        histogram_buckets: count("native_histogram_bucket_limit", inherited.histogram_buckets),
        histogram_bucket_factor: read::number(node, "native_histogram_min_bucket_factor")
            .unwrap_or(inherited.histogram_bucket_factor),
    }
}

fn external_labels(node: Option<&YamlNode>, names: NameScheme) -> Result<Labels, YamlError> {
    let mut pairs = Vec::new();
    for entry in read::entries(node) {
        if !names.allows_label(&entry.key) {
            let message = format!("{:?} is not a valid label name", entry.key);
            return Err(entry.node.error(message));
        }
        let value = entry.node.text().unwrap_or_default();
        pairs.push((
            entry.key.clone(),
            expand(value, |name| std::env::var(name).ok()),
        ));
    }
    Ok(Labels::from_pairs(pairs))
}

/// Substitutes `$name` and `${name}` like Go's `os.Expand`. `$$` is a dollar sign.
fn expand(text: &str, variable: impl Fn(&str) -> Option<String>) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        out += before;
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let (name, behind) = match after.strip_prefix('{') {
            Some(inside) => match inside.split_once('}') {
                Some((name, behind)) => (name, behind),
                None => ("", inside),
            },
            None if after.starts_with('$') => ("$", &after[1..]),
            None => after.split_at(after.find(|c| !is_word(c)).unwrap_or(after.len())),
        };
        match name {
            "$" => out.push('$'),
            name => out += &variable(name).unwrap_or_default(),
        }
        rest = behind;
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expand_puts_variables_in_as_go() {
        let variable = |name: &str| (name == "A").then(|| "x".to_owned());
        for (text, want) in [
            ("plain", "plain"),
            ("$A-${A}", "x-x"),
            ("$AB$A", "x"),
            ("a$$A", "a$A"),
            ("${A", "A"),
        ] {
            assert_eq!(expand(text, variable), want, "{text}");
        }
    }
}

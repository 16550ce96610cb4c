//! The section `global`: defaults of jobs.

use super::JobFeatures;
use ConfigValueShape::{Bool, Count, Duration, Map, Path, Size, Text};
use firn_config_schema::schema::{ConfigKey, ConfigValueShape, TEXTS, key};
use firn_config_schema::section::ConfigSection;
use firn_model::labels::Labels;
use firn_model::names::NameScheme;
use firn_scrape::{ScrapeLimits, StartTimeSettings};
use firn_wire::exposition::{ScrapeNameEscaping, ScrapeProtocol};
use firn_yaml::{YamlEntry, YamlError};
use std::path::PathBuf;
use std::time;

/// Keys of the section. The defaults of the flags for scrapes depend on features.
pub const KEYS: &[ConfigKey] = &[
    key("scrape_interval", Duration).or("1m"),
    // Never longer than the interval.
    key("scrape_timeout", Duration).or("10s"),
    key("scrape_protocols", TEXTS),
    key("evaluation_interval", Duration).or("1m"),
    key("rule_query_offset", Duration),
    key("query_log_file", Path),
    key("scrape_failure_log_file", Path),
    key("external_labels", Map(&Text)),
    key("body_size_limit", Size),
    key("sample_limit", Count),
    key("target_limit", Count),
    key("label_limit", Count),
    key("label_name_length_limit", Count),
    key("label_value_length_limit", Count),
    key("keep_dropped_targets", Count),
    key("metric_name_validation_scheme", Text).or("utf8"),
    key("metric_name_escaping_scheme", Text),
    key("scrape_native_histograms", Bool).always("false"),
    key("convert_classic_histograms_to_nhcb", Bool),
    key("always_scrape_classic_histograms", Bool),
    key("extra_scrape_metrics", Bool).always("false"),
];

/// Settings of the global section that jobs inherit unless they set the same key themselves.
#[derive(Clone, Debug, PartialEq)]
pub struct GlobalSettings {
    pub interval: time::Duration,
    pub evaluation_interval: time::Duration,
    pub rule_query_offset: time::Duration,
    pub timeout: time::Duration,
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
    /// `firn.multitenancy`, for the tenants of targets; set by the caller.
    pub is_multitenant: bool,
    /// `external_labels`, with the values of environment variables substituted.
    pub external_labels: Labels,
}

impl GlobalSettings {
    /// Reads the section.
    pub fn read(section: ConfigSection<'_>, features: JobFeatures) -> Result<Self, YamlError> {
        let interval = section.duration("scrape_interval");
        let timeout = section.duration_if_set("scrape_timeout");
        if timeout.is_some_and(|timeout| timeout > interval) {
            return Err(section.error("global scrape timeout greater than scrape interval"));
        }
        let names = name_scheme(section)?.unwrap_or_default();
        let protocols = protocols(section, || "global config".into())?;
        // Protobuf transmits the most start timestamps.
        let asks_for_starts = features.start_times.are_parsed();
        let with_starts = ScrapeProtocol::DEFAULT_WITH_NATIVE_HISTOGRAMS.to_vec();
        Ok(Self {
            interval,
            is_multitenant: false,
            evaluation_interval: section.duration("evaluation_interval"),
            rule_query_offset: section.duration("rule_query_offset"),
            timeout: section.duration("scrape_timeout").min(interval),
            protocols: protocols.or(asks_for_starts.then_some(with_starts)),
            native_histograms: section.flag("scrape_native_histograms"),
            always_classic: section.flag("always_scrape_classic_histograms"),
            convert_classic: section.flag("convert_classic_histograms_to_nhcb"),
            extra_metrics: section
                .flag_if_set("extra_scrape_metrics")
                .unwrap_or(features.extra_metrics),
            start_times: features.start_times,
            type_and_unit_labels: features.type_and_unit_labels,
            names,
            escaping: escaping(section, "global").map(|own| own.unwrap_or(escaping_of(names))),
            limits: limits(section, &ScrapeLimits::default()),
            keep_dropped_targets: section.count("keep_dropped_targets"),
            query_log_file: section.path("query_log_file"),
            failure_log_file: section.path("scrape_failure_log_file"),
            external_labels: external_labels(section.entries("external_labels"), names)?,
        })
    }
}

/// Returns the name scheme of `metric_name_validation_scheme`, if it is set.
pub fn name_scheme(section: ConfigSection<'_>) -> Result<Option<NameScheme>, YamlError> {
    match section.text_if_set("metric_name_validation_scheme") {
        None => Ok(None),
        Some("legacy") => Ok(Some(NameScheme::Legacy)),
        Some("utf8") => Ok(Some(NameScheme::Utf8)),
        Some(other) => Err(section.error(format!("unrecognized ValidationScheme: {other:?}"))),
    }
}

/// Returns `metric_name_escaping_scheme`, if it is set. The error contains the name of the section.
pub fn escaping(
    section: ConfigSection<'_>,
    section_name: &str,
) -> Result<Option<ScrapeNameEscaping>, String> {
    let all = [
        ScrapeNameEscaping::AllowUtf8,
        ScrapeNameEscaping::Underscores,
        ScrapeNameEscaping::Dots,
        ScrapeNameEscaping::Values,
    ];
    let Some(name) = section.text_if_set("metric_name_escaping_scheme") else {
        return Ok(None);
    };
    let known = all.into_iter().find(|escaping| escaping.name() == name);
    known.map(Some).ok_or_else(|| {
        let [a, b, c, d] = all.map(|escaping| escaping.name());
        format!(
            "unknown {section_name} name escaping method specified, must be one of '{a}', '{b}', \
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
    section: ConfigSection<'_>,
    whose: impl Fn() -> String,
) -> Result<Option<Vec<ScrapeProtocol>>, YamlError> {
    let Some(list) = section
        .get("scrape_protocols")
        .filter(|list| !list.is_null())
    else {
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

/// Returns the limits of a section. Unset ones are taken from `inherited`. Only jobs have limits of
/// native histograms.
pub fn limits(section: ConfigSection<'_>, inherited: &ScrapeLimits) -> ScrapeLimits {
    let count = |key, inherited| section.count_if_set(key).unwrap_or(inherited);
    ScrapeLimits {
        body_bytes: section
            .size_if_set("body_size_limit")
            .unwrap_or(inherited.body_bytes),
        samples: count("sample_limit", inherited.samples),
        targets: count("target_limit", inherited.targets),
        labels: count("label_limit", inherited.labels),
        label_name_bytes: count("label_name_length_limit", inherited.label_name_bytes),
        label_value_bytes: count("label_value_length_limit", inherited.label_value_bytes),
        ..*inherited
    }
}

fn external_labels(entries: &[YamlEntry], names: NameScheme) -> Result<Labels, YamlError> {
    let mut pairs = Vec::new();
    for entry in entries {
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

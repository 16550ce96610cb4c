//! The section `storage`: retention, late samples and exemplars.

use crate::retention::RetentionSettings;
use ConfigValueShape::{Integer, Number, Section, Size, Text};
use firn_config_schema::schema::{ConfigKey, ConfigValueShape, KeyPrinting, key};
use firn_config_schema::section::ConfigSection;
use firn_model::units::{format_size, parse_size};
use firn_yaml::YamlError;

/// Keys of the section.
pub const KEYS: &[ConfigKey] = &[
    key("tsdb", Section(&[TSDB])).printed(KeyPrinting::UnlessZero),
    key("exemplars", Section(&[&[key("max_exemplars", Integer)]])),
];

/// Keys of the section `tsdb`.
pub const TSDB: &[ConfigKey] = &[
    // Upstream accepts this internal field under its Go name, in milliseconds, overwrites it with
    // `out_of_order_time_window`, and prints it.
    key("outofordertimewindow", Integer).always("0"),
    // Prometheus's default is zero: senders that retry, restart or send in parallel lose some
    // samples there. Zero is printed, because it is not the default.
    key("out_of_order_time_window", ConfigValueShape::Duration).always("30m"),
    key("stale_series_compaction_threshold", Number).ignored(),
    key("chunk_encoding", Section(&[&[key("floats", Text)]])).ignored(),
    key("retention", Section(&[RETENTION])),
];

const RETENTION: &[ConfigKey] = &[
    key("time", ConfigValueShape::Duration),
    key("size", Size),
    key("percentage", Number),
];

/// Default number of exemplars without a section `exemplars`, as in Prometheus.
const EXEMPLARS_MAX: usize = 100_000;

/// Returns the number of exemplars to keep. As upstream, a section without a number, or with a
/// negative one, means zero.
pub fn exemplars_max(storage: ConfigSection<'_>) -> usize {
    match storage.section("exemplars").if_set() {
        None => EXEMPLARS_MAX,
        Some(section) => usize::try_from(section.count("max_exemplars")).unwrap_or(usize::MAX),
    }
}

/// Validates the encoding of chunks, which Firn ignores.
pub fn check_encoding(tsdb: ConfigSection<'_>) -> Result<(), YamlError> {
    let section = tsdb.section("chunk_encoding");
    match section.text("floats") {
        "" | "xor" | "xor2" => Ok(()),
        other => Err(section.error(format!(
            "'storage.tsdb.chunk_encoding.floats' must be 'xor' or 'xor2', or the field must be \
             omitted entirely, got {other:?}"
        ))),
    }
}

/// Reads the section `retention` of the section `tsdb`, if it is set.
pub fn retention(tsdb: ConfigSection<'_>) -> Result<Option<RetentionSettings>, YamlError> {
    let Some(section) = tsdb.section("retention").if_set() else {
        return Ok(None);
    };
    if let Some(size) = section.text("size").strip_prefix('-')
        && let Ok(bytes) = parse_size(size)
        && bytes > 0
    {
        return Err(section.error(format!(
            "'storage.tsdb.retention.size' must be greater than or equal to 0, got -{}",
            format_size(bytes)
        )));
    }
    let percentage = section.number_if_set("percentage");
    if let Some(percentage) = percentage.filter(|p| *p < 0.0 || *p > 100.0) {
        return Err(section.error(format!(
            "'storage.tsdb.retention.percentage' must be in the range [0, 100], got {percentage}"
        )));
    }
    Ok(Some(RetentionSettings {
        time: section.duration_if_set("time"),
        size: section.size_if_set("size"),
        percentage: percentage.filter(|percentage| *percentage > 0.0),
    }))
}

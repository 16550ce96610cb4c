//! The file of `firn.overrides`: limits and settings of single tenants, in the form and with the
//! keys of Mimir's runtime configuration.
//!
//! A new key needs a row in [`TENANT`], a field of [`TenantLimits`] and a line in [`limits`].

use super::firn;
use ConfigValueShape::{Bool, Duration, LabelName, List, Map, Number, Section, Text, WholeCount};
use firn_config_schema::schema::{
    ConfigFindings, ConfigKey, ConfigValueShape, KeyGroups, key, walk,
};
use firn_config_schema::section::ConfigSection;
use firn_model::query_limits::QueryLimits;
use firn_model::tenant::TenantId;
use firn_model::tenant_limits::{
    CostAttribution, IngestionRate, ReplicaSettings, TenantLimits, TenantOverrides,
};
use firn_model::units::parse_size;
use firn_yaml::YamlError;
use std::path::Path;
use std::time;

const KEYS: KeyGroups = &[&[key("overrides", Map(&Section(&[TENANT])))]];

/// Keys of one tenant, with the defaults of Mimir for replicas and cost attribution. All limits are
/// unset by default.
const TENANT: &[ConfigKey] = &[
    key("max_global_series_per_user", WholeCount),
    key("new_series_limit", WholeCount),
    key("ingestion_rate", Number),
    key("ingestion_burst_size", WholeCount),
    key("max_label_names_per_series", WholeCount),
    key("max_request_body_size", Text),
    key("max_fetched_series_per_query", WholeCount),
    key("max_samples_per_query", WholeCount),
    key("query_timeout", Duration),
    key("max_concurrent_queries", WholeCount),
    key("blocked_queries", List(&Section(&[firn::BLOCKED]))),
    key("compactor_blocks_retention_period", Duration),
    key("out_of_order_time_window", Duration),
    key("accept_ha_samples", Bool),
    key("ha_cluster_label", LabelName).or("cluster"),
    key("ha_replica_label", LabelName).or("__replica__"),
    key("ha_max_clusters", WholeCount).or("100"),
    key("cost_attribution_labels", Text),
    key("max_cost_attribution_cardinality", WholeCount).or("2000"),
];

/// Fields of the usage of an attributed value, which also has a field with the name of the label.
const ATTRIBUTION_FIELDS: [&str; 3] = ["series", "samples", "bytes"];

/// Parses the text of a file. `refuses_replicas` describes a mode without deduplication, in which
/// `accept_ha_samples` is an error.
pub(super) fn parse(
    text: &str,
    refuses_replicas: Option<&str>,
) -> Result<TenantOverrides, YamlError> {
    let mut overrides = TenantOverrides::default();
    let Some(root) = firn_yaml::parse(text)? else {
        return Ok(overrides);
    };
    let mut findings = ConfigFindings::default();
    walk(&mut root.clone(), &Section(KEYS), "", &mut findings)?;
    let root = ConfigSection::new(Some(&root), KEYS, Path::new(""));
    let entries = root.entries("overrides").iter();
    for (entry, (name, section)) in entries.zip(root.named_sections("overrides")) {
        let tenant = TenantId::new(name).map_err(|e| YamlError {
            place: entry.place,
            message: format!("overrides: {}", e.message),
        })?;
        let limits = limits(section)?;
        if let (Some(mode), Some(_)) = (refuses_replicas, &limits.replicas) {
            let node = section.get("accept_ha_samples").unwrap_or(section.node());
            return Err(node.error(format!("accept_ha_samples is not supported {mode}")));
        }
        overrides.insert(tenant, limits);
    }
    Ok(overrides)
}

fn limits(section: ConfigSection<'_>) -> Result<TenantLimits, YamlError> {
    let size = |limit: u64| usize::try_from(limit).unwrap_or(usize::MAX);
    let sizes = |key: &str| count(section, key).map(size);
    let blocked = section
        .get("blocked_queries")
        .filter(|node| !node.is_null());
    let timeout = section.exact_duration("query_timeout");
    let duration = |key: &str| {
        let is_set = section.text_if_set(key).is_some();
        is_set.then(|| section.exact_duration(key))
    };
    let retention = duration("compactor_blocks_retention_period");
    Ok(TenantLimits {
        active_series_max: sizes("max_global_series_per_user"),
        new_series_max: sizes("new_series_limit"),
        rate: rate(section)?,
        labels_max: sizes("max_label_names_per_series"),
        body_bytes_max: body_bytes_max(section)?.map(size),
        query_series_max: sizes("max_fetched_series_per_query"),
        query_samples_max: count(section, "max_samples_per_query"),
        query_timeout: Some(timeout).filter(|timeout| !timeout.is_zero()),
        queries_max: sizes("max_concurrent_queries"),
        blocked_queries: match blocked {
            Some(_) => Some(firn::blocked_queries(section, "blocked_queries")?),
            None => None,
        },
        retention: retention.map(|time| {
            if time.is_zero() {
                time::Duration::MAX
            } else {
                time
            }
        }),
        late_window: duration("out_of_order_time_window"),
        replicas: replicas(section)?,
        attribution: attribution(section)?,
    })
}

/// Returns the limit `key`. Zero means no limit.
fn count(section: ConfigSection<'_>, key: &str) -> Option<u64> {
    section.text_if_set(key)?;
    Some(section.count_if_set(key).unwrap_or(u64::MAX))
}

/// Returns the limit `key`, or its default if it is not set. Zero means no limit.
fn count_or_default(section: ConfigSection<'_>, key: &str) -> usize {
    match count(section, key) {
        Some(max) => usize::try_from(max).unwrap_or(usize::MAX),
        None => section.count(key) as usize,
    }
}

fn rate(section: ConfigSection<'_>) -> Result<Option<IngestionRate>, YamlError> {
    let Some(per_second) = section.number_if_set("ingestion_rate") else {
        return Ok(None);
    };
    if per_second.is_nan() || per_second < 0.0 {
        let node = section.get("ingestion_rate").unwrap_or(section.node());
        let message = format!("ingestion_rate: not a rate: {per_second}");
        return Err(node.error(message));
    }
    Ok(
        (per_second > 0.0 && per_second.is_finite()).then(|| IngestionRate {
            per_second,
            burst: section.count_if_set("ingestion_burst_size"),
        }),
    )
}

/// Returns the maximum size of a body: a number of bytes as in Mimir, or a size with its unit.
fn body_bytes_max(section: ConfigSection<'_>) -> Result<Option<u64>, YamlError> {
    let key = "max_request_body_size";
    let Some(text) = section.text_if_set(key) else {
        return Ok(None);
    };
    let bytes = text.parse::<u64>().ok().or_else(|| parse_size(text).ok());
    match bytes {
        Some(0) => Ok(Some(u64::MAX)),
        Some(bytes) => Ok(Some(bytes)),
        None => {
            let node = section.get(key).unwrap_or(section.node());
            Err(node.error(format!("{key}: not a size: {text:?}")))
        }
    }
}

fn replicas(section: ConfigSection<'_>) -> Result<Option<ReplicaSettings>, YamlError> {
    let cluster_label = section.text_or_default("ha_cluster_label");
    let replica_label = section.text_or_default("ha_replica_label");
    if cluster_label == replica_label {
        let node = section.get("ha_replica_label").unwrap_or(section.node());
        let message = format!("ha_replica_label: {replica_label:?} is also ha_cluster_label");
        return Err(node.error(message));
    }
    let clusters_max = count_or_default(section, "ha_max_clusters");
    Ok(section.flag("accept_ha_samples").then(|| ReplicaSettings {
        cluster_label: cluster_label.to_owned(),
        replica_label: replica_label.to_owned(),
        clusters_max,
    }))
}

/// Returns the label of the cost attribution. Mimir accepts several names separated by commas.
fn attribution(section: ConfigSection<'_>) -> Result<Option<CostAttribution>, YamlError> {
    let key = "cost_attribution_labels";
    let Some(text) = section.text_if_set(key) else {
        return Ok(None);
    };
    let error = |why: String| {
        let node = section.get(key).unwrap_or(section.node());
        Err(node.error(format!("{key}: {why}")))
    };
    let count = text.split(',').count();
    if count > 1 {
        return error(format!("{count} labels, limit 1: {text:?}"));
    }
    let label = text.trim();
    if label.is_empty() {
        return error(format!("not a label: {text:?}"));
    }
    if ATTRIBUTION_FIELDS.contains(&label) {
        return error(format!("{label:?} is also a field of the attribution"));
    }
    Ok(Some(CostAttribution {
        label: label.to_owned(),
        values_max: count_or_default(section, "max_cost_attribution_cardinality"),
    }))
}

/// Applies the limits of a tenant to those of the config, over which they take precedence.
pub(super) fn apply_to_queries(limits: &TenantLimits, config: &mut QueryLimits) {
    if let Some(max) = limits.query_series_max {
        config.series_max = max;
    }
    if let Some(max) = limits.query_samples_max {
        config.samples_max = max;
    }
    if let Some(blocked) = &limits.blocked_queries {
        config.blocked.clone_from(blocked);
    }
    config.timeout = limits.query_timeout;
    config.queries_max = limits.queries_max;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_anonymous(text: &str) -> TenantLimits {
        let overrides = parse(text, None).unwrap();
        TenantLimits::clone(overrides.limits_of(&TenantId::anonymous()))
    }

    fn check_error(text: &str, expected: &str) {
        let e = parse(text, None).unwrap_err();
        assert_eq!(e.to_string(), expected, "{text}");
    }

    #[test]
    fn limits_of_a_tenant_are_read_and_zero_means_no_limit() {
        let limits = parse_anonymous(
            "overrides:\n  anonymous:\n    max_global_series_per_user: 5\n    \
             ingestion_rate: 1.5\n    ingestion_burst_size: 7\n    \
             max_request_body_size: 1MB\n    max_fetched_series_per_query: 0\n    \
             query_timeout: 2m\n    max_concurrent_queries: 3\n    max_samples_per_query: 9\n    \
             blocked_queries: [{pattern: up}]\n    max_label_names_per_series: 4\n    \
             new_series_limit: 8\n    compactor_blocks_retention_period: 1d\n    \
             out_of_order_time_window: 0s\n  other: {max_request_body_size: 10}\n",
        );
        let expected = TenantLimits {
            active_series_max: Some(5),
            new_series_max: Some(8),
            rate: Some(IngestionRate {
                per_second: 1.5,
                burst: Some(7),
            }),
            labels_max: Some(4),
            body_bytes_max: Some(1 << 20),
            query_series_max: Some(usize::MAX),
            query_samples_max: Some(9),
            query_timeout: Some(time::Duration::from_secs(120)),
            queries_max: Some(3),
            blocked_queries: limits.blocked_queries.clone(),
            retention: Some(time::Duration::from_hours(24)),
            late_window: Some(time::Duration::ZERO),
            replicas: None,
            attribution: None,
        };
        assert_eq!(limits, expected);
        let forever = "overrides: {anonymous: {compactor_blocks_retention_period: 0s}}";
        let forever = parse_anonymous(forever).retention;
        assert_eq!(forever, Some(time::Duration::MAX));
        assert_eq!(limits.blocked_queries.unwrap().len(), 1);
        assert_eq!(parse_anonymous(""), TenantLimits::default());
        assert_eq!(parse_anonymous("overrides:\n"), TenantLimits::default());
        let empty = parse_anonymous("overrides: {anonymous: , b: {}}");
        assert_eq!(empty, TenantLimits::default());
    }

    #[test]
    fn replicas_have_the_labels_of_mimir_unless_others_are_set() {
        let read = |keys: &str| {
            let text = format!("overrides: {{anonymous: {{{keys}}}}}");
            let replicas = parse_anonymous(&text).replicas?;
            Some((
                replicas.cluster_label,
                replicas.replica_label,
                replicas.clusters_max,
            ))
        };
        let labels =
            |cluster: &str, replica: &str, max| Some((cluster.to_owned(), replica.to_owned(), max));
        assert_eq!(read("ha_cluster_label: c"), None);
        assert_eq!(
            read("accept_ha_samples: true"),
            labels("cluster", "__replica__", 100)
        );
        assert_eq!(
            read(
                "accept_ha_samples: true, ha_cluster_label: c, ha_replica_label: r, \
                 ha_max_clusters: 2"
            ),
            labels("c", "r", 2)
        );
        assert_eq!(
            read("accept_ha_samples: true, ha_max_clusters: 0"),
            labels("cluster", "__replica__", usize::MAX)
        );
    }

    #[test]
    fn attribution_has_one_label_and_the_cardinality_of_mimir_unless_another_is_set() {
        let read = |keys: &str| {
            let text = format!("overrides: {{anonymous: {{{keys}}}}}");
            let attribution = parse_anonymous(&text).attribution?;
            Some((attribution.label, attribution.values_max))
        };
        let team = |max| Some(("team".to_owned(), max));
        assert_eq!(read("max_cost_attribution_cardinality: 1"), None);
        assert_eq!(read("cost_attribution_labels: ''"), None);
        assert_eq!(read("cost_attribution_labels: team"), team(2_000));
        for (max, expected) in [(3, 3), (0, usize::MAX)] {
            let keys = format!(
                "cost_attribution_labels: ' team', max_cost_attribution_cardinality: {max}"
            );
            assert_eq!(read(&keys), team(expected));
        }
    }

    #[test]
    fn errors_have_the_position_of_the_mistake() {
        for (text, error) in [
            (
                "overrides:\n  anonymous:\n    max_series: 5\n",
                "3:5: unknown key \"max_series\" in overrides.anonymous",
            ),
            ("limits: {}\n", "1:1: unknown key \"limits\" in the config"),
            (
                "overrides:\n  a/b: {}\n",
                "2:3: overrides: tenant id contains an unsupported character: '/'",
            ),
            (
                "overrides: {a: {ingestion_rate: x}}",
                "1:33: overrides.a.ingestion_rate: not a number: \"x\"",
            ),
            (
                "overrides: {a: {ingestion_rate: -1}}",
                "1:33: ingestion_rate: not a rate: -1",
            ),
            (
                "overrides: {a: {max_request_body_size: many}}",
                "1:40: max_request_body_size: not a size: \"many\"",
            ),
            (
                "overrides: {a: {ha_replica_label: cluster}}",
                "1:35: ha_replica_label: \"cluster\" is also ha_cluster_label",
            ),
            (
                "overrides: {a: {cost_attribution_labels: 'team,app'}}",
                "1:42: cost_attribution_labels: 2 labels, limit 1: \"team,app\"",
            ),
            (
                "overrides: {a: {cost_attribution_labels: ' '}}",
                "1:42: cost_attribution_labels: not a label: \" \"",
            ),
            (
                "overrides: {a: {cost_attribution_labels: series}}",
                "1:42: cost_attribution_labels: \"series\" is also a field of the attribution",
            ),
            (
                "overrides: {a: {blocked_queries: [{pattern: '(', regex: true}]}}",
                "1:35: blocked_queries: error parsing regexp: missing closing ): `(`",
            ),
        ] {
            check_error(text, error);
        }
        let text = "overrides: {a: {accept_ha_samples: true}}";
        let e = parse(text, Some("in agent mode")).unwrap_err();
        let message = "1:36: accept_ha_samples is not supported in agent mode";
        assert_eq!(e.to_string(), message);
    }
}

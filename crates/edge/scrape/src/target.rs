//! A scrape target: an address from a discovery, relabelled and validated.
//!
//! ```text
//! address + group's labels + job's defaults -- relabel --> keep, check --> Target
//! ```
//!
//! Follows `scrape/target.go` of Prometheus in semantics, order of checks and error texts.

use super::settings::ScrapeJobSettings;
use firn_discovery::{TargetGroup, check_address};
use firn_http_client::{encode_host, encode_path, form_encode};
use firn_ingest::relabel;
use firn_ingest::targets::ScrapeTarget;
use firn_model::labels::{Labels, LabelsBuilder};
use firn_model::tenant::TenantId;
use firn_model::units::{format_duration, parse_duration};
use std::collections::BTreeMap;
use std::time::Duration;

const ADDRESS: &str = "__address__";
const SCHEME: &str = "__scheme__";
const METRICS_PATH: &str = "__metrics_path__";
const PARAM_PREFIX: &str = "__param_";
const META_PREFIX: &str = "__meta_";
const RESERVED_PREFIX: &str = "__";
const INTERVAL: &str = "__scrape_interval__";
const TIMEOUT: &str = "__scrape_timeout__";
const CONVERT_CLASSIC: &str = "__convert_classic_histograms_to_nhcb__";
const ALWAYS_CLASSIC: &str = "__always_scrape_classic_histograms__";
const TENANT: &str = "__tenant_id__";
const NATIVE: &str = "__scrape_native_histograms__";

/// The result for one address: a valid target, or one that relabelling dropped. Both are shown by
/// the API.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum TargetCandidate {
    /// The address is a target.
    Target(Box<ScrapeTarget>),
    /// Relabelling dropped the address; contains the labels before relabelling.
    Dropped(Labels),
}

/// Creates a target from `address`, which is in `group`; fails if its labels after relabelling are
/// invalid.
pub(super) fn target_from_address(
    job: &ScrapeJobSettings,
    address: &str,
    group: &TargetGroup,
) -> Result<TargetCandidate, String> {
    let labels = labels_before_relabelling(job, address, group);
    let discovered = labels.build();
    Ok(match relabel_and_validate(job, labels, &discovered)? {
        Some((target, _)) => TargetCandidate::Target(Box::new(target)),
        None => TargetCandidate::Dropped(discovered),
    })
}

/// The result for one address, with labels and error, for debugging a configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct CheckedTarget {
    /// Labels before relabelling, including meta labels.
    pub discovered: Labels,
    /// Labels after relabelling, including those used only for scraping; empty if the address was
    /// dropped or rejected.
    pub labels: Labels,
    /// Reason why the address is not a valid target.
    pub error: Option<String>,
}

/// Creates a target from `address`, which is in `group`, for debugging a configuration.
pub fn check_target(job: &ScrapeJobSettings, address: &str, group: &TargetGroup) -> CheckedTarget {
    let labels = labels_before_relabelling(job, address, group);
    let discovered = labels.build();
    let (labels, error) = match relabel_and_validate(job, labels, &discovered) {
        Ok(Some((_, labels))) => (labels, None),
        Ok(None) => (Labels::empty(), None),
        Err(e) => (Labels::empty(), Some(e)),
    };
    CheckedTarget {
        discovered,
        labels,
        error,
    }
}

/// Returns the tenant of a target: that in its label `__tenant_id__`, or `anonymous`.
fn read_tenant(job: &ScrapeJobSettings, labels: &LabelsBuilder) -> Result<TenantId, String> {
    let id = label_text(labels, TENANT)?;
    if id.is_empty() || !job.has_tenants {
        return Ok(TenantId::anonymous());
    }
    TenantId::new(&id).map_err(|e| format!("label {TENANT}: {}", e.message))
}

/// Relabels and validates. Returns the target and all labels except for those with the prefix
/// `__meta_`, or `None` if it is dropped.
fn relabel_and_validate(
    job: &ScrapeJobSettings,
    mut labels: LabelsBuilder,
    discovered: &Labels,
) -> Result<Option<(ScrapeTarget, Labels)>, String> {
    if !relabel::apply_rules(&job.relabel, &mut labels) {
        return Ok(None);
    }
    let address = label_text(&labels, ADDRESS)?;
    if address.is_empty() {
        return Err("no address".into());
    }
    check_address(&address)?;
    let (interval, interval_text) = parse_duration_label(&labels, INTERVAL, "interval")?;
    let (timeout, timeout_text) = parse_duration_label(&labels, TIMEOUT, "timeout")?;
    if timeout > interval {
        return Err(format!(
            "scrape timeout cannot be greater than scrape interval ({timeout_text:?} > \
             {interval_text:?})"
        ));
    }
    let convert_classic = parse_bool_label(
        &labels,
        CONVERT_CLASSIC,
        "convert classic histograms to nhcb",
    )?;
    let always_classic =
        parse_bool_label(&labels, ALWAYS_CLASSIC, "always scrape classic histograms")?;
    let native_histograms = parse_bool_label(&labels, NATIVE, "scrape native histograms")?;
    labels.retain(|name| !name.starts_with(META_PREFIX));
    if labels.get("instance").is_empty() {
        labels.set("instance", address.as_bytes());
    }
    let all = labels.build();
    if let Some((name, value)) = all.iter().find(|(_, v)| std::str::from_utf8(v).is_err()) {
        let value = String::from_utf8_lossy(value);
        return Err(format!("invalid label value for {name:?}: {value:?}"));
    }
    let url = build_url(job, &labels)?;
    let tenant = read_tenant(job, &labels)?;
    labels.retain(|name| !name.starts_with(RESERVED_PREFIX));
    let target = ScrapeTarget {
        tenant,
        labels: labels.build(),
        discovered: discovered.clone(),
        url,
        interval,
        interval_text,
        timeout,
        timeout_text,
        native_histograms: native_histograms.unwrap_or(job.native_histograms),
        always_classic: always_classic.unwrap_or(job.always_classic),
        convert_classic: convert_classic.unwrap_or(job.convert_classic),
    };
    Ok(Some((target, all)))
}

/// Returns the labels of an address before relabelling.
fn labels_before_relabelling(
    job: &ScrapeJobSettings,
    address: &str,
    group: &TargetGroup,
) -> LabelsBuilder {
    let mut labels = LabelsBuilder::default();
    for (name, value) in &group.labels {
        labels.set(name, value.as_bytes());
    }
    labels.set(ADDRESS, address.as_bytes());
    let (interval, timeout) = (format_duration(job.interval), format_duration(job.timeout));
    for (name, value) in [
        ("job", job.name.as_str()),
        (INTERVAL, &interval),
        (TIMEOUT, &timeout),
        (METRICS_PATH, &job.metrics_path),
        (SCHEME, &job.scheme),
        (CONVERT_CLASSIC, format_bool(job.convert_classic)),
        (ALWAYS_CLASSIC, format_bool(job.always_classic)),
        (NATIVE, format_bool(job.native_histograms)),
    ] {
        set_if_empty(&mut labels, name, value);
    }
    for (name, values) in &job.params {
        if let Some(first) = values.first() {
            set_if_empty(&mut labels, &format!("{PARAM_PREFIX}{name}"), first);
        }
    }
    labels
}

fn set_if_empty(labels: &mut LabelsBuilder, name: &str, value: &str) {
    if labels.get(name).is_empty() {
        labels.set(name, value.as_bytes());
    }
}

fn format_bool(value: bool) -> &'static str {
    if value { "true" } else { "false" }
}

fn label_text(labels: &LabelsBuilder, name: &str) -> Result<String, String> {
    let value = labels.get(name).to_vec();
    String::from_utf8(value).map_err(|_| format!("invalid label value for {name:?}"))
}

fn parse_duration_label(
    labels: &LabelsBuilder,
    name: &str,
    what: &str,
) -> Result<(Duration, String), String> {
    let text = label_text(labels, name)?;
    let duration =
        parse_duration(&text).map_err(|e| format!("error parsing scrape {what}: {e}"))?;
    if duration.is_zero() {
        Err(format!("scrape {what} cannot be 0"))
    } else {
        Ok((duration, text))
    }
}

/// Parses a boolean like Go's `strconv.ParseBool`; returns `None` if the label is absent. Fails for
/// any other text.
fn parse_bool_label(
    labels: &LabelsBuilder,
    name: &str,
    what: &str,
) -> Result<Option<bool>, String> {
    let text = label_text(labels, name)?;
    match text.as_str() {
        "" => Ok(None),
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(Some(true)),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(Some(false)),
        _ => Err(format!(
            "error parsing {what}: strconv.ParseBool: parsing {text:?}: invalid syntax"
        )),
    }
}

fn build_url(job: &ScrapeJobSettings, labels: &LabelsBuilder) -> Result<String, String> {
    let mut params: BTreeMap<String, Vec<String>> = job.params.clone();
    for (name, value) in labels.iter() {
        let Some(name) = name.strip_prefix(PARAM_PREFIX) else {
            continue;
        };
        let value = String::from_utf8_lossy(value).into_owned();
        let values = params.entry(name.to_owned()).or_default();
        match values.first_mut() {
            Some(first) => *first = value,
            None => values.push(value),
        }
    }
    let pairs: Vec<String> = params
        .iter()
        .flat_map(|(name, values)| values.iter().map(move |value| (name, value)))
        .map(|(name, value)| format!("{}={}", form_encode(name), form_encode(value)))
        .collect();
    let (scheme, address) = (label_text(labels, SCHEME)?, label_text(labels, ADDRESS)?);
    let address = encode_host(&address);
    let path = label_text(labels, METRICS_PATH)?;
    let path = encode_path(&path);
    let slash = if path.is_empty() || path.starts_with('/') {
        ""
    } else {
        "/"
    };
    let query = if pairs.is_empty() {
        String::new()
    } else {
        format!("?{}", pairs.join("&"))
    };
    Ok(format!("{scheme}://{address}{slash}{path}{query}"))
}

/// Returns the delay from `now_ms` to the first scrape. Targets are spread over their interval
/// by their identity, so that a restart does not move them; `seed` distinguishes servers that
/// scrape the same targets.
pub(super) fn first_scrape_delay(target: &ScrapeTarget, now_ms: i64, seed: u64) -> Duration {
    let interval = target.interval.as_millis().max(1) as u64;
    let labels = target.labels.as_bytes().iter();
    let hash = labels
        .chain(target.url.as_bytes())
        .fold(FNV_BASIS, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(FNV_PRIME)
        });
    let place = (u128::from(mix_bits(hash ^ seed)) * u128::from(interval)) >> 64;
    let since = now_ms.rem_euclid(interval as i64) as u64;
    Duration::from_millis((place as u64 + interval - since) % interval)
}

/// Mixes all bits (the finalizer of SplitMix64): FNV alone hardly changes the high bits when only
/// the last bytes differ.
fn mix_bits(hash: u64) -> u64 {
    let hash = (hash ^ hash >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let hash = (hash ^ hash >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ hash >> 31
}

const FNV_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;

#[cfg(test)]
mod tests {
    use super::*;
    use firn_ingest::relabel::{RelabelAction, RelabelRuleSettings};
    use firn_model::names::NameScheme;
    use std::sync::Arc;

    fn group(labels: &[(&str, &str)]) -> TargetGroup {
        TargetGroup {
            targets: Vec::new(),
            labels: labels
                .iter()
                .map(|(n, v)| ((*n).to_owned(), (*v).to_owned()))
                .collect(),
        }
    }

    fn target(
        job: &ScrapeJobSettings,
        address: &str,
        labels: &[(&str, &str)],
    ) -> Result<ScrapeTarget, String> {
        match target_from_address(job, address, &group(labels))? {
            TargetCandidate::Target(target) => Ok(*target),
            TargetCandidate::Dropped(labels) => Err(format!("dropped {labels}")),
        }
    }

    #[test]
    fn target_gets_defaults_of_its_job_and_a_url() {
        let mut job = ScrapeJobSettings::new("j");
        job.params = [("module".to_owned(), vec!["a b".to_owned(), "c".to_owned()])].into();
        let t = target(
            &job,
            "h:1",
            &[("zone", "x"), ("__param_target", "http://x/")],
        )
        .unwrap();
        assert_eq!(
            t.labels.to_string(),
            r#"{instance="h:1", job="j", zone="x"}"#
        );
        assert_eq!(
            t.url,
            "http://h:1/metrics?module=a+b&module=c&target=http%3A%2F%2Fx%2F"
        );
        assert_eq!(t.discovered.get("__scrape_interval__"), b"1m");
        assert_eq!(t.discovered.get("__param_module"), b"a b");
    }

    #[test]
    fn host_is_escaped_in_the_url_and_not_in_the_instance() {
        let job = ScrapeJobSettings::new("j");
        for (address, want) in [
            ("Device 1", "http://Device%201/metrics"),
            ("x|y^z:1", "http://x%7Cy%5Ez:1/metrics"),
            ("x\"<y>:1", "http://x\"<y>:1/metrics"),
            ("Z\u{fc}rich", "http://Z%C3%BCrich/metrics"),
            ("user@x:1", "http://user%40x:1/metrics"),
            ("[fe80::1%eth0]:1", "http://[fe80::1%eth0]:1/metrics"),
        ] {
            let target = target(&job, address, &[]).unwrap();
            assert_eq!(target.url, want);
            assert_eq!(target.labels.get("instance"), address.as_bytes());
        }
    }

    #[test]
    fn target_is_what_relabelling_makes_of_it() {
        let mut job = ScrapeJobSettings::new("j");
        let rule = |source: &str, target: &str| {
            let rule = RelabelRuleSettings {
                source_labels: Some(vec![source.to_owned()]),
                target_label: target.to_owned(),
                ..RelabelRuleSettings::default()
            };
            rule.compile(NameScheme::Utf8).unwrap()
        };
        job.relabel = Arc::new(vec![
            rule("__address__", "__param_target"),
            rule("__meta_port", "__address__"),
            rule("__meta_path", "__metrics_path__"),
            rule("__meta_interval", "__scrape_interval__"),
            rule("__meta_interval", "__scrape_timeout__"),
        ]);
        let meta = [
            ("__meta_port", "h:2"),
            ("__meta_path", "probe"),
            ("__meta_interval", "5s"),
        ];
        let t = target(&job, "site", &meta).unwrap();
        assert_eq!(t.url, "http://h:2/probe?target=site");
        assert_eq!(t.interval, Duration::from_secs(5));
        assert_eq!(t.labels.to_string(), r#"{instance="h:2", job="j"}"#);
    }

    #[test]
    fn target_has_the_tenant_of_its_label_where_there_are_tenants() {
        let mut job = ScrapeJobSettings::new("j");
        let tenant = |job: &ScrapeJobSettings, id| {
            let target = target(job, "h:1", &[("__tenant_id__", id)])?;
            assert_eq!(target.labels.to_string(), r#"{instance="h:1", job="j"}"#);
            Ok::<_, String>(target.tenant.as_str().to_owned())
        };
        for (has_tenants, id, want) in [
            (false, "a", Ok("anonymous")),
            (false, "a/b", Ok("anonymous")),
            (true, "a", Ok("a")),
            (true, "", Ok("anonymous")),
            (
                true,
                "..",
                Err("label __tenant_id__: tenant id is not allowed: \"..\""),
            ),
        ] {
            job.has_tenants = has_tenants;
            let found = tenant(&job, id);
            let found = found.as_deref().map_err(String::as_str);
            assert_eq!(found, want, "{has_tenants} {id}");
        }
    }

    #[test]
    fn target_that_cannot_be_one_says_why() {
        let job = ScrapeJobSettings::new("j");
        for (address, labels, want) in [
            ("", &[][..], "no address"),
            ("http://x", &[], "\"http://x\" is not a valid hostname"),
            (
                "x",
                &[("__scrape_interval__", "y")],
                "error parsing scrape interval: not a valid duration string: \"y\"",
            ),
            (
                "x",
                &[("__scrape_timeout__", "0s")],
                "scrape timeout cannot be 0",
            ),
            (
                "x",
                &[("__scrape_interval__", "5s")],
                "scrape timeout cannot be greater than scrape interval (\"10s\" > \"5s\")",
            ),
            (
                "x",
                &[("__scrape_native_histograms__", "maybe")],
                "error parsing scrape native histograms: strconv.ParseBool: parsing \"maybe\": \
                 invalid syntax",
            ),
        ] {
            assert_eq!(target(&job, address, labels).unwrap_err(), want);
        }
        let mut job = ScrapeJobSettings::new("j");
        let drop = RelabelRuleSettings {
            action: RelabelAction::Drop,
            ..RelabelRuleSettings::default()
        };
        job.relabel = Arc::new(vec![drop.compile(NameScheme::Utf8).unwrap()]);
        let e = target(&job, "x", &[]).unwrap_err();
        assert!(e.starts_with("dropped {__address__=\"x\", "), "{e}");
    }

    #[test]
    fn offset_spreads_targets_evenly_and_does_not_depend_on_now() {
        let job = ScrapeJobSettings::new("j");
        let mut counts = [0; 6];
        for i in 0..600 {
            let t = target(&job, &format!("host-{i}:9100"), &[]).unwrap();
            let at = |now: i64| {
                (now as u64 + first_scrape_delay(&t, now, 7).as_millis() as u64) % 60_000
            };
            assert_eq!(at(0), at(123_457));
            counts[(at(0) / 10_000) as usize] += 1;
        }
        assert!(counts.iter().all(|c| (60..=140).contains(c)), "{counts:?}");
    }
}

//! `/api/v1/targets`, `/api/v1/scrape_pools` and `/api/v1/targets/relabel_steps`: scrape targets
//! and their relabelling.
//!
//! Fields, their order and errors follow upstream (`web/api/v1/api.go`). A target whose last
//! successful scrape lost samples has an additional field, `lastWarning`.

use super::call::ApiCall;
use super::status::{ok_response, run_and_respond};
use super::times::format_rfc3339;
use crate::http::failure::ApiFailure;
use crate::parts::AppParts;
use axum::response::Response;
use firn_ingest::relabel::{self, RelabelRule, RelabelStep};
use firn_ingest::targets::{ActiveTarget, ScrapePoolView};
use firn_model::labels::Labels;
use firn_model::quote::quote;
use firn_model::tenant::TenantId;
use firn_yaml::YamlNode;
use serde::Serialize;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Go's zero time in milliseconds: the start of the year 1.
const NEVER_MS: i64 = -62_135_596_800_000;

/// Host names of the local machine, which are replaced in URLs of targets.
const LOCALHOSTS: [&str; 3] = ["127.0.0.1", "localhost", "[::1]"];

/// A label set in the form that is serialized as a JSON object.
pub(crate) type LabelMap = BTreeMap<String, String>;

/// Converts `labels` to a map for JSON. Invalid UTF-8 becomes the replacement character.
pub(crate) fn label_map(labels: &Labels) -> LabelMap {
    let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
    let pairs = labels.iter();
    pairs.map(|(n, v)| (n.to_owned(), text(v))).collect()
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ScrapePoolsDocument {
    scrape_pools: Vec<String>,
}

/// Returns the names of all scrape pools, sorted.
pub(crate) async fn scrape_pools(call: ApiCall) -> Result<Response, ApiFailure> {
    let views = (call.backend.scrape_pools)();
    let names = views.iter().map(|view| view.name().to_owned());
    let scrape_pools = names.collect();
    ok_response(&call, &ScrapePoolsDocument { scrape_pools })
}

/// Returns the section of a scrape pool in the running configuration as YAML.
pub(crate) async fn scrape_pool_config(call: ApiCall) -> Result<Response, ApiFailure> {
    let name = call.form.get("scrapePool");
    if name.is_empty() {
        return Err(ApiFailure::bad_data("no scrapePool parameter provided"));
    }
    let config = (call.app.parts.config)();
    let section = section_of(&config, name).ok_or_else(|| {
        let name = quote(name.as_bytes());
        let why = format!("error retrieving scrape config: scrape pool {name} not found");
        ApiFailure::bad_data(why)
    })?;
    ok_response(&call, &json!({ "yaml": section }))
}

/// Returns the section of the job `name` in a configuration; `None` if there is none.
fn section_of(config: &str, name: &str) -> Option<String> {
    let root = firn_yaml::parse(config).ok()??;
    let mut jobs = root.get("scrape_configs")?.items().iter();
    let is_it = |job: &&YamlNode| job.get("job_name").and_then(YamlNode::text) == Some(name);
    Some(firn_yaml::print(jobs.find(is_it)?))
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct TargetsDocument {
    active_targets: Vec<ActiveTargetDocument>,
    dropped_targets: Vec<DroppedTargetDocument>,
    dropped_target_counts: Option<BTreeMap<String, usize>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ActiveTargetDocument {
    discovered_labels: LabelMap,
    labels: LabelMap,
    scrape_pool: String,
    scrape_url: String,
    global_url: String,
    last_error: String,
    last_scrape: String,
    last_scrape_duration: f64,
    health: &'static str,
    scrape_interval: String,
    scrape_timeout: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    last_warning: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct DroppedTargetDocument {
    discovered_labels: LabelMap,
    scrape_pool: String,
}

/// Returns the active and dropped targets of all scrape pools or of one.
pub(crate) async fn targets(call: ApiCall) -> Result<Response, ApiFailure> {
    let pool = call.form.get("scrapePool").to_owned();
    let state = call.form.get("state").to_lowercase();
    let shows = |what: &str| matches!(state.as_str(), "" | "any") || state == what;
    let (shows_active, shows_dropped) = (shows("active"), shows("dropped"));
    let views = (call.backend.scrape_pools)();
    let (app, tenants) = (call.app.clone(), call.tenant.members());
    // Jobs, and so the targets that they drop, are those of the operator.
    let is_of_operator = call.has_tenant(&TenantId::anonymous());
    let shows_dropped = shows_dropped && is_of_operator;
    // There may be many thousands of targets, so they are encoded in the query queue.
    run_and_respond(&call, move |_| {
        let outside = PublicServerAddress::new(&app.parts);
        let is_wanted = |view: &&Arc<ScrapePoolView>| pool.is_empty() || view.name() == pool;
        let mut targets = TargetsDocument {
            active_targets: Vec::new(),
            dropped_targets: Vec::new(),
            dropped_target_counts: shows_dropped.then(|| dropped_counts(&views)),
        };
        for view in views.iter().filter(is_wanted) {
            if shows_active {
                let mut active = view.active_targets();
                active.retain(|active| tenants.contains(&active.target.tenant));
                let documents = active.iter().map(|t| active_document(t, view, &outside));
                targets.active_targets.extend(documents);
            }
            if shows_dropped {
                let dropped = view.dropped_targets();
                let documents = dropped.iter().map(|labels| DroppedTargetDocument {
                    discovered_labels: label_map(labels),
                    scrape_pool: view.name().to_owned(),
                });
                targets.dropped_targets.extend(documents);
            }
        }
        Ok(targets)
    })
    .await
}

fn dropped_counts(views: &[Arc<ScrapePoolView>]) -> BTreeMap<String, usize> {
    let counts = views.iter();
    counts
        .map(|view| (view.name().to_owned(), view.dropped_count()))
        .collect()
}

fn active_document(
    active: &ActiveTarget,
    view: &ScrapePoolView,
    outside: &PublicServerAddress,
) -> ActiveTargetDocument {
    let (target, last) = (&active.target, active.status.last_scrape());
    ActiveTargetDocument {
        discovered_labels: label_map(&target.discovered),
        labels: label_map(&target.labels),
        scrape_pool: view.name().to_owned(),
        scrape_url: target.url.clone(),
        global_url: outside.url(&target.url),
        last_error: last.error,
        last_scrape: format_rfc3339(last.time.unwrap_or(NEVER_MS)),
        last_scrape_duration: last.duration.as_secs_f64(),
        health: last.health.as_str(),
        scrape_interval: target.interval_text.clone(),
        scrape_timeout: target.timeout_text.clone(),
        last_warning: last.warning,
    }
}

/// Public address of this machine and server, used to make URLs of local targets reachable for
/// users.
struct PublicServerAddress {
    /// Scheme and authority of the external URL, if one is configured.
    origin: Option<String>,
    hostname: String,
    /// Port on which this server listens.
    port: String,
}

impl PublicServerAddress {
    fn new(parts: &AppParts) -> Self {
        let listen = parts.flags.get("web.listen-address");
        let port = listen.and_then(|address| address.rsplit_once(':'));
        Self {
            origin: parts.web.external_origin.clone(),
            hostname: (parts.runtime)().hostname,
            port: port.map_or_else(String::new, |(_, port)| port.to_owned()),
        }
    }

    /// Returns the URL of a target with local host names replaced by one that is reachable from
    /// other machines.
    fn url(&self, url: &str) -> String {
        let Some((scheme, rest)) = url.split_once("://") else {
            return url.to_owned();
        };
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        let (host, port) = split_port(authority);
        if !LOCALHOSTS.contains(&host) {
            return url.to_owned();
        }
        let is_itself = port.is_some_and(|port| port == self.port);
        match &self.origin {
            Some(origin) if is_itself => format!("{origin}{path}"),
            origin => {
                let authority = origin.as_deref().and_then(|o| o.split_once("://"));
                let host = authority.map_or(self.hostname.as_str(), |(_, a)| split_port(a).0);
                let colon = if port.is_some() { ":" } else { "" };
                format!("{scheme}://{host}{colon}{}{path}", port.unwrap_or_default())
            }
        }
    }
}

/// Splits an authority into host and port. An IPv6 address keeps its brackets.
fn split_port(authority: &str) -> (&str, Option<&str>) {
    match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (authority, None),
    }
}

/// Response of `/targets/relabel_steps`: the result of each rule, in order.
#[derive(Serialize)]
pub(super) struct RelabelStepsDocument {
    steps: Vec<RelabelStepDocument>,
}

impl RelabelStepsDocument {
    /// Creates the document from rules and the steps of [`relabel::trace_rules`].
    pub(super) fn new<'r>(steps: impl IntoIterator<Item = (&'r RelabelRule, RelabelStep)>) -> Self {
        let document = |(rule, step): (&RelabelRule, RelabelStep)| RelabelStepDocument {
            rule: rule.into(),
            output: label_map(&step.output),
            keep: step.is_kept,
        };
        Self {
            steps: steps.into_iter().map(document).collect(),
        }
    }
}

#[derive(Serialize)]
struct RelabelStepDocument {
    rule: RelabelRuleDocument,
    output: LabelMap,
    keep: bool,
}

#[derive(Serialize)]
struct RelabelRuleDocument {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    source_labels: Vec<String>,
    separator: String,
    regex: String,
    #[serde(skip_serializing_if = "is_zero")]
    modulus: u64,
    #[serde(skip_serializing_if = "String::is_empty")]
    target_label: String,
    replacement: String,
    action: &'static str,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl From<&RelabelRule> for RelabelRuleDocument {
    fn from(rule: &RelabelRule) -> Self {
        let settings = rule.settings();
        Self {
            source_labels: settings.source_labels().to_vec(),
            separator: settings.separator().to_owned(),
            regex: settings.regex().to_owned(),
            modulus: settings.modulus,
            target_label: settings.target_label.clone(),
            replacement: settings.replacement().to_owned(),
            action: settings.action.as_str(),
        }
    }
}

/// Returns the label set after each relabelling rule of a scrape pool.
pub(crate) async fn relabel_steps(call: ApiCall) -> Result<Response, ApiFailure> {
    let pool = call.form.get("scrapePool");
    if pool.is_empty() {
        return Err(ApiFailure::bad_data("no scrapePool parameter provided"));
    }
    let text = call.form.get("labels");
    if text.is_empty() {
        return Err(ApiFailure::bad_data("no labels parameter provided"));
    }
    let (pool, text) = (pool.to_owned(), text.to_owned());
    let views = (call.backend.scrape_pools)();
    run_and_respond(&call, move |_| {
        let labels: LabelMap = serde_json::from_str(&text)
            .map_err(|e| ApiFailure::bad_data(format!("error parsing labels: {e}")))?;
        let Some(view) = views.iter().find(|view| view.name() == pool) else {
            return Err(ApiFailure::bad_data(format!(
                "error retrieving scrape config: scrape pool {pool:?} not found"
            )));
        };
        let rules = view.relabel_rules();
        let labels = Labels::from_pairs(labels);
        let steps = relabel::trace_rules(&rules, &labels);
        Ok(RelabelStepsDocument::new(rules.iter().zip(steps)))
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_of_this_machine_is_one_that_others_reach() {
        let outside = |origin: Option<&str>| PublicServerAddress {
            origin: origin.map(str::to_owned),
            hostname: "box".into(),
            port: "9090".into(),
        };
        let known = Some("https://metrics.example.org:8443");
        for (origin, url, want) in [
            (None, "http://other:1/m", "http://other:1/m"),
            (None, "http://localhost:9090/m", "http://box:9090/m"),
            (None, "http://[::1]:9100/m?a=b", "http://box:9100/m?a=b"),
            (None, "http://127.0.0.1/m", "http://box/m"),
            (
                known,
                "http://localhost:9090/m",
                "https://metrics.example.org:8443/m",
            ),
            (
                known,
                "http://localhost:9100/m",
                "http://metrics.example.org:9100/m",
            ),
        ] {
            assert_eq!(outside(origin).url(url), want, "{url}");
        }
    }
}

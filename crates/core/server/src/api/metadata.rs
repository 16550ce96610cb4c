//! `/api/v1/metadata` and `/api/v1/targets/metadata`: type, help and unit of metrics, as exposed by
//! targets and pushed by senders.

use super::call::ApiCall;
use super::form::parse_integer;
use super::status::run_and_respond;
use super::targets::{LabelMap, label_map};
use crate::http::failure::ApiFailure;
use axum::response::Response;
use firn_ingest::metadata::FamilyMetadata;
use firn_ingest::targets::{ActiveTarget, ScrapePoolView};
use firn_model::labels::Labels;
use firn_model::matcher::Matcher;
use firn_model::store::MetadataRequest;
use firn_model::tenant::TenantId;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Metadata of one metric from one target. The metric name is omitted if the request selects one.
#[derive(Serialize)]
struct TargetMetadataDocument {
    target: LabelMap,
    #[serde(skip_serializing_if = "String::is_empty")]
    metric: String,
    #[serde(flatten)]
    metadata: TargetMetadataFields,
}

#[derive(Serialize)]
struct TargetMetadataFields {
    r#type: &'static str,
    help: String,
    unit: String,
}

/// Metadata of a metric without its target, with the fields in upstream's order.
#[derive(Serialize)]
struct MetricMetadataDocument {
    r#type: &'static str,
    unit: String,
    help: String,
}

impl From<&FamilyMetadata> for MetricMetadataDocument {
    fn from(metadata: &FamilyMetadata) -> Self {
        Self {
            r#type: metadata.kind,
            unit: metadata.unit.clone(),
            help: metadata.help.clone(),
        }
    }
}

impl From<&FamilyMetadata> for TargetMetadataFields {
    fn from(metadata: &FamilyMetadata) -> Self {
        Self {
            r#type: metadata.kind,
            help: metadata.help.clone(),
            unit: metadata.unit.clone(),
        }
    }
}

/// Parses an optional limit. A negative one means no limit.
fn limit(call: &ApiCall, name: &str) -> Result<Option<usize>, ApiFailure> {
    match call.form.get(name) {
        "" => Ok(None),
        text => {
            let number = parse_integer(text)
                .map_err(|_| ApiFailure::bad_data(format!("{name} must be a number")))?;
            Ok(usize::try_from(number).ok())
        }
    }
}

/// Returns the targets whose samples belong to one of `tenants`.
fn active(
    views: &[Arc<ScrapePoolView>],
    tenants: &[TenantId],
) -> impl Iterator<Item = ActiveTarget> {
    let all = views.iter().flat_map(|view| view.active_targets());
    all.filter(|active| tenants.contains(&active.target.tenant))
}

/// Returns metadata by target, filtered by target labels and metric name.
pub(crate) async fn by_target(call: ApiCall) -> Result<Response, ApiFailure> {
    let limit = limit(&call, "limit")?.unwrap_or(usize::MAX);
    let selector = call.form.get("match_target").to_owned();
    let metric = call.form.get("metric").to_owned();
    let engine = call.app.parts.engine.clone();
    let (views, tenants) = ((call.backend.scrape_pools)(), call.tenant.members());
    run_and_respond(&call, move |run| {
        let (budget, cancel) = (run.budget(), run.cancel());
        let mut memory = budget.create_reservation();
        let matchers = match selector.as_str() {
            "" => Vec::new(),
            selector => engine
                .selector(selector, &mut memory)
                .map_err(|e| ApiFailure::from_parser(e, Some("match_target")))?,
        };
        for matcher in &matchers {
            matcher.bind(budget, cancel);
            matcher.prepare().map_err(ApiFailure::execution)?;
        }
        let mut found = Vec::new();
        for active in active(&views, &tenants) {
            if !all_match(&matchers, &active.target.labels) {
                continue;
            }
            // As in upstream, the limit is only checked between targets.
            if found.len() >= limit {
                break;
            }
            cancel.check().map_err(ApiFailure::execution)?;
            let mut add = |name: &str, metadata: &FamilyMetadata| {
                found.push(TargetMetadataDocument {
                    target: label_map(&active.target.labels),
                    metric: name.to_owned(),
                    metadata: metadata.into(),
                });
            };
            match metric.as_str() {
                "" => active.status.for_each_metadata(add),
                metric => {
                    if let Some(metadata) = active.status.find_metadata(metric) {
                        add("", &metadata);
                    }
                }
            }
        }
        for matcher in &matchers {
            matcher.prepare().map_err(ApiFailure::execution)?;
        }
        Ok(found)
    })
    .await
}

fn all_match(matchers: &[Matcher], labels: &Labels) -> bool {
    let mut matchers = matchers.iter();
    matchers.all(|matcher| matcher.matches(labels.get(matcher.name())))
}

/// Returns the metadata of each metric from the first target that exposes it, or else from a push.
pub(super) fn first_of_each_metric(call: &ApiCall) -> BTreeMap<String, FamilyMetadata> {
    let mut found = BTreeMap::new();
    let mut add = |name: &str, metadata: &FamilyMetadata| {
        if !found.contains_key(name) {
            found.insert(name.to_owned(), metadata.clone());
        }
    };
    let tenants = call.tenant.members();
    for active in active(&(call.backend.scrape_pools)(), &tenants) {
        active.status.for_each_metadata(&mut add);
    }
    let pushed = call.backend.pipeline.metadata();
    for tenant in &tenants {
        pushed.for_each_family(tenant, &mut add);
    }
    found
}

/// Returns metadata by metric: distinct entries of all targets and pushes, and those of blocks for
/// all other metrics.
pub(crate) async fn by_metric(call: ApiCall) -> Result<Response, ApiFailure> {
    let limit = limit(&call, "limit")?.unwrap_or(usize::MAX);
    let per_metric = limit_per_metric(&call)?;
    let metric = call.form.get("metric").to_owned();
    let views = (call.backend.scrape_pools)();
    let (pushed, tenant) = (
        call.backend.pipeline.metadata().clone(),
        call.tenant.clone(),
    );
    let store = call.backend.store.clone();
    run_and_respond(&call, move |run| {
        let (budget, cancel) = (run.budget(), run.cancel());
        let mut found: BTreeMap<String, BTreeSet<FamilyMetadata>> = BTreeMap::new();
        let mut add = |name: &str, metadata: &FamilyMetadata| {
            let known = found.entry(name.to_owned()).or_default();
            if known.len() < per_metric {
                known.insert(metadata.clone());
            }
        };
        for active in active(&views, &tenant.members()) {
            cancel.check().map_err(ApiFailure::execution)?;
            match metric.as_str() {
                "" => active.status.for_each_metadata(&mut add),
                metric => {
                    if let Some(metadata) = active.status.find_metadata(metric) {
                        add(metric, &metadata);
                    }
                }
            }
        }
        match metric.as_str() {
            "" => pushed.for_each_family(&tenant, &mut add),
            metric => {
                if let Some(metadata) = pushed.find_family(&tenant, metric) {
                    add(metric, &metadata);
                }
            }
        }
        // Blocks may contain metadata of metrics that no target or push currently has.
        let request = MetadataRequest {
            tenant: &tenant,
            metric: (!metric.is_empty()).then_some(metric.as_str()),
            cancel,
            budget,
        };
        for said in store
            .metadata(request)
            .map_err(ApiFailure::execution)?
            .iter()
        {
            if !found.contains_key(said.name) {
                found.insert(said.name.to_owned(), BTreeSet::from([said.into()]));
            }
        }
        let documents =
            |set: BTreeSet<FamilyMetadata>| set.iter().map(MetricMetadataDocument::from).collect();
        let found = found.into_iter().take(limit);
        Ok(found
            .map(|(name, set)| (name, documents(set)))
            .collect::<BTreeMap<String, Vec<MetricMetadataDocument>>>())
    })
    .await
}

/// Parses the maximum number of entries per metric; zero means no limit, as in upstream.
fn limit_per_metric(call: &ApiCall) -> Result<usize, ApiFailure> {
    let limit = limit(call, "limit_per_metric")?;
    Ok(limit.filter(|limit| *limit > 0).unwrap_or(usize::MAX))
}

//! `/api/v1/status/discards`: recently rejected samples, by reason, sender and job.

use super::call::ApiCall;
use super::status::run_and_respond;
use crate::http::failure::ApiFailure;
use axum::response::Response;
use firn_ingest::{DiscardEntry, SampleSender};
use firn_model::tenant::TenantId;
use serde_json::{Value, json};

/// Returns the recent rejections of the tenant, newest first, each with an example and the number
/// of samples.
pub(crate) async fn discards(call: ApiCall) -> Result<Response, ApiFailure> {
    let pipeline = call.backend.pipeline.clone();
    let mut all = pipeline.discards();
    all.retain(|discard| match &discard.sender {
        SampleSender::Push { tenant, .. } => call.has_tenant(tenant),
        // Jobs, rules and aggregation are those of the operator.
        _ => call.has_tenant(&TenantId::anonymous()),
    });
    run_and_respond(&call, move |_| {
        Ok(all.iter().map(shown).collect::<Vec<Value>>())
    })
    .await
}

fn shown(discard: &DiscardEntry) -> Value {
    let labels = discard.labels.iter().map(|(name, value)| {
        let value = String::from_utf8_lossy(value).into_owned();
        (name.to_owned(), Value::from(value))
    });
    let labels: serde_json::Map<String, Value> = labels.collect();
    let mut shown = json!({
        "reason": discard.reason.as_str(),
        "sender": sender(&discard.sender),
        "job": discard.job,
        "samples": discard.samples,
        "writes": discard.writes,
        "first": discard.first as f64 / 1e3,
        "last": discard.last as f64 / 1e3,
        "example": discard.example,
        "labels": labels,
    });
    if let SampleSender::Job(job) = &discard.sender {
        // For scrapes the job is taken from the sender, whatever labels the sample has.
        shown["job"] = job.as_ref().into();
    }
    shown
}

fn sender(sender: &SampleSender) -> Value {
    match sender {
        SampleSender::Job(job) => json!({"kind": "scrape", "job": &**job}),
        SampleSender::Rules(group) => json!({"kind": "rules", "group": &**group}),
        SampleSender::Aggregation => json!({"kind": "aggregation"}),
        SampleSender::Push { tenant, address } => json!({
            "kind": "push",
            "tenant": tenant.as_str(),
            "address": address.map(|address| address.to_string()),
        }),
    }
}

//! `/api/v1/status/discards`: recently rejected samples, by reason, sender and job.

use super::call::Call;
use super::status::computed;
use crate::http::failure::Failure;
use axum::response::Response;
use firn_ingest::{Discard, Sender};
use serde_json::{Value, json};

/// Returns the recent rejections, newest first, each with an example and the number of samples.
pub(crate) async fn discards(call: Call) -> Result<Response, Failure> {
    let pipeline = call.backend.pipeline.clone();
    computed(&call, move |_| {
        let all = pipeline.discards();
        Ok(all.iter().map(shown).collect::<Vec<Value>>())
    })
    .await
}

fn shown(discard: &Discard) -> Value {
    let mut shown = json!({
        "reason": discard.reason.as_str(),
        "sender": sender(&discard.sender),
        "job": discard.job,
        "samples": discard.samples,
        "writes": discard.writes,
        "first": discard.first as f64 / 1e3,
        "last": discard.last as f64 / 1e3,
        "example": discard.example,
    });
    if let Sender::Job(job) = &discard.sender {
        // For scrapes the job is taken from the sender, whatever labels the sample has.
        shown["job"] = job.as_ref().into();
    }
    shown
}

fn sender(sender: &Sender) -> Value {
    match sender {
        Sender::Job(job) => json!({"kind": "scrape", "job": &**job}),
        Sender::Rules(group) => json!({"kind": "rules", "group": &**group}),
        Sender::Aggregation => json!({"kind": "aggregation"}),
        Sender::Push { tenant, address } => json!({
            "kind": "push",
            "tenant": tenant.as_str(),
            "address": address.map(|address| address.to_string()),
        }),
    }
}

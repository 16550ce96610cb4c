//! Tests of responses about damaged samples, on the in-process router with the real store and query
//! engine.

// Test helpers may panic like tests.
#![allow(clippy::unwrap_used)]

mod support;

use firn_model::batch::Batch;
use firn_model::env::sim::{self, SimEnv};
use firn_model::labels::Labels;
use firn_model::store::{Append, AppendBounds};
use firn_model::tenant::TenantId;
use firn_server::engine::PromqlEngine;
use firn_storage::store::{Store, StoreOptions};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use support::{Fixture, get, send};

const DAY: i64 = 86_400_000;

/// Returns options with which pages are never moved into blocks.
fn uncut() -> StoreOptions {
    StoreOptions {
        cut_ms: 1_000 * 3_600_000,
        ..StoreOptions::new("/data")
    }
}

/// Creates a store with one segment of pages for each of two days and stops it. Returns the
/// segments.
fn two_days(sim: &SimEnv) -> Vec<PathBuf> {
    for day in 0..2 {
        let store = Store::open(sim.env.clone(), uncut()).unwrap();
        let mut batch = Batch::default();
        for name in ["a", "b"] {
            let samples: Vec<(i64, f64)> = (0..10).map(|i| (day * DAY + i * 1_000, 1.5)).collect();
            let labels = Labels::from_pairs([("__name__", name)]);
            batch.push_series(labels.as_ref(), &samples);
        }
        let bounds = AppendBounds::up_to(i64::MAX);
        let ticket = store.append(&TenantId::anonymous(), &batch, bounds);
        ticket.wait().unwrap();
        store.close().unwrap();
    }
    let dir = Path::new("/data/pages");
    let names = sim.env.disk.list(dir).unwrap();
    names.iter().map(|name| dir.join(name)).collect()
}

async fn body(fixture: &Fixture, path: &str) -> Value {
    let reply = send(fixture, get(path)).await;
    assert_eq!(reply.status, 200, "{path}: {}", reply.body);
    serde_json::from_str(&reply.body).unwrap()
}

#[tokio::test]
async fn query_over_a_damaged_page_answers_with_a_warning_and_status_lists_it() {
    let sim = sim::sim_env(1);
    let segments = two_days(&sim);
    let mut bytes = sim.disk.contents(&segments[0]).unwrap();
    let page = bytes.windows(8).position(|w| w == b"FIRNPAGE").unwrap();
    bytes[page + 20] ^= 1;
    sim.disk.overwrite(&segments[0], &bytes);
    let fixture = Fixture::starting(|parts| parts.engine = Arc::new(PromqlEngine));
    fixture.open_with(Store::open(sim.env.clone(), uncut()).unwrap());

    let tsdb = body(&fixture, "/api/v1/status/tsdb").await;
    assert_eq!(tsdb["data"]["damages"], Value::Null);
    let text = format!(
        "damage: {} is damaged at offset {page}: malformed bytes: page header fails its checksum; \
         it contained samples of 2 series, from 0 to 9000 ms",
        segments[0].display()
    );
    let instant = body(
        &fixture,
        "/api/v1/query?query=count_over_time(a[1h])&time=60",
    )
    .await;
    assert_eq!(instant["warnings"], json!([text]));
    assert_eq!(instant["data"]["result"], json!([]));
    // Both selections lack the page, and the warning appears once.
    let both = "/api/v1/query_range?query=sum(count_over_time(a[2d]))%2Bsum(count_over_time(b[2d]))\
                &start=86410&end=86410&step=1";
    let range = body(&fixture, both).await;
    assert_eq!(range["warnings"], json!([text]));
    let values = json!([[86410, "20"]]);
    assert_eq!(range["data"]["result"][0]["values"], values);
    let newer = body(
        &fixture,
        "/api/v1/query?query=count_over_time(a[1h])&time=86410",
    )
    .await;
    assert_eq!(newer["warnings"], Value::Null);
    assert_eq!(newer["data"]["result"][0]["value"], json!([86410, "10"]));

    let tsdb = body(&fixture, "/api/v1/status/tsdb").await;
    let damage = json!({
        "kind": "pages",
        "file": segments[0],
        "offset": page,
        "what": "malformed bytes: page header fails its checksum; it contained samples of 2 series",
        "from": 0,
        "to": 9_000,
    });
    assert_eq!(tsdb["data"]["damages"], json!([damage]));
}

#[tokio::test]
async fn look_up_over_what_is_lost_answers_with_a_warning() {
    let fixture = Fixture::ready(|_| {});
    for path in ["series?match[]=up&", "labels?", "label/job/values?"] {
        let lacks = body(&fixture, &format!("/api/v1/{path}start=7")).await;
        let text = "damage: \"<file>\" is damaged";
        assert_eq!(lacks["warnings"], json!([text]), "{path}");
        assert_ne!(lacks["data"], json!([]), "{path}");
        let whole = body(&fixture, &format!("/api/v1/{path}start=8")).await;
        assert_eq!(whole["warnings"], Value::Null, "{path}");
    }
}

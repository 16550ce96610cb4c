//! Tests of the lists of queries that run or have ended, of the end of a query by an administrator,
//! and of queries that are refused, on the in-process router.

// Test helpers may panic like tests.
#![allow(clippy::unwrap_used)]

mod support;

use axum::body::Body;
use axum::http::Request;
use firn_model::query_limits::{BlockedQuery, QueryLimits};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use support::{Fixture, get, post, send};

const ACTIVE: &str = "/api/v1/status/active_queries";

fn delete(path: &str) -> Request<Body> {
    Request::delete(path).body(Body::empty()).unwrap()
}

/// Returns `data` of a successful response.
async fn data(fixture: &Fixture, path: &str) -> Value {
    let reply = send(fixture, get(path)).await;
    assert_eq!(reply.status, 200, "{path}: {}", reply.body);
    let document: Value = serde_json::from_str(&reply.body).unwrap();
    document["data"].clone()
}

/// Waits until the active queries have these names and phases, and returns their numbers.
async fn wait_active(fixture: &Fixture, wanted: &[(&str, &str)]) -> Vec<u64> {
    let deadline = std::time::Instant::now() + Duration::from_secs(10);
    loop {
        let listed = data(fixture, ACTIVE).await["queries"].take();
        let listed = listed.as_array().unwrap();
        let named = |query: &Value, (name, phase): &(&str, &str)| {
            query["queryId"] == **name && query["phase"] == **phase
        };
        if listed.len() == wanted.len() && listed.iter().zip(wanted).all(|(q, w)| named(q, w)) {
            return listed.iter().map(|q| q["id"].as_u64().unwrap()).collect();
        }
        assert!(std::time::Instant::now() < deadline, "{listed:#?}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

const ENDED: &str = concat!(
    r#"{"status":"error","errorType":"canceled","#,
    r#""error":"query was canceled: an administrator ended it"}"#
);

#[tokio::test]
async fn query_that_waits_and_one_that_runs_are_listed_and_end_by_their_ids() {
    let fixture = Fixture::ready(|parts| parts.limits.queries_max = 1);
    let running = send(
        &fixture,
        get("/api/v1/query?query=block&query_id=a.1:b_c-2"),
    );
    let waiting = send(&fixture, get("/api/v1/series?match[]=up&query_id=second"));
    let operator = async {
        let both = [("a.1:b_c-2", "evaluate"), ("second", "wait")];
        let ids = wait_active(&fixture, &both).await;
        let listed = data(&fixture, ACTIVE).await["queries"][0].take();
        let wanted = [
            ("query", json!("block")),
            ("handler", json!("query")),
            ("tenant", json!("anonymous")),
            ("client", json!("")),
            ("samples", json!(0)),
        ];
        for (key, value) in wanted {
            assert_eq!(listed[key], value, "{key}: {listed}");
        }
        assert!(listed["ageSeconds"].as_f64().unwrap() > 0.0, "{listed}");
        assert!(listed["bytes"].is_u64(), "{listed}");
        for id in ids.into_iter().rev() {
            let reply = send(&fixture, delete(&format!("{ACTIVE}/{id}"))).await;
            assert_eq!(reply.status, 200, "{}", reply.body);
        }
    };
    let (running, waiting, ()) = tokio::join!(running, waiting, operator);
    for ended in [running, waiting] {
        assert_eq!((ended.status, ended.body.as_str()), (503, ENDED));
    }
    wait_active(&fixture, &[]).await;
    assert_eq!(fixture.engine.blocked.load(Ordering::SeqCst), 0);
    let metrics = send(&fixture, get("/metrics")).await.body;
    assert!(metrics.contains("firn_server_queries_ended_total 2\n"));
    for id in ["1", "999", "x", "-1", "18446744073709551616"] {
        let reply = send(&fixture, delete(&format!("{ACTIVE}/{id}"))).await;
        let text = format!(r#""errorType":"not_found","error":"no active query \"{id}\"""#);
        assert_eq!(reply.status, 404);
        assert!(reply.body.contains(&text), "{}", reply.body);
    }
}

#[tokio::test]
async fn query_id_beyond_its_length_or_characters_is_refused() {
    let fixture = Fixture::ready(|_| {});
    let long = "x".repeat(129);
    for (id, why) in [
        (long.as_str(), "129 bytes, limit 128"),
        ("a%20b", "expected letters, digits"),
        ("%C3%A9", "expected letters, digits"),
    ] {
        let path = format!("/api/v1/query?query=1&query_id={id}");
        let reply = send(&fixture, get(&path)).await;
        assert_eq!(reply.status, 400, "{id}");
        assert!(reply.body.contains(why), "{}", reply.body);
    }
    let path = format!("/api/v1/query?query=1&query_id={}", &long[1..]);
    assert_eq!(send(&fixture, get(&path)).await.status, 200);
}

#[tokio::test]
async fn queries_that_ended_are_in_the_history_and_the_top_lists() {
    let fixture = Fixture::ready(|_| {});
    for path in [
        "/api/v1/query?query=1",
        "/api/v1/query?query=vector+2",
        "/api/v1/query?query=1",
        "/api/v1/labels?match[]=up",
        "/api/v1/status/tsdb",
    ] {
        assert_eq!(send(&fixture, get(path)).await.status, 200, "{path}");
    }
    let history = data(&fixture, "/api/v1/status/query_history").await;
    let queries = history["queries"].as_array().unwrap().clone();
    let texts: Vec<&str> = queries
        .iter()
        .map(|q| q["query"].as_str().unwrap())
        .collect();
    assert_eq!(texts, ["up", "1", "vector 2", "1"]);
    for key in ["tenant", "client", "startedAt"] {
        assert!(queries[0][key].is_string(), "{key}: {history}");
    }
    assert!(queries[0]["durationSeconds"].as_f64().unwrap() > 0.0);
    let found = data(&fixture, "/api/v1/status/query_history?search=vec&limit=1").await;
    assert_eq!(found["queries"].as_array().unwrap().len(), 1);
    assert_eq!(found["queries"][0], queries[2]);

    let top = data(&fixture, "/api/v1/status/top_queries?topN=2").await;
    assert_eq!(top["topByCount"][0]["query"], "1");
    assert_eq!(top["topByCount"][0]["count"], 2);
    for list in ["topByCount", "topByAvgDuration", "topBySumDuration"] {
        let list = top[list].as_array().unwrap();
        assert_eq!(list.len(), 2, "{top}");
        for query in list {
            let number = |key: &str| query[key].as_f64().unwrap();
            let mean = number("sumDurationSeconds") / number("count");
            assert!(
                (number("avgDurationSeconds") - mean).abs() < 1e-8,
                "{query}"
            );
        }
    }
    for path in [
        "/api/v1/status/top_queries?topN=0",
        "/api/v1/status/top_queries?topN=1001",
        "/api/v1/status/query_history?limit=x",
    ] {
        let reply = send(&fixture, get(path)).await;
        assert_eq!(reply.status, 400, "{path}");
        assert!(reply.body.contains("expected 1 to "), "{}", reply.body);
    }
}

#[tokio::test]
async fn blocked_query_and_one_over_too_long_a_time_are_refused_before_they_start() {
    let limits = QueryLimits {
        range_max: Some(Duration::from_secs(60)),
        blocked: vec![
            BlockedQuery::new("sum(up)", false, "use the rule").unwrap(),
            BlockedQuery::new("rate.*", true, "").unwrap(),
        ],
        ..QueryLimits::default()
    };
    let limits = Arc::new(limits);
    let fixture = Fixture::ready(|parts| parts.query.limits = Arc::new(move |_| limits.clone()));
    let blocked = "the request has been blocked by the cluster administrator";
    let with_reason = format!("{blocked}: use the rule");
    for (query, why) in [
        ("sum(up)", with_reason.as_str()),
        ("%0Asum(%20up%20)", &with_reason),
        ("rate(x[5m])", blocked),
    ] {
        for path in [
            format!("/api/v1/query?query={query}"),
            format!("/api/v1/query_range?query={query}&start=0&end=60&step=1"),
        ] {
            let reply = send(&fixture, get(&path)).await;
            let body = format!(r#"{{"status":"error","errorType":"bad_data","error":"{why}"}}"#);
            assert_eq!((reply.status, reply.body), (400, body), "{path}");
        }
    }
    let long = "query=1&start=0&end=61&step=1";
    let reply = send(&fixture, post("/api/v1/query_range", long)).await;
    assert_eq!(reply.status, 400);
    let why = "the total query time range exceeds the limit (query length: 1m1s, limit: 1m0s)";
    assert!(reply.body.contains(why), "{}", reply.body);
    assert!(fixture.engine.asked.lock().unwrap().is_empty());
    for path in [
        "/api/v1/query?query=sum(down)",
        "/api/v1/query?query=irate(x[5m])",
        "/api/v1/query_range?query=1&start=0&end=60&step=1",
    ] {
        assert_eq!(send(&fixture, get(path)).await.status, 200, "{path}");
    }
    let metrics = send(&fixture, get("/metrics")).await.body;
    assert!(metrics.contains("firn_server_queries_blocked_total 6\n"));
}

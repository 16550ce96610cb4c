//! Tests of the status and the drain of a node of a cluster on the in-process router.

// Test helpers may panic like tests.
#![allow(clippy::unwrap_used)]

mod support;

use axum::body::Body;
use axum::http::Request;
use firn_model::cluster_status::{
    ClusterStatus, MemberState, MemberStatus, PartitionPhase, PartitionStatus,
};
use firn_model::error::{Error, ErrorKind};
use firn_server::parts::{AppParts, ClusterControl};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use support::{Fixture, get, send};

const PATH: &str = "/api/v1/status/cluster";

/// A state with each optional field once present and once absent.
fn status(is_draining: bool) -> ClusterStatus {
    let member = |name: &str, state, seen_ago| MemberStatus {
        name: name.to_owned(),
        address: "10.0.0.1:9190".to_owned(),
        version: "0.1.0".to_owned(),
        state,
        seen_ago,
        partitions_led: 1,
    };
    let led = PartitionStatus {
        partition: 0,
        leader: Some("a".to_owned()),
        epoch: 3,
        state: PartitionPhase::Leading,
        position: 42,
        series: Some(7),
        cut_ms: Some(1_800_000),
        last_commit_ms: Some(1_900_000),
        log_bytes: Some(4_096),
        fault: Some("<full>".to_owned()),
    };
    let unowned = PartitionStatus {
        partition: 1,
        leader: None,
        epoch: 0,
        state: PartitionPhase::Unowned,
        position: 0,
        series: None,
        cut_ms: None,
        last_commit_ms: None,
        log_bytes: None,
        fault: None,
    };
    ClusterStatus {
        cluster: "0f".to_owned(),
        node: "a".to_owned(),
        version: "0.1.0".to_owned(),
        is_draining,
        fault: Some("no format".to_owned()),
        partitions: vec![led, unowned],
        nodes: vec![
            member("a", MemberState::Alive, None),
            member("b", MemberState::Silent, Some(Duration::from_millis(1_500))),
        ],
    }
}

/// Returns the change that makes the server a node. A drain fails while `fails` is true.
fn node(fails: bool) -> impl FnOnce(&mut AppParts) {
    move |parts| {
        let is_draining = Arc::new(Mutex::new(false));
        let seen = is_draining.clone();
        parts.cluster = Some(ClusterControl {
            status: Arc::new(move || status(*seen.lock().unwrap())),
            drain: Arc::new(move |on| {
                if fails {
                    return Err(Error::new(ErrorKind::Unavailable, "the bucket is away"));
                }
                *is_draining.lock().unwrap() = on;
                Ok(())
            }),
        });
    }
}

fn request(method: &str, path: &str, origin: Option<&str>) -> Request<Body> {
    let mut request = Request::builder().method(method).uri(path);
    request = request.header("host", "firn:9090");
    if let Some(origin) = origin {
        request = request.header("origin", origin);
    }
    request.body(Body::empty()).unwrap()
}

#[tokio::test]
async fn single_server_reports_that_it_is_in_no_cluster() {
    let fixture = Fixture::ready(|_| {});
    let reply = send(&fixture, get(PATH)).await;
    let want = r#"{"status":"success","data":{"enabled":false}}"#;
    assert_eq!((reply.status, reply.body.as_str()), (200, want));
    assert!(!send(&fixture, get("/")).await.body.contains(">Cluster<"));
}

#[tokio::test]
async fn node_that_is_starting_reports_nodes_and_partitions() {
    let fixture = Fixture::starting(node(false));
    let reply = send(&fixture, get(PATH)).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    let mut document: serde_json::Value = serde_json::from_str(&reply.body).unwrap();
    let time = document["data"].as_object_mut().unwrap().remove("time");
    assert!(time.unwrap().as_i64().unwrap() > 0);
    let want = serde_json::json!({ "status": "success", "data": {
        "enabled": true, "cluster": "0f", "node": "a", "version": "0.1.0", "draining": false,
        "fault": "no format",
        "nodes": [
            { "name": "a", "address": "10.0.0.1:9190", "version": "0.1.0", "state": "alive",
              "partitionsLed": 1 },
            { "name": "b", "address": "10.0.0.1:9190", "version": "0.1.0", "state": "silent",
              "seenSecondsAgo": 1.5, "partitionsLed": 1 },
        ],
        "partitions": [
            { "partition": 0, "leader": "a", "epoch": 3, "state": "leading", "position": 42,
              "series": 7, "cutTime": 1_800_000,
              "lastCommitTime": 1_900_000, "logBytes": 4_096, "fault": "<full>" },
            { "partition": 1, "epoch": 0, "state": "unowned", "position": 0 },
        ],
    }});
    assert_eq!(document, want);
    assert!(reply.body.contains(r#""fault":"\u003cfull\u003e""#));
    let page = send(&fixture, get("/")).await;
    assert!(
        page.body
            .contains(r#"<meta name="firn:cluster" content="node">"#)
    );
}

#[tokio::test]
async fn drain_needs_post_the_switch_an_own_page_and_a_cluster() {
    let draining = concat!(
        "Draining: this node hands off its partitions and takes over none until ",
        "POST /-/undrain.\n"
    );
    let undrained = "Not draining: this node takes over partitions again.\n";
    let only_post = "Only POST or PUT requests allowed";
    let foreign = "origin is not allowed to change state: \"http://evil.example\"\n";
    let evil = Some("http://evil.example");
    let own = Some("http://firn:9090");
    let cases = [
        ("GET", "/-/drain", None, 405, only_post, false),
        ("GET", "/-/undrain", None, 405, only_post, false),
        ("POST", "/-/drain", evil, 403, foreign, false),
        ("POST", "/-/drain", own, 200, draining, true),
        ("PUT", "/-/drain", None, 200, draining, true),
        ("POST", "/-/undrain", evil, 403, foreign, true),
        ("POST", "/-/undrain", None, 200, undrained, false),
    ];
    let fixture = Fixture::starting(node(false));
    for (method, path, origin, status, body, is_draining) in cases {
        let reply = send(&fixture, request(method, path, origin)).await;
        let found = (reply.status, reply.body.as_str());
        assert_eq!(found, (status, body), "{method} {path}");
        let document = send(&fixture, get(PATH)).await.body;
        let field = format!(r#""draining":{is_draining},"#);
        assert!(document.contains(&field), "{method} {path}: {document}");
    }
}

#[tokio::test]
async fn drain_that_is_impossible_gives_the_reason() {
    let locked = |parts: &mut AppParts| {
        node(false)(parts);
        parts.lifecycle = None;
    };
    let single = "this server is not a node of a cluster: firn.cluster is not set\n";
    let cases = [
        (Fixture::ready(|_| {}), 404, single),
        (
            Fixture::ready(locked),
            403,
            "Lifecycle API is not enabled.\n",
        ),
        (Fixture::ready(node(true)), 503, "the bucket is away\n"),
    ];
    for (fixture, status, body) in cases {
        for path in ["/-/drain", "/-/undrain"] {
            let reply = send(&fixture, request("POST", path, None)).await;
            assert_eq!((reply.status, reply.body.as_str()), (status, body));
        }
    }
}

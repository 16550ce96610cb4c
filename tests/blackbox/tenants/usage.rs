//! `user_stats`, `user_limits` and `all_user_stats`: usage and limits of each tenant.

use super::TenantServer;
use super::limits::start;
use crate::harness::http::Http;
use crate::harness::server::{Server, wait_for};
use crate::harness::write::{Series, body};
use crate::now_ms;
use serde_json::{Value, json};

/// Pushes a sample of each series `n` of a team; an empty one is no label.
fn push(http: &Http, team: &str, series: std::ops::Range<usize>, time: i64) {
    let one = |number: usize| {
        let number = number.to_string();
        let mut labels = vec![("__name__", "m"), ("n", number.as_str())];
        if !team.is_empty() {
            labels.push(("team", team));
        }
        Series::new(&labels, &[(time, 1.0)])
    };
    let answer = http.write(&body(&series.map(one).collect::<Vec<Series>>()));
    assert_eq!(answer.status, 204, "{}", answer.body);
}

fn get(http: &Http, path: &str) -> Value {
    let answer = http.get(path);
    assert_eq!(answer.status, 200, "{path}: {}", answer.body);
    answer.json()
}

/// Compares value, series and samples of each entry of `attribution`.
fn check_attribution(stats: &Value, expected: &[(&str, u64, u64)]) {
    let rows = stats["attribution"].as_array().unwrap().iter();
    let rows: Vec<_> = rows
        .map(|row| {
            let number = |key: &str| row[key].as_u64().unwrap();
            let team = row["team"].as_str().unwrap();
            (team, number("series"), number("samples"))
        })
        .collect();
    assert_eq!(rows, expected, "{stats}");
}

#[test]
fn usage_is_that_of_the_tenant_and_divided_by_its_label() {
    let tenants = start(
        "overrides: {a: {cost_attribution_labels: team, max_cost_attribution_cardinality: 2}}\n",
    );
    let (a, b, now) = (tenants.http("a"), tenants.http("b"), now_ms());
    push(&a, "x", 0..3, now);
    push(&a, "x", 0..3, now + 1);
    push(&a, "y", 0..2, now);
    push(&a, "z", 0..1, now);
    push(&a, "", 0..2, now);
    push(&b, "x", 0..4, now);
    a.query("m", now);
    tenants.http("a|b").query("m", now);
    let stats = get(&a, "/api/v1/user_stats");
    assert_eq!(stats["numSeries"], 8, "{stats}");
    assert_eq!(stats["samples"], 11, "{stats}");
    assert_eq!(stats["queries"], 2, "{stats}");
    for rate in ["ingestionRate", "APIIngestionRate", "RuleIngestionRate"] {
        assert!(stats[rate].is_f64(), "{stats}");
    }
    let expected = [
        ("x", 3, 6),
        ("y", 2, 2),
        ("__missing__", 2, 2),
        ("__overflow__", 1, 1),
    ];
    check_attribution(&stats, &expected);
    let rows = stats["attribution"].as_array().unwrap().iter();
    let bytes: u64 = rows.map(|row| row["bytes"].as_u64().unwrap()).sum();
    assert!(bytes > 11 * 16, "{stats}");
    assert_eq!(stats["bytes"], bytes, "{stats}");
    let stats = get(&b, "/api/v1/user_stats");
    assert_eq!(stats["numSeries"], 4, "{stats}");
    assert_eq!(stats["samples"], 4, "{stats}");
    assert_eq!(stats["queries"], 1, "{stats}");
    assert_eq!(stats["attribution"], json!([]), "{stats}");
    let unknown = get(&tenants.http("c"), "/api/v1/user_stats");
    for field in ["numSeries", "samples", "bytes", "queries"] {
        assert_eq!(unknown[field], 0, "{unknown}");
    }
    let metrics = tenants.server.http().get("/metrics").body;
    for line in [
        "firn_tenant_samples_total{tenant=\"a\"} 11\n",
        "firn_tenant_samples_total{tenant=\"b\"} 4\n",
        "firn_tenant_queries_total{tenant=\"a\"} 2\n",
        "firn_tenant_attributed_samples_total{label=\"team\",tenant=\"a\",value=\"x\"} 6\n",
    ] {
        assert!(metrics.contains(line), "{line} {metrics}");
    }
    let all = get(&tenants.server.http(), "/distributor/all_user_stats");
    let all = all.as_array().unwrap().iter();
    let series: Vec<_> = all
        .map(|one| (one["userID"].as_str().unwrap(), one["numSeries"].clone()))
        .collect();
    let expected = [("a", json!(8)), ("b", json!(4)), ("anonymous", json!(0))];
    assert_eq!(series, expected);
    // The counts start with the process, the series are those of the store.
    let tenants = tenants.kill_and_restart();
    let stats = get(&tenants.http("a"), "/api/v1/user_stats");
    let expected = [
        ("x", 3, 0),
        ("y", 2, 0),
        ("__missing__", 2, 0),
        ("__overflow__", 1, 0),
    ];
    check_attribution(&stats, &expected);
    assert_eq!(stats["samples"], 0, "{stats}");
}

#[test]
fn limits_are_those_of_the_overrides_after_each_reload() {
    let tenants = start(
        "overrides:\n  a:\n    ingestion_rate: 10\n    ingestion_burst_size: 50\n    \
         max_global_series_per_user: 5\n    max_fetched_series_per_query: 6\n    \
         max_samples_per_query: 7\n    query_timeout: 90s\n    max_concurrent_queries: 8\n    \
         max_request_body_size: 1MB\n    new_series_limit: 9\n    \
         max_label_names_per_series: 11\n    compactor_blocks_retention_period: 1d\n    \
         out_of_order_time_window: 2h\n    cost_attribution_labels: team\n",
    );
    let (a, b) = (tenants.http("a"), tenants.http("b"));
    let limits = get(&a, "/api/v1/user_limits");
    for (key, value) in [
        ("ingestion_rate", json!(10.0)),
        ("ingestion_burst_size", json!(50)),
        ("max_global_series_per_user", json!(5)),
        ("max_global_series_per_metric", json!(0)),
        ("max_global_exemplars_per_user", json!(0)),
        ("max_fetched_chunks_per_query", json!(0)),
        ("max_fetched_series_per_query", json!(6)),
        ("max_fetched_chunk_bytes_per_query", json!(0)),
        ("ruler_max_rules_per_rule_group", json!(0)),
        ("ruler_max_rule_groups_per_tenant", json!(0)),
        ("max_samples_per_query", json!(7)),
        ("query_timeout", json!("1m30s")),
        ("max_concurrent_queries", json!(8)),
        ("max_request_body_size", json!(1 << 20)),
        ("new_series_limit", json!(9)),
        ("max_label_names_per_series", json!(11)),
        ("compactor_blocks_retention_period", json!("1d")),
        ("compactor_blocks_retention_period_seconds", json!(86_400)),
        ("out_of_order_time_window", json!("2h")),
        ("cost_attribution_labels", json!("team")),
        ("max_cost_attribution_cardinality", json!(2_000)),
    ] {
        assert_eq!(limits[key], value, "{key}: {limits}");
    }
    let others = get(&b, "/api/v1/user_limits");
    assert_eq!(others["ingestion_rate"], 0.0, "{others}");
    assert_eq!(others["query_timeout"], "2m", "{others}");
    assert_eq!(
        others["compactor_blocks_retention_period"], "15d",
        "{others}"
    );
    let reload = |overrides: &str| {
        std::fs::write(tenants.folder.path().join("overrides.yml"), overrides).unwrap();
        let answer = tenants.server.http().post("/-/reload", &[]);
        (answer.status, answer.body)
    };
    let (status, why) = reload("overrides: {a: {cost_attribution_labels: 'team,app'}}\n");
    assert_eq!(status, 500, "{why}");
    let place = "overrides.yml:1:42: cost_attribution_labels: 2 labels, limit 1: \"team,app\"";
    assert!(why.contains(place), "{why}");
    assert_eq!(get(&a, "/api/v1/user_limits"), limits);
    let (status, why) = reload("overrides: {b: {ingestion_rate: 1}}\n");
    assert_eq!(status, 200, "{why}");
    wait_for("the new limits", || {
        get(&b, "/api/v1/user_limits")["ingestion_rate"] == 1.0
    });
    let reset = get(&a, "/api/v1/user_limits");
    assert_eq!(reset["ingestion_rate"], 0.0, "{reset}");
}

#[test]
fn usage_of_a_tenant_needs_its_credential() {
    let token =
        |name: &str, rest: &str| format!("{{name: {name}, token: token-of-the-{name}, {rest}}}");
    let tokens = [
        token("operator", "scopes: [read]"),
        token("writer", "scopes: [write]"),
        token("team", "scopes: [read, write, admin], tenants: [a, b]"),
        token("part", "scopes: [read], match: '{n=\"1\"}'"),
    ];
    let access = format!("access: {{tokens: [{}]}}", tokens.join(", "));
    let tenants = TenantServer::start(&access, "");
    for (name, tenant, path, status) in [
        ("operator", "a", "/api/v1/user_stats", 200),
        ("operator", "a", "/api/v1/user_limits", 200),
        ("operator", "", "/distributor/all_user_stats", 200),
        ("operator", "", "/api/v1/user_stats", 401),
        ("operator", "", "/api/v1/user_limits", 401),
        ("operator", "a|b", "/api/v1/user_stats", 400),
        ("operator", "a|b", "/api/v1/user_limits", 400),
        ("writer", "a", "/api/v1/user_stats", 403),
        ("team", "a", "/api/v1/user_stats", 200),
        ("team", "b", "/api/v1/user_limits", 200),
        ("team", "c", "/api/v1/user_stats", 403),
        ("team", "c", "/api/v1/user_limits", 403),
        ("team", "a", "/distributor/all_user_stats", 403),
        ("part", "a", "/api/v1/user_stats", 403),
    ] {
        let authorization = format!("Bearer token-of-the-{name}");
        let http = tenants.server.http();
        let http = http.with_header("Authorization", &authorization);
        let http = if tenant.is_empty() {
            http
        } else {
            http.of_tenant(tenant)
        };
        let answer = http.get(path);
        assert_eq!(
            answer.status, status,
            "{name} {tenant} {path}: {}",
            answer.body
        );
    }
}

#[test]
fn server_without_multitenancy_has_the_usage_of_the_tenant_anonymous() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("firn.yml");
    std::fs::write(&config, "firn: {}\n").unwrap();
    let flags = ["--config", config.to_str().unwrap()];
    let server = Server::start(&folder.path().join("data"), &flags);
    let (http, now) = (server.http(), now_ms());
    push(&http, "x", 0..3, now);
    http.query("m", now);
    let stats = get(&http, "/api/v1/user_stats");
    for (field, count) in [("numSeries", 3), ("samples", 3), ("queries", 1)] {
        assert_eq!(stats[field], count, "{stats}");
    }
    let limits = get(&http, "/api/v1/user_limits");
    assert_eq!(limits["max_global_series_per_user"], 0, "{limits}");
    let all = get(&http, "/distributor/all_user_stats");
    assert_eq!(all[0]["userID"], "anonymous", "{all}");
    assert!(!http.get("/metrics").body.contains("firn_tenant_"));
}

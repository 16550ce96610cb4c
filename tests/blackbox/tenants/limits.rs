//! Limits of `firn.overrides` with multitenancy: each tenant has its own, and a query of several
//! tenants those of each.

use super::{TenantServer, store};
use crate::harness::http::Http;
use crate::harness::server::wait_for;
use crate::harness::write::{Series, body};
use crate::now_ms;

/// Starts a server with this file of overrides.
pub fn start(overrides: &str) -> TenantServer {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("overrides.yml"), overrides).unwrap();
    TenantServer::start_in(folder, "overrides: overrides.yml", "")
}

/// Pushes a sample of `count` series. Returns the status and the body of the answer.
fn push(http: &Http, count: usize, time: i64) -> (u16, String) {
    let series = (0..count).map(|number| {
        let number = number.to_string();
        Series::new(&[("__name__", "m"), ("n", &number)], &[(time, 1.0)])
    });
    let answer = http.write(&body(&series.collect::<Vec<Series>>()));
    (answer.status, answer.body)
}

#[test]
fn series_are_limited_for_their_tenant_alone_and_after_a_reload() {
    let tenants = start("overrides: {a: {max_global_series_per_user: 3}}\n");
    let (a, b, now) = (tenants.http("a"), tenants.http("b"), now_ms());
    assert_eq!(push(&a, 3, now).0, 204);
    let (status, why) = push(&a, 4, now + 1);
    assert_eq!(status, 400);
    let limit = "too many active series: limit 3 (max_global_series_per_user)";
    assert!(why.contains(limit), "{why}");
    assert_eq!(push(&b, 4, now).0, 204);
    let reload = |overrides: &str| {
        std::fs::write(tenants.folder.path().join("overrides.yml"), overrides).unwrap();
        let answer = tenants.server.http().post("/-/reload", &[]);
        (answer.status, answer.body)
    };
    // A file with a mistake leaves the limits of all tenants in force.
    let (status, why) = reload("overrides: {a: {max_series: 3}, b: {ingestion_rate: 1}}\n");
    assert_eq!(status, 500, "{why}");
    assert!(why.contains("overrides.yml:1:17"), "{why}");
    assert_eq!(push(&a, 4, now + 2).0, 400);
    assert_eq!(push(&b, 4, now + 2).0, 204);
    let (status, why) = reload("overrides: {b: {max_global_series_per_user: 4}}\n");
    assert_eq!(status, 200, "{why}");
    wait_for("the new limits", || push(&a, 4, now + 3).0 == 204);
    assert_eq!(push(&b, 5, now + 3).0, 400);
    // The limit of a store that is opened later is the current one.
    let tenants = tenants.kill_and_restart();
    assert_eq!(push(&tenants.http("b"), 5, now + 4).0, 400);
    assert_eq!(push(&tenants.http("a"), 5, now + 4).0, 204);
}

#[test]
fn rate_and_body_size_are_limited_for_their_tenant_alone() {
    let tenants = start(
        "overrides:\n  a: {ingestion_rate: 10, ingestion_burst_size: 50}\n  \
         b: {max_request_body_size: 1000}\n",
    );
    let (a, b, now) = (tenants.http("a"), tenants.http("b"), now_ms());
    assert_eq!(push(&a, 50, now).0, 204);
    assert_eq!(push(&b, 50, now).0, 204);
    let series = [Series::new(&[("__name__", "x")], &[(now, 1.0)])];
    let burst: Vec<u8> = body(&vec![series; 50].concat());
    let refused = a.write(&burst);
    assert_eq!(refused.status, 429, "{}", refused.body);
    let seconds: u32 = refused.header("retry-after").parse().unwrap();
    assert!((1..=5).contains(&seconds), "{seconds}");
    assert!(
        refused
            .body
            .contains("limit 10 samples per second (ingestion_rate)")
    );
    assert_eq!(push(&b, 50, now + 1).0, 204);
    let large = b.send("/api/v1/write", &[], &[0; 1001]);
    assert_eq!(large.status, 413, "{}", large.body);
    assert!(large.body.contains("limit 1000 (max_request_body_size)"));
    let large = tenants.http("c").send("/api/v1/write", &[], &[0; 1001]);
    assert_eq!(large.status, 400, "{}", large.body);
}

#[test]
fn query_of_several_tenants_is_held_to_the_limits_of_each() {
    let tenants = start(
        "overrides:\n  a: {max_fetched_series_per_query: 2}\n  \
         b: {max_samples_per_query: 3, blocked_queries: [{pattern: sum(m)}]}\n",
    );
    let now = now_ms();
    for tenant in ["a", "b", "c"] {
        for n in ["1", "2", "3"] {
            for age in [2, 1, 0] {
                store(&tenants.http(tenant), "m", n, now - 1000 * age, 1.0);
            }
        }
    }
    let series = "limit 2 (max_fetched_series_per_query)";
    let samples = "limit 3 (max_samples_per_query)";
    let blocked = "blocked by the cluster administrator";
    for (tenant, query, status, expected) in [
        ("a", "m", 422, series),
        ("b", "m", 200, "success"),
        ("a|b", "m", 422, series),
        ("a", "m{n='1'}[1m]", 200, "success"),
        ("b", "m[1m]", 422, samples),
        ("b|c", "m[1m]", 422, samples),
        ("c", "m[1m]", 200, "success"),
        ("a", "sum(m{n='1'})", 200, "success"),
        ("b", "sum(m)", 400, blocked),
        ("c|b", "sum(m)", 400, blocked),
        ("c", "sum(m)", 200, "success"),
    ] {
        let answer = tenants
            .http(tenant)
            .post("/api/v1/query", &[("query", query)]);
        assert_eq!(answer.status, status, "{tenant} {query}: {}", answer.body);
        let body = &answer.body;
        assert!(body.contains(expected), "{tenant} {query}: {body}");
    }
}

#[test]
fn retention_and_late_window_are_those_of_the_tenant() {
    let tenants = start(
        "overrides:\n  a: {compactor_blocks_retention_period: 1h}\n  \
         b: {out_of_order_time_window: 2h}\n",
    );
    let (now, hour) = (now_ms(), 3_600_000);
    for (tenant, kept, late_status) in [("a", 0, 400), ("b", 1, 204), ("c", 1, 400)] {
        let http = tenants.http(tenant);
        store(&http, "m", "1", now - 3 * hour, 1.0);
        store(&http, "m", "1", now, 1.0);
        let old = http.query("m", now - 3 * hour);
        assert_eq!(old.as_array().unwrap().len(), kept, "{tenant}: {old}");
        let late = [("__name__", "m"), ("n", "1")];
        let late = http.write(&body(&[Series::new(&late, &[(now - 3 * hour / 2, 1.0)])]));
        assert_eq!(late.status, late_status, "{tenant}: {}", late.body);
    }
}

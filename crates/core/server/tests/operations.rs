//! Tests of the web UI, health, metrics, lifecycle, tenants and limits on the in-process router.

// Test helpers may panic like tests.
#![allow(clippy::unwrap_used)]

mod support;

use axum::body::Body;
use axum::http::Request;
use support::{Fixture, get, post, send};

#[tokio::test]
async fn server_whose_disk_fails_is_healthy_but_not_ready() {
    let fixture = Fixture::ready(|_| {});
    assert_eq!(send(&fixture, get("/-/ready")).await.status, 200);
    *fixture.log.fault.lock().unwrap() = Some("sync segment: input/output error".to_owned());
    let reply = send(&fixture, get("/-/ready")).await;
    let expected = "Firn does not accept writes: sync segment: input/output error\n";
    assert_eq!((reply.status, reply.body.as_str()), (503, expected));
    assert_eq!(send(&fixture, get("/-/healthy")).await.status, 200);
}

#[tokio::test]
async fn server_that_is_starting_is_healthy_but_not_ready() {
    let fixture = Fixture::starting(|_| {});
    for path in [
        "/-/ready",
        "/api/v1/query?query=1",
        "/api/v1/status/buildinfo",
    ] {
        let reply = send(&fixture, get(path)).await;
        assert_eq!(
            (reply.status, reply.body.as_str()),
            (503, "Service Unavailable"),
            "{path}"
        );
        assert_eq!(reply.header("x-prometheus-stopping"), "false");
    }
    assert_eq!(
        send(&fixture, get("/-/healthy")).await.body,
        "Firn is Healthy.\n"
    );
    assert_eq!(send(&fixture, get("/metrics")).await.status, 200);
    assert_eq!(send(&fixture, get("/")).await.status, 200);
    fixture.open();
    assert_eq!(
        send(&fixture, get("/-/ready")).await.body,
        "Firn is Ready.\n"
    );
    fixture.app.stop();
    let stopping = send(&fixture, get("/-/ready")).await;
    assert_eq!(
        (stopping.status, stopping.header("x-prometheus-stopping")),
        (503, "true")
    );
}

#[tokio::test]
async fn lifecycle_needs_post_the_switch_and_an_own_page() {
    let fixture = Fixture::ready(|_| {});
    let request = |method: &str, path: &str, origin: &str| {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "firn:9090");
        let request = if origin.is_empty() {
            request
        } else {
            request.header("origin", origin)
        };
        request.body(Body::empty()).unwrap()
    };
    let cases = [
        (
            "GET",
            "/-/quit",
            "",
            405,
            "Only POST or PUT requests allowed",
        ),
        (
            "GET",
            "/-/reload",
            "",
            405,
            "Only POST or PUT requests allowed",
        ),
        (
            "POST",
            "/-/quit",
            "http://evil.example",
            403,
            "origin is not allowed to change state: \"http://evil.example\"\n",
        ),
        (
            "PUT",
            "/-/reload",
            "",
            500,
            "failed to reload config: line 3: <bad>\n",
        ),
        (
            "POST",
            "/-/quit",
            "http://firn:9090",
            200,
            "Requesting termination... Goodbye!",
        ),
        (
            "PUT",
            "/-/quit",
            "",
            200,
            "Termination already in progress.",
        ),
    ];
    for (method, path, origin, status, body) in cases {
        let reply = send(&fixture, request(method, path, origin)).await;
        assert_eq!(
            (reply.status, reply.body.as_str()),
            (status, body),
            "{method} {path}"
        );
    }
    let locked = Fixture::ready(|parts| parts.lifecycle = None);
    let reply = send(&locked, request("POST", "/-/quit", "")).await;
    assert_eq!(
        (reply.status, reply.body.as_str()),
        (403, "Lifecycle API is not enabled.\n")
    );
}

#[tokio::test]
async fn tenant_header_counts_only_with_multitenancy() {
    let request = |tenant: Option<&str>| {
        let request = Request::get("/api/v1/labels");
        let request = match tenant {
            Some(tenant) => request.header("X-Scope-OrgID", tenant),
            None => request,
        };
        request.body(Body::empty()).unwrap()
    };
    let cases = [
        (false, None, 200),
        (false, Some("a/b"), 200),
        (true, None, 401),
        (true, Some("a/b"), 400),
        (true, Some(".."), 400),
        (true, Some("team-a"), 200),
    ];
    for (multitenancy, tenant, status) in cases {
        let fixture = Fixture::ready(|parts| parts.multitenancy = multitenancy);
        let reply = send(&fixture, request(tenant)).await;
        assert_eq!(
            reply.status, status,
            "{multitenancy} {tenant:?}: {}",
            reply.body
        );
    }
}

#[tokio::test]
async fn form_over_the_limit_is_refused() {
    let fixture = Fixture::ready(|parts| parts.limits.form_body_bytes_max = 20);
    let reply = send(
        &fixture,
        post("/api/v1/query", "query=1&time=0&x=0123456789"),
    )
    .await;
    assert_eq!(reply.status, 413, "{}", reply.body);
    let reply = send(&fixture, post("/api/v1/query", "query=1&time=0")).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
}

#[tokio::test]
async fn bodies_over_the_common_limit_are_asked_to_come_back() {
    let fixture = Fixture::ready(|parts| parts.limits.forms_bytes_max = 10);
    let reply = send(&fixture, post("/api/v1/query", "query=1&time=0")).await;
    assert_eq!(
        (reply.status, reply.header("retry-after")),
        (503, "1"),
        "{}",
        reply.body
    );
}

#[tokio::test]
async fn long_answer_comes_compressed_if_accepted() {
    let fixture = Fixture::ready(|_| {});
    let request = |accept: &str| {
        let request = Request::get("/api/v1/query?query=vector+5000&time=1");
        request
            .header("accept-encoding", accept)
            .body(Body::empty())
            .unwrap()
    };
    let plain = send(&fixture, request("br")).await;
    let packed = send(&fixture, request("br, gzip")).await;
    assert_eq!(packed.header("content-encoding"), "gzip");
    assert!(plain.body == packed.body);
    let parsed: serde_json::Value = serde_json::from_str(&plain.body).unwrap();
    assert_eq!(parsed["data"]["result"].as_array().unwrap().len(), 5000);
}

#[tokio::test]
async fn cors_headers_are_there_only_where_allowed() {
    let open = Fixture::ready(|parts| {
        let everyone = regex::Regex::new("^(?:.*)$").unwrap();
        parts.web.cors_origin = Some(everyone);
    });
    let closed = Fixture::ready(|_| {});
    for (fixture, want) in [(&open, "*"), (&closed, "")] {
        for method in ["GET", "OPTIONS"] {
            let request = Request::builder().method(method).uri("/api/v1/labels");
            let request = request
                .header("origin", "http://a.example")
                .body(Body::empty());
            let reply = send(fixture, request.unwrap()).await;
            assert_eq!(
                reply.header("access-control-allow-origin"),
                want,
                "{method}"
            );
            let status = if method == "GET" { 200 } else { 204 };
            assert_eq!(reply.status, status, "{method}");
        }
    }
}

#[tokio::test]
async fn metrics_contain_those_of_all_parts() {
    let fixture = Fixture::ready(|_| {});
    let _ = send(&fixture, get("/api/v1/query?query=1")).await;
    let reply = send(&fixture, get("/metrics")).await;
    assert_eq!(
        reply.header("content-type"),
        "text/plain; version=0.0.4; charset=utf-8"
    );
    for line in [
        "# TYPE firn_server_requests_total counter",
        r#"firn_server_requests_total{code="2xx",handler="query"} 1"#,
        r#"firn_server_request_duration_seconds_bucket{handler="query",le="+Inf"} 1"#,
        r#"firn_server_request_duration_seconds_count{handler="query"} 1"#,
        "# HELP firn_test_bytes Help.",
        r#"firn_test_bytes{path="a\"b\\c\nd"} 1.5"#,
    ] {
        assert!(
            reply.body.lines().any(|l| l == line),
            "{line} in {}",
            reply.body
        );
    }
    let headers = reply
        .body
        .lines()
        .filter(|l| l.starts_with("# TYPE firn_server_requests_total "));
    assert_eq!(headers.count(), 1);
}

#[tokio::test]
async fn page_is_served_under_a_strict_policy() {
    let fixture = Fixture::ready(|_| {});
    for path in [
        "/",
        "/graph?g0.expr=up",
        "/query?g0.expr=up",
        "/alerts",
        "/rules",
        "/targets?search=x",
        "/service-discovery",
        "/alertmanager-discovery",
        "/status",
        "/agent",
        "/tsdb-status",
        "/cluster",
        "/queries",
        "/config",
        "/flags",
        "/favicon.svg",
        "/LICENSES.txt",
    ] {
        let reply = send(&fixture, get(path)).await;
        assert_eq!(reply.status, 200, "{path}");
        let policy = reply.header("content-security-policy");
        assert!(
            policy.starts_with("default-src 'none'; script-src 'self'; worker-src 'self';"),
            "{path}"
        );
        assert!(
            !policy.contains("unsafe") && !policy.contains("data:"),
            "{policy}"
        );
        assert_eq!(reply.header("cache-control"), "no-cache", "{path}");
        let again = Request::get(path).header("if-none-match", reply.header("etag"));
        let again = send(&fixture, again.body(Body::empty()).unwrap()).await;
        assert_eq!((again.status, again.body.as_str()), (304, ""), "{path}");
    }
    assert_eq!(send(&fixture, get("/assets/none.js")).await.status, 404);
}

/// Returns the scripts and styles that start with `./` in quotes of any kind in a text.
fn named_files(text: &str) -> Vec<String> {
    let parts = text.split(['"', '`', '\'']);
    let names = parts.filter_map(|part| part.strip_prefix("./"));
    names
        .filter(|name| name.ends_with(".js") || name.ends_with(".css"))
        .map(str::to_owned)
        .collect()
}

#[tokio::test]
async fn page_refers_only_to_files_that_are_served_as_immutable() {
    let fixture = Fixture::ready(|_| {});
    let index = send(&fixture, get("/")).await.body;
    let mut names = named_files(&index);
    let mut next = 0;
    while let Some(name) = names.get(next).cloned() {
        next += 1;
        let reply = send(&fixture, get(&format!("/{name}"))).await;
        assert_eq!(reply.status, 200, "{name}");
        let caching = reply.header("cache-control");
        assert_eq!(caching, "public, max-age=31536000, immutable", "{name}");
        // Paths of scripts are relative to the script, and paths of styles relative to the root.
        for other in named_files(&reply.body) {
            let path = format!("assets/{}", other.trim_start_matches("assets/"));
            if !names.contains(&path) {
                names.push(path);
            }
        }
    }
    assert!(names.len() >= 10, "{names:?}");
    let packed = Request::get(format!("/{}", names[0])).header("accept-encoding", "br, gzip");
    let packed = send(&fixture, packed.body(Body::empty()).unwrap()).await;
    assert_eq!(packed.header("content-encoding"), "gzip");
}

#[tokio::test]
async fn page_in_a_folder_replaces_the_embedded_page() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    std::fs::create_dir(folder.path().join("assets")).unwrap();
    file(
        "index.html",
        "<title>Firn</title><script src=\"./assets/a.js\">",
    );
    file("assets/a.js", "one");
    let fixture = Fixture::ready(|parts| {
        parts.web.page_dir = Some(folder.path().to_path_buf());
        parts.web.page_title = "\"<b>\"".into();
    });
    let index = send(&fixture, get("/flags")).await.body;
    assert!(
        index.ends_with("<title>&quot;&lt;b&gt;&quot;</title><script src=\"./assets/a.js\">"),
        "{index}"
    );
    assert_eq!(send(&fixture, get("/assets/a.js")).await.body, "one");
    file("assets/a.js", "two");
    assert_eq!(send(&fixture, get("/assets/a.js")).await.body, "two");
    for path in ["/assets/b.js", "/assets/..", "/assets/..%2findex.html"] {
        assert_eq!(send(&fixture, get(path)).await.status, 404, "{path}");
    }
}

#[tokio::test]
async fn route_prefix_moves_everything() {
    let fixture = Fixture::ready(|parts| parts.web.route_prefix = "/a/firn".into());
    let cases = [
        ("/", 302),
        ("/a/firn", 302),
        ("/a/firn/", 200),
        ("/a/firn/graph", 200),
        ("/a/firn/targets", 200),
        ("/a/firn/api/v1/labels", 200),
        ("/a/firn/-/ready", 200),
        ("/a/firn/metrics", 200),
        ("/api/v1/labels", 404),
    ];
    for (path, status) in cases {
        let reply = send(&fixture, get(path)).await;
        assert_eq!(reply.status, status, "{path}");
        if status == 302 {
            assert_eq!(reply.header("location"), "/a/firn/", "{path}");
        }
    }
}

#[tokio::test]
async fn unknown_paths_and_methods_are_refused_in_plain_text() {
    let fixture = Fixture::ready(|_| {});
    let cases = [
        ("GET", "/nothing", 404, "404 page not found\n"),
        ("GET", "/api/v1/nothing", 404, "404 page not found\n"),
        ("DELETE", "/api/v1/query", 405, "Method Not Allowed\n"),
        ("POST", "/metrics", 405, "Method Not Allowed\n"),
    ];
    for (method, path, status, body) in cases {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .body(Body::empty())
            .unwrap();
        let reply = send(&fixture, request).await;
        assert_eq!(
            (reply.status, reply.body.as_str()),
            (status, body),
            "{method} {path}"
        );
    }
    let head = Request::head("/-/ready").body(Body::empty()).unwrap();
    let reply = send(&fixture, head).await;
    assert_eq!((reply.status, reply.body.as_str()), (200, ""));
}

#[tokio::test]
async fn snapshot_needs_the_switch_an_own_page_and_a_flag_that_can_be_read() {
    let fixture = Fixture::ready(|_| {});
    let path = "/api/v1/admin/tsdb/snapshot";
    let request = |method: &str, query: &str, origin: Option<&str>, form: &'static str| {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{path}{query}"))
            .header("host", "firn:9090")
            .header("content-type", "application/x-www-form-urlencoded");
        if let Some(origin) = origin {
            request = request.header("origin", origin);
        }
        request.body(Body::from(form)).unwrap()
    };
    let made = r#"{"status":"success","data":{"name":"20060102T150405Z-0123456789abcdef"}}"#;
    let failed =
        r#"{"status":"error","errorType":"internal","error":"create snapshot: the disk is full"}"#;
    let unread = concat!(
        r#"{"status":"error","errorType":"bad_data","error":"invalid parameter \"skip_head\": "#,
        r#"unable to parse boolean: strconv.ParseBool: parsing \"yes\": invalid syntax"}"#
    );
    let foreign = concat!(
        r#"{"status":"error","errorType":"bad_data","error":"origin is not allowed to change "#,
        r#"state: \"http://evil.example\""}"#
    );
    let cases = [
        ("POST", "", None, "", 200, made),
        ("PUT", "?skip_head=false", None, "", 200, made),
        ("POST", "?skip_head=t", None, "", 500, failed),
        ("PUT", "", None, "skip_head=1", 500, failed),
        ("POST", "?skip_head=yes", None, "", 400, unread),
        ("GET", "", None, "", 405, "Method Not Allowed\n"),
        ("POST", "", Some("http://evil.example"), "", 403, foreign),
        ("POST", "", Some("http://firn:9090"), "", 200, made),
    ];
    for (method, query, origin, form, status, body) in cases {
        let reply = send(&fixture, request(method, query, origin, form)).await;
        let found = (reply.status, reply.body.as_str());
        assert_eq!(found, (status, body), "{method} {query} {form}");
    }
    let off = Fixture::ready(|parts| parts.is_admin_enabled = false);
    let reply = send(&off, request("POST", "", None, "")).await;
    let disabled = r#"{"status":"error","errorType":"unavailable","error":"admin APIs disabled"}"#;
    assert_eq!((reply.status, reply.body.as_str()), (503, disabled));
}

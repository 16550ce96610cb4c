//! Every route of the table: none needs no tenant that should, and none shows data of another one.

use super::{TenantServer, store};
use crate::harness::http::Http;
use crate::harness::write::{Series, body};
use crate::now_ms;
use crate::raw::{Ask, Reply};

/// Text in all names and values of the tenant `a`.
const SECRET: &str = "xyzzy";

const OPERATOR: &str = "token-of-the-operator";
const TOKEN_OF_B: &str = "token-of-tenant-b";

/// Parameters that some route requires, which select everything.
const PARAMS: &str = "query={__name__!=%22%22}&match[]={__name__!=%22%22}&start=1&end=4000000000\
    &step=1e9&selector={__name__!=%22%22}&label_names[]=__name__&label_names[]=n&group=g\
    &search=x&seconds=1";

/// Prefixes of the paths that need a tenant, unless they are in the next list.
const WITH_DATA: [&str; 6] = [
    "/api/",
    "/config/",
    "/consoles/",
    "/federate",
    "/opentelemetry",
    "/otlp",
];

/// Prefixes of the paths that need no tenant: they concern the process or contain no data.
const WITHOUT_TENANT: [&str; 13] = [
    "/-/",
    "/api/v1/cluster",
    "/api/v1/notifications",
    "/api/v1/openapi.yaml",
    "/api/v1/status/access",
    "/api/v1/status/cluster",
    "/api/v1/status/walreplay",
    "/assets",
    "/debug/pprof",
    "/favicon",
    "/metrics",
    "/openapi.yaml",
    "/version",
];

/// Paths whose responses contain the requests of the tenant itself, or times.
const CHANGING: [&str; 9] = [
    "/api/v1/status/active_queries",
    "/api/v1/status/metric_names_stats",
    "/api/v1/status/query_history",
    "/api/v1/status/top_queries",
    "/api/v1/status/tsdb",
    "/api/v1/status/runtimeinfo",
    "/api/v1/notifications/live",
    "/api/v1/query_range",
    "/api/v1/user_stats",
];

fn start() -> TenantServer {
    let access = format!(
        "access: {{tokens: [{{name: operator, token: {OPERATOR}, \
         scopes: [read, write, rules, admin]}}, {{name: b, token: {TOKEN_OF_B}, \
         scopes: [read, write, rules, admin], tenants: [b]}}]}}"
    );
    TenantServer::start(&access, "")
}

fn ask(tenants: &TenantServer, method: &str, path: &str, headers: &[String]) -> Reply {
    let ask = Ask {
        method: method.to_owned(),
        headers: headers.to_vec(),
        ..Ask::get(path)
    };
    ask.send(&tenants.server.address)
}

fn authorization(token: &str) -> String {
    format!("Authorization: Bearer {token}")
}

/// Returns method and path of every route, except for streams, which never end.
fn routes(tenants: &TenantServer) -> Vec<(String, String)> {
    let document = ask(tenants, "GET", "/openapi.yaml", &[authorization(OPERATOR)]);
    let document = String::from_utf8(document.body).unwrap();
    let root = firn_yaml::parse(&document).unwrap().unwrap();
    let entries = |node: &firn_yaml::YamlNode| match &node.value {
        firn_yaml::YamlValue::Map(entries) => entries.clone(),
        other => panic!("{other:?}"),
    };
    let mut routes = Vec::new();
    for path in entries(root.get("paths").unwrap()) {
        for operation in entries(&path.node) {
            routes.push((operation.key.to_uppercase(), path.key.clone()));
        }
    }
    assert!(routes.len() > 60, "{}", routes.len());
    routes.retain(|(_, path)| path != "/api/v1/notifications/live" && path != "/-/quit");
    routes
}

/// Returns the path of a request, with a value for each parameter in it.
fn request_path(path: &str) -> String {
    let path = path.replace("{name}", "n").replace(['{', '}'], "");
    format!("{path}?{PARAMS}")
}

#[test]
fn route_with_data_needs_a_tenant() {
    let tenants = start();
    // Paths of OTLP check the type of the body first.
    let json = "Content-Type: application/json".to_owned();
    for (method, path) in routes(&tenants) {
        let mut headers = vec![authorization(OPERATOR)];
        headers.extend(path.ends_with("/v1/metrics").then(|| json.clone()));
        let reply = ask(&tenants, &method, &request_path(&path), &headers);
        let text = String::from_utf8_lossy(&reply.body);
        let is_refused = reply.status == 401 && text.contains("no org id");
        let has_data = WITH_DATA.iter().any(|prefix| path.starts_with(prefix));
        let has_data = has_data && !WITHOUT_TENANT.iter().any(|free| path.starts_with(free));
        assert_eq!(
            is_refused, has_data,
            "{method} {path}: {} {text}",
            reply.status
        );
    }
}

/// Returns the response to each route as the tenant `b`.
fn walk(tenants: &TenantServer, routes: &[(String, String)]) -> Vec<(u16, String)> {
    let headers = [authorization(TOKEN_OF_B), "X-Scope-OrgID: b".to_owned()];
    let replies = routes.iter().map(|(method, path)| {
        let reply = ask(tenants, method, &request_path(path), &headers);
        (
            reply.status,
            String::from_utf8_lossy(&reply.body).into_owned(),
        )
    });
    replies.collect()
}

/// Stores series, metadata, a rejected sample and a query of the tenant `a`.
fn fill(a: &Http, now: i64) {
    store(a, &format!("{SECRET}_metric"), SECRET, now, 1.0);
    let text =
        format!("# HELP {SECRET}_text {SECRET}\n# TYPE {SECRET}_text gauge\n{SECRET}_text 1\n");
    let imported = a.send("/api/v1/import/prometheus", &[], text.as_bytes());
    assert!(imported.status < 300, "{}", imported.body);
    let late = Series::new(&[("__name__", SECRET)], &[(now, 1.0), (1, 1.0)]);
    let refused = a.write(&body(&[late]));
    assert_eq!(refused.status, 400, "{}", refused.body);
    assert_eq!(a.query(SECRET, now).as_array().unwrap().len(), 1);
}

#[test]
fn no_route_shows_data_of_another_tenant() {
    let tenants = start();
    let routes = routes(&tenants);
    let operator = tenants.server.http();
    let operator = operator.with_header("Authorization", &format!("Bearer {OPERATOR}"));
    let (a, now) = (operator.of_tenant("a"), now_ms());
    let before = walk(&tenants, &routes);
    fill(&a, now);
    let after = walk(&tenants, &routes);
    let replies = before.iter().zip(&after);
    for ((method, path), (before, after)) in routes.iter().zip(replies) {
        assert!(!after.1.contains(SECRET), "{method} {path}: {}", after.1);
        assert_eq!(before.0, after.0, "{method} {path}: {}", after.1);
        if !CHANGING.contains(&path.as_str()) {
            assert_eq!(before.1, after.1, "{method} {path}");
        }
    }
    // Requests of b have changed no data of a and created no store.
    assert!(!tenants.folder_of("b").exists());
    let metric = format!("{SECRET}_metric");
    assert_eq!(a.query(&metric, now).as_array().unwrap().len(), 1);
    let b = tenants.server.http();
    let b = b.with_header("Authorization", &format!("Bearer {TOKEN_OF_B}"));
    for tenants_of_request in ["a", "a|b", "b|a", "anonymous"] {
        let refused = b.of_tenant(tenants_of_request).get("/api/v1/labels");
        assert_eq!(refused.status, 403, "{}", refused.body);
    }
    for whole in ["/metrics", "/api/v1/status/config", "/api/v1/status/flags"] {
        assert_eq!(b.of_tenant("b").get(whole).status, 403, "{whole}");
    }
    // The operator sees the queries of a tenant under its name only.
    let seen = operator.of_tenant("a").get("/api/v1/status/query_history");
    assert!(seen.body.contains(SECRET), "{}", seen.body);
    let seen = operator.of_tenant("c").get("/api/v1/status/query_history");
    assert!(!seen.body.contains(SECRET), "{}", seen.body);
}

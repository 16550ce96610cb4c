//! Tenants with `firn.multitenancy`: each has data of its own, over every route and every restart.

mod limits;
mod routes;
mod usage;

use crate::harness::http::Http;
use crate::harness::server::{Server, firn, wait_for};
use crate::harness::write::{Series, body};
use crate::now_ms;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// Maximum growth of the resident memory for each tenant whose store is closed, in bytes.
const IDLE_TENANT_BYTES_MAX: f64 = 200_000.0;

/// A server with multitenancy and its folder.
pub struct TenantServer {
    pub folder: tempfile::TempDir,
    pub server: Server,
}

impl TenantServer {
    /// Starts a server whose section `firn` has these keys. `root` are further sections.
    pub fn start(keys: &str, root: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self::start_in(folder, keys, root)
    }

    pub fn start_in(folder: tempfile::TempDir, keys: &str, root: &str) -> Self {
        let config = folder.path().join("firn.yml");
        let text = format!("firn: {{multitenancy: true, {keys}}}\n{root}\n");
        std::fs::write(&config, text).unwrap();
        let server = start(folder.path());
        Self { folder, server }
    }

    /// Kills the process and starts another one in the same folder.
    pub fn kill_and_restart(self) -> Self {
        let Self { folder, server } = self;
        server.kill();
        let server = start(folder.path());
        Self { folder, server }
    }

    pub fn http(&self, tenant: &str) -> Http {
        self.server.http().of_tenant(tenant)
    }

    /// Returns the folder with the data of a tenant other than `anonymous`.
    pub fn folder_of(&self, tenant: &str) -> PathBuf {
        self.folder.path().join("data/tenants").join(tenant)
    }

    /// Returns the value of a metric without labels.
    fn metric(&self, name: &str) -> f64 {
        let text = self.server.http().get("/metrics").body;
        let value = |line: &str| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok();
        let found = text.lines().find_map(value);
        found.unwrap_or_else(|| panic!("no {name} in {text}"))
    }
}

fn start(folder: &Path) -> Server {
    let config = folder.join("firn.yml");
    let flags = [
        "--config",
        config.to_str().unwrap(),
        "--web.enable-admin-api",
        "--web.enable-lifecycle",
    ];
    let server = Server::start_unready(&folder.join("data"), &flags);
    // The path `/-/ready` may need credentials.
    server.wait_log(" msg=ready");
    server
}

/// Stores one sample of the metric `name` with the label `n`.
pub fn store(http: &Http, name: &str, n: &str, time: i64, value: f64) {
    let series = Series::new(&[("__name__", name), ("n", n)], &[(time, value)]);
    let answer = http.write(&body(&[series]));
    assert_eq!(answer.status, 204, "{}", answer.body);
}

/// Returns labels without the metric name, and value of each series, sorted.
fn values(result: &Value) -> Vec<(Value, String)> {
    let series = result.as_array().unwrap().iter().map(|series| {
        let mut labels = series["metric"].clone();
        labels.as_object_mut().unwrap().remove("__name__");
        (labels, series["value"][1].as_str().unwrap().to_owned())
    });
    let mut all: Vec<(Value, String)> = series.collect();
    all.sort_by_key(|one| one.0.to_string());
    all
}

#[test]
fn each_tenant_reads_only_its_own_samples() {
    let tenants = TenantServer::start("", "");
    let (a, b, now) = (tenants.http("a"), tenants.http("b"), now_ms());
    store(&a, "m", "1", now, 1.0);
    store(&b, "m", "1", now, 2.0);
    store(&tenants.http("anonymous"), "m", "1", now, 3.0);
    for (tenant, value) in [("a", "1"), ("b", "2"), ("anonymous", "3"), ("a|a", "1")] {
        let found = tenants.http(tenant).query("m", now);
        assert_eq!(values(&found), [(json!({"n": "1"}), value.to_owned())]);
    }
    let unknown = tenants.http("never-seen");
    assert_eq!(unknown.query("m", now), json!([]));
    assert_eq!(unknown.get("/api/v1/labels").json()["data"], json!([]));
    let empty = unknown.write(&body(&[]));
    assert!(empty.status < 300, "{}", empty.body);
    assert!(!tenants.folder_of("never-seen").exists());
    assert!(tenants.folder_of("a").exists());
    let deleted = a.post("/api/v1/admin/tsdb/delete_series", &[("match[]", "m")]);
    assert_eq!(deleted.status, 204, "{}", deleted.body);
    assert_eq!(a.query("m", now), json!([]));
    assert_eq!(b.query("m", now).as_array().unwrap().len(), 1);
}

#[test]
fn federated_query_has_the_label_of_the_tenant() {
    let tenants = TenantServer::start("", "");
    let (a, both, now) = (tenants.http("a"), tenants.http("b|a"), now_ms());
    store(&a, "m", "1", now, 1.0);
    store(&a, "m", "2", now, 5.0);
    store(&tenants.http("b"), "m", "1", now, 2.0);
    let of = |tenant: &str, n: &str| json!({"__tenant_id__": tenant, "n": n});
    for (query, expected) in [
        (
            "m",
            vec![
                (of("a", "1"), "1"),
                (of("a", "2"), "5"),
                (of("b", "1"), "2"),
            ],
        ),
        ("m{__tenant_id__='b'}", vec![(of("b", "1"), "2")]),
        (
            "m{__tenant_id__!~'b|c'}",
            vec![(of("a", "1"), "1"), (of("a", "2"), "5")],
        ),
        ("m{__tenant_id__='c'}", vec![]),
        ("sum(m)", vec![(json!({}), "8")]),
        (
            "sum by (__tenant_id__) (m)",
            vec![
                (json!({"__tenant_id__": "a"}), "6"),
                (json!({"__tenant_id__": "b"}), "2"),
            ],
        ),
    ] {
        let expected: Vec<_> = expected
            .into_iter()
            .map(|(labels, value)| (labels, value.to_owned()))
            .collect();
        assert_eq!(values(&both.query(query, now)), expected, "{query}");
    }
    let names = both.get("/api/v1/labels").json();
    assert_eq!(names["data"], json!(["__name__", "__tenant_id__", "n"]));
    let ids = both.get("/api/v1/label/__tenant_id__/values").json();
    assert_eq!(ids["data"], json!(["a", "b"]));
    let alone = a.get("/api/v1/labels").json();
    assert_eq!(alone["data"], json!(["__name__", "n"]));
    let series = both.get("/api/v1/series?match[]=m").json();
    assert_eq!(series["data"].as_array().unwrap().len(), 3, "{series}");
}

#[test]
fn header_has_the_errors_of_mimir() {
    let tenants = TenantServer::start("", "");
    let http = tenants.server.http();
    let long = "x".repeat(151);
    for (headers, status, why) in [
        (&[][..], 401, "no org id"),
        (&["a", "a"], 400, "several headers"),
        (&["a|"], 400, "tenant id is empty"),
        (&["|a"], 400, "tenant id is empty"),
        (&[".."], 400, "tenant id is not allowed"),
        (&["a/b"], 400, "unsupported character"),
        (&["..%2Fa"], 400, "unsupported character"),
        (&[&long], 400, "150"),
    ] {
        let headers: Vec<_> = headers.iter().map(|id| ("X-Scope-OrgID", *id)).collect();
        let read = http.get_with("/api/v1/query?query=up", &headers);
        assert_eq!(read.status, status, "{headers:?}: {}", read.body);
        assert!(read.body.contains(why), "{headers:?}: {}", read.body);
        let write = http.send("/api/v1/write", &headers, b"");
        assert_eq!(write.status, status, "{headers:?}: {}", write.body);
    }
    let joined = tenants.http("a|b");
    let series = Series::new(&[("__name__", "m")], &[(now_ms(), 1.0)]);
    let refused = joined.write(&body(&[series]));
    assert_eq!(refused.status, 400, "{}", refused.body);
    assert!(refused.body.contains("one tenant"), "{}", refused.body);
    assert!(!tenants.folder_of("a").exists());
}

#[test]
fn acked_samples_of_new_tenants_survive_kills() {
    let mut tenants = TenantServer::start("tenant_idle_time: 1s", "");
    let (mut acked, now) = (Vec::new(), now_ms());
    for round in 0..3 {
        let is_over = AtomicBool::new(false);
        let address = tenants.server.address.clone();
        let write_until_killed = |writer: u32| {
            let (mut acked, http) = (Vec::new(), Http::new(&address));
            for number in 0.. {
                let tenant = format!("r{round}-w{writer}-{number}");
                let series = Series::new(&[("__name__", "m")], &[(now, 1.0)]);
                if http.of_tenant(&tenant).write(&body(&[series])).status == 204 {
                    acked.push(tenant);
                } else if is_over.load(Ordering::Relaxed) {
                    return acked;
                }
            }
            acked
        };
        tenants = std::thread::scope(|scope| {
            let writers = [0, 1].map(|writer| {
                let write = &write_until_killed;
                scope.spawn(move || write(writer))
            });
            wait_for("new tenants", || {
                tenants.metric("firn_tenants_known") > 20.0
            });
            is_over.store(true, Ordering::Relaxed);
            let restarted = tenants.kill_and_restart();
            for writer in writers {
                acked.extend(writer.join().unwrap());
            }
            restarted
        });
        assert!(acked.len() > 20, "{}", acked.len());
        for tenant in &acked {
            let found = tenants.http(tenant).query("m", now);
            assert_eq!(found.as_array().unwrap().len(), 1, "{tenant}");
        }
    }
}

#[test]
fn idle_store_is_closed_and_opened_by_the_next_request() {
    let tenants = TenantServer::start("tenant_idle_time: 1s", "");
    let (a, now) = (tenants.http("a"), now_ms());
    for round in 0..3 {
        store(&a, "m", "1", now + round, round as f64);
        assert_eq!(tenants.metric("firn_tenants_open"), 1.0);
        wait_for("the store to be closed", || {
            tenants.metric("firn_tenants_open") == 0.0
        });
        assert_eq!(tenants.metric("firn_tenants_known"), 1.0);
        let found = a.query("count_over_time(m[1h])", now + round);
        assert_eq!(values(&found)[0].1, (round + 1).to_string());
    }
}

#[test]
fn idle_tenants_use_little_memory() {
    let tenants = TenantServer::start("tenant_idle_time: 1s", "");
    let (count, now) = (100, now_ms());
    let before = tenants.metric("process_resident_memory_bytes");
    for number in 0..count {
        let id = number.to_string();
        store(&tenants.http(&format!("t{id}")), "m", &id, now, 1.0);
    }
    wait_for("the stores to be closed", || {
        tenants.metric("firn_tenants_open") == 0.0
    });
    let grown = || tenants.metric("process_resident_memory_bytes") - before;
    wait_for("memory to be returned", || {
        grown() < IDLE_TENANT_BYTES_MAX * f64::from(count)
    });
    println!("{count} idle tenants: {} bytes", grown());
}

#[test]
fn rule_group_and_target_have_the_tenant_that_they_name() {
    let folder = tempfile::tempdir().unwrap();
    let rules =
        "groups:\n- {name: g, tenant: a, interval: 1s, rules: [{record: r, expr: m + 1}]}\n";
    std::fs::write(folder.path().join("rules.yml"), rules).unwrap();
    // Nothing listens on this port: the target has the sample `up 0`.
    let root = "rule_files: [rules.yml]\n\
        scrape_configs:\n- job_name: j\n  scrape_interval: 1s\n  static_configs:\n  \
        - {targets: ['127.0.0.1:9'], labels: {__tenant_id__: a}}\n";
    let tenants = TenantServer::start_in(folder, "", root);
    let (a, now) = (tenants.http("a"), now_ms());
    store(&a, "m", "1", now, 1.0);
    wait_for("the rule and the target", || {
        let found = a.query("{__name__=~'r|up'}", now_ms());
        found.as_array().unwrap().len() == 2
    });
    let get = |tenant: &str, path: &str| tenants.http(tenant).get(path).json()["data"].clone();
    for (tenant, count) in [("a", 1), ("b", 0), ("anonymous", 0)] {
        let targets = get(tenant, "/api/v1/targets?state=active");
        assert_eq!(targets["activeTargets"].as_array().unwrap().len(), count);
        let groups = get(tenant, "/api/v1/rules");
        assert_eq!(groups["groups"].as_array().unwrap().len(), count);
        let found = tenants.http(tenant).query("up", now_ms());
        assert_eq!(found.as_array().unwrap().len(), count);
    }
    let refused = tenants.http("a").get("/config/v1/rules");
    assert_eq!(refused.status, 403, "{}", refused.body);
    assert!(refused.body.contains("operator"), "{}", refused.body);
}

#[test]
fn multitenancy_is_refused_where_it_is_not_supported() {
    for (keys, flags, why) in [
        (
            "cluster: {bucket: 's3://b'}",
            &["--data"][..],
            "firn.multitenancy is not supported together with firn.cluster yet",
        ),
        (
            "",
            &["--agent", "--storage.agent.path"],
            "field firn.multitenancy is not allowed in agent mode",
        ),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("firn.yml");
        std::fs::write(&config, format!("firn: {{multitenancy: true, {keys}}}\n")).unwrap();
        let mut command = firn();
        command.arg("serve").arg("--config").arg(&config);
        command.args(flags).arg(folder.path().join("data"));
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{text}");
        assert!(text.contains(why), "{text}");
    }
}

#[test]
fn change_of_multitenancy_needs_a_restart() {
    let tenants = TenantServer::start("", "");
    let config = tenants.folder.path().join("firn.yml");
    std::fs::write(config, "firn: {multitenancy: false}\n").unwrap();
    let reloaded = tenants.server.http().post("/-/reload", &[]);
    assert_eq!(reloaded.status, 200, "{}", reloaded.body);
    tenants.server.wait_log("firn.multitenancy");
    assert_eq!(tenants.server.http().get("/api/v1/labels").status, 401);
}

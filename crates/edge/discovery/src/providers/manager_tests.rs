//! Tests of discoveries by machine and service managers, against stub servers that follow the
//! documented APIs.

use super::kuma::KumaSettings;
use super::marathon::MarathonSettings;
use super::puppetdb::PuppetDbSettings;
use super::triton::{TritonRole, TritonSettings};
use super::uyuni::UyuniSettings;
use super::*;
use crate::stub::{ManualRefresh, StubRequest, StubResponse, StubRoutes, StubServer};
use firn_http_client::{HttpSettings, Secret};
use firn_model::env::sim::SimClock;
use std::sync::Arc;
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);
const BYTES: u64 = 1 << 20;

const RESOURCES: &str = r#"[{"certname": "edinburgh.example.com", "resource": "49af83866dc5a1518",
  "type": "Package", "title": "redis-server", "exported": false, "tags": ["roles", "redis"],
  "file": "/etc/puppet/redis.pp", "environment": "prod", "line": 5,
  "parameters": {"ensure": "installed", "enabled": true, "size": 2.5, "big": 1000000, "none": null,
    "list": ["a", 1, false], "empty": [], "sub-map": {"inner": "x", "deep": {"er": "y"}}}},
 {"certname": "b", "tags": null}]"#;

#[tokio::test]
async fn puppetdb_resources_become_targets() {
    let answers = StubRoutes::start(&[("/base/pdb/query/v4", RESOURCES)]).await;
    let of = |include_parameters| {
        let settings = PuppetDbSettings {
            url: format!("{}/base", answers.url()),
            query: "resources {}".into(),
            include_parameters,
            port: 9100,
            refresh: MINUTE,
            client: HttpSettings::default(),
        };
        ManualRefresh::new(puppetdb::PuppetDbDiscovery::new(&settings, BYTES))
    };
    let mut resources = of(true);
    assert_eq!(
        resources.refresh_targets().await,
        [
            "edinburgh.example.com:9100 puppetdb_certname=edinburgh.example.com \
             puppetdb_environment=prod puppetdb_exported=false \
             puppetdb_file=/etc/puppet/redis.pp puppetdb_parameter_big=1e+06 \
             puppetdb_parameter_enabled=true puppetdb_parameter_ensure=installed \
             puppetdb_parameter_list=a,1,false puppetdb_parameter_size=2.5 \
             puppetdb_parameter_sub_map_deep_er=y puppetdb_parameter_sub_map_inner=x \
             puppetdb_query=resources {} puppetdb_resource=49af83866dc5a1518 \
             puppetdb_tags=,roles,redis, puppetdb_title=redis-server puppetdb_type=Package",
            "b:9100 puppetdb_certname=b puppetdb_exported=false puppetdb_query=resources {}",
        ]
    );
    assert_eq!(
        answers.stub.received_requests()[0].body,
        r#"{"query":"resources {}"}"#
    );
    resources
        .check_targets_kept(&answers, "/base/pdb/query/v4")
        .await;
    let without = of(false).refresh_targets().await;
    assert!(!without[0].contains("parameter"), "{}", without[0]);
    answers.set_response("/base/pdb/query/v4", 200, "[]");
    assert_eq!(resources.refresh_targets().await, [""; 0]);
}

const APPS: &str = r#"{"apps": [
 {"id": "/mapped", "labels": {"prometheus": "yes"}, "networks": [{"mode": "container/bridge"}],
  "container": {"docker": {"image": "repo/img:1"}, "portMappings": [
    {"labels": {"metrics-port": "1"}, "containerPort": 8080, "hostPort": 0},
    {"labels": null, "containerPort": 1234, "hostPort": 31000}]},
  "tasks": [{"id": "t1", "host": "agent1", "ports": [31001, 31000], "ipAddresses": []}]},
 {"id": "/own-address", "networks": [{"mode": "container", "name": "dcos"}],
  "container": {"docker": {"image": "i", "portMappings": [{"containerPort": 80}]}},
  "tasks": [{"id": "t2", "host": "agent2",
    "ipAddresses": [{"ipAddress": "1.2.3.4", "protocol": "IPv4"}]}]},
 {"id": "/defined", "requirePorts": true, "portDefinitions": [{"labels": {"x": "y"}, "port": 81}],
  "tasks": [{"id": "t3", "host": "agent3", "ports": [9]}]},
 {"id": "/free", "requirePorts": false, "portDefinitions": [{"port": 81}],
  "tasks": [{"id": "t4", "host": "agent4", "ports": [31010]}]},
 {"id": "/plain", "tasks": [{"id": "t5", "host": "agent5", "ports": [31020, 31021]}]},
 {"id": "/none", "tasks": []}]}"#;

#[tokio::test]
async fn marathon_tasks_become_targets() {
    let answers = StubRoutes::start(&[("/v2/apps/?embed=apps.tasks", APPS)]).await;
    let settings = MarathonSettings {
        servers: vec![answers.url().into()],
        token: Some(Secret::Inline("abc".into())),
        refresh: MINUTE,
        client: HttpSettings::default(),
    };
    let mut apps = ManualRefresh::new(marathon::MarathonDiscovery::new(&settings, BYTES));
    assert_eq!(
        apps.refresh_targets().await,
        [
            "agent3:81 marathon_app=/defined marathon_port_definition_label_x=y \
             marathon_port_index=0 marathon_task=t3",
            "agent4:31010 marathon_app=/free marathon_port_index=0 marathon_task=t4",
            "agent1:31001 marathon_app=/mapped marathon_app_label_prometheus=yes \
             marathon_image=repo/img:1 marathon_port_index=0 \
             marathon_port_mapping_label_metrics_port=1 marathon_task=t1",
            "agent1:31000 marathon_app=/mapped marathon_app_label_prometheus=yes \
             marathon_image=repo/img:1 marathon_port_index=1 marathon_task=t1",
            "1.2.3.4:80 marathon_app=/own-address marathon_image=i marathon_port_index=0 \
             marathon_task=t2",
            "agent5:31020 marathon_app=/plain marathon_port_index=0 marathon_task=t5",
            "agent5:31021 marathon_app=/plain marathon_port_index=1 marathon_task=t5",
        ]
    );
    assert_eq!(
        answers.stub.received_requests()[0].headers["authorization"],
        "token=abc"
    );
    apps.check_targets_kept(&answers, "/v2/apps/?embed=apps.tasks")
        .await;
    answers.set_response("/v2/apps/?embed=apps.tasks", 200, r#"{"apps": null}"#);
    assert_eq!(apps.refresh_targets().await, [""; 0]);
}

#[tokio::test]
async fn triton_machines_of_both_roles_become_targets() {
    let answers = StubRoutes::start(&[
        (
            "/v1/discover?groups=a%2Cb",
            r#"{"containers": [{"groups": ["a"], "server_uuid": "44454c4c", "vm_alias": "alias",
              "vm_brand": "lx", "vm_image_uuid": "d7ac97b0", "vm_uuid": "ad466fbf"}]}"#,
        ),
        (
            "/v1/gz/discover?groups=a%2Cb",
            r#"{"cns": [{"server_uuid": "44454c4c", "server_hostname": "server01"}]}"#,
        ),
    ])
    .await;
    let of = |role| {
        let settings = TritonSettings {
            role,
            dns_suffix: "triton.test".into(),
            endpoint: "127.0.0.1".into(),
            groups: vec!["a".into(), "b".into()],
            port: 9163,
            version: 1,
            refresh: MINUTE,
            client: HttpSettings::default(),
        };
        ManualRefresh::new(triton::TritonDiscovery::with_base_url(
            answers.url(),
            &settings,
            BYTES,
        ))
    };
    let mut containers = of(TritonRole::Container);
    assert_eq!(
        containers.refresh_targets().await,
        [
            "ad466fbf.triton.test:9163 triton_groups=,a, triton_machine_alias=alias \
             triton_machine_brand=lx triton_machine_id=ad466fbf triton_machine_image=d7ac97b0 \
             triton_server_id=44454c4c"
        ]
    );
    assert_eq!(
        of(TritonRole::Cn).refresh_targets().await,
        ["44454c4c.triton.test:9163 triton_machine_alias=server01 triton_machine_id=44454c4c"]
    );
    let path = "/v1/discover?groups=a%2Cb";
    containers.check_targets_kept(&answers, path).await;
    answers.set_response(path, 200, r#"{"containers": []}"#);
    assert_eq!(containers.refresh_targets().await, [""; 0]);
}

/// Builds an XML-RPC response that contains `value`.
fn response(value: &str) -> String {
    format!(
        "<methodResponse><params><param><value>{value}</value></param></params></methodResponse>"
    )
}

fn structs(list: &[&[(&str, &str)]]) -> String {
    let mut values = String::new();
    for members in list {
        values += "<value><struct>";
        for (name, value) in *members {
            values += &format!("<member><name>{name}</name><value>{value}</value></member>");
        }
        values += "</struct></value>";
    }
    response(&format!("<array><data>{values}</data></array>"))
}

#[tokio::test]
async fn uyuni_endpoints_become_targets() {
    let refused = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let refuses = refused.clone();
    let stub = StubServer::start(move |asked: StubRequest| {
        let refuses = refuses.load(std::sync::atomic::Ordering::Relaxed);
        async move {
            let is = |method: &str| asked.body.contains(&format!("<methodName>{method}<"));
            let text = if is("auth.login") {
                response("<string>token</string>")
            } else if refuses {
                return StubResponse::with_status(500, "");
            } else if is("system.listSystemGroupsForSystemsWithEntitlement") {
                let groups = "<array><data><value><struct><member><name>name</name><value>g1</value>\
                              </member></struct></value><value><struct><member><name>name</name>\
                              <value>g2</value></member></struct></value></data></array>";
                structs(&[&[("id", "<i4>1000</i4>"), ("system_groups", groups)]])
            } else if is("system.monitoring.listEndpoints") {
                structs(&[&[
                    ("system_id", "<i4>1000</i4>"),
                    ("endpoint_name", "node"),
                    ("port", "<i4>9100</i4>"),
                    ("path", "/metrics"),
                    ("module", ""),
                    ("exporter_name", "node_exporter"),
                    ("tls_enabled", "<boolean>1</boolean>"),
                ]])
            } else {
                structs(&[&[
                    ("system_id", "<i4>1000</i4>"),
                    ("hostname", "m1.example.org"),
                    ("primary_fqdn", "m1.example.org"),
                    ("ip", "10.0.0.1"),
                ]])
            };
            StubResponse::with_status(200, &text)
        }
    })
    .await;
    let settings = UyuniSettings {
        server: stub.url.clone(),
        username: "u".into(),
        password: Secret::Inline("p".into()),
        entitlement: "monitoring_entitled".into(),
        separator: ",".into(),
        refresh: MINUTE,
        client: HttpSettings::default(),
    };
    let clock = Arc::new(SimClock::default());
    let mut endpoints =
        ManualRefresh::new(uyuni::UyuniDiscovery::new(&settings, BYTES, clock.clone()));
    let want = [
        "m1.example.org:9100 uyuni_endpoint_name=node uyuni_exporter=node_exporter \
         uyuni_groups=g1,g2 uyuni_metrics_path=/metrics uyuni_minion_hostname=m1.example.org \
         uyuni_primary_fqdn=m1.example.org uyuni_scheme=https uyuni_system_id=1000",
    ];
    let logins = || {
        let asked = stub.received_requests();
        asked
            .iter()
            .filter(|a| a.body.contains("auth.login"))
            .count()
    };
    assert_eq!(endpoints.refresh_targets().await, want);
    assert_eq!(endpoints.refresh_targets().await, want);
    assert_eq!(logins(), 1);
    clock.advance_ms(300_001);
    assert_eq!(endpoints.refresh_targets().await, want);
    assert_eq!(logins(), 2, "half of the token's time is over");
    refused.store(true, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(endpoints.refresh_targets().await, want);
    assert_eq!(endpoints.refresh_targets().await, want);
    assert_eq!(logins(), 3, "a failure asks for a new token");
    assert!(stub.received_paths().iter().all(|path| path == "/rpc/api"));
}

const KUMA: &str = r#"{"versionInfo": "v1", "nonce": "n1",
  "typeUrl": "type.googleapis.com/kuma.observability.v1.MonitoringAssignment", "resources": [
  {"@type": "type.googleapis.com/kuma.observability.v1.MonitoringAssignment", "mesh": "default",
   "service": "backend", "labels": {"env": "dev", "kuma.io/zone": "z"},
   "targets": [{"name": "backend-01", "scheme": "http", "address": "10.1.1.1:5670",
     "metricsPath": "/m", "labels": {"env": "own", "commit-hash": "620506a88"}}]}]}"#;

#[tokio::test]
async fn kuma_assignments_become_targets() {
    let path = "/v3/discovery:monitoringassignments?fetch-timeout=2m";
    let answers = StubRoutes::start(&[(path, KUMA)]).await;
    let settings = KumaSettings {
        server: answers.url().into(),
        client_id: "me".into(),
        fetch_timeout: Duration::from_secs(120),
        refresh: MINUTE,
        client: HttpSettings::default(),
    };
    let mut assignments = ManualRefresh::new(kuma::KumaDiscovery::new(&settings, BYTES));
    let want = ["10.1.1.1:5670 kuma_dataplane=backend-01 \
         kuma_label_commit_hash=620506a88 kuma_label_env=dev kuma_label_kuma_io_zone=z \
         kuma_mesh=default kuma_service=backend __metrics_path__=/m \
         __scheme__=http instance=backend-01"];
    assert_eq!(assignments.refresh_targets().await, want);
    answers.set_response(path, 304, "");
    assert_eq!(assignments.refresh_targets().await, want, "no news");
    let bodies: Vec<String> = answers
        .stub
        .received_requests()
        .into_iter()
        .map(|a| a.body)
        .collect();
    let kind = "type.googleapis.com/kuma.observability.v1.MonitoringAssignment";
    let [first, second] = [&bodies[0], &bodies[1]]
        .map(|body| serde_json::from_str::<serde_json::Value>(body).unwrap());
    assert_eq!(
        first,
        serde_json::json!({"node": {"id": "me"}, "type_url": kind})
    );
    let again = serde_json::json!({"node": {"id": "me"}, "type_url": kind,
        "version_info": "v1", "response_nonce": "n1"});
    assert_eq!(second, again);
    answers.set_response(path, 200, KUMA);
    assignments.check_targets_kept(&answers, path).await;
    answers.set_response(
        path,
        200,
        &KUMA.replace("observability.v1", "observability.v9"),
    );
    assert_eq!(assignments.refresh_targets().await, want, "another type");
    let empty = r#"{"typeUrl": "type.googleapis.com/kuma.observability.v1.MonitoringAssignment"}"#;
    answers.set_response(path, 200, empty);
    assert_eq!(assignments.refresh_targets().await, [""; 0]);
}

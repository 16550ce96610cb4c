//! Tests against a Consul stub whose catalog changes and which blocks queries.

use super::*;
use crate::stub::{StubRequest, StubResponse, StubServer, TargetListReceiver, wait_until};
use firn_http_client::HttpSettings;
use tokio::sync::watch;

/// State of the stub: its index, and the service names with their instances in JSON.
type State = (u64, Vec<(&'static str, &'static str)>);

const WEB: &str = r#"[{
  "Node": {"Node": "n1", "Address": "10.0.0.1", "Meta": {"rack-id": "r1"},
    "TaggedAddresses": {"lan": "10.0.0.1", "wan_ipv4": "1.2.3.4"}},
  "Service": {"ID": "web-1", "Service": "web", "Tags": ["a", "b"], "Address": "", "Port": 8080,
    "Meta": {"v": "2"}, "Namespace": "ns", "Partition": "pt"},
  "Checks": [{"CheckID": "c", "Status": "passing"}, {"CheckID": "d", "Status": "critical"}]
}, {
  "Node": {"Node": "n2", "Address": "10.0.0.2", "Meta": null, "TaggedAddresses": null},
  "Service": {"ID": "web-2", "Service": "web", "Tags": null, "Address": "fd00::2", "Port": 8081},
  "Checks": [{"CheckID": "_node_maintenance", "Status": "critical"}]
}]"#;

const WEB_TARGETS: [&str; 2] = [
    "10.0.0.1:8080 consul_address=10.0.0.1 consul_dc=dc1 consul_health=critical \
     consul_metadata_rack_id=r1 consul_namespace=ns consul_node=n1 consul_partition=pt \
     consul_service=web consul_service_id=web-1 consul_service_metadata_v=2 \
     consul_service_port=8080 consul_tagged_address_lan=10.0.0.1 \
     consul_tagged_address_wan_ipv4=1.2.3.4 consul_tags=,a,b,",
    "[fd00::2]:8081 consul_address=10.0.0.2 consul_dc=dc1 consul_health=maintenance \
     consul_node=n2 consul_service=web consul_service_address=fd00::2 consul_service_id=web-2 \
     consul_service_port=8081 consul_tags=,,",
];

const DB: &str = r#"[{"Node": {"Node": "n3", "Address": "10.0.0.3"},
  "Service": {"ID": "db-1", "Port": 1}, "Checks": [{"CheckID": "c", "Status": "odd"}]}]"#;

const DB_TARGET: &str = "10.0.0.3:1 consul_address=10.0.0.3 consul_dc=dc1 consul_node=n3 \
                         consul_service=db consul_service_id=db-1 consul_service_port=1 \
                         consul_tags=,,";

async fn answer(asked: StubRequest, mut state: watch::Receiver<State>) -> StubResponse {
    if asked.path == "/v1/agent/self" {
        return StubResponse::with_status(200, r#"{"Config": {"Datacenter": "dc1"}}"#);
    }
    let known = asked.path.split_once("index=").map_or(0, |(_, rest)| {
        let digits = rest.split('&').next().unwrap();
        digits.parse().unwrap()
    });
    let newer = state
        .wait_for(|(index, _)| *index == 0 || *index > known)
        .await;
    let (index, services) = newer.unwrap().clone();
    if index == 0 {
        return StubResponse::with_status(500, "no leader");
    }
    let body = match asked.path.strip_prefix("/v1/health/service/") {
        Some(rest) => {
            let name = rest.split('?').next().unwrap();
            let known = services.iter().find(|(known, _)| *known == name);
            known.map_or("[]", |(_, instances)| instances).to_owned()
        }
        None => {
            let entry = |(name, _): &(&str, &str)| format!("\"{name}\": [\"a\"]");
            format!(
                "{{{}}}",
                services.iter().map(entry).collect::<Vec<_>>().join(",")
            )
        }
    };
    StubResponse::with_status(200, &body).with_header("x-consul-index", &index.to_string())
}

fn settings(server: &str) -> ConsulSettings {
    ConsulSettings {
        server: server.to_owned(),
        scheme: "http".into(),
        path_prefix: String::new(),
        token: ConsulToken("s3cret".into()),
        datacenter: String::new(),
        namespace: String::new(),
        partition: String::new(),
        tag_separator: ",".into(),
        allow_stale: true,
        services: Vec::new(),
        tags: Vec::new(),
        node_meta: BTreeMap::new(),
        filter: String::new(),
        health_filter: String::new(),
        refresh: Duration::from_millis(1),
        client: HttpSettings::default(),
    }
}

fn watched(settings: &ConsulSettings) -> TargetListReceiver {
    let seen = TargetListReceiver::new();
    let timing = WatchTiming {
        pause: Duration::from_millis(1),
        // Long enough that the first list is complete, even on a slow machine.
        first: Duration::from_secs(60),
        retry: Duration::from_millis(1),
    };
    let watch = ConsulDiscovery::with_timing(settings, 1 << 20, seen.to.clone(), timing);
    tokio::spawn(watch.run(seen.to.clone()));
    seen
}

async fn consul(first: State) -> (watch::Sender<State>, StubServer) {
    let (sender, state) = watch::channel(first);
    let stub = StubServer::start(move |asked| answer(asked, state.clone())).await;
    (sender, stub)
}

#[tokio::test]
async fn services_come_change_and_go_and_stay_while_consul_fails() {
    let (state, stub) = consul((3, vec![("web", WEB)])).await;
    let seen = watched(&settings(&stub.url));
    assert_eq!(seen.next_targets().await, WEB_TARGETS);

    state.send_replace((4, vec![("web", WEB), ("db", DB)]));
    let mut lines = seen.next_targets().await;
    while lines.len() < 3 {
        lines = seen.next_targets().await;
    }
    assert_eq!(lines[0], DB_TARGET);
    assert_eq!(lines[1..], WEB_TARGETS);

    state.send_replace((0, vec![]));
    wait_until(|| seen.to.failures.get() > 3).await;
    assert_eq!(seen.to.targets.get(), 3);

    state.send_replace((9, vec![("db", DB)]));
    let mut lines = seen.next_targets().await;
    while lines.len() > 1 {
        lines = seen.next_targets().await;
    }
    assert_eq!(lines, [DB_TARGET]);
    assert!(
        stub.received_requests()
            .iter()
            .all(|asked| asked.headers["x-consul-token"] == "s3cret")
    );
}

#[tokio::test]
async fn queries_carry_what_the_settings_say() {
    let (_state, stub) = consul((3, vec![("web", WEB), ("db", DB)])).await;
    let seen = watched(&ConsulSettings {
        path_prefix: String::new(),
        datacenter: "dc 9".into(),
        namespace: "n".into(),
        partition: "p".into(),
        services: vec!["web".into()],
        tags: vec!["a".into()],
        node_meta: [("rack".to_owned(), "r1".to_owned())].into(),
        filter: "x == 1".into(),
        health_filter: "y".into(),
        ..settings(&stub.url)
    });
    assert_eq!(seen.next_targets().await.len(), 2);
    let common = "wait=120000ms";
    let paths = stub.received_paths();
    assert_eq!(
        paths[0],
        format!(
            "/v1/catalog/services?dc=dc+9&ns=n&partition=p&{common}&filter=x+%3D%3D+1&stale=\
             &node-meta=rack%3Ar1"
        )
    );
    let health = paths
        .iter()
        .find(|path| path.starts_with("/v1/health"))
        .unwrap();
    assert_eq!(
        *health,
        format!(
            "/v1/health/service/web?dc=dc+9&ns=n&partition=p&{common}&filter=y&tag=a&stale=\
             &node-meta=rack%3Ar1"
        )
    );
    assert!(!paths.iter().any(|path| path.contains("/service/db")));
}

#[test]
fn server_says_where_consul_is() {
    for (server, prefix, want) in [
        ("localhost:8500", "", "http://localhost:8500"),
        ("https://c:1", "", "https://c:1"),
        ("c:1/a/", "", "http://c:1/a"),
        ("c:1", "/p/", "http://c:1/p"),
    ] {
        let settings = ConsulSettings {
            path_prefix: prefix.into(),
            ..settings(server)
        };
        assert_eq!(build_base_url(&settings), want);
    }
}

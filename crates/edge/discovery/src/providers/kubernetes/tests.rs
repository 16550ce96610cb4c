//! Tests against a cluster stub whose objects change and whose watches end or expire.

use super::settings::{KubernetesAttachMetadata, KubernetesRole, KubernetesSelector};
use super::*;
use crate::stub::{StubRequest, StubResponse, StubServer, TargetListReceiver, wait_until};
use firn_http_client::HttpSettings;
use hyper::body::Bytes;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;

/// Lists by URL path, and the event streams of open watches.
#[derive(Clone, Default)]
struct Cluster {
    lists: Arc<Mutex<BTreeMap<&'static str, String>>>,
    watches: Arc<Mutex<BTreeMap<String, UnboundedSender<Bytes>>>>,
    is_broken: Arc<Mutex<bool>>,
}

impl Cluster {
    fn of(lists: &[(&'static str, &str)]) -> Self {
        let cluster = Self::default();
        for (path, items) in lists {
            cluster.set(path, 5, items);
        }
        cluster
    }

    fn set(&self, path: &'static str, version: u64, items: &str) {
        let list =
            format!(r#"{{"metadata": {{"resourceVersion": "{version}"}}, "items": [{items}]}}"#);
        self.lists.lock().unwrap().insert(path, list);
    }

    fn answer(&self, asked: &StubRequest) -> StubResponse {
        if *self.is_broken.lock().unwrap() {
            return StubResponse::with_status(
                500,
                r#"{"kind": "Status", "message": "etcd is away"}"#,
            );
        }
        let (path, query) = asked.path.split_once('?').unwrap_or((&asked.path, ""));
        if query.contains("watch=true") {
            let (sender, reply) = StubResponse::open_stream(200);
            self.watches.lock().unwrap().insert(path.to_owned(), sender);
            return reply;
        }
        match self.lists.lock().unwrap().get(path) {
            Some(list) => StubResponse::with_status(200, list),
            None => StubResponse::with_status(403, r#"{"kind": "Status", "message": "forbidden"}"#),
        }
    }

    async fn start(&self) -> StubServer {
        let cluster = self.clone();
        StubServer::start(move |asked| {
            let cluster = cluster.clone();
            async move { cluster.answer(&asked) }
        })
        .await
    }

    /// Sends an event to the watch of `path`, after waiting for it to open.
    async fn tell(&self, path: &str, kind: &str, object: &str) {
        wait_until(|| self.watches.lock().unwrap().contains_key(path)).await;
        let line = format!(
            "{{\"type\": \"{kind}\", \"object\": {}}}\n",
            one_line(object)
        );
        // An event split into two chunks must be applied once it is complete.
        let (first, second) = line.split_at(line.len() / 2);
        for part in [first, second] {
            let bytes = Bytes::copy_from_slice(part.as_bytes());
            self.watches.lock().unwrap()[path].send(bytes).unwrap();
        }
    }

    /// Ends the stream of the watch of `path`.
    async fn end(&self, path: &str) {
        wait_until(|| self.watches.lock().unwrap().contains_key(path)).await;
        self.watches.lock().unwrap().remove(path);
    }
}

fn one_line(json: &str) -> String {
    json.replace('\n', " ")
}

fn settings(server: &str, role: KubernetesRole) -> KubernetesSettings {
    KubernetesSettings {
        api_server: Some(server.to_owned()),
        kubeconfig: None,
        role,
        namespaces: Vec::new(),
        own_namespace: false,
        selectors: Vec::new(),
        attached: KubernetesAttachMetadata::default(),
        client: HttpSettings::default(),
    }
}

fn watched(settings: &KubernetesSettings) -> TargetListReceiver {
    let seen = TargetListReceiver::new();
    let watch = KubernetesDiscovery {
        settings: settings.clone(),
        bytes_max: 1 << 20,
        timing: WatchTiming {
            pause: Duration::from_millis(1),
            // Long enough that the first list is complete, even on a slow machine.
            first: Duration::from_secs(60),
            retry: Duration::from_millis(1),
        },
    };
    tokio::spawn(watch.run(seen.to.clone()));
    seen
}

const PODS: &str = "/api/v1/pods";

const POD: &str = r#"{"metadata": {"name": "web-1", "namespace": "shop", "uid": "u1",
  "resourceVersion": "4", "labels": {"app/x": "web"}, "annotations": {"a.b": "c"},
  "ownerReferences": [{"kind": "ReplicaSet", "name": "web-abc", "controller": true}]},
 "spec": {"nodeName": "n1",
  "containers": [{"name": "main", "image": "web:1",
    "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"},
              {"name": "admin", "containerPort": 9000, "protocol": "TCP"}]},
   {"name": "side", "image": "side:1"}],
  "initContainers": [{"name": "init", "image": "init:1",
    "ports": [{"containerPort": 7, "protocol": "TCP"}]}]},
 "status": {"podIP": "10.1.0.5", "hostIP": "10.0.0.1", "phase": "Running",
  "conditions": [{"type": "Ready", "status": "True"}],
  "containerStatuses": [{"name": "main", "containerID": "containerd://m"}],
  "initContainerStatuses": null}}"#;

const POD_LABELS: &str =
    "kubernetes_pod_annotation_a_b=c kubernetes_pod_annotationpresent_a_b=true";

/// Labels of a target of [`POD`] that follow those of the container.
const POD_REST: &str = "kubernetes_pod_controller_kind=ReplicaSet \
                        kubernetes_pod_controller_name=web-abc kubernetes_pod_host_ip=10.0.0.1 \
                        kubernetes_pod_ip=10.1.0.5 kubernetes_pod_label_app_x=web \
                        kubernetes_pod_labelpresent_app_x=true kubernetes_pod_name=web-1 \
                        kubernetes_pod_node_name=n1 kubernetes_pod_phase=Running \
                        kubernetes_pod_ready=true kubernetes_pod_uid=u1";

fn pod_lines() -> Vec<String> {
    let of = |address: &str, container: &str| {
        format!("{address} kubernetes_namespace=shop {POD_LABELS} {container} {POD_REST}",)
    };
    let port = |id: &str, image: &str, init: bool, name: &str, port: &str, of: &str| {
        let id = match id {
            "" => String::new(),
            id => format!("kubernetes_pod_container_id={id} "),
        };
        let port_name = match of {
            "" => String::new(),
            of => format!("kubernetes_pod_container_port_name={of} "),
        };
        format!(
            "{id}kubernetes_pod_container_image={image} kubernetes_pod_container_init={init} \
             kubernetes_pod_container_name={name} {port_name}\
             kubernetes_pod_container_port_number={port} \
             kubernetes_pod_container_port_protocol=TCP"
        )
    };
    let main = "containerd://m";
    vec![
        of(
            "10.1.0.5:8080",
            &port(main, "web:1", false, "main", "8080", "http"),
        ),
        of(
            "10.1.0.5:9000",
            &port(main, "web:1", false, "main", "9000", "admin"),
        ),
        of(
            "10.1.0.5",
            "kubernetes_pod_container_image=side:1 kubernetes_pod_container_init=false \
             kubernetes_pod_container_name=side",
        ),
        of("10.1.0.5:7", &port("", "init:1", true, "init", "7", "")),
    ]
}

#[tokio::test]
async fn pods_come_change_and_go_over_watches_that_end_expire_and_fail() {
    let cluster = Cluster::of(&[(PODS, POD)]);
    let stub = cluster.start().await;
    let seen = watched(&settings(&stub.url, KubernetesRole::Pod));
    assert_eq!(seen.next_targets().await, pod_lines());

    let other = POD
        .replace("web-1", "web-2")
        .replace("\"4\"", "\"6\"")
        .replace("10.1.0.5", "10.1.0.6");
    cluster.tell(PODS, "ADDED", &other).await;
    assert_eq!(seen.next_targets().await.len(), 8);
    let bookmark = r#"{"metadata": {"resourceVersion": "9"}}"#;
    cluster.tell(PODS, "BOOKMARK", bookmark).await;
    // The next watch starts at the bookmark, and the objects are not listed again.
    cluster.end(PODS).await;
    cluster.tell(PODS, "DELETED", &other).await;
    assert_eq!(seen.next_targets().await, pod_lines());
    let versions: Vec<String> = stub
        .received_paths()
        .iter()
        .filter_map(|path| path.split_once("resourceVersion="))
        .map(|(_, rest)| rest.split('&').next().unwrap().to_owned())
        .collect();
    assert_eq!(versions, ["0", "5", "9"]);

    // Changes that the watch missed appear after a new list.
    cluster.set(PODS, 20, &format!("{POD}, {other}"));
    let expired = r#"{"kind": "Status", "code": 410, "reason": "Expired", "message": "old"}"#;
    cluster.tell(PODS, "ERROR", expired).await;
    assert_eq!(seen.next_targets().await.len(), 8);
    assert_eq!(seen.to.failures.get(), 0);

    // Targets remain while the API fails.
    *cluster.is_broken.lock().unwrap() = true;
    cluster.end(PODS).await;
    wait_until(|| seen.to.failures.get() > 2).await;
    assert_eq!(seen.to.targets.get(), 8);
    *cluster.is_broken.lock().unwrap() = false;
    let moved = other.replace("10.1.0.6", "");
    cluster.tell(PODS, "MODIFIED", &moved).await;
    assert_eq!(seen.next_targets().await, pod_lines());
}

/// Returns the page that `query` requests of a list of five pods, with two pods per page.
fn page(query: &str) -> StubResponse {
    let token = query
        .split('&')
        .find_map(|p| p.strip_prefix("continue=at-"));
    let first: usize = token.map_or(0, |token| token.parse().unwrap());
    let end = (first + 2).min(5);
    let pod = |i: usize| {
        let name = format!("\"name\": \"web-{i}\"");
        POD.replace("\"name\": \"web-1\"", &name)
    };
    let items: Vec<String> = (first..end).map(pod).collect();
    let next = match end {
        5 => String::new(),
        end => format!("at-{end}"),
    };
    StubResponse::with_status(
        200,
        &format!(
            r#"{{"metadata": {{"resourceVersion": "5", "continue": "{next}"}}, "items": [{}]}}"#,
            items.join(",")
        ),
    )
}

#[tokio::test]
async fn list_that_is_too_long_for_an_answer_is_read_in_pages() {
    let cluster = Cluster::default();
    let stub = StubServer::start(move |asked| {
        let cluster = cluster.clone();
        async move {
            let query = asked.path.split_once('?').map_or("", |(_, query)| query);
            match query {
                _ if query.contains("watch=true") => cluster.answer(&asked),
                _ if query.contains("limit=500") => page(query),
                _ => StubResponse::with_status(200, &" ".repeat(2 << 20)),
            }
        }
    })
    .await;
    let seen = watched(&settings(&stub.url, KubernetesRole::Pod));
    assert_eq!(seen.next_targets().await.len(), 5 * pod_lines().len());
    assert_eq!(seen.to.failures.get(), 0);
}

const NODE: &str = r#"{"metadata": {"name": "n1", "labels": {"zone": "a"}},
 "spec": {"providerID": "aws://i-1"},
 "status": {"conditions": [{"type": "Ready", "status": "True"}],
  "addresses": [{"type": "Hostname", "address": "n1.local"},
                {"type": "InternalIP", "address": "10.0.0.1"},
                {"type": "InternalIP", "address": "10.0.0.2"}],
  "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}}}}"#;

const SERVICE: &str = r#"{"metadata": {"name": "web", "namespace": "shop", "labels": {"l": "s"}},
 "spec": {"type": "LoadBalancer", "clusterIP": "10.96.0.1", "loadBalancerIP": "1.1.1.1",
  "ports": [{"name": "http", "port": 80, "protocol": "TCP"}]}}"#;

const EXTERNAL: &str = r#"{"metadata": {"name": "ext", "namespace": "shop"},
 "spec": {"type": "ExternalName", "externalName": "a.b", "ports": [{"port": 1}]}}"#;

const INGRESS: &str = r#"{"metadata": {"name": "in", "namespace": "shop"},
 "spec": {"ingressClassName": "nginx", "tls": [{"hosts": ["*.example.org"]}],
  "rules": [{"host": "a.example.org", "http": {"paths": [{"path": "/x"}, {"path": ""}]}},
            {"host": "a.b.example.org"}]}}"#;

const ENDPOINTS: &str = r#"{"metadata": {"name": "web", "namespace": "shop"},
 "subsets": [{"addresses": [{"ip": "10.1.0.5", "nodeName": "n1",
    "targetRef": {"kind": "Pod", "namespace": "shop", "name": "web-1"}}],
   "notReadyAddresses": [{"ip": "10.1.0.9", "hostname": "h",
    "targetRef": {"kind": "Node", "name": "n1"}}],
   "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}]}]}"#;

const SLICE: &str = r#"{"metadata": {"name": "web-x", "namespace": "shop",
  "labels": {"kubernetes.io/service-name": "web"}}, "addressType": "IPv4",
 "endpoints": [{"addresses": ["10.1.0.5"],
   "conditions": {"ready": true, "serving": true, "terminating": false},
   "hostname": "h", "nodeName": "n1", "zone": "z",
   "targetRef": {"kind": "Pod", "namespace": "shop", "name": "web-1"}}],
 "ports": [{"name": "http", "port": 8080, "protocol": "TCP", "appProtocol": "h2c"}]}"#;

const NAMESPACE: &str = r#"{"metadata": {"name": "shop", "labels": {"team": "t"}}}"#;

fn all() -> Cluster {
    Cluster::of(&[
        (PODS, POD),
        ("/api/v1/nodes", NODE),
        ("/api/v1/services", &format!("{SERVICE}, {EXTERNAL}")),
        ("/api/v1/endpoints", ENDPOINTS),
        ("/api/v1/namespaces", NAMESPACE),
        ("/apis/discovery.k8s.io/v1/endpointslices", SLICE),
        ("/apis/networking.k8s.io/v1/ingresses", INGRESS),
        (
            "/apis/apps/v1/replicasets",
            r#"{"metadata": {"name": "web-abc", "namespace": "shop",
              "ownerReferences": [{"kind": "Deployment", "name": "web", "controller": true}]}}"#,
        ),
    ])
}

#[tokio::test]
async fn nodes_services_and_ingresses_become_targets() {
    let stub = all().start().await;
    let service = "kubernetes_service_name";
    for (role, want) in [
        (
            KubernetesRole::Node,
            vec![
                "10.0.0.1:10250 kubernetes_node_address_Hostname=n1.local \
                 kubernetes_node_address_InternalIP=10.0.0.1 \
                 kubernetes_node_condition_ready=true kubernetes_node_label_zone=a \
                 kubernetes_node_labelpresent_zone=true kubernetes_node_name=n1 \
                 kubernetes_node_provider_id=aws://i-1 instance=n1"
                    .to_owned(),
            ],
        ),
        (
            KubernetesRole::Service,
            vec![
                format!(
                    "ext.shop.svc:1 kubernetes_namespace=shop \
                     kubernetes_service_external_name=a.b {service}=ext \
                     kubernetes_service_port_number=1 kubernetes_service_type=ExternalName"
                ),
                format!(
                    "web.shop.svc:80 kubernetes_namespace=shop \
                     kubernetes_service_cluster_ip=10.96.0.1 kubernetes_service_label_l=s \
                     kubernetes_service_labelpresent_l=true \
                     kubernetes_service_loadbalancer_ip=1.1.1.1 {service}=web \
                     kubernetes_service_port_name=http kubernetes_service_port_number=80 \
                     kubernetes_service_port_protocol=TCP kubernetes_service_type=LoadBalancer"
                ),
            ],
        ),
        (
            KubernetesRole::Ingress,
            [
                ("a.example.org", "/x", "https"),
                ("a.example.org", "/", "https"),
                ("a.b.example.org", "/", "http"),
            ]
            .map(|(host, path, scheme)| {
                format!(
                    "{host} kubernetes_ingress_class_name=nginx kubernetes_ingress_host={host} \
                     kubernetes_ingress_name=in kubernetes_ingress_path={path} \
                     kubernetes_ingress_scheme={scheme} kubernetes_namespace=shop"
                )
            })
            .to_vec(),
        ),
    ] {
        let seen = watched(&settings(&stub.url, role));
        assert_eq!(seen.next_targets().await, want, "{role:?}");
    }
}

/// Returns the value of a label in a line.
fn label<'l>(line: &'l str, name: &str) -> Option<&'l str> {
    let name = format!("kubernetes_{name}=");
    line.split(' ').find_map(|part| part.strip_prefix(&name))
}

#[tokio::test]
async fn endpoints_and_slices_lead_to_pods_nodes_and_services() {
    let stub = all().start().await;
    for role in [KubernetesRole::Endpoints, KubernetesRole::EndpointSlice] {
        let attached = KubernetesAttachMetadata {
            node: true,
            namespace: true,
            deployment: true,
            ..KubernetesAttachMetadata::default()
        };
        let seen = watched(&KubernetesSettings {
            attached,
            ..settings(&stub.url, role)
        });
        // Owners of owners may be listed later than the other objects.
        let mut lines = seen.next_targets().await;
        while label(&lines[0], "pod_deployment_name").is_none() {
            lines = seen.next_targets().await;
        }
        let addresses: Vec<&str> = lines.iter().map(|l| l.split(' ').next().unwrap()).collect();
        let is_slice = role == KubernetesRole::EndpointSlice;
        let first = &lines[0];
        for (name, want) in [
            ("pod_container_name", "main"),
            ("pod_container_port_name", "http"),
            ("pod_deployment_name", "web"),
            ("node_label_zone", "a"),
            ("namespace_label_team", "t"),
            ("service_name", "web"),
            ("namespace", "shop"),
        ] {
            assert_eq!(label(first, name), Some(want), "{name}");
        }
        if is_slice {
            // Ports to which no endpoint refers follow the others.
            assert_eq!(addresses, ["10.1.0.5:8080", "10.1.0.5:9000", "10.1.0.5:7"]);
            for (name, want) in [
                ("endpointslice_name", "web-x"),
                ("endpointslice_address_type", "IPv4"),
                ("endpointslice_port", "8080"),
                ("endpointslice_port_app_protocol", "h2c"),
                ("endpointslice_endpoint_conditions_terminating", "false"),
                ("endpointslice_endpoint_zone", "z"),
                ("endpointslice_address_target_kind", "Pod"),
            ] {
                assert_eq!(label(first, name), Some(want), "{name}");
            }
            assert_eq!(label(&lines[1], "endpointslice_port"), None);
        } else {
            let want = [
                "10.1.0.5:8080",
                "10.1.0.9:8080",
                "10.1.0.5:9000",
                "10.1.0.5:7",
            ];
            assert_eq!(addresses, want);
            assert_eq!(label(first, "endpoint_ready"), Some("true"));
            assert_eq!(label(first, "endpoint_node_name"), Some("n1"));
            assert_eq!(label(&lines[1], "endpoint_ready"), Some("false"));
            assert_eq!(label(&lines[1], "endpoint_hostname"), Some("h"));
            assert_eq!(label(&lines[1], "node_name"), Some("n1"));
            assert_eq!(label(&lines[2], "endpoint_ready"), None);
            assert_eq!(label(&lines[2], "pod_container_init"), Some("false"));
        }
    }
}

#[tokio::test]
async fn namespaces_and_selectors_narrow_what_is_asked() {
    let cluster = Cluster::of(&[
        ("/api/v1/namespaces/a/pods", POD),
        ("/api/v1/namespaces/b/pods", ""),
        ("/api/v1/nodes", ""),
    ]);
    let stub = cluster.start().await;
    let seen = watched(&KubernetesSettings {
        namespaces: vec!["a".into(), "b".into()],
        selectors: vec![KubernetesSelector {
            role: KubernetesRole::Pod,
            label: "app in (x)".into(),
            field: "spec.nodeName=n1".into(),
        }],
        attached: KubernetesAttachMetadata {
            node: true,
            ..KubernetesAttachMetadata::default()
        },
        ..settings(&stub.url, KubernetesRole::Pod)
    });
    // The store does not contain the node of the pod, so the pod has no target.
    assert_eq!(seen.next_targets().await, Vec::<String>::new());
    let selected = "fieldSelector=spec.nodeName%3Dn1&labelSelector=app+in+%28x%29";
    for path in [
        format!("/api/v1/namespaces/a/pods?resourceVersion=0&{selected}"),
        format!("/api/v1/namespaces/b/pods?resourceVersion=0&{selected}"),
        "/api/v1/nodes?resourceVersion=0".to_owned(),
    ] {
        assert!(stub.received_paths().contains(&path), "{path}");
    }
}

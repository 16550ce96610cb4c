//! Tests of Docker discovery against stub engines on the loopback and at a Unix socket.

use super::*;
use crate::discover::Refresh;
use crate::stub::{StubRequest, StubResponse, StubServer, format_targets};

const NETWORKS: &str = r#"[{"Name": "web", "Id": "net1", "Scope": "local", "Internal": false,
  "Ingress": false, "Labels": {"team.name": "x"}},
 {"Name": "ingress", "Id": "net2", "Scope": "swarm", "Internal": true, "Ingress": true}]"#;

const CONTAINERS: &str = r#"[
 {"Id": "c1", "Names": ["/web"], "Image": "nginx", "ImageID": "sha256:1",
  "Labels": {"com.x/y": "z"},
  "Ports": [{"IP": "0.0.0.0", "PrivatePort": 80, "PublicPort": 8080, "Type": "tcp"},
            {"PrivatePort": 53, "Type": "udp"}],
  "HostConfig": {"NetworkMode": "web"},
  "NetworkSettings": {"Networks": {
    "web": {"IPAddress": "172.17.0.2", "NetworkID": "net1"},
    "aaa": null,
    "zzz": {"IPAddress": "172.18.0.2", "NetworkID": "net9"}}}},
 {"Id": "c2", "Names": ["/side"], "Labels": null, "Ports": null,
  "HostConfig": {"NetworkMode": "container:c1"}, "NetworkSettings": {"Networks": {}}},
 {"Id": "c3", "Names": ["/host"], "Ports": [],
  "HostConfig": {"NetworkMode": "host"},
  "NetworkSettings": {"Networks": {"host": {"IPAddress": "", "NetworkID": "neth"}}}},
 {"Id": "c4", "Names": [], "HostConfig": {}, "NetworkSettings": {}}]"#;

const NODES: &str = r#"[{"ID": "n1",
  "Spec": {"Role": "manager", "Availability": "active", "Labels": {"zone": "a"}},
  "Description": {"Hostname": "h1", "Platform": {"Architecture": "x86_64", "OS": "linux"},
    "Engine": {"EngineVersion": "28.0"}},
  "Status": {"State": "ready", "Addr": "10.0.0.1"},
  "ManagerStatus": {"Leader": true, "Reachability": "reachable", "Addr": "10.0.0.1:2377"}}]"#;

const SERVICES: &str = r#"[{"ID": "s1", "Spec": {"Name": "web", "Labels": {"a-b": "c"},
    "TaskTemplate": {"ContainerSpec": {"Image": "nginx:1", "Hostname": "hh"}},
    "Mode": {"Replicated": {"Replicas": 2}}},
  "UpdateStatus": {"State": "completed"},
  "Endpoint": {"Ports": [{"Name": "http", "Protocol": "tcp", "TargetPort": 80,
      "PublishedPort": 8080, "PublishMode": "ingress"}],
    "VirtualIPs": [{"NetworkID": "net2", "Addr": "10.255.0.2/16"}]}},
 {"ID": "s2", "Spec": {"Name": "agent", "TaskTemplate": {}, "Mode": {"Global": {}}},
  "Endpoint": {"VirtualIPs": [{"NetworkID": "net1", "Addr": "10.0.1.2/24"}]}}]"#;

const TASKS: &str = r#"[{"ID": "t1", "ServiceID": "s1", "NodeID": "n1", "Slot": 2,
  "DesiredState": "running", "Spec": {"ContainerSpec": {"Labels": {"k": "v"}}},
  "Status": {"State": "running", "ContainerStatus": {"ContainerID": "cc"},
    "PortStatus": {"Ports": [{"Protocol": "tcp", "PublishedPort": 9, "PublishMode": "host"}]}},
  "NetworksAttachments": [{"Network": {"ID": "net1"}, "Addresses": ["10.0.1.9/24"]}]}]"#;

async fn answer(asked: StubRequest) -> StubResponse {
    let path = asked.path.split('?').next().unwrap();
    match path {
        "/networks" => StubResponse::with_status(200, NETWORKS),
        "/containers/json" => StubResponse::with_status(200, CONTAINERS),
        "/nodes" => StubResponse::with_status(200, NODES),
        "/services" => StubResponse::with_status(200, SERVICES),
        "/tasks" => StubResponse::with_status(200, TASKS),
        _ => StubResponse::with_status(404, r#"{"message": "page not found"}"#),
    }
}

fn settings(host: &str) -> DockerSettings {
    DockerSettings {
        host: host.to_owned(),
        port: 80,
        filters: vec![DockerFilter {
            name: "status".into(),
            values: vec!["running".into(), "paused".into()],
        }],
        host_networking_host: "localhost".into(),
        match_first_network: true,
        refresh: Duration::from_secs(60),
        client: HttpSettings::default(),
    }
}

const WEB_NETWORK: &str = "docker_network_id=net1 docker_network_ingress=false \
                           docker_network_internal=false docker_network_ip=172.17.0.2 \
                           docker_network_label_team_name=x docker_network_name=web \
                           docker_network_scope=local";

#[tokio::test]
async fn containers_become_targets_by_network_and_port() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("docker.sock");
    let stub = StubServer::start_unix(&socket, answer).await;
    let host = format!("unix://{}", socket.display());
    let mut containers = DockerDiscovery::new(&settings(&host), 1 << 20);
    let web = format!(
        "172.17.0.2:80 docker_container_id=c1 docker_container_label_com_x_y=z \
         docker_container_name=/web docker_container_network_mode=web {WEB_NETWORK} \
         docker_port_private=80 docker_port_public=8080 docker_port_public_ip=0.0.0.0"
    );
    let side = format!(
        "172.17.0.2:80 docker_container_id=c2 docker_container_name=/side \
         docker_container_network_mode=container:c1 {WEB_NETWORK}"
    );
    let on_host = "localhost docker_container_id=c3 docker_container_name=/host \
                   docker_container_network_mode=host";
    let want = [web.as_str(), &side, on_host];
    assert_eq!(format_targets(&containers.refresh().await.unwrap()), want);
    assert_eq!(
        stub.received_paths(),
        [
            "/containers/json?filters=%7B%22status%22%3A%7B%22paused%22%3Atrue%2C%22running%22%3A\
             true%7D%7D",
            "/networks"
        ]
    );

    let stub = StubServer::start(answer).await;
    let all = DockerSettings {
        match_first_network: false,
        ..settings(&stub.url)
    };
    let lines = format_targets(&DockerDiscovery::new(&all, 1 << 20).refresh().await.unwrap());
    let addresses: Vec<&str> = lines.iter().map(|l| l.split(' ').next().unwrap()).collect();
    let want = [
        "172.17.0.2:80",
        "172.18.0.2:80",
        "172.17.0.2:80",
        "172.18.0.2:80",
        "localhost",
    ];
    assert_eq!(addresses, want);
}

#[tokio::test]
async fn swarm_roles_become_targets() {
    let stub = StubServer::start(answer).await;
    let node = "dockerswarm_node_address=10.0.0.1 dockerswarm_node_availability=active";
    let more = "dockerswarm_node_hostname=h1 dockerswarm_node_id=n1 dockerswarm_node_label_zone=a";
    let platform = "dockerswarm_node_platform_architecture=x86_64 \
                    dockerswarm_node_platform_os=linux dockerswarm_node_role=manager \
                    dockerswarm_node_status=ready";
    let net1 = "dockerswarm_network_id=net1 dockerswarm_network_ingress=false \
                dockerswarm_network_internal=false dockerswarm_network_label_team_name=x \
                dockerswarm_network_name=web dockerswarm_network_scope=local";
    let service = "dockerswarm_service_id=s1 dockerswarm_service_label_a_b=c \
                   dockerswarm_service_mode=replicated dockerswarm_service_name=web";
    let task = "dockerswarm_task_container_id=cc dockerswarm_task_desired_state=running \
                dockerswarm_task_id=t1";
    for (role, want) in [
        (
            SwarmRole::Nodes,
            vec![format!(
                "10.0.0.1:80 {node} dockerswarm_node_engine_version=28.0 {more} \
                 dockerswarm_node_manager_address=10.0.0.1:2377 \
                 dockerswarm_node_manager_leader=true \
                 dockerswarm_node_manager_reachability=reachable {platform}"
            )],
        ),
        (
            SwarmRole::Services,
            vec![
                "10.255.0.2:8080 dockerswarm_network_id=net2 dockerswarm_network_ingress=true \
                 dockerswarm_network_internal=true dockerswarm_network_name=ingress \
                 dockerswarm_network_scope=swarm dockerswarm_service_endpoint_port_name=http \
                 dockerswarm_service_endpoint_port_publish_mode=ingress \
                 dockerswarm_service_id=s1 dockerswarm_service_label_a_b=c \
                 dockerswarm_service_mode=replicated dockerswarm_service_name=web \
                 dockerswarm_service_task_container_hostname=hh \
                 dockerswarm_service_task_container_image=nginx:1 \
                 dockerswarm_service_updating_status=completed"
                    .to_owned(),
                format!(
                    "10.0.1.2:80 {net1} dockerswarm_service_id=s2 \
                     dockerswarm_service_mode=global dockerswarm_service_name=agent"
                ),
            ],
        ),
        (
            SwarmRole::Tasks,
            vec![
                format!(
                    "10.0.0.1:9 dockerswarm_container_label_k=v {node} {more} {platform} \
                     {service} {task} dockerswarm_task_port_publish_mode=host \
                     dockerswarm_task_slot=2 dockerswarm_task_state=running"
                ),
                format!(
                    "10.0.1.9:8080 dockerswarm_container_label_k=v {net1} {node} {more} \
                     {platform} {service} {task} dockerswarm_task_port_publish_mode=ingress \
                     dockerswarm_task_slot=2 dockerswarm_task_state=running"
                ),
            ],
        ),
    ] {
        let mut swarm = SwarmDiscovery::new(
            &SwarmSettings {
                host: stub.url.replace("http://", "tcp://"),
                role,
                port: 80,
                filters: Vec::new(),
                refresh: Duration::from_secs(60),
                client: HttpSettings::default(),
            },
            1 << 20,
        );
        assert_eq!(
            format_targets(&swarm.refresh().await.unwrap()),
            want,
            "{role:?}"
        );
    }
}

#[tokio::test]
async fn engine_that_fails_says_so() {
    for (host, want) in [
        (
            "unix:///nowhere/docker.sock",
            "error while listing containers: unix:///nowhere/docker.sock: No such file or \
             directory (os error 2)",
        ),
        (
            "npipe://x",
            "error while listing containers: unable to parse docker host \"npipe://x\"",
        ),
    ] {
        let mut containers = DockerDiscovery::new(&settings(host), 1 << 20);
        assert_eq!(containers.refresh().await.unwrap_err().message, want);
    }
    let stub = StubServer::start(|_| async { StubResponse::with_status(503, "starting\n") }).await;
    let mut containers = DockerDiscovery::new(&settings(&stub.url), 1 << 20);
    let e = containers.refresh().await.unwrap_err().message;
    let want = "error while listing containers: server returned HTTP status 503 Service \
                Unavailable: starting";
    assert_eq!(e, want);
}

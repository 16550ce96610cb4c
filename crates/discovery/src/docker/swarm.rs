//! Discovery of the nodes, services and tasks of a Docker swarm.

use super::daemon::Daemon;
use super::{SwarmRole, SwarmSettings};
use crate::api::wrong;
use crate::discover::Refresh;
use crate::group::{Group, or_default};
use crate::meta::{Meta, host_port};
use firn_model::error::Error;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

/// Prefix of the names of all swarm labels.
const PREFIX: &str = "dockerswarm";

/// Discovery of the objects of one role in a Docker swarm.
#[derive(Debug)]
pub(in super::super) struct Swarm {
    settings: SwarmSettings,
    daemon: Daemon,
}

type Labels = BTreeMap<String, String>;

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct Node {
    #[serde(rename = "ID")]
    id: String,
    spec: NodeSpec,
    description: Description,
    status: NodeStatus,
    manager_status: Option<ManagerStatus>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct NodeSpec {
    role: String,
    availability: String,
    #[serde(deserialize_with = "or_default")]
    labels: Labels,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct Description {
    hostname: String,
    platform: Platform,
    engine: Engine,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Platform {
    #[serde(rename = "Architecture")]
    architecture: String,
    #[serde(rename = "OS")]
    os: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct Engine {
    engine_version: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct NodeStatus {
    state: String,
    addr: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct ManagerStatus {
    leader: bool,
    reachability: String,
    addr: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct Service {
    #[serde(rename = "ID")]
    id: String,
    spec: ServiceSpec,
    endpoint: ServiceEndpoint,
    update_status: Option<State>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct ServiceSpec {
    name: String,
    #[serde(deserialize_with = "or_default")]
    labels: Labels,
    task_template: TaskSpec,
    mode: Mode,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct Mode {
    global: Option<serde::de::IgnoredAny>,
    replicated: Option<serde::de::IgnoredAny>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct TaskSpec {
    container_spec: Option<ContainerSpec>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct ContainerSpec {
    image: String,
    hostname: String,
    #[serde(deserialize_with = "or_default")]
    labels: Labels,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct ServiceEndpoint {
    #[serde(deserialize_with = "or_default")]
    ports: Vec<Port>,
    #[serde(rename = "VirtualIPs", deserialize_with = "or_default")]
    virtual_ips: Vec<VirtualIp>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct VirtualIp {
    #[serde(rename = "NetworkID")]
    network_id: String,
    #[serde(rename = "Addr")]
    addr: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct Port {
    name: String,
    protocol: String,
    published_port: u32,
    publish_mode: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct State {
    state: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct Task {
    #[serde(rename = "ID")]
    id: String,
    #[serde(rename = "ServiceID")]
    service_id: String,
    #[serde(rename = "NodeID")]
    node_id: String,
    slot: i64,
    desired_state: String,
    spec: TaskSpec,
    status: TaskStatus,
    #[serde(deserialize_with = "or_default")]
    networks_attachments: Vec<Attachment>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct TaskStatus {
    state: String,
    container_status: Option<ContainerStatus>,
    #[serde(deserialize_with = "or_default")]
    port_status: PortStatus,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ContainerStatus {
    #[serde(rename = "ContainerID")]
    id: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct PortStatus {
    #[serde(deserialize_with = "or_default")]
    ports: Vec<Port>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct Attachment {
    network: AttachedNetwork,
    #[serde(deserialize_with = "or_default")]
    addresses: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct AttachedNetwork {
    #[serde(rename = "ID")]
    id: String,
}

impl Swarm {
    pub(in super::super) fn new(settings: &SwarmSettings, bytes_max: u64) -> Self {
        Self {
            daemon: Daemon::new(&settings.host, &settings.client, bytes_max),
            settings: settings.clone(),
        }
    }

    async fn nodes(&self) -> Result<Vec<Group>, Error> {
        let nodes: Vec<Node> = self.daemon.list("/nodes", &self.settings.filters).await?;
        let targets = nodes.iter().map(|node| {
            let mut meta = node.meta();
            let version = &node.description.engine.engine_version;
            meta.set("node_engine_version", version);
            if let Some(manager) = &node.manager_status {
                meta.set("node_manager_leader", manager.leader.to_string());
                meta.set("node_manager_reachability", &manager.reachability);
                meta.set("node_manager_address", &manager.addr);
            }
            meta.at(host_port(&node.status.addr, self.settings.port))
        });
        Ok(targets.collect())
    }

    async fn services(&self) -> Result<Vec<Group>, Error> {
        let filters = &self.settings.filters;
        let services: Vec<Service> = self.daemon.list("/services", filters).await?;
        let networks = self.daemon.networks(PREFIX).await?;
        let mut groups = Vec::new();
        for service in &services {
            let mut common = service.meta();
            if let Some(container) = &service.spec.task_template.container_spec {
                common.set("service_task_container_hostname", &container.hostname);
                common.set("service_task_container_image", &container.image);
            }
            if let Some(update) = &service.update_status {
                common.set("service_updating_status", &update.state);
            }
            for virtual_ip in &service.endpoint.virtual_ips {
                let ip = ip_of(&virtual_ip.addr)?;
                let mut meta = common.clone();
                if let Some(network) = networks.get(&virtual_ip.network_id) {
                    meta.merge(network);
                }
                let before = groups.len();
                for port in tcp(&service.endpoint.ports) {
                    let mut meta = meta.clone();
                    meta.set("service_endpoint_port_name", &port.name);
                    meta.set("service_endpoint_port_publish_mode", &port.publish_mode);
                    groups.push(meta.at(host_port(&ip, port.published_port)));
                }
                if groups.len() == before {
                    groups.push(meta.at(host_port(&ip, self.settings.port)));
                }
            }
        }
        Ok(groups)
    }

    async fn tasks(&self) -> Result<Vec<Group>, Error> {
        let tasks: Vec<Task> = self.daemon.list("/tasks", &self.settings.filters).await?;
        let services: Vec<Service> = self.daemon.list("/services", &[]).await?;
        let services: BTreeMap<&str, &Service> =
            services.iter().map(|s| (s.id.as_str(), s)).collect();
        let nodes: Vec<Node> = self.daemon.list("/nodes", &[]).await?;
        let nodes: BTreeMap<&str, &Node> = nodes.iter().map(|n| (n.id.as_str(), n)).collect();
        let networks = self.daemon.networks(PREFIX).await?;
        let mut groups = Vec::new();
        for task in &tasks {
            let service = services.get(task.service_id.as_str());
            let node = nodes.get(task.node_id.as_str());
            let mut common = task.meta();
            if let Some(service) = service {
                common.merge(&service.meta());
            }
            if let Some(node) = node {
                common.merge(&node.meta());
            }
            let host = node.map_or("", |node| &node.status.addr);
            for port in tcp(&task.status.port_status.ports) {
                let mut meta = common.clone();
                meta.set("task_port_publish_mode", &port.publish_mode);
                groups.push(meta.at(host_port(host, port.published_port)));
            }
            let ports = service.map_or(&[][..], |service| &service.endpoint.ports);
            for attachment in &task.networks_attachments {
                let mut meta = common.clone();
                if let Some(network) = networks.get(&attachment.network.id) {
                    meta.merge(network);
                }
                for address in &attachment.addresses {
                    self.attached(&ip_of(address)?, ports, &meta, &mut groups);
                }
            }
        }
        Ok(groups)
    }

    /// Appends the targets of a task in one network: one per published TCP port, or one with the
    /// configured port.
    fn attached(&self, ip: &str, ports: &[Port], meta: &Meta, groups: &mut Vec<Group>) {
        let before = groups.len();
        for port in tcp(ports) {
            let mut meta = meta.clone();
            meta.set("task_port_publish_mode", &port.publish_mode);
            groups.push(meta.at(host_port(ip, port.published_port)));
        }
        if groups.len() == before {
            groups.push(meta.clone().at(host_port(ip, self.settings.port)));
        }
    }
}

impl Refresh for Swarm {
    fn interval(&self) -> Duration {
        self.settings.refresh
    }

    fn name(&self) -> String {
        self.settings.host.clone()
    }

    async fn refresh(&mut self) -> Result<Vec<Group>, Error> {
        let listed = match self.settings.role {
            SwarmRole::Nodes => self.nodes().await,
            SwarmRole::Services => self.services().await,
            SwarmRole::Tasks => self.tasks().await,
        };
        listed.map_err(|e| wrong(format!("error while listing the swarm: {e}")))
    }
}

impl Node {
    fn meta(&self) -> Meta {
        let mut meta = Meta::new(PREFIX);
        meta.set("node_id", &self.id);
        meta.set("node_role", &self.spec.role);
        meta.set("node_address", &self.status.addr);
        meta.set("node_availability", &self.spec.availability);
        meta.set("node_hostname", &self.description.hostname);
        let platform = &self.description.platform;
        meta.set("node_platform_architecture", &platform.architecture);
        meta.set("node_platform_os", &platform.os);
        meta.set("node_status", &self.status.state);
        meta.set_each("node_label_", &self.spec.labels);
        meta
    }
}

impl Service {
    fn meta(&self) -> Meta {
        let mut meta = Meta::new(PREFIX);
        meta.set("service_id", &self.id);
        meta.set("service_name", &self.spec.name);
        let mode = match &self.spec.mode {
            mode if mode.global.is_some() => "global",
            mode if mode.replicated.is_some() => "replicated",
            _ => "",
        };
        meta.set("service_mode", mode);
        meta.set_each("service_label_", &self.spec.labels);
        meta
    }
}

impl Task {
    fn meta(&self) -> Meta {
        let mut meta = Meta::new(PREFIX);
        meta.set("task_id", &self.id);
        meta.set("task_desired_state", &self.desired_state);
        meta.set("task_state", &self.status.state);
        meta.set("task_slot", self.slot.to_string());
        if let Some(container) = &self.status.container_status {
            meta.set("task_container_id", &container.id);
        }
        if let Some(container) = &self.spec.container_spec {
            meta.set_each("container_label_", &container.labels);
        }
        meta
    }
}

fn tcp(ports: &[Port]) -> impl Iterator<Item = &Port> {
    ports.iter().filter(|port| port.protocol == "tcp")
}

/// Returns the address part of a prefix such as `10.0.0.3/24`.
fn ip_of(prefix: &str) -> Result<String, Error> {
    let ip = prefix.split_once('/').map(|(ip, _)| ip);
    match ip.and_then(|ip| ip.parse::<IpAddr>().ok()) {
        Some(ip) => Ok(ip.to_string()),
        None => Err(wrong(format!("error while parsing address {prefix:?}"))),
    }
}

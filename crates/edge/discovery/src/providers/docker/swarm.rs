//! Discovery of the nodes, services and tasks of a Docker swarm.

use super::daemon::DockerClient;
use super::{SwarmRole, SwarmSettings};
use crate::api::invalid_response_error;
use crate::discover::Refresh;
use crate::group::{TargetGroup, or_default};
use crate::meta::{MetaLabels, join_host_port};
use firn_model::error::Error;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

/// Prefix of the names of all swarm labels.
const PREFIX: &str = "dockerswarm";

/// Discovery of the objects of one role in a Docker swarm.
#[derive(Debug)]
pub(in super::super) struct SwarmDiscovery {
    settings: SwarmSettings,
    daemon: DockerClient,
}

type Labels = BTreeMap<String, String>;

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct SwarmNode {
    #[serde(rename = "ID")]
    id: String,
    spec: SwarmNodeSpec,
    description: SwarmNodeDescription,
    status: SwarmNodeStatus,
    manager_status: Option<SwarmManagerStatus>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct SwarmNodeSpec {
    role: String,
    availability: String,
    #[serde(deserialize_with = "or_default")]
    labels: Labels,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct SwarmNodeDescription {
    hostname: String,
    platform: SwarmPlatform,
    engine: SwarmEngine,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct SwarmPlatform {
    #[serde(rename = "Architecture")]
    architecture: String,
    #[serde(rename = "OS")]
    os: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct SwarmEngine {
    engine_version: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct SwarmNodeStatus {
    state: String,
    addr: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct SwarmManagerStatus {
    leader: bool,
    reachability: String,
    addr: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct SwarmService {
    #[serde(rename = "ID")]
    id: String,
    spec: SwarmServiceSpec,
    endpoint: SwarmServiceEndpoint,
    update_status: Option<SwarmUpdateStatus>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct SwarmServiceSpec {
    name: String,
    #[serde(deserialize_with = "or_default")]
    labels: Labels,
    task_template: SwarmTaskSpec,
    mode: SwarmServiceMode,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct SwarmServiceMode {
    global: Option<serde::de::IgnoredAny>,
    replicated: Option<serde::de::IgnoredAny>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct SwarmTaskSpec {
    container_spec: Option<SwarmContainerSpec>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct SwarmContainerSpec {
    image: String,
    hostname: String,
    #[serde(deserialize_with = "or_default")]
    labels: Labels,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct SwarmServiceEndpoint {
    #[serde(deserialize_with = "or_default")]
    ports: Vec<SwarmPort>,
    #[serde(rename = "VirtualIPs", deserialize_with = "or_default")]
    virtual_ips: Vec<SwarmVirtualIp>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct SwarmVirtualIp {
    #[serde(rename = "NetworkID")]
    network_id: String,
    #[serde(rename = "Addr")]
    addr: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct SwarmPort {
    name: String,
    protocol: String,
    published_port: u32,
    publish_mode: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct SwarmUpdateStatus {
    state: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct SwarmTask {
    #[serde(rename = "ID")]
    id: String,
    #[serde(rename = "ServiceID")]
    service_id: String,
    #[serde(rename = "NodeID")]
    node_id: String,
    slot: i64,
    desired_state: String,
    spec: SwarmTaskSpec,
    status: SwarmTaskStatus,
    #[serde(deserialize_with = "or_default")]
    networks_attachments: Vec<SwarmNetworkAttachment>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct SwarmTaskStatus {
    state: String,
    container_status: Option<SwarmContainerStatus>,
    #[serde(deserialize_with = "or_default")]
    port_status: SwarmPortStatus,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct SwarmContainerStatus {
    #[serde(rename = "ContainerID")]
    id: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct SwarmPortStatus {
    #[serde(deserialize_with = "or_default")]
    ports: Vec<SwarmPort>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct SwarmNetworkAttachment {
    network: SwarmAttachedNetwork,
    #[serde(deserialize_with = "or_default")]
    addresses: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct SwarmAttachedNetwork {
    #[serde(rename = "ID")]
    id: String,
}

impl SwarmDiscovery {
    pub(in super::super) fn new(settings: &SwarmSettings, bytes_max: u64) -> Self {
        Self {
            daemon: DockerClient::new(&settings.host, &settings.client, bytes_max),
            settings: settings.clone(),
        }
    }

    async fn fetch_node_targets(&self) -> Result<Vec<TargetGroup>, Error> {
        let nodes: Vec<SwarmNode> = self
            .daemon
            .get_list("/nodes", &self.settings.filters)
            .await?;
        let targets = nodes.iter().map(|node| {
            let mut meta = node.build_meta_labels();
            let version = &node.description.engine.engine_version;
            meta.set("node_engine_version", version);
            if let Some(manager) = &node.manager_status {
                meta.set("node_manager_leader", manager.leader.to_string());
                meta.set("node_manager_reachability", &manager.reachability);
                meta.set("node_manager_address", &manager.addr);
            }
            meta.into_target(join_host_port(&node.status.addr, self.settings.port))
        });
        Ok(targets.collect())
    }

    async fn fetch_service_targets(&self) -> Result<Vec<TargetGroup>, Error> {
        let filters = &self.settings.filters;
        let services: Vec<SwarmService> = self.daemon.get_list("/services", filters).await?;
        let networks = self.daemon.get_network_labels(PREFIX).await?;
        let mut groups = Vec::new();
        for service in &services {
            let mut common = service.build_meta_labels();
            if let Some(container) = &service.spec.task_template.container_spec {
                common.set("service_task_container_hostname", &container.hostname);
                common.set("service_task_container_image", &container.image);
            }
            if let Some(update) = &service.update_status {
                common.set("service_updating_status", &update.state);
            }
            for virtual_ip in &service.endpoint.virtual_ips {
                let ip = strip_prefix_length(&virtual_ip.addr)?;
                let mut meta = common.clone();
                if let Some(network) = networks.get(&virtual_ip.network_id) {
                    meta.merge(network);
                }
                let before = groups.len();
                for port in filter_tcp_ports(&service.endpoint.ports) {
                    let mut meta = meta.clone();
                    meta.set("service_endpoint_port_name", &port.name);
                    meta.set("service_endpoint_port_publish_mode", &port.publish_mode);
                    groups.push(meta.into_target(join_host_port(&ip, port.published_port)));
                }
                if groups.len() == before {
                    groups.push(meta.into_target(join_host_port(&ip, self.settings.port)));
                }
            }
        }
        Ok(groups)
    }

    async fn fetch_task_targets(&self) -> Result<Vec<TargetGroup>, Error> {
        let tasks: Vec<SwarmTask> = self
            .daemon
            .get_list("/tasks", &self.settings.filters)
            .await?;
        let services: Vec<SwarmService> = self.daemon.get_list("/services", &[]).await?;
        let services: BTreeMap<&str, &SwarmService> =
            services.iter().map(|s| (s.id.as_str(), s)).collect();
        let nodes: Vec<SwarmNode> = self.daemon.get_list("/nodes", &[]).await?;
        let nodes: BTreeMap<&str, &SwarmNode> = nodes.iter().map(|n| (n.id.as_str(), n)).collect();
        let networks = self.daemon.get_network_labels(PREFIX).await?;
        let mut groups = Vec::new();
        for task in &tasks {
            let service = services.get(task.service_id.as_str());
            let node = nodes.get(task.node_id.as_str());
            let mut common = task.build_meta_labels();
            if let Some(service) = service {
                common.merge(&service.build_meta_labels());
            }
            if let Some(node) = node {
                common.merge(&node.build_meta_labels());
            }
            let host = node.map_or("", |node| &node.status.addr);
            for port in filter_tcp_ports(&task.status.port_status.ports) {
                let mut meta = common.clone();
                meta.set("task_port_publish_mode", &port.publish_mode);
                groups.push(meta.into_target(join_host_port(host, port.published_port)));
            }
            let ports = service.map_or(&[][..], |service| &service.endpoint.ports);
            for attachment in &task.networks_attachments {
                let mut meta = common.clone();
                if let Some(network) = networks.get(&attachment.network.id) {
                    meta.merge(network);
                }
                for address in &attachment.addresses {
                    self.push_network_targets(
                        &strip_prefix_length(address)?,
                        ports,
                        &meta,
                        &mut groups,
                    );
                }
            }
        }
        Ok(groups)
    }

    /// Appends the targets of a task in one network: one per published TCP port, or one with the
    /// configured port.
    fn push_network_targets(
        &self,
        ip: &str,
        ports: &[SwarmPort],
        meta: &MetaLabels,
        groups: &mut Vec<TargetGroup>,
    ) {
        let before = groups.len();
        for port in filter_tcp_ports(ports) {
            let mut meta = meta.clone();
            meta.set("task_port_publish_mode", &port.publish_mode);
            groups.push(meta.into_target(join_host_port(ip, port.published_port)));
        }
        if groups.len() == before {
            groups.push(
                meta.clone()
                    .into_target(join_host_port(ip, self.settings.port)),
            );
        }
    }
}

impl Refresh for SwarmDiscovery {
    fn interval(&self) -> Duration {
        self.settings.refresh
    }

    fn name(&self) -> String {
        self.settings.host.clone()
    }

    async fn refresh(&mut self) -> Result<Vec<TargetGroup>, Error> {
        let listed = match self.settings.role {
            SwarmRole::Nodes => self.fetch_node_targets().await,
            SwarmRole::Services => self.fetch_service_targets().await,
            SwarmRole::Tasks => self.fetch_task_targets().await,
        };
        listed.map_err(|e| invalid_response_error(format!("error while listing the swarm: {e}")))
    }
}

impl SwarmNode {
    fn build_meta_labels(&self) -> MetaLabels {
        let mut meta = MetaLabels::new(PREFIX);
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

impl SwarmService {
    fn build_meta_labels(&self) -> MetaLabels {
        let mut meta = MetaLabels::new(PREFIX);
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

impl SwarmTask {
    fn build_meta_labels(&self) -> MetaLabels {
        let mut meta = MetaLabels::new(PREFIX);
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

fn filter_tcp_ports(ports: &[SwarmPort]) -> impl Iterator<Item = &SwarmPort> {
    ports.iter().filter(|port| port.protocol == "tcp")
}

/// Returns the address part of a prefix such as `10.0.0.3/24`.
fn strip_prefix_length(prefix: &str) -> Result<String, Error> {
    let ip = prefix.split_once('/').map(|(ip, _)| ip);
    match ip.and_then(|ip| ip.parse::<IpAddr>().ok()) {
        Some(ip) => Ok(ip.to_string()),
        None => Err(invalid_response_error(format!(
            "error while parsing address {prefix:?}"
        ))),
    }
}

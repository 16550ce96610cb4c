//! Discovery of Docker containers, with one target per network and exposed TCP port.

use super::DockerSettings;
use super::daemon::DockerClient;
use crate::api::invalid_response_error;
use crate::discover::Refresh;
use crate::group::{TargetGroup, or_default};
use crate::meta::{MetaLabels, join_host_port};
use firn_model::error::Error;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

/// Discovery of the containers of one Docker engine; each refresh lists containers and networks.
#[derive(Debug)]
pub(in super::super) struct DockerDiscovery {
    settings: DockerSettings,
    daemon: DockerClient,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct DockerContainer {
    id: String,
    #[serde(deserialize_with = "or_default")]
    names: Vec<String>,
    #[serde(deserialize_with = "or_default")]
    labels: BTreeMap<String, String>,
    #[serde(deserialize_with = "or_default")]
    ports: Vec<DockerPort>,
    host_config: DockerHostConfig,
    #[serde(deserialize_with = "or_default")]
    network_settings: DockerNetworkSettings,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct DockerHostConfig {
    network_mode: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct DockerNetworkSettings {
    #[serde(deserialize_with = "or_default")]
    networks: BTreeMap<String, Option<DockerEndpoint>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct DockerEndpoint {
    #[serde(rename = "NetworkID")]
    network_id: String,
    #[serde(rename = "IPAddress")]
    ip: String,
    #[serde(rename = "GlobalIPv6Address")]
    ipv6: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct DockerPort {
    #[serde(rename = "IP")]
    ip: String,
    private_port: u16,
    public_port: u16,
    #[serde(rename = "Type")]
    kind: String,
}

impl DockerDiscovery {
    pub(in super::super) fn new(settings: &DockerSettings, bytes_max: u64) -> Self {
        Self {
            daemon: DockerClient::new(&settings.host, &settings.client, bytes_max),
            settings: settings.clone(),
        }
    }
}

impl Refresh for DockerDiscovery {
    fn interval(&self) -> Duration {
        self.settings.refresh
    }

    fn name(&self) -> String {
        self.settings.host.clone()
    }

    async fn refresh(&mut self) -> Result<Vec<TargetGroup>, Error> {
        let filters = &self.settings.filters;
        let listed = self.daemon.get_list("/containers/json", filters).await;
        let containers: Vec<DockerContainer> = listed
            .map_err(|e| invalid_response_error(format!("error while listing containers: {e}")))?;
        let known = self.daemon.get_network_labels("docker").await;
        let networks = known.map_err(|e| {
            invalid_response_error(format!("error while computing network labels: {e}"))
        })?;
        Ok(build_targets(&self.settings, &containers, &networks))
    }
}

fn build_targets(
    settings: &DockerSettings,
    containers: &[DockerContainer],
    networks: &BTreeMap<String, MetaLabels>,
) -> Vec<TargetGroup> {
    let by_id: BTreeMap<&str, &DockerContainer> =
        containers.iter().map(|c| (c.id.as_str(), c)).collect();
    let mut groups = Vec::new();
    for container in containers {
        let Some(common) = container.build_meta_labels() else {
            continue;
        };
        let of_all = container.find_endpoints(&by_id);
        let count = if settings.match_first_network {
            1
        } else {
            of_all.len()
        };
        for endpoint in of_all.into_iter().take(count) {
            let mut meta = common.clone();
            let ip = endpoint.preferred_address();
            meta.set("network_ip", &ip);
            if let Some(network) = networks.get(&endpoint.network_id) {
                meta.merge(network);
            }
            let mut has_port = false;
            for port in container.ports.iter().filter(|port| port.kind == "tcp") {
                has_port = true;
                groups.push(port.build_target(meta.clone(), &ip));
            }
            if !has_port {
                let is_host = container.host_config.network_mode == "host";
                groups.push(meta.into_target(if is_host {
                    settings.host_networking_host.clone()
                } else {
                    join_host_port(&ip, settings.port)
                }));
            }
        }
    }
    groups
}

impl DockerContainer {
    /// Returns the labels that all targets of the container share, or `None` if it has no name.
    fn build_meta_labels(&self) -> Option<MetaLabels> {
        let mut meta = MetaLabels::new("docker");
        meta.set("container_id", &self.id);
        meta.set("container_name", self.names.first()?);
        meta.set("container_network_mode", &self.host_config.network_mode);
        meta.set_each("container_label_", &self.labels);
        Some(meta)
    }

    /// Returns the container's networks, or those of the container whose network it shares.
    fn find_endpoints<'c>(
        &'c self,
        by_id: &BTreeMap<&str, &'c DockerContainer>,
    ) -> Vec<&'c DockerEndpoint> {
        let mut owner = self;
        // Each step leads to another container, unless the containers form a cycle.
        for _ in 0..by_id.len() {
            if !owner.network_settings.networks.is_empty() {
                break;
            }
            let mode = &owner.host_config.network_mode;
            let shared = mode.strip_prefix("container:").and_then(|id| by_id.get(id));
            match shared {
                Some(container) => owner = container,
                None => break,
            }
        }
        owner.network_settings.networks.values().flatten().collect()
    }
}

impl DockerEndpoint {
    /// Returns the IPv4 address, or else the IPv6 address; empty if there is neither.
    fn preferred_address(&self) -> String {
        let parsed = [&self.ip, &self.ipv6]
            .into_iter()
            .find_map(|ip| ip.parse::<IpAddr>().ok());
        parsed.map_or(String::new(), |ip| ip.to_string())
    }
}

impl DockerPort {
    fn build_target(&self, mut meta: MetaLabels, ip: &str) -> TargetGroup {
        meta.set("port_private", self.private_port.to_string());
        if self.public_port > 0 {
            meta.set("port_public", self.public_port.to_string());
            meta.set("port_public_ip", &self.ip);
        }
        meta.into_target(join_host_port(ip, self.private_port))
    }
}

//! Discovery of Docker containers, with one target per network and exposed TCP port.

use super::DockerSettings;
use super::daemon::Daemon;
use crate::api::wrong;
use crate::discover::Refresh;
use crate::group::{Group, or_default};
use crate::meta::{Meta, host_port};
use firn_model::error::Error;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

/// Discovery of the containers of one Docker engine; each refresh lists containers and networks.
#[derive(Debug)]
pub(in super::super) struct Containers {
    settings: DockerSettings,
    daemon: Daemon,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct Container {
    id: String,
    #[serde(deserialize_with = "or_default")]
    names: Vec<String>,
    #[serde(deserialize_with = "or_default")]
    labels: BTreeMap<String, String>,
    #[serde(deserialize_with = "or_default")]
    ports: Vec<Port>,
    host_config: HostConfig,
    #[serde(deserialize_with = "or_default")]
    network_settings: NetworkSettings,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct HostConfig {
    network_mode: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct NetworkSettings {
    #[serde(deserialize_with = "or_default")]
    networks: BTreeMap<String, Option<Endpoint>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Endpoint {
    #[serde(rename = "NetworkID")]
    network_id: String,
    #[serde(rename = "IPAddress")]
    ip: String,
    #[serde(rename = "GlobalIPv6Address")]
    ipv6: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct Port {
    #[serde(rename = "IP")]
    ip: String,
    private_port: u16,
    public_port: u16,
    #[serde(rename = "Type")]
    kind: String,
}

impl Containers {
    pub(in super::super) fn new(settings: &DockerSettings, bytes_max: u64) -> Self {
        Self {
            daemon: Daemon::new(&settings.host, &settings.client, bytes_max),
            settings: settings.clone(),
        }
    }
}

impl Refresh for Containers {
    fn interval(&self) -> Duration {
        self.settings.refresh
    }

    fn name(&self) -> String {
        self.settings.host.clone()
    }

    async fn refresh(&mut self) -> Result<Vec<Group>, Error> {
        let filters = &self.settings.filters;
        let listed = self.daemon.list("/containers/json", filters).await;
        let containers: Vec<Container> =
            listed.map_err(|e| wrong(format!("error while listing containers: {e}")))?;
        let known = self.daemon.networks("docker").await;
        let networks =
            known.map_err(|e| wrong(format!("error while computing network labels: {e}")))?;
        Ok(targets(&self.settings, &containers, &networks))
    }
}

fn targets(
    settings: &DockerSettings,
    containers: &[Container],
    networks: &BTreeMap<String, Meta>,
) -> Vec<Group> {
    let by_id: BTreeMap<&str, &Container> = containers.iter().map(|c| (c.id.as_str(), c)).collect();
    let mut groups = Vec::new();
    for container in containers {
        let Some(common) = container.meta() else {
            continue;
        };
        let of_all = container.endpoints(&by_id);
        let count = match settings.match_first_network {
            true => 1,
            false => of_all.len(),
        };
        for endpoint in of_all.into_iter().take(count) {
            let mut meta = common.clone();
            let ip = endpoint.address();
            meta.set("network_ip", &ip);
            if let Some(network) = networks.get(&endpoint.network_id) {
                meta.merge(network);
            }
            let mut has_port = false;
            for port in container.ports.iter().filter(|port| port.kind == "tcp") {
                has_port = true;
                groups.push(port.target(meta.clone(), &ip));
            }
            if !has_port {
                let is_host = container.host_config.network_mode == "host";
                groups.push(meta.at(match is_host {
                    true => settings.host_networking_host.clone(),
                    false => host_port(&ip, settings.port),
                }));
            }
        }
    }
    groups
}

impl Container {
    /// Returns the labels that all targets of the container share, or `None` if it has no name.
    fn meta(&self) -> Option<Meta> {
        let mut meta = Meta::new("docker");
        meta.set("container_id", &self.id);
        meta.set("container_name", self.names.first()?);
        meta.set("container_network_mode", &self.host_config.network_mode);
        meta.set_each("container_label_", &self.labels);
        Some(meta)
    }

    /// Returns the container's networks, or those of the container whose network it shares.
    fn endpoints<'c>(&'c self, by_id: &BTreeMap<&str, &'c Container>) -> Vec<&'c Endpoint> {
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

impl Endpoint {
    /// Returns the IPv4 address, or else the IPv6 address; empty if there is neither.
    fn address(&self) -> String {
        let parsed = [&self.ip, &self.ipv6]
            .into_iter()
            .find_map(|ip| ip.parse::<IpAddr>().ok());
        parsed.map_or(String::new(), |ip| ip.to_string())
    }
}

impl Port {
    fn target(&self, mut meta: Meta, ip: &str) -> Group {
        meta.set("port_private", self.private_port.to_string());
        if self.public_port > 0 {
            meta.set("port_public", self.public_port.to_string());
            meta.set("port_public_ip", &self.ip);
        }
        meta.at(host_port(ip, self.private_port))
    }
}

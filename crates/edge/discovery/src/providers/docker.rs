//! Discovery of the containers of a Docker engine, and of the nodes, services and tasks of its
//! swarm.
//!
//! The behaviour follows upstream's `discovery/moby` and Docker's API.

mod containers;
mod daemon;
mod swarm;
#[cfg(test)]
mod tests;

use containers::DockerDiscovery;
use swarm::SwarmDiscovery;

use crate::provider::{
    DiscoveryMechanism, DiscoveryProvider, DiscoverySettings, DiscoveryStarter, DiscoveryTask,
    ReadResult,
};
use crate::section_values::refresh_interval;
use firn_config_schema::schema::{ConfigKey, ConfigValueShape as Shape, TEXTS, key};
use firn_config_schema::{go_url, read};
use firn_http_client::HttpSettings;
use firn_http_client::http_config::{HTTP_CLIENT, http};
use firn_yaml::{YamlError, YamlNode};
use std::path::Path;
use std::time::Duration;

/// The provider of `docker_sd_configs`.
pub(super) const CONTAINERS: DiscoveryProvider = DiscoveryProvider::new(
    "docker_sd_configs",
    &Shape::Section(&[CONTAINER_KEYS, HTTP_CLIENT]),
    read_docker_entry,
);

/// The provider of `dockerswarm_sd_configs`.
pub(super) const SWARM: DiscoveryProvider = DiscoveryProvider::new(
    "dockerswarm_sd_configs",
    &Shape::Section(&[SWARM_KEYS, HTTP_CLIENT]),
    read_swarm_entry,
);

const CONTAINER_KEYS: &[ConfigKey] = &[
    key("host", Shape::Text),
    key("port", Shape::Integer),
    key("filters", FILTERS),
    key("host_networking_host", Shape::Text),
    key("refresh_interval", Shape::Duration),
    key("match_first_network", Shape::Bool),
];

const SWARM_KEYS: &[ConfigKey] = &[
    key("host", Shape::Text),
    key("role", Shape::Text),
    key("port", Shape::Integer),
    key("filters", FILTERS),
    key("refresh_interval", Shape::Duration),
];

/// Shape of the list `filters`, which AWS discoveries have too.
pub(super) const FILTERS: Shape = Shape::List(&Shape::Section(&[&[
    key("name", Shape::Text),
    key("values", TEXTS),
]]));

/// An entry of `filters`, which restricts a list to matching objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DockerFilter {
    /// The `name` key: name of the filter, such as `label` or `status`.
    pub name: String,
    /// The `values` key: accepted values of the filter, any of which must match.
    pub values: Vec<String>,
}

/// An entry of `docker_sd_configs`: the Docker engine whose containers are discovered.
#[derive(Clone, Debug, PartialEq)]
pub struct DockerSettings {
    /// The `host` key: address of the engine, such as `unix:///path`, `tcp://host:port` or
    /// `http://host:port`.
    pub host: String,
    /// The `port` key: port of the targets of containers that expose none.
    pub port: i64,
    /// The `filters` key: filters that the engine applies to the list of containers.
    pub filters: Vec<DockerFilter>,
    /// The `host_networking_host` key: address of containers that use the network of the host.
    pub host_networking_host: String,
    /// The `match_first_network` key: use only the first network of a container, by name.
    pub match_first_network: bool,
    /// The `refresh_interval` key: time between two refreshes, and the timeout of one.
    pub refresh: Duration,
    /// Settings of the HTTP client, used if the engine is reached over HTTP.
    pub client: HttpSettings,
}

/// The kind of swarm object that is discovered, one kind per config entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwarmRole {
    /// Services, with one target per virtual IP address and published TCP port.
    Services,
    /// Nodes of the swarm, at the addresses in their status.
    Nodes,
    /// Tasks, which are the containers of services, with one target per port and network.
    Tasks,
}

/// An entry of `dockerswarm_sd_configs`: the manager of the swarm and the kind of object to
/// discover.
#[derive(Clone, Debug, PartialEq)]
pub struct SwarmSettings {
    /// The `host` key: address of the engine of a swarm manager, in the same forms as for
    /// containers.
    pub host: String,
    /// The `role` key: kind of swarm object to discover.
    pub role: SwarmRole,
    /// The `port` key: port of targets whose object publishes none.
    pub port: i64,
    /// The `filters` key: filters that the engine applies to the list of the role's objects.
    pub filters: Vec<DockerFilter>,
    /// The `refresh_interval` key: time between two refreshes, and the timeout of one.
    pub refresh: Duration,
    /// Settings of the HTTP client, used if the engine is reached over HTTP.
    pub client: HttpSettings,
}

impl DiscoveryMechanism for DockerSettings {
    fn mechanism(&self) -> &'static str {
        "docker"
    }

    fn start(&self, starter: &DiscoveryStarter) -> DiscoveryTask {
        starter.refresh(DockerDiscovery::new(self, starter.bytes_max))
    }
}

impl DiscoveryMechanism for SwarmSettings {
    fn mechanism(&self) -> &'static str {
        "dockerswarm"
    }

    fn start(&self, starter: &DiscoveryStarter) -> DiscoveryTask {
        starter.refresh(SwarmDiscovery::new(self, starter.bytes_max))
    }
}

/// Reads an entry of `docker_sd_configs`, which needs the host of a Docker daemon.
fn read_docker_entry(node: &YamlNode, dir: &Path) -> ReadResult {
    Ok(DiscoverySettings::provided(DockerSettings {
        host: read_host(node)?,
        port: read::integer_or(node, "port", 80),
        filters: read_filters(node),
        host_networking_host: read::string_or(node, "host_networking_host", "localhost"),
        match_first_network: read::flag_or(node, "match_first_network", true),
        refresh: refresh_interval(node, 60),
        client: http(node, dir)?,
    }))
}

/// Reads an entry of `dockerswarm_sd_configs`, which needs a host and a role.
fn read_swarm_entry(node: &YamlNode, dir: &Path) -> ReadResult {
    let host = read_host(node)?;
    let role = match read::string(node, "role").as_str() {
        "services" => SwarmRole::Services,
        "nodes" => SwarmRole::Nodes,
        "tasks" => SwarmRole::Tasks,
        "" => return Err(node.error("role missing (one of: tasks, services, nodes)")),
        other => {
            return Err(node.error(format!(
                "invalid role {other}, expected tasks, services, or nodes"
            )));
        }
    };
    Ok(DiscoverySettings::provided(SwarmSettings {
        host,
        role,
        port: read::integer_or(node, "port", 80),
        filters: read_filters(node),
        refresh: refresh_interval(node, 60),
        client: http(node, dir)?,
    }))
}

fn read_host(node: &YamlNode) -> Result<String, YamlError> {
    match read::string(node, "host") {
        host if host.is_empty() => Err(node.error("host missing")),
        host => match go_url::parse(&host) {
            Ok(_) => Ok(host),
            Err(e) => Err(node.error(e)),
        },
    }
}

/// Reads the list `filters` of Docker and AWS discoveries; each has a name and values.
pub(super) fn read_filters(node: &YamlNode) -> Vec<DockerFilter> {
    let list = node.get("filters").map_or(&[][..], YamlNode::items).iter();
    list.map(|filter| DockerFilter {
        name: read::string(filter, "name"),
        values: read::texts(filter, "values").unwrap_or_default(),
    })
    .collect()
}

//! Discovery of the containers of a Docker engine, and of the nodes, services and tasks of its
//! swarm.
//!
//! The behaviour follows upstream's `discovery/moby` and Docker's API.

mod containers;
mod daemon;
mod swarm;
#[cfg(test)]
mod tests;

pub(super) use containers::DockerDiscovery;
pub(super) use swarm::SwarmDiscovery;

use firn_http_client::HttpSettings;
use std::time::Duration;

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

//! Targets from a Docker engine: its containers, and the nodes, services and tasks of its swarm.
//!
//! Facts are from upstream's `discovery/moby` and Docker's API.

mod containers;
mod daemon;
mod swarm;
#[cfg(test)]
mod tests;

pub(super) use containers::Containers;
pub(super) use swarm::Swarm;

use firn_http_client::HttpSettings;
use std::time::Duration;

/// One of `filters`: what a list is narrowed by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    /// `name`
    pub name: String,
    /// `values`
    pub values: Vec<String>,
}

/// One of `docker_sd_configs`
#[derive(Clone, Debug, PartialEq)]
pub struct DockerSettings {
    /// `host`: `unix:///path`, `tcp://host:port`, `http://host:port`
    pub host: String,
    /// `port`, of containers that expose none.
    pub port: i64,
    /// `filters`
    pub filters: Vec<Filter>,
    /// `host_networking_host`: the address of containers in the network of the host.
    pub host_networking_host: String,
    /// `match_first_network`: of several networks, the first one by name.
    pub match_first_network: bool,
    /// `refresh_interval`
    pub refresh: Duration,
    /// How the engine is reached over HTTP.
    pub client: HttpSettings,
}

/// What targets are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwarmRole {
    /// Virtual addresses of services.
    Services,
    /// Nodes of the swarm.
    Nodes,
    /// Tasks, which are the containers of services.
    Tasks,
}

/// One of `dockerswarm_sd_configs`
#[derive(Clone, Debug, PartialEq)]
pub struct SwarmSettings {
    /// `host`
    pub host: String,
    /// `role`
    pub role: SwarmRole,
    /// `port`, of what publishes none.
    pub port: i64,
    /// `filters`
    pub filters: Vec<Filter>,
    /// `refresh_interval`
    pub refresh: Duration,
    /// How the engine is reached over HTTP.
    pub client: HttpSettings,
}

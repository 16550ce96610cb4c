//! Discovery of Hetzner servers: cloud servers, or dedicated servers managed in Robot.
//!
//! The behaviour follows upstream's `discovery/hetzner` and Hetzner's APIs.

use crate::api::{ApiClient, invalid_response_error};
use crate::discover::Refresh;
use crate::group::{TargetGroup, or_default};
use crate::meta::{MetaLabels, join_host_port, sanitize};
use crate::provider::{
    DiscoveryMechanism, DiscoveryProvider, DiscoverySettings, DiscoveryStarter, DiscoveryTask,
    ReadResult,
};
use crate::section_values::refresh_interval;
use firn_config_schema::read;
use firn_config_schema::schema::{ConfigKey, ConfigValueShape as Shape, key};
use firn_http_client::http_config::{HTTP_CLIENT, http};
use firn_http_client::{HttpSettings, form_encode};
use firn_model::error::Error;
use firn_yaml::YamlNode;
use hyper::HeaderMap;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

const CLOUD: &str = "https://api.hetzner.cloud/v1";
const ROBOT: &str = "https://robot-ws.your-server.de";

/// Label value for a missing address, as in upstream, where Go formats a nil address.
const NO_ADDRESS: &str = "<nil>";

/// The provider of `hetzner_sd_configs`.
pub(super) const PROVIDER: DiscoveryProvider = DiscoveryProvider::new(
    "hetzner_sd_configs",
    &Shape::Section(&[KEYS, HTTP_CLIENT]),
    read_entry,
);

const KEYS: &[ConfigKey] = &[
    key("refresh_interval", Shape::Duration),
    key("port", Shape::Integer),
    key("role", Shape::Text),
    key("label_selector", Shape::Text),
];

/// The kind of Hetzner server that is discovered, one kind per config entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HetznerRole {
    /// Servers of Hetzner Cloud.
    Hcloud,
    /// Dedicated servers managed in Robot.
    Robot,
}

/// An entry of `hetzner_sd_configs`: the kind of server to discover, and credentials.
#[derive(Clone, Debug, PartialEq)]
pub struct HetznerSettings {
    /// The `role` key: kind of server to discover.
    pub role: HetznerRole,
    /// The `port` key: port in the addresses of all targets, which relabelling can replace.
    pub port: i64,
    /// The `label_selector` key: label selector for cloud servers; empty for all.
    pub label_selector: String,
    /// The `refresh_interval` key: time between two refreshes, and the timeout of one.
    pub refresh: Duration,
    /// Settings of the HTTP client that calls the API: credentials, TLS, proxies and redirects.
    pub client: HttpSettings,
}

impl DiscoveryMechanism for HetznerSettings {
    fn mechanism(&self) -> &'static str {
        "hetzner"
    }

    fn start(&self, starter: &DiscoveryStarter) -> DiscoveryTask {
        starter.refresh(HetznerDiscovery::new(self, starter.bytes_max))
    }
}

/// Reads an entry of `hetzner_sd_configs`, which needs a role: `robot` or `hcloud`.
fn read_entry(node: &YamlNode, dir: &Path) -> ReadResult {
    let role = match read::string(node, "role").as_str() {
        "hcloud" => HetznerRole::Hcloud,
        "robot" => HetznerRole::Robot,
        "" if read::text(node, "role").is_none() => {
            return Err(node.error("role missing (one of: robot, hcloud)"));
        }
        other => return Err(node.error(format!("unknown role {other:?}"))),
    };
    Ok(DiscoverySettings::provided(HetznerSettings {
        role,
        port: read::integer_or(node, "port", 80),
        label_selector: read::string(node, "label_selector"),
        refresh: refresh_interval(node, 60),
        client: http(node, dir)?,
    }))
}

/// Discovery of Hetzner servers; each refresh lists all servers of one role.
#[derive(Debug)]
pub(super) struct HetznerDiscovery {
    settings: HetznerSettings,
    api: ApiClient,
    endpoint: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct HetznerPage {
    #[serde(deserialize_with = "or_default")]
    servers: Vec<HetznerCloudServer>,
    #[serde(deserialize_with = "or_default")]
    networks: Vec<HetznerNetwork>,
    meta: HetznerPageMeta,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct HetznerPageMeta {
    #[serde(deserialize_with = "or_default")]
    pagination: HetznerPagination,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct HetznerPagination {
    next_page: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct HetznerNetwork {
    id: i64,
    name: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct HetznerCloudServer {
    id: i64,
    name: String,
    status: String,
    public_net: HetznerPublicNet,
    #[serde(deserialize_with = "or_default")]
    private_net: Vec<HetznerPrivateNet>,
    server_type: HetznerServerType,
    location: HetznerLocation,
    image: Option<HetznerImage>,
    #[serde(deserialize_with = "or_default")]
    labels: BTreeMap<String, String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct HetznerPublicNet {
    #[serde(deserialize_with = "or_default")]
    ipv4: HetznerAddress,
    #[serde(deserialize_with = "or_default")]
    ipv6: HetznerAddress,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct HetznerAddress {
    ip: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct HetznerPrivateNet {
    network: i64,
    ip: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct HetznerServerType {
    name: String,
    cores: i64,
    memory: f64,
    disk: i64,
    cpu_type: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct HetznerLocation {
    name: String,
    network_zone: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct HetznerImage {
    #[serde(deserialize_with = "or_default")]
    name: String,
    description: String,
    os_flavor: String,
    #[serde(deserialize_with = "or_default")]
    os_version: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct HetznerRobotEntry {
    server: HetznerRobotServer,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct HetznerRobotServer {
    #[serde(deserialize_with = "or_default")]
    server_ip: String,
    server_number: i64,
    server_name: String,
    dc: String,
    status: String,
    product: String,
    cancelled: bool,
    #[serde(deserialize_with = "or_default")]
    subnet: Vec<HetznerSubnet>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct HetznerSubnet {
    ip: String,
    mask: String,
}

impl HetznerDiscovery {
    pub(super) fn new(settings: &HetznerSettings, bytes_max: u64) -> Self {
        let endpoint = match settings.role {
            HetznerRole::Hcloud => CLOUD,
            HetznerRole::Robot => ROBOT,
        };
        Self::with_endpoint(endpoint, settings, bytes_max)
    }

    /// Creates a discovery like [`Self::new`] that uses the API at `endpoint`.
    pub(super) fn with_endpoint(
        endpoint: &str,
        settings: &HetznerSettings,
        bytes_max: u64,
    ) -> Self {
        Self {
            api: ApiClient::new(&settings.client, bytes_max),
            settings: settings.clone(),
            endpoint: endpoint.to_owned(),
        }
    }

    /// Returns all pages of the list at `path`, which must contain a query.
    async fn fetch_pages(&self, path: &str) -> Result<Vec<HetznerPage>, Error> {
        let url = |number| format!("{}{path}&page={number}", self.endpoint);
        let next = |page: &HetznerPage, _| page.meta.pagination.next_page.map(&url);
        self.api.get_pages(&url(1), &HeaderMap::new(), next).await
    }

    async fn fetch_cloud_targets(&self) -> Result<Vec<TargetGroup>, Error> {
        let selector = match self.settings.label_selector.as_str() {
            "" => String::new(),
            selector => format!("&label_selector={}", form_encode(selector)),
        };
        let servers = self
            .fetch_pages(&format!("/servers?per_page=50{selector}"))
            .await?;
        let pages = self.fetch_pages("/networks?per_page=50").await?;
        let networks: BTreeMap<i64, &str> = pages
            .iter()
            .flat_map(|page| page.networks.iter().map(|n| (n.id, n.name.as_str())))
            .collect();
        let servers = servers.iter().flat_map(|page| &page.servers);
        Ok(servers
            .map(|server| server.build_target(&networks, self.settings.port))
            .collect())
    }

    async fn fetch_robot_targets(&self) -> Result<Vec<TargetGroup>, Error> {
        let url = format!("{}/server", self.endpoint);
        let answer = self.api.get(&url, &HeaderMap::new()).await?;
        if !answer.status.is_success() {
            return Err(invalid_response_error(format!(
                "non 2xx status '{}' response during hetzner service discovery with role robot",
                answer.status.as_u16()
            )));
        }
        let servers: Vec<HetznerRobotEntry> = answer.decode_json().await?;
        let servers = servers.iter().map(|entry| &entry.server);
        Ok(servers
            .map(|one| one.build_target(self.settings.port))
            .collect())
    }
}

impl Refresh for HetznerDiscovery {
    fn interval(&self) -> Duration {
        self.settings.refresh
    }

    fn name(&self) -> String {
        self.endpoint.clone()
    }

    async fn refresh(&mut self) -> Result<Vec<TargetGroup>, Error> {
        match self.settings.role {
            HetznerRole::Hcloud => self.fetch_cloud_targets().await,
            HetznerRole::Robot => self.fetch_robot_targets().await,
        }
    }
}

impl HetznerAddress {
    fn display_ip(&self) -> &str {
        match self.ip.as_str() {
            "" => NO_ADDRESS,
            ip => ip,
        }
    }
}

impl HetznerCloudServer {
    fn build_target(&self, networks: &BTreeMap<i64, &str>, port: i64) -> TargetGroup {
        let mut meta = MetaLabels::new("hetzner");
        let (location, kind) = (&self.location, &self.server_type);
        let ipv4 = self.public_net.ipv4.display_ip();
        for (name, value) in [
            ("role", "hcloud"),
            ("server_name", &self.name),
            ("server_status", &self.status),
            ("public_ipv4", ipv4),
            ("public_ipv6_network", self.public_net.ipv6.display_ip()),
            ("hcloud_location", &location.name),
            ("hcloud_location_network_zone", &location.network_zone),
            // Upstream keeps these two label names for compatibility with existing configs.
            ("hcloud_datacenter_location", &location.name),
            (
                "hcloud_datacenter_location_network_zone",
                &location.network_zone,
            ),
            ("hcloud_server_type", &kind.name),
            ("hcloud_cpu_type", &kind.cpu_type),
        ] {
            meta.set(name, value);
        }
        meta.set("server_id", self.id.to_string());
        meta.set("hcloud_cpu_cores", kind.cores.to_string());
        meta.set("hcloud_memory_size_gb", (kind.memory as i64).to_string());
        meta.set("hcloud_disk_size_gb", kind.disk.to_string());
        if let Some(image) = &self.image {
            meta.set("hcloud_image_name", &image.name);
            meta.set("hcloud_image_description", &image.description);
            meta.set("hcloud_image_os_version", &image.os_version);
            meta.set("hcloud_image_os_flavor", &image.os_flavor);
        }
        for private in &self.private_net {
            if let Some(network) = networks.get(&private.network) {
                let name = format!("hcloud_private_ipv4_{}", sanitize(network));
                meta.set(&name, &private.ip);
            }
        }
        meta.set_each("hcloud_label_", &self.labels);
        for key in self.labels.keys() {
            meta.set(&format!("hcloud_labelpresent_{}", sanitize(key)), "true");
        }
        meta.into_target(join_host_port(ipv4, port))
    }
}

impl HetznerRobotServer {
    fn build_target(&self, port: i64) -> TargetGroup {
        let mut meta = MetaLabels::new("hetzner");
        let datacenter = self.dc.to_lowercase();
        for (name, value) in [
            ("role", "robot"),
            ("server_name", &self.server_name),
            ("server_status", &self.status),
            ("datacenter", &datacenter),
            ("public_ipv4", &self.server_ip),
            ("robot_datacenter", &datacenter),
            ("robot_product", &self.product),
        ] {
            meta.set(name, value);
        }
        meta.set("server_id", self.server_number.to_string());
        meta.set("robot_cancelled", self.cancelled.to_string());
        let is_ipv4 = |subnet: &&HetznerSubnet| matches!(subnet.ip.parse(), Ok(IpAddr::V4(_)));
        if let Some(subnet) = self.subnet.iter().find(|subnet| !is_ipv4(subnet)) {
            let network = format!("{}/{}", subnet.ip, subnet.mask);
            meta.set("public_ipv6_network", network);
        }
        meta.into_target(join_host_port(&self.server_ip, port))
    }
}

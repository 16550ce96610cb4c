//! Discovery of DigitalOcean droplets and managed databases.
//!
//! The behaviour follows upstream's `discovery/digitalocean` and DigitalOcean's API.

use crate::api::{ApiClient, invalid_response_error};
use crate::discover::Refresh;
use crate::group::{TargetGroup, or_default};
use crate::meta::{MetaLabels, join_host_port};
use crate::provider::{
    DiscoveryMechanism, DiscoveryProvider, DiscoverySettings, DiscoveryStarter, DiscoveryTask,
    ReadResult,
};
use crate::section_values::refresh_interval;
use firn_config_schema::read;
use firn_config_schema::schema::{ConfigKey, ConfigValueShape as Shape, key};
use firn_http_client::HttpSettings;
use firn_http_client::http_config::{HTTP_CLIENT, http};
use firn_model::error::Error;
use firn_yaml::YamlNode;
use hyper::HeaderMap;
use serde::Deserialize;
use std::path::Path;
use std::time::Duration;

/// Base URL of the DigitalOcean API.
const ENDPOINT: &str = "https://api.digitalocean.com";

const PREFIX: &str = "digitalocean";

/// The provider of `digitalocean_sd_configs`.
pub(super) const PROVIDER: DiscoveryProvider = DiscoveryProvider::new(
    "digitalocean_sd_configs",
    &Shape::Section(&[KEYS, HTTP_CLIENT]),
    read_entry,
);

const KEYS: &[ConfigKey] = &[
    key("refresh_interval", Shape::Duration),
    key("port", Shape::Integer),
    key("role", Shape::Text),
];

/// The kind of DigitalOcean resource that is discovered, one kind per config entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DigitalOceanRole {
    /// Droplets, which are virtual machines, at their public IPv4 addresses.
    Droplets,
    /// Managed database clusters, at their private or else their public host.
    Databases,
}

/// An entry of `digitalocean_sd_configs`: the kind of resource to discover, and credentials.
#[derive(Clone, Debug, PartialEq)]
pub struct DigitalOceanSettings {
    /// The `role` key: kind of resource to discover.
    pub role: DigitalOceanRole,
    /// The `port` key: port in the addresses of all targets, which relabelling can replace.
    pub port: i64,
    /// The `refresh_interval` key: time between two refreshes, and the timeout of one.
    pub refresh: Duration,
    /// Settings of the HTTP client that calls the API: credentials, TLS, proxies and redirects.
    pub client: HttpSettings,
}

impl DiscoveryMechanism for DigitalOceanSettings {
    fn mechanism(&self) -> &'static str {
        "digitalocean"
    }

    fn start(&self, starter: &DiscoveryStarter) -> DiscoveryTask {
        starter.refresh(DigitalOceanDiscovery::new(self, starter.bytes_max))
    }
}

/// Reads an entry of `digitalocean_sd_configs`, whose role must be valid.
fn read_entry(node: &YamlNode, dir: &Path) -> ReadResult {
    let role = match read::string_or(node, "role", "droplets").as_str() {
        "droplets" => DigitalOceanRole::Droplets,
        "databases" => DigitalOceanRole::Databases,
        "" if read::text(node, "role").is_none() => {
            return Err(node.error("role missing (one of: droplets, databases)"));
        }
        other => {
            let message = format!("unknown DigitalOcean SD role {other:?}");
            return Err(node.error(message));
        }
    };
    let settings = DigitalOceanSettings {
        role,
        port: read::integer_or(node, "port", 80),
        refresh: refresh_interval(node, 60),
        client: http(node, dir)?,
    };
    Ok(DiscoverySettings::provided(settings))
}

/// Discovery of DigitalOcean droplets or databases; each refresh lists all pages of one kind.
#[derive(Debug)]
pub(super) struct DigitalOceanDiscovery {
    settings: DigitalOceanSettings,
    api: ApiClient,
    endpoint: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct DigitalOceanPage {
    #[serde(deserialize_with = "or_default")]
    droplets: Vec<Droplet>,
    #[serde(deserialize_with = "or_default")]
    databases: Vec<DigitalOceanDatabase>,
    #[serde(deserialize_with = "or_default")]
    links: DigitalOceanLinks,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct DigitalOceanLinks {
    #[serde(deserialize_with = "or_default")]
    pages: DigitalOceanPageLinks,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct DigitalOceanPageLinks {
    last: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Droplet {
    id: i64,
    name: String,
    #[serde(deserialize_with = "or_default")]
    image: DropletImage,
    #[serde(deserialize_with = "or_default")]
    networks: DropletNetworks,
    #[serde(deserialize_with = "or_default")]
    region: DropletRegion,
    size_slug: String,
    status: String,
    vpc_uuid: String,
    #[serde(deserialize_with = "or_default")]
    features: Vec<String>,
    #[serde(deserialize_with = "or_default")]
    tags: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct DropletImage {
    #[serde(deserialize_with = "or_default")]
    slug: String,
    name: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct DropletRegion {
    slug: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct DropletNetworks {
    #[serde(deserialize_with = "or_default")]
    v4: Vec<DropletNetwork>,
    #[serde(deserialize_with = "or_default")]
    v6: Vec<DropletNetwork>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct DropletNetwork {
    ip_address: String,
    #[serde(rename = "type")]
    kind: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct DigitalOceanDatabase {
    id: String,
    name: String,
    engine: String,
    version: String,
    status: String,
    region: String,
    size: String,
    num_nodes: i64,
    connection: Option<DatabaseConnection>,
    private_connection: Option<DatabaseConnection>,
    #[serde(deserialize_with = "or_default")]
    tags: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct DatabaseConnection {
    host: String,
}

impl DigitalOceanDiscovery {
    pub(super) fn new(settings: &DigitalOceanSettings, bytes_max: u64) -> Self {
        Self::with_endpoint(ENDPOINT, settings, bytes_max)
    }

    /// Creates a discovery like [`Self::new`] that uses the API at `endpoint`.
    pub(super) fn with_endpoint(
        endpoint: &str,
        settings: &DigitalOceanSettings,
        bytes_max: u64,
    ) -> Self {
        Self {
            api: ApiClient::new(&settings.client, bytes_max),
            settings: settings.clone(),
            endpoint: endpoint.to_owned(),
        }
    }

    async fn fetch_pages(&self) -> Result<Vec<DigitalOceanPage>, Error> {
        let role = self.settings.role;
        let (path, what) = match role {
            DigitalOceanRole::Droplets => ("droplets?", "droplets"),
            DigitalOceanRole::Databases => ("databases?per_page=100&", "database clusters"),
        };
        let url = |number| format!("{}/v2/{path}page={number}", self.endpoint);
        let next = |page: &DigitalOceanPage, number| {
            let is_last = match role {
                DigitalOceanRole::Droplets => page.links.pages.last.is_empty(),
                DigitalOceanRole::Databases => page.databases.is_empty(),
            };
            (!is_last).then(|| url(number + 1))
        };
        let pages = self.api.get_pages(&url(1), &HeaderMap::new(), next).await;
        pages.map_err(|e: Error| invalid_response_error(format!("error while listing {what} {e}")))
    }
}

impl Refresh for DigitalOceanDiscovery {
    fn interval(&self) -> Duration {
        self.settings.refresh
    }

    fn name(&self) -> String {
        self.endpoint.clone()
    }

    async fn refresh(&mut self) -> Result<Vec<TargetGroup>, Error> {
        let port = self.settings.port;
        let mut groups = Vec::new();
        for page in self.fetch_pages().await? {
            groups.extend(
                page.droplets
                    .iter()
                    .filter_map(|one| one.build_target(port)),
            );
            groups.extend(page.databases.iter().map(|one| one.build_target(port)));
        }
        Ok(groups)
    }
}

impl DropletNetworks {
    fn find_address<'n>(networks: &'n [DropletNetwork], kind: &str) -> &'n str {
        let found = networks.iter().find(|network| network.kind == kind);
        found.map_or("", |network| &network.ip_address)
    }
}

impl Droplet {
    /// Builds the target of a droplet. Returns `None` if the droplet has no IPv4 network.
    fn build_target(&self, port: i64) -> Option<TargetGroup> {
        if self.networks.v4.is_empty() {
            return None;
        }
        let public = DropletNetworks::find_address(&self.networks.v4, "public");
        let mut meta = MetaLabels::new(PREFIX);
        for (name, value) in [
            ("droplet_name", self.name.as_str()),
            ("image", &self.image.slug),
            ("image_name", &self.image.name),
            (
                "private_ipv4",
                DropletNetworks::find_address(&self.networks.v4, "private"),
            ),
            ("public_ipv4", public),
            (
                "public_ipv6",
                DropletNetworks::find_address(&self.networks.v6, "public"),
            ),
            ("region", &self.region.slug),
            ("size", &self.size_slug),
            ("status", &self.status),
            ("vpc", &self.vpc_uuid),
        ] {
            meta.set(name, value);
        }
        meta.set("droplet_id", self.id.to_string());
        meta.set_list("features", &self.features, ",");
        meta.set_list("tags", &self.tags, ",");
        Some(meta.into_target(join_host_port(public, port)))
    }
}

impl DigitalOceanDatabase {
    fn build_target(&self, port: i64) -> TargetGroup {
        let host = |connection: &Option<DatabaseConnection>| {
            let connection = connection.as_ref();
            connection.map_or(String::new(), |connection| connection.host.clone())
        };
        let (public, private) = (host(&self.connection), host(&self.private_connection));
        let mut meta = MetaLabels::new(PREFIX);
        for (name, value) in [
            ("db_id", &self.id),
            ("db_name", &self.name),
            ("db_engine", &self.engine),
            ("db_version", &self.version),
            ("db_status", &self.status),
            ("db_region", &self.region),
            ("db_size", &self.size),
            ("db_host", &public),
            ("db_private_host", &private),
        ] {
            meta.set(name, value);
        }
        meta.set("db_num_nodes", self.num_nodes.to_string());
        for tag in &self.tags {
            meta.set(&format!("db_tag_{tag}"), "true");
        }
        let host = if private.is_empty() { public } else { private };
        if host.is_empty() {
            // The target is kept without an address, so that it appears among the dropped targets
            // with its labels.
            meta.into_target("")
        } else {
            meta.into_target(join_host_port(&host, port))
        }
    }
}

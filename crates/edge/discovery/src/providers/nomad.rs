//! Discovery of service instances that are registered in Nomad.
//!
//! The behaviour follows upstream's `discovery/nomad` and Nomad's API.

use crate::api::{ApiClient, invalid_response_error};
use crate::discover::Refresh;
use crate::group::{TargetGroup, or_default};
use crate::meta::{MetaLabels, join_host_port, join_surrounded};
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
use serde::Deserialize;
use std::path::Path;
use std::time::Duration;

/// The provider of `nomad_sd_configs`.
pub(super) const PROVIDER: DiscoveryProvider = DiscoveryProvider::new(
    "nomad_sd_configs",
    &Shape::Section(&[KEYS, HTTP_CLIENT]),
    read_entry,
);

const KEYS: &[ConfigKey] = &[
    key("allow_stale", Shape::Bool),
    key("namespace", Shape::Text),
    key("refresh_interval", Shape::Duration),
    key("region", Shape::Text),
    key("server", Shape::Text),
    key("tag_separator", Shape::Text),
];

/// An entry of `nomad_sd_configs`: the Nomad server whose services are discovered.
#[derive(Clone, Debug, PartialEq)]
pub struct NomadSettings {
    /// The `server` key: base URL of the Nomad server.
    pub server: String,
    /// The `namespace` key: namespace to query; empty for the default of the server.
    pub namespace: String,
    /// The `region` key: region to query; empty for the default of the server.
    pub region: String,
    /// The `allow_stale` key: allow responses of servers that are not the leader.
    pub allow_stale: bool,
    /// The `tag_separator` key: separator of the tags in the label `__meta_nomad_tags`.
    pub tag_separator: String,
    /// The `refresh_interval` key: time between two refreshes, and the timeout of one.
    pub refresh: Duration,
    /// Settings of the HTTP client that calls the server: credentials, TLS, proxies and redirects.
    pub client: HttpSettings,
}

impl DiscoveryMechanism for NomadSettings {
    fn mechanism(&self) -> &'static str {
        "nomad"
    }

    fn start(&self, starter: &DiscoveryStarter) -> DiscoveryTask {
        starter.refresh(NomadDiscovery::new(self, starter.bytes_max))
    }
}

/// Reads an entry of `nomad_sd_configs`, whose server must not be empty.
fn read_entry(node: &YamlNode, dir: &Path) -> ReadResult {
    let server = read::string_or(node, "server", "http://localhost:4646");
    if server.trim().is_empty() {
        return Err(node.error("nomad SD configuration requires a server address"));
    }
    Ok(DiscoverySettings::provided(NomadSettings {
        server,
        namespace: read::string_or(node, "namespace", "default"),
        region: read::string_or(node, "region", "global"),
        allow_stale: read::flag_or(node, "allow_stale", true),
        tag_separator: read::string_or(node, "tag_separator", ","),
        refresh: refresh_interval(node, 60),
        client: http(node, dir)?,
    }))
}

/// Discovery of Nomad services; each refresh lists all services and their instances.
#[derive(Debug)]
pub(super) struct NomadDiscovery {
    settings: NomadSettings,
    api: ApiClient,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct NomadNamespace {
    #[serde(deserialize_with = "or_default")]
    services: Vec<NomadService>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct NomadService {
    service_name: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct NomadInstance {
    #[serde(rename = "ID")]
    id: String,
    service_name: String,
    namespace: String,
    #[serde(rename = "NodeID")]
    node_id: String,
    datacenter: String,
    address: String,
    port: i64,
    #[serde(deserialize_with = "or_default")]
    tags: Vec<String>,
}

impl NomadDiscovery {
    pub(super) fn new(settings: &NomadSettings, bytes_max: u64) -> Self {
        Self {
            api: ApiClient::new(&settings.client, bytes_max),
            settings: settings.clone(),
        }
    }

    fn build_url(&self, path: &str) -> String {
        let s = &self.settings;
        let mut query = Vec::new();
        for (name, value) in [("namespace", &s.namespace), ("region", &s.region)] {
            if !value.is_empty() {
                query.push(format!("{name}={}", form_encode(value)));
            }
        }
        if s.allow_stale {
            query.push("stale=".to_owned());
        }
        let server = s.server.trim_end_matches('/');
        let mark = if query.is_empty() { "" } else { "?" };
        format!("{server}{path}{mark}{}", query.join("&"))
    }
}

impl Refresh for NomadDiscovery {
    fn interval(&self) -> Duration {
        self.settings.refresh
    }

    fn name(&self) -> String {
        self.settings.server.clone()
    }

    async fn refresh(&mut self) -> Result<Vec<TargetGroup>, Error> {
        let namespaces: Option<Vec<NomadNamespace>> =
            self.api.get_json(&self.build_url("/v1/services")).await?;
        let services = namespaces.into_iter().flatten().flat_map(|n| n.services);
        let mut groups = Vec::new();
        for service in services {
            let name = form_encode(&service.service_name).replace('+', "%20");
            let url = self.build_url(&format!("/v1/service/{name}"));
            let listed = self.api.get_json(&url).await;
            let instances: Option<Vec<NomadInstance>> = listed.map_err(|e: Error| {
                invalid_response_error(format!("failed to fetch services: {e}"))
            })?;
            let separator = &self.settings.tag_separator;
            let instances = instances.unwrap_or_default();
            groups.extend(instances.iter().map(|one| one.build_target(separator)));
        }
        Ok(groups)
    }
}

impl NomadInstance {
    fn build_target(&self, separator: &str) -> TargetGroup {
        let mut meta = MetaLabels::new("nomad");
        meta.set("address", &self.address);
        meta.set("dc", &self.datacenter);
        meta.set("node_id", &self.node_id);
        meta.set("namespace", &self.namespace);
        meta.set("service", &self.service_name);
        meta.set("service_address", &self.address);
        meta.set("service_id", &self.id);
        meta.set("service_port", self.port.to_string());
        if !self.tags.is_empty() {
            meta.set("tags", join_surrounded(&self.tags, separator));
        }
        meta.into_target(join_host_port(&self.address, self.port))
    }
}

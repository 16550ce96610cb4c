//! Discovery of Triton containers and compute nodes.
//!
//! The behaviour follows upstream's `discovery/triton` and the discovery API of triton-cmon.

use crate::api::{ApiClient, invalid_response_error};
use crate::discover::Refresh;
use crate::group::TargetGroup;
use crate::json::answers;
use crate::meta::MetaLabels;
use crate::provider::{
    DiscoveryMechanism, DiscoveryProvider, DiscoverySettings, DiscoveryStarter, DiscoveryTask,
    ReadResult,
};
use crate::section_values::{is_interval_valid, refresh_interval, require};
use firn_config_schema::read;
use firn_config_schema::schema::{ConfigKey, ConfigValueShape as Shape, TEXTS, key};
use firn_http_client::http_config::{TLS, tls};
use firn_http_client::{HttpSettings, form_encode};
use firn_model::error::Error;
use firn_yaml::YamlNode;
use hyper::HeaderMap;
use std::path::Path;
use std::time::Duration;

/// The provider of `triton_sd_configs`.
pub(super) const PROVIDER: DiscoveryProvider =
    DiscoveryProvider::new("triton_sd_configs", &Shape::Section(&[KEYS]), read_entry);

const KEYS: &[ConfigKey] = &[
    key("account", Shape::Text),
    key("role", Shape::Text),
    key("dns_suffix", Shape::Text),
    key("endpoint", Shape::Text),
    key("groups", TEXTS),
    key("port", Shape::Integer),
    key("refresh_interval", Shape::Duration),
    key("tls_config", TLS),
    key("version", Shape::Integer),
];

/// The kind of Triton machine that is discovered, one kind per config entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TritonRole {
    /// Containers: zones and virtual machines.
    Container,
    /// Compute nodes, the servers that run containers.
    Cn,
}

/// An entry of `triton_sd_configs`: the discovery API and the kind of machine to discover.
#[derive(Clone, Debug, PartialEq)]
pub struct TritonSettings {
    /// The `role` key: kind of machine to discover.
    pub role: TritonRole,
    /// The `dns_suffix` key: domain that is appended to machine ids to form target addresses.
    pub dns_suffix: String,
    /// The `endpoint` key: host of the discovery API, which is called over HTTPS.
    pub endpoint: String,
    /// The `groups` key: groups whose machines are discovered; empty for all.
    pub groups: Vec<String>,
    /// The `port` key: port of both the discovery API and the targets.
    pub port: i64,
    /// The `version` key: version of the discovery API, a part of its URL.
    pub version: i64,
    /// The `refresh_interval` key: time between two refreshes, and the timeout of one.
    pub refresh: Duration,
    /// Settings of the HTTP client that calls the endpoint: credentials, TLS, proxies, redirects.
    pub client: HttpSettings,
}

impl DiscoveryMechanism for TritonSettings {
    fn mechanism(&self) -> &'static str {
        "triton"
    }

    fn start(&self, starter: &DiscoveryStarter) -> DiscoveryTask {
        starter.refresh(TritonDiscovery::new(self, starter.bytes_max))
    }
}

/// Reads an entry of `triton_sd_configs`, which uses only the TLS settings of the HTTP client.
fn read_entry(node: &YamlNode, dir: &Path) -> ReadResult {
    let client = HttpSettings {
        tls: tls(node.get("tls_config"), dir)?,
        ..HttpSettings::default()
    };
    let role = match read::string_or(node, "role", "container").as_str() {
        "container" => TritonRole::Container,
        "cn" => TritonRole::Cn,
        _ => {
            return Err(
                node.error("triton SD configuration requires role to be 'container' or 'cn'")
            );
        }
    };
    require(
        node,
        &[
            ("account", "triton SD configuration requires an account"),
            (
                "dns_suffix",
                "triton SD configuration requires a dns_suffix",
            ),
            ("endpoint", "triton SD configuration requires an endpoint"),
        ],
    )?;
    if !is_interval_valid(node) {
        return Err(
            node.error("triton SD configuration requires RefreshInterval to be a positive integer")
        );
    }
    Ok(DiscoverySettings::provided(TritonSettings {
        role,
        dns_suffix: read::string(node, "dns_suffix"),
        endpoint: read::string(node, "endpoint"),
        groups: read::texts(node, "groups").unwrap_or_default(),
        port: read::integer_or(node, "port", 9163),
        version: read::integer_or(node, "version", 1),
        refresh: refresh_interval(node, 60),
        client,
    }))
}

/// Discovery of Triton machines; each refresh requests the complete list of one kind.
#[derive(Debug)]
pub(super) struct TritonDiscovery {
    settings: TritonSettings,
    api: ApiClient,
    url: String,
}

answers! {
    struct TritonMachineList {
        containers: Vec<TritonContainer>,
        cns: Vec<TritonNode>,
    }

    struct TritonContainer {
        groups: Vec<String>,
        server_uuid: String,
        vm_alias: String,
        vm_brand: String,
        vm_image_uuid: String,
        vm_uuid: String,
    }

    struct TritonNode {
        server_uuid: String,
        server_hostname: String,
    }
}

impl TritonDiscovery {
    pub(super) fn new(settings: &TritonSettings, bytes_max: u64) -> Self {
        let base = format!("https://{}:{}", settings.endpoint, settings.port);
        Self::with_base_url(&base, settings, bytes_max)
    }

    /// Creates a discovery like [`Self::new`] that uses the API at `base`.
    pub(super) fn with_base_url(base: &str, settings: &TritonSettings, bytes_max: u64) -> Self {
        let path = match settings.role {
            TritonRole::Container => "discover",
            TritonRole::Cn => "gz/discover",
        };
        let groups = match settings.groups.join(",") {
            groups if groups.is_empty() => groups,
            groups => format!("?groups={}", form_encode(&groups)),
        };
        Self {
            api: ApiClient::new(&settings.client, bytes_max),
            url: format!("{base}/v{}/{path}{groups}", settings.version),
            settings: settings.clone(),
        }
    }

    async fn fetch_list(&self) -> Result<TritonMachineList, Error> {
        let answer = self.api.get(&self.url, &HeaderMap::new()).await?;
        // Upstream treats an error as an empty list. Here the previous list remains.
        answer.require_success()?.decode_json().await
    }
}

impl Refresh for TritonDiscovery {
    fn interval(&self) -> Duration {
        self.settings.refresh
    }

    fn name(&self) -> String {
        self.url.clone()
    }

    async fn refresh(&mut self) -> Result<Vec<TargetGroup>, Error> {
        let list = self.fetch_list().await.map_err(|e| {
            let what = "an error occurred when requesting targets from the discovery endpoint";
            invalid_response_error(format!("{what}: {e}"))
        })?;
        let s = &self.settings;
        let at = |id: &str| format!("{id}.{}:{}", s.dns_suffix, s.port);
        Ok(match s.role {
            TritonRole::Container => {
                let machines = list.containers.iter();
                machines
                    .map(|one| one.build_meta_labels().into_target(at(&one.vm_uuid)))
                    .collect()
            }
            TritonRole::Cn => {
                let nodes = list.cns.iter();
                nodes
                    .map(|one| one.build_meta_labels().into_target(at(&one.server_uuid)))
                    .collect()
            }
        })
    }
}

impl TritonContainer {
    fn build_meta_labels(&self) -> MetaLabels {
        let mut meta = MetaLabels::new("triton");
        meta.set_all([
            ("machine_id", self.vm_uuid.as_str()),
            ("machine_alias", &self.vm_alias),
            ("machine_brand", &self.vm_brand),
            ("machine_image", &self.vm_image_uuid),
            ("server_id", &self.server_uuid),
        ]);
        meta.set_list("groups", &self.groups, ",");
        meta
    }
}

impl TritonNode {
    fn build_meta_labels(&self) -> MetaLabels {
        let mut meta = MetaLabels::new("triton");
        meta.set("machine_id", &self.server_uuid);
        meta.set("machine_alias", &self.server_hostname);
        meta
    }
}

//! Discovery of Vultr instances.
//!
//! The behaviour follows upstream's `discovery/vultr` and Vultr's API.

use crate::api::ApiClient;
use crate::discover::Refresh;
use crate::group::TargetGroup;
use crate::json::answers;
use crate::meta::{MetaLabels, join_host_port};
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
use std::path::Path;
use std::time::Duration;

/// Base URL of the Vultr API.
const ENDPOINT: &str = "https://api.vultr.com";

/// The provider of `vultr_sd_configs`.
pub(super) const PROVIDER: DiscoveryProvider = DiscoveryProvider::new(
    "vultr_sd_configs",
    &Shape::Section(&[KEYS, HTTP_CLIENT]),
    read_entry,
);

const KEYS: &[ConfigKey] = &[
    key("refresh_interval", Shape::Duration),
    key("port", Shape::Integer),
];

/// An entry of `vultr_sd_configs`: credentials for the account whose instances are discovered.
#[derive(Clone, Debug, PartialEq)]
pub struct VultrSettings {
    /// The `port` key: port in the addresses of all targets, which relabelling can replace.
    pub port: i64,
    /// The `refresh_interval` key: time between two refreshes, and the timeout of one.
    pub refresh: Duration,
    /// Settings of the HTTP client that calls the API: credentials, TLS, proxies and redirects.
    pub client: HttpSettings,
}

impl DiscoveryMechanism for VultrSettings {
    fn mechanism(&self) -> &'static str {
        "vultr"
    }

    fn start(&self, starter: &DiscoveryStarter) -> DiscoveryTask {
        starter.refresh(VultrDiscovery::new(self, starter.bytes_max))
    }
}

/// Reads an entry of `vultr_sd_configs`, all of whose keys are optional.
fn read_entry(node: &YamlNode, dir: &Path) -> ReadResult {
    Ok(DiscoverySettings::provided(VultrSettings {
        port: read::integer_or(node, "port", 80),
        refresh: refresh_interval(node, 60),
        client: http(node, dir)?,
    }))
}

/// Discovery of Vultr instances; each refresh lists all pages.
#[derive(Debug)]
pub(super) struct VultrDiscovery {
    settings: VultrSettings,
    api: ApiClient,
    endpoint: String,
}

answers! {
    struct VultrInstancePage {
        instances: Vec<VultrInstance>,
        meta: VultrPageMeta,
    }

    struct VultrPageMeta {
        links: VultrPageLinks,
    }

    struct VultrPageLinks {
        next: String,
    }

    struct VultrInstance {
        id: String,
        os: String,
        os_id: i64,
        ram: i64,
        disk: i64,
        plan: String,
        main_ip: String,
        v6_main_ip: String,
        internal_ip: String,
        vcpu_count: i64,
        region: String,
        allowed_bandwidth: i64,
        server_status: String,
        hostname: String,
        label: String,
        features: Vec<String>,
        tags: Vec<String>,
    }
}

impl VultrDiscovery {
    pub(super) fn new(settings: &VultrSettings, bytes_max: u64) -> Self {
        Self::with_endpoint(ENDPOINT, settings, bytes_max)
    }

    /// Creates a discovery like [`Self::new`] that uses the API at `endpoint`.
    pub(super) fn with_endpoint(endpoint: &str, settings: &VultrSettings, bytes_max: u64) -> Self {
        Self {
            api: ApiClient::new(&settings.client, bytes_max),
            settings: settings.clone(),
            endpoint: endpoint.to_owned(),
        }
    }
}

impl Refresh for VultrDiscovery {
    fn interval(&self) -> Duration {
        self.settings.refresh
    }

    fn name(&self) -> String {
        self.endpoint.clone()
    }

    async fn refresh(&mut self) -> Result<Vec<TargetGroup>, Error> {
        let first = format!("{}/v2/instances?per_page=100", self.endpoint);
        let next = |page: &VultrInstancePage, _| {
            let cursor = &page.meta.links.next;
            (!cursor.is_empty()).then(|| format!("{first}&cursor={}", form_encode(cursor)))
        };
        let pages = self.api.get_pages(&first, &HeaderMap::new(), next).await?;
        let instances = pages.iter().flat_map(|page| &page.instances);
        Ok(instances
            .map(|one| one.build_target(self.settings.port))
            .collect())
    }
}

impl VultrInstance {
    fn build_target(&self, port: i64) -> TargetGroup {
        let mut meta = MetaLabels::new("vultr_instance");
        meta.set_all([
            ("id", self.id.as_str()),
            ("label", &self.label),
            ("os", &self.os),
            ("region", &self.region),
            ("plan", &self.plan),
            ("main_ip", &self.main_ip),
            ("main_ipv6", &self.v6_main_ip),
            ("internal_ip", &self.internal_ip),
            ("hostname", &self.hostname),
            ("server_status", &self.server_status),
        ]);
        for (name, number) in [
            ("os_id", self.os_id),
            ("vcpu_count", self.vcpu_count),
            ("ram_mb", self.ram),
            ("allowed_bandwidth_gb", self.allowed_bandwidth),
            ("disk_gb", self.disk),
        ] {
            meta.set(name, number.to_string());
        }
        meta.set_list("features", &self.features, ",");
        meta.set_list("tags", &self.tags, ",");
        meta.into_target(join_host_port(&self.main_ip, port))
    }
}

//! Discovery of the servers of an IONOS Cloud data centre.
//!
//! The behaviour follows upstream's `discovery/ionos` and IONOS's Cloud API.

use crate::api::ApiClient;
use crate::discover::Refresh;
use crate::group::TargetGroup;
use crate::json::answers;
use crate::meta::{MetaLabels, join_host_port, join_surrounded, sanitize};
use crate::provider::{
    DiscoveryMechanism, DiscoveryProvider, DiscoverySettings, DiscoveryStarter, DiscoveryTask,
    ReadResult,
};
use crate::section_values::{refresh_interval, require};
use firn_config_schema::read;
use firn_config_schema::schema::{ConfigKey, ConfigValueShape as Shape, key};
use firn_http_client::HttpSettings;
use firn_http_client::http_config::{HTTP_CLIENT, http};
use firn_model::error::Error;
use firn_yaml::YamlNode;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// Base URL of the IONOS Cloud API.
const ENDPOINT: &str = "https://api.ionos.com";

/// Name of network interfaces without a name, used in label names.
const UNNAMED: &str = "unnamed";

/// The provider of `ionos_sd_configs`.
pub(super) const PROVIDER: DiscoveryProvider = DiscoveryProvider::new(
    "ionos_sd_configs",
    &Shape::Section(&[KEYS, HTTP_CLIENT]),
    read_entry,
);

const KEYS: &[ConfigKey] = &[
    key("datacenter_id", Shape::Text),
    key("refresh_interval", Shape::Duration),
    key("port", Shape::Integer),
];

/// An entry of `ionos_sd_configs`: the data centre whose servers are discovered, and credentials.
#[derive(Clone, Debug, PartialEq)]
pub struct IonosSettings {
    /// The `datacenter_id` key: data centre whose servers are discovered.
    pub datacenter: String,
    /// The `port` key: port in the addresses of all targets, which relabelling can replace.
    pub port: i64,
    /// The `refresh_interval` key: time between two refreshes, and the timeout of one.
    pub refresh: Duration,
    /// Settings of the HTTP client that calls the API: credentials, TLS, proxies and redirects.
    pub client: HttpSettings,
}

impl DiscoveryMechanism for IonosSettings {
    fn mechanism(&self) -> &'static str {
        "ionos"
    }

    fn start(&self, starter: &DiscoveryStarter) -> DiscoveryTask {
        starter.refresh(IonosDiscovery::new(self, starter.bytes_max))
    }
}

/// Reads an entry of `ionos_sd_configs`, which needs the id of a datacenter.
fn read_entry(node: &YamlNode, dir: &Path) -> ReadResult {
    require(node, &[("datacenter_id", "datacenter id can't be empty")])?;
    Ok(DiscoverySettings::provided(IonosSettings {
        datacenter: read::string(node, "datacenter_id"),
        port: read::integer_or(node, "port", 80),
        refresh: refresh_interval(node, 60),
        client: http(node, dir)?,
    }))
}

/// Discovery of the servers of an IONOS data centre; each refresh lists all servers.
#[derive(Debug)]
pub(super) struct IonosDiscovery {
    settings: IonosSettings,
    api: ApiClient,
    endpoint: String,
}

answers! {
    struct IonosServerList {
        id: String,
        items: Vec<IonosServer>,
    }

    struct IonosServer {
        id: String,
        metadata: IonosServerMetadata,
        properties: IonosServerProperties,
        entities: IonosServerEntities,
    }

    struct IonosServerMetadata {
        state: String,
    }

    #[serde(rename_all = "camelCase")]
    struct IonosServerProperties {
        availability_zone: String,
        cpu_family: String,
        name: String,
        vm_state: String,
        #[serde(rename = "type")]
        kind: String,
        boot_cdrom: IonosVolumeRef,
        boot_volume: IonosVolumeRef,
    }

    struct IonosVolumeRef {
        id: String,
    }

    struct IonosServerEntities {
        nics: IonosNicList,
        volumes: IonosVolumeList,
    }

    struct IonosNicList {
        items: Vec<IonosNic>,
    }

    struct IonosNic {
        properties: Option<IonosNicProperties>,
    }

    struct IonosNicProperties {
        name: Option<String>,
        ips: Vec<String>,
    }

    struct IonosVolumeList {
        items: Vec<IonosVolume>,
    }

    struct IonosVolume {
        properties: IonosVolumeProperties,
    }

    struct IonosVolumeProperties {
        image: String,
    }
}

impl IonosDiscovery {
    pub(super) fn new(settings: &IonosSettings, bytes_max: u64) -> Self {
        Self::with_endpoint(ENDPOINT, settings, bytes_max)
    }

    /// Creates a discovery like [`Self::new`] that uses the API at `endpoint`.
    pub(super) fn with_endpoint(endpoint: &str, settings: &IonosSettings, bytes_max: u64) -> Self {
        Self {
            api: ApiClient::new(&settings.client, bytes_max),
            settings: settings.clone(),
            endpoint: endpoint.to_owned(),
        }
    }
}

impl Refresh for IonosDiscovery {
    fn interval(&self) -> Duration {
        self.settings.refresh
    }

    fn name(&self) -> String {
        self.endpoint.clone()
    }

    async fn refresh(&mut self) -> Result<Vec<TargetGroup>, Error> {
        let url = format!(
            "{}/cloudapi/v6/datacenters/{}/servers?depth=3&limit=1000&offset=0",
            self.endpoint, self.settings.datacenter
        );
        let list: IonosServerList = self.api.get_json(&url).await?;
        let servers = list.items.iter();
        Ok(servers
            .filter_map(|server| server.build_target(&list.id, self.settings.port))
            .collect())
    }
}

impl IonosServer {
    /// Builds the target of a server. Returns `None` if the server has no IP address.
    fn build_target(&self, list: &str, port: i64) -> Option<TargetGroup> {
        // Addresses of later interfaces precede those of earlier ones, as in upstream.
        let mut ips: Vec<String> = Vec::new();
        let mut of_nics: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        let nics = self.entities.nics.items.iter();
        for nic in nics.filter_map(|nic| nic.properties.as_ref()) {
            let name = nic.name.as_deref().unwrap_or(UNNAMED);
            ips.splice(0..0, nic.ips.iter().cloned());
            let of_nic = of_nics.entry(name).or_default();
            of_nic.splice(0..0, nic.ips.iter().cloned());
        }
        let address = ips.first()?;
        let p = &self.properties;
        let mut meta = MetaLabels::new("ionos_server");
        let volume = self.entities.volumes.items.first();
        meta.set_all([
            ("availability_zone", p.availability_zone.as_str()),
            ("cpu_family", &p.cpu_family),
            ("servers_id", list),
            ("id", &self.id),
            ("lifecycle", &self.metadata.state),
            ("name", &p.name),
            ("state", &p.vm_state),
            ("type", &p.kind),
            ("boot_cdrom_id", &p.boot_cdrom.id),
            ("boot_volume_id", &p.boot_volume.id),
            ("boot_image_id", volume.map_or("", |v| &v.properties.image)),
        ]);
        meta.set("ip", join_surrounded(&ips, ","));
        for (name, ips) in &of_nics {
            let name = format!("nic_ip_{}", sanitize(name));
            meta.set(&name, join_surrounded(ips, ","));
        }
        Some(meta.into_target(join_host_port(address, port)))
    }
}

//! Discovery of the servers of an IONOS Cloud data centre.
//!
//! The behaviour follows upstream's `discovery/ionos` and IONOS's Cloud API.

use super::api::Api;
use super::discover::Refresh;
use super::group::Group;
use super::json::answers;
use super::meta::{Meta, host_port, sanitize, surrounded};
use firn_http_client::HttpSettings;
use firn_model::error::Error;
use std::collections::BTreeMap;
use std::time::Duration;

/// Base URL of the IONOS Cloud API.
const ENDPOINT: &str = "https://api.ionos.com";

/// Name of network interfaces without a name, used in label names.
const UNNAMED: &str = "unnamed";

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

/// Discovery of the servers of an IONOS data centre; each refresh lists all servers.
#[derive(Debug)]
pub(super) struct Servers {
    settings: IonosSettings,
    api: Api,
    endpoint: String,
}

answers! {
    struct List {
        id: String,
        items: Vec<Server>,
    }

    struct Server {
        id: String,
        metadata: Metadata,
        properties: Properties,
        entities: Entities,
    }

    struct Metadata {
        state: String,
    }

    #[serde(rename_all = "camelCase")]
    struct Properties {
        availability_zone: String,
        cpu_family: String,
        name: String,
        vm_state: String,
        #[serde(rename = "type")]
        kind: String,
        boot_cdrom: Reference,
        boot_volume: Reference,
    }

    struct Reference {
        id: String,
    }

    struct Entities {
        nics: Nics,
        volumes: Volumes,
    }

    struct Nics {
        items: Vec<Nic>,
    }

    struct Nic {
        properties: Option<NicProperties>,
    }

    struct NicProperties {
        name: Option<String>,
        ips: Vec<String>,
    }

    struct Volumes {
        items: Vec<Volume>,
    }

    struct Volume {
        properties: VolumeProperties,
    }

    struct VolumeProperties {
        image: String,
    }
}

impl Servers {
    pub(super) fn new(settings: &IonosSettings, bytes_max: u64) -> Self {
        Self::at(ENDPOINT, settings, bytes_max)
    }

    /// Creates a discovery like [`Self::new`] that uses the API at `endpoint`.
    pub(super) fn at(endpoint: &str, settings: &IonosSettings, bytes_max: u64) -> Self {
        Self {
            api: Api::new(&settings.client, bytes_max),
            settings: settings.clone(),
            endpoint: endpoint.to_owned(),
        }
    }
}

impl Refresh for Servers {
    fn interval(&self) -> Duration {
        self.settings.refresh
    }

    fn name(&self) -> String {
        self.endpoint.clone()
    }

    async fn refresh(&mut self) -> Result<Vec<Group>, Error> {
        let url = format!(
            "{}/cloudapi/v6/datacenters/{}/servers?depth=3&limit=1000&offset=0",
            self.endpoint, self.settings.datacenter
        );
        let list: List = self.api.json(&url).await?;
        let servers = list.items.iter();
        Ok(servers
            .filter_map(|server| server.target(&list.id, self.settings.port))
            .collect())
    }
}

impl Server {
    /// Builds the target of a server. Returns `None` if the server has no IP address.
    fn target(&self, list: &str, port: i64) -> Option<Group> {
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
        let mut meta = Meta::new("ionos_server");
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
        meta.set("ip", surrounded(&ips, ","));
        for (name, ips) in &of_nics {
            let name = format!("nic_ip_{}", sanitize(name));
            meta.set(&name, surrounded(ips, ","));
        }
        Some(meta.at(host_port(address, port)))
    }
}

//! Discovery of Scaleway instances and bare metal servers.
//!
//! The behaviour follows upstream's `discovery/scaleway` and Scaleway's APIs.

mod settings;

pub(super) use settings::PROVIDER;
pub use settings::{ScalewayRole, ScalewaySettings};

use crate::api::{ApiClient, invalid_response_error, parse_header_value};
use crate::discover::Refresh;
use crate::group::TargetGroup;
use crate::json::answers;
use crate::meta::{MetaLabels, join_host_port};
use crate::pages::ApiPageCursor;
use crate::provider::{DiscoveryMechanism, DiscoveryStarter, DiscoveryTask};
use firn_http_client::{form_encode, reveal};
use firn_model::error::Error;
use hyper::header::{HeaderMap, HeaderName};
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::time::Duration;

const TOKEN: HeaderName = HeaderName::from_static("x-auth-token");

/// Response header with the total number of entries in a list.
const TOTAL: &str = "x-total-count";

/// Discovery of Scaleway servers; each refresh lists all servers of one role.
#[derive(Debug)]
pub(super) struct ScalewayDiscovery {
    settings: ScalewaySettings,
    api: ApiClient,
}

answers! {
    struct ScalewayInstancePage {
        servers: Vec<ScalewayInstance>,
        total_count: u64,
    }

    struct ScalewayInstance {
        id: String,
        name: String,
        organization: String,
        project: String,
        tags: Vec<String>,
        commercial_type: String,
        hostname: String,
        image: Option<ScalewayImage>,
        private_ip: Option<String>,
        public_ip: Option<ScalewayIp>,
        public_ips: Vec<ScalewayIp>,
        state: String,
        location: Option<ScalewayLocation>,
        ipv6: Option<ScalewayIp>,
        boot_type: String,
        security_group: Option<ScalewaySecurityGroup>,
        private_nics: Vec<ScalewayNic>,
        zone: String,
    }

    struct ScalewayImage {
        id: String,
        name: String,
        arch: String,
    }

    struct ScalewayLocation {
        cluster_id: String,
        hypervisor_id: String,
        node_id: String,
    }

    struct ScalewaySecurityGroup {
        id: String,
        name: String,
    }

    struct ScalewayNic {
        id: String,
    }

    struct ScalewayIp {
        address: String,
        family: String,
        version: String,
    }

    struct ScalewayAddressPage {
        ips: Vec<ScalewayAddress>,
        total_count: u64,
    }

    struct ScalewayAddress {
        /// Address with the prefix length of its network.
        address: String,
        is_ipv6: bool,
        resource: Option<ScalewayNic>,
    }

    struct ScalewayBaremetalPage {
        servers: Vec<ScalewayBaremetalServer>,
        total_count: u64,
    }

    struct ScalewayBaremetalServer {
        id: String,
        name: String,
        status: String,
        project_id: String,
        offer_id: String,
        tags: Vec<String>,
        ips: Vec<ScalewayIp>,
        zone: String,
        install: Option<ScalewayInstall>,
    }

    struct ScalewayInstall {
        os_id: String,
    }

    struct ScalewayOfferPage {
        offers: Vec<ScalewayOffer>,
        total_count: u64,
    }

    struct ScalewayOffer {
        id: String,
        name: String,
    }

    struct ScalewayOsPage {
        os: Vec<ScalewayOs>,
        total_count: u64,
    }

    struct ScalewayOs {
        id: String,
        name: String,
        version: String,
    }
}

/// One page of a paginated list, with the field names of its kind of entry.
trait ScalewayPage: DeserializeOwned + Send + 'static {
    type Entry;

    /// Returns the entries of this page and the total number of entries in the list.
    fn take(self) -> (Vec<Self::Entry>, u64);
}

macro_rules! page {
    ($page:ident, $field:ident, $entry:ident) => {
        impl ScalewayPage for $page {
            type Entry = $entry;

            fn take(self) -> (Vec<$entry>, u64) {
                (self.$field, self.total_count)
            }
        }
    };
}

page!(ScalewayInstancePage, servers, ScalewayInstance);
page!(ScalewayAddressPage, ips, ScalewayAddress);
page!(ScalewayBaremetalPage, servers, ScalewayBaremetalServer);
page!(ScalewayOfferPage, offers, ScalewayOffer);
page!(ScalewayOsPage, os, ScalewayOs);

impl ScalewayDiscovery {
    pub(super) fn new(settings: &ScalewaySettings, bytes_max: u64) -> Self {
        Self {
            api: ApiClient::new(&settings.client, bytes_max),
            settings: settings.clone(),
        }
    }

    /// Returns the entries of all pages of the list at `path`, filtered by `query`.
    async fn fetch_list<P: ScalewayPage>(
        &self,
        path: &str,
        query: &str,
    ) -> Result<Vec<P::Entry>, Error>
    where
        P::Entry: Send,
    {
        let key = reveal(&self.settings.secret_key, "auth token").await?;
        let headers = HeaderMap::from_iter([(TOKEN, parse_header_value(&key)?)]);
        let url = |number| format!("{}/{path}?{query}page={number}", self.settings.url);
        let mut entries = Vec::new();
        let mut pages = ApiPageCursor::from(url(1));
        let mut pages_in_all = 0;
        while let Some(at) = pages.next_position()? {
            let number = pages.page_number();
            let answer = self.api.get_success(&at, &headers).await?;
            let said: Option<u64> = answer.header(TOTAL).parse().ok();
            let (page, total) = answer.decode_json::<P>().await?.take();
            let size = page.len() as u64;
            entries.extend(page);
            if number == 1 && size > 0 {
                pages_in_all = said.unwrap_or(total).div_ceil(size);
            }
            let has_next = size > 0 && (number as u64) < pages_in_all;
            pages.set_next(has_next.then(|| url(number + 1)));
        }
        Ok(entries)
    }

    /// Encodes the filters of the settings as query parameters. The API for instances expects all
    /// tags in one parameter.
    fn encode_filters(&self) -> String {
        let s = &self.settings;
        let mut query = String::new();
        if !s.name_filter.is_empty() {
            query += &format!("name={}&", form_encode(&s.name_filter));
        }
        match s.role {
            ScalewayRole::Instance if !s.tags_filter.is_empty() => {
                query += &format!("tags={}&", form_encode(&s.tags_filter.join(",")));
            }
            ScalewayRole::Instance => {}
            ScalewayRole::Baremetal => {
                for tag in &s.tags_filter {
                    query += &format!("tags={}&", form_encode(tag));
                }
            }
        }
        query
    }

    async fn fetch_instance_targets(&self) -> Result<Vec<TargetGroup>, Error> {
        let path = format!("instance/v1/zones/{}/servers", self.settings.zone);
        let instances = self
            .fetch_list::<ScalewayInstancePage>(&path, &self.encode_filters())
            .await?;
        let private = self.fetch_private_addresses(&instances).await?;
        let port = self.settings.port;
        Ok(instances
            .iter()
            .filter_map(|one| one.build_target(&private, port))
            .collect())
    }

    /// Returns the private IPv4 addresses of network interfaces by interface id, for instances that
    /// have no other address.
    async fn fetch_private_addresses(
        &self,
        instances: &[ScalewayInstance],
    ) -> Result<BTreeMap<String, String>, Error> {
        let mut of_regions: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        for one in instances.iter().filter(|one| !one.has_address()) {
            let region = region_of_zone(&one.zone)
                .ok_or_else(|| invalid_response_error(format!("invalid zone '{}'", one.zone)))?;
            let ids = one.private_nics.iter().map(|nic| nic.id.as_str());
            let ids = ids.filter(|id| !id.is_empty());
            of_regions.entry(region).or_default().extend(ids);
        }
        let mut found = BTreeMap::new();
        for (region, ids) in of_regions.into_iter().filter(|(_, ids)| !ids.is_empty()) {
            let mut query = String::new();
            for id in ids {
                query += &format!("resource_ids={}&", form_encode(id));
            }
            query += "resource_types=instance_private_nic&";
            let path = format!("ipam/v1/regions/{region}/ips");
            for address in self
                .fetch_list::<ScalewayAddressPage>(&path, &query)
                .await?
            {
                let (Some(nic), false) = (address.resource, address.is_ipv6) else {
                    continue;
                };
                let ip = address.address.split('/').next().unwrap_or_default();
                if !ip.is_empty() {
                    found.insert(nic.id, ip.to_owned());
                }
            }
        }
        Ok(found)
    }

    async fn fetch_baremetal_targets(&self) -> Result<Vec<TargetGroup>, Error> {
        let path = |what| format!("baremetal/v1/zones/{}/{what}", self.settings.zone);
        let machines = self
            .fetch_list::<ScalewayBaremetalPage>(&path("servers"), &self.encode_filters())
            .await?;
        let offers = self
            .fetch_list::<ScalewayOfferPage>(&path("offers"), "")
            .await?;
        let systems = self.fetch_list::<ScalewayOsPage>(&path("os"), "").await?;
        let machines = machines.iter();
        machines
            .map(|one| one.build_target(&offers, &systems, self.settings.port))
            .collect()
    }
}

impl DiscoveryMechanism for ScalewaySettings {
    fn mechanism(&self) -> &'static str {
        "scaleway"
    }

    fn start(&self, starter: &DiscoveryStarter) -> DiscoveryTask {
        starter.refresh(ScalewayDiscovery::new(self, starter.bytes_max))
    }
}

impl Refresh for ScalewayDiscovery {
    fn interval(&self) -> Duration {
        self.settings.refresh
    }

    fn name(&self) -> String {
        self.settings.url.clone()
    }

    async fn refresh(&mut self) -> Result<Vec<TargetGroup>, Error> {
        match self.settings.role {
            ScalewayRole::Instance => self.fetch_instance_targets().await,
            ScalewayRole::Baremetal => self.fetch_baremetal_targets().await,
        }
    }
}

/// Returns the region of a zone, such as `fr-par` for `fr-par-1`.
fn region_of_zone(zone: &str) -> Option<String> {
    let (region, number) = zone.rsplit_once('-')?;
    let is_zone = region.contains('-') && number.bytes().all(|byte| byte.is_ascii_digit());
    is_zone.then(|| region.to_owned())
}

impl ScalewayInstance {
    fn has_address(&self) -> bool {
        self.private_ip.is_some() || self.public_ip.is_some() || self.ipv6.is_some()
    }

    /// Builds the target of an instance. Returns `None` if the instance has no address.
    fn build_target(&self, private: &BTreeMap<String, String>, port: i64) -> Option<TargetGroup> {
        let mut meta = MetaLabels::new("scaleway_instance");
        meta.set_all([
            ("boot_type", self.boot_type.as_str()),
            ("hostname", &self.hostname),
            ("id", &self.id),
            ("name", &self.name),
            ("organization_id", &self.organization),
            ("project_id", &self.project),
            ("status", &self.state),
            ("type", &self.commercial_type),
            ("zone", &self.zone),
            ("region", &region_of_zone(&self.zone).unwrap_or_default()),
        ]);
        self.set_optional_labels(&mut meta);
        meta.set_list("tags", &self.tags, ",");
        for (family, label) in [
            ("inet", "public_ipv4_addresses"),
            ("inet6", "public_ipv6_addresses"),
        ] {
            let ips = self.public_ips.iter().filter(|ip| ip.family == family);
            let ips: Vec<String> = ips.map(|ip| ip.address.clone()).collect();
            meta.set_list(label, &ips, ",");
        }
        let mut address = String::new();
        if let Some(ip) = &self.ipv6 {
            meta.set("public_ipv6", &ip.address);
            address.clone_from(&ip.address);
        }
        if let Some(ip) = &self.public_ip {
            if ip.family != "inet6" {
                meta.set("public_ipv4", &ip.address);
            }
            address.clone_from(&ip.address);
        }
        if let Some(ip) = &self.private_ip {
            meta.set("private_ipv4", ip);
            address.clone_from(ip);
        }
        if address.is_empty() {
            let mut ips = self.private_nics.iter().filter_map(|n| private.get(&n.id));
            address.clone_from(ips.next()?);
            meta.set("private_ipv4", &address);
        }
        Some(meta.into_target(join_host_port(&address, port)))
    }

    /// Adds the labels of optional parts: image, location and security group.
    fn set_optional_labels(&self, meta: &mut MetaLabels) {
        if let Some(image) = &self.image {
            meta.set_all([
                ("image_arch", image.arch.as_str()),
                ("image_id", &image.id),
                ("image_name", &image.name),
            ]);
        }
        if let Some(location) = &self.location {
            meta.set_all([
                ("location_cluster_id", location.cluster_id.as_str()),
                ("location_hypervisor_id", &location.hypervisor_id),
                ("location_node_id", &location.node_id),
            ]);
        }
        if let Some(group) = &self.security_group {
            meta.set("security_group_id", &group.id);
            meta.set("security_group_name", &group.name);
        }
    }
}

impl ScalewayBaremetalServer {
    fn build_target(
        &self,
        offers: &[ScalewayOffer],
        systems: &[ScalewayOs],
        port: i64,
    ) -> Result<TargetGroup, Error> {
        let mut meta = MetaLabels::new("scaleway_baremetal");
        meta.set_all([
            ("id", self.id.as_str()),
            ("name", &self.name),
            ("zone", &self.zone),
            ("status", &self.status),
            ("project_id", &self.project_id),
        ]);
        if let Some(offer) = offers.iter().find(|offer| offer.id == self.offer_id) {
            meta.set("type", &offer.name);
        }
        if let Some(install) = &self.install
            && let Some(system) = systems.iter().find(|one| one.id == install.os_id)
        {
            meta.set("os_name", &system.name);
            meta.set("os_version", &system.version);
        }
        meta.set_list("tags", &self.tags, ",");
        let is_unknown = |ip: &&ScalewayIp| !matches!(ip.version.as_str(), "IPv4" | "IPv6");
        if let Some(ip) = self.ips.iter().find(is_unknown) {
            return Err(invalid_response_error(format!(
                "unknown IP version: {}",
                ip.version
            )));
        }
        let first = |version| self.ips.iter().find(|ip| ip.version == version);
        let (four, six) = (first("IPv4"), first("IPv6"));
        for (label, ip) in [("public_ipv4", four), ("public_ipv6", six)] {
            if let Some(ip) = ip {
                meta.set(label, &ip.address);
            }
        }
        Ok(match four.or(six) {
            Some(ip) => meta.into_target(join_host_port(&ip.address, port)),
            None => meta.into_target(""),
        })
    }
}

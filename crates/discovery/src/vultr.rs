//! Discovery of Vultr instances.
//!
//! The behaviour follows upstream's `discovery/vultr` and Vultr's API.

use super::api::Api;
use super::discover::Refresh;
use super::group::Group;
use super::json::answers;
use super::meta::{Meta, host_port};
use firn_http_client::{HttpSettings, form_encode};
use firn_model::error::Error;
use hyper::HeaderMap;
use std::time::Duration;

/// Base URL of the Vultr API.
const ENDPOINT: &str = "https://api.vultr.com";

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

/// Discovery of Vultr instances; each refresh lists all pages.
#[derive(Debug)]
pub(super) struct Instances {
    settings: VultrSettings,
    api: Api,
    endpoint: String,
}

answers! {
    struct Page {
        instances: Vec<Instance>,
        meta: PageMeta,
    }

    struct PageMeta {
        links: Links,
    }

    struct Links {
        next: String,
    }

    struct Instance {
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

impl Instances {
    pub(super) fn new(settings: &VultrSettings, bytes_max: u64) -> Self {
        Self::at(ENDPOINT, settings, bytes_max)
    }

    /// Creates a discovery like [`Self::new`] that uses the API at `endpoint`.
    pub(super) fn at(endpoint: &str, settings: &VultrSettings, bytes_max: u64) -> Self {
        Self {
            api: Api::new(&settings.client, bytes_max),
            settings: settings.clone(),
            endpoint: endpoint.to_owned(),
        }
    }
}

impl Refresh for Instances {
    fn interval(&self) -> Duration {
        self.settings.refresh
    }

    fn name(&self) -> String {
        self.endpoint.clone()
    }

    async fn refresh(&mut self) -> Result<Vec<Group>, Error> {
        let first = format!("{}/v2/instances?per_page=100", self.endpoint);
        let next = |page: &Page, _| {
            let cursor = &page.meta.links.next;
            (!cursor.is_empty()).then(|| format!("{first}&cursor={}", form_encode(cursor)))
        };
        let pages = self.api.pages(&first, &HeaderMap::new(), next).await?;
        let instances = pages.iter().flat_map(|page| &page.instances);
        Ok(instances
            .map(|one| one.target(self.settings.port))
            .collect())
    }
}

impl Instance {
    fn target(&self, port: i64) -> Group {
        let mut meta = Meta::new("vultr_instance");
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
        meta.at(host_port(&self.main_ip, port))
    }
}

//! Targets from Triton: its containers, or the compute nodes that they run on.
//!
//! Facts are from upstream's `discovery/triton` and the discovery API of triton-cmon.

use super::api::{Api, wrong};
use super::discover::Refresh;
use super::group::Group;
use super::json::answers;
use super::meta::Meta;
use firn_http_client::{HttpSettings, form_encode};
use firn_model::error::Error;
use hyper::HeaderMap;
use std::time::Duration;

/// What targets are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TritonRole {
    /// Zones and virtual machines.
    Container,
    /// Compute nodes: the servers.
    Cn,
}

/// One of `triton_sd_configs`
#[derive(Clone, Debug, PartialEq)]
pub struct TritonSettings {
    /// `role`
    pub role: TritonRole,
    /// `dns_suffix`
    pub dns_suffix: String,
    /// `endpoint`: a host.
    pub endpoint: String,
    /// `groups`
    pub groups: Vec<String>,
    /// `port`
    pub port: i64,
    /// `version`
    pub version: i64,
    /// `refresh_interval`
    pub refresh: Duration,
    /// How the endpoint is reached.
    pub client: HttpSettings,
}

/// Asks a Triton.
#[derive(Debug)]
pub(super) struct Machines {
    settings: TritonSettings,
    api: Api,
    url: String,
}

answers! {
    struct List {
        containers: Vec<Container>,
        cns: Vec<Node>,
    }

    struct Container {
        groups: Vec<String>,
        server_uuid: String,
        vm_alias: String,
        vm_brand: String,
        vm_image_uuid: String,
        vm_uuid: String,
    }

    struct Node {
        server_uuid: String,
        server_hostname: String,
    }
}

impl Machines {
    pub(super) fn new(settings: &TritonSettings, bytes_max: u64) -> Self {
        let base = format!("https://{}:{}", settings.endpoint, settings.port);
        Self::at(&base, settings, bytes_max)
    }

    /// Like [`Self::new`], of the API at `base`.
    pub(super) fn at(base: &str, settings: &TritonSettings, bytes_max: u64) -> Self {
        let path = match settings.role {
            TritonRole::Container => "discover",
            TritonRole::Cn => "gz/discover",
        };
        let groups = match settings.groups.join(",") {
            groups if groups.is_empty() => groups,
            groups => format!("?groups={}", form_encode(&groups)),
        };
        Self {
            api: Api::new(&settings.client, bytes_max),
            url: format!("{base}/v{}/{path}{groups}", settings.version),
            settings: settings.clone(),
        }
    }

    async fn list(&self) -> Result<List, Error> {
        let answer = self.api.get(&self.url, &HeaderMap::new()).await?;
        // Upstream takes an error for an empty list; here the last list stays.
        answer.good()?.json().await
    }
}

impl Refresh for Machines {
    fn interval(&self) -> Duration {
        self.settings.refresh
    }

    fn name(&self) -> String {
        self.url.clone()
    }

    async fn refresh(&mut self) -> Result<Vec<Group>, Error> {
        let list = self.list().await.map_err(|e| {
            let what = "an error occurred when requesting targets from the discovery endpoint";
            wrong(format!("{what}: {e}"))
        })?;
        let s = &self.settings;
        let at = |id: &str| format!("{id}.{}:{}", s.dns_suffix, s.port);
        Ok(match s.role {
            TritonRole::Container => {
                let machines = list.containers.iter();
                machines
                    .map(|one| one.meta().at(at(&one.vm_uuid)))
                    .collect()
            }
            TritonRole::Cn => {
                let nodes = list.cns.iter();
                nodes
                    .map(|one| one.meta().at(at(&one.server_uuid)))
                    .collect()
            }
        })
    }
}

impl Container {
    fn meta(&self) -> Meta {
        let mut meta = Meta::new("triton");
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

impl Node {
    fn meta(&self) -> Meta {
        let mut meta = Meta::new("triton");
        meta.set("machine_id", &self.server_uuid);
        meta.set("machine_alias", &self.server_hostname);
        meta
    }
}

//! Discovery of Outscale virtual machines.
//!
//! The behaviour follows upstream's `discovery/outscale` and Outscale's API.

use super::api::{Api, wrong};
use super::aws::{Credentials, Scope, add_signature};
use super::discover::Refresh;
use super::group::Group;
use super::json::answers;
use super::meta::{Meta, host_port, sanitize};
use super::pages::Pages;
use firn_http_client::{HttpSettings, Secret, reveal};
use firn_model::env::Clock;
use firn_model::error::Error;
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

/// Service and region in the scope of signatures, which are the same for all regions.
const SERVICE: &str = "oapi";
const SIGNED_REGION: &str = "eu-west-2";

/// An entry of `outscale_sd_configs`: the API whose virtual machines are discovered, and
/// credentials.
#[derive(Clone, Debug, PartialEq)]
pub struct OutscaleSettings {
    /// The `endpoint` key: base URL of the API, including its version.
    pub endpoint: String,
    /// The `region` key: value of the label `__meta_outscale_vm_region`; it does not select the
    /// API.
    pub region: String,
    /// The `access_key` key: id of the access key that signs requests.
    pub access_key: String,
    /// The `secret_key` or `secret_key_file` key: secret part of the access key, read at each
    /// refresh.
    pub secret_key: Secret,
    /// The `port` key: port in the addresses of all targets, which relabelling can replace.
    pub port: i64,
    /// The `refresh_interval` key: time between two refreshes, and the timeout of one.
    pub refresh: Duration,
    /// Settings of the HTTP client that calls the API: credentials, TLS, proxies and redirects.
    pub client: HttpSettings,
}

/// Discovery of Outscale machines; each refresh lists all pages.
pub(super) struct Machines {
    settings: OutscaleSettings,
    api: Api,
    clock: Arc<dyn Clock>,
}

answers! {
    #[serde(rename_all = "PascalCase")]
    struct Page {
        vms: Vec<Machine>,
        next_page_token: String,
    }

    #[serde(rename_all = "PascalCase")]
    struct Machine {
        vm_id: String,
        state: String,
        placement: Placement,
        private_ip: String,
        public_ip: String,
        tags: Vec<Tag>,
    }

    #[serde(rename_all = "PascalCase")]
    struct Placement {
        subregion_name: String,
    }

    #[serde(rename_all = "PascalCase")]
    struct Tag {
        key: String,
        value: String,
    }
}

impl Machines {
    pub(super) fn new(settings: &OutscaleSettings, bytes_max: u64, clock: Arc<dyn Clock>) -> Self {
        Self {
            api: Api::new(&settings.client, bytes_max),
            settings: settings.clone(),
            clock,
        }
    }

    /// Requests the page with `token`, which is empty for the first page.
    async fn page(&self, token: &str, keys: &Credentials) -> Result<Page, Error> {
        let body = match token {
            "" => json!({}),
            token => json!({"NextPageToken": token}),
        };
        let body = body.to_string();
        let json = HeaderValue::from_static("application/json");
        let mut headers = HeaderMap::from_iter([(CONTENT_TYPE, json.clone()), (ACCEPT, json)]);
        let scope = Scope {
            region: SIGNED_REGION,
            service: SERVICE,
            now_ms: self.clock.now_ms(),
        };
        let url = format!("{}/ReadVms", self.settings.endpoint.trim_end_matches('/'));
        add_signature(&mut headers, &url, &body, keys, &scope)?;
        let answer = self.api.post(&url, &headers, body.into()).await?;
        answer.good()?.json().await
    }
}

impl Refresh for Machines {
    fn interval(&self) -> Duration {
        self.settings.refresh
    }

    fn name(&self) -> String {
        self.settings.endpoint.clone()
    }

    async fn refresh(&mut self) -> Result<Vec<Group>, Error> {
        let keys = Credentials {
            access_key: self.settings.access_key.clone(),
            secret_key: reveal(&self.settings.secret_key, "outscale secret key").await?,
            session: String::new(),
        };
        let mut groups = Vec::new();
        let mut pages = Pages::from("");
        while let Some(token) = pages.turn()? {
            let page = self.page(&token, &keys).await;
            let page = page.map_err(|e| wrong(format!("outscale ReadVms: {e}")))?;
            let machines = page.vms.iter();
            groups.extend(machines.filter_map(|one| one.target(&self.settings)));
            pages.follow(Some(page.next_page_token));
        }
        Ok(groups)
    }
}

impl Machine {
    /// Builds the target of a machine. Returns `None` if the machine has no IP address.
    fn target(&self, settings: &OutscaleSettings) -> Option<Group> {
        let address = [&self.private_ip, &self.public_ip]
            .into_iter()
            .find(|ip| !ip.is_empty())?;
        let mut meta = Meta::new("outscale_vm");
        meta.set_all([
            ("instance_id", self.vm_id.as_str()),
            ("region", &settings.region),
            ("state", &self.state),
            ("subregion", &self.placement.subregion_name),
            ("private_ip", &self.private_ip),
            ("public_ip", &self.public_ip),
        ]);
        let tags = self.tags.iter().filter(|tag| !tag.key.is_empty());
        for tag in tags.filter(|tag| !tag.value.is_empty()) {
            meta.set(&format!("tag_{}", sanitize(&tag.key)), &tag.value);
        }
        Some(meta.at(host_port(address, settings.port)))
    }
}

//! Discovery of Google Compute Engine instances, with the labels of Prometheus's `gce_sd_configs`.

use super::super::tokens::Tokens;
use super::credentials::Account;
use crate::api::{Api, wrong};
use crate::discover::Refresh;
use crate::group::Group;
use crate::json::answers;
use crate::meta::{Meta, sanitize};
use firn_http_client::{HttpSettings, form_encode};
use firn_model::env::Clock;
use firn_model::error::Error;
use hyper::header::{AUTHORIZATION, HeaderMap};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Base URL of the Compute Engine API.
const ENDPOINT: &str = "https://compute.googleapis.com";

/// OAuth scope that permits listing instances.
const SCOPE: &str = "https://www.googleapis.com/auth/compute.readonly";

/// Type of the access configuration that contains a public IP address.
const NAT: &str = "ONE_TO_ONE_NAT";

/// An entry of `gce_sd_configs`: the project and zone whose instances are discovered.
#[derive(Clone, Debug, PartialEq)]
pub struct GceSettings {
    /// The `project` key: id of the Google Cloud project.
    pub project: String,
    /// The `zone` key: zone whose instances are discovered.
    pub zone: String,
    /// The `filter` key: filter expression that the API applies; empty for no filter.
    pub filter: String,
    /// The `tag_separator` key: separator of the tags in the label `__meta_gce_tags`.
    pub tag_separator: String,
    /// The `port` key: port in the addresses of all targets, which relabelling can replace.
    pub port: i64,
    /// The `refresh_interval` key: time between two refreshes, and the timeout of one.
    pub refresh: Duration,
}

/// Discovery of Compute Engine instances; each refresh lists all pages of one zone.
pub(in super::super) struct Instances {
    settings: GceSettings,
    api: Api,
    endpoint: String,
    tokens: Tokens<Account>,
}

answers! {
    #[serde(rename_all = "camelCase")]
    struct Page {
        items: Vec<Instance>,
        next_page_token: String,
    }

    #[serde(rename_all = "camelCase")]
    struct Instance {
        id: String,
        name: String,
        status: String,
        zone: String,
        machine_type: String,
        network_interfaces: Vec<Interface>,
        tags: Tags,
        metadata: Metadata,
        labels: BTreeMap<String, String>,
    }

    #[serde(rename_all = "camelCase")]
    struct Interface {
        name: String,
        network: String,
        subnetwork: String,
        #[serde(rename = "networkIP")]
        network_ip: String,
        access_configs: Vec<AccessConfig>,
    }

    struct AccessConfig {
        #[serde(rename = "type")]
        kind: String,
        #[serde(rename = "natIP")]
        nat_ip: String,
    }

    struct Tags {
        items: Vec<String>,
    }

    struct Metadata {
        items: Vec<Entry>,
    }

    struct Entry {
        key: String,
        value: Option<String>,
    }
}

impl Instances {
    pub(in super::super) fn new(
        settings: &GceSettings,
        bytes_max: u64,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self::at(
            ENDPOINT,
            settings,
            bytes_max,
            Account::new(SCOPE, None),
            clock,
        )
    }

    /// Creates a discovery like [`Self::new`] that uses the API at `endpoint`, with access tokens
    /// of `account`.
    pub(super) fn at(
        endpoint: &str,
        settings: &GceSettings,
        bytes_max: u64,
        account: Account,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            settings: settings.clone(),
            api: Api::new(&HttpSettings::default(), bytes_max),
            endpoint: endpoint.to_owned(),
            tokens: Tokens::new(account, clock),
        }
    }

    async fn pages(&self) -> Result<Vec<Page>, Error> {
        let s = &self.settings;
        let headers = HeaderMap::from_iter([(AUTHORIZATION, self.tokens.header().await?)]);
        let mut first = format!(
            "{}/compute/v1/projects/{}/zones/{}/instances?alt=json&prettyPrint=false",
            self.endpoint,
            form_encode(&s.project),
            form_encode(&s.zone)
        );
        if !s.filter.is_empty() {
            first += &format!("&filter={}", form_encode(&s.filter));
        }
        let next = |page: &Page, _| {
            let token = &page.next_page_token;
            (!token.is_empty()).then(|| format!("{first}&pageToken={}", form_encode(token)))
        };
        self.api.pages(&first, &headers, next).await
    }
}

impl Refresh for Instances {
    fn interval(&self) -> Duration {
        self.settings.refresh
    }

    fn name(&self) -> String {
        format!("gce {} {}", self.settings.project, self.settings.zone)
    }

    async fn refresh(&mut self) -> Result<Vec<Group>, Error> {
        match self.pages().await {
            Ok(pages) => {
                let instances = pages.iter().flat_map(|page| &page.items);
                Ok(instances
                    .filter_map(|one| one.target(&self.settings))
                    .collect())
            }
            Err(e) => {
                // The failure may be caused by an invalid token, so the next refresh requests a new
                // one.
                self.tokens.forget().await;
                Err(wrong(format!(
                    "error retrieving refresh targets from gce: {e}"
                )))
            }
        }
    }
}

impl Instance {
    /// Builds the target of an instance. Returns `None` if the instance has no network interface.
    fn target(&self, settings: &GceSettings) -> Option<Group> {
        let first = self.network_interfaces.first()?;
        let mut meta = Meta::new("gce");
        meta.set_all([
            ("project", settings.project.as_str()),
            ("zone", &self.zone),
            ("instance_id", &self.id),
            ("instance_name", &self.name),
            ("instance_status", &self.status),
            ("machine_type", &self.machine_type),
            ("network", &first.network),
            ("subnetwork", &first.subnetwork),
            ("private_ip", &first.network_ip),
        ]);
        for interface in &self.network_interfaces {
            let name = format!("interface_ipv4_{}", sanitize(&interface.name));
            meta.set(&name, &interface.network_ip);
        }
        meta.set_list("tags", &self.tags.items, &settings.tag_separator);
        for entry in &self.metadata.items {
            if let Some(value) = &entry.value {
                meta.set(&format!("metadata_{}", sanitize(&entry.key)), value);
            }
        }
        meta.set_each("label_", &self.labels);
        let access = first.access_configs.first();
        if let Some(access) = access.filter(|access| access.kind == NAT) {
            meta.set("public_ip", &access.nat_ip);
        }
        Some(meta.at(format!("{}:{}", first.network_ip, settings.port)))
    }
}

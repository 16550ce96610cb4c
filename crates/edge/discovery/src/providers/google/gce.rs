//! Discovery of Google Compute Engine instances, with the labels of Prometheus's `gce_sd_configs`.

use super::credentials::GoogleAccount;
use crate::api::{ApiClient, invalid_response_error};
use crate::discover::Refresh;
use crate::group::TargetGroup;
use crate::json::answers;
use crate::meta::{MetaLabels, sanitize};
use crate::provider::{
    DiscoveryMechanism, DiscoveryProvider, DiscoverySettings, DiscoveryStarter, DiscoveryTask,
    ReadResult,
};
use crate::section_values::{refresh_interval, require};
use crate::tokens::AccessTokenCache;
use firn_config_schema::read;
use firn_config_schema::schema::{ConfigKey, ConfigValueShape as Shape, key};
use firn_http_client::{HttpSettings, form_encode};
use firn_model::env::Clock;
use firn_model::error::Error;
use firn_yaml::YamlNode;
use hyper::header::{AUTHORIZATION, HeaderMap};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Base URL of the Compute Engine API.
const ENDPOINT: &str = "https://compute.googleapis.com";

/// OAuth scope that permits listing instances.
const SCOPE: &str = "https://www.googleapis.com/auth/compute.readonly";

/// Type of the access configuration that contains a public IP address.
const NAT: &str = "ONE_TO_ONE_NAT";

/// The provider of `gce_sd_configs`.
pub(in super::super) const PROVIDER: DiscoveryProvider =
    DiscoveryProvider::new("gce_sd_configs", &Shape::Section(&[KEYS]), read_entry);

const KEYS: &[ConfigKey] = &[
    key("project", Shape::Text),
    key("zone", Shape::Text),
    key("filter", Shape::Text),
    key("refresh_interval", Shape::Duration),
    key("port", Shape::Integer),
    key("tag_separator", Shape::Text),
];

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

impl DiscoveryMechanism for GceSettings {
    fn mechanism(&self) -> &'static str {
        "gce"
    }

    fn start(&self, starter: &DiscoveryStarter) -> DiscoveryTask {
        starter.refresh(GceDiscovery::new(
            self,
            starter.bytes_max,
            starter.clock.clone(),
        ))
    }
}

/// Reads an entry of `gce_sd_configs`, which needs a project and a zone.
fn read_entry(node: &YamlNode, _: &Path) -> ReadResult {
    require(
        node,
        &[
            ("project", "GCE SD configuration requires a project"),
            ("zone", "GCE SD configuration requires a zone"),
        ],
    )?;
    Ok(DiscoverySettings::provided(GceSettings {
        project: read::string(node, "project"),
        zone: read::string(node, "zone"),
        filter: read::string(node, "filter"),
        tag_separator: read::string_or(node, "tag_separator", ","),
        port: read::integer_or(node, "port", 80),
        refresh: refresh_interval(node, 60),
    }))
}

/// Discovery of Compute Engine instances; each refresh lists all pages of one zone.
pub(in super::super) struct GceDiscovery {
    settings: GceSettings,
    api: ApiClient,
    endpoint: String,
    tokens: AccessTokenCache<GoogleAccount>,
}

answers! {
    #[serde(rename_all = "camelCase")]
    struct GceInstancePage {
        items: Vec<GceInstance>,
        next_page_token: String,
    }

    #[serde(rename_all = "camelCase")]
    struct GceInstance {
        id: String,
        name: String,
        status: String,
        zone: String,
        machine_type: String,
        network_interfaces: Vec<GceInterface>,
        tags: GceTags,
        metadata: GceMetadata,
        labels: BTreeMap<String, String>,
    }

    #[serde(rename_all = "camelCase")]
    struct GceInterface {
        name: String,
        network: String,
        subnetwork: String,
        #[serde(rename = "networkIP")]
        network_ip: String,
        access_configs: Vec<GceAccessConfig>,
    }

    struct GceAccessConfig {
        #[serde(rename = "type")]
        kind: String,
        #[serde(rename = "natIP")]
        nat_ip: String,
    }

    struct GceTags {
        items: Vec<String>,
    }

    struct GceMetadata {
        items: Vec<GceMetadataItem>,
    }

    struct GceMetadataItem {
        key: String,
        value: Option<String>,
    }
}

impl GceDiscovery {
    pub(in super::super) fn new(
        settings: &GceSettings,
        bytes_max: u64,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self::with_endpoint(
            ENDPOINT,
            settings,
            bytes_max,
            GoogleAccount::new(SCOPE, None),
            clock,
        )
    }

    /// Creates a discovery like [`Self::new`] that uses the API at `endpoint`, with access tokens
    /// of `account`.
    pub(super) fn with_endpoint(
        endpoint: &str,
        settings: &GceSettings,
        bytes_max: u64,
        account: GoogleAccount,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            settings: settings.clone(),
            api: ApiClient::new(&HttpSettings::default(), bytes_max),
            endpoint: endpoint.to_owned(),
            tokens: AccessTokenCache::new(account, clock),
        }
    }

    async fn fetch_pages(&self) -> Result<Vec<GceInstancePage>, Error> {
        let s = &self.settings;
        let headers =
            HeaderMap::from_iter([(AUTHORIZATION, self.tokens.authorization_header().await?)]);
        let mut first = format!(
            "{}/compute/v1/projects/{}/zones/{}/instances?alt=json&prettyPrint=false",
            self.endpoint,
            form_encode(&s.project),
            form_encode(&s.zone)
        );
        if !s.filter.is_empty() {
            first += &format!("&filter={}", form_encode(&s.filter));
        }
        let next = |page: &GceInstancePage, _| {
            let token = &page.next_page_token;
            (!token.is_empty()).then(|| format!("{first}&pageToken={}", form_encode(token)))
        };
        self.api.get_pages(&first, &headers, next).await
    }
}

impl Refresh for GceDiscovery {
    fn interval(&self) -> Duration {
        self.settings.refresh
    }

    fn name(&self) -> String {
        format!("gce {} {}", self.settings.project, self.settings.zone)
    }

    async fn refresh(&mut self) -> Result<Vec<TargetGroup>, Error> {
        match self.fetch_pages().await {
            Ok(pages) => {
                let instances = pages.iter().flat_map(|page| &page.items);
                Ok(instances
                    .filter_map(|one| one.build_target(&self.settings))
                    .collect())
            }
            Err(e) => {
                // The failure may be caused by an invalid token, so the next refresh requests a new
                // one.
                self.tokens.clear_cache().await;
                Err(invalid_response_error(format!(
                    "error retrieving refresh targets from gce: {e}"
                )))
            }
        }
    }
}

impl GceInstance {
    /// Builds the target of an instance. Returns `None` if the instance has no network interface.
    fn build_target(&self, settings: &GceSettings) -> Option<TargetGroup> {
        let first = self.network_interfaces.first()?;
        let mut meta = MetaLabels::new("gce");
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
        Some(meta.into_target(format!("{}:{}", first.network_ip, settings.port)))
    }
}

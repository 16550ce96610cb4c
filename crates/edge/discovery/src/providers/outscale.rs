//! Discovery of Outscale virtual machines.
//!
//! The behaviour follows upstream's `discovery/outscale` and Outscale's API.

use super::aws::{AwsCredentials, SigV4Scope, sign_post};
use crate::api::{ApiClient, invalid_response_error};
use crate::discover::Refresh;
use crate::group::TargetGroup;
use crate::json::answers;
use crate::meta::{MetaLabels, join_host_port, sanitize};
use crate::pages::ApiPageCursor;
use crate::provider::{
    DiscoveryMechanism, DiscoveryProvider, DiscoverySettings, DiscoveryStarter, DiscoveryTask,
    ReadResult,
};
use crate::section_values::{refresh_interval, require, secret_key};
use firn_config_schema::read;
use firn_config_schema::schema::{ConfigKey, ConfigValueShape as Shape, key};
use firn_http_client::http_config::{HTTP_CLIENT, http};
use firn_http_client::{HttpSettings, Secret, reveal};
use firn_model::env::Clock;
use firn_model::error::Error;
use firn_yaml::YamlNode;
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue};
use serde_json::json;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Service and region in the scope of signatures, which are the same for all regions.
const SERVICE: &str = "oapi";
const SIGNED_REGION: &str = "eu-west-2";

/// The provider of `outscale_sd_configs`.
pub(super) const PROVIDER: DiscoveryProvider = DiscoveryProvider::new(
    "outscale_sd_configs",
    &Shape::Section(&[KEYS, HTTP_CLIENT]),
    read_entry,
);

const KEYS: &[ConfigKey] = &[
    key("endpoint", Shape::Text),
    key("region", Shape::Text),
    key("access_key", Shape::Text),
    key("secret_key", Shape::Secret),
    key("secret_key_file", Shape::Text),
    key("refresh_interval", Shape::Duration),
    key("port", Shape::Integer),
];

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

impl DiscoveryMechanism for OutscaleSettings {
    fn mechanism(&self) -> &'static str {
        "outscale"
    }

    fn start(&self, starter: &DiscoveryStarter) -> DiscoveryTask {
        starter.refresh(OutscaleDiscovery::new(
            self,
            starter.bytes_max,
            starter.clock.clone(),
        ))
    }
}

/// Reads an entry of `outscale_sd_configs`, which needs a region and a pair of keys.
fn read_entry(node: &YamlNode, dir: &Path) -> ReadResult {
    let region = read::string_or(node, "region", "eu-west-2");
    if region.is_empty() {
        return Err(node.error("outscale SD configuration requires a region"));
    }
    require(
        node,
        &[(
            "access_key",
            "outscale SD configuration requires access_key",
        )],
    )?;
    let endpoint = match read::string(node, "endpoint") {
        endpoint if endpoint.is_empty() => format!("https://api.{region}.outscale.com/api/v1"),
        endpoint => endpoint,
    };
    Ok(DiscoverySettings::provided(OutscaleSettings {
        endpoint,
        region,
        access_key: read::string(node, "access_key"),
        secret_key: secret_key(node, dir)?,
        port: read::integer_or(node, "port", 80),
        refresh: refresh_interval(node, 60),
        client: http(node, dir)?,
    }))
}

/// Discovery of Outscale machines; each refresh lists all pages.
pub(super) struct OutscaleDiscovery {
    settings: OutscaleSettings,
    api: ApiClient,
    clock: Arc<dyn Clock>,
}

answers! {
    #[serde(rename_all = "PascalCase")]
    struct OutscaleVmPage {
        vms: Vec<OutscaleVm>,
        next_page_token: String,
    }

    #[serde(rename_all = "PascalCase")]
    struct OutscaleVm {
        vm_id: String,
        state: String,
        placement: OutscalePlacement,
        private_ip: String,
        public_ip: String,
        tags: Vec<OutscaleTag>,
    }

    #[serde(rename_all = "PascalCase")]
    struct OutscalePlacement {
        subregion_name: String,
    }

    #[serde(rename_all = "PascalCase")]
    struct OutscaleTag {
        key: String,
        value: String,
    }
}

impl OutscaleDiscovery {
    pub(super) fn new(settings: &OutscaleSettings, bytes_max: u64, clock: Arc<dyn Clock>) -> Self {
        Self {
            api: ApiClient::new(&settings.client, bytes_max),
            settings: settings.clone(),
            clock,
        }
    }

    /// Requests the page with `token`, which is empty for the first page.
    async fn fetch_page(
        &self,
        token: &str,
        keys: &AwsCredentials,
    ) -> Result<OutscaleVmPage, Error> {
        let body = match token {
            "" => json!({}),
            token => json!({"NextPageToken": token}),
        };
        let body = body.to_string();
        let json = HeaderValue::from_static("application/json");
        let mut headers = HeaderMap::from_iter([(CONTENT_TYPE, json.clone()), (ACCEPT, json)]);
        let scope = SigV4Scope {
            region: SIGNED_REGION,
            service: SERVICE,
            now_ms: self.clock.now_ms(),
        };
        let url = format!("{}/ReadVms", self.settings.endpoint.trim_end_matches('/'));
        sign_post(&mut headers, &url, &body, keys, &scope)?;
        let answer = self.api.post(&url, &headers, body.into()).await?;
        answer.require_success()?.decode_json().await
    }
}

impl Refresh for OutscaleDiscovery {
    fn interval(&self) -> Duration {
        self.settings.refresh
    }

    fn name(&self) -> String {
        self.settings.endpoint.clone()
    }

    async fn refresh(&mut self) -> Result<Vec<TargetGroup>, Error> {
        let keys = AwsCredentials {
            access_key: self.settings.access_key.clone(),
            secret_key: reveal(&self.settings.secret_key, "outscale secret key").await?,
            session: String::new(),
        };
        let mut groups = Vec::new();
        let mut pages = ApiPageCursor::from("");
        while let Some(token) = pages.next_position()? {
            let page = self.fetch_page(&token, &keys).await;
            let page =
                page.map_err(|e| invalid_response_error(format!("outscale ReadVms: {e}")))?;
            let machines = page.vms.iter();
            groups.extend(machines.filter_map(|one| one.build_target(&self.settings)));
            pages.set_next(Some(page.next_page_token));
        }
        Ok(groups)
    }
}

impl OutscaleVm {
    /// Builds the target of a machine. Returns `None` if the machine has no IP address.
    fn build_target(&self, settings: &OutscaleSettings) -> Option<TargetGroup> {
        let address = [&self.private_ip, &self.public_ip]
            .into_iter()
            .find(|ip| !ip.is_empty())?;
        let mut meta = MetaLabels::new("outscale_vm");
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
        Some(meta.into_target(join_host_port(address, settings.port)))
    }
}

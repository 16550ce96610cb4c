//! Discovery of the monitoring assignments (MADS) of a Kuma control plane, over the REST variant of
//! xDS.
//!
//! ```text
//! version, nonce -> POST -> assignments, new version and nonce | 304: the list is unchanged
//! ```
//!
//! The server delays its response until there are changes or the fetch timeout elapses. The
//! behaviour follows upstream's `discovery/xds`, the xDS protocol and Kuma's
//! `kuma.observability.v1`.

use crate::api::{ApiClient, invalid_response_error};
use crate::discover::Refresh;
use crate::group::TargetGroup;
use crate::json::answers;
use crate::meta::MetaLabels;
use crate::provider::{
    DiscoveryMechanism, DiscoveryProvider, DiscoverySettings, DiscoveryStarter, DiscoveryTask,
    ReadResult,
};
use crate::section_values::{has_scheme_and_host, refresh_interval};
use firn_config_schema::read;
use firn_config_schema::schema::{ConfigKey, ConfigValueShape as Shape, key};
use firn_http_client::http_config::{HTTP_CLIENT, http};
use firn_http_client::{HttpSettings, form_encode};
use firn_model::error::Error;
use firn_model::units::format_duration;
use firn_yaml::YamlNode;
use hyper::StatusCode;
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// Resource type that is requested, and that each resource in a response must have.
const TYPE_URL: &str = "type.googleapis.com/kuma.observability.v1.MonitoringAssignment";

/// Additional time for the response, beyond the fetch timeout.
const SLACK: Duration = Duration::from_secs(15);

/// Client id that is used if the host name is not available.
const CLIENT: &str = "firn";

/// File with the host name of this machine.
const HOST_NAME: &str = "/proc/sys/kernel/hostname";

/// Upstream's default for `fetch_timeout`.
const FETCH_TIMEOUT: Duration = Duration::from_secs(120);

/// The provider of `kuma_sd_configs`.
pub(super) const PROVIDER: DiscoveryProvider = DiscoveryProvider::new(
    "kuma_sd_configs",
    &Shape::Section(&[KEYS, HTTP_CLIENT]),
    read_entry,
);

const KEYS: &[ConfigKey] = &[
    key("refresh_interval", Shape::Duration),
    key("fetch_timeout", Shape::Duration),
    key("server", Shape::Text),
    key("client_id", Shape::Text),
];

/// An entry of `kuma_sd_configs`: the control plane whose monitoring assignments are discovered.
#[derive(Clone, Debug, PartialEq)]
pub struct KumaSettings {
    /// The `server` key: base URL of the control plane.
    pub server: String,
    /// The `client_id` key; empty for the host name of this machine.
    pub client_id: String,
    /// The `fetch_timeout` key: how long the server may delay a response.
    pub fetch_timeout: Duration,
    /// The `refresh_interval` key: time between two requests.
    pub refresh: Duration,
    /// Settings of the HTTP client that calls the server: credentials, TLS, proxies and redirects.
    pub client: HttpSettings,
}

impl DiscoveryMechanism for KumaSettings {
    fn mechanism(&self) -> &'static str {
        "kuma"
    }

    fn start(&self, starter: &DiscoveryStarter) -> DiscoveryTask {
        starter.refresh(KumaDiscovery::new(self, starter.bytes_max))
    }
}

/// Reads an entry of `kuma_sd_configs`, whose server must be a URL with scheme and host.
fn read_entry(node: &YamlNode, dir: &Path) -> ReadResult {
    let server = read::string(node, "server");
    if server.is_empty() {
        return Err(node.error("kuma SD server must not be empty: "));
    }
    if !has_scheme_and_host(node, &server)? {
        return Err(node.error(format!(
            "kuma SD server must not be empty and have a scheme: {server}"
        )));
    }
    Ok(DiscoverySettings::provided(KumaSettings {
        server,
        client_id: read::string(node, "client_id"),
        fetch_timeout: read::duration(node, "fetch_timeout").unwrap_or(FETCH_TIMEOUT),
        refresh: refresh_interval(node, 15),
        client: http(node, dir)?,
    }))
}

/// Discovery of the targets in a Kuma control plane; keeps the version and nonce of the last
/// response.
#[derive(Debug)]
pub(super) struct KumaDiscovery {
    settings: KumaSettings,
    api: ApiClient,
    url: String,
    version: String,
    nonce: String,
    /// Targets of the last response with changes.
    last: Vec<TargetGroup>,
}

answers! {
    struct KumaResponse {
        #[serde(rename = "versionInfo", alias = "version_info")]
        version: String,
        nonce: String,
        #[serde(rename = "typeUrl", alias = "type_url")]
        type_url: String,
        resources: Vec<KumaAssignment>,
    }

    struct KumaAssignment {
        #[serde(rename = "@type")]
        type_url: String,
        mesh: String,
        service: String,
        targets: Vec<KumaTarget>,
        labels: BTreeMap<String, String>,
    }

    struct KumaTarget {
        name: String,
        scheme: String,
        address: String,
        #[serde(rename = "metricsPath", alias = "metrics_path")]
        metrics_path: String,
        labels: BTreeMap<String, String>,
    }
}

impl KumaDiscovery {
    pub(super) fn new(settings: &KumaSettings, bytes_max: u64) -> Self {
        let held = form_encode(&format_duration(settings.fetch_timeout));
        let server = settings.server.trim_end_matches('/');
        Self {
            api: ApiClient::new(&settings.client, bytes_max),
            url: format!("{server}/v3/discovery:monitoringassignments?fetch-timeout={held}"),
            settings: settings.clone(),
            version: String::new(),
            nonce: String::new(),
            last: Vec::new(),
        }
    }

    async fn build_request(&self) -> String {
        let id = match self.settings.client_id.as_str() {
            "" => read_host_name().await,
            id => id.to_owned(),
        };
        let mut request = Map::new();
        for (name, value) in [
            ("version_info", self.version.as_str()),
            ("type_url", TYPE_URL),
            ("response_nonce", &self.nonce),
        ] {
            if !value.is_empty() {
                request.insert(name.to_owned(), value.into());
            }
        }
        request.insert("node".into(), json!({ "id": id }));
        Value::Object(request).to_string()
    }
}

async fn read_host_name() -> String {
    let name = tokio::fs::read_to_string(HOST_NAME).await;
    match name.as_deref().map(str::trim) {
        Ok(name) if !name.is_empty() => name.to_owned(),
        _ => CLIENT.to_owned(),
    }
}

impl Refresh for KumaDiscovery {
    fn interval(&self) -> Duration {
        self.settings.refresh
    }

    fn deadline(&self) -> Duration {
        self.settings.fetch_timeout + SLACK
    }

    fn name(&self) -> String {
        self.url.clone()
    }

    async fn refresh(&mut self) -> Result<Vec<TargetGroup>, Error> {
        let json = HeaderValue::from_static("application/json");
        let headers = HeaderMap::from_iter([(CONTENT_TYPE, json.clone()), (ACCEPT, json)]);
        let body = self.build_request().await;
        let answer = self.api.post(&self.url, &headers, body.into()).await?;
        match answer.status {
            StatusCode::NOT_MODIFIED => return Ok(self.last.clone()),
            StatusCode::OK => {}
            status => {
                return Err(invalid_response_error(format!(
                    "non 200 status '{}' response during xDS fetch",
                    status.as_u16()
                )));
            }
        }
        let answer: KumaResponse = answer.decode_json().await?;
        self.version.clone_from(&answer.version);
        self.nonce.clone_from(&answer.nonce);
        let assignments = answer.resources.iter().map(|one| &one.type_url);
        for type_url in assignments.chain([&answer.type_url]) {
            if type_url != TYPE_URL {
                return Err(invalid_response_error(format!(
                    "received invalid typeURL for Kuma MADS v1 Resource: {type_url}"
                )));
            }
        }
        let assignments = answer.resources.iter();
        self.last = assignments
            .flat_map(KumaAssignment::build_targets)
            .collect();
        Ok(self.last.clone())
    }
}

impl KumaAssignment {
    fn build_targets(&self) -> impl Iterator<Item = TargetGroup> {
        self.targets.iter().map(|target| {
            let mut meta = MetaLabels::new("kuma");
            meta.set_each("label_", &target.labels);
            meta.set_each("label_", &self.labels);
            meta.set("mesh", &self.mesh);
            meta.set("service", &self.service);
            meta.set("dataplane", &target.name);
            meta.set_instance(&target.name);
            meta.set_reserved("__scheme__", &target.scheme);
            meta.set_reserved("__metrics_path__", &target.metrics_path);
            meta.into_target(&target.address)
        })
    }
}

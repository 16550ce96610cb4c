//! Targets from Kuma: what its control plane says should be monitored (MADS), over xDS's REST.
//!
//! ```text
//! version, nonce -> POST -> assignments, version, nonce | 304: the list stays
//! ```
//!
//! The server holds a request until there is news or the fetch's time is over. Facts are from
//! upstream's `discovery/xds`, from xDS's protocol and from Kuma's `kuma.observability.v1`.

use super::api::{Api, wrong};
use super::discover::Refresh;
use super::group::Group;
use super::json::answers;
use super::meta::Meta;
use firn_http_client::{HttpSettings, form_encode};
use firn_model::error::Error;
use firn_model::units::format_duration;
use hyper::StatusCode;
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// What is asked for.
const TYPE_URL: &str = "type.googleapis.com/kuma.observability.v1.MonitoringAssignment";

/// How much longer than the server may hold a request it may take.
const SLACK: Duration = Duration::from_secs(15);

/// By what a server knows us if this machine has no name.
const CLIENT: &str = "firn";

/// Where the kernel tells the name of this machine.
const HOST_NAME: &str = "/proc/sys/kernel/hostname";

/// One of `kuma_sd_configs`
#[derive(Clone, Debug, PartialEq)]
pub struct KumaSettings {
    /// `server`: a URL.
    pub server: String,
    /// `client_id`; empty for the name of this machine.
    pub client_id: String,
    /// `fetch_timeout`
    pub fetch_timeout: Duration,
    /// `refresh_interval`
    pub refresh: Duration,
    /// How the server is reached.
    pub client: HttpSettings,
}

/// Asks a Kuma.
#[derive(Debug)]
pub(super) struct Assignments {
    settings: KumaSettings,
    api: Api,
    url: String,
    version: String,
    nonce: String,
    /// The newest list.
    last: Vec<Group>,
}

answers! {
    struct Answer {
        #[serde(rename = "versionInfo", alias = "version_info")]
        version: String,
        nonce: String,
        #[serde(rename = "typeUrl", alias = "type_url")]
        type_url: String,
        resources: Vec<Assignment>,
    }

    struct Assignment {
        #[serde(rename = "@type")]
        type_url: String,
        mesh: String,
        service: String,
        targets: Vec<Target>,
        labels: BTreeMap<String, String>,
    }

    struct Target {
        name: String,
        scheme: String,
        address: String,
        #[serde(rename = "metricsPath", alias = "metrics_path")]
        metrics_path: String,
        labels: BTreeMap<String, String>,
    }
}

impl Assignments {
    pub(super) fn new(settings: &KumaSettings, bytes_max: u64) -> Self {
        let held = form_encode(&format_duration(settings.fetch_timeout));
        let server = settings.server.trim_end_matches('/');
        Self {
            api: Api::new(&settings.client, bytes_max),
            url: format!("{server}/v3/discovery:monitoringassignments?fetch-timeout={held}"),
            settings: settings.clone(),
            version: String::new(),
            nonce: String::new(),
            last: Vec::new(),
        }
    }

    async fn request(&self) -> String {
        let id = match self.settings.client_id.as_str() {
            "" => host_name().await,
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

async fn host_name() -> String {
    let name = tokio::fs::read_to_string(HOST_NAME).await;
    match name.as_deref().map(str::trim) {
        Ok(name) if !name.is_empty() => name.to_owned(),
        _ => CLIENT.to_owned(),
    }
}

impl Refresh for Assignments {
    fn interval(&self) -> Duration {
        self.settings.refresh
    }

    fn deadline(&self) -> Duration {
        self.settings.fetch_timeout + SLACK
    }

    fn name(&self) -> String {
        self.url.clone()
    }

    async fn refresh(&mut self) -> Result<Vec<Group>, Error> {
        let json = HeaderValue::from_static("application/json");
        let headers = HeaderMap::from_iter([(CONTENT_TYPE, json.clone()), (ACCEPT, json)]);
        let body = self.request().await;
        let answer = self.api.post(&self.url, &headers, body.into()).await?;
        match answer.status {
            StatusCode::NOT_MODIFIED => return Ok(self.last.clone()),
            StatusCode::OK => {}
            status => {
                return Err(wrong(format!(
                    "non 200 status '{}' response during xDS fetch",
                    status.as_u16()
                )));
            }
        }
        let answer: Answer = answer.json().await?;
        self.version.clone_from(&answer.version);
        self.nonce.clone_from(&answer.nonce);
        let assignments = answer.resources.iter().map(|one| &one.type_url);
        for type_url in assignments.chain([&answer.type_url]) {
            if type_url != TYPE_URL {
                return Err(wrong(format!(
                    "received invalid typeURL for Kuma MADS v1 Resource: {type_url}"
                )));
            }
        }
        let assignments = answer.resources.iter();
        self.last = assignments.flat_map(Assignment::targets).collect();
        Ok(self.last.clone())
    }
}

impl Assignment {
    fn targets(&self) -> impl Iterator<Item = Group> {
        self.targets.iter().map(|target| {
            let mut meta = Meta::new("kuma");
            meta.set_each("label_", &target.labels);
            meta.set_each("label_", &self.labels);
            meta.set("mesh", &self.mesh);
            meta.set("service", &self.service);
            meta.set("dataplane", &target.name);
            meta.set_instance(&target.name);
            meta.set_reserved("__scheme__", &target.scheme);
            meta.set_reserved("__metrics_path__", &target.metrics_path);
            meta.at(&target.address)
        })
    }
}

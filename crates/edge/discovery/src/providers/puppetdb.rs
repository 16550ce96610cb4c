//! Discovery of the resources that a PuppetDB query returns.
//!
//! The behaviour follows upstream's `discovery/puppetdb` and PuppetDB's query API.

use super::http::is_json;
use crate::api::{ApiClient, invalid_response_error};
use crate::discover::Refresh;
use crate::group::TargetGroup;
use crate::json::answers;
use crate::meta::{MetaLabels, join_host_port, sanitize};
use crate::provider::{
    DiscoveryMechanism, DiscoveryProvider, DiscoverySettings, DiscoveryStarter, DiscoveryTask,
    ReadResult,
};
use crate::section_values::{check_http_url, refresh_interval, require};
use firn_config_schema::read;
use firn_config_schema::schema::{ConfigKey, ConfigValueShape as Shape, key};
use firn_http_client::HttpSettings;
use firn_http_client::http_config::{HTTP_CLIENT, http};
use firn_model::error::Error;
use firn_model::go_float::format_shortest;
use firn_yaml::YamlNode;
use hyper::StatusCode;
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// Maximum nesting depth of parameters that become labels.
const DEPTH_MAX: usize = 32;

/// The provider of `puppetdb_sd_configs`.
pub(super) const PROVIDER: DiscoveryProvider = DiscoveryProvider::new(
    "puppetdb_sd_configs",
    &Shape::Section(&[KEYS, HTTP_CLIENT]),
    read_entry,
);

const KEYS: &[ConfigKey] = &[
    key("refresh_interval", Shape::Duration),
    key("url", Shape::Url),
    key("query", Shape::Text),
    key("include_parameters", Shape::Bool),
    key("port", Shape::Integer),
];

/// An entry of `puppetdb_sd_configs`: the PuppetDB server and the query that returns targets.
#[derive(Clone, Debug, PartialEq)]
pub struct PuppetDbSettings {
    /// The `url` key: base URL of the PuppetDB server.
    pub url: String,
    /// The `query` key: query in the Puppet Query Language (PQL) that returns resources.
    pub query: String,
    /// The `include_parameters` key: add the parameters of resources as labels, which can contain
    /// secrets.
    pub include_parameters: bool,
    /// The `port` key: port in the addresses of all targets, which relabelling can replace.
    pub port: i64,
    /// The `refresh_interval` key: time between two queries.
    pub refresh: Duration,
    /// Settings of the HTTP client that calls the server: credentials, TLS, proxies and redirects.
    pub client: HttpSettings,
}

impl DiscoveryMechanism for PuppetDbSettings {
    fn mechanism(&self) -> &'static str {
        "puppetdb"
    }

    fn start(&self, starter: &DiscoveryStarter) -> DiscoveryTask {
        starter.refresh(PuppetDbDiscovery::new(self, starter.bytes_max))
    }
}

/// Reads an entry of `puppetdb_sd_configs`, which needs an HTTP URL and a query.
fn read_entry(node: &YamlNode, dir: &Path) -> ReadResult {
    check_http_url(node, read::text(node, "url").unwrap_or_default())?;
    require(node, &[("query", "query missing")])?;
    Ok(DiscoverySettings::provided(PuppetDbSettings {
        url: read::string(node, "url"),
        query: read::string(node, "query"),
        include_parameters: read::flag_or(node, "include_parameters", false),
        port: read::integer_or(node, "port", 80),
        refresh: refresh_interval(node, 60),
        client: http(node, dir)?,
    }))
}

/// Discovery of PuppetDB resources; each refresh sends one query.
#[derive(Debug)]
pub(super) struct PuppetDbDiscovery {
    settings: PuppetDbSettings,
    api: ApiClient,
    url: String,
}

answers! {
    struct PuppetDbResource {
        certname: String,
        resource: String,
        #[serde(rename = "type")]
        kind: String,
        title: String,
        exported: bool,
        tags: Vec<String>,
        file: String,
        environment: String,
        parameters: Map<String, Value>,
    }
}

impl PuppetDbDiscovery {
    pub(super) fn new(settings: &PuppetDbSettings, bytes_max: u64) -> Self {
        Self {
            api: ApiClient::new(&settings.client, bytes_max),
            url: format!("{}/pdb/query/v4", settings.url.trim_end_matches('/')),
            settings: settings.clone(),
        }
    }
}

impl Refresh for PuppetDbDiscovery {
    fn interval(&self) -> Duration {
        self.settings.refresh
    }

    fn name(&self) -> String {
        self.url.clone()
    }

    async fn refresh(&mut self) -> Result<Vec<TargetGroup>, Error> {
        let json = HeaderValue::from_static("application/json");
        let headers = HeaderMap::from_iter([(ACCEPT, json.clone()), (CONTENT_TYPE, json)]);
        let body = json!({"query": self.settings.query}).to_string();
        let answer = self.api.post(&self.url, &headers, body.into()).await?;
        if answer.status != StatusCode::OK {
            let status = answer.status_text;
            return Err(invalid_response_error(format!(
                "server returned HTTP status {status}"
            )));
        }
        let kind = &answer.body.content_type;
        if !is_json(kind) {
            return Err(invalid_response_error(format!(
                "unsupported content type {kind}"
            )));
        }
        let resources: Vec<PuppetDbResource> = answer.decode_json().await?;
        let resources = resources.iter();
        Ok(resources
            .map(|one| one.build_target(&self.settings))
            .collect())
    }
}

impl PuppetDbResource {
    fn build_target(&self, settings: &PuppetDbSettings) -> TargetGroup {
        let mut meta = MetaLabels::new("puppetdb");
        meta.set_all([
            ("query", settings.query.as_str()),
            ("certname", &self.certname),
            ("resource", &self.resource),
            ("type", &self.kind),
            ("title", &self.title),
            ("exported", &self.exported.to_string()),
            ("file", &self.file),
            ("environment", &self.environment),
        ]);
        meta.set_list("tags", &self.tags, ",");
        if settings.include_parameters {
            for (name, value) in flatten_parameters(&self.parameters, DEPTH_MAX) {
                meta.set(&format!("parameter_{name}"), value);
            }
        }
        meta.into_target(join_host_port(&self.certname, settings.port))
    }
}

/// Converts parameters to labels. The names of nested parameters begin with those of their parents.
fn flatten_parameters(
    parameters: &Map<String, Value>,
    depth_left: usize,
) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::new();
    for (name, value) in parameters {
        let text = match value {
            Value::Object(inner) => {
                if let Some(left) = depth_left.checked_sub(1) {
                    let inner = flatten_parameters(inner, left).into_iter();
                    let outer = sanitize(&format!("{name}_"));
                    labels.extend(inner.map(|(name, value)| (format!("{outer}{name}"), value)));
                }
                continue;
            }
            Value::Array(values) => {
                let texts: Vec<String> = values.iter().map(value_text).collect();
                texts.join(",")
            }
            value => value_text(value),
        };
        if !text.is_empty() {
            labels.insert(sanitize(name), text);
        }
    }
    labels
}

/// Converts a value to text; empty for null, lists and maps.
fn value_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Bool(flag) => flag.to_string(),
        Value::Number(number) => number.as_f64().map_or(String::new(), format_shortest),
        _ => String::new(),
    }
}

//! Discovery of the task ports of Marathon apps.
//!
//! The behaviour follows upstream's `discovery/marathon` and Marathon's REST API.

use crate::api::{ApiClient, invalid_response_error, parse_header_value};
use crate::discover::Refresh;
use crate::group::TargetGroup;
use crate::json::answers;
use crate::meta::{MetaLabels, join_host_port};
use crate::provider::{
    DiscoveryMechanism, DiscoveryProvider, DiscoverySettings, DiscoveryStarter, DiscoveryTask,
    ReadResult,
};
use crate::section_values::{refresh_interval, require_list, secret};
use firn_config_schema::read::{self, is_set};
use firn_config_schema::schema::{ConfigKey, ConfigValueShape as Shape, TEXTS, key};
use firn_http_client::http_config::{HTTP_CLIENT, http};
use firn_http_client::{HttpSettings, Secret, reveal};
use firn_model::error::Error;
use firn_yaml::{YamlError, YamlNode};
use hyper::header::{AUTHORIZATION, HeaderMap};
use ring::rand::SystemRandom;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// The provider of `marathon_sd_configs`.
pub(super) const PROVIDER: DiscoveryProvider = DiscoveryProvider::new(
    "marathon_sd_configs",
    &Shape::Section(&[KEYS, HTTP_CLIENT]),
    read_entry,
);

const KEYS: &[ConfigKey] = &[
    key("servers", TEXTS),
    key("refresh_interval", Shape::Duration),
    key("auth_token", Shape::Secret),
    key("auth_token_file", Shape::Text),
];

/// An entry of `marathon_sd_configs`: the Marathon servers whose tasks are discovered.
#[derive(Clone, Debug, PartialEq)]
pub struct MarathonSettings {
    /// The `servers` key: base URLs of Marathon servers; each request uses a random one.
    pub servers: Vec<String>,
    /// The `auth_token` or `auth_token_file` key: token that is sent in a header of each request.
    pub token: Option<Secret>,
    /// The `refresh_interval` key: time between two refreshes, and the timeout of one.
    pub refresh: Duration,
    /// Settings of the HTTP client that calls the servers: credentials, TLS, proxies and redirects.
    pub client: HttpSettings,
}

impl DiscoveryMechanism for MarathonSettings {
    fn mechanism(&self) -> &'static str {
        "marathon"
    }

    fn start(&self, starter: &DiscoveryStarter) -> DiscoveryTask {
        starter.refresh(MarathonDiscovery::new(self, starter.bytes_max))
    }
}

/// Reads an entry of `marathon_sd_configs`, which needs a server and allows one kind of token.
fn read_entry(node: &YamlNode, dir: &Path) -> ReadResult {
    let missing = "marathon_sd: must contain at least one Marathon server";
    require_list(node, "servers", missing.into())?;
    check_tokens(node)?;
    Ok(DiscoverySettings::provided(MarathonSettings {
        servers: read::texts(node, "servers").unwrap_or_default(),
        token: secret(node, "auth_token", dir),
        refresh: refresh_interval(node, 30),
        client: http(node, dir)?,
    }))
}

fn check_tokens(node: &YamlNode) -> Result<(), YamlError> {
    let has = |key: &str| node.get(key).is_some_and(|section| !section.is_null());
    let has_token = is_set(node, "auth_token");
    let has_file = is_set(node, "auth_token_file");
    let message = if has_token && has_file {
        "marathon_sd: at most one of auth_token & auth_token_file must be configured"
    } else if !has_token && !has_file {
        return Ok(());
    } else if has("basic_auth") {
        "marathon_sd: at most one of basic_auth, auth_token & auth_token_file must be configured"
    } else if is_set(node, "bearer_token") || is_set(node, "bearer_token_file") {
        "marathon_sd: at most one of bearer_token, bearer_token_file, auth_token & \
         auth_token_file must be configured"
    } else if has("authorization") {
        "marathon_sd: at most one of auth_token, auth_token_file & authorization must be configured"
    } else {
        return Ok(());
    };
    Err(node.error(message))
}

/// Discovery of Marathon apps; each refresh reads all apps with their tasks.
#[derive(Debug)]
pub(super) struct MarathonDiscovery {
    settings: MarathonSettings,
    api: ApiClient,
}

answers! {
    struct MarathonAppList {
        apps: Vec<MarathonApp>,
    }

    #[serde(rename_all = "camelCase")]
    struct MarathonApp {
        id: String,
        tasks: Vec<MarathonTask>,
        labels: BTreeMap<String, String>,
        container: MarathonContainer,
        port_definitions: Vec<MarathonPortDefinition>,
        networks: Vec<MarathonNetwork>,
        require_ports: bool,
    }

    #[serde(rename_all = "camelCase")]
    struct MarathonTask {
        id: String,
        host: String,
        ports: Vec<u32>,
        ip_addresses: Vec<MarathonIpAddress>,
    }

    #[serde(rename_all = "camelCase")]
    struct MarathonIpAddress {
        ip_address: String,
    }

    #[serde(rename_all = "camelCase")]
    struct MarathonContainer {
        docker: MarathonDocker,
        port_mappings: Vec<MarathonPortMapping>,
    }

    #[serde(rename_all = "camelCase")]
    struct MarathonDocker {
        image: String,
        port_mappings: Vec<MarathonPortMapping>,
    }

    #[serde(rename_all = "camelCase")]
    struct MarathonPortMapping {
        labels: BTreeMap<String, String>,
        container_port: u32,
        host_port: u32,
    }

    struct MarathonPortDefinition {
        labels: BTreeMap<String, String>,
        port: u32,
    }

    struct MarathonNetwork {
        mode: String,
    }
}

/// A port of an app with its labels. The number is zero if each task has a port of its own.
struct MarathonPort<'a> {
    number: u32,
    labels: Option<&'a BTreeMap<String, String>>,
}

impl MarathonDiscovery {
    pub(super) fn new(settings: &MarathonSettings, bytes_max: u64) -> Self {
        Self {
            api: ApiClient::new(&settings.client, bytes_max),
            settings: settings.clone(),
        }
    }

    /// Returns a random server URL from the settings, which spreads requests over the servers.
    fn pick_server(&self) -> Result<&str, Error> {
        let random = ring::rand::generate::<[u8; 8]>(&SystemRandom::new());
        let random = random
            .map_err(|_| invalid_response_error("no randomness"))?
            .expose();
        let servers = &self.settings.servers;
        let index = u64::from_be_bytes(random).checked_rem(servers.len() as u64);
        let server = index.and_then(|index| servers.get(index as usize));
        server
            .map(String::as_str)
            .ok_or_else(|| invalid_response_error("no server"))
    }
}

impl Refresh for MarathonDiscovery {
    fn interval(&self) -> Duration {
        self.settings.refresh
    }

    fn name(&self) -> String {
        self.settings.servers.join(",")
    }

    async fn refresh(&mut self) -> Result<Vec<TargetGroup>, Error> {
        let mut headers = HeaderMap::new();
        if let Some(token) = &self.settings.token {
            let token = reveal(token, "auth token").await?;
            headers.insert(
                AUTHORIZATION,
                parse_header_value(&format!("token={token}"))?,
            );
        }
        let url = format!("{}/v2/apps/?embed=apps.tasks", self.pick_server()?);
        let answer = self.api.get(&url, &headers).await?;
        if !answer.status.is_success() {
            return Err(invalid_response_error(format!(
                "non 2xx status '{}' response during marathon service discovery",
                answer.status.as_u16()
            )));
        }
        let list: MarathonAppList = answer.decode_json().await?;
        // If two apps have the same id, the later one takes effect, as in upstream.
        let apps: BTreeMap<&str, &MarathonApp> =
            list.apps.iter().map(|app| (app.id.as_str(), app)).collect();
        Ok(apps
            .into_values()
            .flat_map(MarathonApp::build_targets)
            .collect())
    }
}

impl MarathonApp {
    fn build_targets(&self) -> Vec<TargetGroup> {
        let mut common = MetaLabels::new("marathon");
        common.set("app", &self.id);
        common.set("image", &self.container.docker.image);
        common.set_each("app_label_", &self.labels);
        let is_in_container = self.networks.first().is_some_and(|n| n.mode == "container");
        let (prefix, mut ports) = self.list_ports(is_in_container);
        let mut targets = Vec::new();
        for task in &self.tasks {
            if ports.is_empty() {
                ports = task
                    .ports
                    .iter()
                    .map(|number| MarathonPort::without_labels(*number))
                    .collect();
            }
            let has_own = task.ports.len() == ports.len();
            for (index, port) in ports.iter().enumerate() {
                let number = match (port.number, task.ports.get(index)) {
                    (0, Some(own)) if has_own => *own,
                    (number, _) => number,
                };
                let mut meta = common.clone();
                meta.set("task", &task.id);
                meta.set("port_index", index.to_string());
                if let Some(labels) = port.labels {
                    meta.set_each(prefix, labels);
                }
                let host = match task.ip_addresses.first() {
                    Some(own) if is_in_container => &own.ip_address,
                    _ => &task.host,
                };
                targets.push(meta.into_target(join_host_port(host, number)));
            }
        }
        targets
    }

    /// Returns the ports that an app defines, with the prefix of their label names.
    fn list_ports(&self, is_in_container: bool) -> (&'static str, Vec<MarathonPort<'_>>) {
        let of_mapping = |mapping: &MarathonPortMapping| {
            if is_in_container {
                mapping.container_port
            } else {
                mapping.host_port
            }
        };
        let container = &self.container;
        // Before Marathon 1.5, port mappings were part of the Docker settings.
        let mappings = if container.port_mappings.is_empty() {
            &container.docker.port_mappings
        } else {
            &container.port_mappings
        };
        if !mappings.is_empty() {
            let ports = mappings.iter().map(|mapping| MarathonPort {
                number: of_mapping(mapping),
                labels: Some(&mapping.labels),
            });
            return ("port_mapping_label_", ports.collect());
        }
        let ports = self.port_definitions.iter().map(|definition| MarathonPort {
            // Without `require_ports`, the number is the port of the service, not of a task.
            number: if self.require_ports {
                definition.port
            } else {
                0
            },
            labels: Some(&definition.labels),
        });
        ("port_definition_label_", ports.collect())
    }
}

impl MarathonPort<'_> {
    fn without_labels(number: u32) -> Self {
        Self {
            number,
            labels: None,
        }
    }
}

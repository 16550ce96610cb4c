//! Discovery of application instances that are registered with a Eureka server.
//!
//! The behaviour follows upstream's `discovery/eureka` and Eureka's REST API.

use crate::api::{ApiClient, invalid_response_error};
use crate::discover::Refresh;
use crate::group::TargetGroup;
use crate::meta::{MetaLabels, join_host_port, sanitize};
use crate::provider::{
    DiscoveryMechanism, DiscoveryProvider, DiscoverySettings, DiscoveryStarter, DiscoveryTask,
    ReadResult,
};
use crate::section_values::{has_scheme_and_host, refresh_interval};
use crate::xml::{child_text, find_child, find_children, inner_source, parse};
use firn_config_schema::read;
use firn_config_schema::schema::{ConfigKey, ConfigValueShape as Shape, key};
use firn_http_client::HttpSettings;
use firn_http_client::http_config::{HTTP_CLIENT, http};
use firn_model::error::Error;
use firn_yaml::YamlNode;
use hyper::HeaderMap;
use roxmltree::Node;
use std::path::Path;
use std::time::Duration;

/// The provider of `eureka_sd_configs`.
pub(super) const PROVIDER: DiscoveryProvider = DiscoveryProvider::new(
    "eureka_sd_configs",
    &Shape::Section(&[KEYS, HTTP_CLIENT]),
    read_entry,
);

const KEYS: &[ConfigKey] = &[
    key("server", Shape::Text),
    key("refresh_interval", Shape::Duration),
];

/// An entry of `eureka_sd_configs`: the Eureka server whose registered instances are discovered.
#[derive(Clone, Debug, PartialEq)]
pub struct EurekaSettings {
    /// The `server` key: base URL of the API, including its version.
    pub server: String,
    /// The `refresh_interval` key: time between two refreshes, and the timeout of one.
    pub refresh: Duration,
    /// Settings of the HTTP client that calls the server: credentials, TLS, proxies and redirects.
    pub client: HttpSettings,
}

impl DiscoveryMechanism for EurekaSettings {
    fn mechanism(&self) -> &'static str {
        "eureka"
    }

    fn start(&self, starter: &DiscoveryStarter) -> DiscoveryTask {
        starter.refresh(EurekaDiscovery::new(self, starter.bytes_max))
    }
}

/// Reads an entry of `eureka_sd_configs`, whose server must be a URL with scheme and host.
fn read_entry(node: &YamlNode, dir: &Path) -> ReadResult {
    let server = read::string(node, "server");
    if server.is_empty() {
        return Err(node.error("eureka_sd: empty or null eureka server"));
    }
    if !has_scheme_and_host(node, &server)? {
        return Err(node.error("eureka_sd: invalid eureka server URL"));
    }
    Ok(DiscoverySettings::provided(EurekaSettings {
        server,
        refresh: refresh_interval(node, 30),
        client: http(node, dir)?,
    }))
}

/// Discovery of the applications of a Eureka server; each refresh reads all instances.
#[derive(Debug)]
pub(super) struct EurekaDiscovery {
    settings: EurekaSettings,
    api: ApiClient,
}

/// Label names, without prefix, and the XML elements whose text is their value.
const TEXTS: [(&str, &str); 9] = [
    ("hostname", "hostName"),
    ("homepage_url", "homePageUrl"),
    ("statuspage_url", "statusPageUrl"),
    ("healthcheck_url", "healthCheckUrl"),
    ("ip_addr", "ipAddr"),
    ("vip_address", "vipAddress"),
    ("secure_vip_address", "secureVipAddress"),
    ("status", "status"),
    ("id", "instanceId"),
];

impl EurekaDiscovery {
    pub(super) fn new(settings: &EurekaSettings, bytes_max: u64) -> Self {
        Self {
            api: ApiClient::new(&settings.client, bytes_max),
            settings: settings.clone(),
        }
    }
}

impl Refresh for EurekaDiscovery {
    fn interval(&self) -> Duration {
        self.settings.refresh
    }

    fn name(&self) -> String {
        self.settings.server.clone()
    }

    async fn refresh(&mut self) -> Result<Vec<TargetGroup>, Error> {
        let url = format!("{}/apps", self.settings.server);
        let answer = self.api.get(&url, &HeaderMap::new()).await?;
        if !answer.status.is_success() {
            return Err(invalid_response_error(format!(
                "non 2xx status '{}' response during eureka service discovery",
                answer.status.as_u16()
            )));
        }
        parse_targets(answer.text()?)
    }
}

fn parse_targets(answer: &str) -> Result<Vec<TargetGroup>, Error> {
    let document = parse(answer)?;
    let mut groups = Vec::new();
    for application in find_children(document.root_element(), "application") {
        let name = child_text(application, "name");
        for instance in find_children(application, "instance") {
            groups.push(build_target(name, instance)?);
        }
    }
    Ok(groups)
}

fn build_target(application: &str, instance: Node<'_, '_>) -> Result<TargetGroup, Error> {
    let mut meta = MetaLabels::new("eureka");
    meta.set("app_name", application);
    meta.set_instance(child_text(instance, "instanceId"));
    for (label, element) in TEXTS {
        meta.set(
            &format!("app_instance_{label}"),
            child_text(instance, element),
        );
    }
    let country = parse_number(child_text(instance, "countryId"))?.unwrap_or(0);
    meta.set("app_instance_country_id", country.to_string());
    let mut address = 80;
    for (label, element) in [("port", "port"), ("secure_port", "securePort")] {
        let Some(port) = find_child(instance, element) else {
            continue;
        };
        let value = parse_number(port.text().unwrap_or_default())?.unwrap_or(0);
        let is_enabled = port.attribute("enabled").unwrap_or("false");
        meta.set(&format!("app_instance_{label}"), value.to_string());
        meta.set(&format!("app_instance_{label}_enabled"), is_enabled);
        if element == "port" {
            address = value;
        }
    }
    if let Some(datacenter) = find_child(instance, "dataCenterInfo") {
        meta.set(
            "app_instance_datacenterinfo_name",
            child_text(datacenter, "name"),
        );
        set_metadata(
            &mut meta,
            "app_instance_datacenterinfo_metadata_",
            datacenter,
        );
    }
    set_metadata(&mut meta, "app_instance_metadata_", instance);
    Ok(meta.into_target(join_host_port(child_text(instance, "hostName"), address)))
}

/// Sets a label for each element in the `metadata` of `node`.
fn set_metadata(meta: &mut MetaLabels, prefix: &str, node: Node<'_, '_>) {
    let Some(metadata) = find_child(node, "metadata") else {
        return;
    };
    for entry in metadata.children().filter(Node::is_element) {
        let name = format!("{prefix}{}", sanitize(entry.tag_name().name()));
        meta.set(&name, inner_source(entry));
    }
}

/// Parses a number. Returns `None` for an empty text, and an error for any other text.
fn parse_number(text: &str) -> Result<Option<i64>, Error> {
    match text.trim() {
        "" => Ok(None),
        digits => match digits.parse() {
            Ok(number) => Ok(Some(number)),
            Err(_) => Err(invalid_response_error(format!("not a number: {digits:?}"))),
        },
    }
}

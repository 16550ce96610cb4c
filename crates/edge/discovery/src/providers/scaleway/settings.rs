//! Settings of the Scaleway discovery: keys, defaults and checks of upstream and of its library.

use crate::provider::{DiscoveryProvider, DiscoverySettings, ReadResult};
use crate::section_values::{refresh_interval, require, secret_key};
use firn_config_schema::go_url;
use firn_config_schema::read::{self, is_uuid};
use firn_config_schema::schema::{ConfigKey, ConfigValueShape as Shape, SECRET, TEXTS, key};
use firn_http_client::http_config::{HTTP_CLIENT, http};
use firn_http_client::{HttpSettings, Secret};
use firn_yaml::{YamlError, YamlNode};
use std::path::Path;
use std::time::Duration;

/// The provider of `scaleway_sd_configs`.
pub(in super::super) const PROVIDER: DiscoveryProvider = DiscoveryProvider::new(
    "scaleway_sd_configs",
    &Shape::Section(&[KEYS, HTTP_CLIENT]),
    read_entry,
);

const KEYS: &[ConfigKey] = &[
    key("project_id", Shape::Text),
    key("api_url", Shape::Text),
    key("zone", Shape::Text),
    key("access_key", Shape::Text),
    key("secret_key", Shape::Secret),
    key("secret_key_file", Shape::Text),
    key("name_filter", Shape::Text),
    key("tags_filter", TEXTS),
    key("refresh_interval", Shape::Duration),
    key("port", Shape::Integer),
    key("role", Shape::Text),
];

/// Upstream's defaults for `api_url` and `zone`.
const API: &str = "https://api.scaleway.com";
const ZONE: &str = "fr-par-1";

/// The kind of Scaleway server that is discovered, one kind per config entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScalewayRole {
    /// Instances, which are virtual machines.
    Instance,
    /// Elastic Metal servers, which are bare metal.
    Baremetal,
}

/// An entry of `scaleway_sd_configs`: the kind of server to discover, zone and credentials.
#[derive(Clone, Debug, PartialEq)]
pub struct ScalewaySettings {
    /// The `role` key: kind of server to discover.
    pub role: ScalewayRole,
    /// The `api_url` key: base URL of the Scaleway APIs.
    pub url: String,
    /// The `zone` key: zone whose servers are discovered.
    pub zone: String,
    /// The `secret_key` or `secret_key_file` key: token that is sent in a header of each request.
    pub secret_key: Secret,
    /// The `name_filter` key: name that the API filters servers by; empty for no filter.
    pub name_filter: String,
    /// The `tags_filter` key: tags that a server must have; empty for no filter.
    pub tags_filter: Vec<String>,
    /// The `port` key: port in the addresses of all targets, which relabelling can replace.
    pub port: i64,
    /// The `refresh_interval` key: time between two refreshes, and the timeout of one.
    pub refresh: Duration,
    /// Settings of the HTTP client that calls the API: credentials, TLS, proxies and redirects.
    pub client: HttpSettings,
}

/// Reads an entry of `scaleway_sd_configs`, with upstream's checks of keys, project and zone.
fn read_entry(node: &YamlNode, dir: &Path) -> ReadResult {
    let role = match read::string(node, "role").as_str() {
        "instance" | "" => ScalewayRole::Instance,
        "baremetal" => ScalewayRole::Baremetal,
        role => return Err(node.error(format!("unknown role {role:?}"))),
    };
    require(
        node,
        &[
            ("role", "role missing (one of: instance, baremetal)"),
            ("project_id", "project_id is mandatory"),
        ],
    )?;
    let secret_key = secret_key(node, dir)?;
    require(node, &[("access_key", "access_key is mandatory")])?;
    check_client(node)?;
    Ok(DiscoverySettings::provided(ScalewaySettings {
        role,
        url: read::string_or(node, "api_url", API),
        zone: read::string_or(node, "zone", ZONE),
        secret_key,
        name_filter: read::string(node, "name_filter"),
        tags_filter: read::texts(node, "tags_filter").unwrap_or_default(),
        port: read::integer_or(node, "port", 80),
        refresh: refresh_interval(node, 60),
        client: http(node, dir)?,
    }))
}

/// Validates keys, project and zone like the client library of Scaleway, with its errors.
fn check_client(node: &YamlNode) -> Result<(), YamlError> {
    let wrong = |what: String| Err(node.error(format!("scaleway-sdk-go: {what}")));
    let uuid = "expected a UUID: xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";
    let key = read::string(node, "access_key");
    let is_code = |text: &str| {
        let is_code = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit();
        text.len() == 17 && text.chars().all(is_code)
    };
    if !key.strip_prefix("SCW").is_some_and(is_code) {
        return wrong(format!(
            "invalid access key format '{key}', expected SCWXXXXXXXXXXXXXXXXX format"
        ));
    }
    let secret = read::string(node, "secret_key");
    if !secret.is_empty() && !is_uuid(&secret) {
        return wrong(format!("invalid secret key format '{SECRET}', {uuid}"));
    }
    let project = read::string(node, "project_id");
    if !is_uuid(&project) {
        return wrong(format!("invalid project ID format '{project}', {uuid}"));
    }
    let zone = read::string_or(node, "zone", ZONE);
    if zone.is_empty() {
        return wrong("default zone cannot be empty".into());
    }
    if !is_zone(&zone) {
        return wrong(format!("invalid default zone format '{zone}'"));
    }
    let url = read::string_or(node, "api_url", API);
    if url.is_empty() || go_url::parse(&url).is_err() {
        return wrong(format!("invalid API url '{url}'"));
    }
    if url.ends_with('/') {
        return wrong(format!(
            "invalid API url '{url}' it should not have a trailing slash"
        ));
    }
    Ok(())
}

/// Returns whether a text has the form of a zone, like `fr-par-1`.
fn is_zone(zone: &str) -> bool {
    let parts: Vec<&str> = zone.split('-').collect();
    let is = |text: &str, lengths: std::ops::RangeInclusive<usize>, kind: fn(&u8) -> bool| {
        lengths.contains(&text.len()) && text.as_bytes().iter().all(kind)
    };
    let [country, city, number] = parts[..] else {
        return false;
    };
    is(country, 2..=2, u8::is_ascii_lowercase)
        && is(city, 3..=7, u8::is_ascii_lowercase)
        && is(number, 1..=2, u8::is_ascii_digit)
}

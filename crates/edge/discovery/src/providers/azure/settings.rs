//! Settings of the Azure discovery: keys, defaults and checks of upstream.

use super::identity::AzureIdentity;
use crate::provider::{DiscoveryProvider, DiscoverySettings, ReadResult};
use crate::section_values::{inline_secret, refresh_interval};
use firn_config_schema::read::{self, is_set};
use firn_config_schema::schema::{ConfigKey, ConfigValueShape as Shape, key};
use firn_http_client::HttpSettings;
use firn_http_client::http_config::{HTTP_CLIENT, http};
use firn_yaml::YamlNode;
use std::path::Path;
use std::time::Duration;

/// The provider of `azure_sd_configs`.
pub(in super::super) const PROVIDER: DiscoveryProvider = DiscoveryProvider::new(
    "azure_sd_configs",
    &Shape::Section(&[KEYS, HTTP_CLIENT]),
    read_entry,
);

const KEYS: &[ConfigKey] = &[
    key("environment", Shape::Text),
    key("port", Shape::Integer),
    key("subscription_id", Shape::Text),
    key("tenant_id", Shape::Text),
    key("client_id", Shape::Text),
    key("client_secret", Shape::Secret),
    key("refresh_interval", Shape::Duration),
    key("authentication_method", Shape::Text),
    key("resource_group", Shape::Text),
];

/// An entry of `azure_sd_configs`: the subscription whose virtual machines are discovered, and
/// credentials.
#[derive(Clone, Debug, PartialEq)]
pub struct AzureSettings {
    /// The `environment` key: name of the Azure cloud, such as `AzurePublicCloud`.
    pub environment: String,
    /// The `subscription_id` key: subscription whose machines are discovered.
    pub subscription: String,
    /// The `tenant_id` key: directory (tenant) of the subscription, also a label.
    pub tenant: String,
    /// The `authentication_method` key with its credentials, as an identity that requests tokens.
    pub identity: AzureIdentity,
    /// The `resource_group` key: resource group to discover; empty for all groups of the
    /// subscription.
    pub resource_group: String,
    /// The `port` key: port in the addresses of all targets, which relabelling can replace.
    pub port: i64,
    /// The `refresh_interval` key: time between two refreshes, and the timeout of one.
    pub refresh: Duration,
    /// Settings of the HTTP client that calls the APIs: credentials, TLS, proxies and redirects.
    pub client: HttpSettings,
}

/// Reads an entry of `azure_sd_configs`. The required keys depend on the authentication method.
fn read_entry(node: &YamlNode, dir: &Path) -> ReadResult {
    let method = read::string_or(node, "authentication_method", "OAuth");
    let oauth: &[&str] = match method.as_str() {
        "OAuth" => &["tenant_id", "client_id", "client_secret"],
        _ => &[],
    };
    for key in ["subscription_id"].iter().chain(oauth) {
        if !is_set(node, key) {
            return Err(node.error(format!("azure SD configuration requires a {key}")));
        }
    }
    let methods = ["OAuth", "ManagedIdentity", "SDK", "WorkloadIdentity"];
    if !methods.contains(&method.as_str()) {
        let [a, b, c, d] = methods;
        return Err(node.error(format!(
            "unknown authentication_type {method:?}. Supported types are {a:?}, {b:?}, {c:?} or \
             {d:?}"
        )));
    }
    let of = |key: &str| read::string(node, key);
    let (tenant, client) = (of("tenant_id"), of("client_id"));
    let identity = match method.as_str() {
        "ManagedIdentity" => AzureIdentity::Managed { client },
        "SDK" => AzureIdentity::Sdk {
            tenant: tenant.clone(),
        },
        // The identity's ids are read from the environment, not from the section.
        "WorkloadIdentity" => AzureIdentity::Workload {
            tenant: String::new(),
            client: String::new(),
            file: None,
        },
        _ => AzureIdentity::Secret {
            tenant: tenant.clone(),
            client,
            secret: inline_secret(node, "client_secret"),
        },
    };
    Ok(DiscoverySettings::provided(AzureSettings {
        environment: read::string_or(node, "environment", "AzurePublicCloud"),
        subscription: of("subscription_id"),
        tenant,
        identity,
        resource_group: of("resource_group"),
        port: read::integer_or(node, "port", 80),
        refresh: refresh_interval(node, 300),
        client: http(node, dir)?,
    }))
}

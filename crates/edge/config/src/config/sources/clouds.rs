//! Readers of discoveries that list the machines of clouds: keys, defaults and checks.

use super::values::{has_interval, inline_secret, refresh, require, secret};
use crate::config::go_url;
use crate::config::http::{http, tls};
use crate::config::read::{self, is_set};
use crate::config::schema::SECRET;
use crate::config::signing::is_uuid;
use firn_discovery::{
    AzureIdentity, AzureSettings, DiscoverySettings, GceSettings, IonosSettings, LinodeSettings,
    OciSettings, OpenStackCredentials, OpenStackRole, OpenStackSettings, OutscaleSettings,
    OvhService, OvhSettings, ScalewayRole, ScalewaySettings, StackitSettings, VultrSettings,
};
use firn_http_client::{HttpSettings, Secret};
use firn_yaml::{YamlError, YamlNode};
use std::path::{Path, PathBuf};

/// Upstream's defaults for `api_url` and `zone` of Scaleway.
const SCALEWAY: &str = "https://api.scaleway.com";
const ZONE: &str = "fr-par-1";

type Read = Result<DiscoverySettings, YamlError>;

/// Reads an entry of `azure_sd_configs`. The required keys depend on the authentication method.
pub fn azure(node: &YamlNode, dir: &Path) -> Read {
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
    Ok(DiscoverySettings::Azure(Box::new(AzureSettings {
        environment: read::string_or(node, "environment", "AzurePublicCloud"),
        subscription: of("subscription_id"),
        tenant,
        identity,
        resource_group: of("resource_group"),
        port: read::integer_or(node, "port", 80),
        refresh: refresh(node, 300),
        client: http(node, dir)?,
    })))
}

/// Reads an entry of `gce_sd_configs`, which needs a project and a zone.
pub fn gce(node: &YamlNode, _: &Path) -> Read {
    require(
        node,
        &[
            ("project", "GCE SD configuration requires a project"),
            ("zone", "GCE SD configuration requires a zone"),
        ],
    )?;
    Ok(DiscoverySettings::Gce(Box::new(GceSettings {
        project: read::string(node, "project"),
        zone: read::string(node, "zone"),
        filter: read::string(node, "filter"),
        tag_separator: read::string_or(node, "tag_separator", ","),
        port: read::integer_or(node, "port", 80),
        refresh: refresh(node, 60),
    })))
}

/// Reads an entry of `ionos_sd_configs`, which needs the id of a datacenter.
pub fn ionos(node: &YamlNode, dir: &Path) -> Read {
    require(node, &[("datacenter_id", "datacenter id can't be empty")])?;
    Ok(DiscoverySettings::Ionos(Box::new(IonosSettings {
        datacenter: read::string(node, "datacenter_id"),
        port: read::integer_or(node, "port", 80),
        refresh: refresh(node, 60),
        client: http(node, dir)?,
    })))
}

/// Reads an entry of `linode_sd_configs`, all of whose keys are optional.
pub fn linode(node: &YamlNode, dir: &Path) -> Read {
    Ok(DiscoverySettings::Linode(Box::new(LinodeSettings {
        region: read::string(node, "region"),
        tag_separator: read::string_or(node, "tag_separator", ","),
        port: read::integer_or(node, "port", 80),
        refresh: refresh(node, 60),
        client: http(node, dir)?,
    })))
}

/// Reads an entry of `vultr_sd_configs`, all of whose keys are optional.
pub fn vultr(node: &YamlNode, dir: &Path) -> Read {
    Ok(DiscoverySettings::Vultr(Box::new(VultrSettings {
        port: read::integer_or(node, "port", 80),
        refresh: refresh(node, 60),
        client: http(node, dir)?,
    })))
}

/// Reads an entry of `openstack_sd_configs`, whose role and availability must be valid.
pub fn openstack(node: &YamlNode, dir: &Path) -> Read {
    let tls = tls(node.get("tls_config"), dir)?;
    let role = match read::string(node, "role").as_str() {
        "instance" | "" => OpenStackRole::Instance,
        "hypervisor" => OpenStackRole::Hypervisor,
        "loadbalancer" => OpenStackRole::LoadBalancer,
        role => return Err(node.error(format!("unknown OpenStack SD role {role:?}"))),
    };
    let availability = read::string_or(node, "availability", "public");
    if !matches!(availability.as_str(), "public" | "internal" | "admin") {
        return Err(node.error(format!(
            "unknown availability {availability}, must be one of admin, internal or public"
        )));
    }
    require(
        node,
        &[
            (
                "role",
                "role missing (one of: instance, hypervisor, loadbalancer)",
            ),
            ("region", "openstack SD configuration requires a region"),
        ],
    )?;
    Ok(DiscoverySettings::OpenStack(Box::new(OpenStackSettings {
        role,
        credentials: openstack_credentials(node),
        region: read::string(node, "region"),
        availability,
        all_tenants: read::flag_or(node, "all_tenants", false),
        port: read::integer_or(node, "port", 80),
        refresh: refresh(node, 60),
        client: HttpSettings {
            tls,
            ..HttpSettings::default()
        },
    })))
}

fn openstack_credentials(node: &YamlNode) -> OpenStackCredentials {
    let of = |key: &str| read::string(node, key);
    let secret = |key: &str| {
        let text = read::text(node, key).filter(|text| !text.is_empty());
        text.map(|text| Secret::Inline(text.to_owned()))
    };
    OpenStackCredentials {
        endpoint: of("identity_endpoint"),
        username: of("username"),
        user_id: of("userid"),
        password: secret("password"),
        project_name: of("project_name"),
        project_id: of("project_id"),
        domain_name: of("domain_name"),
        domain_id: of("domain_id"),
        application_name: of("application_credential_name"),
        application_id: of("application_credential_id"),
        application_secret: secret("application_credential_secret"),
    }
}

/// Reads `secret_key` or its file. Exactly one of them must be set.
fn secret_key(node: &YamlNode, dir: &Path) -> Result<Secret, YamlError> {
    let what = match (is_set(node, "secret_key"), is_set(node, "secret_key_file")) {
        (true, true) => "at most one of",
        _ => "one of",
    };
    let wrong = || {
        node.error(format!(
            "{what} secret_key & secret_key_file must be configured"
        ))
    };
    match secret(node, "secret_key", dir) {
        Some(secret) if what == "one of" => Ok(secret),
        _ => Err(wrong()),
    }
}

/// Reads an entry of `outscale_sd_configs`, which needs a region and a pair of keys.
pub fn outscale(node: &YamlNode, dir: &Path) -> Read {
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
    Ok(DiscoverySettings::Outscale(Box::new(OutscaleSettings {
        endpoint,
        region,
        access_key: read::string(node, "access_key"),
        secret_key: secret_key(node, dir)?,
        port: read::integer_or(node, "port", 80),
        refresh: refresh(node, 60),
        client: http(node, dir)?,
    })))
}

/// Reads an entry of `ovhcloud_sd_configs`, which needs an endpoint, a service and keys.
pub fn ovhcloud(node: &YamlNode, _: &Path) -> Read {
    let endpoint = read::string_or(node, "endpoint", "ovh-eu");
    if endpoint.is_empty() {
        return Err(node.error("endpoint can not be empty"));
    }
    require(
        node,
        &[
            ("application_key", "application key can not be empty"),
            ("application_secret", "application secret can not be empty"),
            ("consumer_key", "consumer key can not be empty"),
        ],
    )?;
    let service = match read::string(node, "service").as_str() {
        "dedicated_server" => OvhService::DedicatedServer,
        "vps" => OvhService::Vps,
        service => return Err(node.error(format!("unknown service: {service}"))),
    };
    Ok(DiscoverySettings::OvhCloud(Box::new(OvhSettings {
        endpoint,
        application_key: read::string(node, "application_key"),
        application_secret: inline_secret(node, "application_secret"),
        consumer_key: inline_secret(node, "consumer_key"),
        service,
        refresh: refresh(node, 60),
    })))
}

/// Reads an entry of `scaleway_sd_configs`, with upstream's checks of keys, project and zone.
pub fn scaleway(node: &YamlNode, dir: &Path) -> Read {
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
    check_scaleway_client(node)?;
    Ok(DiscoverySettings::Scaleway(Box::new(ScalewaySettings {
        role,
        url: read::string_or(node, "api_url", SCALEWAY),
        zone: read::string_or(node, "zone", ZONE),
        secret_key,
        name_filter: read::string(node, "name_filter"),
        tags_filter: read::texts(node, "tags_filter").unwrap_or_default(),
        port: read::integer_or(node, "port", 80),
        refresh: refresh(node, 60),
        client: http(node, dir)?,
    })))
}

/// Validates keys, project and zone like the client library of Scaleway, with its errors.
fn check_scaleway_client(node: &YamlNode) -> Result<(), YamlError> {
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
    let url = read::string_or(node, "api_url", SCALEWAY);
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

/// Reads an entry of `stackit_sd_configs`, which needs an endpoint or a region.
pub fn stackit(node: &YamlNode, dir: &Path) -> Read {
    let (endpoint, region) = (
        read::string(node, "endpoint"),
        read::string_or(node, "region", "eu01"),
    );
    if endpoint.is_empty() && region.is_empty() {
        return Err(node.error("stackit_sd: endpoint and region missing"));
    }
    go_url::parse(&endpoint)
        .map_err(|e| node.error(format!("stackit_sd: invalid endpoint {endpoint:?}: {e}")))?;
    // Paths of these files are not relative to the folder of the config.
    let key = |key: &str| secret(node, key, dir).or_else(|| file(node, &format!("{key}_path")));
    let credentials = read::text(node, "credentials_file_path").filter(|path| !path.is_empty());
    Ok(DiscoverySettings::Stackit(Box::new(StackitSettings {
        project: read::string(node, "project"),
        endpoint: if endpoint.is_empty() {
            format!("https://iaas.api.{region}.stackit.cloud")
        } else {
            endpoint
        },
        service_account_key: key("service_account_key"),
        private_key: key("private_key"),
        credentials_file: credentials.map(PathBuf::from),
        port: read::integer_or(node, "port", 80),
        refresh: refresh(node, 60),
        client: http(node, dir)?,
    })))
}

fn file(node: &YamlNode, key: &str) -> Option<Secret> {
    let path = read::text(node, key).filter(|path| !path.is_empty());
    path.map(|path| Secret::File(PathBuf::from(path)))
}

/// Reads an entry of `oci_sd_configs`. The required keys depend on the authentication method.
pub fn oci(node: &YamlNode, dir: &Path) -> Read {
    let compartments = check_oci(node)?;
    Ok(DiscoverySettings::Oci(Box::new(OciSettings {
        is_machine: read::string(node, "auth") == "instance_principal",
        tenancy: read::string(node, "tenancy"),
        user: read::string(node, "user"),
        fingerprint: read::string(node, "fingerprint"),
        key_file: read::path(node, "key_file", dir).unwrap_or_default(),
        key_passphrase: secret(node, "key_passphrase", dir),
        region: read::string(node, "region"),
        compartments,
        port: read::integer_or(node, "port", 80),
        refresh: refresh(node, 60),
        client: http(node, dir)?,
    })))
}

/// Validates the keys of the section and returns the configured compartments.
fn check_oci(node: &YamlNode) -> Result<Vec<String>, YamlError> {
    require(node, &[("region", "oci_sd: region is required")])?;
    let auth = read::string_or(node, "auth", "api_key");
    match auth.as_str() {
        "api_key" => {
            for key in ["tenancy", "user", "fingerprint", "key_file"] {
                if !is_set(node, key) {
                    return Err(node.error(format!("oci_sd: api_key auth requires {key}")));
                }
            }
            if is_set(node, "key_passphrase") && is_set(node, "key_passphrase_file") {
                return Err(node.error(
                    "oci_sd: at most one of key_passphrase and key_passphrase_file must be \
                     configured",
                ));
            }
        }
        "instance_principal" => {
            let keys = [
                "tenancy",
                "user",
                "fingerprint",
                "key_file",
                "key_passphrase",
            ];
            let has_any = keys.iter().any(|key| is_set(node, key));
            if has_any || is_set(node, "key_passphrase_file") {
                return Err(node.error(
                    "oci_sd: instance_principal auth must not have tenancy, user, fingerprint, \
                     key_file, key_passphrase, or key_passphrase_file set",
                ));
            }
        }
        _ => {
            return Err(node.error(format!(
                "oci_sd: unknown auth method {auth:?}, expected \"api_key\" or \
                 \"instance_principal\""
            )));
        }
    }
    let compartments = read::texts(node, "compartments").unwrap_or_default();
    if let Some(i) = compartments.iter().position(String::is_empty) {
        return Err(node.error(format!("oci_sd: compartments[{i}] must not be empty")));
    }
    if !has_interval(node) {
        return Err(node.error("oci_sd: refresh_interval must be positive, got 0s"));
    }
    Ok(compartments)
}

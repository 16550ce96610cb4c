//! Discoveries that Firn does not run: checked as upstream checks them, and named in a warning.

use super::values::{check_http_url, has_scheme_and_host};
use crate::settings::config::http::{self, http, is_set};
use crate::settings::config::schema::SECRET;
use crate::settings::config::signing::is_uuid;
use crate::settings::config::{go_url, read};
use firn_model::yaml::{Node, YamlError};
use std::path::Path;
use std::time::Duration;

type Check = fn(&Node, &Path) -> Result<(), YamlError>;

/// The discoveries, by their keys, and what is asked of each section.
pub const CHECKS: &[(&str, Check)] = &[
    ("aws_sd_configs", aws),
    ("azure_sd_configs", azure),
    ("ecs_sd_configs", client),
    ("elasticache_sd_configs", client),
    ("gce_sd_configs", gce),
    ("ionos_sd_configs", ionos),
    ("kuma_sd_configs", kuma),
    ("linode_sd_configs", client),
    ("marathon_sd_configs", marathon),
    ("msk_sd_configs", client),
    ("nerve_sd_configs", |node, _| zookeeper(node, "nerve")),
    ("oci_sd_configs", oci),
    ("openstack_sd_configs", openstack),
    ("outscale_sd_configs", outscale),
    ("ovhcloud_sd_configs", ovhcloud),
    ("puppetdb_sd_configs", puppetdb),
    ("rds_sd_configs", client),
    ("scaleway_sd_configs", scaleway),
    ("serverset_sd_configs", |node, _| {
        zookeeper(node, "serverset")
    }),
    ("stackit_sd_configs", stackit),
    ("triton_sd_configs", triton),
    ("uyuni_sd_configs", uyuni),
    ("vultr_sd_configs", client),
];

/// How a platform is reached.
fn client(node: &Node, dir: &Path) -> Result<(), YamlError> {
    http(node, dir).map(|_| ())
}

/// Asks for texts; each stands beside what upstream says if it is missing.
fn require(node: &Node, keys: &[(&str, &str)]) -> Result<(), YamlError> {
    for (key, message) in keys {
        if !is_set(node, key) {
            return Err(node.error(*message));
        }
    }
    Ok(())
}

/// Asks for a list that is not empty.
fn require_list(node: &Node, key: &str, message: String) -> Result<(), YamlError> {
    match read::texts(node, key).is_some_and(|list| !list.is_empty()) {
        true => Ok(()),
        false => Err(node.error(message)),
    }
}

/// Upstream looks at their TLS, and no further at how these are reached.
fn aws(node: &Node, dir: &Path) -> Result<(), YamlError> {
    http::tls(node.get("tls_config"), dir)?;
    match read::string(node, "role").as_str() {
        "ec2" | "ecs" | "elasticache" | "lightsail" | "msk" | "rds" => Ok(()),
        role => Err(node.error(format!("unknown AWS SD role {role:?}"))),
    }
}

fn azure(node: &Node, dir: &Path) -> Result<(), YamlError> {
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
    client(node, dir)
}

fn gce(node: &Node, _: &Path) -> Result<(), YamlError> {
    require(
        node,
        &[
            ("project", "GCE SD configuration requires a project"),
            ("zone", "GCE SD configuration requires a zone"),
        ],
    )
}

fn ionos(node: &Node, dir: &Path) -> Result<(), YamlError> {
    require(node, &[("datacenter_id", "datacenter id can't be empty")])?;
    client(node, dir)
}

fn kuma(node: &Node, dir: &Path) -> Result<(), YamlError> {
    let server = read::string(node, "server");
    if server.is_empty() {
        return Err(node.error("kuma SD server must not be empty: "));
    }
    if !has_scheme_and_host(node, &server)? {
        return Err(node.error(format!(
            "kuma SD server must not be empty and have a scheme: {server}"
        )));
    }
    client(node, dir)
}

fn marathon(node: &Node, dir: &Path) -> Result<(), YamlError> {
    let missing = "marathon_sd: must contain at least one Marathon server";
    require_list(node, "servers", missing.into())?;
    let has = |key: &str| node.get(key).is_some_and(|section| !section.is_null());
    let has_token = is_set(node, "auth_token");
    let has_file = is_set(node, "auth_token_file");
    let message = if has_token && has_file {
        "marathon_sd: at most one of auth_token & auth_token_file must be configured"
    } else if !has_token && !has_file {
        return client(node, dir);
    } else if has("basic_auth") {
        "marathon_sd: at most one of basic_auth, auth_token & auth_token_file must be configured"
    } else if is_set(node, "bearer_token") || is_set(node, "bearer_token_file") {
        "marathon_sd: at most one of bearer_token, bearer_token_file, auth_token & \
         auth_token_file must be configured"
    } else if has("authorization") {
        "marathon_sd: at most one of auth_token, auth_token_file & authorization must be configured"
    } else {
        return client(node, dir);
    };
    Err(node.error(message))
}

fn zookeeper(node: &Node, kind: &str) -> Result<(), YamlError> {
    let missing = |what: &str| format!("{kind} SD config must contain at least one {what}");
    require_list(node, "servers", missing("Zookeeper server"))?;
    require_list(node, "paths", missing("path"))?;
    let paths = read::texts(node, "paths").unwrap_or_default();
    match paths.iter().find(|path| !path.starts_with('/')) {
        None => Ok(()),
        Some(path) => {
            let message = format!("{kind} SD config paths must begin with '/': {path}");
            Err(node.error(message))
        }
    }
}

fn oci(node: &Node, dir: &Path) -> Result<(), YamlError> {
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
    client(node, dir)
}

/// Whether the time from one question to the next, if it is set, is one.
fn has_interval(node: &Node) -> bool {
    let default = Duration::from_secs(60);
    !read::duration_or(node, "refresh_interval", default).is_zero()
}

fn openstack(node: &Node, dir: &Path) -> Result<(), YamlError> {
    http::tls(node.get("tls_config"), dir)?;
    let role = read::string(node, "role");
    if !matches!(
        role.as_str(),
        "" | "hypervisor" | "instance" | "loadbalancer"
    ) {
        return Err(node.error(format!("unknown OpenStack SD role {role:?}")));
    }
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
    )
}

/// One of a secret and its file.
fn secret_key(node: &Node) -> Result<(), YamlError> {
    let what = match (is_set(node, "secret_key"), is_set(node, "secret_key_file")) {
        (false, false) => "one of",
        (true, true) => "at most one of",
        _ => return Ok(()),
    };
    Err(node.error(format!(
        "{what} secret_key & secret_key_file must be configured"
    )))
}

fn outscale(node: &Node, dir: &Path) -> Result<(), YamlError> {
    if read::string_or(node, "region", "eu-west-2").is_empty() {
        return Err(node.error("outscale SD configuration requires a region"));
    }
    require(
        node,
        &[(
            "access_key",
            "outscale SD configuration requires access_key",
        )],
    )?;
    secret_key(node)?;
    client(node, dir)
}

fn ovhcloud(node: &Node, _: &Path) -> Result<(), YamlError> {
    if read::string_or(node, "endpoint", "ovh-eu").is_empty() {
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
    match read::string(node, "service").as_str() {
        "dedicated_server" | "vps" => Ok(()),
        service => Err(node.error(format!("unknown service: {service}"))),
    }
}

fn puppetdb(node: &Node, dir: &Path) -> Result<(), YamlError> {
    check_http_url(node, read::text(node, "url").unwrap_or_default())?;
    require(node, &[("query", "query missing")])?;
    client(node, dir)
}

fn scaleway(node: &Node, dir: &Path) -> Result<(), YamlError> {
    let role = read::string(node, "role");
    if !matches!(role.as_str(), "" | "instance" | "baremetal") {
        return Err(node.error(format!("unknown role {role:?}")));
    }
    require(
        node,
        &[
            ("role", "role missing (one of: instance, baremetal)"),
            ("project_id", "project_id is mandatory"),
        ],
    )?;
    secret_key(node)?;
    require(node, &[("access_key", "access_key is mandatory")])?;
    check_scaleway_client(node)?;
    client(node, dir)
}

/// What the library of Scaleway asks of its settings.
fn check_scaleway_client(node: &Node) -> Result<(), YamlError> {
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
    let zone = read::string_or(node, "zone", "fr-par-1");
    if zone.is_empty() {
        return wrong("default zone cannot be empty".into());
    }
    if !is_zone(&zone) {
        return wrong(format!("invalid default zone format '{zone}'"));
    }
    let url = read::string_or(node, "api_url", "https://api.scaleway.com");
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

/// `fr-par-1`
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

fn stackit(node: &Node, dir: &Path) -> Result<(), YamlError> {
    let endpoint = read::string(node, "endpoint");
    if endpoint.is_empty() && read::string_or(node, "region", "eu01").is_empty() {
        return Err(node.error("stackit_sd: endpoint and region missing"));
    }
    go_url::parse(&endpoint)
        .map_err(|e| node.error(format!("stackit_sd: invalid endpoint {endpoint:?}: {e}")))?;
    client(node, dir)
}

fn triton(node: &Node, dir: &Path) -> Result<(), YamlError> {
    http::tls(node.get("tls_config"), dir)?;
    if !matches!(
        read::string_or(node, "role", "container").as_str(),
        "container" | "cn"
    ) {
        return Err(node.error("triton SD configuration requires role to be 'container' or 'cn'"));
    }
    require(
        node,
        &[
            ("account", "triton SD configuration requires an account"),
            (
                "dns_suffix",
                "triton SD configuration requires a dns_suffix",
            ),
            ("endpoint", "triton SD configuration requires an endpoint"),
        ],
    )?;
    match has_interval(node) {
        true => Ok(()),
        false => {
            Err(node
                .error("triton SD configuration requires RefreshInterval to be a positive integer"))
        }
    }
}

fn uyuni(node: &Node, dir: &Path) -> Result<(), YamlError> {
    require(
        node,
        &[("server", "Uyuni SD configuration requires server host")],
    )?;
    go_url::parse(&read::string(node, "server"))
        .map_err(|e| node.error(format!("Uyuni Server URL is not valid: {e}")))?;
    require(
        node,
        &[
            ("username", "Uyuni SD configuration requires a username"),
            ("password", "Uyuni SD configuration requires a password"),
        ],
    )?;
    client(node, dir)
}

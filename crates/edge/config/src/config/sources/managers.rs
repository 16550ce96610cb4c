//! Readers of discoveries that query managers of machines or services: keys, defaults and checks.

use super::values::{
    check_http_url, has_interval, has_scheme_and_host, inline_secret, refresh, require,
    require_list, secret,
};
use crate::config::go_url;
use crate::config::http::{self, http};
use crate::config::read::{self, is_set};
use firn_discovery::{
    DiscoverySettings, KumaSettings, MarathonSettings, PuppetDbSettings, TritonRole,
    TritonSettings, UyuniSettings, ZookeeperMember, ZookeeperSettings,
};
use firn_http_client::HttpSettings;
use firn_yaml::{YamlError, YamlNode};
use std::path::Path;
use std::time::Duration;

type Read = Result<DiscoverySettings, YamlError>;

/// Upstream's default for `fetch_timeout` of Kuma's long polls.
const FETCH_TIMEOUT: Duration = Duration::from_secs(120);

/// Upstream's default for `timeout` of ZooKeeper sessions.
const SESSION: Duration = Duration::from_secs(10);

/// Reads an entry of `kuma_sd_configs`, whose server must be a URL with scheme and host.
pub fn kuma(node: &YamlNode, dir: &Path) -> Read {
    let server = read::string(node, "server");
    if server.is_empty() {
        return Err(node.error("kuma SD server must not be empty: "));
    }
    if !has_scheme_and_host(node, &server)? {
        return Err(node.error(format!(
            "kuma SD server must not be empty and have a scheme: {server}"
        )));
    }
    Ok(DiscoverySettings::Kuma(Box::new(KumaSettings {
        server,
        client_id: read::string(node, "client_id"),
        fetch_timeout: read::duration(node, "fetch_timeout").unwrap_or(FETCH_TIMEOUT),
        refresh: refresh(node, 15),
        client: http(node, dir)?,
    })))
}

/// Reads an entry of `marathon_sd_configs`, which needs a server and allows one kind of token.
pub fn marathon(node: &YamlNode, dir: &Path) -> Read {
    let missing = "marathon_sd: must contain at least one Marathon server";
    require_list(node, "servers", missing.into())?;
    check_marathon_tokens(node)?;
    Ok(DiscoverySettings::Marathon(Box::new(MarathonSettings {
        servers: read::texts(node, "servers").unwrap_or_default(),
        token: secret(node, "auth_token", dir),
        refresh: refresh(node, 30),
        client: http(node, dir)?,
    })))
}

fn check_marathon_tokens(node: &YamlNode) -> Result<(), YamlError> {
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

/// Reads an entry of `puppetdb_sd_configs`, which needs an HTTP URL and a query.
pub fn puppetdb(node: &YamlNode, dir: &Path) -> Read {
    check_http_url(node, read::text(node, "url").unwrap_or_default())?;
    require(node, &[("query", "query missing")])?;
    Ok(DiscoverySettings::PuppetDb(Box::new(PuppetDbSettings {
        url: read::string(node, "url"),
        query: read::string(node, "query"),
        include_parameters: read::flag_or(node, "include_parameters", false),
        port: read::integer_or(node, "port", 80),
        refresh: refresh(node, 60),
        client: http(node, dir)?,
    })))
}

/// Reads an entry of `triton_sd_configs`, which uses only the TLS settings of the HTTP client.
pub fn triton(node: &YamlNode, dir: &Path) -> Read {
    let client = HttpSettings {
        tls: http::tls(node.get("tls_config"), dir)?,
        ..HttpSettings::default()
    };
    let role = match read::string_or(node, "role", "container").as_str() {
        "container" => TritonRole::Container,
        "cn" => TritonRole::Cn,
        _ => {
            return Err(
                node.error("triton SD configuration requires role to be 'container' or 'cn'")
            );
        }
    };
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
    if !has_interval(node) {
        return Err(
            node.error("triton SD configuration requires RefreshInterval to be a positive integer")
        );
    }
    Ok(DiscoverySettings::Triton(Box::new(TritonSettings {
        role,
        dns_suffix: read::string(node, "dns_suffix"),
        endpoint: read::string(node, "endpoint"),
        groups: read::texts(node, "groups").unwrap_or_default(),
        port: read::integer_or(node, "port", 9163),
        version: read::integer_or(node, "version", 1),
        refresh: refresh(node, 60),
        client,
    })))
}

/// Reads an entry of `uyuni_sd_configs`, which needs a server and credentials.
pub fn uyuni(node: &YamlNode, dir: &Path) -> Read {
    require(
        node,
        &[("server", "Uyuni SD configuration requires server host")],
    )?;
    let server = read::string(node, "server");
    go_url::parse(&server)
        .map_err(|e| node.error(format!("Uyuni Server URL is not valid: {e}")))?;
    require(
        node,
        &[
            ("username", "Uyuni SD configuration requires a username"),
            ("password", "Uyuni SD configuration requires a password"),
        ],
    )?;
    Ok(DiscoverySettings::Uyuni(Box::new(UyuniSettings {
        server,
        username: read::string(node, "username"),
        password: inline_secret(node, "password"),
        entitlement: read::string_or(node, "entitlement", "monitoring_entitled"),
        separator: read::string_or(node, "separator", ","),
        refresh: refresh(node, 60),
        client: http(node, dir)?,
    })))
}

/// Reads an entry of `nerve_sd_configs`, which needs servers and paths.
pub fn nerve(node: &YamlNode, _: &Path) -> Read {
    zookeeper(node, "nerve", ZookeeperMember::Nerve)
}

/// Reads an entry of `serverset_sd_configs`, which needs servers and paths.
pub fn serverset(node: &YamlNode, _: &Path) -> Read {
    zookeeper(node, "serverset", ZookeeperMember::Serverset)
}

fn zookeeper(node: &YamlNode, kind: &str, member: ZookeeperMember) -> Read {
    let missing = |what: &str| format!("{kind} SD config must contain at least one {what}");
    require_list(node, "servers", missing("Zookeeper server"))?;
    require_list(node, "paths", missing("path"))?;
    let paths = read::texts(node, "paths").unwrap_or_default();
    if let Some(path) = paths.iter().find(|path| !path.starts_with('/')) {
        let message = format!("{kind} SD config paths must begin with '/': {path}");
        return Err(node.error(message));
    }
    Ok(DiscoverySettings::Zookeeper(Box::new(ZookeeperSettings {
        member,
        servers: read::texts(node, "servers").unwrap_or_default(),
        paths,
        timeout: read::duration_or(node, "timeout", SESSION),
    })))
}

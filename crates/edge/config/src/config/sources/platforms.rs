//! Readers of discoveries that query the API of one platform: keys, defaults and checks.

use super::values::{filters, has_scheme_and_host, refresh};
use crate::config::http::http;
use crate::config::{go_url, read};
use firn_discovery::{
    ConsulSettings, ConsulToken, DigitalOceanRole, DigitalOceanSettings, DiscoverySettings,
    DnsRecordType, DnsSettings, DockerSettings, EurekaSettings, HetznerRole, HetznerSettings,
    NomadSettings, SwarmRole, SwarmSettings,
};
use firn_http_client::{AuthMethod, Secret};
use firn_yaml::{YamlError, YamlNode};
use std::path::Path;

type Read = Result<DiscoverySettings, YamlError>;

/// Reads an entry of `dns_sd_configs`, which needs names and, except for SRV records, a port.
pub fn dns(node: &YamlNode, _: &Path) -> Read {
    let names = read::texts(node, "names").unwrap_or_default();
    if names.is_empty() {
        return Err(node.error("DNS-SD config must contain at least one SRV record name"));
    }
    let record_type = read::string_or(node, "type", "SRV");
    let port = read::integer_or(node, "port", 0);
    let record_type = match record_type.to_uppercase().as_str() {
        "SRV" => DnsRecordType::Srv,
        "A" => DnsRecordType::A,
        "AAAA" => DnsRecordType::Aaaa,
        "MX" => DnsRecordType::Mx,
        "NS" => DnsRecordType::Ns,
        _ => {
            let message = format!("invalid DNS-SD records type {record_type}");
            return Err(node.error(message));
        }
    };
    if port == 0 && record_type != DnsRecordType::Srv {
        return Err(
            node.error("a port is required in DNS-SD configs for all record types except SRV")
        );
    }
    Ok(DiscoverySettings::Dns(DnsSettings {
        names,
        record_type,
        port,
        refresh: refresh(node, 30),
    }))
}

/// Reads an entry of `consul_sd_configs`, whose server must not be empty.
pub fn consul(node: &YamlNode, dir: &Path) -> Read {
    let server = read::string_or(node, "server", "localhost:8500");
    if server.trim().is_empty() {
        return Err(node.error("consul SD configuration requires a server address"));
    }
    let (username, password) = (
        read::string(node, "username"),
        read::string(node, "password"),
    );
    let token = read::string(node, "token");
    let has = |key: &str| node.get(key).is_some_and(|section| !section.is_null());
    let has_user = !username.is_empty() || !password.is_empty();
    if has_user && has("basic_auth") {
        return Err(node.error(
            "at most one of consul SD configuration username and password and basic auth can be \
             configured",
        ));
    }
    if !token.is_empty() && (has("authorization") || has("oauth2")) {
        return Err(node
            .error("at most one of consul SD token, authorization, or oauth2 can be configured"));
    }
    let mut client = http(node, dir)?;
    if has_user {
        if client.auth != AuthMethod::None {
            let message = if has("authorization") || has("oauth2") {
                "at most one of basic_auth, oauth2 & authorization must be configured"
            } else {
                "at most one of basic_auth, oauth2, bearer_token & bearer_token_file must be \
                 configured"
            };
            return Err(node.error(message));
        }
        client.auth = AuthMethod::Basic {
            username: Some(Secret::Inline(username)),
            password: Some(Secret::Inline(password)),
        };
    }
    let node_meta = read::entries(node.get("node_meta")).iter();
    let pair =
        |e: &firn_yaml::YamlEntry| (e.key.clone(), e.node.text().unwrap_or_default().to_owned());
    Ok(DiscoverySettings::Consul(Box::new(ConsulSettings {
        server,
        scheme: read::string_or(node, "scheme", "http"),
        path_prefix: read::string(node, "path_prefix"),
        token: ConsulToken(token),
        datacenter: read::string(node, "datacenter"),
        namespace: read::string(node, "namespace"),
        partition: read::string(node, "partition"),
        tag_separator: read::string_or(node, "tag_separator", ","),
        allow_stale: read::flag_or(node, "allow_stale", true),
        services: read::texts(node, "services").unwrap_or_default(),
        tags: read::texts(node, "tags").unwrap_or_default(),
        node_meta: node_meta.map(pair).collect(),
        filter: read::string(node, "filter"),
        health_filter: read::string(node, "health_filter"),
        refresh: refresh(node, 30),
        client,
    })))
}

/// Reads an entry of `docker_sd_configs`, which needs the host of a Docker daemon.
pub fn docker(node: &YamlNode, dir: &Path) -> Read {
    Ok(DiscoverySettings::Docker(Box::new(DockerSettings {
        host: docker_host(node)?,
        port: read::integer_or(node, "port", 80),
        filters: filters(node),
        host_networking_host: read::string_or(node, "host_networking_host", "localhost"),
        match_first_network: read::flag_or(node, "match_first_network", true),
        refresh: refresh(node, 60),
        client: http(node, dir)?,
    })))
}

/// Reads an entry of `dockerswarm_sd_configs`, which needs a host and a role.
pub fn swarm(node: &YamlNode, dir: &Path) -> Read {
    let host = docker_host(node)?;
    let role = match read::string(node, "role").as_str() {
        "services" => SwarmRole::Services,
        "nodes" => SwarmRole::Nodes,
        "tasks" => SwarmRole::Tasks,
        "" => return Err(node.error("role missing (one of: tasks, services, nodes)")),
        other => {
            return Err(node.error(format!(
                "invalid role {other}, expected tasks, services, or nodes"
            )));
        }
    };
    Ok(DiscoverySettings::Swarm(Box::new(SwarmSettings {
        host,
        role,
        port: read::integer_or(node, "port", 80),
        filters: filters(node),
        refresh: refresh(node, 60),
        client: http(node, dir)?,
    })))
}

fn docker_host(node: &YamlNode) -> Result<String, YamlError> {
    match read::string(node, "host") {
        host if host.is_empty() => Err(node.error("host missing")),
        host => match go_url::parse(&host) {
            Ok(_) => Ok(host),
            Err(e) => Err(node.error(e)),
        },
    }
}

/// Reads an entry of `nomad_sd_configs`, whose server must not be empty.
pub fn nomad(node: &YamlNode, dir: &Path) -> Read {
    let server = read::string_or(node, "server", "http://localhost:4646");
    if server.trim().is_empty() {
        return Err(node.error("nomad SD configuration requires a server address"));
    }
    Ok(DiscoverySettings::Nomad(Box::new(NomadSettings {
        server,
        namespace: read::string_or(node, "namespace", "default"),
        region: read::string_or(node, "region", "global"),
        allow_stale: read::flag_or(node, "allow_stale", true),
        tag_separator: read::string_or(node, "tag_separator", ","),
        refresh: refresh(node, 60),
        client: http(node, dir)?,
    })))
}

/// Reads an entry of `eureka_sd_configs`, whose server must be a URL with scheme and host.
pub fn eureka(node: &YamlNode, dir: &Path) -> Read {
    let server = read::string(node, "server");
    if server.is_empty() {
        return Err(node.error("eureka_sd: empty or null eureka server"));
    }
    if !has_scheme_and_host(node, &server)? {
        return Err(node.error("eureka_sd: invalid eureka server URL"));
    }
    Ok(DiscoverySettings::Eureka(Box::new(EurekaSettings {
        server,
        refresh: refresh(node, 30),
        client: http(node, dir)?,
    })))
}

/// Reads an entry of `hetzner_sd_configs`, which needs a role: `robot` or `hcloud`.
pub fn hetzner(node: &YamlNode, dir: &Path) -> Read {
    let role = match read::string(node, "role").as_str() {
        "hcloud" => HetznerRole::Hcloud,
        "robot" => HetznerRole::Robot,
        "" if read::text(node, "role").is_none() => {
            return Err(node.error("role missing (one of: robot, hcloud)"));
        }
        other => return Err(node.error(format!("unknown role {other:?}"))),
    };
    Ok(DiscoverySettings::Hetzner(Box::new(HetznerSettings {
        role,
        port: read::integer_or(node, "port", 80),
        label_selector: read::string(node, "label_selector"),
        refresh: refresh(node, 60),
        client: http(node, dir)?,
    })))
}

/// Reads an entry of `digitalocean_sd_configs`, whose role must be valid.
pub fn digitalocean(node: &YamlNode, dir: &Path) -> Read {
    let role = match read::string_or(node, "role", "droplets").as_str() {
        "droplets" => DigitalOceanRole::Droplets,
        "databases" => DigitalOceanRole::Databases,
        "" if read::text(node, "role").is_none() => {
            return Err(node.error("role missing (one of: droplets, databases)"));
        }
        other => {
            let message = format!("unknown DigitalOcean SD role {other:?}");
            return Err(node.error(message));
        }
    };
    let settings = DigitalOceanSettings {
        role,
        port: read::integer_or(node, "port", 80),
        refresh: refresh(node, 60),
        client: http(node, dir)?,
    };
    Ok(DiscoverySettings::DigitalOcean(Box::new(settings)))
}

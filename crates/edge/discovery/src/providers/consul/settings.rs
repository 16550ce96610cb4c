//! Settings of the Consul discovery: keys, defaults and checks of upstream.

use crate::provider::{DiscoveryProvider, DiscoverySettings, ReadResult};
use crate::section_values::refresh_interval;
use firn_config_schema::read;
use firn_config_schema::schema::{ConfigKey, ConfigValueShape as Shape, TEXTS, key};
use firn_http_client::http_config::{HTTP_CLIENT, http};
use firn_http_client::{AuthMethod, HttpSettings, Secret};
use firn_yaml::YamlNode;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// The provider of `consul_sd_configs`.
pub(in super::super) const PROVIDER: DiscoveryProvider = DiscoveryProvider::new(
    "consul_sd_configs",
    &Shape::Section(&[KEYS, HTTP_CLIENT]),
    read_entry,
)
.printed_with_defaults();

const KEYS: &[ConfigKey] = &[
    key("server", Shape::Text).or("localhost:8500"),
    key("path_prefix", Shape::Text),
    key("token", Shape::Secret),
    key("datacenter", Shape::Text),
    key("namespace", Shape::Text),
    key("partition", Shape::Text),
    key("tag_separator", Shape::Text).or(","),
    key("scheme", Shape::Text).or("http"),
    key("username", Shape::Text),
    key("password", Shape::Secret),
    key("allow_stale", Shape::Bool).always("true"),
    key("refresh_interval", Shape::Duration).or("30s"),
    key("services", TEXTS),
    key("tags", TEXTS),
    key("node_meta", Shape::Map(&Shape::Text)),
    key("filter", Shape::Text),
    key("health_filter", Shape::Text),
];

/// An entry of `consul_sd_configs`: the Consul agent to query, and the services to watch.
#[derive(Clone, Debug, PartialEq)]
pub struct ConsulSettings {
    /// The `server` key: address of the agent, with an optional scheme and path.
    pub server: String,
    /// The `scheme` key: `http` or `https`, used unless `server` contains `https`.
    pub scheme: String,
    /// The `path_prefix` key: path before that of the API, used unless `server` contains a path.
    pub path_prefix: String,
    /// The `token` key: ACL token that is sent in a header of each request.
    pub token: ConsulToken,
    /// The `datacenter` key: datacenter to query; empty for that of the agent.
    pub datacenter: String,
    /// The `namespace` key: namespace to query (Consul Enterprise); empty for the default one.
    pub namespace: String,
    /// The `partition` key: admin partition to query (Consul Enterprise); empty for the default
    /// one.
    pub partition: String,
    /// The `tag_separator` key: separator of the tags in the label `__meta_consul_tags`.
    pub tag_separator: String,
    /// The `allow_stale` key: allow responses of servers that are not the leader.
    pub allow_stale: bool,
    /// The `services` key: names of the services to watch; empty for all in the catalog.
    pub services: Vec<String>,
    /// The `tags` key: tags that a service and its instances must have.
    pub tags: Vec<String>,
    /// The `node_meta` key: metadata by name that the node of a service must have.
    pub node_meta: BTreeMap<String, String>,
    /// The `filter` key: filter expression that Consul applies to the catalog.
    pub filter: String,
    /// The `health_filter` key: filter expression that Consul applies to the instances.
    pub health_filter: String,
    /// The `refresh_interval` key: minimum time between two queries of the same kind.
    pub refresh: Duration,
    /// Settings of the HTTP client that calls the agent: credentials, TLS, proxies and redirects.
    pub client: HttpSettings,
}

/// A Consul ACL token, whose value does not appear in debug output.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ConsulToken(pub String);

impl std::fmt::Debug for ConsulToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("<secret>")
    }
}

/// Reads an entry of `consul_sd_configs`, whose server must not be empty.
fn read_entry(node: &YamlNode, dir: &Path) -> ReadResult {
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
    Ok(DiscoverySettings::provided(ConsulSettings {
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
        refresh: refresh_interval(node, 30),
        client,
    }))
}

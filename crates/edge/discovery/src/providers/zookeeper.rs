//! Discovery of services registered in ZooKeeper: Twitter serversets and Airbnb Nerve, which store
//! members as JSON nodes below configured paths.
//!
//! ```text
//! session -> all nodes below the paths, watched -> publish
//!   ^            event -> the changed node and new nodes below it -> publish
//!   `---- failure or missing path: wait ten seconds, then read everything again
//! ```
//!
//! Invariant: the published list remains until a new session has read all nodes. A session that
//! exceeds a limit ends, so a list is never partial.
//!
//! The behaviour follows upstream's `discovery/zookeeper` and `util/treecache`. A node at any depth
//! is a target if its data can be decoded as a member.

mod session;
#[cfg(test)]
mod tests;

use crate::api::invalid_response_error;
use crate::discover::Discover;
use crate::group::TargetGroup;
use crate::json::{self, answers};
use crate::meta::{MetaLabels, join_host_port, sanitize};
use crate::provider::{
    DiscoveryMechanism, DiscoveryProvider, DiscoverySettings, DiscoveryStarter, DiscoveryTask,
    ReadResult,
};
use crate::published::PublishedTargets;
use crate::section_values::require_list;
use firn_config_schema::read;
use firn_config_schema::schema::{ConfigKey, ConfigValueShape as Shape, TEXTS, key};
use firn_model::error::Error;
use firn_yaml::YamlNode;
use session::ZookeeperSession;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep, sleep_until};
use tracing::warn;

/// Default port of a ZooKeeper server.
const PORT: u16 = 2181;

/// Pause between a failure and the next attempt, as in upstream.
const RETRY: Duration = Duration::from_secs(10);

/// Maximum number of nodes below one path.
const NODES_MAX: usize = 100_000;

/// The provider of `nerve_sd_configs`.
pub(super) const NERVE: DiscoveryProvider =
    DiscoveryProvider::new("nerve_sd_configs", &Shape::Section(&[KEYS]), read_nerve);

/// The provider of `serverset_sd_configs`.
pub(super) const SERVERSET: DiscoveryProvider = DiscoveryProvider::new(
    "serverset_sd_configs",
    &Shape::Section(&[KEYS]),
    read_serverset,
);

const KEYS: &[ConfigKey] = &[
    key("servers", TEXTS),
    key("paths", TEXTS),
    key("timeout", Shape::Duration),
];

/// Upstream's default for `timeout` of ZooKeeper sessions.
const SESSION: Duration = Duration::from_secs(10);

/// Format of the members that nodes contain, which also determines the label names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZookeeperMember {
    /// The format of `serverset_sd_configs`: members of Twitter serversets.
    Serverset,
    /// The format of `nerve_sd_configs`: members registered by Airbnb Nerve.
    Nerve,
}

impl ZookeeperMember {
    fn mechanism(self) -> &'static str {
        match self {
            Self::Serverset => "serverset",
            Self::Nerve => "nerve",
        }
    }

    /// Decodes the data of a node as a member. Returns `None` if it has another format.
    fn decode_member(self, path: &str, data: &[u8]) -> Option<TargetGroup> {
        Some(match self {
            Self::Serverset => build_serverset_target(path, json::from_slice(data).ok()?),
            Self::Nerve => build_nerve_target(path, json::from_slice(data).ok()?),
        })
    }
}

/// An entry of `serverset_sd_configs` or `nerve_sd_configs`: ZooKeeper servers and the paths to
/// watch.
#[derive(Clone, Debug, PartialEq)]
pub struct ZookeeperSettings {
    /// Format of the members, which the config key determines.
    pub member: ZookeeperMember,
    /// The `servers` key: addresses of ZooKeeper servers, used in turn.
    pub servers: Vec<String>,
    /// The `paths` key: paths below which all nodes are read.
    pub paths: Vec<String>,
    /// The `timeout` key: session timeout that is requested from the server.
    pub timeout: Duration,
}

impl DiscoveryMechanism for ZookeeperSettings {
    fn mechanism(&self) -> &'static str {
        self.member.mechanism()
    }

    fn start(&self, starter: &DiscoveryStarter) -> DiscoveryTask {
        starter.watch(ZookeeperDiscovery::new(self, starter.bytes_max))
    }
}

/// Reads an entry of `nerve_sd_configs`, which needs servers and paths.
fn read_nerve(node: &YamlNode, _: &Path) -> ReadResult {
    read_members(node, "nerve", ZookeeperMember::Nerve)
}

/// Reads an entry of `serverset_sd_configs`, which needs servers and paths.
fn read_serverset(node: &YamlNode, _: &Path) -> ReadResult {
    read_members(node, "serverset", ZookeeperMember::Serverset)
}

fn read_members(node: &YamlNode, kind: &str, member: ZookeeperMember) -> ReadResult {
    let missing = |what: &str| format!("{kind} SD config must contain at least one {what}");
    require_list(node, "servers", missing("Zookeeper server"))?;
    require_list(node, "paths", missing("path"))?;
    let paths = read::texts(node, "paths").unwrap_or_default();
    if let Some(path) = paths.iter().find(|path| !path.starts_with('/')) {
        let message = format!("{kind} SD config paths must begin with '/': {path}");
        return Err(node.error(message));
    }
    Ok(DiscoverySettings::provided(ZookeeperSettings {
        member,
        servers: read::texts(node, "servers").unwrap_or_default(),
        paths,
        timeout: read::duration_or(node, "timeout", SESSION),
    }))
}

answers! {
    struct ServersetMember {
        #[serde(rename = "serviceEndpoint")]
        service: ServersetEndpoint,
        #[serde(rename = "additionalEndpoints")]
        additional: BTreeMap<String, ServersetEndpoint>,
        status: String,
        shard: i64,
    }

    struct ServersetEndpoint {
        host: String,
        port: i64,
    }

    struct NerveMember {
        host: String,
        port: i64,
        name: String,
    }
}

/// A node whose data and children have been read.
#[derive(Debug, Default)]
struct ZookeeperNode {
    /// Target of the member in the node's data, if it contains one.
    member: Option<TargetGroup>,
    children: Vec<String>,
}

/// The nodes below one configured path, including the path itself.
#[derive(Debug, Default)]
struct ZookeeperTree {
    nodes: BTreeMap<String, ZookeeperNode>,
}

/// Discovery that watches the paths of one config entry and publishes all members.
pub(super) struct ZookeeperDiscovery {
    settings: ZookeeperSettings,
    bytes_max: usize,
    retry: Duration,
    /// Number of servers used so far, which selects the next one.
    turn: usize,
    /// Trees by configured path.
    trees: BTreeMap<String, ZookeeperTree>,
}

impl ZookeeperDiscovery {
    pub(super) fn new(settings: &ZookeeperSettings, bytes_max: u64) -> Self {
        Self {
            settings: settings.clone(),
            bytes_max: usize::try_from(bytes_max).unwrap_or(usize::MAX),
            retry: RETRY,
            turn: 0,
            trees: BTreeMap::new(),
        }
    }

    /// Returns the address of the next server, in turn, with the default port if it has none.
    fn next_server(&mut self) -> String {
        let servers = &self.settings.servers;
        let server = servers.get(self.turn % servers.len().max(1));
        self.turn = self.turn.wrapping_add(1);
        let server = server.map_or("", String::as_str);
        let has_port = server
            .rsplit_once(':')
            .is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        if has_port {
            server.to_owned()
        } else {
            format!("{server}:{PORT}")
        }
    }

    /// Opens a session, reads all nodes and follows their changes until something fails.
    async fn run_session(&mut self, to: &PublishedTargets) -> Result<(), Error> {
        let server = self.next_server();
        let mut session = ZookeeperSession::open_session(&server, self.settings.timeout).await?;
        let mut is_missing = false;
        for path in self.settings.paths.clone() {
            let mut tree = ZookeeperTree::default();
            self.read_tree(&mut session, &mut tree, &path).await?;
            if tree.nodes.is_empty() {
                is_missing = true;
                warn!(path, "path does not exist in ZooKeeper");
            } else {
                drop(self.trees.insert(path, tree))
            }
        }
        self.publish_members(to);
        // Reading a missing path sets no watch on it, so everything is read again after a pause.
        let end = is_missing.then(|| Instant::now() + self.retry);
        loop {
            let event = tokio::select! {
                event = session.next_event() => event?,
                () = wait_until(end) => return Err(invalid_response_error("a path does not exist")),
            };
            self.reread_node(&mut session, &event).await?;
            self.publish_members(to);
        }
    }

    /// Reads the node at `path` again, in each tree that contains it.
    async fn reread_node(
        &mut self,
        session: &mut ZookeeperSession,
        path: &str,
    ) -> Result<(), Error> {
        for root in self.settings.paths.clone() {
            if !is_within(path, &root) {
                continue;
            }
            let mut tree = self.trees.remove(&root).unwrap_or_default();
            let read = self.read_tree(session, &mut tree, path).await;
            let is_gone = tree.nodes.is_empty();
            self.trees.insert(root, tree);
            read?;
            if is_gone {
                return Err(invalid_response_error(format!(
                    "path {path} no longer exists"
                )));
            }
        }
        Ok(())
    }

    /// Reads the node at `path`, and all nodes below it that the tree does not contain yet, into
    /// `tree`.
    async fn read_tree(
        &self,
        session: &mut ZookeeperSession,
        tree: &mut ZookeeperTree,
        path: &str,
    ) -> Result<(), Error> {
        let mut unread = vec![path.to_owned()];
        let mut bytes = 0;
        while let Some(path) = unread.pop() {
            let (data, children) = match session.read_data(&path).await? {
                Some(data) => (data, session.list_children(&path).await?),
                None => (Vec::new(), None),
            };
            let Some(children) = children else {
                tree.remove(&path);
                continue;
            };
            let known = tree.nodes.entry(path.clone()).or_default();
            let gone: Vec<String> = known
                .children
                .iter()
                .filter(|child| !children.contains(child))
                .map(|child| join_path(&path, child))
                .collect();
            known.member = self.settings.member.decode_member(&path, &data);
            known.children = children;
            let below: Vec<String> = known.children.iter().map(|c| join_path(&path, c)).collect();
            gone.iter().for_each(|path| tree.remove(path));
            let unknown = below.into_iter().filter(|c| !tree.nodes.contains_key(c));
            unread.extend(unknown);
            bytes += data.len();
            let (nodes, bytes_max) = (tree.nodes.len() + unread.len(), self.bytes_max);
            if nodes > NODES_MAX || bytes > bytes_max {
                return Err(invalid_response_error(format!(
                    "too much below {path}: {nodes} nodes, limit {NODES_MAX}, \
                     {bytes} bytes, limit {bytes_max}"
                )));
            }
        }
        Ok(())
    }

    fn publish_members(&self, to: &PublishedTargets) {
        let nodes = self.trees.values().flat_map(|tree| tree.nodes.values());
        to.publish(nodes.filter_map(|node| node.member.clone()).collect());
    }
}

impl ZookeeperTree {
    /// Removes the node at `path` and all nodes below it.
    fn remove(&mut self, path: &str) {
        self.nodes.retain(|known, _| !is_within(known, path));
    }
}

/// Returns whether `path` is `root` or below it.
fn is_within(path: &str, root: &str) -> bool {
    let root = root.trim_end_matches('/');
    path.strip_prefix(root)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn join_path(path: &str, child: &str) -> String {
    format!("{}/{child}", path.trim_end_matches('/'))
}

async fn wait_until(end: Option<Instant>) {
    match end {
        Some(end) => sleep_until(end).await,
        None => std::future::pending().await,
    }
}

fn build_serverset_target(path: &str, member: ServersetMember) -> TargetGroup {
    let mut meta = MetaLabels::new("serverset");
    let ServersetEndpoint { host, port } = &member.service;
    meta.set("path", path);
    meta.set("endpoint_host", host);
    meta.set("endpoint_port", port.to_string());
    for (name, endpoint) in &member.additional {
        let name = sanitize(name);
        meta.set(&format!("endpoint_host_{name}"), &endpoint.host);
        meta.set(&format!("endpoint_port_{name}"), endpoint.port.to_string());
    }
    meta.set("status", &member.status);
    meta.set("shard", member.shard.to_string());
    meta.into_target(join_host_port(host, port))
}

fn build_nerve_target(path: &str, member: NerveMember) -> TargetGroup {
    let mut meta = MetaLabels::new("nerve");
    meta.set("path", path);
    meta.set("endpoint_host", &member.host);
    meta.set("endpoint_port", member.port.to_string());
    meta.set("endpoint_name", &member.name);
    meta.into_target(join_host_port(&member.host, member.port))
}

impl Discover for ZookeeperDiscovery {
    async fn run(mut self, to: Arc<PublishedTargets>) {
        loop {
            if let Err(e) = self.run_session(&to).await {
                warn!(
                    servers = self.settings.servers.join(","),
                    error = %e,
                    "failed to watch ZooKeeper"
                );
                to.failures.inc();
            }
            sleep(self.retry).await;
        }
    }
}

//! Targets from ZooKeeper: members of Twitter's serversets and of Airbnb's Nerve, which hold JSON
//! in nodes below some paths.
//!
//! ```text
//! session -> every node below the paths, watched -> published
//!   ^            event -> the node and those new below it -> published
//!   `---- failed, or a path that is not there: ten seconds
//! ```
//!
//! Invariant: what was published stays until all nodes were read anew; what does not fit the bounds
//! ends a session, so that a list is whole or old.
//!
//! Facts are from upstream's `discovery/zookeeper` and `util/treecache`. A node is a target if what
//! it holds can be read as a member, wherever it stands.

mod session;
#[cfg(test)]
mod tests;

use super::api::wrong;
use super::discover::Discover;
use super::group::Group;
use super::json::{self, answers};
use super::meta::{Meta, host_port, sanitize};
use super::published::Published;
use firn_model::error::Error;
use session::Session;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep, sleep_until};
use tracing::warn;

/// The port of a server that is named without one.
const PORT: u16 = 2181;

/// From a failure to the next try, as upstream.
const RETRY: Duration = Duration::from_secs(10);

/// Nodes below one path at most.
const NODES_MAX: usize = 100_000;

/// What the nodes hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZookeeperMember {
    /// `serverset_sd_configs`
    Serverset,
    /// `nerve_sd_configs`
    Nerve,
}

impl ZookeeperMember {
    /// The member that a node holds, if it holds one.
    fn read(self, path: &str, data: &[u8]) -> Option<Group> {
        Some(match self {
            Self::Serverset => serverset(path, json::from_slice(data).ok()?),
            Self::Nerve => nerve(path, json::from_slice(data).ok()?),
        })
    }
}

/// One of `serverset_sd_configs` or `nerve_sd_configs`
#[derive(Clone, Debug, PartialEq)]
pub struct ZookeeperSettings {
    /// What is looked for.
    pub member: ZookeeperMember,
    /// `servers`
    pub servers: Vec<String>,
    /// `paths`
    pub paths: Vec<String>,
    /// `timeout`, of sessions.
    pub timeout: Duration,
}

answers! {
    struct Serverset {
        #[serde(rename = "serviceEndpoint")]
        service: Endpoint,
        #[serde(rename = "additionalEndpoints")]
        additional: BTreeMap<String, Endpoint>,
        status: String,
        shard: i64,
    }

    struct Endpoint {
        host: String,
        port: i64,
    }

    struct Nerve {
        host: String,
        port: i64,
        name: String,
    }
}

/// A node that was read.
#[derive(Debug, Default)]
struct Node {
    /// What it is as a member, if it is one.
    member: Option<Group>,
    children: Vec<String>,
}

/// The nodes below one path, that itself included.
#[derive(Debug, Default)]
struct Tree {
    nodes: BTreeMap<String, Node>,
}

/// Watches the paths of one section.
pub(super) struct Watch {
    settings: ZookeeperSettings,
    bytes_max: usize,
    retry: Duration,
    /// The server that is asked next.
    turn: usize,
    /// By path.
    trees: BTreeMap<String, Tree>,
}

impl Watch {
    pub(super) fn new(settings: &ZookeeperSettings, bytes_max: u64) -> Self {
        Self {
            settings: settings.clone(),
            bytes_max: usize::try_from(bytes_max).unwrap_or(usize::MAX),
            retry: RETRY,
            turn: 0,
            trees: BTreeMap::new(),
        }
    }

    /// The next server in turn.
    fn server(&mut self) -> String {
        let servers = &self.settings.servers;
        let server = servers.get(self.turn % servers.len().max(1));
        self.turn = self.turn.wrapping_add(1);
        let server = server.map_or("", String::as_str);
        let has_port = server
            .rsplit_once(':')
            .is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        match has_port {
            true => server.to_owned(),
            false => format!("{server}:{PORT}"),
        }
    }

    /// Reads all and follows what changes, until something fails.
    async fn follow(&mut self, to: &Published) -> Result<(), Error> {
        let server = self.server();
        let mut session = Session::begin(&server, self.settings.timeout).await?;
        let mut is_missing = false;
        for path in self.settings.paths.clone() {
            let mut tree = Tree::default();
            self.read(&mut session, &mut tree, &path).await?;
            match tree.nodes.is_empty() {
                true => {
                    is_missing = true;
                    warn!(path, "path does not exist in ZooKeeper");
                }
                false => drop(self.trees.insert(path, tree)),
            }
        }
        self.publish(to);
        // A path that is not there cannot be watched by a look at it: it is looked for again.
        let end = is_missing.then(|| Instant::now() + self.retry);
        loop {
            let event = tokio::select! {
                event = session.event() => event?,
                () = until(end) => return Err(wrong("a path does not exist")),
            };
            self.changed(&mut session, &event).await?;
            self.publish(to);
        }
    }

    /// Reads the node at `path` anew, in the trees that have it.
    async fn changed(&mut self, session: &mut Session, path: &str) -> Result<(), Error> {
        for root in self.settings.paths.clone() {
            if !is_within(path, &root) {
                continue;
            }
            let mut tree = self.trees.remove(&root).unwrap_or_default();
            let read = self.read(session, &mut tree, path).await;
            let is_gone = tree.nodes.is_empty();
            self.trees.insert(root, tree);
            read?;
            if is_gone {
                return Err(wrong(format!("path {path} no longer exists")));
            }
        }
        Ok(())
    }

    /// Reads the node at `path`, and those below it that the tree does not have, into `tree`.
    async fn read(&self, session: &mut Session, tree: &mut Tree, path: &str) -> Result<(), Error> {
        let mut unread = vec![path.to_owned()];
        let mut bytes = 0;
        while let Some(path) = unread.pop() {
            let (data, children) = match session.data(&path).await? {
                Some(data) => (data, session.children(&path).await?),
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
                .map(|child| join(&path, child))
                .collect();
            known.member = self.settings.member.read(&path, &data);
            known.children = children;
            let below: Vec<String> = known.children.iter().map(|c| join(&path, c)).collect();
            gone.iter().for_each(|path| tree.remove(path));
            let unknown = below.into_iter().filter(|c| !tree.nodes.contains_key(c));
            unread.extend(unknown);
            bytes += data.len();
            let (nodes, bytes_max) = (tree.nodes.len() + unread.len(), self.bytes_max);
            if nodes > NODES_MAX || bytes > bytes_max {
                return Err(wrong(format!(
                    "too much below {path}: {nodes} nodes, limit {NODES_MAX}, \
                     {bytes} bytes, limit {bytes_max}"
                )));
            }
        }
        Ok(())
    }

    fn publish(&self, to: &Published) {
        let nodes = self.trees.values().flat_map(|tree| tree.nodes.values());
        to.publish(nodes.filter_map(|node| node.member.clone()).collect());
    }
}

impl Tree {
    /// Forgets the node at `path` and all below it.
    fn remove(&mut self, path: &str) {
        self.nodes.retain(|known, _| !is_within(known, path));
    }
}

/// Whether `path` is `root` or below it.
fn is_within(path: &str, root: &str) -> bool {
    let root = root.trim_end_matches('/');
    path.strip_prefix(root)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn join(path: &str, child: &str) -> String {
    format!("{}/{child}", path.trim_end_matches('/'))
}

async fn until(end: Option<Instant>) {
    match end {
        Some(end) => sleep_until(end).await,
        None => std::future::pending().await,
    }
}

fn serverset(path: &str, member: Serverset) -> Group {
    let mut meta = Meta::new("serverset");
    let Endpoint { host, port } = &member.service;
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
    meta.at(host_port(host, port))
}

fn nerve(path: &str, member: Nerve) -> Group {
    let mut meta = Meta::new("nerve");
    meta.set("path", path);
    meta.set("endpoint_host", &member.host);
    meta.set("endpoint_port", member.port.to_string());
    meta.set("endpoint_name", &member.name);
    meta.at(host_port(&member.host, member.port))
}

impl Discover for Watch {
    async fn run(mut self, to: Arc<Published>) {
        loop {
            if let Err(e) = self.follow(&to).await {
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

//! Clusters of several nodes on one bucket, with addresses of their own. The bucket is a folder, or
//! one behind an S3 server with a proxy before each node.
//!
//! Each cluster of a test program has a network of loopback addresses for its peers, so that a node
//! that starts again finds its address free. No client connects from these addresses.

use super::bucket_proxy::BucketProxy;
use super::http::Http;
use super::s3::{BUCKET, SECRET_KEY, VersityServer};
use super::server::{Server, command, firn, spawn, wait_for};
use serde_json::Value;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The names of the nodes.
pub const NODES: [&str; 3] = ["a", "b", "c"];

/// The number of partitions: each node leads two of them.
pub const PARTITIONS: usize = 6;

/// The secret of all nodes.
pub const SECRET: &str = "a-secret-of-all-nodes";

/// The port of the listeners for peers. It is below those that the system chooses for clients.
const PEER_PORT: u16 = 9190;

/// Maximum wait until the nodes lead equal shares: a node that was late gets its share after half
/// a minute.
const BALANCE_DEADLINE: Duration = Duration::from_secs(90);

/// The object `cluster/format` of clusters in an S3 server, with a hash that all processors have.
const FORMAT_TEXT: &str = r#"{"version": 1, "cluster": "", "seed": "0123456789abcdef0123456789abcdef",
    "hash": "nh", "partitions": 1, "window": 4, "engine": "bucket", "min_version": "0.1.0"}"#;

/// The prefix of all objects in a bucket of S3.
const PREFIX: &str = "prod";

/// The number of clusters of this process.
static CLUSTERS: AtomicU32 = AtomicU32::new(0);

/// The object `cluster/format` of the first cluster. Others copy it with another identity, because
/// the test of the store by the first process of a cluster takes a thousand requests.
static FORMAT: OnceLock<Value> = OnceLock::new();

/// An S3 server, and the proxy of each node.
pub struct ProxiedStore {
    server: VersityServer,
    /// The proxies by the index of their node.
    pub proxies: Vec<BucketProxy>,
}

impl ProxiedStore {
    /// Starts a server and the proxies before it. Returns `None`, and prints the reason, if the
    /// server is not installed.
    pub fn start(seed: u64) -> Option<Self> {
        let server = VersityServer::start()?;
        let proxy = |n| BucketProxy::start(&server.address, SECRET_KEY, seed ^ n);
        let proxies = (0..NODES.len() as u64).map(proxy).collect();
        Some(Self { server, proxies })
    }
}

/// A bucket, and the configs and data folders of its nodes.
pub struct TestCluster {
    folder: TempDir,
    /// The store of the bucket, unless it is a folder.
    store: Option<ProxiedStore>,
    /// The number of the cluster in this process.
    number: u32,
    /// The address of its first peer. The next peers have the next addresses.
    pub network: String,
    /// More keys of `firn.cluster`.
    keys: String,
    /// Flags of all nodes.
    flags: Vec<String>,
}

impl TestCluster {
    /// Creates a cluster without processes. `keys` are keys of `firn.cluster` of all nodes, in the
    /// form `key: value, key: value`; `flags` are flags of `firn serve`.
    pub fn new(keys: &str, flags: &[&str]) -> Self {
        Self::with_store(None, keys, flags)
    }

    /// Creates a cluster whose bucket is in `store`, or a folder.
    pub fn with_store(store: Option<ProxiedStore>, keys: &str, flags: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("secret"), SECRET).unwrap();
        let process = std::process::id();
        let number = CLUSTERS.fetch_add(1, Ordering::Relaxed);
        let (high, low) = (64 + process % 128, process / 128 % 256);
        Self {
            folder,
            store,
            number,
            network: format!("127.{high}.{low}.{}", number % 31 * 8 + 1),
            keys: keys.to_owned(),
            flags: flags.iter().map(|flag| (*flag).to_owned()).collect(),
        }
    }

    /// Returns the folder of the bucket, in which the objects are files.
    pub fn bucket(&self) -> PathBuf {
        match &self.store {
            Some(store) => store.server.buckets().join(BUCKET).join(PREFIX),
            None => self.folder.path().join("bucket"),
        }
    }

    /// Returns the proxies of the nodes, by their index.
    pub fn proxies(&self) -> &[BucketProxy] {
        self.store.as_ref().map_or(&[], |store| &store.proxies)
    }

    /// Returns the keys of `firn.cluster` for the bucket of the node with this index. A process
    /// that is no node has the proxy of one.
    fn bucket_keys(&self, index: usize) -> Vec<(&'static str, String)> {
        match &self.store {
            Some(store) => {
                let proxy = &store.proxies[index % NODES.len()];
                store.server.cluster_keys(PREFIX, &proxy.address).into()
            }
            None => vec![("bucket", format!("\"file://{}\"", self.bucket().display()))],
        }
    }

    /// Audits the bucket, without a proxy. Returns the output of the command if it finds anything.
    pub fn audit(&self) -> Result<(), String> {
        let mut command = firn();
        command.args(["cluster", "audit"]);
        match &self.store {
            Some(store) => {
                store.server.apply(&mut command);
                command.arg(format!("s3://{BUCKET}/{PREFIX}"));
            }
            None => drop(command.arg(format!("file://{}", self.bucket().display()))),
        }
        let output = command.output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text).into_owned();
        output.status.success().then_some(()).ok_or(text)
    }

    /// Returns a path in the folder of the cluster that no node uses.
    pub fn spare(&self, name: &str) -> PathBuf {
        self.folder.path().join(format!("spare-{name}"))
    }

    /// Returns the data folder of a node.
    pub fn data(&self, node: &str) -> PathBuf {
        self.folder.path().join(format!("data-{node}"))
    }

    /// Returns the address at which the node with this index is reached by its peers.
    pub fn peer_address(&self, index: usize) -> String {
        let (network, first) = self.network.rsplit_once('.').expect("four numbers");
        let first: usize = first.parse().expect("a number");
        format!("{network}.{}:{PEER_PORT}", first + index)
    }

    /// Returns the keys of `firn.cluster` of a node: first its own, then those of all nodes.
    pub fn node_keys(&self, node: &str, index: usize) -> Vec<(&'static str, String)> {
        let peers: Vec<String> = (0..NODES.len()).map(|n| self.peer_address(n)).collect();
        let secret = self.folder.path().join("secret");
        let mut keys = self.bucket_keys(index);
        keys.extend([
            ("node", node.to_owned()),
            ("listen", format!("\"{}\"", self.peer_address(index))),
            ("peers", format!("[\"{}\"]", peers.join("\", \""))),
            ("secret_file", format!("\"{}\"", secret.display())),
            ("partitions", PARTITIONS.to_string()),
        ]);
        keys
    }

    /// Returns the command line of a process named `file` in the folder of the cluster, with these
    /// keys of `firn.cluster` and those of all nodes.
    pub fn command(&self, file: &str, keys: &[(&'static str, String)]) -> Command {
        let config = self.folder.path().join(format!("{file}.yml"));
        let mut section: Vec<String> = keys.iter().map(|(k, v)| format!("{k}: {v}")).collect();
        section.push(self.keys.clone());
        let text = format!("firn:\n  cluster: {{{}}}\n", section.join(", "));
        std::fs::write(&config, text).unwrap();
        let config = config.display().to_string();
        let mut flags = vec!["--config", &config];
        flags.extend(self.flags.iter().map(String::as_str));
        command(&self.data(file), &flags)
    }

    /// Returns the command line of the node with this index.
    pub fn node_command(&self, index: usize) -> Command {
        let node = NODES[index];
        self.command(node, &self.node_keys(node, index))
    }

    /// Starts the node with this index, and waits until it listens.
    pub fn start_unready(&self, index: usize) -> Server {
        Server::from_child(spawn(self.node_command(index)))
    }

    /// Starts the node with this index, and waits until it is ready.
    pub fn start(&self, index: usize) -> Server {
        let server = self.start_unready(index);
        server.wait_ready();
        server
    }

    /// Creates the cluster in the bucket without a test of the store: in an S3 server, which takes
    /// a quarter of a minute to pass, or if an earlier cluster can be copied.
    pub fn create_format(&self) {
        let known = match &self.store {
            Some(_) => Some(serde_json::from_str(FORMAT_TEXT).unwrap()),
            None => FORMAT.get().cloned(),
        };
        if let Some(mut format) = known {
            let (process, number) = (std::process::id(), self.number);
            format["cluster"] = format!("{process:016x}{number:016x}").into();
            format["partitions"] = PARTITIONS.into();
            std::fs::create_dir_all(self.bucket().join("cluster")).unwrap();
            std::fs::write(self.format_path(), format!("{format:#}\n")).unwrap();
        }
    }

    fn format_path(&self) -> PathBuf {
        self.bucket().join("cluster/format")
    }

    /// Starts all nodes and waits until each leads an equal share of the partitions.
    pub fn start_all(&self) -> Vec<Server> {
        self.create_format();
        let servers: Vec<Server> = (0..NODES.len()).map(|n| self.start_unready(n)).collect();
        servers.iter().for_each(Server::wait_ready);
        let share = PARTITIONS / NODES.len();
        wait_within("equal shares", BALANCE_DEADLINE, || {
            servers.iter().all(|server| {
                let status = ClusterView::read(&server.http());
                NODES.iter().all(|node| status.led_by(node).len() == share)
            })
        });
        if self.store.is_none() {
            let format = std::fs::read(self.format_path()).unwrap();
            FORMAT.get_or_init(|| serde_json::from_slice(&format).unwrap());
        }
        servers
    }
}

/// The state of a cluster as one node reports it.
#[derive(Clone, Debug)]
pub struct ClusterView(pub Value);

impl ClusterView {
    /// Reads the state from a node.
    pub fn read(http: &Http) -> Self {
        let answer = http.get("/api/v1/status/cluster");
        assert_eq!(answer.status, 200, "{}", answer.body);
        let document = answer.json();
        match document.get("data") {
            Some(data) => Self(data.clone()),
            None => Self(document),
        }
    }

    /// Returns the partitions that `node` leads, as the reporting node sees it.
    pub fn led_by(&self, node: &str) -> Vec<u64> {
        let partitions = self.0["partitions"].as_array().into_iter().flatten();
        let led = partitions.filter(|partition| partition["leader"] == node);
        led.filter_map(|p| p["partition"].as_u64()).collect()
    }

    /// Returns the leader and the epoch of each partition.
    pub fn leaders(&self) -> Vec<(Value, Value)> {
        let partitions = self.0["partitions"].as_array().into_iter().flatten();
        let leader = |p: &Value| (p["leader"].clone(), p["epoch"].clone());
        partitions.map(leader).collect()
    }

    /// Returns the state of a node, or an empty text.
    pub fn state_of(&self, node: &str) -> String {
        let mut nodes = self.0["nodes"].as_array().into_iter().flatten();
        let found = nodes.find(|n| n["name"] == node);
        let state = found.and_then(|n| n["state"].as_str());
        state.unwrap_or_default().to_owned()
    }
}

/// Waits until these nodes agree that they lead all partitions together.
pub fn wait_led(servers: &[&Server], nodes: &[&str]) {
    wait_for(&format!("all partitions to be led by {nodes:?}"), || {
        servers.iter().all(|server| {
            let view = ClusterView::read(&server.http());
            let led = nodes.iter().map(|node| view.led_by(node).len());
            led.sum::<usize>() == PARTITIONS
        })
    });
}

/// Polls `condition` until it is true, and returns the time it took; panics after `deadline`.
pub fn wait_within(
    what: &str,
    deadline: Duration,
    mut condition: impl FnMut() -> bool,
) -> Duration {
    let begin = Instant::now();
    while !condition() {
        assert!(begin.elapsed() < deadline, "waited {deadline:?} for {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
    begin.elapsed()
}

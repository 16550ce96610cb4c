//! The processes of a cluster under measurement: the object store and the nodes.

use crate::process;
use crate::say;
use crate::system::{Running, System, free_port, on_path};
use firn_mirror::body;
use firn_model::batch::Batch;
use firn_model::labels::{Labels, METRIC_NAME};
use serde_json::Value;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Names of the nodes.
pub const NODES: [&str; 3] = ["a", "b", "c"];

/// Number of partitions of the cluster.
pub const PARTITIONS: usize = 12;

/// Maximum time until the store accepts requests, or until all nodes lead equal shares.
const START_DEADLINE: Duration = Duration::from_secs(90);

/// Access key and secret of the store, which listens on loopback only.
const CREDENTIALS: [&str; 2] = ["bench", "bench-secret"];

/// A bucket and the addresses of the nodes that share it.
pub struct BenchCluster {
    firn: System,
    dir: PathBuf,
    store: Option<Gateway>,
    peers: Vec<String>,
}

/// versitygw, an S3 server over a folder, which is killed when this value is dropped.
struct Gateway {
    child: Child,
    endpoint: String,
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // This fails if the process has already exited.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Number and bytes of objects that nodes created in the bucket.
#[derive(Clone, Copy, Debug, Default)]
pub struct CreatedObjects {
    /// Number of objects, all kinds together.
    pub count: f64,
    /// Sum of their lengths.
    pub bytes: f64,
}

impl BenchCluster {
    /// Starts the store below `dir` if versitygw is installed. Otherwise, a folder is the bucket.
    pub fn create(firn: &System, dir: &Path) -> Result<Self, String> {
        let error = |e: std::io::Error| format!("{}: {e}", dir.display());
        fs::create_dir_all(dir.join("buckets/metrics")).map_err(error)?;
        fs::create_dir_all(dir.join("metadata")).map_err(error)?;
        fs::write(dir.join("access.key"), CREDENTIALS[0]).map_err(error)?;
        fs::write(dir.join("secret.key"), CREDENTIALS[1]).map_err(error)?;
        let named = std::env::var_os("BENCH_VERSITYGW").map(PathBuf::from);
        let store = match named.or_else(|| on_path("versitygw")) {
            Some(program) => Some(Gateway::start(&program, dir)?),
            None => {
                say("versitygw is not on PATH: the bucket is a folder");
                None
            }
        };
        let port = || free_port().map_err(|e| format!("free port: {e}"));
        let peers = NODES.iter().map(|_| Ok(format!("127.0.0.1:{}", port()?)));
        let cluster = Self {
            firn: firn.clone(),
            dir: dir.to_owned(),
            store,
            peers: peers.collect::<Result<_, String>>()?,
        };
        cluster.wait_for_store()?;
        Ok(cluster)
    }

    /// Returns the name of the store for the table.
    pub fn store_name(&self) -> &'static str {
        match self.store {
            Some(_) => "versitygw",
            None => "a folder",
        }
    }

    /// Returns the folder that contains the objects.
    pub fn folder(&self) -> PathBuf {
        self.dir.join("buckets")
    }

    /// Returns the CPU seconds of the store since its start; zero for a folder.
    pub fn store_cpu_seconds(&self) -> Result<f64, String> {
        let Some(store) = &self.store else {
            return Ok(0.0);
        };
        let usage = process::usage(store.child.id()).ok_or("versitygw is gone from /proc")?;
        Ok(usage.cpu_seconds)
    }

    /// Starts all nodes at once and waits until they lead equal shares.
    pub fn start(&self, flush_interval: &str) -> Result<BenchNodes<'_>, String> {
        let mut nodes = BenchNodes {
            cluster: self,
            flush_interval: flush_interval.to_owned(),
            nodes: Default::default(),
        };
        nodes.restart_ended()?;
        nodes.wait_for_balance()?;
        Ok(nodes)
    }

    fn wait_for_store(&self) -> Result<(), String> {
        let Some(store) = &self.store else {
            return Ok(());
        };
        let address = store.endpoint.trim_start_matches("http://");
        poll("versitygw", || {
            Ok(std::net::TcpStream::connect(address).is_ok())
        })
    }

    fn config(&self, node: usize, flush_interval: &str) -> String {
        let dir = self.dir.display();
        let bucket = match &self.store {
            None => format!("bucket: \"file://{dir}/buckets/metrics\""),
            Some(store) => format!(
                "bucket: s3://metrics/bench\n    bucket_options:\n      endpoint: {}\n      region: \
                 us-east-1\n      access_key_file: {dir}/access.key\n      secret_key_file: \
                 {dir}/secret.key",
                store.endpoint
            ),
        };
        format!(
            "global: {{scrape_interval: 10m}}\nfirn:\n  cluster:\n    {bucket}\n    node: {}\n    \
             listen: {}\n    peers: [{}]\n    partitions: {PARTITIONS}\n    flush_interval: \
             {flush_interval}\n",
            NODES[node],
            self.peers[node],
            self.peers.join(", ")
        )
    }
}

impl Gateway {
    fn start(program: &Path, dir: &Path) -> Result<Self, String> {
        let port = free_port().map_err(|e| format!("free port: {e}"))?;
        let log = dir.join("versitygw.log");
        let output = || File::create(&log).map_err(|e| format!("{}: {e}", log.display()));
        // Its metadata is in files beside the objects: not every file system has attributes.
        let child = Command::new(program)
            .args(["--access", CREDENTIALS[0], "--secret", CREDENTIALS[1]])
            .args(["--port", &format!("127.0.0.1:{port}"), "--quiet"])
            .args(["posix", "--sidecar"])
            .args([dir.join("metadata"), dir.join("buckets")])
            .stdin(Stdio::null())
            .stdout(output()?)
            .stderr(Stdio::null())
            .spawn()
            .map_err(|e| format!("start {}: {e}", program.display()))?;
        let endpoint = format!("http://127.0.0.1:{port}");
        Ok(Self { child, endpoint })
    }
}

/// The running nodes of a cluster. A node that was killed can start again.
pub struct BenchNodes<'a> {
    cluster: &'a BenchCluster,
    flush_interval: String,
    nodes: [Option<Running>; NODES.len()],
}

/// A node that can be killed while the others are used.
pub struct Victim<'a>(&'a mut Option<Running>);

impl Victim<'_> {
    /// Kills the process with SIGKILL.
    pub fn kill(self) -> Result<(), String> {
        self.0.take().map_or(Ok(()), Running::kill)
    }
}

impl BenchNodes<'_> {
    /// Returns the nodes that run.
    pub fn running(&self) -> Vec<&Running> {
        self.nodes.iter().flatten().collect()
    }

    /// Returns the last node, and the other ones.
    pub fn split_last(&mut self) -> (Victim<'_>, Vec<&Running>) {
        let (last, others) = self.nodes.split_last_mut().expect("three nodes");
        (Victim(last), others.iter().flatten().collect())
    }

    /// Starts all nodes that do not run, at the same time, and waits until they are ready.
    pub fn restart_ended(&mut self) -> Result<(), String> {
        let (cluster, flush_interval) = (self.cluster, &self.flush_interval);
        thread::scope(|scope| {
            let ended = self.nodes.iter_mut().enumerate();
            let starts: Vec<_> = ended
                .filter(|(_, node)| node.is_none())
                .map(|(n, node)| {
                    scope.spawn(move || {
                        let dir = cluster.dir.join(NODES[n]);
                        let config = cluster.config(n, flush_interval);
                        *node = Some(cluster.firn.start_with(&dir, &config)?);
                        Ok(())
                    })
                })
                .collect();
            let mut starts = starts.into_iter();
            starts.try_for_each(|start| start.join().expect("a start does not panic"))
        })
    }

    /// Stops all nodes with SIGTERM.
    pub fn stop(self) -> Result<(), String> {
        let mut nodes = self.nodes.into_iter().flatten();
        nodes.try_for_each(|node| node.stop().map(drop))
    }

    /// Kills the node with this index.
    pub fn kill(&mut self, node: usize) -> Result<(), String> {
        Victim(&mut self.nodes[node]).kill()
    }

    /// Returns the index of the node that leads most partitions, once all partitions have a leader
    /// that each node sees, and the URL at which another node accepts writes.
    pub fn choose_victim(&self) -> Result<(usize, String), String> {
        let mut shares = [0; NODES.len()];
        poll("leaders of all partitions", || {
            shares = self.agreed_shares()?.unwrap_or_default();
            Ok(shares.iter().sum::<usize>() == PARTITIONS)
        })?;
        let victim = (0..NODES.len()).max_by_key(|n| shares[*n]).unwrap_or(0);
        let survivor = self.nodes[(victim + 1) % NODES.len()].as_ref();
        let survivor = survivor.ok_or("the survivor does not run")?;
        Ok((victim, survivor.write_url()))
    }

    fn wait_for_balance(&self) -> Result<(), String> {
        poll("equal shares", || {
            let shares = self.agreed_shares()?;
            Ok(shares == Some([PARTITIONS / NODES.len(); NODES.len()]))
        })
    }

    /// Returns the number of partitions that each node leads, if all nodes report the same.
    fn agreed_shares(&self) -> Result<Option<[usize; NODES.len()]>, String> {
        let mut views = Vec::new();
        for node in self.running() {
            views.push(leader_counts(&read_text(node, "/api/v1/status/cluster")?)?);
        }
        Ok(views
            .first()
            .filter(|first| views.iter().all(|v| v == *first))
            .copied())
    }
}

/// Sums the objects that the nodes created, by their metrics; zero for nodes without a bucket.
pub fn created_objects(nodes: &[&Running]) -> Result<CreatedObjects, String> {
    let mut created = CreatedObjects::default();
    for node in nodes {
        let text = read_text(node, "/metrics")?;
        let value = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|value| value.trim().parse::<f64>().ok())
                .unwrap_or(0.0)
        };
        created.bytes += value("firn_bucket_bytes_total{op=\"put_new\"}");
        created.count += value("firn_bucket_requests_total{op=\"put_new\",outcome=\"stored\"}");
    }
    Ok(created)
}

/// Returns a body of remote write with one sample of each of `series` series.
pub fn probe_body(series: usize, value: usize, time_ms: i64) -> Vec<u8> {
    let mut batch = Batch::default();
    for number in 0..series {
        let number = number.to_string();
        let labels = Labels::from_pairs([(METRIC_NAME, "probe"), ("number", &number)]);
        batch.push_series(labels.as_ref(), &[(time_ms, value as f64)]);
    }
    body::encode(&batch)
}

fn read_text(node: &Running, path: &str) -> Result<String, String> {
    let url = format!("{}{path}", node.url);
    let mut answer = ureq::get(&url).call().map_err(|e| format!("{url}: {e}"))?;
    let body = answer.body_mut().with_config().limit(64 << 20);
    body.read_to_string().map_err(|e| format!("{url}: {e}"))
}

fn leader_counts(text: &str) -> Result<[usize; NODES.len()], String> {
    let status: Value = serde_json::from_str(text).map_err(|e| e.to_string())?;
    let partitions = status["data"]["partitions"].as_array();
    let leaders = partitions.ok_or("the status has no partitions")?.iter();
    let leaders: Vec<&str> = leaders.filter_map(|p| p["leader"].as_str()).collect();
    Ok(NODES.map(|node| leaders.iter().filter(|leader| **leader == node).count()))
}

fn poll(what: &str, mut is_done: impl FnMut() -> Result<bool, String>) -> Result<(), String> {
    let start = Instant::now();
    while !is_done()? {
        if start.elapsed() > START_DEADLINE {
            return Err(format!("waited {START_DEADLINE:?} for {what}"));
        }
        thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

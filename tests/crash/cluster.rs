//! Rounds of failures of a cluster of three nodes on one bucket, under a load.
//!
//! ```text
//! round: clocks move on -> load -> a fault: kill -9 of nodes, some with their folder, a stop, a
//!   suspension, kills during the start -> all nodes run again -> each node is compared
//! over an S3 server also: lost answers, 500, 503, 409, cut bodies, slow lists, outages
//! at the end: all nodes are killed, their folders deleted -> start -> compare -> audit
//! ```
//!
//! The clocks of the nodes differ, and move on by up to 45 minutes between rounds, so that blocks
//! are cut and merged while nodes fail. A sample must be in every answer that begins after its
//! acknowledgement, once and with its value. Requests may fail with 503 meanwhile.

use super::bucket_plan::BucketPlan;
use super::shifted_clock::{ShiftedClock, compile_shift};
use super::{first_time, setting};
use crate::harness::bucket_proxy::BucketProxy;
use crate::harness::choices::Choices;
use crate::harness::cluster::{NODES, ProxiedStore, TestCluster, wait_within};
use crate::harness::ledger::check_everywhere;
use crate::harness::load::{ClusterLoad, LoadOptions, LoadParts, wall_clock_ms};
use crate::harness::server::{Server, spawn};
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Default number of rounds: about half a minute.
const ROUNDS: u64 = 5;

/// Default number of rounds on a failing store: less than half a minute.
const STORE_ROUNDS: u64 = 3;

const WRITERS: usize = 3;

/// Settings of all nodes.
pub const KEYS: &str = "flush_interval: 50ms, read_lease: 500ms, strong_wait: 5s";

/// Series that exist in one round only.
const NEW_SERIES: u64 = 3;

/// Number of rounds between comparisons of all samples, and audits. Other comparisons cover only
/// the last round.
const FULL_CHECK_ROUNDS: u64 = 10;

/// Writes that must be acknowledged at the end of a round, when all nodes run.
const LAST_WRITES: u64 = 20;

/// The longest time until they are.
pub const ROUND_MAX: Duration = Duration::from_secs(60);

/// Largest move of the clocks between two rounds, in seconds.
const MOVE_MAX_S: u64 = 45 * 60;

/// Largest difference of a clock from the others, in seconds.
const SKEW_MAX_S: u64 = 60;

/// A fault of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum NodeFault {
    /// One node is killed.
    Kill,
    /// One node is killed, and its data folder deleted.
    KillAndDelete,
    /// Two nodes are killed, one after the other.
    KillTwo,
    /// All nodes are killed.
    KillAll,
    /// One node stops by SIGTERM.
    Stop,
    /// One node is suspended for longer than its lease, and wakes up.
    Suspend,
    /// One node is killed, and killed again while it starts.
    KillTwice,
}

impl NodeFault {
    /// Chooses a fault. During an outage of the bucket no node stops, since that would fail.
    fn choose(choices: &mut Choices, is_outage: bool) -> Self {
        match choices.below(20) {
            0..6 => Self::Kill,
            6..12 => Self::KillAndDelete,
            12..14 => Self::KillTwo,
            14 => Self::KillAll,
            15..17 if is_outage => Self::Suspend,
            15..17 => Self::Stop,
            17 => Self::Suspend,
            _ => Self::KillTwice,
        }
    }
}

/// The nodes of a cluster, their clocks, and the load.
pub struct FailingNodes {
    cluster: TestCluster,
    servers: Vec<Option<Server>>,
    library: PathBuf,
    /// The clocks of the nodes.
    pub clocks: Vec<ShiftedClock>,
    /// The shift of all clocks in seconds.
    shift_s: i64,
    /// Whether requests to the bucket fail.
    has_bucket_faults: bool,
    /// The parts of the load.
    pub parts: Arc<LoadParts>,
}

impl FailingNodes {
    /// Starts three nodes with clocks in `folder`, on a bucket in `store` or in a folder.
    pub fn start(folder: &Path, store: Option<ProxiedStore>) -> Self {
        let clock = |node: &&str| ShiftedClock::create(&folder.join(format!("clock-{node}")));
        let mut nodes = Self {
            cluster: TestCluster::with_store(store, KEYS, &[]),
            servers: NODES.iter().map(|_| None).collect(),
            library: compile_shift(folder),
            clocks: NODES.iter().map(clock).collect(),
            shift_s: 0,
            has_bucket_faults: false,
            parts: LoadParts::new(WRITERS),
        };
        nodes.cluster.create_format();
        nodes.start_missing();
        nodes
    }

    fn spawn(&self, index: usize) -> Server {
        let mut command = self.cluster.node_command(index);
        self.clocks[index].apply(&self.library, &mut command);
        Server::from_child(spawn(command))
    }

    /// Starts the nodes that do not run, at once, and waits until they are ready.
    fn start_missing(&mut self) {
        let missing = (0..NODES.len()).filter(|n| self.servers[*n].is_none());
        let missing: Vec<usize> = missing.collect();
        for index in &missing {
            self.servers[*index] = Some(self.spawn(*index));
        }
        for index in missing {
            let server = self.node(index);
            let http = server.http();
            wait_within("a node to be ready", ROUND_MAX, || {
                http.get("/-/ready").status == 200
            });
            self.parts.doors.open(index, &server.address);
        }
    }

    /// Returns a running node.
    pub fn node(&self, index: usize) -> &Server {
        self.servers[index].as_ref().expect("a running node")
    }

    fn kill(&mut self, index: usize) {
        self.parts.doors.close(index);
        self.servers[index].take().expect("a running node").kill();
    }

    /// Kills all nodes, deletes their folders, and starts them again.
    fn start_cold(&mut self) {
        for index in 0..NODES.len() {
            self.kill(index);
            self.delete_folder(index);
        }
        self.start_missing();
    }

    fn delete_folder(&self, index: usize) {
        std::fs::remove_dir_all(self.cluster.data(NODES[index])).unwrap();
    }

    /// Moves all clocks on, each by a different amount.
    fn move_clocks(&mut self, choices: &mut Choices) {
        self.shift_s += (MOVE_MAX_S - choices.below(MOVE_MAX_S / 2)) as i64;
        for clock in &self.clocks {
            let skew = choices.below(2 * SKEW_MAX_S) as i64 - SKEW_MAX_S as i64;
            clock.set(self.shift_s + skew);
        }
    }

    /// Carries out a fault of the node with this index. Nodes may be missing afterwards.
    fn fail(&mut self, fault: NodeFault, index: usize, choices: &mut Choices) {
        let pause = |choices: &mut Choices, ms| {
            std::thread::sleep(Duration::from_millis(choices.below(ms)));
        };
        match fault {
            NodeFault::Kill => self.kill(index),
            NodeFault::KillAndDelete => {
                self.kill(index);
                self.delete_folder(index);
            }
            NodeFault::KillTwo => {
                self.kill(index);
                pause(choices, 5_000);
                self.kill((index + 1) % NODES.len());
            }
            NodeFault::KillAll => (0..NODES.len()).for_each(|n| self.kill(n)),
            NodeFault::Stop => {
                self.parts.doors.close(index);
                let server = self.servers[index].take().expect("a running node");
                assert!(server.stop().success(), "a stop with an error");
            }
            NodeFault::Suspend => {
                self.parts.doors.close(index);
                self.node(index).signal(Signal::STOP);
                pause(choices, 8_000);
                self.node(index).signal(Signal::CONT);
                self.parts.doors.open(index, &self.node(index).address);
            }
            NodeFault::KillTwice => {
                self.kill(index);
                let server = self.spawn(index);
                pause(choices, 4_000);
                server.kill();
            }
        }
        // Some nodes start again before the others have taken over, some after it.
        pause(choices, 5_000);
    }

    /// Runs one round, from the load to the comparison.
    fn run_round(&mut self, round: u64, choices: &mut Choices) -> (NodeFault, Duration) {
        self.move_clocks(choices);
        let ahead_ms = self.shift_s * 1_000;
        let from_ms = wall_clock_ms() + ahead_ms;
        let options = LoadOptions {
            new_series: (1_000 + round * NEW_SERIES, NEW_SERIES),
            late_ms: Some(20 * 60_000),
            ahead_ms,
            ..LoadOptions::default()
        };
        let mut plan = BucketPlan::default();
        if self.has_bucket_faults {
            plan = BucketPlan::choose(choices, NODES.len());
            println!("round {round}: {plan:?}");
        }
        plan.begin(self.cluster.proxies());
        let load = ClusterLoad::start(&self.parts, options);
        std::thread::sleep(Duration::from_millis(200 + choices.below(1_000)));
        let fault = NodeFault::choose(choices, plan.has_outage());
        let index = choices.below(NODES.len() as u64) as usize;
        let begin = Instant::now();
        plan.run_outage(self.cluster.proxies());
        self.fail(fault, index, choices);
        plan.begin(self.cluster.proxies());
        self.start_missing();
        let target = self.parts.counts.write_count() + LAST_WRITES;
        wait_within("writes after a fault", ROUND_MAX, || {
            self.parts.counts.write_count() >= target
        });
        load.stop();
        let is_full = round.is_multiple_of(FULL_CHECK_ROUNDS);
        self.compare(if is_full { 0 } else { from_ms });
        if is_full {
            self.audit(&format!("in round {round}"));
        }
        let when = format!("round {round}, {fault:?} of {}", NODES[index]);
        self.parts.findings.assert_none(&when);
        (fault, begin.elapsed())
    }

    /// Compares the answers of all nodes with the samples from `from_ms` on.
    pub fn compare(&self, from_ms: i64) {
        let servers: Vec<&Server> = self.servers.iter().flatten().collect();
        check_everywhere(&servers, &self.parts.ledgers, from_ms, &self.parts.findings);
    }

    /// Adds a finding unless the audit of the bucket finds nothing.
    fn audit(&self, when: &str) {
        if let Err(text) = self.cluster.audit() {
            self.parts.findings.add("audit", &format!("{when}: {text}"));
        }
    }

    fn block_count(&self) -> usize {
        let mut folders = vec![self.cluster.bucket().join("blk")];
        let mut count = 0;
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(&folder).into_iter().flatten() {
                let path = entry.unwrap().path();
                count += usize::from(path.ends_with("meta.json"));
                folders.extend(path.is_dir().then_some(path));
            }
        }
        count
    }

    /// Prints the outcome of some rounds, and panics if there is any finding.
    fn report(&self, rounds: u64) {
        let (parts, findings) = (&self.parts, &self.parts.findings);
        println!(
            "rounds {rounds}, acked {}, {findings}\n{} blocks, {} h of data time; {}",
            parts.acked_count(),
            self.block_count(),
            self.shift_s / 3_600,
            parts.counts
        );
        findings.assert_none("the run");
    }
}

/// Runs rounds of failures, and compares everything at the end.
fn run_rounds(store: Option<ProxiedStore>, has_bucket_faults: bool, default_rounds: u64) {
    let rounds = setting("FIRN_CRASH_ROUNDS").unwrap_or(default_rounds);
    let seed = seed();
    println!("FIRN_SEED={seed} FIRN_CRASH_ROUNDS={rounds}");
    let mut choices = Choices::new(seed);
    let folder = tempfile::tempdir().unwrap();
    let mut nodes = FailingNodes::start(folder.path(), store);
    nodes.has_bucket_faults = has_bucket_faults;
    let mut durations = BTreeMap::<NodeFault, Vec<Duration>>::new();
    for round in 1..=rounds {
        let (fault, duration) = nodes.run_round(round, &mut choices);
        println!("round {round}: {fault:?}, {duration:?}");
        durations.entry(fault).or_default().push(duration);
    }
    let proxies = nodes.cluster.proxies();
    proxies.iter().for_each(BucketProxy::heal);
    nodes.start_cold();
    nodes.compare(0);
    nodes.servers.iter_mut().flatten().for_each(|server| {
        server.signal(Signal::TERM);
        assert!(server.wait_end().success(), "a stop with an error");
    });
    nodes.audit("at the end");
    let counts = durations.iter().map(|(fault, times)| (fault, times.len()));
    println!("{:?}", counts.collect::<BTreeMap<_, _>>());
    for proxy in nodes.cluster.proxies() {
        println!("requests with faults: {:?}", proxy.counts());
    }
    nodes.report(rounds);
    // Fewer rounds may be too short for a cut.
    assert!(
        rounds < ROUNDS || nodes.block_count() > 0,
        "no block was cut"
    );
}

/// Returns the seed of all choices.
fn seed() -> u64 {
    setting("FIRN_SEED").unwrap_or(first_time() as u64)
}

#[test]
fn cluster_with_failing_nodes_keeps_every_acked_sample_and_answers_completely() {
    let is_s3 = std::env::var_os("FIRN_CRASH_BUCKET").is_some_and(|kind| kind == "s3");
    let store = is_s3.then(|| ProxiedStore::start(seed()));
    // Without the server the rounds over a folder would run twice.
    if store.as_ref().is_none_or(Option::is_some) {
        run_rounds(store.flatten(), false, ROUNDS);
    }
}

#[test]
fn cluster_with_failing_nodes_on_a_failing_store_keeps_every_acked_sample() {
    if let Some(store) = ProxiedStore::start(seed()) {
        run_rounds(Some(store), true, STORE_ROUNDS);
    }
}

/// Removes the newest object of each log.
fn remove_newest_objects(cluster: &TestCluster) {
    for log in std::fs::read_dir(cluster.bucket().join("log")).unwrap() {
        let objects = std::fs::read_dir(log.unwrap().path()).unwrap();
        let newest = objects.map(|object| object.unwrap().path()).max();
        std::fs::remove_file(newest.expect("a FENCE at least")).unwrap();
    }
}

#[test]
fn objects_removed_from_the_bucket_are_noticed_by_the_checker() {
    let folder = tempfile::tempdir().unwrap();
    let mut nodes = FailingNodes::start(folder.path(), None);
    let load = ClusterLoad::start(&nodes.parts, LoadOptions::default());
    wait_within("writes", ROUND_MAX, || {
        nodes.parts.counts.write_count() >= LAST_WRITES
    });
    (0..NODES.len()).for_each(|index| nodes.kill(index));
    load.stop();
    remove_newest_objects(&nodes.cluster);
    nodes.start_missing();
    nodes.compare(0);
    let findings = nodes.parts.findings.to_string();
    assert!(!findings.starts_with("lost 0,"), "{findings}");
}

//! Three nodes under a load of writers and readers, which compare all answers.

use super::{FAST, LIFECYCLE};
use crate::harness::cluster::{TestCluster, wait_within};
use crate::harness::ledger::check_everywhere;
use crate::harness::load::{ClusterLoad, LoadOptions, LoadParts};
use crate::harness::server::Server;
use std::sync::Arc;
use std::time::Duration;

/// The longest time until writes to the partitions of a killed node are accepted again.
pub const FAILOVER_MAX: Duration = Duration::from_secs(15);

/// Requests that must be acknowledged before a fault, and after it.
const WRITES: u64 = 40;

const WRITERS: usize = 3;

/// Three nodes under a load.
pub struct LoadedNodes {
    pub cluster: TestCluster,
    pub servers: Vec<Option<Server>>,
    pub parts: Arc<LoadParts>,
    load: ClusterLoad,
}

impl LoadedNodes {
    /// Starts three nodes on a folder, and the load.
    pub fn start() -> Self {
        Self::start_on(TestCluster::new(FAST, &[LIFECYCLE]))
    }

    /// Starts the nodes of `cluster` and the load.
    pub fn start_on(cluster: TestCluster) -> Self {
        let servers: Vec<_> = cluster.start_all().into_iter().map(Some).collect();
        let parts = LoadParts::new(WRITERS);
        for (index, server) in servers.iter().flatten().enumerate() {
            parts.doors.open(index, &server.address);
        }
        let load = ClusterLoad::start(&parts, LoadOptions::default());
        let nodes = Self {
            cluster,
            servers,
            parts,
            load,
        };
        nodes.await_writes();
        nodes
    }

    /// Waits until a number of further writes is acknowledged.
    pub fn await_writes(&self) {
        let target = self.parts.counts.write_count() + WRITES;
        wait_within("writes", 2 * FAILOVER_MAX, || {
            self.parts.counts.write_count() >= target
        });
    }

    /// Returns a running node.
    pub fn node(&self, index: usize) -> &Server {
        self.servers[index].as_ref().expect("a running node")
    }

    /// Removes a node and its address for clients.
    pub fn take(&mut self, index: usize) -> Server {
        self.parts.doors.close(index);
        self.servers[index].take().expect("a running node")
    }

    /// Starts a node that was removed, with an empty data folder.
    pub fn restart_empty(&mut self, index: usize) {
        let data = self.cluster.data(["a", "b", "c"][index]);
        std::fs::remove_dir_all(data).unwrap();
        let server = self.cluster.start(index);
        self.parts.doors.open(index, &server.address);
        self.servers[index] = Some(server);
    }

    /// Ends the load, compares the answers of all running nodes, and stops them.
    pub fn finish(self, ack_max: Duration) -> TestCluster {
        self.load.stop();
        let running: Vec<&Server> = self.servers.iter().flatten().collect();
        check_everywhere(&running, &self.parts.ledgers, 0, &self.parts.findings);
        let counts = &self.parts.counts;
        println!("{} samples acked; {counts}", self.parts.acked_count());
        self.parts.findings.assert_none(&counts.to_string());
        assert!(counts.slowest_ack() <= ack_max, "{counts}");
        let reads = counts.reads.load(std::sync::atomic::Ordering::Relaxed);
        assert!(reads >= WRITES, "{counts}");
        self.cluster
    }
}

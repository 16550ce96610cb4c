//! A process of a simulated node: real stores on a disk of its own, which is lost with it.

use super::bucket::{ProcessBucket, ProcessControl, WaitingBucket};
use super::cluster::SimCluster;
use super::{NodeSimulation, SimFlaw};
use crate::engine::EngineClock;
use crate::home::HomeOptions;
use crate::ids::PartitionId;
use crate::members::{MemberTable, OwnMember};
use crate::node::{ClusterNode, NodeOptions};
use firn_bucket::sim::{SimFault, SimFaults};
use firn_model::env::sim::{SimClock, sim_env_with};
use firn_model::env::{Compute, Job, JobKind};
use firn_model::sync::lock;
use firn_storage::store::StoreOptions;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const MINUTE: i64 = 60_000;

/// Runs jobs of the log at once, and keeps the others until the simulation runs them.
#[derive(Default)]
pub struct QueuedCompute(Mutex<VecDeque<Job>>);

impl QueuedCompute {
    pub fn pop(&self) -> Option<Job> {
        lock(&self.0).pop_front()
    }

    fn clear(&self) {
        // A job that is dropped may add another one.
        let jobs = std::mem::take(&mut *lock(&self.0));
        drop(jobs);
    }
}

impl Compute for QueuedCompute {
    fn spawn(&self, work: JobKind, job: Job) {
        if work == JobKind::Log {
            job();
        } else {
            lock(&self.0).push_back(job);
        }
    }

    fn for_each(&self, tasks: usize, task: &(dyn Fn(usize) + Sync)) {
        (0..tasks).for_each(task);
    }

    fn threads(&self) -> usize {
        1
    }
}

/// The instants at which a process acts again.
#[derive(Default)]
pub struct ProcessSchedule {
    pub exchange: Duration,
    pub plan: Duration,
}

pub struct SimProcess {
    /// The number of the node.
    pub index: usize,
    pub incarnation: u64,
    pub node: ClusterNode,
    pub table: Mutex<MemberTable>,
    pub control: Arc<ProcessControl>,
    pub compute: Arc<QueuedCompute>,
    pub schedule: Mutex<ProcessSchedule>,
    wall: Arc<SimClock>,
    clock: EngineClock,
    is_busy: AtomicBool,
    /// True while maintenance of the stores runs.
    is_maintained: AtomicBool,
    is_read: AtomicBool,
}

/// A read of the stores of a process. No maintenance begins meanwhile: it would wait for the read.
pub struct ProcessRead<'p>(&'p SimProcess);

impl Drop for ProcessRead<'_> {
    fn drop(&mut self) {
        self.0.is_read.store(false, Ordering::Relaxed);
    }
}

/// Work of a process that may wait. One thread does it, so a process does one at a time.
pub struct ProcessWork<'p>(&'p SimProcess);

impl Drop for ProcessWork<'_> {
    fn drop(&mut self) {
        self.0.is_busy.store(false, Ordering::Relaxed);
        self.0.is_maintained.store(false, Ordering::Relaxed);
    }
}

impl SimProcess {
    /// Starts a process of node `index` with an empty disk.
    pub fn start(cluster: &SimCluster, index: usize, incarnation: u64) -> Self {
        let compute = Arc::new(QueuedCompute::default());
        let sim = sim_env_with(cluster.seed ^ (incarnation << 32), compute.clone());
        let control = Arc::new(ProcessControl::new());
        let store = &cluster.store;
        let faults = match cluster.flaw {
            Some(SimFlaw::IgnoresCondition) => SimFaults::always(SimFault::ConditionStripped),
            _ => SimFaults::tolerated(cluster.faults_one_in),
        };
        let bucket = ProcessBucket {
            faulty: Arc::new(store.client(faults.clone())),
            calm: Arc::new(match cluster.flaw {
                Some(SimFlaw::IgnoresCondition) => store.client(faults),
                _ => store.client(SimFaults::none()),
            }),
            control: control.clone(),
        };
        let pass_time = cluster.pass_time_of(&control);
        let of_bucket = pass_time.clone();
        let home = HomeOptions {
            gc_grace: Duration::from_secs(30),
            orphan_age: Duration::from_secs(60),
            orphan_interval: Duration::from_secs(20),
            flaw: match cluster.flaw {
                Some(SimFlaw::Home(flaw)) => Some(flaw),
                _ => None,
            },
            ..HomeOptions::default()
        };
        let simulation = NodeSimulation {
            home_bucket: Arc::new(WaitingBucket {
                inner: bucket.clone(),
                pass_time: of_bucket,
            }),
            home,
            flaw: cluster.flaw,
            pass_time: Arc::new(move || {
                pass_time();
            }),
        };
        let clock = cluster.clock(index);
        let options = NodeOptions {
            flush_interval: cluster.flush_interval,
            read_lease: cluster.lease,
            clock: clock.clone(),
            simulation: Some(simulation),
        };
        let late_window_ms = cluster.late_window_ms;
        let store_options = move |partition: PartitionId| StoreOptions {
            shards: 1,
            window_ms: 5 * MINUTE,
            cut_ms: 20 * MINUTE,
            lateness_max_ms: 10 * MINUTE,
            late_window_ms,
            page_segment_bytes: 4 << 10,
            ..StoreOptions::new(format!("/data/{partition}"))
        };
        let (format, env) = (cluster.format(), sim.env.clone());
        let node = ClusterNode::new(Arc::new(bucket), env, format, options, store_options);
        let own = OwnMember {
            name: name(index),
            incarnation,
            address: name(index),
            version: "0.1.0".to_owned(),
        };
        let partitions = cluster.format().partitions.get();
        let mut table = MemberTable::new(own, partitions, clock());
        table.set_peers((0..super::cluster::NODES).filter(|i| *i != index).map(name));
        Self {
            index,
            incarnation,
            node: node.unwrap(),
            table: Mutex::new(table),
            control,
            compute,
            schedule: Mutex::default(),
            wall: sim.clock,
            clock,
            is_busy: AtomicBool::new(false),
            is_maintained: AtomicBool::new(false),
            is_read: AtomicBool::new(false),
        }
    }

    pub fn now(&self) -> Duration {
        (self.clock)()
    }

    /// Sets the wall clock of the process, which differs from those of the others.
    pub fn set_wall_clock(&self) {
        self.wall.set_ms(self.now().as_millis() as i64);
    }

    /// Begins work that may wait, unless the process does other such work, is paused or dead.
    pub fn begin_work(&self) -> Option<ProcessWork<'_>> {
        let runs = !self.control.is_dead() && !self.control.is_paused();
        let begins = runs && !self.is_busy.swap(true, Ordering::Relaxed);
        begins.then(|| ProcessWork(self))
    }

    /// Begins maintenance of the stores, which is work.
    pub fn begin_maintenance(&self) -> Option<ProcessWork<'_>> {
        let is_read = self.is_read.load(Ordering::Relaxed);
        let work = self.begin_work().filter(|_| !is_read);
        if work.is_some() {
            self.is_maintained.store(true, Ordering::Relaxed);
        }
        work
    }

    /// Goes on with other work than maintenance.
    pub fn end_maintenance(&self) {
        self.is_maintained.store(false, Ordering::Relaxed);
    }

    /// Begins a read, unless maintenance or another read runs: the read might wait for it.
    pub fn begin_read(&self) -> Option<ProcessRead<'_>> {
        let is_maintained = self.is_maintained.load(Ordering::Relaxed);
        let runs = !self.control.is_dead() && !self.control.is_paused();
        let begins = runs && !is_maintained && !self.is_read.swap(true, Ordering::Relaxed);
        begins.then(|| ProcessRead(self))
    }

    /// Ends the process: nothing of it is sent or delivered any more.
    pub fn end(&self) {
        self.control.set_dead();
        for log in self.node.logs() {
            firn_model::log::DurableLog::abandon(&log);
        }
        self.compute.clear();
    }
}

/// The name and the address of a node.
pub fn name(index: usize) -> String {
    ["a", "b", "c"][index].to_owned()
}

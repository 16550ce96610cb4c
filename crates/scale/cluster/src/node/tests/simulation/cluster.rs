//! The cluster: its nodes, its time and its network.

use super::SimFlaw;
use super::bucket::{ProcessControl, WaitingBucket};
use super::journal::SimJournal;
use super::process::{SimProcess, name};
use crate::audit::audit;
use crate::cluster_format::{ClusterFormat, LogEngine};
use crate::engine::{BucketLog, EngineClock};
use crate::ids::{ClusterId, PartitionId};
use crate::members::{EXCHANGE_INTERVAL, MemberAction};
use firn_bucket::sim::{SimFaults, SimStore};
use firn_model::env::sim::SimRng;
use firn_model::fingerprint::{FingerprintSeed, HashKind};
use firn_model::sync::lock;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

pub const NODES: usize = 3;

pub const PARTITIONS: NonZeroU32 = NonZeroU32::new(3).unwrap();

/// The number of events of a history.
const STEPS: u64 = 800;

/// The interval of timers.
const TIMER_INTERVAL: Duration = Duration::from_millis(25);

const PLAN_INTERVAL: Duration = Duration::from_millis(200);

/// The longest time of a history. A wait that does not end before is a violation.
const TIME_MAX: Duration = Duration::from_secs(3 * 3600);

/// The time after the end of all faults within which each node must answer.
const RECOVERY_MAX: Duration = Duration::from_secs(240);

pub struct SimCluster {
    me: Weak<SimCluster>,
    pub seed: u64,
    pub flaw: Option<SimFlaw>,
    pub store: SimStore,
    pub rng: SimRng,
    pub faults_one_in: u64,
    pub flush_interval: Duration,
    pub lease: Duration,
    pub late_window_ms: i64,
    pub journal: Mutex<SimJournal>,
    processes: [Mutex<Option<Arc<SimProcess>>>; NODES],
    /// Whether messages from the first node reach the second one.
    links: Mutex<[[bool; NODES]; NODES]>,
    /// The offset and the rate, in parts of a million, of each clock.
    clocks: [(Duration, i64); NODES],
    steps_left: AtomicU64,
    incarnations: AtomicU64,
    is_calm: AtomicBool,
}

impl SimCluster {
    pub fn new(seed: u64, flaw: Option<SimFlaw>) -> Arc<Self> {
        let rng = SimRng::new(seed);
        let clock = |_| {
            let offset = Duration::from_millis(rng.next_below(100_000));
            (offset, rng.next_below(9_900) as i64 - 4_950)
        };
        let clocks = [0, 1, 2].map(clock);
        let cluster = Arc::new_cyclic(|me| Self {
            me: me.clone(),
            seed,
            flaw,
            store: SimStore::new(seed),
            faults_one_in: [0, 15, 40, 200][rng.next_below(4) as usize],
            flush_interval: Duration::from_millis([20, 100][rng.next_below(2) as usize]),
            lease: Duration::from_millis([200, 2_000, 2_000][rng.next_below(3) as usize]),
            late_window_ms: [0, 1_800_000][rng.next_below(2) as usize],
            rng,
            journal: Mutex::default(),
            processes: Default::default(),
            links: Mutex::new([[true; NODES]; NODES]),
            clocks,
            steps_left: AtomicU64::new(STEPS),
            incarnations: AtomicU64::new(0),
            is_calm: AtomicBool::new(false),
        });
        (0..NODES).for_each(|index| cluster.start(index));
        cluster
    }

    pub fn me(&self) -> Weak<SimCluster> {
        self.me.clone()
    }

    /// Runs a history and checks its end.
    pub fn run(&self) {
        while self.steps_left.load(Ordering::Relaxed) > 0 {
            self.step_or_calm();
        }
        self.end_faults();
        if !self.has_violation() {
            self.check_end();
        }
        (0..NODES).for_each(|index| self.kill(index));
        // Requests that no process awaits; they hold what they would be answered to.
        self.store.run_all();
    }

    pub fn has_violation(&self) -> bool {
        lock(&self.journal).violation.is_some()
    }

    /// Runs an event of the history, or ends all faults if there is none left.
    pub fn step_or_calm(&self) {
        let left = self.steps_left.load(Ordering::Relaxed);
        if self.has_violation() {
            self.steps_left.store(0, Ordering::Relaxed);
            (0..NODES).for_each(|index| self.kill(index));
        } else if left > 0 {
            self.steps_left.store(left - 1, Ordering::Relaxed);
            self.step();
        } else {
            self.end_faults();
        }
    }

    pub fn note(&self, line: impl FnOnce() -> String) {
        let now = self.store.now().as_millis();
        lock(&self.journal).note(format!("{now:>7} {}", line()));
    }

    pub fn format(&self) -> ClusterFormat {
        ClusterFormat {
            cluster: ClusterId(7),
            seed: FingerprintSeed([1, 2]),
            hash: HashKind::Nh,
            partitions: PARTITIONS,
            window: NonZeroU32::new(4).unwrap(),
            engine: LogEngine::Bucket,
            min_version: "0.1.0".to_owned(),
        }
    }

    /// Returns the clock of a node, which no restart of its process sets back.
    pub fn clock(&self, index: usize) -> EngineClock {
        let (offset, rate) = self.clocks[index];
        let store = self.store.clone();
        Arc::new(move || {
            let now = store.now().as_micros() as i64;
            offset + Duration::from_micros((now + now * rate / 1_000_000) as u64)
        })
    }

    /// Returns the process of a node that is not dead; it may be paused.
    pub fn process(&self, index: usize) -> Option<Arc<SimProcess>> {
        let process = lock(&self.processes[index]).clone();
        process.filter(|process| !process.control.is_dead())
    }

    /// Returns the process of a node that runs.
    pub fn running(&self, index: usize) -> Option<Arc<SimProcess>> {
        self.process(index).filter(|p| !p.control.is_paused())
    }

    pub fn start(&self, index: usize) {
        let incarnation = self.incarnations.fetch_add(1, Ordering::Relaxed) + 1;
        let process = Arc::new(SimProcess::start(self, index, incarnation));
        if self.is_calm.load(Ordering::Relaxed) {
            process.control.set_calm();
        }
        self.note(|| format!("{} starts as {incarnation}", name(index)));
        *lock(&self.processes[index]) = Some(process);
    }

    pub fn kill(&self, index: usize) {
        let process = lock(&self.processes[index]).take();
        if let Some(process) = process {
            self.note(|| format!("{} ends", name(index)));
            process.end();
        }
    }

    /// Ends the processes whose fuses are burnt.
    fn reap(&self) {
        for index in 0..NODES {
            let is_dead = |p: &Arc<SimProcess>| p.control.is_dead();
            if lock(&self.processes[index]).as_ref().is_some_and(is_dead) {
                self.kill(index);
            }
        }
    }

    pub fn is_linked(&self, from: usize, to: usize) -> bool {
        from == to || lock(&self.links)[from][to]
    }

    pub fn set_link(&self, from: usize, to: usize, is_up: bool) {
        lock(&self.links)[from][to] = is_up;
    }

    /// Ends all faults and pauses, for ever.
    fn end_faults(&self) {
        if self.is_calm.swap(true, Ordering::Relaxed) {
            return;
        }
        self.note(|| "all faults end".to_owned());
        *lock(&self.links) = [[true; NODES]; NODES];
        self.store.set_outage(None);
        for index in 0..NODES {
            let Some(process) = self.process(index) else {
                continue;
            };
            process.control.set_calm();
            lock(&process.table).set_draining(false);
            self.resume(&process);
        }
    }

    /// Returns the wait of a process: time passes and others act. It ends with the process.
    pub fn pass_time_of(
        &self,
        control: &Arc<ProcessControl>,
    ) -> Arc<dyn Fn() -> bool + Send + Sync> {
        let (me, control) = (self.me.clone(), Arc::downgrade(control));
        Arc::new(move || {
            let (Some(cluster), Some(control)) = (me.upgrade(), control.upgrade()) else {
                return false;
            };
            cluster.pass_time(&control);
            !control.is_dead()
        })
    }

    fn pass_time(&self, control: &ProcessControl) {
        if control.is_dead() {
            return self.reap();
        }
        self.advance(Duration::from_millis(5 + self.rng.next_below(40)));
        if self.rng.one_in(10) {
            self.step_or_calm();
        }
        while control.is_paused() && !control.is_dead() {
            self.advance(Duration::from_millis(100));
            if self.rng.one_in(4) {
                self.step_or_calm();
            }
        }
        if self.store.now() > TIME_MAX {
            lock(&self.journal).violate("a wait does not end".to_owned());
            (0..NODES).for_each(|index| self.kill(index));
        }
    }

    /// Lets time pass: requests take effect, replies arrive, timers and plans of nodes run.
    pub fn advance(&self, by: Duration) {
        let end = self.store.now() + by;
        while self.store.now() < end {
            let next = self.store.now() + TIMER_INTERVAL;
            self.store.run_until(next.min(end));
            self.reap();
            for index in 0..NODES {
                if let Some(process) = self.running(index) {
                    self.run_process(&process);
                }
            }
        }
    }

    fn run_process(&self, process: &SimProcess) {
        process.set_wall_clock();
        process.node.logs().iter().for_each(BucketLog::run_timers);
        let now = process.now();
        let mut schedule = lock(&process.schedule);
        let exchanges = now >= schedule.exchange;
        if exchanges {
            schedule.exchange = now + EXCHANGE_INTERVAL;
        }
        let plans = now >= schedule.plan;
        if plans {
            schedule.plan = now + PLAN_INTERVAL;
        }
        drop(schedule);
        if exchanges {
            (0..NODES).for_each(|to| self.exchange(process, to));
        }
        if plans {
            self.carry_out_plan(process);
            self.open_partitions(process);
        }
    }

    /// Sends the report of a process to a node, and the answer back.
    pub fn exchange(&self, from: &SimProcess, to: usize) {
        let Some(peer) = self.running(to).filter(|_| to != from.index) else {
            return;
        };
        if !self.is_linked(from.index, to) {
            return;
        }
        let report = |p: &SimProcess| lock(&p.table).own_report(p.now(), p.node.claims());
        let add = |to: &SimProcess, report| {
            if let Err(conflict) = lock(&to.table).add_report(to.now(), report) {
                lock(&self.journal).violate(conflict.to_string());
            }
        };
        add(&peer, report(from));
        if self.is_linked(to, from.index) {
            let answer = report(&peer);
            lock(&from.table).note_answer(&name(to));
            add(from, answer);
        }
    }

    /// Drops lost partitions, and carries out the plan of a node.
    fn carry_out_plan(&self, process: &SimProcess) {
        let Some(_work) = process.begin_work() else {
            return;
        };
        let ended = process.node.drop_ended();
        let (now, claims) = (process.now(), process.node.claims());
        let mut table = lock(&process.table);
        for (partition, _) in &ended {
            table.note_loss(now, *partition);
        }
        let actions = table.plan(now, &claims);
        drop(table);
        for (partition, reason) in ended {
            self.note(|| format!("{} lost {partition}: {reason}", name(process.index)));
        }
        for action in actions {
            match action {
                MemberAction::TakeOver(partition) => self.take_over(process, partition),
                MemberAction::HandOff(partition) => self.hand_off(process, partition),
            }
        }
    }

    pub fn take_over(&self, process: &SimProcess, partition: PartitionId) {
        self.note(|| format!("{} takes over {partition}", name(process.index)));
        process.node.begin_takeover(partition);
    }

    /// Hands off a partition; the process must have begun work.
    pub fn hand_off(&self, process: &SimProcess, partition: PartitionId) {
        let ended = process.node.hand_off(partition);
        let ended = ended.map_err(|e| e.message);
        self.note(|| format!("{} hands off {partition}: {ended:?}", name(process.index)));
    }

    /// Opens the stores of takeovers.
    fn open_partitions(&self, process: &SimProcess) {
        let Some(_work) = process.begin_maintenance() else {
            return;
        };
        // Jobs of a store that was dropped still hold its folder.
        self.run_jobs(process);
        process.end_maintenance();
        while let Some((partition, opened)) = process.node.open_next() {
            if process.control.is_dead() {
                return;
            }
            match opened {
                Ok(()) => lock(&self.journal).counts.leaderships += 1,
                Err(_) => lock(&process.table).note_loss(process.now(), partition),
            }
            let opened = opened.map_err(|e| e.message);
            self.note(|| format!("{} opens {partition}: {opened:?}", name(process.index)));
        }
    }

    /// Restarts all nodes without faults. Each must answer, and the bucket must be sound.
    fn check_end(&self) {
        for index in 0..NODES {
            self.kill(index);
            self.start(index);
        }
        let end = self.store.now() + RECOVERY_MAX;
        let mut waits: Vec<usize> = (0..NODES).collect();
        while !waits.is_empty() && !self.has_violation() {
            if self.store.now() > end {
                let text = format!("nodes {waits:?} do not answer after the end of all faults");
                return lock(&self.journal).violate(text);
            }
            self.advance(Duration::from_millis(500));
            waits.retain(|index| !self.running(*index).is_some_and(|p| self.read(&p, None)));
        }
        let me = self.me.clone();
        let client = WaitingBucket {
            inner: self.store.client(SimFaults::none()),
            pass_time: Arc::new(move || {
                me.upgrade()
                    .map(|c| c.advance(Duration::from_millis(25)))
                    .is_some()
            }),
        };
        let report = audit(&client, &self.format()).unwrap();
        let mut journal = lock(&self.journal);
        for partition in &report.partitions {
            journal.counts.blocks += partition.blocks;
            journal.counts.checkpointed += u64::from(partition.checkpoints > 0);
        }
        if !report.is_sound() || !report.foreign.is_empty() {
            journal.violate(report.to_string());
        }
    }
}

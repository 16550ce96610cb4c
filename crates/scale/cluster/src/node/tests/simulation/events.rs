//! The events of a history, chosen at random.

use super::cluster::{NODES, PARTITIONS, SimCluster};
use super::process::{SimProcess, name};
use crate::ids::PartitionId;
use firn_bucket::sim::SimOutage;
use firn_model::sync::lock;
use std::sync::Arc;
use std::time::Duration;

impl SimCluster {
    /// Runs a random event.
    pub fn step(&self) {
        match self.rng.next_below(100) {
            0..40 => self.append(),
            40..52 => {
                if let Some(process) = self.random_running() {
                    self.read(&process);
                }
            }
            52..68 => self.advance(Duration::from_millis(1 + self.rng.next_below(300))),
            68..70 => self.advance(Duration::from_millis(1_000 + self.rng.next_below(7_000))),
            70..81 => self.tick(),
            81..83 => self.kill(self.random_node()),
            83..86 => self.start_dead(),
            86..88 => self.pause(),
            88..91 => self.resume_any(),
            91..94 => self.change_links(),
            94 => self.change_outage(),
            95 => self.force_takeover(),
            96 => self.force_hand_off(),
            97 => self.change_drain(),
            98 => self.set_fuse(),
            _ => self.cut_off(),
        }
    }

    pub fn random_node(&self) -> usize {
        self.rng.next_below(NODES as u64) as usize
    }

    pub fn random_partition(&self) -> PartitionId {
        PartitionId(self.rng.next_below(u64::from(PARTITIONS.get())) as u32)
    }

    pub fn random_running(&self) -> Option<Arc<SimProcess>> {
        self.running(self.random_node())
    }

    /// Runs the maintenance of the stores of a node.
    fn tick(&self) {
        let Some(process) = self.random_running() else {
            return;
        };
        let Some(_work) = process.begin_work() else {
            return;
        };
        for _ in 0..1 + self.rng.next_below(6) {
            for open in process.node.open_stores().stores().iter() {
                open.store.tick();
            }
            self.run_jobs(&process);
        }
        self.note(|| format!("{} ticks", name(process.index)));
    }

    /// Runs the jobs of a process that has begun work.
    pub fn run_jobs(&self, process: &SimProcess) {
        while !process.control.is_dead()
            && let Some(job) = process.compute.pop()
        {
            job();
        }
    }

    fn start_dead(&self) {
        let index = self.random_node();
        if self.process(index).is_none() {
            self.start(index);
        }
    }

    fn pause(&self) {
        if let Some(process) = self.random_running() {
            self.note(|| format!("{} is paused", name(process.index)));
            process.control.set_paused(true);
        }
    }

    fn resume_any(&self) {
        if let Some(process) = self.process(self.random_node()) {
            self.resume(&process);
        }
    }

    /// Ends a pause. What arrived meanwhile is handled before or after the timers.
    pub fn resume(&self, process: &SimProcess) {
        if !process.control.is_paused() {
            return;
        }
        self.note(|| format!("{} goes on", name(process.index)));
        process.control.set_paused(false);
        if self.rng.one_in(2) {
            let logs = process.node.logs();
            logs.iter().for_each(crate::engine::BucketLog::run_timers);
        }
        process.control.empty_inbox();
    }

    /// Breaks a link in one direction or isolates a node, or repairs all links.
    fn change_links(&self) {
        let (from, to) = (self.random_node(), self.random_node());
        match self.rng.next_below(4) {
            0 => {
                self.note(|| format!("no message from {} to {}", name(from), name(to)));
                self.set_link(from, to, false);
            }
            1 => {
                self.note(|| format!("{} is isolated", name(from)));
                for other in 0..NODES {
                    self.set_link(from, other, false);
                    self.set_link(other, from, false);
                }
            }
            _ => {
                self.note(|| "all links are up".to_owned());
                for from in 0..NODES {
                    (0..NODES).for_each(|to| self.set_link(from, to, true));
                }
            }
        }
    }

    fn change_outage(&self) {
        let outage = match self.rng.next_below(6) {
            0 => Some(SimOutage::Silent),
            1 => Some(SimOutage::Refusing),
            _ => None,
        };
        self.note(|| format!("outage of the bucket: {outage:?}"));
        self.store.set_outage(outage);
    }

    /// Breaks the link of a node to the bucket, or repairs those of all nodes.
    fn cut_off(&self) {
        let is_cut_off = self.rng.one_in(2);
        for index in 0..NODES {
            let process = self.process(index);
            let chosen = process.filter(|_| !is_cut_off || self.rng.one_in(3));
            if let Some(process) = chosen {
                self.note(|| format!("{} has no bucket: {is_cut_off}", name(index)));
                process.control.set_cut_off(is_cut_off);
            }
        }
    }

    /// Takes over a partition without a reason, as after a wrong report.
    fn force_takeover(&self) {
        let partition = self.random_partition();
        if let Some(process) = self.random_running()
            && process.begin_work().is_some()
        {
            self.take_over(&process, partition);
        }
    }

    fn force_hand_off(&self) {
        let partition = self.random_partition();
        if let Some(process) = self.random_running()
            && let Some(_work) = process.begin_work()
        {
            self.hand_off(&process, partition);
        }
    }

    fn change_drain(&self) {
        if let Some(process) = self.random_running() {
            let mut table = lock(&process.table);
            let is_draining = !table.is_draining();
            table.set_draining(is_draining);
            drop(table);
            self.note(|| format!("{} drains: {is_draining}", name(process.index)));
        }
    }

    /// Lets a process end at one of its next requests.
    fn set_fuse(&self) {
        if let Some(process) = self.random_running() {
            process.control.set_fuse(self.rng.next_below(120));
        }
    }
}

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
        match self.rng.next_below(1_000) {
            0..430 => {
                for _ in 0..1 + self.rng.next_below(3) {
                    self.append();
                }
            }
            430..570 => {
                let one = Some(self.random_partition()).filter(|_| self.rng.one_in(2));
                if let Some(process) = self.random_running() {
                    self.read(&process, one);
                }
            }
            570..770 => self.advance(Duration::from_millis(1 + self.rng.next_below(300))),
            770..780 => self.advance(Duration::from_millis(1_000 + self.rng.next_below(7_000))),
            780..870 => self.tick(),
            870..875 => self.kill(self.random_node()),
            875..915 => self.start_dead(),
            915..923 => self.pause(),
            923..940 => self.resume_any(),
            940..955 => self.change_links(),
            955..960 => self.begin_outage(),
            960..966 => self.cut_off(),
            966..976 => self.force_takeover(),
            976..981 => self.force_hand_off(),
            981..985 => self.drain(),
            985..990 => self.set_fuse(),
            _ => self.repair(),
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
        let Some(_work) = process.begin_maintenance() else {
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

    /// Breaks a link in one direction, or isolates a node.
    fn change_links(&self) {
        let (from, to) = (self.random_node(), self.random_node());
        if self.rng.one_in(2) {
            self.note(|| format!("no message from {} to {}", name(from), name(to)));
            return self.set_link(from, to, false);
        }
        self.note(|| format!("{} is isolated", name(from)));
        for other in 0..NODES {
            self.set_link(from, other, false);
            self.set_link(other, from, false);
        }
    }

    fn begin_outage(&self) {
        let outages = [SimOutage::Silent, SimOutage::Refusing];
        let outage = outages[self.rng.next_below(2) as usize];
        self.note(|| format!("outage of the bucket: {outage:?}"));
        self.store.set_outage(Some(outage));
    }

    /// Breaks the link of a node to the bucket.
    fn cut_off(&self) {
        if let Some(process) = self.process(self.random_node()) {
            self.note(|| format!("{} has no bucket", name(process.index)));
            process.control.set_cut_off(true);
        }
    }

    /// Repairs the bucket, the links to it, and the links between nodes.
    fn repair(&self) {
        self.note(|| "repair".to_owned());
        self.store.set_outage(None);
        for from in 0..NODES {
            (0..NODES).for_each(|to| self.set_link(from, to, true));
            if let Some(process) = self.process(from) {
                process.control.set_cut_off(false);
                lock(&process.table).set_draining(false);
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

    fn drain(&self) {
        if let Some(process) = self.random_running() {
            self.note(|| format!("{} drains", name(process.index)));
            lock(&process.table).set_draining(true);
        }
    }

    /// Lets a process end at one of its next requests.
    fn set_fuse(&self) {
        if let Some(process) = self.random_running() {
            process.control.set_fuse(self.rng.next_below(120));
        }
    }
}

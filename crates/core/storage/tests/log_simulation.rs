//! The WAL on a disk that crashes, tears writes, reorders and fails: random histories with a single
//! check.
//!
//! After every restart, each promised record is there once, at its position and byte for byte; no
//! other record is there except appended ones; and no damage is reported, because a crash damages
//! nothing that was durable. The records that a restarted WAL returns count as promised from then
//! on, because a store may acknowledge a repeated sample on that basis. `FIRN_SEEDS=n` runs n
//! seeds, and `FIRN_SEED=s` runs one.

mod payload;
mod seeds;

use firn_model::env::Compute;
use firn_model::env::sim::{
    self, DeferredCompute, InlineCompute, SimDiskOperation, SimEnv, SimRng,
};
use firn_model::log::{DurableCallbacks, DurableLog, LogPosition};
use firn_storage::log::{LocalLog, LogMetrics, LogOptions, LogSyncMode};
use payload::{batch_of, bytes_of};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const DIR: &str = "data/wal";
const STEPS: u64 = 60;

/// Outcomes in the order of their callbacks: the block, and its position if it is durable.
type Answers = Arc<Mutex<Vec<(u64, Option<LogPosition>)>>>;

/// The state of one random history.
struct History {
    rng: SimRng,
    sim: SimEnv,
    deferred: Option<Arc<DeferredCompute>>,
    options: LogOptions,
    log: Option<LocalLog>,
    payloads: BTreeMap<u64, Vec<u8>>,
    answers: Answers,
    /// Acknowledged records that a power failure loses unless a sync follows.
    acked: BTreeMap<LogPosition, u64>,
    /// Records that must exist after every restart.
    promised: BTreeMap<LogPosition, u64>,
    trimmed_to: LogPosition,
}

impl History {
    fn new(seed: u64) -> Self {
        let rng = SimRng::new(seed);
        let deferred = rng.one_in(2).then(|| Arc::new(DeferredCompute::default()));
        let compute: Arc<dyn Compute> = match &deferred {
            Some(deferred) => deferred.clone(),
            None => Arc::new(InlineCompute),
        };
        let sim = sim::sim_env_with(seed, compute);
        sim.env
            .disk
            .create_dir_all(Path::new(DIR))
            .expect("the disk is new");
        let sync = match rng.next_below(4) {
            0 => LogSyncMode::Interval(Duration::from_millis(200)),
            1 => LogSyncMode::None,
            _ => LogSyncMode::Always,
        };
        let options = LogOptions {
            sync,
            segment_bytes: 200 + rng.next_below(6000),
            ..LogOptions::default()
        };
        Self {
            rng,
            sim,
            deferred,
            options,
            log: None,
            payloads: BTreeMap::new(),
            answers: Answers::default(),
            acked: BTreeMap::new(),
            promised: BTreeMap::new(),
            trimmed_to: LogPosition(0),
        }
    }

    fn run(&mut self) -> Result<(), String> {
        self.reopen()?;
        for _ in 0..STEPS {
            self.step()?;
            self.take_answers()?;
        }
        self.crash()?;
        self.reopen()
    }

    fn step(&mut self) -> Result<(), String> {
        match self.rng.next_below(40) {
            0..20 => self.append(),
            20..26 => self.run_jobs(),
            26..28 => self.sim.clock.advance_ms(150),
            28..30 => self.sync(),
            30..32 => self.trim(),
            32 => self.sim.disk.power_off_after(self.rng.next_below(12)),
            33 => self.fail_an_operation(),
            34 => {
                self.run_jobs();
                if self.log().close().is_ok() {
                    self.take_answers()?;
                    self.promised.append(&mut self.acked);
                }
                self.kill()?;
                return self.reopen();
            }
            35..38 => {
                self.kill()?;
                return self.reopen();
            }
            _ => {
                self.crash()?;
                return self.reopen();
            }
        }
        if self.sim.disk.is_off() {
            self.crash()?;
            return self.reopen();
        }
        Ok(())
    }

    fn log(&self) -> &LocalLog {
        self.log.as_ref().expect("open between restarts")
    }

    fn append(&mut self) {
        for _ in 0..=self.rng.next_below(4) {
            let id = self.payloads.len() as u64;
            let filler = self
                .rng
                .next_below(if self.rng.one_in(10) { 3000 } else { 90 });
            let mut payload = id.to_le_bytes().to_vec();
            payload.extend((0..filler).map(|_| self.rng.next_below(256) as u8));
            let batch = batch_of(&payload);
            self.payloads.insert(id, payload);
            let answers = self.answers.clone();
            self.log().append(
                batch,
                DurableCallbacks::new(move |outcome| {
                    let mut answers = answers.lock().expect("no callback panics");
                    answers.push((id, outcome.ok()));
                }),
            );
        }
    }

    fn run_jobs(&self) {
        if let Some(deferred) = &self.deferred {
            deferred.run();
        }
    }

    fn sync(&mut self) {
        self.run_jobs();
        if self.take_answers().is_ok() && self.log().sync().is_ok() {
            self.promised.append(&mut self.acked);
        }
    }

    fn trim(&mut self) {
        let newest = self.promised.keys().last().copied().unwrap_or_default();
        let to = LogPosition(self.rng.next_below(newest.0 + 1));
        self.trimmed_to = self.trimmed_to.max(to);
        // A failed trim may have removed some segments, which is equivalent to a shorter trim.
        let _ = self.log().trim(to);
    }

    fn fail_an_operation(&self) {
        let operation = match self.rng.next_below(3) {
            0 => SimDiskOperation::Read,
            1 => SimDiskOperation::Write,
            _ => SimDiskOperation::Sync,
        };
        self.sim.disk.fail_after(operation, self.rng.next_below(4));
    }

    /// Kills the process. Acknowledged records survive in every sync mode.
    fn kill(&mut self) -> Result<(), String> {
        self.end_process()?;
        self.sim.disk.kill();
        Ok(())
    }

    /// Cuts the power. Acknowledged records survive if the sync mode promises it.
    fn crash(&mut self) -> Result<(), String> {
        self.end_process()?;
        self.lose_power();
        Ok(())
    }

    fn lose_power(&mut self) {
        if self.options.sync == LogSyncMode::Always {
            self.promised.append(&mut self.acked);
        }
        self.acked.clear();
        self.sim.disk.crash();
    }

    fn end_process(&mut self) -> Result<(), String> {
        self.take_answers()?;
        // The outcomes of jobs that never ran are discarded.
        if let Some(deferred) = &self.deferred {
            self.sim.disk.kill();
            deferred.discard();
        }
        self.log = None;
        self.answers.lock().expect("no callback panics").clear();
        Ok(())
    }

    fn take_answers(&mut self) -> Result<(), String> {
        let mut newest = LogPosition(0);
        for (id, position) in self.answers.lock().expect("no callback panics").drain(..) {
            let Some(position) = position else { continue };
            if position <= newest {
                return Err(format!("{position:?} answered after {newest:?}"));
            }
            newest = position;
            let taken = self.acked.contains_key(&position) || self.promised.contains_key(&position);
            if taken {
                return Err(format!("{position:?} acknowledged twice"));
            }
            self.acked.insert(position, id);
        }
        Ok(())
    }

    /// Opens the WAL, again if the disk fails in the meantime, and checks its content.
    fn reopen(&mut self) -> Result<(), String> {
        let log = loop {
            let metrics = Arc::new(LogMetrics::default());
            match LocalLog::open(&self.sim.env, Path::new(DIR), self.options, metrics) {
                Ok(log) => break log,
                Err(_) if self.sim.disk.is_off() => self.lose_power(),
                Err(e) if e.to_string().contains("input/output error") => self.sim.disk.kill(),
                Err(e) => return Err(format!("open: {e}")),
            }
        };
        // The first attempt may hit the read failure that was injected.
        let held = read_all(&log).or_else(|_| read_all(&log))?;
        for (position, payload) in &held {
            let known = payload.first_chunk().map(|id| u64::from_le_bytes(*id));
            if known.and_then(|id| self.payloads.get(&id)) != Some(payload) {
                return Err(format!("{position:?} holds what was never appended"));
            }
        }
        self.promised.append(&mut self.acked);
        for (position, id) in self.promised.range(self.trimmed_to..) {
            if held.get(position) != self.payloads.get(id) {
                return Err(format!(
                    "block {id} at {position:?} was promised and is lost"
                ));
            }
        }
        self.promised = held
            .iter()
            .filter_map(|(p, payload)| Some((*p, u64::from_le_bytes(*payload.first_chunk()?))))
            .collect();
        self.log = Some(log);
        Ok(())
    }
}

fn read_all(log: &LocalLog) -> Result<BTreeMap<LogPosition, Vec<u8>>, String> {
    let mut held = BTreeMap::new();
    let mut trouble = None;
    let mut tail = log.read_from(LogPosition(0));
    while let Some(item) = tail.next().map_err(|e| e.to_string())? {
        match item {
            Ok(record) => {
                if held
                    .insert(record.position, bytes_of(&record.batch))
                    .is_some()
                {
                    trouble = Some(format!("{:?} is there twice", record.position));
                }
            }
            Err(damage) => trouble = Some(damage.what),
        }
    }
    trouble.map_or(Ok(held), Err)
}

#[test]
fn log_on_an_unkind_disk_keeps_what_it_promised() {
    for seed in seeds::seeds(300) {
        if let Err(trouble) = History::new(seed).run() {
            panic!("FIRN_SEED={seed}: {trouble}");
        }
    }
}

#[test]
fn log_on_a_disk_that_lies_about_syncs_is_caught() {
    let caught = (0..100)
        .filter(|seed| {
            let mut history = History::new(*seed);
            history.sim.disk.set_syncs_lie(true);
            history.run().is_err()
        })
        .count();
    assert!(caught >= 50, "caught {caught} of 100");
}

//! The store on a disk that crashes, tears, reorders, fails and fills up: random histories, one
//! check.
//!
//! Series come and go, are sealed, retire and leave the retention meanwhile.
//!
//! After every restart, and now and then between: every sample that was promised is there once with
//! its value, nothing is there that was never sent, and of every batch either all is there or
//! nothing. Promised is what was acknowledged, what a reader saw, and what a restarted store
//! showed. `FIRN_SEEDS=n` runs n seeds, `FIRN_SEED=s` one.

mod seeds;

use firn_model::batch::Batch;
use firn_model::cancel::Cancel;
use firn_model::columns::SeriesBatch;
use firn_model::env::Compute;
use firn_model::env::sim::{self, Deferred, Inline, Operation, Sim, SimRng};
use firn_model::labels::Labels;
use firn_model::sample::TimeRange;
use firn_model::store::{Append, AppendBounds, Select, SelectRequest, Ticket};
use firn_model::tenant::TenantId;
use firn_storage::store::{Sealing, Store, StoreOptions, SyncMode};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

const STEPS: u64 = 50;
const SERIES: u64 = 40;
const SCRAPE_MS: i64 = 15_000;

/// A sample's series and time. Times are never used twice, so a time names a batch.
type Key = (u64, i64);

/// Values by their bits: they come back bit for bit.
type Samples = BTreeMap<Key, u64>;

/// A batch that was sent and not answered yet.
struct Sent {
    ticket: Ticket,
    samples: Samples,
}

/// One history.
struct History {
    rng: SimRng,
    sim: Sim,
    deferred: Option<Arc<Deferred>>,
    options: StoreOptions,
    store: Option<Arc<Store>>,
    now: i64,
    sent: Samples,
    waiting: Vec<Sent>,
    /// The batch that failed last; a sender tries it again.
    failed: Option<Samples>,
    acked: Samples,
    promised: Samples,
}

impl History {
    fn new(seed: u64) -> Self {
        let rng = SimRng::new(seed);
        let deferred = rng.one_in(2).then(|| Arc::new(Deferred::default()));
        let compute: Arc<dyn Compute> = match &deferred {
            Some(deferred) => deferred.clone(),
            None => Arc::new(Inline),
        };
        let mut options = StoreOptions::new("data");
        options.shards = 1 + rng.below(4) as usize;
        options.window_ms = SCRAPE_MS * (1 + rng.below(20) as i64);
        options.is_jittered = !rng.one_in(4);
        options.lateness_max_ms = SCRAPE_MS * (1 + rng.below(200) as i64);
        if rng.one_in(3) {
            options.retention_ms = SCRAPE_MS * (10 + rng.below(60) as i64);
        }
        options.log_segment_bytes = 100 + rng.below(2_000);
        options.page_segment_bytes = 100 + rng.below(2_000);
        options.page_cache_bytes = rng.below(4_000) as usize;
        // A write that seals may wait for the log's thread: there must be one.
        if deferred.is_none() && rng.one_in(4) {
            options.sealing = Sealing::WithWrites;
        }
        options.sync = match rng.below(4) {
            0 => SyncMode::Interval,
            1 => SyncMode::None,
            _ => SyncMode::Always,
        };
        Self {
            rng,
            sim: sim::env_with(seed, compute),
            deferred,
            options,
            store: None,
            now: 0,
            sent: Samples::new(),
            waiting: Vec::new(),
            failed: None,
            acked: Samples::new(),
            promised: Samples::new(),
        }
    }

    fn run(&mut self) -> Result<(), String> {
        self.reopen()?;
        if self.rng.one_in(3) {
            // Those that follow are born at the border of two groups.
            let others = 1_000..1_000 + 470 + self.rng.below(40);
            let samples = others.map(|series| ((series, 0), 0)).collect();
            self.send_samples(samples);
        }
        for _ in 0..STEPS {
            self.step()?;
            self.take_answers()?;
        }
        self.crash()?;
        self.reopen()
    }

    fn step(&mut self) -> Result<(), String> {
        match self.rng.below(40) {
            0..19 => self.send(),
            19..25 => self.run_jobs(),
            25..28 => self.store().tick(),
            28 => self.sim.clock.advance_ms(150),
            29..31 => return self.look(),
            31 => self.sim.disk.power_off_after(self.rng.below(20)),
            32 => self.fail_an_operation(),
            33 => self.fill_the_disk(),
            34 => {
                self.run_jobs();
                if self.store().close().is_ok() {
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

    fn store(&self) -> &Arc<Store> {
        self.store.as_ref().expect("open between restarts")
    }

    /// Sends some batches at once; a batch that failed is tried again first.
    fn send(&mut self) {
        for _ in 0..=self.rng.below(3) {
            let again = self.failed.take().filter(|_| self.rng.one_in(2));
            let samples = again.unwrap_or_else(|| self.scrape());
            self.send_samples(samples);
        }
    }

    fn send_samples(&mut self, samples: Samples) {
        let mut batch = Batch::default();
        for ((series, time), bits) in &samples {
            let labels = labels(*series);
            batch.push_series(labels.as_ref(), &[(*time, f64::from_bits(*bits))]);
        }
        self.sent.extend(samples.clone());
        let bounds = AppendBounds { time_max: i64::MAX };
        let ticket = self.store().append(&TenantId::anonymous(), &batch, bounds);
        self.waiting.push(Sent { ticket, samples });
    }

    /// New samples of some series at the next time.
    fn scrape(&mut self) -> Samples {
        self.now += SCRAPE_MS;
        // Series come and go: every now and then most of them are new.
        let generation = self.now as u64 / (20 * SCRAPE_MS as u64) % 3;
        let first = generation * SERIES / 2 + self.rng.below(SERIES);
        let end = generation * SERIES / 2 + SERIES;
        let count = 1 + self.rng.below(end - first);
        (first..first + count)
            .map(|series| {
                let value = match self.rng.below(4) {
                    0 => self.rng.below(10) as f64,
                    1 => self.now as f64 / 100.0,
                    2 => f64::from_bits(self.rng.below(u64::MAX)),
                    _ => 1.0,
                };
                ((series, self.now), value.to_bits())
            })
            .collect()
    }

    fn run_jobs(&self) {
        if let Some(deferred) = &self.deferred {
            deferred.run();
        }
    }

    fn fail_an_operation(&self) {
        let operation = match self.rng.below(2) {
            0 => Operation::Write,
            _ => Operation::Sync,
        };
        self.sim.disk.fail_after(operation, self.rng.below(6));
    }

    /// Nothing is left but a few bytes until the next restart.
    fn fill_the_disk(&self) {
        self.sim.disk.set_free_bytes(self.rng.below(3_000));
    }

    /// The process ends. What was acknowledged survives in every mode.
    fn kill(&mut self) -> Result<(), String> {
        self.end_process()?;
        self.sim.disk.kill();
        Ok(())
    }

    /// The power fails. What was acknowledged survives if the mode promises it.
    fn crash(&mut self) -> Result<(), String> {
        self.end_process()?;
        self.lose_power();
        Ok(())
    }

    fn lose_power(&mut self) {
        if self.options.sync == SyncMode::Always {
            self.promised.append(&mut self.acked);
        }
        self.acked.clear();
        self.sim.disk.crash();
    }

    fn end_process(&mut self) -> Result<(), String> {
        self.take_answers()?;
        self.waiting.clear();
        if let Some(deferred) = &self.deferred {
            self.sim.disk.kill();
            deferred.discard();
        }
        self.store = None;
        Ok(())
    }

    fn take_answers(&mut self) -> Result<(), String> {
        let mut context = Context::from_waker(Waker::noop());
        for mut sent in std::mem::take(&mut self.waiting) {
            match Pin::new(&mut sent.ticket).poll(&mut context) {
                Poll::Pending => self.waiting.push(sent),
                Poll::Ready(Err(_)) => self.failed = Some(sent.samples),
                // A batch that is tried again may be too late for some of its series.
                Poll::Ready(Ok(appended)) if !appended.rejected.is_empty() => {}
                Poll::Ready(Ok(appended)) => {
                    if appended.stored != sent.samples.len() {
                        return Err(format!("{} stored of a batch", appended.stored));
                    }
                    self.acked.extend(sent.samples);
                }
            }
        }
        Ok(())
    }

    /// A reader looks at everything; what it sees survives whatever comes.
    fn look(&mut self) -> Result<(), String> {
        self.take_answers()?;
        let seen = read_all(self.store())?;
        self.check(&seen, "while running")?;
        self.acked.extend(seen);
        Ok(())
    }

    /// Opens the store, again if the disk fails meanwhile, and checks what it holds.
    fn reopen(&mut self) -> Result<(), String> {
        self.sim.disk.set_capacity_bytes(u64::MAX);
        let store = loop {
            match Store::open(self.sim.env.clone(), self.options.clone()) {
                Ok(store) => break store,
                Err(_) if self.sim.disk.is_off() => self.lose_power(),
                Err(e) if e.message.contains("input/output error") => self.sim.disk.kill(),
                Err(e) => return Err(format!("open: {e}")),
            }
        };
        let held = read_all(&store)?;
        self.check(&held, "after a restart")?;
        self.acked.clear();
        self.promised = held;
        self.store = Some(store);
        Ok(())
    }

    fn check(&self, held: &Samples, when: &str) -> Result<(), String> {
        for (key, bits) in held {
            if self.sent.get(key) != Some(bits) {
                return Err(format!("{when} {key:?} holds what was never sent"));
            }
        }
        // What left the retention may be gone, sample by sample.
        let kept_from = self.now.saturating_sub(self.options.retention_ms);
        for (key, bits) in self.promised.iter().chain(&self.acked) {
            if key.1 >= kept_from && held.get(key) != Some(bits) {
                return Err(format!("{when} {key:?} was promised and is lost"));
            }
        }
        let count = |samples: &Samples| {
            let mut counts = BTreeMap::<i64, usize>::new();
            for (_, time) in samples.keys() {
                *counts.entry(*time).or_default() += 1;
            }
            counts
        };
        let sent = count(&self.sent);
        for (time, held) in count(held) {
            if time >= kept_from && sent.get(&time) != Some(&held) {
                return Err(format!("{when} the batch of {time} is there in part"));
            }
        }
        Ok(())
    }
}

fn labels(series: u64) -> Labels {
    let number = series.to_string();
    Labels::from_pairs([("__name__", "m"), ("series", number.as_str())])
}

/// Everything that a reader sees.
fn read_all(store: &Store) -> Result<Samples, String> {
    let request = SelectRequest {
        tenant: &TenantId::anonymous(),
        matchers: &[],
        range: TimeRange::ALL,
        cancel: &Cancel::new(),
    };
    let selection = store.select(request).map_err(|e| e.message)?;
    let mut columns = SeriesBatch::default();
    selection
        .read(0..selection.len(), &mut columns)
        .map_err(|e| e.message)?;
    let mut samples = Samples::new();
    for index in 0..selection.len() {
        let labels = selection.labels(index);
        let number = std::str::from_utf8(labels.get("series")).map_err(|e| e.to_string())?;
        let series: u64 = number.parse().map_err(|_| format!("label {number:?}"))?;
        let column = columns.series(index);
        for (time, value) in column.times.iter().zip(column.values) {
            if samples.insert((series, *time), value.to_bits()).is_some() {
                return Err(format!("{:?} is there twice", (series, time)));
            }
        }
    }
    Ok(samples)
}

#[test]
fn store_on_an_unkind_disk_keeps_what_it_promised() {
    for seed in seeds::seeds(300) {
        if let Err(trouble) = History::new(seed).run() {
            panic!("FIRN_SEED={seed}: {trouble}");
        }
    }
}

#[test]
fn store_on_a_disk_that_lies_about_syncs_is_caught() {
    let caught = (0..60)
        .filter(|seed| {
            let mut history = History::new(*seed);
            history.sim.disk.set_syncs_lie(true);
            history.run().is_err()
        })
        .count();
    assert!(caught >= 30, "caught {caught} of 60");
}

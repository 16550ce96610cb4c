//! The world of the tests of a home: a simulated bucket and clock, processes with a store that only
//! keeps its restored state, and a model of the block list.

use super::fused_bucket::FusedBucket;
use crate::audit::{PartitionAudit, audit};
use crate::block_objects::objects_of_block;
use crate::cluster_format::{ClusterFormat, LogEngine};
use crate::engine::{BucketLog, BucketLogOptions};
use crate::home::{BucketHome, HomeFlaw, HomeOptions};
use crate::ids::{ClusterId, PartitionId};
use crate::log::{LogCoreOptions, LogFlaw, LogState};
use crate::node::partition::{PartitionSteps, open_partition};
use crate::segment::HEADER_BYTES;
use firn_bucket::ObjectKey;
use firn_bucket::sim::{SimFaults, SimStore};
use firn_model::env::sim::{self, SimEnv, SimRng};
use firn_model::env::{Disk, OpenMode, Rng};
use firn_model::error::{Error, ErrorKind};
use firn_model::fingerprint::{FingerprintSeed, HashKind};
use firn_model::log::{DecimalHint, DurableCallbacks, DurableLog, FloatRow, LogBatch, LogPosition};
use firn_model::sample::TimeRange;
use firn_model::sync::lock;
use firn_storage::block::BlockId;
use firn_storage::home::{BlockEntry, BlockHome, BlockKind, HomeCommit, RestoredHome};
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub const FOLDER: &str = "/blocks";
pub const PARTITION: PartitionId = PartitionId(0);

/// The rules that processes break.
#[derive(Clone, Copy, Debug, Default)]
pub struct Flaws {
    pub home: Option<HomeFlaw>,
    pub log: Option<LogFlaw>,
}

/// The block list as the acknowledged COMMITs add up to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListModel {
    pub cut: i64,
    pub late_through: u64,
    pub blocks: BTreeMap<BlockId, BlockEntry>,
}

pub struct World {
    pub store: SimStore,
    pub sim: SimEnv,
    pub rng: SimRng,
    pub flaws: Flaws,
    /// One in so many requests has a fault; zero for none.
    pub faults_one_in: u64,
    /// Time in milliseconds; each look moves it.
    clock: Arc<AtomicU64>,
    pub acked: ListModel,
    /// The list if the COMMIT of a process that ended is in the log.
    pub maybe: Option<ListModel>,
    /// Files of removed blocks, with the time of the removal.
    removed: Vec<(ObjectKey, u64)>,
    /// The bytes of all files of blocks.
    pub files: BTreeMap<PathBuf, Vec<u8>>,
    /// The positions of acknowledged records by value.
    pub records: Arc<Mutex<BTreeMap<u64, LogPosition>>>,
    next_value: u64,
    /// All FENCEs and HANDOFFs that were seen.
    fences: BTreeSet<ObjectKey>,
}

/// A store that only keeps the restored state and the records of the replay.
pub struct FakeStore {
    pub home: Arc<BucketHome>,
    pub restored: RestoredHome,
    /// The values of the replayed records by position.
    pub records: BTreeMap<u64, u64>,
    /// The newest value of its catalogue.
    pub newest: Arc<AtomicU64>,
}

/// A process that leads the partition, or believes so.
pub struct Process {
    pub log: BucketLog,
    pub store: FakeStore,
    pub bucket: Arc<FusedBucket>,
}

/// The steps of a takeover by one process.
pub struct SimSteps<'a> {
    pub world: &'a World,
    pub bucket: Arc<FusedBucket>,
    pub takeovers: AtomicU64,
}

impl PartitionSteps for SimSteps<'_> {
    type Opened = FakeStore;

    fn take_over(&self) -> BucketLog {
        self.takeovers.fetch_add(1, Ordering::Relaxed);
        let core = LogCoreOptions {
            cluster: ClusterId(7),
            partition: PARTITION,
            window: 4,
            lease: Duration::ZERO,
            flush_interval: Duration::ZERO,
            segment_bytes: 200,
            queue_bytes: usize::MAX,
            flaw: self.world.flaws.log,
        };
        let clock = self.world.clock.clone();
        let look = move || Duration::from_millis(clock.fetch_add(1, Ordering::Relaxed));
        let mut options = BucketLogOptions::new(core, Arc::new(look));
        options.unit_bytes = 200;
        options.poll_interval = Duration::ZERO;
        let env = self.world.sim.env.clone();
        let log = BucketLog::take_over(self.bucket.clone(), env, options, Arc::default());
        self.bucket.set_log(&log);
        log
    }

    fn create_home(&self, log: &BucketLog) -> Arc<BucketHome> {
        let options = HomeOptions {
            flaw: self.world.flaws.home,
            ..HomeOptions::default()
        };
        let env = self.world.sim.env.clone();
        Arc::new(BucketHome::new(
            self.bucket.clone(),
            env,
            log.clone(),
            options,
        ))
    }

    fn open_store(&self, log: &BucketLog, home: Arc<BucketHome>) -> Result<FakeStore, Error> {
        for _ in 0..100_000 {
            if self.bucket.is_burnt() {
                log.abandon();
            }
            let is_leading = matches!(log.state(), LogState::Leading { .. });
            if is_leading || log.ended().is_some() {
                break;
            }
            self.world.advance(Duration::from_millis(20));
            log.run_timers();
        }
        if let Some(reason) = log.ended() {
            return Err(Error::new(ErrorKind::Unavailable, reason));
        }
        let restored = home.restored();
        let catalogue = restored.catalogue.first_chunk();
        let mut newest = catalogue.map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let mut records = BTreeMap::new();
        let mut reader = log.read_from(LogPosition(1));
        while let Some(record) = reader.next()? {
            let record = record.map_err(|e| Error::new(ErrorKind::Corrupt, e.what))?;
            let value = record.batch.floats.values[0] as u64;
            newest = newest.max(value);
            records.insert(record.position.0, value);
        }
        drop(reader);
        let newest = Arc::new(AtomicU64::new(newest));
        let source = newest.clone();
        let catalogue = move || Ok(source.load(Ordering::Relaxed).to_le_bytes().to_vec());
        home.set_catalogue_source(Box::new(catalogue));
        Ok(FakeStore {
            home,
            restored,
            records,
            newest,
        })
    }

    fn abandon(&self, store: FakeStore) {
        drop(store);
    }

    fn pause(&self) {
        self.world.advance(Duration::from_secs(1));
    }
}

impl World {
    pub fn new(seed: u64, flaws: Flaws) -> Self {
        let store = SimStore::new(seed);
        store.complete_inline();
        Self {
            store,
            sim: sim::sim_env(seed),
            rng: SimRng::new(seed),
            flaws,
            faults_one_in: 0,
            clock: Arc::new(AtomicU64::new(1_000)),
            acked: ListModel {
                cut: i64::MIN,
                late_through: 0,
                blocks: BTreeMap::new(),
            },
            maybe: None,
            removed: Vec::new(),
            files: BTreeMap::new(),
            records: Arc::default(),
            next_value: 1,
            fences: BTreeSet::new(),
        }
    }

    pub fn format(&self) -> ClusterFormat {
        ClusterFormat {
            cluster: ClusterId(7),
            seed: FingerprintSeed([1, 2]),
            hash: HashKind::Nh,
            partitions: NonZeroU32::MIN,
            window: NonZeroU32::new(4).unwrap(),
            engine: LogEngine::Bucket,
            min_version: "0.1.0".to_owned(),
        }
    }

    /// Moves all clocks to the same later time.
    pub fn advance(&self, by: Duration) {
        let ms = by.as_millis() as u64;
        let now = self.clock.fetch_add(ms, Ordering::Relaxed) + ms;
        self.store.run_until(Duration::from_millis(now));
        let now = now.max(self.store.now().as_millis() as u64);
        self.clock.fetch_max(now, Ordering::Relaxed);
        self.sim.clock.set_ms(now as i64);
    }

    fn now_ms(&self) -> u64 {
        self.clock.load(Ordering::Relaxed)
    }

    pub fn client(&self) -> Arc<FusedBucket> {
        let faults = match self.faults_one_in {
            0 => SimFaults::none(),
            one_in => SimFaults::tolerated(one_in),
        };
        Arc::new(FusedBucket::new(self.store.client(faults)))
    }

    /// Takes over by a process with this client. The inner error is that of a process that ended.
    pub fn take_over(
        &mut self,
        bucket: Arc<FusedBucket>,
    ) -> Result<Result<(Process, u64), Error>, String> {
        let steps = SimSteps {
            world: self,
            bucket: bucket.clone(),
            takeovers: AtomicU64::new(0),
        };
        let opened = open_partition(&steps, steps.take_over());
        let takeovers = steps.takeovers.into_inner();
        let (log, store) = match opened {
            Ok(opened) => opened,
            Err(error) if bucket.is_burnt() => return Ok(Err(error)),
            Err(error) => return Err(format!("takeover: {error}")),
        };
        self.check_takeover(&log, &store)?;
        let process = Process { log, store, bucket };
        Ok(Ok((process, takeovers)))
    }

    /// Checks that a takeover restored the fold of the acknowledged COMMITs, and the records from
    /// the begin of the replay on.
    fn check_takeover(&mut self, log: &BucketLog, store: &FakeStore) -> Result<(), String> {
        let restored = &store.restored;
        let found = ListModel {
            cut: restored.cut,
            late_through: restored.late_through.0,
            blocks: restored.blocks.iter().map(|e| (e.id, e.clone())).collect(),
        };
        if Some(&found) == self.maybe.as_ref() {
            self.acked = found;
        } else if found != self.acked {
            return Err(format!("restored {found:?}, expected {:?}", self.acked));
        }
        self.maybe = None;
        if log.block_list().blocks.len() != restored.blocks.len() {
            return Err("the store has another list than the log".to_owned());
        }
        let newest = store.newest.load(Ordering::Relaxed);
        for (value, position) in lock(&self.records).iter() {
            let is_replayed = store.records.get(&position.0) == Some(value);
            if *position >= restored.replay_from && !is_replayed {
                return Err(format!("record {value} at {} is lost", position.0));
            }
            if *value > newest {
                return Err(format!("series {value} is in no catalogue"));
            }
        }
        Ok(())
    }

    /// Appends a record.
    pub fn append(&mut self, process: &Process) {
        let value = self.next_value;
        self.next_value += 1;
        let mut batch = LogBatch::default();
        let row = FloatRow {
            slot: value % 5,
            time: value as i64,
            start: 0,
            value: value as f64,
        };
        batch.floats.push(row, DecimalHint::NONE);
        process.store.newest.fetch_max(value, Ordering::Relaxed);
        let records = self.records.clone();
        process.log.append(
            batch,
            DurableCallbacks::new(move |outcome| {
                if let Ok(position) = outcome {
                    lock(&records).insert(value, position);
                }
            }),
        );
    }

    pub fn pump(&self, process: &Process, steps: u32) {
        for _ in 0..steps {
            self.advance(Duration::from_millis(20));
            process.log.run_timers();
        }
    }

    /// Writes a block to the local disk.
    pub fn write_block(&mut self, sequence: u64) -> (BlockEntry, PathBuf) {
        let id = BlockId::new(sequence as i64, self.rng.next_u64().into());
        let folder = PathBuf::from(FOLDER).join(id.to_string());
        let disk = &self.sim.disk;
        disk.create_dir_all(&folder).unwrap();
        let mut sizes = Vec::new();
        for name in ["data-000", "index", "meta.json"] {
            let least = if name == "data-000" { 40 } else { 0 };
            let length = least + self.rng.next_below(60);
            let bytes: Vec<u8> = (0..length).map(|_| self.rng.next_u64() as u8).collect();
            let path = folder.join(name);
            let file = disk.open(&path, OpenMode::CreateNew).unwrap();
            file.write_all_at(0, &bytes).unwrap();
            sizes.push(length);
            self.files.insert(path, bytes);
        }
        let entry = BlockEntry {
            id,
            kind: BlockKind::Late,
            is_bad: false,
            sequence,
            level: 1,
            range: TimeRange::new(0, sequence as i64),
            bytes: sizes[0] + sizes[1],
            series: 3,
            samples: 4,
        };
        (entry, folder)
    }

    /// Builds a COMMIT that adds `count` blocks, removes some, and covers the log before `covered`.
    pub fn build_commit(&mut self, count: u64, removes: u64, covered: LogPosition) -> HomeCommit {
        let sequence = self.next_value + self.acked.blocks.len() as u64;
        let added = (0..count).map(|_| self.write_block(sequence)).collect();
        let removed = self.acked.blocks.keys().copied();
        let removed: Vec<BlockId> = removed.take(removes as usize).collect();
        HomeCommit {
            cut: self.acked.cut.max(0) + 1,
            late_through: covered.previous(),
            added,
            removed,
            covered,
        }
    }

    /// Publishes a COMMIT by the leader and updates the model.
    pub fn publish(&mut self, process: &Process, commit: &HomeCommit) -> Result<(), String> {
        let mut list = self.acked.clone();
        (list.cut, list.late_through) = (commit.cut, commit.late_through.0);
        let (before, now) = (process.log.block_list(), self.now_ms());
        let published = process.store.home.publish(commit);
        let is_over = process.log.ended().is_some();
        if published.is_err() && !is_over {
            // It has not taken effect and never will.
            return Ok(());
        }
        for id in &commit.removed {
            list.blocks.remove(id);
            for block in &before.blocks {
                if block.name.block == u128::from_be_bytes(id.to_bytes()) {
                    let objects = objects_of_block(PARTITION, block);
                    let keys = objects.into_iter().map(|object| (object.key, now));
                    self.removed.extend(keys);
                }
            }
        }
        list.blocks.extend(
            commit
                .added
                .iter()
                .map(|(entry, _)| (entry.id, entry.clone())),
        );
        match published {
            Ok(()) => self.acked = list,
            Err(_) => self.maybe = Some(list),
        }
        Ok(())
    }

    /// Checks the bucket from outside.
    pub fn check(&mut self) -> Result<PartitionAudit, String> {
        let client = self.store.client(SimFaults::none());
        let report = audit(&client, &self.format()).map_err(|e| e.to_string())?;
        if !report.is_sound() || !report.foreign.is_empty() {
            return Err(report.to_string());
        }
        let keys: BTreeSet<ObjectKey> = self.store.keys().into_iter().collect();
        let grace = HomeOptions::default().gc_grace.as_millis() as u64;
        let now = self.now_ms();
        self.removed.retain(|(_, since)| now < since + grace);
        if let Some((key, since)) = self.removed.iter().find(|(key, _)| !keys.contains(key)) {
            return Err(format!("{key}, removed at {since}, is deleted at {now}"));
        }
        if let Some(fence) = self.fences.iter().find(|key| !keys.contains(key)) {
            return Err(format!("{fence} is a FENCE or HANDOFF, and deleted"));
        }
        let is_bare = |key: &&ObjectKey| {
            let object = self.store.object(key);
            let is_small = object.is_some_and(|bytes| bytes.len() == HEADER_BYTES);
            key.as_str().starts_with("log/") && is_small
        };
        self.fences.extend(keys.iter().filter(is_bare).cloned());
        let mut partitions = report.partitions;
        partitions.pop().ok_or_else(|| "no partition".to_owned())
    }
}

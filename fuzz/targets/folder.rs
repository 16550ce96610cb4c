//! A small data directory with files of all kinds, created in memory.

use firn_model::batch::Batch;
use firn_model::env::sim::{self, SimEnv};
use firn_model::error::Error;
use firn_model::exemplar::TimedExemplar;
use firn_model::labels::Labels;
use firn_model::store::{Append, AppendBounds};
use firn_model::tenant::TenantId;
use firn_storage::store::{Store, StoreOptions};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const DIR: &str = "data";

/// The files of a data directory.
pub struct Image {
    /// Paths and contents of the files, sorted by path.
    pub files: Vec<(PathBuf, Vec<u8>)>,
}

impl Image {
    /// Creates pages, catalogue and exemplars of a clean stop, and a WAL with later samples.
    pub fn make() -> Self {
        let sim = sim::sim_env(1);
        for round in 0..2 {
            let store = open(&sim).expect("the disk is sound");
            for minute in 0..40 {
                append(&store, round * 40 + minute);
                store.tick();
            }
            if round == 0 {
                store.close().expect("the disk is sound");
            }
            drop(store);
            sim.disk.kill();
        }
        let mut files = Vec::new();
        collect(&sim, Path::new(DIR), &mut files);
        Self { files }
    }
}

fn collect(sim: &SimEnv, dir: &Path, into: &mut Vec<(PathBuf, Vec<u8>)>) {
    for name in sim.env.disk.list(dir).expect("the folder is there") {
        let path = dir.join(name);
        match sim.disk.contents(&path) {
            Some(bytes) if !path.ends_with("LOCK") => into.push((path, bytes)),
            Some(_) => {}
            None => collect(sim, &path, into),
        }
    }
}

fn append(store: &Arc<Store>, minute: i64) {
    let mut batch = Batch::default();
    for series in 0..12_i64 {
        let labels = Labels::from_pairs([
            ("__name__", format!("metric_{}", series % 3)),
            ("instance", format!("host-{}", series / 3)),
        ]);
        let value = [5.0, (minute * series) as f64, minute as f64 / 7.0][series as usize % 3];
        let time = 1_700_000_000_000 + minute * 60_000 + series * 13;
        batch.label_bytes().extend_from_slice(labels.as_bytes());
        batch.push_float(time, value);
        // Late samples, in the part of the WAL after the clean stop.
        if minute > 40 && minute % 16 == 7 {
            batch.push_float(time - 90_000, value + 0.5);
        }
        if minute % 8 == 0 {
            let labels = Labels::from_pairs([("trace_id", format!("{minute:08x}"))]);
            batch.push_exemplar(TimedExemplar {
                time,
                value,
                labels: labels.as_ref(),
                has_own_time: true,
            });
        }
        batch.end_series();
    }
    let bounds = AppendBounds::up_to(i64::MAX);
    let ticket = store.append_from(&TenantId::anonymous(), &mut &batch, bounds);
    ticket.wait().expect("the disk is sound");
}

/// Opens the store on the simulated disk.
pub fn open(sim: &SimEnv) -> Result<Arc<Store>, Error> {
    let options = StoreOptions {
        shards: 1,
        exemplars_max: 100,
        log_segment_bytes: 4_096,
        late_window_ms: 3_600_000,
        ..StoreOptions::new(DIR)
    };
    Store::open(sim.env.clone(), options)
}

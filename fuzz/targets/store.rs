//! Replaces one file of a data directory by fuzzed bytes: the store opens and answers or returns an
//! error, stops cleanly and opens again. Nothing panics.
//!
//! The first byte of an input selects the file; the others are its content.

#![cfg_attr(fuzzing, no_main)]

#[path = "folder.rs"]
mod folder;

use firn_model::budget::Budget;
use firn_model::cancel::CancelToken;
use firn_model::columns::SeriesBatch;
use firn_model::env::OpenMode;
use firn_model::env::sim::{self, SimEnv};
use firn_model::error::Error;
use firn_model::sample::TimeRange;
use firn_model::series_limit::SeriesLimit;
use firn_model::store::{Select, SelectRequest};
use firn_model::tenant::TenantId;
use firn_storage::store::Store;
use folder::{Image, open};
use std::path::PathBuf;
use std::sync::OnceLock;

static IMAGE: OnceLock<Image> = OnceLock::new();

/// Creates a simulated disk with exactly these files.
fn disk_with(files: &[(PathBuf, Vec<u8>)]) -> SimEnv {
    let sim = sim::sim_env(1);
    for (path, bytes) in files {
        let folder = path.parent().expect("a file is in a folder");
        let made = sim.env.disk.create_dir_all(folder);
        made.expect("the disk is sound");
        let file = sim.env.disk.open(path, OpenMode::CreateNew);
        let file = file.expect("the disk is sound");
        file.write_all_at(0, bytes).expect("the disk is sound");
        file.sync_data().expect("the disk is sound");
        sim.env.disk.sync_dir(folder).expect("the disk is sound");
    }
    sim
}

/// Reads all samples of all series and formats them as text.
fn read_all(store: &Store) -> Result<String, Error> {
    let selection = store.select(SelectRequest {
        tenant: &TenantId::anonymous(),
        matchers: &[],
        range: TimeRange::ALL,
        newest_only: false,
        cancel: &CancelToken::new(),
        budget: &Budget::new("query", usize::MAX),
        series: &SeriesLimit::unlimited(),
        span: None,
    })?;
    let mut columns = SeriesBatch::default();
    selection.read(0..selection.len(), &mut columns)?;
    let labels: Vec<_> = (0..selection.len()).map(|i| selection.labels(i)).collect();
    Ok(format!("{labels:?} {columns:?}"))
}

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let image = IMAGE.get_or_init(Image::make);
    let Some((chosen, bytes)) = input.split_first() else {
        return;
    };
    let mut files = image.files.clone();
    let chosen = usize::from(*chosen) % files.len();
    files[chosen].1 = bytes.to_vec();
    let sim = disk_with(&files);
    let Ok(store) = open(&sim) else {
        return;
    };
    // Samples may be missing or changed, because checksums are disabled here.
    let _ = read_all(&store);
    let closed = store.close();
    drop(store);
    sim.disk.kill();
    if closed.is_ok()
        && let Ok(store) = open(&sim)
    {
        let _ = read_all(&store);
    }
});

//! Verifies a small folder that contains every kind of file, with every kind of damage.

use super::*;
use crate::store::{Store, StoreOptions};
use firn_model::batch::Batch;
use firn_model::env::sim::{self, SimEnv};
use firn_model::exemplar::TimedExemplar;
use firn_model::labels::Labels;
use firn_model::store::{Append, AppendBounds};
use firn_model::tenant::TenantId;
use std::collections::BTreeMap;
use std::path::PathBuf;

const ROOT: &str = "/data";
const HOUR: i64 = 3_600_000;

/// Number of series, and the numbers of samples of each series in pages and in the WAL.
pub(crate) const SERIES: i64 = 6;
pub(crate) const PAGED: i64 = 60;
pub(crate) const LOGGED: i64 = 8;

pub(crate) fn options() -> StoreOptions {
    StoreOptions {
        shards: 1,
        exemplars_max: 100,
        log_segment_bytes: 1 << 10,
        // The tests call `tick` themselves.
        tick_ms: i64::MAX,
        // All samples stay in pages.
        cut_ms: 1 << 40,
        ..StoreOptions::new(ROOT)
    }
}

/// Returns the value of a sample. It differs between series and changes with each sample, so that
/// no sample can be derived.
pub(crate) fn value(series: i64, time: i64) -> f64 {
    ((series + 1) * (time / 1_000 % 7_919)) as f64 * 0.37 + 0.001 * series as f64
}

/// Appends a sample and an exemplar to each series.
pub(crate) fn append(store: &Store, time: i64) {
    let mut batch = Batch::default();
    for series in 0..SERIES {
        let labels =
            Labels::from_pairs([("__name__", format!("s{series}")), ("job", "test".into())]);
        batch.label_bytes().extend_from_slice(labels.as_bytes());
        batch.push_float(time, value(series, time));
        batch.push_exemplar(TimedExemplar {
            labels: Labels::from_pairs([("trace_id", format!("t{time}"))]).as_ref(),
            value: 1.0,
            time,
            has_own_time: true,
        });
        batch.end_series();
    }
    let bounds = AppendBounds::up_to(i64::MAX);
    let ticket = store.append(&TenantId::anonymous(), &batch, bounds);
    assert_eq!(ticket.wait().unwrap().stored as i64, SERIES);
}

/// Returns the time of the sample with this number.
pub(crate) fn time(number: i64) -> i64 {
    number * HOUR / 10
}

/// Returns a folder with three segments of pages, a catalogue, exemplars and a WAL of several
/// segments, as left by a killed process.
pub(crate) fn folder() -> SimEnv {
    let sim = sim::sim_env(1);
    let open = || Store::open(sim.env.clone(), options()).unwrap();
    let store = open();
    for number in 0..PAGED {
        append(&store, time(number));
        store.tick();
    }
    store.close().unwrap();
    drop(store);
    let store = open();
    (PAGED..PAGED + LOGGED).for_each(|number| append(&store, time(number)));
    drop(store);
    sim.disk.kill();
    sim
}

pub(crate) fn contents(sim: &SimEnv) -> BTreeMap<PathBuf, Vec<u8>> {
    let files = sim.disk.files().into_iter();
    files
        .map(|path| {
            let bytes = sim.disk.contents(&path).unwrap();
            (path, bytes)
        })
        .collect()
}

/// Verifies the folder, and checks that nothing changed and that a finding refers to `path` or its
/// folder.
#[track_caller]
pub(crate) fn check_named(sim: &SimEnv, path: &Path, how: &str) -> Option<VerifyReport> {
    let before = contents(sim);
    let verified = verify(&sim.env, Path::new(ROOT));
    assert!(contents(sim) == before, "{how}: files changed");
    let report = match verified {
        Ok(report) => report,
        Err(e) => {
            let name = path.display().to_string();
            let is_root = path.parent() == Some(Path::new(ROOT));
            assert!(is_root || e.to_string().contains(&name), "{how}: {e}");
            return None;
        }
    };
    // A missing file is reported at the end of its neighbour.
    let is_gone = sim.disk.contents(path).is_none();
    let is_it = |file: &Path| {
        let is_beside = is_gone && file.parent() == path.parent();
        file == path || Some(file) == path.parent() || is_beside
    };
    let found = report.findings.iter().any(|f| is_it(&f.damage.file));
    let remarked = report.remarks.iter().any(|r| is_it(&r.file));
    assert!(found || remarked, "{how}: {report:?}");
    Some(report)
}

#[test]
fn verify_of_a_whole_folder_finds_nothing_and_changes_nothing() {
    let sim = folder();
    let before = contents(&sim);
    let report = verify(&sim.env, Path::new(ROOT)).unwrap();
    assert!(contents(&sim) == before);
    assert_eq!((&report.findings, &report.remarks), (&vec![], &vec![]));
    let kinds = |suffix: &str| {
        let is_it = |path: &&PathBuf| path.to_string_lossy().ends_with(suffix);
        before.keys().filter(is_it).count()
    };
    let counts = [".pages", ".wal", ".series", ".copy", ".exemplars"].map(kinds);
    assert!(counts[0] > 2 && counts[1] > 2, "{counts:?}");
    assert_eq!(counts[2..], [1, 1, 1]);
    // LOCK and FORMAT are not counted.
    assert_eq!(report.files as usize, before.len() - 2);
    assert_eq!(report.page_samples as i64, SERIES * PAGED);
    assert_eq!(report.log_samples as i64, SERIES * LOGGED);
    assert_eq!(report.series as i64, SERIES);
}

#[test]
fn verify_names_the_file_of_every_changed_byte() {
    let sim = folder();
    for (path, bytes) in contents(&sim) {
        let step = (bytes.len() / 120).max(1);
        for at in (0..bytes.len()).step_by(step) {
            let mut changed = bytes.clone();
            changed[at] ^= 0x10;
            sim.disk.overwrite(&path, &changed);
            let how = format!("{} at {at}", path.display());
            let report = check_named(&sim, &path, &how);
            if path.extension().is_some_and(|suffix| suffix == "pages") {
                let report = report.unwrap();
                // If the losses of several damages cannot be separated, one finding contains their
                // sum.
                let lost = report
                    .findings
                    .iter()
                    .map(|f| f.damage.samples.unwrap_or(0));
                let all = report.page_samples + lost.sum::<u64>();
                assert_eq!(all as i64, SERIES * PAGED, "{how}: {:?}", report.findings);
            }
        }
        sim.disk.overwrite(&path, &bytes);
    }
    assert!(verify(&sim.env, Path::new(ROOT)).unwrap().is_whole());
}

#[test]
fn verify_names_the_file_that_is_cut_emptied_or_removed() {
    let sim = folder();
    let all = contents(&sim);
    let is_wal = |path: &&PathBuf| path.to_string_lossy().ends_with(".wal");
    // Only the newest segment records the end of the WAL.
    let newest = all.keys().rfind(is_wal).unwrap().clone();
    for (path, bytes) in all {
        if bytes.is_empty() || path == newest {
            continue;
        }
        let cuts = [0, 1, 24, bytes.len() / 2, bytes.len() - 2];
        for left in cuts.into_iter().filter(|left| *left < bytes.len()) {
            sim.disk.overwrite(&path, &bytes[..left]);
            check_named(&sim, &path, &format!("{} cut to {left}", path.display()));
        }
        sim.disk.remove_durably(&path);
        check_named(&sim, &path, &format!("{} removed", path.display()));
        sim.disk.overwrite(&path, &bytes);
    }
}

#[test]
fn verify_of_a_file_that_the_disk_does_not_deliver_says_so() {
    let sim = folder();
    for (path, bytes) in contents(&sim) {
        if path.parent() == Some(Path::new(ROOT)) {
            continue;
        }
        let middle = bytes.len() as u64 / 2;
        sim.disk.set_unreadable(&path, Some(middle..middle + 1));
        let report = check_named(&sim, &path, &path.display().to_string()).unwrap();
        assert!(
            report.findings.iter().any(|f| f.is_unreadable),
            "{report:?}"
        );
        sim.disk.set_unreadable(&path, None);
    }
}

#[test]
fn samples_of_a_damaged_page_that_the_log_has_are_told() {
    let sim = sim::sim_env(1);
    let kept = StoreOptions {
        // The WAL keeps all samples.
        log_segment_bytes: 1 << 30,
        ..options()
    };
    let store = Store::open(sim.env.clone(), kept).unwrap();
    for number in 0..PAGED {
        append(&store, time(number));
        store.tick();
    }
    drop(store);
    sim.disk.kill();
    let files = contents(&sim);
    let is_pages = |path: &&PathBuf| path.to_string_lossy().ends_with(".pages");
    let path = files.keys().find(is_pages).unwrap();
    let mut bytes = files[path].clone();
    // In the first stripe, after the header and the directory of the first page.
    let at = bytes.windows(8).position(|w| w == b"FIRNPAGE").unwrap();
    bytes[at + 8] ^= 1;
    sim.disk.overwrite(path, &bytes);
    let report = verify(&sim.env, Path::new(ROOT)).unwrap();
    let finding = &report.findings[0];
    assert_eq!(finding.damage.file, *path);
    assert_eq!(
        finding.series.map(|n| n as i64),
        Some(SERIES),
        "{finding:?}"
    );
    assert!(finding.in_log > 0, "{finding:?}");
}

#[test]
fn folder_in_use_or_of_something_else_is_not_read() {
    let sim = folder();
    let store = Store::open(sim.env.clone(), options()).unwrap();
    let refused = |root: &str| verify(&sim.env, Path::new(root)).unwrap_err().to_string();
    assert_eq!(
        refused(ROOT),
        "data folder /data is locked: another process is using it"
    );
    drop(store);
    sim.env.disk.create_dir_all(Path::new("/other")).unwrap();
    sim.disk.overwrite(Path::new("/other/file"), b"x");
    assert_eq!(
        refused("/other"),
        "folder /other is not a firn data folder: it does not contain a file FORMAT"
    );
}

#[test]
fn file_that_nobody_knows_is_remarked_upon() {
    let sim = folder();
    for name in [
        "pages/notes.txt",
        "wal/1.wal",
        "series/x.series.tmp",
        "more",
    ] {
        let path = Path::new(ROOT).join(name);
        sim.disk.overwrite(&path, b"x");
        let report = verify(&sim.env, Path::new(ROOT)).unwrap();
        assert!(report.is_whole());
        assert_eq!(report.remarks.len(), 1);
        assert_eq!(report.remarks[0].file, path);
        sim.disk.remove_durably(&path);
    }
}

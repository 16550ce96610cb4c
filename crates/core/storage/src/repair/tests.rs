//! Repairs of the folder that the tests of [`crate::verify`] create, with every kind of damage.

use super::*;
use crate::verify::tests::{
    LOGGED, PAGED, SERIES as SERIES_COUNT, append, contents, folder, options, time, value,
};
use firn_model::batch::Batch;
use firn_model::budget::Budget;
use firn_model::cancel::CancelToken;
use firn_model::columns::SeriesBatch;
use firn_model::env::sim::SimEnv;
use firn_model::labels::Labels;
use firn_model::sample::TimeRange;
use firn_model::series_limit::SeriesLimit;
use firn_model::store::{Append, AppendBounds, Select, SelectRequest};
use firn_model::tenant::TenantId;
use std::collections::BTreeMap;

const ROOT: &str = "/data";

type Samples = BTreeMap<(String, i64), f64>;

/// Returns every sample that was appended to the store.
fn model() -> Samples {
    let numbers = 0..PAGED + LOGGED;
    let of = |number: i64| {
        let at = time(number);
        (0..SERIES_COUNT).map(move |series| ((format!("s{series}"), at), value(series, at)))
    };
    numbers.flat_map(of).collect()
}

/// Returns every sample that a start finds, and checks that it finds no damage.
#[track_caller]
fn samples(sim: &SimEnv, how: &str) -> Samples {
    let store = Store::open(sim.env.clone(), options()).unwrap();
    let request = SelectRequest {
        tenant: &TenantId::anonymous(),
        matchers: &[],
        range: TimeRange::ALL,
        newest_only: false,
        cancel: &CancelToken::new(),
        budget: &Budget::new("query", usize::MAX),
        series: &SeriesLimit::unlimited(),
        span: None,
    };
    let selection = store.select(request).unwrap();
    let mut batch = SeriesBatch::default();
    selection.read(0..selection.len(), &mut batch).unwrap();
    let mut samples = Samples::new();
    for i in 0..selection.len() {
        let name = String::from_utf8(selection.labels(i).get("__name__").to_vec()).unwrap();
        let columns = batch.series(i);
        for (time, value) in columns.times.iter().zip(columns.values.iter()) {
            let known = samples.insert((name.clone(), *time), *value);
            assert_eq!(known, None, "{how}: twice");
        }
    }
    assert!(store.damages().is_empty(), "{how}: {:?}", store.damages());
    samples
}

fn mend(sim: &SimEnv) -> Result<RepairOutcome, Error> {
    repair(&sim.env, Path::new(ROOT), "now", &mut |_| true)
}

/// The state before a repair, and its result.
struct Mended {
    before: VerifyReport,
    set_aside: PathBuf,
    samples: Samples,
}

/// Repairs a damaged folder and checks that it is intact afterwards and that no sample is wrong.
#[track_caller]
fn check_mended(sim: &SimEnv, how: &str) -> Option<Mended> {
    let before = crate::verify::verify(&sim.env, Path::new(ROOT)).unwrap();
    let outcome = mend(sim).unwrap_or_else(|e| panic!("{how}: {}", e.message));
    let (set_aside, report) = match outcome {
        RepairOutcome::Whole(_) => return None,
        RepairOutcome::Repaired { set_aside, report } => (set_aside, report),
        RepairOutcome::Declined => panic!("{how}"),
    };
    assert!(report.is_whole(), "{how}: {:?}", report.findings);
    let samples = samples(sim, how);
    let model = model();
    for (at, value) in &samples {
        assert_eq!(model.get(at), Some(value), "{how}: {at:?}");
    }
    Some(Mended {
        before,
        set_aside,
        samples,
    })
}

fn restore(sim: &SimEnv, files: &BTreeMap<PathBuf, Vec<u8>>) {
    sim.disk.kill();
    for path in sim.disk.files() {
        sim.disk.remove_durably(&path);
    }
    for (path, bytes) in files {
        let folder = path.parent().unwrap();
        sim.env.disk.create_dir_all(folder).unwrap();
        sim.disk.overwrite(path, bytes);
    }
}

/// Returns damaged versions of a file: changed bytes and truncations, and `None` for a removed
/// file.
fn damages(bytes: &[u8]) -> Vec<Option<Vec<u8>>> {
    let step = (bytes.len() / 8).max(1);
    let flip = |at: usize| {
        let mut changed = bytes.to_vec();
        changed[at] ^= 0x10;
        Some(changed)
    };
    let flips = (0..bytes.len()).step_by(step).map(flip);
    let cuts = [0, 24, bytes.len() / 2].into_iter();
    let cuts = cuts.map(|left| bytes.get(..left).map(<[u8]>::to_vec));
    flips.chain(cuts).chain([None]).collect()
}

#[test]
fn repair_of_any_damage_leaves_a_whole_folder_with_all_that_was_whole() {
    let sim = folder();
    let files = contents(&sim);
    let model = model();
    for (path, bytes) in &files {
        // A folder without a format file cannot be read.
        if bytes.is_empty() || path.ends_with("FORMAT") {
            continue;
        }
        let is_log = path.extension().is_some_and(|suffix| suffix == "wal");
        for (number, damaged) in damages(bytes).into_iter().enumerate() {
            restore(&sim, &files);
            match &damaged {
                Some(damaged) => sim.disk.overwrite(path, damaged),
                None => sim.disk.remove_durably(path),
            }
            let how = format!("{} damage {number}", path.display());
            let Some(mended) = check_mended(&sim, &how) else {
                continue;
            };
            let lost = mended.before.findings.iter().map(|f| f.damage.samples);
            let lost: u64 = lost.flatten().sum();
            let left = mended.samples.len() as u64;
            if is_log {
                assert!(left as i64 >= SERIES_COUNT * PAGED, "{how}");
            } else {
                assert_eq!(left + lost, model.len() as u64, "{how}");
            }
            let is_named = |f: &verify::VerifyFinding| f.damage.file == *path;
            if damaged.is_some() && mended.before.findings.iter().any(is_named) {
                let copy = mended.set_aside.join(path.strip_prefix(ROOT).unwrap());
                assert_eq!(sim.disk.contents(&copy), damaged, "{how}");
            }
        }
    }
}

/// Returns the folder with damage in pages, catalogue, exemplars and WAL.
fn damaged_all_over() -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = contents(&folder());
    let mut is_seen = BTreeSet::new();
    for (path, bytes) in &mut files {
        let suffix = path.extension().map(|s| s.to_string_lossy().into_owned());
        let Some(suffix) = suffix.filter(|suffix| is_seen.insert(suffix.clone())) else {
            continue;
        };
        if suffix != "copy" {
            let at = bytes.len() / 2;
            bytes[at] ^= 0x10;
        }
    }
    files
}

#[test]
fn repair_that_is_cut_off_anywhere_goes_on_the_next_time() {
    let files = damaged_all_over();
    let sim = firn_model::env::sim::sim_env(1);
    restore(&sim, &files);
    let wanted = check_mended(&sim, "not cut off").unwrap().samples;
    assert!(wanted.len() as i64 > SERIES_COUNT * PAGED / 2);
    for changes in 0.. {
        let sim = firn_model::env::sim::sim_env(changes);
        restore(&sim, &files);
        sim.disk.power_off_after(changes);
        let outcome = mend(&sim);
        let is_over = !sim.disk.is_off();
        assert!(!is_over || outcome.is_ok());
        drop(outcome);
        sim.disk.crash();
        let how = format!("cut off after {changes} changes");
        check_mended(&sim, &how);
        assert!(samples(&sim, &how) == wanted, "{how}");
        if is_over {
            assert!(changes > 40, "{changes}");
            break;
        }
    }
}

#[test]
fn repair_that_nobody_wants_changes_nothing() {
    let files = damaged_all_over();
    let sim = firn_model::env::sim::sim_env(1);
    restore(&sim, &files);
    let mut asked = 0;
    let outcome = repair(&sim.env, Path::new(ROOT), "now", &mut |found| {
        asked += found.findings.len();
        false
    });
    assert!(matches!(outcome, Ok(RepairOutcome::Declined)));
    assert!(asked >= 4);
    assert!(contents(&sim) == files);
}

#[test]
fn repair_of_what_the_disk_does_not_deliver_is_refused() {
    let sim = folder();
    let files = contents(&sim);
    let is_pages = |path: &&PathBuf| path.extension().is_some_and(|s| s == "pages");
    let path = files.keys().find(is_pages).unwrap();
    sim.disk.set_unreadable(path, Some(30..31));
    let e = mend(&sim).unwrap_err();
    let start = format!("{} cannot be read from this disk", path.display());
    assert!(e.message.starts_with(&start), "{}", e.message);
    assert!(contents(&sim) == files);
}

/// Returns the path and the bytes of the first segment of pages, and the offset of its first page.
fn first_page(sim: &SimEnv) -> (PathBuf, Vec<u8>, usize) {
    let files = contents(sim);
    let is_pages = |(path, _): &(PathBuf, Vec<u8>)| path.extension().is_some_and(|s| s == "pages");
    let (path, bytes) = files.into_iter().find(is_pages).unwrap();
    let at = bytes.windows(8).position(|w| w == b"FIRNPAGE").unwrap();
    (path, bytes, at)
}

#[test]
fn repair_keeps_the_whole_columns_of_a_damaged_page() {
    const NAMES: usize = 40;
    const EACH: i64 = 400;
    let sim = firn_model::env::sim::sim_env(1);
    let store = Store::open(sim.env.clone(), options()).unwrap();
    let rng = firn_model::env::sim::SimRng::new(7);
    for number in 0..EACH {
        let mut batch = Batch::default();
        for name in 0..NAMES {
            let labels = Labels::from_pairs([("__name__", format!("w{name:02}"))]);
            let value = (rng.next_below(1 << 52) as f64) / 3.0;
            batch.push_series(labels.as_ref(), &[(number * 4_000, value)]);
        }
        let bounds = AppendBounds::up_to(i64::MAX);
        let ticket = store.append(&TenantId::anonymous(), &batch, bounds);
        assert_eq!(ticket.wait().unwrap().stored as usize, NAMES);
    }
    store.close().unwrap();
    drop(store);
    let before = samples(&sim, "before");
    sim.disk.kill();
    let (path, mut bytes, at) = first_page(&sim);
    let length = u64::from_le_bytes(bytes[at + 16..at + 24].try_into().unwrap());
    bytes[at + length as usize - 100] ^= 1;
    sim.disk.overwrite(&path, &bytes);
    let found = verify::verify(&sim.env, Path::new(ROOT)).unwrap();
    let [finding] = found.findings.as_slice() else {
        panic!("{:?}", found.findings);
    };
    let lost = finding.series.unwrap();
    assert!(0 < lost && lost < NAMES as u64 / 2, "{finding:?}");
    assert_eq!(finding.damage.samples, Some(lost * EACH as u64));
    assert!(matches!(mend(&sim), Ok(RepairOutcome::Repaired { report, .. }) if report.is_whole()));
    let after = samples(&sim, "after");
    assert_eq!(after.len() as u64, (NAMES as u64 - lost) * EACH as u64);
    assert!(
        after
            .iter()
            .all(|(at, value)| before.get(at) == Some(value))
    );
}

#[test]
fn repair_takes_from_the_log_what_a_damaged_page_lacks() {
    let sim = firn_model::env::sim::sim_env(1);
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
    let (path, mut bytes, at) = first_page(&sim);
    bytes[at + 8] ^= 1;
    sim.disk.overwrite(&path, &bytes);
    let mended = check_mended(&sim, "first page").unwrap();
    assert!(mended.before.findings[0].in_log > 0);
    assert_eq!(mended.samples.len() as i64, SERIES_COUNT * PAGED);
}

/// Returns the folder with both files of the catalogue changed at the same byte, or without them.
fn without_labels(at: Option<usize>) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = contents(&folder());
    let folder = Path::new(ROOT).join("series");
    if let Some(at) = at {
        let pair = files
            .iter_mut()
            .filter(|(path, _)| path.parent() == Some(&*folder));
        pair.for_each(|(_, bytes)| bytes[at] ^= 0x10);
    } else {
        files.retain(|path, _| path.parent() != Some(&*folder));
    }
    files
}

#[test]
fn repair_of_lost_labels_takes_their_samples_out_of_the_pages() {
    let mut costs = 0;
    for at in (0..200).step_by(5).map(Some).chain([None]) {
        let files = without_labels(at);
        let sim = firn_model::env::sim::sim_env(1);
        restore(&sim, &files);
        let how = format!("catalogue changed at {at:?}");
        let Some(mended) = check_mended(&sim, &how) else {
            continue;
        };
        let lost = mended.before.findings.iter().map(|f| f.damage.samples);
        let lost: u64 = lost.flatten().sum();
        costs += u64::from(lost > 0);
        let paged = mended.before.page_samples;
        assert!(mended.samples.len() as u64 >= paged - lost, "{how}");
    }
    assert!(costs > 1);
}

//! Single faults in a block: in each section of its index, its copy, `meta.json` and pages. Damage
//! to data with a second copy loses nothing and is reported, and cuts and merges continue; `repair`
//! restores the file.
//!
//! These tests parse the index with their own code instead of the store's. `FIRN_SEEDS=n` and
//! `FIRN_SEED=s` select the seeds, as in the other tests.

use super::blocks::{Churn, indexes_of};
use super::*;
use crate::block::{Block, BlockCache};
use crate::blocks::{BlockEntry, BlockKind, BlockList};
use crate::damage::DamageKind;
use crate::repair::{RepairOutcome, repair};
use crate::seeds::seeds;
use crate::verify::verify;
use firn_model::env::sim::SimRng;
use std::ops::Range;
use std::path::{Path, PathBuf};

const ROOT: &str = "/data";
const FOOTER_BYTES: usize = 64;
const ENTRY_BYTES: usize = 24;

/// Returns a stopped store with four blocks, and the folder of the first.
fn stopped(seed: u64) -> (Churn, PathBuf) {
    let mut churn = Churn::new(seed);
    churn.send(8);
    let first = churn.store().parts.blocks.list().blocks[0].id;
    churn.store().close().unwrap();
    churn.store = None;
    (churn, Path::new("/data/blocks").join(first.to_string()))
}

fn number(bytes: &[u8], at: usize, len: usize) -> usize {
    let bytes = bytes[at..at + len].iter().rev();
    bytes.fold(0, |number, byte| number << 8 | usize::from(*byte))
}

/// Returns the parts of an index: all units together, each section, each directory entry and the
/// footer.
fn parts_of(index: &[u8]) -> Vec<(String, Range<usize>)> {
    let footer = index.len() - FOOTER_BYTES;
    let (directory, bytes) = (number(index, footer + 40, 8), number(index, footer + 48, 4));
    let mut parts = vec![("footer".to_owned(), footer..index.len())];
    let mut units = directory;
    for entry in (directory..directory + bytes).step_by(ENTRY_BYTES) {
        let kind = number(index, entry, 2);
        let (offset, bytes) = (number(index, entry + 8, 8), number(index, entry + 16, 8));
        parts.push((
            format!("entry of section {kind}"),
            entry..entry + ENTRY_BYTES,
        ));
        parts.push((format!("section {kind}"), offset..offset + bytes));
        units = units.min(offset);
    }
    parts.push(("units".to_owned(), 0..units));
    parts
}

/// A fault, which damages the file at the given path.
type Fault = Box<dyn Fn(&SimEnv, &Path)>;

/// Creates a fault.
type NewFault = fn() -> Fault;

fn flip(at: usize) -> Fault {
    Box::new(move |sim, path| {
        let mut bytes = sim.disk.contents(path).unwrap();
        bytes[at] ^= 1 << (at % 8);
        sim.disk.overwrite(path, &bytes);
    })
}

fn lose() -> Fault {
    Box::new(|sim, path| sim.disk.remove_durably(path))
}

/// Overwrites everything from the start of the last sector, like a torn write.
fn tear(sector: usize) -> Fault {
    Box::new(move |sim, path| {
        let mut bytes = sim.disk.contents(path).unwrap();
        let start = (bytes.len() - 1) / sector * sector;
        bytes[start..].fill(0xa5);
        sim.disk.overwrite(path, &bytes);
    })
}

fn cut(to: usize) -> Fault {
    Box::new(move |sim, path| {
        let bytes = sim.disk.contents(path).unwrap();
        sim.disk.overwrite(path, &bytes[..bytes.len() * to / 100]);
    })
}

/// Returns all faults of the table, each with its name and its file.
fn table(sim: &SimEnv, folder: &Path) -> Vec<(String, &'static str, Fault)> {
    let index = sim.disk.contents(&folder.join("index")).unwrap();
    let meta = sim.disk.contents(&folder.join("meta.json")).unwrap();
    let mut faults: Vec<(String, &'static str, Fault)> = Vec::new();
    for (name, range) in parts_of(&index) {
        let step = (range.len() / 40).max(1);
        for at in range.clone().step_by(step) {
            faults.push((format!("{name}, byte {at}"), "index", flip(at)));
        }
    }
    for at in (0..meta.len()).step_by(7) {
        faults.push((format!("byte {at}"), "meta.json", flip(at)));
    }
    for file in ["index", "meta.json"] {
        faults.push(("removed".to_owned(), file, lose()));
        faults.push(("emptied".to_owned(), file, cut(0)));
        faults.push(("cut in half".to_owned(), file, cut(50)));
        faults.push(("torn sector".to_owned(), file, tear(512)));
        faults.push(("torn page".to_owned(), file, tear(4_096)));
    }
    faults
}

/// Opens the store and reads everything. No sample is lost, no answer has a warning, and the damage
/// is listed and counted, whatever is read first.
#[test]
fn one_fault_in_what_has_a_second_place_costs_nothing_and_is_reported() {
    let (mut churn, folder) = stopped(71);
    for (name, file, fault) in table(&churn.sim, &folder) {
        let context = format!("{file}, {name}");
        let path = folder.join(file);
        let whole = churn.sim.disk.contents(&path).unwrap();
        fault(&churn.sim, &path);
        churn.reopen();
        churn.check_all();
        let selection = select(churn.store(), &[], TimeRange::ALL);
        contents_of(&*selection);
        assert!(selection.loss_warnings().texts().is_empty(), "{context}");
        let damages = churn.store().damages();
        let count = churn.store().parts.damages.count(DamageKind::Blocks);
        assert_eq!(damages.len() as u64, count, "{context}");
        for damage in &damages {
            assert!(damage.file == path, "{context}: {damage}");
            assert_eq!((damage.samples, damage.range), (Some(0), None), "{context}");
        }
        // Units are read on demand, and the section with the copy of `meta.json` only if that file
        // is damaged.
        let is_read = !["units", "section 12"]
            .iter()
            .any(|part| name.starts_with(part));
        assert!(!damages.is_empty() || !is_read, "{context}");
        assert_eq!(churn.store().parts.blocks.bad.get(), 0, "{context}");
        churn.store = None;
        churn.sim.disk.overwrite(&path, &whole);
    }
}

/// Changes random bytes of random files of the block. Damage to pages loses their samples and is
/// reported.
#[test]
fn random_faults_of_a_block_cost_what_they_hit() {
    for seed in seeds(60) {
        let rng = SimRng::new(seed);
        let (mut churn, folder) = stopped(72);
        let file = ["meta.json", "index", "index.copy", "data-000"][rng.next_below(4) as usize];
        let path = folder.join(file);
        let bytes = churn.sim.disk.contents(&path).unwrap().len() as u64;
        flip(rng.next_below(bytes) as usize)(&churn.sim, &path);
        churn.reopen();
        let range = churn.store().parts.blocks.list().blocks[0].range;
        let selection = select(churn.store(), &[], TimeRange::ALL);
        let held = contents_of(&*selection);
        let is_lost = !selection.loss_warnings().texts().is_empty();
        assert_eq!(is_lost, file == "data-000", "{file}, seed {seed}");
        if is_lost {
            for samples in churn.model.values_mut() {
                samples.retain(|(time, _)| !range.contains(*time));
            }
        }
        let samples: usize = held.iter().map(|(_, samples)| samples.len()).sum();
        let wanted: usize = churn.model.values().map(Vec::len).sum();
        assert_eq!(samples, wanted, "{file}, seed {seed}");
    }
}

/// The store continues with cuts, a snapshot and merges. Merges replace the damaged block by intact
/// ones, and no sample is missing at the end.
#[test]
fn store_with_a_recovered_block_goes_on_and_merges_heal_it() {
    let faults: [(&str, NewFault); 8] = [
        ("meta.json", lose),
        ("meta.json", || flip(100)),
        ("index", lose),
        ("index", || cut(50)),
        ("index", || tear(512)),
        ("index", || tear(4_096)),
        ("index", || flip(8)),
        ("index.copy", lose),
    ];
    for (number, (file, fault)) in faults.into_iter().enumerate() {
        let context = format!("fault {number}, {file}");
        let (mut churn, folder) = stopped(73);
        fault()(&churn.sim, &folder.join(file));
        churn.reopen();
        let merges = |churn: &Churn| churn.store().parts.metrics.compactions.get();
        churn.send(24);
        assert!(merges(&churn) > 0, "{context}");
        assert_eq!(churn.store().parts.blocks.apart.get(), 0, "{context}");
        churn.check_all();
        churn.store().close().unwrap();
        churn.store = None;
        let left = churn.sim.env.disk.list(&folder);
        assert!(left.is_err(), "{context}: the damaged block was merged");
        let report = verify(&churn.sim.env, Path::new(ROOT)).unwrap();
        assert!(report.is_whole(), "{context}: {:?}", report.findings);
    }
}

/// `verify` reports each fault as recoverable, and `repair` restores the original bytes of the
/// file.
#[test]
fn repair_gives_what_has_a_second_place_its_bytes_back() {
    let faults: [(&[&str], NewFault); 9] = [
        (&["meta.json"], lose),
        (&["meta.json"], || flip(100)),
        (&["meta.json"], || cut(50)),
        (&["index"], lose),
        (&["index"], || flip(8)),
        (&["index"], || tear(512)),
        (&["index.copy"], lose),
        (&["index.copy"], || flip(8)),
        (&["meta.json", "index"], || flip(8)),
    ];
    for (number, (files, fault)) in faults.into_iter().enumerate() {
        let context = format!("fault {number}, {files:?}");
        let (mut churn, folder) = stopped(74);
        let samples = verify(&churn.sim.env, Path::new(ROOT))
            .unwrap()
            .block_samples;
        let mut whole = Vec::new();
        for file in files {
            let path = folder.join(file);
            whole.push((path.clone(), churn.sim.disk.contents(&path)));
            fault()(&churn.sim, &path);
        }
        let report = verify(&churn.sim.env, Path::new(ROOT)).unwrap();
        assert_eq!(report.findings.len(), files.len(), "{context}");
        assert!(report.findings.iter().all(|f| f.damage.samples == Some(0)));
        assert_eq!(report.block_samples, samples, "{context}");
        let outcome = repair(&churn.sim.env, Path::new(ROOT), "now", &mut |_| true).unwrap();
        let RepairOutcome::Repaired { report, .. } = outcome else {
            panic!("{context}: {outcome:?}");
        };
        assert!(report.is_whole(), "{context}: {:?}", report.findings);
        assert_eq!(report.block_samples, samples, "{context}");
        for (path, bytes) in whole {
            assert!(churn.sim.disk.contents(&path) == bytes, "{context}");
        }
        churn.reopen();
        churn.check_all();
        assert!(churn.store().damages().is_empty(), "{context}");
    }
}

/// The same damage to both copies of the index: everything readable before a repair is readable
/// after it.
#[test]
fn repair_of_a_block_with_two_damaged_indexes_loses_nothing_more() {
    let samples = |churn: &mut Churn| {
        churn.reopen();
        let held = contents_of(&*select(churn.store(), &[], TimeRange::ALL));
        churn.store().close().unwrap();
        churn.store = None;
        held.iter().map(|(_, samples)| samples.len()).sum::<usize>()
    };
    let (churn, folder) = stopped(76);
    let index = churn.sim.disk.contents(&folder.join("index")).unwrap();
    let blocks = verify(&churn.sim.env, Path::new(ROOT)).unwrap().blocks;
    let mut rewritten = 0;
    for at in (0..index.len()).step_by(31) {
        let (mut churn, folder) = stopped(76);
        for index in indexes_of(&folder) {
            flip(at)(&churn.sim, &index);
        }
        let before = samples(&mut churn);
        let outcome = repair(&churn.sim.env, Path::new(ROOT), "now", &mut |_| true).unwrap();
        let RepairOutcome::Repaired { report, .. } = outcome else {
            panic!("byte {at}: {outcome:?}");
        };
        assert!(report.is_whole(), "byte {at}: {:?}", report.findings);
        rewritten += usize::from(report.blocks == blocks);
        let after = samples(&mut churn);
        assert!(after >= before, "byte {at}: {after} after {before}");
    }
    assert!(rewritten > 3, "{rewritten} blocks were rewritten");
}

/// The files of a golden block of format 1, as in the folder of an older version.
const OLD: [(&str, &[u8]); 3] = [
    (
        "meta.json",
        include_bytes!("../../../tests/golden/block-1/meta.json"),
    ),
    (
        "index",
        include_bytes!("../../../tests/golden/block-1/index"),
    ),
    (
        "data-000",
        include_bytes!("../../../tests/golden/block-1/data-000"),
    ),
];

/// Returns a store without retention that contains a block of format 1, and the folder of that
/// block.
fn with_old_block() -> (SimEnv, PathBuf, u64) {
    let sim = sim::sim_env(75);
    let without_end = || StoreOptions {
        retention_ms: i64::MAX,
        ..options()
    };
    open(&sim, without_end()).close().unwrap();
    let folder = Path::new("/data/blocks/01K9XFT7G0000028T5CY4TQKFF");
    sim.env.disk.create_dir_all(folder).unwrap();
    for (name, bytes) in OLD {
        sim.disk.overwrite(&folder.join(name), bytes);
    }
    let blocks = Path::new("/data/blocks");
    let cache = Arc::new(BlockCache::new(1 << 20));
    let meta = Block::open(&sim.env, folder, &cache)
        .unwrap()
        .meta()
        .clone();
    assert_eq!(
        folder.file_name().unwrap().to_str(),
        Some(&*meta.id.to_string())
    );
    let mut list = BlockList::read(&*sim.env.disk, blocks).unwrap().list;
    let sequence = list.next_sequence();
    list.add(BlockEntry::from_meta(&meta, BlockKind::Main, sequence));
    list.version += 1;
    list.write(&*sim.env.disk, blocks).unwrap();
    (sim, folder.to_path_buf(), meta.samples)
}

/// Returns the number of samples in the store, and whether the answer had a warning.
fn count(sim: &SimEnv) -> (u64, bool) {
    let options = StoreOptions {
        retention_ms: i64::MAX,
        ..options()
    };
    let store = open(sim, options);
    let selection = select(&store, &[], TimeRange::ALL);
    let mut batch = SeriesBatch::default();
    selection.read(0..selection.len(), &mut batch).unwrap();
    let samples = batch.sample_count() as u64;
    (samples, !selection.loss_warnings().texts().is_empty())
}

#[test]
fn block_of_format_1_is_read_and_loses_nothing_with_its_meta() {
    let (sim, folder, samples) = with_old_block();
    assert_eq!(count(&sim), (samples, false));
    let report = verify(&sim.env, Path::new(ROOT)).unwrap();
    assert!(report.is_whole(), "{:?}", report.findings);
    for fault in [lose(), flip(100), cut(50)] {
        fault(&sim, &folder.join("meta.json"));
        assert_eq!(count(&sim), (samples, false));
        let outcome = repair(&sim.env, Path::new(ROOT), "now", &mut |_| true).unwrap();
        let RepairOutcome::Repaired { report, .. } = outcome else {
            panic!("{outcome:?}");
        };
        assert!(report.is_whole(), "{:?}", report.findings);
        assert_eq!(report.block_samples, samples);
        assert_eq!(count(&sim), (samples, false));
    }
    // A block of format 1 has no copy of its index.
    let index = folder.join("index");
    flip(OLD[1].1.len() - 20)(&sim, &index);
    assert_eq!(count(&sim), (0, true));
    sim.disk.overwrite(&index, OLD[1].1);
    assert_eq!(count(&sim), (samples, false));
}

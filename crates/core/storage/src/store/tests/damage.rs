//! Damage at rest, of every kind in every kind of file: only samples in the damaged bytes are lost,
//! the loss is reported, and nothing else changes.
//!
//! A random history is written, stopped in any way, and read by independent code that determines
//! which bytes of which file contain which sample. Then a file is changed, cut, emptied, removed or
//! made unreadable. After the start, every sample with an undamaged copy is there with its value;
//! if any sample is missing, damage is listed, and a query over its time returns a warning. Then
//! the store continues, is closed and opened again, and nothing more is missing. Unreadable samples
//! are all there again once the disk can read them. `FIRN_SEEDS=n` runs n seeds, `FIRN_SEED=s` one.

use super::*;
use crate::chunk::SampleColumns;
use crate::encoding::cursor::DecodeCursor;
use crate::file::frame::FrameKind;
use crate::file::header::FILE_HEADER_BYTES;
use crate::file::scan::{FrameScanItem, FrameScanner};
use crate::ids::{SeriesRef, SeriesSlot};
use crate::index::SeriesCursor;
use crate::log::LocalLog;
use crate::log::segment::LogSegmentReader;
use crate::page::{PageDecodeScratch as PageScratch, PageReader};
use crate::sealed::meta::SealedPageMeta;
use crate::seeds::seeds;
use firn_model::env::OpenMode;
use firn_model::env::sim::SimRng;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Number of seeds of an ordinary run.
const SEEDS: u64 = 80;

const SERIES: u64 = 30;
const SCRAPE_MS: i64 = 15_000;

/// Series and time of a sample.
type Key = (u64, i64);
type Samples = BTreeMap<Key, u64>;

/// Location of samples: bytes of a file, and the samples that are lost with them.
struct Placed {
    file: PathBuf,
    bytes: Range<u64>,
    keys: BTreeSet<Key>,
}

fn name(series: u64) -> String {
    format!("s{series}")
}

fn random_options(rng: &SimRng) -> StoreOptions {
    StoreOptions {
        shards: 1 + rng.next_below(3) as usize,
        window_ms: SCRAPE_MS * (2 + rng.next_below(15) as i64),
        is_jittered: !rng.one_in(3),
        log_segment_bytes: 500 + rng.next_below(4_000),
        page_segment_bytes: 300 + rng.next_below(3_000),
        page_cache_bytes: rng.next_below(4_000) as usize,
        exemplars_max: 10,
        ..StoreOptions::new("/data")
    }
}

/// Writes a history and stops, cleanly or not. Returns the acked samples and their locations.
fn write(rng: &SimRng, sim: &SimEnv, options: &StoreOptions) -> (Samples, Vec<Placed>) {
    let mut store = open(sim, options.clone());
    let mut sent = Samples::new();
    if rng.one_in(2) {
        // The series that follow are created at the border of two groups.
        let mut batch = Batch::default();
        for series in 1_000..1_000 + 490 + rng.next_below(20) {
            batch.push_series(labels(&name(series)).as_ref(), &[(0, 1.0)]);
            sent.insert((series, 0), 1f64.to_bits());
        }
        assert_eq!(append(&store, &batch, ALWAYS).rejected, []);
    }
    for scrape in 0..20 + rng.next_below(60) as i64 {
        let time = scrape * SCRAPE_MS;
        let first = rng.next_below(SERIES / 2);
        let end = first + 1 + rng.next_below(SERIES - first);
        let mut batch = Batch::default();
        for series in first..end {
            let value = [1.0, time as f64, f64::from_bits(rng.next_below(1 << 62))]
                [rng.next_below(3) as usize];
            batch.push_series(labels(&name(series)).as_ref(), &[(time, value)]);
            sent.insert((series, time), value.to_bits());
        }
        assert_eq!(append(&store, &batch, ALWAYS).rejected, []);
        if rng.one_in(2) {
            store.tick();
        }
        if rng.one_in(25) {
            if rng.one_in(2) {
                store.close().unwrap();
            }
            drop(store);
            sim.disk.kill();
            store = open(sim, options.clone());
        }
    }
    // Marks the last records as durable.
    store.tick();
    if rng.one_in(4) {
        store.close().unwrap();
    }
    let slots = slots(&store);
    drop(store);
    sim.disk.kill();
    let placed = places(sim, &slots);
    (sent, placed)
}

/// Returns the series of all slots.
fn slots(store: &Store) -> BTreeMap<SeriesSlot, u64> {
    let mut cursor = SeriesCursor::new(&store.parts.head.index.dictionary);
    let mut slots = BTreeMap::new();
    for slot in (0..store.parts.head.index.next_slot()).map(SeriesRef) {
        if cursor.place(slot).is_some() {
            let labels = store.parts.head.index.dictionary.series_labels(slot);
            let name = String::from_utf8(labels.get("__name__").to_vec()).unwrap();
            let slot = store.parts.head.numbers.slot(slot);
            slots.insert(slot, name[1..].parse().unwrap());
        }
    }
    slots
}

/// Returns the locations of the samples in all files.
fn places(sim: &SimEnv, slots: &BTreeMap<SeriesSlot, u64>) -> Vec<Placed> {
    let mut placed = Vec::new();
    for file in sim.disk.files() {
        let of = |suffix: &str| file.to_string_lossy().ends_with(suffix);
        if of(".pages") {
            placed.extend(places_of_pages(sim, &file, slots));
        } else if of(".wal") {
            placed.extend(places_of_log(sim, &file, slots));
        }
    }
    placed
}

fn blocks(sim: &SimEnv, path: &Path, kinds: &[FrameKind]) -> Vec<(Range<u64>, Vec<u8>, u64)> {
    let file = sim.env.disk.open(path, OpenMode::Read).unwrap();
    let digits = path.file_stem().unwrap().to_str().unwrap();
    let first = LogPosition(digits.parse().unwrap());
    let end = file.len().unwrap();
    let mut scanner = FrameScanner::new(file, first, FILE_HEADER_BYTES..end);
    let mut blocks = Vec::new();
    while let Some(found) = scanner.next() {
        if let FrameScanItem::Frame { offset, header } = found
            && kinds.contains(&header.kind)
        {
            let payload = scanner.payload(offset, &header).to_vec();
            let bytes = offset..offset + header.frame_bytes();
            blocks.push((bytes, payload, header.position.0));
        }
    }
    blocks
}

fn places_of_pages(sim: &SimEnv, path: &Path, slots: &BTreeMap<SeriesSlot, u64>) -> Vec<Placed> {
    let mut placed = Vec::new();
    for (bytes, payload, _) in blocks(sim, path, &[FrameKind::Page]) {
        let mut cursor = DecodeCursor::new(&payload);
        let meta = SealedPageMeta::decode(&mut cursor).unwrap();
        let page = PageReader::open(cursor.rest().into()).unwrap();
        let mut keys = BTreeSet::new();
        for slot in meta.slots() {
            let column = page.find_column(slot).unwrap().unwrap();
            let (mut columns, mut scratch) = (SampleColumns::default(), PageScratch::default());
            page.decode(&column, TimeRange::ALL, &mut scratch, &mut columns)
                .unwrap();
            keys.extend(columns.times.iter().map(|time| (slots[&slot], *time)));
        }
        let file = path.to_path_buf();
        placed.push(Placed { file, bytes, keys });
    }
    placed
}

/// A record of the log is lost together with the ones after it in its segment, which may be encoded
/// relative to it.
fn places_of_log(sim: &SimEnv, path: &Path, slots: &BTreeMap<SeriesSlot, u64>) -> Vec<Placed> {
    let options = crate::log::LogOptions::default();
    let log = LocalLog::open(&sim.env, Path::new("/data/wal"), options, Arc::default()).unwrap();
    let mut rows: BTreeMap<u64, BTreeSet<Key>> = BTreeMap::new();
    let segments = log.segments().into_iter();
    for segment in segments.filter(|segment| segment.path == path) {
        let mut reader = LogSegmentReader::open(&*sim.env.disk, segment).unwrap();
        while let Some(record) = reader.next() {
            let record = record.unwrap();
            let keys = rows.entry(record.position.0).or_default();
            let samples = record.batch.samples();
            keys.extend(samples.map(|(slot, time)| (slots[&SeriesSlot(slot)], time)));
        }
    }
    drop(log);
    sim.disk.kill();
    let blocks = blocks(sim, path, &[FrameKind::Log, FrameKind::DeltaCoded]);
    let begins: Vec<u64> = blocks.iter().map(|(bytes, ..)| bytes.start).collect();
    let mut placed = Vec::new();
    for (bytes, _, position) in &blocks {
        placed.push(Placed {
            file: path.to_path_buf(),
            // From the start of the segment: damage before a record may affect it.
            bytes: begins.first().copied().unwrap_or(0)..bytes.end,
            keys: rows.remove(position).unwrap_or_default(),
        });
    }
    placed
}

/// A kind of damage to a file.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    Flip,
    Zeros,
    Cut,
    Empty,
    Remove,
    Unreadable,
}

const FAULTS: [Fault; 6] = [
    Fault::Flip,
    Fault::Zeros,
    Fault::Cut,
    Fault::Empty,
    Fault::Remove,
    Fault::Unreadable,
];

/// Damages a file. Returns the affected bytes.
fn hit(rng: &SimRng, sim: &SimEnv, path: &Path, fault: Fault) -> Range<u64> {
    let mut bytes = sim.disk.contents(path).unwrap();
    let len = bytes.len() as u64;
    let at = rng.next_below(len.max(1));
    let range = match fault {
        Fault::Flip => at..at + 1,
        Fault::Zeros | Fault::Unreadable => at..(at + 1 + rng.next_below(600)).min(len),
        Fault::Cut => at..len,
        Fault::Empty | Fault::Remove => 0..len,
    };
    let (start, end) = (range.start as usize, range.end as usize);
    match fault {
        Fault::Flip if bytes.is_empty() => {}
        Fault::Flip => bytes[start] ^= 1 << rng.next_below(8),
        Fault::Zeros => bytes[start..end].fill(0),
        Fault::Cut | Fault::Empty => bytes.truncate(start),
        Fault::Remove => {
            sim.disk.remove_durably(path);
            return range;
        }
        Fault::Unreadable => {
            sim.disk.set_unreadable(path, Some(range.clone()));
            // The disk fails by the sector.
            return start as u64 / 4_096 * 4_096..(end as u64).next_multiple_of(4_096);
        }
    }
    sim.disk.overwrite(path, &bytes);
    range
}

/// Returns everything that a reader sees, and the number of warnings of a query over each time.
fn read(store: &Store) -> (Samples, BTreeMap<i64, usize>) {
    let mut samples = Samples::new();
    for (name, found) in contents(store, TimeRange::ALL) {
        let series = name[1..].parse().unwrap();
        for (time, value) in found {
            let again = samples.insert((series, time), value.to_bits());
            assert_eq!(again, None, "{name} at {time} is there twice");
        }
    }
    let mut warnings = BTreeMap::new();
    for scrape in 0..100 {
        let time = scrape * SCRAPE_MS;
        let selection = select(store, &[], TimeRange::new(time, time));
        let mut batch = SeriesBatch::default();
        selection.read(0..selection.len(), &mut batch).unwrap();
        warnings.insert(time, selection.loss_warnings().texts().len());
    }
    (samples, warnings)
}

fn is_hit(placed: &Placed, path: &Path, hit: &Range<u64>) -> bool {
    placed.file == path && placed.bytes.start < hit.end && hit.start < placed.bytes.end
}

/// Runs one history. Returns an error that describes a failed check.
fn run(seed: u64) -> Result<(), String> {
    let rng = SimRng::new(seed);
    let sim = sim::sim_env(seed);
    let options = random_options(&rng);
    let (sent, placed) = write(&rng, &sim, &options);
    let ignored = ["LOCK", "FORMAT"];
    let mut files = sim.disk.files();
    files.retain(|path| !ignored.iter().any(|name| path.ends_with(name)));
    let path = files[rng.next_below(files.len() as u64) as usize].clone();
    let fault = FAULTS[rng.next_below(FAULTS.len() as u64) as usize];
    let hit = hit(&rng, &sim, &path, fault);
    let what = format!("{fault:?} of {} at {hit:?}", path.display());

    // The samples with an undamaged copy.
    let whole = placed.iter().filter(|p| !is_hit(p, &path, &hit));
    let safe: BTreeSet<Key> = whole.flat_map(|p| p.keys.iter().copied()).collect();
    let store = Store::open(sim.env.clone(), options.clone());
    let store = store.map_err(|e| format!("{what}: open: {e}"))?;
    let (held, warnings) = read(&store);
    for (key, bits) in &held {
        if sent.get(key) != Some(bits) {
            return Err(format!("{what}: {key:?} has a value that was never sent"));
        }
    }
    // The length of the newest segment of the log is recorded nowhere else.
    let newest_log = files
        .iter()
        .rfind(|path| path.extension().is_some_and(|e| e == "wal"));
    let is_unsaid = fault == Fault::Cut && Some(&path) == newest_log;
    for key in sent.keys().filter(|key| !held.contains_key(key)) {
        if safe.contains(key) {
            return Err(format!("{what}: {key:?} is lost, which was not hit"));
        }
        if is_unsaid {
            continue;
        }
        if store.damages().is_empty() {
            return Err(format!("{what}: {key:?} is lost, and no damage is listed"));
        }
        if warnings[&key.1] == 0 {
            return Err(format!(
                "{what}: {key:?} is lost, and a query is not warned: {:?}",
                store.damages()
            ));
        }
    }
    // The store continues, and loses nothing more.
    let mut batch = Batch::default();
    batch.push_series(labels("s0").as_ref(), &[(200 * SCRAPE_MS, 7.0)]);
    append(&store, &batch, ALWAYS);
    (0..4).for_each(|_| store.tick());
    if rng.one_in(2) {
        store.close().map_err(|e| format!("{what}: close: {e}"))?;
    }
    drop(store);
    sim.disk.kill();
    sim.disk.set_unreadable(&path, None);
    let store = Store::open(sim.env.clone(), options);
    let store = store.map_err(|e| format!("{what}: open again: {e}"))?;
    let (later, _) = read(&store);
    let is_log = path.extension().is_some_and(|extension| extension == "wal");
    let expected = match fault {
        Fault::Unreadable if is_log => {
            // Its readable part is sealed. The file is kept, unless pages contain all of it.
            let kept = sim.disk.contents(&path.with_extension("unreadable"));
            let is_gone = kept.or_else(|| sim.disk.contents(&path)).is_none();
            if is_gone && held.len() < sent.len() {
                return Err(format!("{what}: the file is gone"));
            }
            &held
        }
        Fault::Unreadable => &sent,
        _ => &held,
    };
    match expected.keys().find(|key| !later.contains_key(key)) {
        Some(key) => Err(format!("{what}: {key:?} is lost after another start")),
        None => Ok(()),
    }
}

#[test]
fn damage_of_any_kind_costs_what_it_hit_and_is_said() {
    for seed in seeds(SEEDS) {
        if let Err(trouble) = run(seed) {
            panic!("FIRN_SEED={seed}: {trouble}");
        }
    }
}

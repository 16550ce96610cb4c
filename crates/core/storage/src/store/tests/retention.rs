//! Tests of time and size limits that change while the store runs, and of the data that they
//! delete.

use super::*;
use crate::block::BlockId;
use crate::chunk::SampleColumns;
use crate::import::ImportTarget;
use firn_model::metrics::MetricValue;
use std::path::Path;

const MINUTE: i64 = 60_000;

/// Options with pages of a minute and segments of a few pages, which are soon closed.
fn small_pages() -> StoreOptions {
    StoreOptions {
        retention_ms: i64::MAX,
        lateness_max_ms: MINUTE,
        window_ms: MINUTE,
        page_segment_bytes: 1_000,
        tick_ms: i64::MAX,
        ..options()
    }
}

/// Returns a store with an hour of samples, nearly all of them sealed.
fn store_of_an_hour(sim: &SimEnv) -> Arc<Store> {
    let store = open(sim, small_pages());
    for time in (0..60 * MINUTE).step_by(10_000) {
        append(&store, &batch(&[("a", &[(time, time as f64)])]), ALWAYS);
        store.tick();
    }
    store
}

fn times(store: &Store) -> Vec<i64> {
    let found = contents(store, TimeRange::ALL);
    let samples = found.into_iter().flat_map(|(_, samples)| samples);
    samples.map(|(time, _)| time).collect()
}

fn limit(time_ms: i64, bytes: Option<u64>, percent: Option<f64>) -> RetentionLimits {
    RetentionLimits {
        time_ms,
        rules: RetentionRules::default(),
        bytes,
        percent,
    }
}

/// Returns the bytes of the files that count against the limit.
fn counted(store: &Store) -> u64 {
    store.maintenance.workers().remover.bytes_beside_blocks()
        + store.parts.blocks.bytes.get() as u64
}

fn files_of(sim: &SimEnv, folder: &str) -> u64 {
    let files = sim.disk.files();
    let inside = files.iter().filter(|path| path.starts_with(folder));
    inside
        .map(|path| sim.disk.contents(path).map_or(0, |c| c.len() as u64))
        .sum()
}

#[test]
fn limit_of_size_counts_log_pages_catalogue_and_exemplars() {
    let sim = sim::sim_env(1);
    let store = store_of_an_hour(&sim);
    store.tick();
    let folders = ["wal", "pages", "series", "exemplars"];
    let files: u64 = folders
        .map(|folder| files_of(&sim, &format!("/data/{folder}")))
        .iter()
        .sum();
    assert_eq!(counted(&store), files);
    store.set_retention(limit(i64::MAX, Some(files), None));
    assert_eq!(times(&store).len(), 360, "all of it fits");
}

#[test]
fn limit_of_size_set_later_takes_the_oldest_pages_and_stays() {
    let sim = sim::sim_env(1);
    let store = store_of_an_hour(&sim);
    let all = times(&store);
    let before = counted(&store);
    let bytes = before - files_of(&sim, "/data/pages") / 2;
    store.set_retention(limit(i64::MAX, Some(bytes), None));
    let kept = times(&store);
    assert!(counted(&store) <= bytes, "{} of {bytes}", counted(&store));
    assert!(counted(&store) + 2_000 > bytes, "no more goes than must");
    assert!(
        all.ends_with(&kept) && kept.len() < all.len() * 3 / 4,
        "{}",
        kept.len()
    );
    assert_eq!(store.parts.retaining.by_size.get(), 1);
    // A higher limit restores nothing, and nothing else is deleted.
    store.set_retention(limit(i64::MAX, None, None));
    assert_eq!(times(&store), kept);
    drop(store);
    let store = open(&sim, small_pages());
    assert_eq!((times(&store), store.damages()), (kept, Vec::new()));
}

#[test]
fn limit_of_size_however_small_leaves_what_the_head_may_add_to() {
    let sim = sim::sim_env(1);
    let store = store_of_an_hour(&sim);
    store.set_retention(limit(i64::MAX, Some(1), None));
    let kept = times(&store);
    assert!(
        kept.iter().filter(|time| **time >= 57 * MINUTE).count() == 18,
        "{kept:?}"
    );
    assert!(kept[0] > 50 * MINUTE, "{kept:?}");
    append(&store, &batch(&[("a", &[(60 * MINUTE, 1.0)])]), ALWAYS);
    store.tick();
    drop(store);
    let store = open(&sim, small_pages());
    assert_eq!(store.damages(), []);
    assert_eq!(times(&store).last(), Some(&(60 * MINUTE)));
}

#[test]
fn limit_in_percent_goes_before_that_in_bytes_unless_the_disk_does_not_tell() {
    let sim = sim::sim_env(1);
    let store = store_of_an_hour(&sim);
    let count = times(&store).len();
    sim.disk.set_capacity_bytes(1 << 30);
    store.set_retention(limit(i64::MAX, Some(1), Some(50.0)));
    assert_eq!(times(&store).len(), count);
    let half_of_all = 100.0 * counted(&store) as f64 / 2.0 / (1u64 << 30) as f64;
    store.set_retention(limit(i64::MAX, None, Some(half_of_all)));
    let less = times(&store).len();
    assert!(less < count);
    sim.disk.set_capacity_bytes(0);
    store.set_retention(limit(i64::MAX, Some(1 << 30), Some(half_of_all / 2.0)));
    assert_eq!(times(&store).len(), less);
}

#[test]
fn limit_of_time_set_later_takes_what_is_too_old_and_is_shown() {
    let sim = sim::sim_env(1);
    let store = store_of_an_hour(&sim);
    store.set_retention(limit(20 * MINUTE, Some(1 << 30), None));
    let kept = times(&store);
    assert!(
        kept[0] > 20 * MINUTE && kept[0] <= 40 * MINUTE,
        "{}",
        kept[0]
    );
    assert_eq!(store.parts.retaining.by_size.get(), 0);
    let mut shown = Vec::new();
    let mut sink = |name: &str, value: f64| {
        if name.starts_with("firn_storage_retention_limit_") {
            shown.push((name.to_owned(), value));
        }
    };
    store.collect(&mut Numbers(&mut sink));
    let expected = [
        ("seconds", 1_200.0),
        ("bytes", (1u64 << 30) as f64),
        ("percentage", 0.0),
    ];
    let expected = expected.map(|(unit, n)| (format!("firn_storage_retention_limit_{unit}"), n));
    assert_eq!(shown, expected);
    assert!(sim.env.disk.list(Path::new("/data/pages")).unwrap().len() > 1);
}

/// A sink for plain numbers.
struct Numbers<'a>(&'a mut dyn FnMut(&str, f64));

impl MetricSink for Numbers<'_> {
    fn metric(&mut self, name: &str, _: &str, _: &[(&str, &str)], value: MetricValue<'_>) {
        if let MetricValue::Counter(number) | MetricValue::Gauge(number) = value {
            (self.0)(name, number);
        }
    }
}

/// Like [`small_pages`], with blocks of four minutes.
fn small_blocks() -> StoreOptions {
    StoreOptions {
        retention_ms: 1_000 * MINUTE,
        cut_ms: 4 * MINUTE,
        ..small_pages()
    }
}

/// Returns the time range and the bytes of each block, oldest first.
fn blocks(store: &Store) -> Vec<(TimeRange, u64)> {
    let list = store.parts.blocks.list().blocks.into_iter();
    let mut blocks: Vec<_> = list.map(|block| (block.range, block.bytes)).collect();
    blocks.sort_by_key(|(range, _)| range.max);
    blocks
}

fn block_folders(sim: &SimEnv) -> usize {
    let names = sim.env.disk.list(Path::new("/data/blocks")).unwrap();
    let ids = names
        .iter()
        .filter_map(|name| name.to_str()?.parse::<BlockId>().ok());
    ids.count()
}

#[test]
fn limit_of_size_takes_the_oldest_blocks_once_no_reader_holds_them() {
    let sim = sim::sim_env(1);
    let store = open(&sim, small_blocks());
    for time in (0..90 * MINUTE).step_by(10_000) {
        append(&store, &batch(&[("a", &[(time, time as f64)])]), ALWAYS);
        store.tick();
    }
    let before = blocks(&store);
    assert!(before.len() > 2, "{before:?}");
    let all = contents(&store, TimeRange::ALL);
    let reader = select(&store, &[], TimeRange::ALL);
    let written = store.parts.metrics.block_bytes_written.get();
    let [oldest, next] = [before[0], before[1]];
    store.set_retention(limit(i64::MAX, Some(counted(&store) - oldest.1 - 1), None));
    assert_eq!(
        blocks(&store),
        before[2..],
        "two go: without one it is a byte too much"
    );
    let kept = times(&store);
    assert_eq!(kept[0], next.0.max + 10_000);
    assert_eq!(kept.last(), Some(&(90 * MINUTE - 10_000)));
    // An earlier reader can continue.
    let mut columns = SeriesBatch::default();
    reader.read(0..1, &mut columns).unwrap();
    assert_eq!(columns.series(0).times.len(), all[0].1.len());
    assert!(block_folders(&sim) > blocks(&store).len());
    drop(reader);
    store.tick();
    assert_eq!(block_folders(&sim), blocks(&store).len());
    assert_eq!(store.parts.metrics.block_bytes_written.get(), written);
    assert_eq!(store.parts.retaining.by_size.get(), 1);
    drop(store);
    let store = open(&sim, small_blocks());
    assert_eq!((times(&store), store.damages()), (kept, Vec::new()));
}

#[test]
fn limit_of_size_below_log_and_pages_leaves_no_block_and_all_that_is_not_in_one() {
    let sim = sim::sim_env(1);
    let store = open(&sim, small_blocks());
    for time in (0..30 * MINUTE).step_by(10_000) {
        append(&store, &batch(&[("a", &[(time, time as f64)])]), ALWAYS);
        store.tick();
        if time == 15 * MINUTE {
            store.set_retention(limit(i64::MAX, Some(1), None));
        }
    }
    store.tick();
    assert_eq!((blocks(&store), block_folders(&sim)), (Vec::new(), 0));
    let kept = times(&store);
    assert!(
        kept[0] >= 20 * MINUTE && kept[0] <= 28 * MINUTE,
        "{}",
        kept[0]
    );
    assert_eq!(kept.last(), Some(&(30 * MINUTE - 10_000)));
    drop(store);
    let store = open(&sim, small_blocks());
    assert_eq!((times(&store), store.damages()), (kept, Vec::new()));
}

/// Whatever the number of blocks, one manifest is written and each deleted file is unlinked.
#[test]
fn limit_set_later_costs_one_manifest_and_what_it_unlinks() {
    const BLOCKS: i64 = 300;
    let sim = sim::sim_env(1);
    let store = open(&sim, small_pages());
    let target = ImportTarget::from_blocks(&sim.env, &store.parts.blocks);
    let mut import = target.begin();
    for number in 0..BLOCKS {
        let columns = SampleColumns {
            times: vec![number * MINUTE],
            values: vec![1.0],
            ..SampleColumns::default()
        };
        let fill = |series: &mut crate::import::ImportSeriesWriter<'_>| {
            series.push(labels("a").as_ref(), &columns)
        };
        let id = target.new_id(number * MINUTE);
        import.write_block(id, None, fill).unwrap();
    }
    import.commit().unwrap();
    append(&store, &batch(&[("a", &[(BLOCKS * MINUTE, 1.0)])]), ALWAYS);
    store.tick();
    let files = sim.disk.files().len();
    let left = blocks(&store).len();
    let version = store.parts.blocks.list().version;
    let bytes = counted(&store) - blocks(&store)[..left / 2].iter().map(|b| b.1).sum::<u64>();
    let files_of_each = files / left;
    sim.disk
        .power_off_after((left / 2 * (files_of_each + 3) + 20) as u64);
    store.set_retention(limit(i64::MAX, Some(bytes), None));
    assert!(!sim.disk.is_off());
    assert_eq!(blocks(&store).len(), left - left / 2);
    assert_eq!(store.parts.blocks.list().version, version + 1);
    assert!(sim.disk.files().len() < files * 6 / 10);
}

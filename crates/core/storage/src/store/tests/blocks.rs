//! Cuts, blocks and merges in a working store: the samples that are found, the series that leave
//! the index and those that return.

use super::*;
use crate::block::MetricMetadataSet;
use firn_model::metadata::{MetadataBatch, MetricMetadata};
use firn_model::stats::{BlockStats, BlockStoreStats};
use firn_model::store::MetadataRequest;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const MINUTE: i64 = 60_000;
pub(super) const HOUR: i64 = 60 * MINUTE;

pub(super) type Model = BTreeMap<String, Vec<(i64, f64)>>;

/// A store that receives one steady series and a series of churn that is replaced every hour.
pub(super) struct Churn {
    pub(super) sim: SimEnv,
    pub(super) store: Option<Arc<Store>>,
    pub(super) model: Model,
    now: i64,
    options: StoreOptions,
}

impl Churn {
    pub(super) fn new(seed: u64) -> Self {
        Self::with(seed, options())
    }

    pub(super) fn with(seed: u64, options: StoreOptions) -> Self {
        let sim = sim::sim_env(seed);
        Self {
            store: Some(open(&sim, options.clone())),
            sim,
            model: Model::new(),
            now: 0,
            options,
        }
    }

    /// Creates a store whose merges split their result into blocks of `series` series.
    fn of_shards(seed: u64, series: u32) -> Self {
        let mut options = options();
        options.block_max.series = series;
        Self::with(seed, options)
    }

    /// Appends samples for a number of hours, with a tick every minute.
    pub(super) fn send(&mut self, hours: i64) {
        self.send_with(hours, |store| store.tick());
    }

    fn send_with(&mut self, hours: i64, each_minute: impl Fn(&Store)) {
        let end = self.now + hours * HOUR;
        while self.now < end {
            self.send_minute(&each_minute);
        }
    }

    /// Appends a sample to both series and then calls `then`.
    pub(super) fn send_minute(&mut self, then: impl Fn(&Store)) {
        let short = format!("short{}", self.now / HOUR);
        let value = (self.now / 1_000 % 977) as f64;
        let samples = [(self.now, value)];
        let sent = batch(&[("steady", &samples), (&short, &samples)]);
        assert_eq!(append(self.store(), &sent, ALWAYS).stored, 2);
        for name in ["steady", &short] {
            let series = self.model.entry(name.to_owned()).or_default();
            series.push((self.now, value));
        }
        then(self.store());
        self.now += MINUTE;
    }

    pub(super) fn reopen(&mut self) {
        self.store = None;
        self.store = Some(open(&self.sim, self.options.clone()));
    }

    pub(super) fn store(&self) -> &Arc<Store> {
        self.store.as_ref().unwrap()
    }

    #[track_caller]
    pub(super) fn check(&self, range: TimeRange) {
        let mut expected = Model::new();
        for (name, samples) in &self.model {
            let inside = samples.iter().filter(|(time, _)| range.contains(*time));
            let inside: Vec<_> = inside.copied().collect();
            if !inside.is_empty() {
                expected.insert(name.clone(), inside);
            }
        }
        let found = contents(self.store(), range).into_iter();
        let found: Model = found.filter(|(_, samples)| !samples.is_empty()).collect();
        assert!(
            found == expected,
            "{range:?}: {} and {} series",
            found.len(),
            expected.len()
        );
    }

    pub(super) fn check_all(&self) {
        self.check(TimeRange::ALL);
        for start in 0..self.now / HOUR {
            let start = start * HOUR + 17 * MINUTE;
            self.check(TimeRange::new(start, start + 3 * HOUR));
        }
    }

    fn blocks(&self) -> Vec<(i64, i64)> {
        let list = self.store().parts.blocks.list();
        let hours = |block: &crate::blocks::BlockEntry| {
            (block.range.min / HOUR, (block.range.max + MINUTE) / HOUR)
        };
        list.blocks.iter().map(hours).collect()
    }
}

#[test]
fn samples_of_a_day_are_found_in_blocks_pages_and_head() {
    let mut churn = Churn::new(1);
    for _ in 0..26 {
        churn.send(1);
        churn.check(TimeRange::ALL);
    }
    churn.check_all();
    assert_eq!(churn.blocks(), [(0, 8), (8, 16), (16, 24)]);
    churn.store().close().unwrap();
    churn.reopen();
    churn.check_all();
    churn.sim.disk.crash();
    churn.reopen();
    churn.check_all();
}

#[test]
fn index_after_cuts_knows_the_series_of_the_last_hours() {
    check_index_after_cuts(options().late_window_ms);
    // Late samples of any age are accepted, and there are none in the head.
    check_index_after_cuts(i64::MAX);
}

#[track_caller]
fn check_index_after_cuts(late_window_ms: i64) {
    let options = StoreOptions {
        late_window_ms,
        ..options()
    };
    let mut churn = Churn::with(2, options);
    churn.send(40);
    let index = churn.store().parts.head.index.series_count();
    assert!(
        index <= 6,
        "{index} series with a window of {late_window_ms} ms"
    );
    let pages = churn.store().parts.sealed.directory.summary();
    assert!(pages.oldest >= Some(36 * HOUR), "{pages:?}");
    churn.reopen();
    let index = churn.store().parts.head.index.series_count();
    // The catalogue may list as many removed series again; the first ticks drop them from the
    // index.
    churn.send(1);
    let after = churn.store().parts.head.index.series_count();
    assert!(after <= 7, "{index} series after a start, then {after}");
}

#[test]
fn cuts_that_wait_are_caught_up_within_a_few_ticks() {
    let mut churn = Churn::with(
        3,
        StoreOptions {
            tick_ms: i64::MAX,
            ..options()
        },
    );
    churn.send_with(28, |_| {});
    let cuts = |churn: &Churn| churn.store().parts.metrics.cuts.get();
    assert_eq!(cuts(&churn), 0);
    (0..6).for_each(|_| churn.store().tick());
    assert!(cuts(&churn) >= 12, "{} cuts", cuts(&churn));
    churn.check_all();
    (0..10).for_each(|_| churn.store().tick());
    assert_eq!(cuts(&churn), 13);
    // A single overdue cut takes one tick for each of its steps.
    churn.send_with(2, |_| {});
    churn.store().tick();
    assert_eq!(cuts(&churn), 13);
    (0..4).for_each(|_| churn.store().tick());
    assert_eq!(cuts(&churn), 14);
}

/// Returns a request for all series with samples in `range`.
fn request(range: TimeRange) -> SelectRequest<'static> {
    SelectRequest {
        tenant: Box::leak(Box::new(TenantId::anonymous())),
        matchers: &[],
        range,
        newest_only: false,
        cancel: Box::leak(Box::new(CancelToken::new())),
        budget: Box::leak(Box::new(Budget::new("query", usize::MAX))),
        series: Box::leak(Box::new(SeriesLimit::unlimited())),
        span: None,
    }
}

#[test]
fn reads_count_their_bytes_and_the_pages_and_units_in_caches() {
    let mut churn = Churn::new(6);
    churn.send(20);
    churn.store().close().unwrap();
    churn.reopen();
    let read = |range| {
        let selection = churn.store().select(request(range)).unwrap();
        let before = selection.read_costs();
        assert_eq!((before.cache_hits, before.cache_misses), (0, 0));
        let mut batch = SeriesBatch::default();
        selection.read(0..selection.len(), &mut batch).unwrap();
        selection.read_costs()
    };
    let (first, second) = (read(TimeRange::ALL), read(TimeRange::ALL));
    assert!(first.cache_misses > 0, "{first:?}");
    assert_eq!(second.cache_misses, 0, "{second:?}");
    assert!(second.cache_hits > 0, "{second:?}");
    assert_eq!(second.bytes, first.bytes);
    let hour = read(TimeRange::new(HOUR, 2 * HOUR));
    assert!(
        hour.bytes > 0 && hour.bytes < first.bytes,
        "{hour:?} {first:?}"
    );
}

#[test]
fn names_and_values_of_labels_are_those_of_head_and_blocks() {
    let mut churn = Churn::new(3);
    churn.send(12);
    let names = churn.store().label_names(request(TimeRange::ALL)).unwrap();
    assert_eq!(names, ["__name__", "job"]);
    let values = churn
        .store()
        .label_values("__name__", request(TimeRange::ALL))
        .unwrap();
    let expected: Vec<Vec<u8>> = churn
        .model
        .keys()
        .map(|name| name.clone().into_bytes())
        .collect();
    assert_eq!(values, expected);
}

/// Returns the paths of the index of a block and of its copy.
pub(super) fn indexes_of(folder: &Path) -> [PathBuf; 2] {
    ["index", "index.copy"].map(|name| folder.join(name))
}

#[test]
fn block_whose_index_and_copy_are_damaged_costs_itself_alone() {
    let mut churn = Churn::new(4);
    churn.send(12);
    let list = churn.store().parts.blocks.list();
    let bad = list.blocks[0].clone();
    let folder = Path::new("/data/blocks").join(bad.id.to_string());
    churn.store().close().unwrap();
    for index in indexes_of(&folder) {
        let mut bytes = churn.sim.disk.contents(&index).unwrap();
        let at = bytes.len() - 20;
        bytes[at] ^= 1;
        churn.sim.disk.overwrite(&index, &bytes);
    }
    churn.reopen();
    let damages = churn.store().damages();
    assert_eq!(damages.len(), 1, "{damages:?}");
    assert_eq!(damages[0].range, Some(bad.range));
    churn
        .model
        .values_mut()
        .for_each(|samples| samples.retain(|(t, _)| !bad.range.contains(*t)));
    churn.check(TimeRange::ALL);
    let selection = select(churn.store(), &[], bad.range);
    assert_eq!(selection.loss_warnings().texts().len(), 1);
    churn.send(2);
    churn.check(TimeRange::ALL);
    let after = churn.store().parts.blocks.list();
    assert!(
        after
            .blocks
            .iter()
            .any(|block| block.is_bad && block.id == bad.id)
    );
}

/// Damages the first block of a stopped store so that it cannot be opened, in several ways. The
/// store starts without the block, reports it, and uses it again once it is intact.
#[test]
fn block_that_does_not_open_is_in_quarantine_until_it_is_whole_again() {
    for how in ["footer", "empty", "gone"] {
        check_quarantine(&["index", "index.copy"], how);
    }
    check_quarantine(&["data-000"], "empty");
    check_quarantine(&["data-000"], "gone");
}

#[track_caller]
fn check_quarantine(files: &[&str], how: &str) {
    let context = format!("{files:?}, {how}");
    let mut churn = Churn::new(5);
    churn.send(8);
    let bad = churn.store().parts.blocks.list().blocks[0].clone();
    let folder = Path::new("/data/blocks").join(bad.id.to_string());
    churn.store().close().unwrap();
    let disk = churn.sim.disk.clone();
    let mut sound = Vec::new();
    for file in files {
        let path = folder.join(file);
        let whole = disk.contents(&path).unwrap();
        match how {
            "footer" => disk.overwrite(&path, &whole[..whole.len() - 8]),
            "empty" => disk.overwrite(&path, &[]),
            _ => disk.remove_durably(&path),
        }
        sound.push((path, whole));
    }
    let all = churn.model.clone();
    for samples in churn.model.values_mut() {
        samples.retain(|(t, _)| !bad.range.contains(*t));
    }
    for start in 0..2 {
        churn.reopen();
        churn.check(TimeRange::ALL);
        let damages = churn.store().damages();
        assert_eq!(damages.len(), 1, "{context}, start {start}: {damages:?}");
        assert!(
            damages[0].file.starts_with(&folder),
            "{context}: {damages:?}"
        );
        assert_eq!(
            (damages[0].range, damages[0].samples),
            (Some(bad.range), Some(bad.samples))
        );
        let listed = crate::listing::list(&churn.sim.env, Path::new("/data")).unwrap();
        let listed: Vec<&str> = listed.iter().filter(|b| b.is_bad).map(|b| &*b.id).collect();
        assert_eq!(listed, [bad.id.to_string()], "{context}");
        assert_eq!(churn.store().parts.blocks.bad.get(), 1, "{context}");
    }
    // Cuts, merges and commits continue.
    let version = churn.store().parts.blocks.list().version;
    churn.send(3);
    assert!(
        churn.store().parts.blocks.list().version > version,
        "{context}"
    );
    churn.store().close().unwrap();
    churn.store = None;
    let report = crate::verify::verify(&churn.sim.env, Path::new("/data")).unwrap();
    let file_of = |finding: &crate::verify::VerifyFinding| finding.damage.file.clone();
    assert!(
        report
            .findings
            .iter()
            .all(|f| file_of(f).starts_with(&folder)),
        "{context}"
    );
    assert!(!report.is_whole(), "{context}");
    for (path, whole) in sound {
        disk.overwrite(&path, &whole);
    }
    for (name, samples) in all {
        let back = samples.into_iter().filter(|(t, _)| bad.range.contains(*t));
        let known = churn.model.entry(name).or_default();
        known.extend(back);
        known.sort_by_key(|(t, _)| *t);
    }
    churn.reopen();
    assert!(churn.store().damages().is_empty(), "{context}");
    assert_eq!(churn.store().parts.blocks.bad.get(), 0, "{context}");
    churn.check(TimeRange::ALL);
    churn.send(20);
    churn.check(TimeRange::ALL);
}

#[test]
fn block_that_the_disk_does_not_deliver_stops_no_commit() {
    let mut churn = Churn::new(6);
    churn.send(8);
    let lost = churn.store().parts.blocks.list().blocks[0].clone();
    let folder = Path::new("/data/blocks").join(lost.id.to_string());
    churn.store().close().unwrap();
    for index in indexes_of(&folder) {
        churn.sim.disk.set_unreadable(&index, Some(0..u64::MAX));
    }
    churn.reopen();
    assert_eq!(churn.store().damages().len(), 1);
    let all = churn.model.clone();
    for samples in churn.model.values_mut() {
        samples.retain(|(t, _)| !lost.range.contains(*t));
    }
    let version = churn.store().parts.blocks.list().version;
    churn.send(3);
    assert!(churn.store().parts.blocks.list().version > version);
    churn.check(TimeRange::ALL);
    // A disk fault is not damage: the next commit opens the block again.
    for index in indexes_of(&folder) {
        churn.sim.disk.set_unreadable(&index, None);
    }
    churn.send(3);
    for (name, samples) in all {
        let back = samples.into_iter().filter(|(t, _)| lost.range.contains(*t));
        let known = churn.model.entry(name).or_default();
        known.extend(back);
        known.sort_by_key(|(t, _)| *t);
    }
    churn.check(TimeRange::ALL);
}

#[test]
fn block_in_quarantine_leaves_the_disk_with_the_retention() {
    let mut churn = Churn::new(7);
    churn.send(8);
    let bad = churn.store().parts.blocks.list().blocks[0].clone();
    let folder = Path::new("/data/blocks").join(bad.id.to_string());
    churn.store().close().unwrap();
    for index in indexes_of(&folder) {
        churn.sim.disk.overwrite(&index, &[]);
    }
    churn.reopen();
    let retention = RetentionLimits {
        time_ms: 2 * HOUR,
        ..churn.store().parts.options.retention()
    };
    churn.store().set_retention(retention);
    churn.send(1);
    let list = churn.store().parts.blocks.list();
    assert!(!list.contains(bad.id));
    assert!(
        churn.sim.env.disk.list(&folder).is_err(),
        "its folder is there"
    );
    assert_eq!(churn.store().parts.blocks.bad.get(), 0);
}

#[test]
fn merge_of_more_series_than_a_block_takes_gives_several_and_stays() {
    let mut churn = Churn::of_shards(5, 4);
    churn.send(18);
    churn.check_all();
    // Nine series in each of the first two windows: eight that live for an hour, and the steady
    // one.
    assert_eq!(churn.blocks().len(), 6, "{:?}", churn.blocks());
    let version = churn.store().parts.blocks.list().version;
    for _ in 0..20 {
        churn.store().tick();
    }
    assert_eq!(churn.store().parts.blocks.list().version, version);
    churn.send(18);
    churn.check_all();
    let list = churn.store().parts.blocks.list();
    let levels: Vec<u32> = list.blocks.iter().map(|block| block.level).collect();
    // 33 series of 32 hours in blocks of four series, and the next two hours.
    assert_eq!(levels, [3, 3, 3, 3, 3, 3, 3, 3, 3, 1]);
    churn.store().close().unwrap();
    churn.reopen();
    churn.check_all();
}

#[test]
fn blocks_are_listed_with_what_they_are_and_how_far_the_work_is() {
    let mut churn = Churn::of_shards(8, 4);
    assert_eq!(churn.store().block_stats(), BlockStoreStats::default());
    churn.send(13);
    let stats = churn.store().block_stats();
    let hours = |block: &BlockStats| (block.range.min / HOUR, (block.range.max + 1) / HOUR);
    let found: Vec<_> = stats
        .blocks
        .iter()
        .map(|b| (hours(b), b.level, b.shard))
        .collect();
    let (merged, cut) = ((0, 8), ((8, 10), 1, None));
    let expected = [
        (merged, 2, Some(0)),
        (merged, 2, Some(1)),
        (merged, 2, Some(2)),
        cut,
    ];
    assert_eq!(found, expected);
    assert_eq!(stats.cut_time, Some(10 * HOUR));
    let samples: u64 = stats.blocks.iter().map(|block| block.samples).sum();
    assert_eq!(samples, 2 * 10 * 60);
    // Four blocks with three series each were merged. A cut visits all series of its pages, one of
    // which has samples only after its end.
    for (work, series) in [(stats.cut, 4), (stats.compaction, 12)] {
        assert!(!work.is_running && work.written_bytes > 0, "{work:?}");
        assert_eq!((work.series, work.series_done), (series, series));
    }
}

#[test]
fn shards_without_a_manifest_are_one_set_again() {
    let mut churn = Churn::of_shards(6, 4);
    churn.send(19);
    let before = churn.store().parts.blocks.list();
    let levels: Vec<u32> = before.blocks.iter().map(|block| block.level).collect();
    assert_eq!(levels, [2; 6]);
    churn.store = None;
    let manifest = format!("/data/blocks/MANIFEST-{}", before.version);
    churn.sim.disk.remove_durably(Path::new(&manifest));
    churn.reopen();
    let ids = |list: &crate::blocks::BlockList| -> Vec<_> {
        let sets = crate::blocks::BlockSet::split_into_sets(&list.blocks);
        sets.map(|set| set.blocks().iter().map(|b| b.id).collect::<Vec<_>>())
            .collect()
    };
    churn.check_all();
    churn.send(1);
    // The next two hours may have been cut in the meantime; the other sets are unchanged.
    let after = ids(&churn.store().parts.blocks.list());
    assert_eq!(after[..2], ids(&before));
}

#[test]
fn look_up_of_a_metric_touches_the_shards_that_may_have_it() {
    let mut churn = Churn::of_shards(7, 3);
    churn.send(11);
    let view = churn.store().parts.blocks.view();
    let touched = |op, name: &str| {
        let matcher = Matcher::new("__name__", op, name.as_bytes()).unwrap();
        view.find_matching(TimeRange::ALL, &[matcher]).count()
    };
    assert_eq!(view.blocks.len(), 3);
    // The shards contain short0 to short2, short3 to short5, and short6 to steady.
    for (op, name, count) in [
        (MatchOp::Equal, "short0", 1),
        (MatchOp::Equal, "short4", 1),
        (MatchOp::Equal, "steady", 1),
        (MatchOp::Equal, "zz", 0),
        (MatchOp::Equal, "", 0),
        (MatchOp::Regex, "short1|short7", 2),
        (MatchOp::Regex, "short.*", 3),
        (MatchOp::NotEqual, "short0", 3),
    ] {
        assert_eq!(touched(op, name), count, "{name}");
    }
}

/// The values of a label fill more than one unit, so damage to a block may be detected after some
/// of its series were merged. The results for the next block must not be affected.
#[test]
fn block_that_fails_midway_in_a_join_leaves_nothing_to_the_next_one() {
    const SERIES: usize = 1_300;
    let sim = sim::sim_env(9);
    let store = open(&sim, options());
    let name = |i: usize| format!("m{i:04}");
    let value = |i: usize, time: i64| i as f64 * 100.0 + (time / HOUR) as f64;
    for hour in 0..8 {
        let time = hour * HOUR;
        // The second block has fewer series, so the same ordinals belong to other series there.
        let is_sent = |i: &usize| hour / 2 != 1 || !i.is_multiple_of(7);
        let series = (0..SERIES).filter(is_sent);
        let sent: Vec<(String, [(i64, f64); 1])> = series
            .map(|i| (name(i), [(time, value(i, time))]))
            .collect();
        let sent = sent
            .iter()
            .map(|(name, samples)| (name.as_str(), &samples[..]));
        append(&store, &batch(&sent.collect::<Vec<_>>()), ALWAYS);
        (0..40).for_each(|_| store.tick());
    }
    let blocks = store.parts.blocks.list().blocks.clone();
    assert!(blocks.len() >= 2, "{blocks:?}");
    store.close().unwrap();
    drop(store);
    let whole = blocks[1].range;
    let indexes = indexes_of(&Path::new("/data/blocks").join(blocks[0].id.to_string()));
    let bytes = sim.disk.contents(&indexes[0]).unwrap();
    let mut lost = 0;
    for part in 0..30 {
        let mut damaged = bytes.clone();
        damaged[bytes.len() * part / 30] ^= 1;
        for index in &indexes {
            sim.disk.overwrite(index, &damaged);
        }
        let store = open(&sim, options());
        let selection = select(&store, &[], TimeRange::ALL);
        lost += usize::from(!selection.loss_warnings().texts().is_empty());
        let held = contents_of(&*selection);
        let mut of_whole = 0;
        for (name, samples) in &held {
            let number: usize = name[1..].parse().unwrap();
            let is_own = |(time, v): &(i64, f64)| *v == value(number, *time);
            assert!(
                samples.iter().all(is_own),
                "{name}: {samples:?}, part {part}"
            );
            assert!(
                samples.is_sorted_by(|a, b| a.0 < b.0),
                "{name}: {samples:?}"
            );
            let in_whole = |(time, _): &&(i64, f64)| whole.contains(*time);
            of_whole += samples.iter().filter(in_whole).count();
        }
        let each = contents_of(&*select(&store, &[], whole));
        let expected: usize = each.iter().map(|(_, samples)| samples.len()).sum();
        assert_eq!(of_whole, expected, "damage in part {part}");
        drop(store);
        sim.disk.kill();
    }
    assert!(lost > 5, "only {lost} of 30 were met");
}

/// Returns the metric metadata in the store.
fn said(store: &Store, metric: Option<&str>) -> Vec<(String, String)> {
    let request = MetadataRequest {
        tenant: &TenantId::anonymous(),
        metric,
        cancel: &CancelToken::new(),
        budget: &Budget::new("query", 1 << 20),
    };
    let found = Select::metadata(store, request).unwrap();
    let owned = found.iter().map(|m| (m.name.to_owned(), m.help.to_owned()));
    owned.collect()
}

/// Sets the help text of `steady` to the hour of the newest sample, and that of each short series
/// to its own hour.
fn teach(churn: &Churn) {
    let store = Arc::downgrade(churn.store());
    churn.store().set_metadata_source(Box::new(move || {
        let mut batch = MetadataBatch::default();
        let newest = store.upgrade().and_then(|store| store.parts.head.newest());
        let hour = newest.unwrap_or(0) / HOUR;
        let mut say = |name: &str, help: &str| {
            batch.push(MetricMetadata {
                name,
                help,
                ..MetricMetadata::default()
            });
        };
        say("steady", &format!("As of hour {hour}."));
        say("unheard_of", "");
        // The metadata of series that ended is no longer supplied when later blocks are cut.
        for short in hour - 4..=hour {
            say(&format!("short{short}"), &format!("Of hour {short}."));
        }
        batch
    }));
}

#[test]
fn metadata_of_metrics_that_are_gone_is_kept_by_blocks_and_merges() {
    let mut churn = Churn::new(9);
    teach(&churn);
    churn.send(27);
    let levels = churn.store().parts.blocks.list().blocks;
    assert!(levels.iter().any(|block| block.level > 1), "{levels:?}");
    let check = |store: &Store| {
        // The last cut was made at 25 h, because a cut waits an hour for late samples and open
        // pages.
        let all = said(store, None);
        let of_shorts = (0..24).map(|hour| (format!("short{hour}"), format!("Of hour {hour}.")));
        let mut wanted: Vec<_> = of_shorts.collect();
        wanted.push(("steady".to_owned(), "As of hour 25.".to_owned()));
        wanted.sort();
        assert_eq!(all, wanted);
        let of_one = said(store, Some("short3"));
        assert_eq!(of_one, [("short3".to_owned(), "Of hour 3.".to_owned())]);
        assert_eq!(said(store, Some("unheard_of")), []);
    };
    check(churn.store());
    churn.store().close().unwrap();
    churn.sim.disk.crash();
    churn.reopen();
    check(churn.store());
}

#[test]
fn metadata_of_shards_is_said_by_each_of_its_own_metrics() {
    let mut churn = Churn::of_shards(10, 3);
    teach(&churn);
    churn.send(12);
    let view = churn.store().parts.blocks.view();
    let has_shard = |open: &Arc<crate::blocks::OpenBlock>| open.block.meta().shard.is_some();
    assert!(view.blocks.iter().any(has_shard));
    for open in &view.blocks {
        let (names, mut metadata) = (open.block.series_count(), MetricMetadataSet::default());
        open.block.read_metadata(None, &mut metadata).unwrap();
        assert_eq!(metadata.newest().count(), names as usize);
    }
    assert_eq!(said(churn.store(), Some("short0")).len(), 1);
}

//! Page segments on a disk that tears writes, and malformed bytes.

use super::cache::PageCache;
use super::directory::{PageLists, SealedPageDirectory};
use super::file_pool::FILES_MAX;
use super::meta::SealedPageMeta;
use super::segment::{PAGES, PageWithMeta};
use super::segments::{OpenedPageSegments, PageSegmentSet};
use super::*;
use crate::chunk::SampleColumns;
use crate::encoding::cursor::DecodeCursor;
use crate::ids::{GroupId, SeriesSlot};
use crate::index::{SlotRun, SlotRunSet};
use crate::manifest::Manifest;
use crate::page::{self, PageBuilder, PageDecodeScratch};
use firn_model::budget::Budget;
use firn_model::env::Rng;
use firn_model::env::sim::{self, SimDiskOperation, SimEnv, SimRng};
use firn_model::log::LogPosition;
use firn_model::sample::TimeRange;
use std::path::Path;
use std::sync::Arc;

const DIR: &str = "pages";

const GROUP: GroupId = GroupId(0);

fn meta(group: GroupId, window: i64, places: SlotRunSet) -> SealedPageMeta {
    SealedPageMeta {
        group,
        window_end: window * 100 + 99,
        range: TimeRange::new(window * 100, window * 100 + 1),
        unsealed_after: LogPosition(7),
        sealed_up_to: LogPosition(9),
        places,
    }
}

/// Returns a page with the first three series of a group and two samples each.
fn page(group: GroupId, window: i64) -> (SealedPageMeta, Vec<u8>) {
    let mut builder = PageBuilder::new(page::LogSpan::default());
    for slot in (0..3).map(|place| group.slot(place)) {
        let columns = SampleColumns {
            times: vec![window * 100, window * 100 + 1],
            values: vec![slot.0 as f64, window as f64],
            ..SampleColumns::default()
        };
        builder.push(slot, None, &columns).unwrap();
    }
    let meta = meta(group, window, SlotRunSet::from_range(0, 3));
    (meta, builder.finish().unwrap())
}

fn open(sim: &SimEnv, segment_bytes: u64) -> OpenedPageSegments {
    sim.env.disk.create_dir_all(Path::new(DIR)).unwrap();
    PageSegmentSet::open(
        &sim.env,
        Path::new(DIR),
        segment_bytes,
        &Manifest::default(),
    )
    .unwrap()
}

fn overlapping(
    directory: &SealedPageDirectory,
    groups: std::ops::Range<u64>,
    range: TimeRange,
) -> PageLists {
    let budget = Budget::new("query", 1 << 20);
    let mut memory = budget.create_reservation();
    let lists = directory
        .find_overlapping(groups.map(GroupId), range, &mut memory)
        .unwrap();
    let pages: usize = lists.iter().map(|(_, pages)| pages.len()).sum();
    assert!(memory.bytes() >= pages * 8 + lists.len() * 32);
    lists
}

fn windows(pages: &[PageWithMeta]) -> Vec<(GroupId, i64)> {
    pages
        .iter()
        .map(|(meta, _)| (meta.group, meta.window_end / 100))
        .collect()
}

#[test]
fn segments_after_any_stop_hold_every_synced_page_and_whole_ones_only() {
    for seed in 0..400 {
        let rng = SimRng::new(seed);
        let sim = sim::sim_env(seed);
        let mut segments = open(&sim, 1_000).segments;
        if rng.one_in(2) {
            let operation =
                [SimDiskOperation::Write, SimDiskOperation::Sync][rng.next_below(2) as usize];
            sim.disk.fail_after(operation, rng.next_below(30));
        }
        let (mut synced, mut written) = (Vec::new(), Vec::new());
        for window in 0..20 {
            let mut waiting = Vec::new();
            for group in (0..1 + rng.next_below(3)).map(GroupId) {
                let (meta, page) = page(group, window);
                written.push((group, window));
                if segments.append(meta, &page).is_ok() {
                    waiting.push((group, window));
                } else {
                    segments.abandon();
                    waiting.clear();
                }
            }
            match segments.sync() {
                Ok(()) => synced.append(&mut waiting),
                Err(_) => segments.abandon(),
            }
        }
        if rng.one_in(2) {
            let _ = segments.finish();
        }
        if rng.one_in(2) {
            sim.disk.crash();
        } else {
            sim.disk.kill();
        }
        let found = open(&sim, 1_000);
        assert!(found.damages.is_empty(), "seed {seed}: {:?}", found.damages);
        let held = windows(&found.pages);
        assert!(
            held.iter().all(|page| written.contains(page)),
            "seed {seed}"
        );
        let cache = PageCache::new(500);
        for (meta, entry) in &found.pages {
            let (page, _) = cache.get(entry).unwrap();
            let slot = meta.group.slot(1);
            let column = page.find_column(slot).unwrap().unwrap();
            let mut columns = SampleColumns::default();
            page.decode(
                &column,
                TimeRange::ALL,
                &mut PageDecodeScratch::default(),
                &mut columns,
            )
            .unwrap();
            assert_eq!(columns.values[0], slot.0 as f64, "seed {seed}");
            assert!(
                entry.has_series(slot) && !entry.has_series(SeriesSlot(slot.0 + 2)),
                "seed {seed}"
            );
        }
        // The first start synced the files that the second one finds.
        sim.disk.crash();
        assert_eq!(windows(&open(&sim, 1_000).pages), held, "seed {seed}");
        let lost = synced.iter().find(|page| !held.contains(page));
        assert_eq!(lost, None, "seed {seed}");
    }
}

#[test]
fn segments_beyond_the_pool_are_opened_when_they_are_read() {
    let sim = sim::sim_env(1);
    let mut segments = open(&sim, 1).segments;
    let (directory, cache) = (SealedPageDirectory::default(), PageCache::new(0));
    let count = 3 * FILES_MAX as u64;
    let entries: Vec<_> = (0..count as i64)
        .map(|window| {
            let (meta, page) = page(GROUP, window);
            let entry = segments.append(meta, &page).unwrap();
            directory.add(entry.clone());
            entry
        })
        .collect();
    segments.sync().unwrap();
    assert_eq!(segments.count() as u64, count);
    let files = segments.files().clone();
    assert_eq!(files.open_files.get(), 0);
    for _ in 0..2 {
        for entry in &entries {
            cache.get(entry).unwrap();
            assert!(files.open_files.get() <= FILES_MAX as i64);
        }
    }
    assert_eq!(files.opens.get(), 2 * count);
    // The files that were read last are still open, in whatever order they are read again.
    let newest = &entries[entries.len() - FILES_MAX..];
    for entry in newest.iter().rev().chain(newest) {
        cache.get(entry).unwrap();
    }
    assert_eq!(files.opens.get(), 2 * count);
    // The file of a removed segment is closed and does not stay open when a late reader opens it.
    let last = entries.last().unwrap();
    directory.remove_segment(last.segment.number);
    assert_eq!(files.open_files.get(), FILES_MAX as i64 - 1);
    assert!(last.segment.ranges().is_removed());
    cache.get(last).unwrap();
    assert_eq!(files.open_files.get(), FILES_MAX as i64 - 1);
}

#[test]
fn segments_wholly_before_the_cutoff_are_unlinked() {
    let sim = sim::sim_env(1);
    let mut segments = open(&sim, 400).segments;
    let (directory, cache) = (SealedPageDirectory::default(), PageCache::new(1 << 20));
    for window in 0..10 {
        let (meta, page) = page(GROUP, window);
        directory.add(segments.append(meta, &page).unwrap());
        segments.sync().unwrap();
    }
    let before = segments.count();
    let old = segments.take_segments_before(500).unwrap();
    let count = old.len();
    segments.schedule_removal(old);
    assert_eq!(segments.remove_scheduled(&directory, &cache), count);
    assert!(count > 1);
    assert_eq!(segments.count(), before - count);
    let left = overlapping(&directory, 0..1, TimeRange::ALL).remove(0).1;
    assert!(left.iter().any(|page| page.range.min == 500));
    assert!(left.iter().all(|page| page.range.min >= 200), "{left:?}");
    segments.finish().unwrap();
    assert_eq!(open(&sim, 400).pages.len(), left.len());
}

#[test]
fn pages_that_overlap_a_range_are_those_that_a_look_at_each_finds() {
    for seed in 0..300 {
        let rng = SimRng::new(seed);
        let sim = sim::sim_env(seed);
        let mut segments = open(&sim, 300).segments;
        let (directory, mut all) = (SealedPageDirectory::default(), Vec::new());
        let some = |limit: u64| rng.next_below(limit) as i64;
        for window in 0..some(30) {
            let (mut meta, page) = page(GroupId(rng.next_below(2)), window);
            // Mostly consecutive windows; some pages are late, others span many windows.
            let late = [0, 0, 0, some(3_000)][some(4) as usize];
            let wide = [1, 99, 99, some(2_000)][some(4) as usize];
            let min = window * 100 - late;
            meta.range = TimeRange::new(min, min + wide);
            let group = meta.group;
            let entry = segments.append(meta, &page).unwrap();
            directory.add(entry.clone());
            all.push((group, entry));
            if rng.one_in(20) {
                let forgotten = all[rng.next_below(all.len() as u64) as usize]
                    .1
                    .segment
                    .number;
                directory.remove_segment(forgotten);
                all.retain(|(_, page)| page.segment.number != forgotten);
            }
        }
        for _ in 0..30 {
            let min = some(4_000) - 1_000;
            let range = TimeRange::new(min, min + some(500) - 20);
            let lists = overlapping(&directory, 0..2, range);
            for group in (0..2).map(GroupId) {
                let list = lists.iter().find(|(of, _)| *of == group);
                let found = list.map_or(&[][..], |(_, pages)| pages);
                let of_group = all.iter().filter(|(of, _)| *of == group);
                let overlap = of_group.filter(|(_, page)| page.range.overlaps(&range));
                let wanted: Vec<_> = overlap.map(|(_, page)| Arc::as_ptr(page)).collect();
                let found: Vec<_> = found.iter().map(Arc::as_ptr).collect();
                assert_eq!(found, wanted, "seed {seed}: {range:?} of {group:?}");
            }
        }
    }
}

#[test]
fn segment_with_flipped_bits_gives_what_is_left_and_says_so() {
    for seed in 0..300 {
        let rng = SimRng::new(seed);
        let sim = sim::sim_env(seed);
        let mut segments = open(&sim, 1 << 20).segments;
        for window in 0..5 {
            let (meta, page) = page(GROUP, window);
            segments.append(meta, &page).unwrap();
            segments.sync().unwrap();
        }
        if rng.one_in(2) {
            segments.finish().unwrap();
        }
        drop(segments);
        let path = PAGES.path(Path::new(DIR), LogPosition(1));
        let mut bytes = sim.disk.contents(&path).unwrap();
        let at = 24 + rng.next_below(bytes.len() as u64 - 24) as usize;
        bytes[at] ^= 1 << rng.next_below(8);
        sim.disk.overwrite(&path, &bytes);
        let found = open(&sim, 1 << 20);
        assert!(found.pages.len() >= 4, "seed {seed}");
        let cache = PageCache::new(1 << 20);
        for (meta, entry) in &found.pages {
            let Ok((page, _)) = cache.get(entry) else {
                continue;
            };
            for slot in meta.slots() {
                let Ok(Some(column)) = page.find_column(slot) else {
                    continue;
                };
                let mut columns = SampleColumns::default();
                let decoded = page.decode(
                    &column,
                    TimeRange::ALL,
                    &mut PageDecodeScratch::default(),
                    &mut columns,
                );
                if decoded.is_ok() {
                    assert_eq!(columns.values[0], slot.0 as f64, "seed {seed}");
                }
            }
        }
    }
}

#[test]
fn meta_of_random_pages_returns_and_of_random_bytes_never_panics() {
    for seed in 0..5_000 {
        let rng = SimRng::new(seed);
        let group = GroupId(rng.next_below(1 << rng.next_below(54)));
        let mut places = SlotRunSet::default();
        let mut at = 0;
        while at < GROUP_SLOTS {
            let end = (at + 1 + rng.next_below(200) as u32).min(GROUP_SLOTS);
            if places.is_empty() || rng.one_in(2) {
                places.push(SlotRun { start: at, end });
            }
            at = end + rng.next_below(3) as u32;
        }
        let meta = SealedPageMeta {
            range: TimeRange::new(
                i64::MIN >> rng.next_below(64),
                i64::MAX >> rng.next_below(64),
            ),
            ..meta(group, rng.next_below(1 << 40) as i64, places)
        };
        let mut bytes = Vec::new();
        meta.encode(&mut bytes);
        let mut cursor = DecodeCursor::new(&bytes);
        assert_eq!(SealedPageMeta::decode(&mut cursor), Ok(meta), "seed {seed}");
        assert!(cursor.is_empty(), "seed {seed}");
        let flipped = rng.next_below(bytes.len() as u64) as usize;
        bytes[flipped] = rng.next_u64() as u8;
        if let Ok(meta) = SealedPageMeta::decode(&mut DecodeCursor::new(&bytes)) {
            let last = meta.slots().last().unwrap();
            assert_eq!(group_of(last), meta.group, "seed {seed}");
        }
    }
}

/// Fails when the format changes. `docs/format/pages.md` and the version of the data folder must
/// then change, too.
#[test]
fn meta_golden_bytes_stay() {
    let mut places = SlotRunSet::from_range(0, 2);
    places.push(SlotRun { start: 8, end: 512 });
    let mut bytes = Vec::new();
    meta(GroupId(1), 3, places.clone()).encode(&mut bytes);
    let golden = [1, 1, 0x9e, 6, 0xd8, 4, 1, 7, 9, 2, 0, 1, 6, 0xf7, 3];
    assert_eq!(bytes, golden);
    // The same page one era (2^32 slots) later.
    bytes.clear();
    meta(GroupId((1 << 23) + 1), 3, places).encode(&mut bytes);
    assert_eq!(bytes[1..5], [0x81, 0x80, 0x80, 4]);
    assert_eq!(bytes[5..], golden[2..]);
}

#[test]
fn cache_keeps_to_its_bytes_and_spares_what_is_asked_for() {
    let sim = sim::sim_env(1);
    let mut segments = open(&sim, 1 << 20).segments;
    let entries: Vec<_> = (0..8)
        .map(|window| {
            let (meta, page) = page(GROUP, window);
            segments.append(meta, &page).unwrap()
        })
        .collect();
    segments.sync().unwrap();
    let one = cache::read(&entries[0]).unwrap().memory_bytes();
    let cache = PageCache::new(3 * one + one / 2);
    for entry in &entries {
        cache.get(&entries[0]).unwrap();
        cache.get(entry).unwrap();
        assert!(cache.held_bytes.get() <= 3 * one as i64 + one as i64 / 2);
    }
    // The first page stayed in the cache; the others were evicted and read again.
    assert_eq!(cache.misses.get(), 8);
    cache.set_bytes_max(one);
    assert_eq!(cache.held_bytes.get(), one as i64);
    cache.evict_segment(LogPosition(1));
    assert_eq!(cache.held_bytes.get(), 0);
}

#[test]
fn cache_forgets_pages_not_read_within_an_hour() {
    let sim = sim::sim_env(1);
    let mut segments = open(&sim, 1 << 20).segments;
    let cache = PageCache::new(1 << 20);
    let mut entries = Vec::new();
    for window in 0..2 {
        let (meta, page) = page(GROUP, window);
        let entry = segments.append(meta, &page).unwrap();
        segments.sync().unwrap();
        cache.get(&entry).unwrap();
        entries.push(entry);
    }
    let newest = entries.iter().map(|e| e.range.max).max().unwrap();
    let hour = 3_600_000;
    // Both pages are recent, then the first is used once more, then both are dropped.
    for (now, asked, misses) in [
        (newest, 0..1, 2),
        (newest + hour, 0..1, 2),
        (newest + hour + 1, 0..1, 2),
        (newest + 2 * hour + 1, 0..2, 3),
        (newest + 3 * hour + 2, 0..2, 5),
    ] {
        cache.evict_idle(now);
        for entry in &entries[asked] {
            cache.get(entry).unwrap();
        }
        assert_eq!(cache.misses.get(), misses, "at {now}");
    }
    cache.evict_idle(i64::MAX);
    assert_eq!(cache.held_bytes.get(), 0);
}

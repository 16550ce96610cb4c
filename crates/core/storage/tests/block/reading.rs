//! The bytes of a block that queries read, and those that the cache keeps.

use crate::fleet::{Written, dir, random_series, write};
use crate::series;
use crate::series::assert_equal;
use firn_model::env::sim::{SimDiskOperation, SimRng};
use firn_model::labels::Labels;
use firn_model::sample::TimeRange;
use firn_storage::block::{Block, BlockCache};
use firn_storage::page::SampleColumns;
use std::sync::Arc;

fn open(written: &Written, bytes_max: usize) -> (Arc<BlockCache>, Block) {
    let cache = Arc::new(BlockCache::new(bytes_max));
    let block = Block::open(&written.sim.env, &dir(), &cache).expect("the block is sound");
    (cache, block)
}

fn read_all(written: &Written, block: &Block) {
    let mut reader = block.reader();
    for (ordinal, (labels, pushed)) in (0..).zip(&written.series) {
        let mut read = SampleColumns::default();
        reader
            .read(ordinal, TimeRange::ALL, &mut read)
            .expect("the block is sound");
        assert_equal(&read, pushed, &labels.to_string());
    }
}

/// Writes a block with several pages of incompressible series, and a long series.
fn bulky() -> Written {
    let rng = SimRng::new(3);
    let times = series::times(&rng, 3, 1_000);
    let one = |i: u64| {
        let labels = Labels::from_pairs([("__name__", "m"), ("i", &format!("{i:03}"))]);
        (labels, series::of_class(&rng, 8, &times))
    };
    let mut all: Vec<_> = (0..120).map(one).collect();
    let long = series::times(&rng, 3, 60_000);
    let labels = Labels::from_pairs([("__name__", "n")]);
    all.push((labels, series::of_class(&rng, 8, &long)));
    write(all)
}

#[test]
fn cache_holds_no_more_than_its_bound_and_answers_the_same() {
    let written = bulky();
    for bytes_max in [0, 100 << 10, 1 << 20, 64 << 20] {
        let (cache, block) = open(&written, bytes_max);
        for _ in 0..2 {
            read_all(&written, &block);
            assert!(cache.held_bytes.get() as usize <= bytes_max, "{bytes_max}");
        }
        let (hits, misses) = (cache.hits.get(), cache.misses.get());
        assert_eq!(
            hits > misses,
            bytes_max > 2 << 20,
            "{hits} of {misses}, {bytes_max}"
        );
        cache.set_bytes_max(1_000);
        assert!(cache.held_bytes.get() <= 1_000);
        read_all(&written, &block);
    }
}

#[test]
fn cache_forgets_a_block_that_is_closed() {
    let written = bulky();
    let (cache, block) = open(&written, 64 << 20);
    read_all(&written, &block);
    let held = cache.held_bytes.get();
    let other = Block::open(&written.sim.env, &dir(), &cache).expect("the block is sound");
    read_all(&written, &other);
    assert_eq!(
        cache.held_bytes.get(),
        2 * held,
        "each has units of its own"
    );
    drop(block);
    assert_eq!(cache.held_bytes.get(), held);
    drop(other);
    assert_eq!(cache.held_bytes.get(), 0);
}

#[test]
fn open_reads_nothing_of_the_pages() {
    let written = bulky();
    let (cache, block) = open(&written, 64 << 20);
    let meta = written
        .sim
        .disk
        .contents(&dir().join("meta.json"))
        .expect("it is there");
    let most = meta.len() as u64 + (64 << 10);
    assert!(
        cache.read_bytes.get() <= most,
        "{} bytes",
        cache.read_bytes.get()
    );
    assert!(block.memory_bytes() < 64 << 10);
}

#[test]
fn prefetch_reads_what_is_needed_once_and_nothing_else() {
    let written = bulky();
    let all: Vec<u32> = (0..written.meta.series).collect();
    let (cache, block) = open(&written, 64 << 20);
    block
        .prefetch(&all, TimeRange::ALL)
        .expect("the block is sound");
    let read = cache.read_bytes.get();
    read_all(&written, &block);
    assert_eq!(cache.read_bytes.get(), read, "all of it was there");
    block
        .prefetch(&all, TimeRange::ALL)
        .expect("the block is sound");
    assert_eq!(cache.read_bytes.get(), read, "it is not read again");
    // Some series, and a part of the long one.
    let long = written.meta.series - 1;
    let times = &written.series[long as usize].1.times;
    let range = TimeRange::new(times[0], times[100]);
    let (cache, block) = open(&written, 64 << 20);
    let before = cache.read_bytes.get();
    block
        .prefetch(&[7, long], range)
        .expect("the block is sound");
    let read = cache.read_bytes.get() - before;
    assert!(read < written.meta.file_bytes() / 2, "{read} bytes");
    let mut columns = SampleColumns::default();
    block
        .reader()
        .read(long, range, &mut columns)
        .expect("the block is sound");
    assert_eq!(cache.read_bytes.get() - before, read, "it was there");
    assert_eq!(columns.times[..], times[..101]);
    assert!(block.prefetch(&[], TimeRange::ALL).is_ok());
    assert!(block.prefetch(&[0], TimeRange::new(0, 1)).is_ok());
}

#[test]
fn read_that_fails_is_an_error_and_leaves_nothing_in_the_way() {
    let written = write(random_series(&SimRng::new(4), 40, 100));
    let ordinals: Vec<u32> = (0..written.meta.series).collect();
    // The unit of page entries, the pages, and the time columns: units of the index have a copy,
    // and pages are read again one by one.
    for failing in [0, 1, 2] {
        let (_, block) = open(&written, 64 << 20);
        written.sim.disk.fail_after(SimDiskOperation::Read, failing);
        let prefetched = block.prefetch(&ordinals, TimeRange::ALL);
        assert!(prefetched.is_ok(), "{prefetched:?}");
        read_all(&written, &block);
    }
    let (cache, block) = open(&written, 64 << 20);
    written.sim.disk.fail_always(SimDiskOperation::Read, true);
    let prefetched = block.prefetch(&ordinals, TimeRange::ALL);
    let e = prefetched.expect_err("all reads fail").to_string();
    assert!(e.contains("read blocks/"), "{e}");
    let mut columns = SampleColumns::default();
    assert!(
        block
            .reader()
            .read(0, TimeRange::ALL, &mut columns)
            .is_err()
    );
    assert!(columns.times.is_empty());
    written.sim.disk.fail_always(SimDiskOperation::Read, false);
    read_all(&written, &block);
    assert!(cache.misses.get() > 0);
}

#[test]
fn threads_that_read_one_block_read_each_unit_once() {
    let written = bulky();
    let (cache, block) = open(&written, 64 << 20);
    let ordinals: Vec<u32> = (0..written.meta.series).collect();
    std::thread::scope(|threads| {
        for thread in 0..4 {
            let (written, block, ordinals) = (&written, &block, &ordinals);
            threads.spawn(move || {
                if thread % 2 == 0 {
                    let fetched = block.prefetch(ordinals, TimeRange::ALL);
                    fetched.expect("the block is sound");
                }
                read_all(written, block);
            });
        }
    });
    let bytes = written.meta.file_bytes() + (128 << 10);
    assert!(
        cache.read_bytes.get() <= bytes,
        "{} of {bytes}",
        cache.read_bytes.get()
    );
    assert_eq!(written.open().meta(), block.meta());
}

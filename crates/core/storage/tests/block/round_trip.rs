//! Round trips: reads return exactly the bits that were pushed, for whole series and for any range.

use crate::fleet::{Written, dir, random_series, source, write};
use crate::series::{assert_equal, between};
use crate::{seeds, series};
use firn_model::env::sim::{SimRng, sim_env};
use firn_model::labels::Labels;
use firn_model::sample::TimeRange;
use firn_storage::block::{Block, BlockCache, BlockWriter};
use firn_storage::page::SampleColumns;
use std::sync::Arc;

/// Reads every series, whole and in parts, in order and out of order.
fn check(written: &Written, rng: &SimRng, context: &str) {
    let block = written.open();
    let count = written.series.len() as u32;
    assert_eq!(block.series_count(), count, "{context}");
    let samples: usize = written.series.iter().map(|(_, c)| c.times.len()).sum();
    assert_eq!(block.meta().samples, samples as u64, "{context}");
    let all: Vec<u32> = (0..count).collect();
    let mut seen = 0;
    let each = &mut |index: usize, labels: firn_model::labels::LabelsRef<'_>| {
        assert_eq!(labels, written.series[index].0.as_ref(), "{context}");
        seen += 1;
    };
    block.read_labels(&all, each).expect("the block is sound");
    assert_eq!(seen, count, "{context}");
    let mut reader = block.reader();
    let mut read = SampleColumns::default();
    for (ordinal, (labels, pushed)) in (0..).zip(&written.series) {
        read.clear();
        reader
            .read(ordinal, TimeRange::ALL, &mut read)
            .expect("the block is sound");
        assert_equal(&read, pushed, &format!("{labels}, {context}"));
    }
    for _ in 0..written.series.len().min(60) {
        let ordinal = rng.next_below(count.into()) as u32;
        let (labels, pushed) = &written.series[ordinal as usize];
        let at = || pushed.times[rng.next_below(pushed.times.len() as u64) as usize];
        let range = TimeRange::new(at(), at());
        read.clear();
        reader
            .read(ordinal, range, &mut read)
            .expect("the block is sound");
        let wanted = between(pushed, range.min, range.max);
        assert_equal(&read, &wanted, &format!("{range:?} of {labels}, {context}"));
        let has = reader
            .has_sample_in(ordinal, range)
            .expect("the block is sound");
        assert_eq!(has, !wanted.times.is_empty(), "{context}");
    }
}

#[test]
fn block_of_random_series_returns_every_bit() {
    for seed in seeds::seeds(40) {
        let rng = SimRng::new(seed);
        let samples = [1, 2, 120, 480, 1_500][rng.next_below(5) as usize];
        let count = 1 + rng.next_below([3, 60, 400][rng.next_below(3) as usize]);
        let written = write(random_series(&rng, count, samples));
        check(&written, &rng, &format!("seed {seed}"));
    }
}

#[test]
fn block_of_many_short_series_returns_every_bit() {
    let rng = SimRng::new(7);
    let written = write(random_series(&rng, 12_000, 3));
    check(&written, &rng, "short series");
}

#[test]
fn block_with_series_longer_than_a_page_returns_every_bit() {
    let rng = SimRng::new(9);
    let times = series::times(&rng, 3, 40_000);
    let mut all = random_series(&rng, 30, 480);
    for (i, labels) in ["metric_2", "metric_3", "metric_4"].iter().enumerate() {
        let labels = Labels::from_pairs([("__name__", *labels), ("long", "yes")]);
        let mut columns = series::of_class(&rng, 3 + i as u64, &times);
        if i == 1 {
            columns = series::with_histograms(&rng, columns);
        }
        if i == 2 {
            columns.start_times = columns.times.iter().map(|t| t - t % 900_000).collect();
        }
        all.push((labels, columns));
    }
    let written = write(all);
    assert!(written.meta.columns > u64::from(written.meta.series) + 5);
    check(&written, &rng, "long series");
}

#[test]
fn block_of_series_pushed_in_pieces_returns_every_bit() {
    for seed in seeds::seeds(10) {
        let rng = SimRng::new(seed);
        let sim = sim_env(seed);
        let times = series::times(&rng, 3, 50_000);
        let mut writer = BlockWriter::create(&sim.env, &dir(), source()).unwrap();
        let mut all = Vec::new();
        for number in 0..5 {
            let labels = Labels::from_pairs([("__name__", format!("m{number}"))]);
            let mut columns = series::of_class(&rng, rng.next_below(series::CLASSES), &times);
            if rng.one_in(3) {
                columns = series::with_histograms(&rng, columns);
            }
            let mut at = 0;
            while at < times.len() {
                let end = times.len().min(at + 1 + rng.next_below(30_000) as usize);
                let mut piece = between(&columns, times[at], times[end - 1]);
                // Some pieces may have start timestamps and others none.
                if rng.one_in(4) {
                    piece.start_times = vec![times[0]; piece.times.len()];
                    columns.start_times.resize(times.len(), 0);
                    columns.start_times[at..end].fill(times[0]);
                }
                match at {
                    0 => writer.push(labels.as_ref(), &piece).unwrap(),
                    _ => writer.push_more(&piece).unwrap(),
                }
                at = end;
            }
            all.push((labels, columns));
        }
        let meta = writer.finish().unwrap();
        let written = Written {
            sim,
            cache: Arc::new(BlockCache::new(1 << 20)),
            meta,
            series: all,
        };
        check(&written, &rng, &format!("seed {seed}"));
    }
}

#[test]
fn block_is_written_again_byte_for_byte() {
    let rng = SimRng::new(3);
    let all = random_series(&rng, 500, 200);
    let (one, two) = (write(all.clone()), write(all));
    assert_eq!(one.meta, two.meta);
    for name in ["index", "index.copy", "data-000", "meta.json"] {
        let path = dir().join(name);
        assert!(
            one.sim.disk.contents(&path) == two.sim.disk.contents(&path),
            "{name}"
        );
    }
    assert_eq!(one.sim.disk.files().len(), 4);
}

#[test]
fn block_that_is_abandoned_leaves_no_file_and_begins_anew() {
    let sim = sim_env(1);
    let columns = series::of_class(&SimRng::new(1), 3, &[1, 2, 3]);
    let labels = Labels::from_pairs([("__name__", "m")]);
    let mut writer = BlockWriter::create(&sim.env, &dir(), source()).unwrap();
    writer.push(labels.as_ref(), &columns).unwrap();
    writer.abandon().unwrap();
    assert!(sim.disk.files().is_empty());
    for _ in 0..2 {
        let mut writer = BlockWriter::create(&sim.env, &dir(), source()).unwrap();
        writer.push(labels.as_ref(), &columns).unwrap();
        let meta = writer.finish().unwrap();
        assert_eq!((meta.samples, meta.series), (3, 1));
        assert_eq!(meta.range, TimeRange::new(1, 3));
        assert_eq!(sim.disk.files().len(), 4);
    }
    let cache = Arc::new(BlockCache::new(0));
    assert!(Block::open(&sim.env, &dir(), &cache).is_ok());
}

#[test]
fn block_is_durable_once_it_is_finished() {
    let written = write(random_series(&SimRng::new(5), 50, 100));
    written.sim.disk.crash();
    check(&written, &SimRng::new(6), "after a crash");
}

#[test]
fn block_plain_columns_read_straight_equal_what_was_pushed() {
    let rng = SimRng::new(11);
    let written = write(random_series(&rng, 300, 480));
    let block = written.open();
    let mut reader = block.reader();
    let mut plain = 0;
    for (ordinal, (_, pushed)) in (0..).zip(&written.series) {
        let column = reader
            .find_first_part(ordinal, TimeRange::ALL)
            .unwrap()
            .expect("it was pushed");
        let is_plain = pushed.histograms.is_empty() && pushed.start_times.is_empty();
        assert_eq!(
            (column.is_plain(), column.sample_count()),
            (is_plain, pushed.times.len())
        );
        assert!(
            reader
                .find_next_part(&column, TimeRange::ALL)
                .unwrap()
                .is_none()
        );
        assert_eq!(reader.times(&column).unwrap()[..], pushed.times);
        if is_plain {
            plain += 1;
            let (start, end) = (pushed.times.len() / 3, pushed.times.len());
            let mut values = vec![1.0];
            reader.read_plain(&column, start..end, &mut values).unwrap();
            let bits = |values: &[f64]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(&values[1..]), bits(&pushed.values[start..end]));
        }
    }
    assert!(plain > 100);
    assert!(
        reader
            .find_first_part(written.series.len() as u32, TimeRange::ALL)
            .unwrap()
            .is_none()
    );
}

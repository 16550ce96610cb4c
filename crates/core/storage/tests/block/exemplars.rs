//! The exemplars of a block: those that are kept are returned once and in order, and damage is
//! detected.

use crate::fleet::{dir, random_series, source};
use crate::seeds;
use firn_model::env::Rng;
use firn_model::env::sim::{SimEnv, SimRng, sim_env};
use firn_model::exemplar::{SeriesExemplars, TimedExemplar};
use firn_model::labels::Labels;
use firn_model::sample::TimeRange;
use firn_storage::block::{Block, BlockCache, BlockWriter, compare_block_order};
use firn_storage::error::StorageError;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Exemplars by ordinal, each as its time and a text.
type Model = BTreeMap<u32, BTreeSet<(i64, String)>>;

struct Written {
    sim: SimEnv,
    model: Model,
    series: u32,
}

fn labels(rng: &SimRng) -> Labels {
    let id = format!("{:016x}", rng.next_u64());
    match rng.next_below(3) {
        0 => Labels::from_pairs([("span_id", "7"), ("trace_id", &id)]),
        1 => Labels::empty(),
        _ => Labels::from_pairs([("trace_id", id)]),
    }
}

/// Writes a block in which one in `each` series has up to `max` exemplars, some of them pushed
/// twice.
fn write(rng: &SimRng, series: u64, each: u64, max: u64) -> Written {
    let mut all = random_series(rng, series, 3);
    all.sort_by(|(a, _), (b, _)| compare_block_order(a.as_ref(), b.as_ref()));
    all.dedup_by(|(a, _), (b, _)| a == b);
    let (sim, mut model) = (sim_env(1), Model::new());
    let mut writer = BlockWriter::create(&sim.env, &dir(), source()).expect("the disk is sound");
    for (ordinal, (of_series, columns)) in (0..).zip(&all) {
        let pushed = writer.push(of_series.as_ref(), columns);
        pushed.expect("the disk is sound");
        let mut offered = SeriesExemplars::default();
        for _ in 0..if rng.one_in(each) {
            rng.next_below(max)
        } else {
            0
        } {
            let labels = labels(rng);
            let exemplar = TimedExemplar {
                labels: labels.as_ref(),
                value: rng.next_below(100) as f64,
                time: rng.next_below(1_000) as i64 - 500,
                has_own_time: rng.one_in(2),
            };
            (0..=rng.next_below(2)).for_each(|_| offered.push(0, exemplar));
            let text = format!("{}{labels}", exemplar.value);
            model
                .entry(ordinal)
                .or_default()
                .insert((exemplar.time, text));
        }
        let pushed = writer.push_exemplars(offered.iter().map(|(_, exemplar)| exemplar));
        pushed.expect("the disk is sound");
    }
    writer.finish().expect("the disk is sound");
    let series = all.len() as u32;
    Written { sim, model, series }
}

impl Written {
    fn open(&self) -> Result<Block, StorageError> {
        let cache = Arc::new(BlockCache::new(8 << 20));
        Block::open(&self.sim.env, &dir(), &cache)
    }

    /// Reads the exemplars of these series, and checks that they are unique and in order.
    fn found(&self, block: &Block, ordinals: &[u32]) -> Result<Model, StorageError> {
        let mut found = Model::new();
        let mut last = None;
        block.read_exemplars(ordinals, |place, exemplar| {
            let text = format!("{}{}", exemplar.value, exemplar.labels.to_owned());
            let of_series = found.entry(ordinals[place]).or_default();
            assert!(last <= Some((place, exemplar.time)));
            last = Some((place, exemplar.time));
            assert!(of_series.insert((exemplar.time, text)), "once");
            Ok::<(), StorageError>(())
        })?;
        Ok(found)
    }

    fn check(&self, rng: &SimRng, context: &str) {
        let block = self.open().expect("the block is sound");
        let count: usize = self.model.values().map(BTreeSet::len).sum();
        assert_eq!(block.exemplar_count(), count as u64, "{context}");
        for each in [1, 2, 40] {
            let ordinals: Vec<u32> = (0..self.series).filter(|_| rng.one_in(each)).collect();
            let wanted = self.model.iter().filter(|(o, _)| ordinals.contains(o));
            let wanted: Model = wanted.map(|(o, all)| (*o, all.clone())).collect();
            let found = self.found(&block, &ordinals).expect("the block is sound");
            assert!(found == wanted, "{context}");
        }
        let times = self.model.values().flatten().map(|(time, _)| *time);
        if let (Some(oldest), Some(newest)) = (times.clone().min(), times.max()) {
            for (range, has_any) in [
                (TimeRange::new(i64::MIN, oldest - 1), false),
                (TimeRange::new(oldest, oldest), true),
                (TimeRange::new(newest, newest), true),
                (TimeRange::new(newest + 1, i64::MAX), false),
            ] {
                assert_eq!(block.has_exemplars_in(range), has_any, "{context}");
            }
        }
        block.verify(&mut |fault| panic!("{fault:?}, {context}"));
    }
}

#[test]
fn exemplars_of_a_block_are_found_by_series() {
    for seed in seeds::seeds(30) {
        let rng = SimRng::new(seed);
        let max = [2, 9, 1_500][rng.next_below(3) as usize];
        let written = write(&rng, 1 + rng.next_below(300), 1 + rng.next_below(40), max);
        written.check(&rng, &format!("seed {seed}"));
    }
}

#[test]
fn exemplars_with_any_one_byte_of_the_index_flipped_are_found_or_the_place_is_named() {
    let written = write(&SimRng::new(3), 12, 2, 6);
    let paths = ["index", "index.copy"].map(|name| dir().join(name));
    let sound = written.sim.disk.contents(&paths[0]);
    let sound = sound.expect("it was written");
    let all: Vec<u32> = (0..written.series).collect();
    let mut errors = 0;
    for at in 0..sound.len() {
        let mut bytes = sound.clone();
        bytes[at] ^= 1 << (at % 8);
        // If the damage is in different places, each copy supplies its intact part.
        written.sim.disk.overwrite(&paths[1], &sound);
        written.sim.disk.overwrite(&paths[0], &bytes);
        let block = written.open().expect("the copy is sound");
        let found = written.found(&block, &all).expect("the copy is sound");
        assert!(found == written.model, "byte {at}");
        written.sim.disk.overwrite(&paths[1], &bytes);
        let opened = written.open();
        match opened.and_then(|block| written.found(&block, &all)) {
            Ok(found) => assert!(found == written.model, "byte {at}"),
            Err(e) => {
                let text = e.to_string();
                assert!(text.contains("index") && text.contains("at offset"), "{e}");
                errors += 1;
            }
        }
    }
    assert!(errors > 200, "{errors} errors");
}

/// Pushes `own` exemplars of one series, out of `all` announced ones, and returns the times of
/// those kept.
fn kept_of(own: i64, all: u64) -> Vec<i64> {
    let sim = sim_env(1);
    let mut writer = BlockWriter::create(&sim.env, &dir(), source()).expect("the disk is sound");
    writer.expect_exemplars(all);
    let series = random_series(&SimRng::new(1), 1, 3);
    let pushed = writer.push(series[0].0.as_ref(), &series[0].1);
    pushed.expect("the disk is sound");
    let labels = Labels::from_pairs([("trace_id", "x")]);
    let offered = (1..=own).map(|time| TimedExemplar {
        labels: labels.as_ref(),
        value: 1.0,
        time,
        has_own_time: true,
    });
    writer.push_exemplars(offered).expect("the disk is sound");
    writer.finish().expect("the disk is sound");
    let cache = Arc::new(BlockCache::new(8 << 20));
    let block = Block::open(&sim.env, &dir(), &cache).expect("the block is sound");
    let mut times = Vec::new();
    let read = block.read_exemplars(&[0], |_, exemplar| {
        times.push(exemplar.time);
        Ok::<(), StorageError>(())
    });
    read.expect("the block is sound");
    times
}

#[test]
fn exemplars_of_more_than_a_block_takes_are_thinned_out_and_the_newest_stays() {
    let max = 1 << 20;
    assert_eq!(kept_of(5, max), [1, 2, 3, 4, 5]);
    assert_eq!(kept_of(5, max + 1), [1, 3, 5]);
    assert_eq!(kept_of(5, 2 * max), [1, 3, 5]);
    assert_eq!(kept_of(5, 3 * max), [2, 5]);
    assert_eq!(kept_of(1, 90 * max), [1]);
    let long = kept_of(9_000, 0);
    assert_eq!((long.len(), long[0], long[2_999]), (3_000, 3, 9_000));
}

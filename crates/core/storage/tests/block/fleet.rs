//! Blocks of random series on a simulated disk.

use crate::series;
use firn_model::env::sim::{SimEnv, SimRng, sim_env};
use firn_model::labels::Labels;
use firn_storage::block::{
    Block, BlockCache, BlockId, BlockMeta, BlockSpec, BlockWriter, compare_block_order,
};
use firn_storage::page::SampleColumns;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The label set of a series and its samples.
pub type Series = (Labels, SampleColumns);

/// Returns the folder of the block.
pub fn dir() -> PathBuf {
    Path::new("blocks").join(source().id.to_string())
}

/// Returns the properties of the block that do not follow from its samples.
pub fn source() -> BlockSpec {
    let id = BlockId::new(1_763_000_000_000, 77);
    BlockSpec {
        id,
        is_late: false,
        level: 1,
        sources: vec![id],
        range: None,
    }
}

/// A written block, with the simulated environment that contains it.
pub struct Written {
    pub sim: SimEnv,
    pub cache: Arc<BlockCache>,
    pub meta: BlockMeta,
    pub series: Vec<Series>,
}

impl Written {
    /// Opens the block.
    pub fn open(&self) -> Block {
        Block::open(&self.sim.env, &dir(), &self.cache).expect("the block is sound")
    }
}

/// Writes a block of these series, sorted in block order.
pub fn write(mut series: Vec<Series>) -> Written {
    series.sort_by(|(a, _), (b, _)| compare_block_order(a.as_ref(), b.as_ref()));
    series.dedup_by(|(a, _), (b, _)| a == b);
    let sim = sim_env(1);
    let mut writer = BlockWriter::create(&sim.env, &dir(), source()).expect("the disk is sound");
    for (labels, columns) in &series {
        writer
            .push(labels.as_ref(), columns)
            .expect("the disk is sound");
    }
    let meta = writer.finish().expect("the disk is sound");
    Written {
        sim,
        cache: Arc::new(BlockCache::new(64 << 20)),
        meta,
        series,
    }
}

/// Returns random labels: some are shared by many series, some by few, and some are missing.
pub fn random_labels(rng: &SimRng, number: u64) -> Labels {
    let mut pairs: Vec<(&str, String)> = Vec::new();
    if !rng.one_in(20) {
        pairs.push(("__name__", format!("metric_{}", rng.next_below(7))));
    }
    pairs.push(("job", "node".to_owned()));
    if !rng.one_in(3) {
        pairs.push(("pod", format!("pod-{}", rng.next_below(40))));
    }
    if !rng.one_in(4) {
        pairs.push((
            "le",
            ["0.1", "1", "10", "+Inf"][rng.next_below(4) as usize].to_owned(),
        ));
    }
    if rng.one_in(2) {
        pairs.push(("Zone", format!("z{}", rng.next_below(3))));
    }
    if rng.one_in(9) {
        pairs.push((
            "a b",
            "\u{e9}\u{e9}".repeat(rng.next_below(200) as usize + 1),
        ));
    }
    pairs.push(("id", format!("{number:x}")));
    if rng.one_in(30) {
        pairs.truncate(rng.next_below(2) as usize);
    }
    Labels::from_pairs(pairs)
}

/// Returns random series of all classes, some with histograms and start timestamps.
pub fn random_series(rng: &SimRng, count: u64, samples: usize) -> Vec<Series> {
    let grids: Vec<_> = (0..4)
        .map(|_| series::times(rng, 1 + rng.next_below(5), samples))
        .collect();
    let one = |number| {
        let grid = &grids[rng.next_below(4) as usize];
        let times = match rng.next_below(8) {
            0 => &grid[..1 + rng.next_below(samples as u64) as usize],
            1 => &grid[rng.next_below(samples as u64) as usize..],
            _ => grid,
        };
        let mut columns = series::of_class(rng, rng.next_below(series::CLASSES), times);
        if rng.one_in(7) {
            columns = series::with_histograms(rng, columns);
        }
        if rng.one_in(6) {
            columns.start_times = vec![times[0].wrapping_sub(1_000); times.len()];
        }
        (random_labels(rng, number), columns)
    };
    (0..count).map(one).collect()
}

//! Blocks: reads return the pushed data, from current, golden and damaged files.

mod damage;
mod exemplars;
mod fleet;
mod golden;
mod lookups;
mod metadata;
mod reading;
mod round_trip;
#[path = "../seeds/mod.rs"]
mod seeds;
#[path = "../page/series.rs"]
mod series;

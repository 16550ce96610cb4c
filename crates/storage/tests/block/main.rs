//! Blocks: what is found and read is what was pushed, from files of today and from damaged ones.

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

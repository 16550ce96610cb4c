//! Pages: reads return the pushed data, from current, golden and damaged files.

mod damage;
mod golden;
mod samples;
#[path = "../seeds/mod.rs"]
mod seeds;
mod series;

//! Pages: what is read is what was pushed, from files of today and from damaged ones.

mod damage;
mod golden;
mod samples;
#[path = "../seeds/mod.rs"]
mod seeds;
mod series;

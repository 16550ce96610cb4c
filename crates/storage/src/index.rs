//! The active index: from matchers to series. One for the store, permanent, never rotated.
//!
//! A series is a *slot*, a number in order of creation that is never given twice. A pair of label
//! name and value is a *term*; a series is a list of terms. Per label the index knows its terms and
//! the series that have it at all; per term the series that have it; per two hours of data time the
//! series with a sample.
//!
//! ```text
//! labels: name -> { present: postings, values: value -> term }      term -> { value, postings }
//! series: slot -> { place in the head, terms }                      membership: epoch -> bits
//! ```
//!
//! Creations and removals take a mutex, one batch at a time. Readers take no lock and never wait:
//! everything is append-only or swapped by pointer, and slots at or above `published` do not exist
//! for them. Invariant: a slot below `published` is in all of its postings. What it leaves to
//! others: samples, durability.

mod core;
mod costs;
mod creation;
mod dictionary;
mod eviction;
mod generation;
mod id_table;
mod interning;
mod label_value_cache;
mod label_values;
mod late_members;
mod lookup;
mod lookup_work;
mod matcher_cache;
mod membership;
mod metrics;
mod packed_terms;
mod pending;
mod planned;
mod postings;
mod radix;
mod removal;
mod runs;
mod series_table;
mod sorted_values;
mod tables;
mod terms;
#[cfg(test)]
mod tests;
mod writer;

pub(crate) use core::Index;
pub(crate) use creation::SeriesCreation;
pub(crate) use generation::Generation;
pub(crate) use membership::{EPOCH_MS, Marker, epoch_of};
pub(crate) use removal::Garbage;
pub(crate) use runs::{Run, Runs};
pub(crate) use series_table::{Place, SeriesCursor};

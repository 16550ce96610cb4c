//! The active index of the store: finds the series that match. There is one for all time; it is
//! never rotated.
//!
//! A series has a *slot*, a number in order of creation that is never reused. A pair of label name
//! and value is a *term*; a series is a list of terms. The index contains the terms of each label
//! and the series that have the label; the series of each term; and, for each two hours of data
//! time, the series with a sample.
//!
//! ```text
//! labels: name -> { present: postings, values: value -> term }      term -> { value, postings }
//! series: slot -> { place in the head, terms }                      membership: epoch -> bits
//! ```
//!
//! Creations and removals take a mutex, one batch at a time. Readers take no lock and never wait:
//! all structures are append-only or replaced by a pointer swap, and readers ignore slots at or
//! above `published`. Invariant: a slot below `published` is in all of its postings. The index does
//! not store samples and is not durable; replay rebuilds it.

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
pub(crate) use generation::ReaderGeneration;
pub(crate) use membership::{EPOCH_MS, EpochLeafCache, epoch_from_time};
pub(crate) use removal::IndexGarbage;
pub(crate) use runs::{SlotRun, SlotRunSet};
pub(crate) use series_table::{HeadSeriesPlace, SeriesCursor};
pub(crate) use tables::IndexStatusTables;

//! Statistics of the index: the tables of the status page, and its memory.

use super::core::Index;
use super::terms::{IndexedLabel, IndexedTerm, LEAF_TERMS, TermLeaf};
use crate::ids::TermId;
use crate::sync::atomic::Ordering;
use firn_model::labels::METRIC_NAME;
use std::cmp::Reverse;

/// A row of a table: a name with its number.
pub(crate) type Line = (String, u64);

/// The tables of Prometheus's status page, each sorted by descending number.
#[derive(Clone, Debug, Default)]
pub(crate) struct IndexStatusTables {
    /// Number of distinct pairs of name and value.
    pub(crate) label_pairs: u64,
    /// Number of series per metric.
    pub(crate) series_by_metric: Vec<Line>,
    /// Number of distinct values per label.
    pub(crate) values_by_label: Vec<Line>,
    /// Bytes of each label's values, counted once per series.
    pub(crate) bytes_by_label: Vec<Line>,
    /// Number of series per `name=value`.
    pub(crate) series_by_pair: Vec<Line>,
}

impl IndexStatusTables {
    /// Returns the tables of all `indexes` together, with at most `top` lines each. The indexes
    /// have no series in common, but may have the same terms, which count once. Reads all terms,
    /// and finds each of them in the other indexes; allocates only the lines.
    pub(crate) fn build(indexes: &[&Index], top: usize) -> Self {
        let mut tables = Self::default();
        for (number, index) in indexes.iter().enumerate() {
            for label in index.dictionary.all_labels() {
                let has_label = |other: &&Index| other.dictionary.label(&label.name).is_some();
                if !indexes[..number].iter().any(has_label) {
                    tables.add_label(&indexes[number..], &label.name, top);
                }
            }
        }
        tables
    }

    /// Adds the lines of the label `name`.
    fn add_label<'a>(&mut self, indexes: &[&'a Index], name: &str, top: usize) {
        let with_label = |index: &&'a Index| Some((*index, index.dictionary.label(name)?));
        let labels: Vec<(&Index, &IndexedLabel)> = indexes.iter().filter_map(with_label).collect();
        let mut values = 0;
        let mut bytes = 0;
        for (number, (index, label)) in labels.iter().enumerate() {
            for term in label.terms().filter_map(|id| index.dictionary.term(id)) {
                let find = |(other, label): &(&Index, &IndexedLabel)| {
                    let id = other.dictionary.find_term(label, &term.value)?;
                    other.dictionary.term(id)
                };
                if labels[..number].iter().any(|other| find(other).is_some()) {
                    continue;
                }
                let others = labels[number + 1..].iter().filter_map(find);
                let others: usize = others.map(|term| term.postings.count()).sum();
                let series = (term.postings.count() + others) as u64;
                let value = String::from_utf8_lossy(&term.value);
                values += 1;
                bytes += term.value.len() as u64 * series;
                if name == METRIC_NAME {
                    insert_top_line(&mut self.series_by_metric, top, series, || {
                        value.to_string()
                    });
                }
                let pair = || format!("{name}={value}");
                insert_top_line(&mut self.series_by_pair, top, series, pair);
            }
        }
        if values > 0 {
            self.label_pairs += values;
            insert_top_line(&mut self.values_by_label, top, values, || name.to_owned());
            insert_top_line(&mut self.bytes_by_label, top, bytes, || name.to_owned());
        }
    }
}

impl Index {
    /// Returns the memory of the index in bytes, except for the rounding of the allocator.
    pub(crate) fn memory_bytes(&self) -> usize {
        let mut bytes = self.membership.memory_bytes() + self.evicted.memory_bytes();
        bytes += self.matcher_cache.memory_bytes() + self.label_value_cache.memory_bytes();
        for label in self.dictionary.all_labels() {
            bytes += label.name.len() + 128;
            bytes += label.values.memory_bytes() + label.present.memory_bytes();
            bytes += label.dictionary.memory_bytes();
        }
        let terms = self.dictionary.term_count.load(Ordering::Acquire);
        bytes += terms.div_ceil(LEAF_TERMS) as usize * size_of::<TermLeaf>();
        for term in (0..terms).filter_map(|id| self.dictionary.term(TermId(id))) {
            // The counters of the `Arc`.
            bytes +=
                size_of::<IndexedTerm>() + 16 + term.value.len() + term.postings.memory_bytes();
        }
        let leaves = self
            .published_end()
            .div_ceil(super::series_table::LEAF_SLOTS);
        for leaf in (0..leaves).filter_map(|number| self.dictionary.series.get(number)) {
            bytes += leaf.load().memory_bytes();
        }
        bytes
    }
}

/// Inserts a line at its sorted position and keeps the first `top` lines. Calls `name` only for
/// lines that are kept.
fn insert_top_line(lines: &mut Vec<Line>, top: usize, value: u64, name: impl FnOnce() -> String) {
    let is_in = lines.len() < top || lines.last().is_some_and(|(_, least)| *least < value);
    if top > 0 && is_in {
        let at = lines.partition_point(|(_, v)| Reverse(*v) <= Reverse(value));
        lines.insert(at, (name(), value));
        lines.truncate(top);
    }
}

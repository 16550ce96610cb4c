//! Which group each series of an aggregation belongs to.
//!
//! `by` reads only the columns of the labels it names, as numbers; label sets are made once a group.
//! `without` needs whole label sets.

use crate::ast::Grouping;
use crate::eval::label_sets::{Dictionary, retain};
use crate::eval::stream::Stream;
use firn_model::columns::LabelColumn;
use firn_model::labels::{Labels, METRIC_NAME};
use rustc_hash::FxHashMap;

/// The groups of a stream's series.
pub(crate) struct Groups {
    /// For each series its group.
    pub(crate) of_series: Vec<u32>,
    /// The labels of each group.
    pub(crate) labels: Vec<Labels>,
}

impl Groups {
    /// Groups the series of `stream`.
    pub(crate) fn of(stream: &Stream, grouping: &Grouping) -> Self {
        match grouping {
            Grouping::By(names) => Self::by(stream, names),
            Grouping::Without(names) => Self::without(stream, names),
        }
    }

    /// How many groups.
    pub(crate) fn len(&self) -> usize {
        self.labels.len()
    }

    /// The series of each group.
    pub(crate) fn members(&self) -> Vec<Vec<u32>> {
        let mut members = vec![Vec::new(); self.len()];
        for (series, group) in self.of_series.iter().enumerate() {
            members[*group as usize].push(series as u32);
        }
        members
    }

    fn by(stream: &Stream, names: &[String]) -> Self {
        let columns: Vec<(&String, LabelColumn)> = names
            .iter()
            .map(|name| (name, stream.label_column(name)))
            .collect();
        let mut of_series = vec![0u32; stream.len()];
        let mut count = usize::from(stream.len() > 0);
        for (_, column) in columns.iter().filter(|(_, c)| c.values.len() > 1) {
            count = refine(&mut of_series, &column.ids);
        }
        let mut first = vec![usize::MAX; count];
        for (series, group) in of_series.iter().enumerate() {
            let first = &mut first[*group as usize];
            *first = (*first).min(series);
        }
        let labels_of = |series: usize| {
            let value = |column: &LabelColumn| {
                let id = column.ids.get(series).copied().unwrap_or(0);
                column.values.get(id as usize).cloned().unwrap_or_default()
            };
            Labels::from_pairs(columns.iter().map(|(name, column)| (*name, value(column))))
        };
        let labels = first.into_iter().map(labels_of).collect();
        Self { of_series, labels }
    }

    fn without(stream: &Stream, names: &[String]) -> Self {
        let mut known = Dictionary::default();
        let mut of_series = Vec::with_capacity(stream.len());
        let mut labels = Vec::new();
        for series in 0..stream.len() {
            let all = stream.labels(series);
            let rest = retain(all.as_ref(), |name| {
                name != METRIC_NAME && !names.iter().any(|n| n == name)
            });
            let (group, is_new) = known.intern(rest.as_bytes());
            of_series.push(group);
            if is_new {
                labels.push(rest);
            }
        }
        Self { of_series, labels }
    }
}

/// Splits groups by one more label; returns how many there are now.
fn refine(of_series: &mut [u32], ids: &[u32]) -> usize {
    let mut known: FxHashMap<(u32, u32), u32> = FxHashMap::default();
    for (group, id) in of_series.iter_mut().zip(ids) {
        let next = known.len() as u32;
        *group = *known.entry((*group, *id)).or_insert(next);
    }
    known.len()
}

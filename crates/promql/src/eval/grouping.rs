//! Which group each series of an aggregation belongs to.
//!
//! `by` reads only the columns of the labels it names, as numbers; label sets are made once a
//! group. `without` needs whole label sets.

use crate::ast::Grouping;
use crate::eval::label_sets::{Dictionary, retain_into};
use crate::eval::ranges::{SERIES_PER_PART, in_parts};
use crate::eval::stream::Stream;
use crate::value::QueryError;
use firn_model::columns::LabelColumn;
use firn_model::env::Compute;
use firn_model::labels::{Labels, LabelsRef, METRIC_NAME};
use rustc_hash::FxHashMap;
use std::ops::Range;

/// The groups of a stream's series.
pub(crate) struct Groups {
    /// For each series its group.
    pub(crate) of_series: Vec<u32>,
    /// The labels of each group.
    pub(crate) labels: Vec<Labels>,
}

impl Groups {
    /// Groups the series of `stream`.
    pub(crate) fn of(
        stream: &Stream,
        grouping: &Grouping,
        compute: &dyn Compute,
    ) -> Result<Self, QueryError> {
        match grouping {
            Grouping::By(names) => Ok(Self::by(stream, names)),
            Grouping::Without(names) => Self::without(stream, names, compute),
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

    /// Parts of the series find their own groups at once; then those of all parts are numbered.
    fn without(
        stream: &Stream,
        names: &[String],
        compute: &dyn Compute,
    ) -> Result<Self, QueryError> {
        let keeps = |name: &str| name != METRIC_NAME && !names.iter().any(|n| n == name);
        let task = |part: Range<usize>| {
            let mut known = Dictionary::default();
            let (mut ids, mut labels) = (Vec::with_capacity(part.len()), Vec::new());
            let mut rest = Vec::new();
            for series in part {
                retain_into(stream.labels(series).as_ref(), keeps, &mut rest);
                let (id, is_new) = known.intern(&rest);
                ids.push(id);
                if is_new {
                    labels.push(LabelsRef::from_canonical(&rest).to_owned());
                }
            }
            Ok((ids, labels))
        };
        let mut known = Dictionary::default();
        let mut of_series = Vec::with_capacity(stream.len());
        let mut labels = Vec::new();
        let merge = |(ids, part_labels): (Vec<u32>, Vec<Labels>)| {
            let mut number = |part_label: Labels| {
                let (id, is_new) = known.intern(part_label.as_bytes());
                if is_new {
                    labels.push(part_label);
                }
                id
            };
            let numbers: Vec<u32> = part_labels.into_iter().map(&mut number).collect();
            of_series.extend(ids.into_iter().map(|id| numbers[id as usize]));
            Ok(())
        };
        in_parts(compute, stream.len(), SERIES_PER_PART, task, merge)?;
        Ok(Self { of_series, labels })
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

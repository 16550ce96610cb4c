//! The aggregation `count_values`: counts equal values in a group and writes the value into a
//! label.

use crate::ast::Grouping;
use crate::eval::account::grow;
use crate::eval::operators::grouping::Groups;
use crate::eval::rows::frame::Frame;
use crate::eval::rows::row::{ABSENT, Row, is_absent};
use crate::eval::rows::row_labels::RowLabels;
use crate::eval::run::Run;
use crate::go_format::format_f;
use crate::grid::Grid;
use crate::histogram_text::histogram_text;
use crate::plan::{Aggregate, NodeKind};
use crate::quote::quote;
use crate::value::QueryError;
use firn_model::budget::Reservation;
use firn_model::histogram::Histogram;
use firn_model::labels::LabelsBuilder;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Evaluates the aggregation. Values are written into `label` in their shortest form without an
/// exponent.
pub(crate) fn frame(
    run: &Run<'_>,
    node: &Aggregate,
    (label, input): (&str, Arc<Frame>),
    grid: Grid,
) -> Result<Frame, QueryError> {
    let (grouping, writes_value) = without_label(&node.grouping, label);
    let groups = Groups::of_frame(&input, &grouping, run)?;
    let account = run.account;
    let mut counts = Counts {
        writes_value,
        steps: grid.count,
        places: FxHashMap::default(),
        histogram_places: FxHashMap::default(),
        rows: Vec::new(),
        memory: account.reserve(0)?,
    };
    for series in 0..input.len() {
        account.check()?;
        let group = groups.of_series[series];
        let row = input.row(series);
        for (step, value) in row.values.iter().enumerate() {
            if !is_absent(*value) {
                // Each value may need a row of its own, which takes time.
                account.check()?;
                counts.count(group, step, *value)?;
            }
        }
        for (step, histogram) in row.histograms {
            account.check()?;
            counts.count_histogram(group, *step as usize, histogram)?;
        }
    }
    let mut out = Frame::new(grid.count);
    let Counts {
        rows, mut memory, ..
    } = counts;
    for Counted {
        group,
        value,
        counts,
    } in rows
    {
        account.check()?;
        let mut labels = LabelsBuilder::from_labels(groups.labels[group as usize].as_ref());
        if writes_value {
            labels.set(label, value.as_bytes());
        }
        let labels = labels.build();
        grow(&mut memory, labels.as_bytes().len())?;
        out.push(RowLabels::kept(labels), Row::of_floats(&counts));
    }
    out.keep(memory);
    Ok(out)
}

/// A value in a group, in text form, and its number of occurrences at each step.
struct Counted {
    group: u32,
    value: String,
    counts: Vec<f64>,
}

/// The rows counted so far, with an index of their values.
struct Counts {
    writes_value: bool,
    steps: usize,
    /// The index of the row of a value in a group.
    places: FxHashMap<(u32, u64), usize>,
    histogram_places: FxHashMap<(u32, String), usize>,
    rows: Vec<Counted>,
    memory: Reservation,
}

impl Counts {
    fn count(&mut self, group: u32, step: usize, value: f64) -> Result<(), QueryError> {
        let key = if self.writes_value { key_of(value) } else { 0 };
        let place = *self.places.entry((group, key)).or_insert(self.rows.len());
        if place == self.rows.len() {
            self.add_row(group, format_f(value))?;
        }
        self.rows[place].add(step);
        Ok(())
    }

    fn count_histogram(
        &mut self,
        group: u32,
        step: usize,
        histogram: &Histogram,
    ) -> Result<(), QueryError> {
        if !self.writes_value {
            return self.count(group, step, 0.0);
        }
        let text = histogram_text(histogram);
        let known = self.histogram_places.get(&(group, text.clone()));
        let place = known.copied().unwrap_or(self.rows.len());
        if place == self.rows.len() {
            self.histogram_places.insert((group, text.clone()), place);
            self.add_row(group, text)?;
        }
        self.rows[place].add(step);
        Ok(())
    }

    fn add_row(&mut self, group: u32, value: String) -> Result<(), QueryError> {
        // The row, its copy in the result (with capacity for twice as many), the text of the value
        // here and in the index, and the entry of the index.
        const PLACE_BYTES: usize = 2
            * (size_of::<Counted>() + size_of::<((u32, String), usize)>() + size_of::<RowLabels>());
        let row_bytes = self.steps * size_of::<f64>();
        grow(
            &mut self.memory,
            3 * row_bytes + 2 * value.len() + PLACE_BYTES,
        )?;
        self.rows.push(Counted {
            group,
            value,
            counts: vec![ABSENT; self.steps],
        });
        Ok(())
    }
}

impl Counted {
    fn add(&mut self, step: usize) {
        let count = &mut self.counts[step];
        *count = if is_absent(*count) { 1.0 } else { *count + 1.0 };
    }
}

/// Returns a key that is equal for values with the same text form.
fn key_of(value: f64) -> u64 {
    if value.is_nan() { f64::NAN } else { value }.to_bits()
}

/// Returns the label name in the parameter of the aggregation. Fails if it is not a valid label
/// name.
pub(crate) fn label_name(node: &Aggregate) -> Result<String, QueryError> {
    let Some(NodeKind::Text(name)) = node.param.as_ref().map(|p| &p.kind) else {
        return Err(QueryError::Execution("count_values: no label name".into()));
    };
    match String::from_utf8(name.clone()) {
        Ok(name) if !name.is_empty() => Ok(name),
        _ => Err(QueryError::Execution(format!(
            "invalid label name {}",
            quote(name)
        ))),
    }
}

/// Returns the grouping without the label that is overwritten, and whether the results contain this
/// label.
fn without_label(grouping: &Grouping, label: &str) -> (Grouping, bool) {
    match grouping {
        Grouping::By(names) => {
            let names = names.iter().filter(|n| *n != label).cloned();
            (Grouping::By(names.collect()), true)
        }
        Grouping::Without(names) => {
            let keeps = !names.iter().any(|n| n == label);
            let mut names = names.clone();
            names.push(label.to_owned());
            (Grouping::Without(names), keeps)
        }
    }
}

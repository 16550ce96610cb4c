//! The aggregation `count_values`: counts equal values in a group and writes the value into a
//! label.

use crate::ast::AggregateGrouping;
use crate::eval::account::grow;
use crate::eval::operators::grouping::SeriesGroups;
use crate::eval::rows::frame::SeriesFrame;
use crate::eval::rows::row::{ABSENT, StepRow, is_absent};
use crate::eval::rows::row_labels::RowLabels;
use crate::eval::run::EvalContext;
use crate::go_format::format_f;
use crate::grid::StepGrid;
use crate::plan::{PlanAggregate, PlanNodeKind};
use crate::quote::quote;
use crate::value::PromqlError;
use firn_model::budget::Reservation;
use firn_model::histogram::Histogram;
use firn_model::histogram_text::histogram_text;
use firn_model::labels::LabelsBuilder;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Evaluates the aggregation. Values are written into `label` in their shortest form without an
/// exponent.
pub(crate) fn evaluate_count_values(
    run: &EvalContext<'_>,
    node: &PlanAggregate,
    label: &str,
    input: Arc<SeriesFrame>,
    grid: StepGrid,
) -> Result<SeriesFrame, PromqlError> {
    assert_eq!(
        input.steps(),
        grid.count,
        "steps of the input, and of the grid"
    );
    let (grouping, writes_value) = remove_label(&node.grouping, label);
    let groups = SeriesGroups::from_frame(&input, &grouping, run)?;
    let account = run.account;
    let mut counts = ValueCounts {
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
    let mut out = SeriesFrame::new(grid.count);
    let ValueCounts {
        rows, mut memory, ..
    } = counts;
    for CountedValue {
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
        out.push(
            RowLabels::from_labels(labels),
            StepRow::from_floats(&counts),
        );
    }
    out.hold_reservation(memory);
    Ok(out)
}

/// A value in a group, in text form, and its number of occurrences at each step.
struct CountedValue {
    group: u32,
    value: String,
    counts: Vec<f64>,
}

/// The rows counted so far, with an index of their values.
struct ValueCounts {
    writes_value: bool,
    steps: usize,
    /// The index of the row of a value in a group.
    places: FxHashMap<(u32, u64), usize>,
    histogram_places: FxHashMap<(u32, String), usize>,
    rows: Vec<CountedValue>,
    memory: Reservation,
}

impl ValueCounts {
    fn count(&mut self, group: u32, step: usize, value: f64) -> Result<(), PromqlError> {
        let key = if self.writes_value {
            value_key(value)
        } else {
            0
        };
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
    ) -> Result<(), PromqlError> {
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

    fn add_row(&mut self, group: u32, value: String) -> Result<(), PromqlError> {
        // The row, its copy in the result (with capacity for twice as many), the text of the value
        // here and in the index, and the entry of the index.
        const PLACE_BYTES: usize = 2
            * (size_of::<CountedValue>()
                + size_of::<((u32, String), usize)>()
                + size_of::<RowLabels>());
        let row_bytes = self.steps * size_of::<f64>();
        grow(
            &mut self.memory,
            3 * row_bytes + 2 * value.len() + PLACE_BYTES,
        )?;
        self.rows.push(CountedValue {
            group,
            value,
            counts: vec![ABSENT; self.steps],
        });
        Ok(())
    }
}

impl CountedValue {
    fn add(&mut self, step: usize) {
        let count = &mut self.counts[step];
        *count = if is_absent(*count) { 1.0 } else { *count + 1.0 };
    }
}

/// Returns a key that is equal for values with the same text form.
fn value_key(value: f64) -> u64 {
    if value.is_nan() { f64::NAN } else { value }.to_bits()
}

/// Returns the label name in the parameter of the aggregation. Fails if it is not a valid label
/// name.
pub(crate) fn label_name(node: &PlanAggregate) -> Result<String, PromqlError> {
    let Some(PlanNodeKind::Text(name)) = node.param.as_ref().map(|p| &p.kind) else {
        return Err(PromqlError::Execution("count_values: no label name".into()));
    };
    match String::from_utf8(name.clone()) {
        Ok(name) if !name.is_empty() => Ok(name),
        _ => Err(PromqlError::Execution(format!(
            "invalid label name {}",
            quote(name)
        ))),
    }
}

/// Returns the grouping without the label that is overwritten, and whether the results contain this
/// label.
fn remove_label(grouping: &AggregateGrouping, label: &str) -> (AggregateGrouping, bool) {
    match grouping {
        AggregateGrouping::By(names) => {
            let names = names.iter().filter(|n| *n != label).cloned();
            (AggregateGrouping::By(names.collect()), true)
        }
        AggregateGrouping::Without(names) => {
            let keeps = !names.iter().any(|n| n == label);
            let mut names = names.clone();
            names.push(label.to_owned());
            (AggregateGrouping::Without(names), keeps)
        }
    }
}

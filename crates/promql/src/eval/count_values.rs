//! `count_values`: how often each value occurs in a group, the value written into a label.

use crate::ast::Grouping;
use crate::eval::evaluator::Evaluator;
use crate::eval::frame::{ABSENT, Frame, Head, Row, is_absent};
use crate::eval::go_format::format_f;
use crate::eval::grid::Grid;
use crate::eval::grouping::Groups;
use crate::eval::mixed::unsupported;
use crate::eval::stream::Stream;
use crate::plan::{Aggregate, NodeKind};
use crate::quote::quote;
use crate::value::QueryError;
use firn_model::labels::LabelsBuilder;
use rustc_hash::FxHashMap;

/// The value of the aggregation.
pub(crate) fn frame(
    evaluator: &mut Evaluator<'_>,
    node: &Aggregate,
    grid: Grid,
) -> Result<Frame, QueryError> {
    let label = label_name(node)?;
    let input = Stream::from(evaluator.frame(&node.input, grid)?);
    let (grouping, writes_value) = without_label(&node.grouping, &label);
    let groups = Groups::of(&input, &grouping, evaluator.ctx.compute)?;
    let (compute, account) = (evaluator.ctx.compute, evaluator.account);
    let input = input.into_frame(compute, account, &mut evaluator.notes)?;
    if input.has_histograms() {
        return Err(unsupported(node.op.as_str()));
    }
    let mut places: FxHashMap<(u32, u64), usize> = FxHashMap::default();
    let mut counts: Vec<Vec<f64>> = Vec::new();
    let mut owners: Vec<(u32, f64)> = Vec::new();
    let mut memory = account.reserve(0)?;
    for series in 0..input.len() {
        account.check_at(series)?;
        let group = groups.of_series[series];
        for (step, value) in input.row(series).values.iter().enumerate() {
            if is_absent(*value) {
                continue;
            }
            let key = (group, if writes_value { key_of(*value) } else { 0 });
            let place = *places.entry(key).or_insert(counts.len());
            if place == counts.len() {
                memory
                    .grow(grid.count * size_of::<f64>())
                    .map_err(|e| QueryError::Limited(e.message))?;
                counts.push(vec![ABSENT; grid.count]);
                owners.push((group, *value));
            }
            let count = &mut counts[place][step];
            *count = if is_absent(*count) { 1.0 } else { *count + 1.0 };
        }
    }
    let mut out = Frame::new(grid.count);
    out.keep(memory);
    for (values, (group, value)) in counts.iter().zip(owners) {
        let mut labels = LabelsBuilder::from_labels(groups.labels[group as usize].as_ref());
        if writes_value {
            labels.set(&label, format_f(value).as_bytes());
        }
        let head = Head {
            labels: labels.build(),
            drops_name: false,
        };
        let row = Row {
            values,
            histograms: &[],
        };
        out.push(head, row);
    }
    Ok(out)
}

/// Values that are written alike have equal keys.
fn key_of(value: f64) -> u64 {
    if value.is_nan() { f64::NAN } else { value }.to_bits()
}

fn label_name(node: &Aggregate) -> Result<String, QueryError> {
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

/// The grouping without the label that the value overwrites, and whether results keep that label.
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

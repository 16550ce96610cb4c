//! Functions that change labels or the order of elements, and leave values alone.

use crate::eval::annotations::Annotation;
use crate::eval::evaluator::Evaluator;
use crate::eval::frame::Frame;
use crate::eval::grid::Grid;
use crate::eval::natural_order::precedes;
use crate::eval::stream::{Collision, Stream, merge_equal};
use crate::functions::FunctionId;
use crate::plan::{Node, NodeKind};
use crate::value::QueryError;
use firn_model::labels::{LabelsBuilder, METRIC_NAME};
use firn_model::regex::CaptureRegex;
use std::cmp::Ordering;

/// `label_replace(v, dst, replacement, src, regex)`
pub(crate) fn replace(
    evaluator: &mut Evaluator<'_>,
    args: &[Node],
    grid: Grid,
) -> Result<Stream, QueryError> {
    let [destination, replacement, source, pattern] = [1, 2, 3, 4].map(|at| text(args, at));
    let regex = CaptureRegex::new(pattern)
        .map_err(|_| refused("invalid regular expression in label_replace()", pattern))?;
    let destination = label_name(destination).ok_or_else(|| {
        refused(
            "invalid destination label name in label_replace()",
            destination,
        )
    })?;
    let source = String::from_utf8_lossy(source);
    let replacement = String::from_utf8_lossy(replacement);
    let mut frame = evaluator.frame(&args[0], grid)?;
    for head in frame.heads_mut() {
        let Some(captures) = regex.captures(head.labels.get(&source)) else {
            continue;
        };
        let mut value = Vec::new();
        captures.expand(&replacement, &mut value);
        let mut labels = LabelsBuilder::from_labels(head.labels.as_ref());
        head.labels = labels.set(destination, &value).build();
        head.drops_name &= destination != METRIC_NAME;
    }
    Ok(merge_equal(frame, Collision::Merged)?.into())
}

/// `label_join(v, dst, separator, src...)`
pub(crate) fn join(
    evaluator: &mut Evaluator<'_>,
    args: &[Node],
    grid: Grid,
) -> Result<Stream, QueryError> {
    let (destination, separator) = (text(args, 1), text(args, 2));
    let mut sources = Vec::new();
    for at in 3..args.len() {
        let source = text(args, at);
        let name = label_name(source)
            .ok_or_else(|| refused("invalid source label name in label_join()", source))?;
        sources.push(name);
    }
    let destination = label_name(destination).ok_or_else(|| {
        refused(
            "invalid destination label name in label_join()",
            destination,
        )
    })?;
    let mut frame = evaluator.frame(&args[0], grid)?;
    for head in frame.heads_mut() {
        let values: Vec<&[u8]> = sources.iter().map(|name| head.labels.get(name)).collect();
        let value = values.join(separator);
        let mut labels = LabelsBuilder::from_labels(head.labels.as_ref());
        head.labels = labels.set(destination, &value).build();
        head.drops_name &= destination != METRIC_NAME;
    }
    Ok(merge_equal(frame, Collision::Merged)?.into())
}

fn text(args: &[Node], at: usize) -> &[u8] {
    match args.get(at).map(|arg| &arg.kind) {
        Some(NodeKind::Text(text)) => text,
        _ => &[],
    }
}

/// The name that the bytes are, if labels may be called so.
fn label_name(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes)
        .ok()
        .filter(|name| !name.is_empty())
}

fn refused(what: &str, text: &[u8]) -> QueryError {
    QueryError::Execution(format!("{what}: {}", String::from_utf8_lossy(text)))
}

/// `sort`, `sort_desc`, `sort_by_label`, `sort_by_label_desc`. A range query has its own order.
pub(crate) fn sort(
    evaluator: &mut Evaluator<'_>,
    node: &Node,
    function: FunctionId,
    args: &[Node],
    grid: Grid,
) -> Result<Stream, QueryError> {
    if grid.count > 1 {
        evaluator
            .notes
            .add(Annotation::sort_in_range_query(node.span));
    }
    let frame = evaluator.frame(&args[0], grid)?;
    let by_value = matches!(function, FunctionId::Sort | FunctionId::SortDesc);
    let has_floats = |series: &usize| !by_value || frame.row(*series).has_floats();
    let mut order: Vec<usize> = (0..frame.len()).filter(has_floats).collect();
    if grid.count == 1 {
        let names: Vec<&str> = (1..args.len())
            .map(|at| std::str::from_utf8(text(args, at)).unwrap_or(""))
            .collect();
        let value = |series: usize| frame.row(series).values[0];
        match function {
            FunctionId::Sort => order.sort_by(|a, b| by_values(value(*a), value(*b))),
            FunctionId::SortDesc => order.sort_by(|a, b| {
                let (a, b) = (value(*a), value(*b));
                a.is_nan().cmp(&b.is_nan()).then(by_values(b, a))
            }),
            FunctionId::SortByLabel => order.sort_by(|a, b| by_labels(&frame, &names, *a, *b)),
            _ => order.sort_by(|a, b| by_labels(&frame, &names, *b, *a)),
        }
    }
    let mut sorted = frame.select(order);
    if by_value {
        sorted = sorted.floats_only();
    }
    Ok(sorted.into())
}

/// Upwards; NaN last.
fn by_values(a: f64, b: f64) -> Ordering {
    let nan_last = a.is_nan().cmp(&b.is_nan());
    nan_last.then_with(|| a.partial_cmp(&b).unwrap_or(Ordering::Equal))
}

/// By the named labels in turn, then by all.
fn by_labels(frame: &Frame, names: &[&str], a: usize, b: usize) -> Ordering {
    let (a, b) = (&frame.head(a).labels, &frame.head(b).labels);
    for name in names {
        let (left, right) = (a.get(name), b.get(name));
        if left != right {
            return match precedes(left, right) {
                true => Ordering::Less,
                false => Ordering::Greater,
            };
        }
    }
    a.cmp(b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_values_puts_nan_last() {
        let mut values = [f64::NAN, 2.0, f64::NEG_INFINITY, 1.0];
        values.sort_by(|a, b| by_values(*a, *b));
        assert_eq!(values[..3], [f64::NEG_INFINITY, 1.0, 2.0]);
        assert!(values[3].is_nan());
    }
}

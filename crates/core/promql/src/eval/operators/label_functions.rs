//! Functions that change labels or the order of series, but no values.

use crate::eval::account::grow;
use crate::eval::annotations::Annotation;
use crate::eval::operators::natural_order::compare;
use crate::eval::operators::stream::{NameCollisionRule, merge_equal};
use crate::eval::rows::frame::SeriesFrame;
use crate::eval::rows::order::sort_indexes;
use crate::eval::rows::row_labels::ALLOCATION_BYTES;
use crate::eval::run::EvalContext;
use crate::functions::FunctionId;
use crate::grid::StepGrid;
use crate::plan::{PlanNode, PlanNodeKind};
use crate::value::PromqlError;
use firn_model::error::{Error, ErrorKind};
use firn_model::labels::{Labels, LabelsBuilder, METRIC_NAME};
use firn_model::regex::{CaptureRegex, regex_limits};
use std::cmp::Ordering;
use std::sync::Arc;

/// Maximum length in bytes of a label value that a function creates.
const VALUE_BYTES_MAX: usize = 1 << 20;

/// A function that sets one label. It computes the value from the label set of a series, and leaves
/// the series unchanged if it returns `false`.
pub(crate) struct LabelSetter<'a> {
    destination: &'a str,
    make: MakeValue<'a>,
}

type MakeValue<'a> = Box<dyn FnMut(&Labels, &mut Vec<u8>) -> Result<bool, PromqlError> + 'a>;

impl<'a> LabelSetter<'a> {
    /// Creates the function of `label_replace(v, dst, replacement, src, regex)`.
    pub(crate) fn new_label_replace(
        run: &EvalContext<'_>,
        args: &'a [PlanNode],
    ) -> Result<Self, PromqlError> {
        let [destination, replacement, source, pattern] = [1, 2, 3, 4].map(|at| text(args, at));
        let regex = CaptureRegex::new_with_limits(
            pattern,
            &regex_limits(run.ctx.budget, run.account.cancel()),
        );
        let regex = regex.map_err(Error::from).map_err(|e| match e.kind {
            ErrorKind::Limited => PromqlError::Limited(e.message),
            _ => invalid_label_error("invalid regular expression in label_replace()", pattern),
        })?;
        let what = "invalid destination label name in label_replace()";
        let destination =
            label_name(destination).ok_or_else(|| invalid_label_error(what, destination))?;
        let source = String::from_utf8_lossy(source);
        let replacement = String::from_utf8_lossy(replacement);
        let make = move |labels: &Labels, value: &mut Vec<u8>| -> Result<bool, PromqlError> {
            let Some(captures) = regex.captures(labels.get(&source)) else {
                return Ok(false);
            };
            check_len(captures.expanded_len(&replacement))?;
            captures.expand(&replacement, value);
            Ok(true)
        };
        Ok(Self {
            destination,
            make: Box::new(make),
        })
    }

    /// Creates the function of `label_join(v, dst, separator, src...)`. Fails if a label name is
    /// invalid.
    pub(crate) fn new_label_join(args: &'a [PlanNode]) -> Result<Self, PromqlError> {
        let (destination, separator) = (text(args, 1), text(args, 2));
        let mut sources = Vec::new();
        for at in 3..args.len() {
            let source = text(args, at);
            let name = label_name(source).ok_or_else(|| {
                invalid_label_error("invalid source label name in label_join()", source)
            })?;
            sources.push(name);
        }
        let what = "invalid destination label name in label_join()";
        let destination =
            label_name(destination).ok_or_else(|| invalid_label_error(what, destination))?;
        let make = move |labels: &Labels, value: &mut Vec<u8>| -> Result<bool, PromqlError> {
            let values: Vec<&[u8]> = sources.iter().map(|name| labels.get(name)).collect();
            let separators = separator
                .len()
                .saturating_mul(values.len().saturating_sub(1));
            let lens = values.iter().map(|value| value.len());
            check_len(lens.fold(separators, usize::saturating_add))?;
            *value = values.join(separator);
            Ok(true)
        };
        Ok(Self {
            destination,
            make: Box::new(make),
        })
    }

    /// Sets the label of every series for which the function returns true.
    pub(crate) fn apply(
        mut self,
        run: &EvalContext<'_>,
        mut frame: SeriesFrame,
    ) -> Result<SeriesFrame, PromqlError> {
        let (account, name) = (run.account, self.destination);
        let mut memory = account.reserve(0)?;
        let mut value = Vec::new();
        for row_labels in frame.row_labels_mut(account, &mut memory)? {
            account.check()?;
            value.clear();
            if !(self.make)(&row_labels.labels, &mut value)? {
                continue;
            }
            // The previous labels may be shared with other owners, so all of these are new.
            let bytes = row_labels.labels.as_bytes().len() + name.len() + value.len();
            grow(&mut memory, bytes + ALLOCATION_BYTES)?;
            let mut builder = LabelsBuilder::from_labels(row_labels.labels.as_ref());
            row_labels.labels = builder.set(name, &value).build();
            row_labels.drops_name &= name != METRIC_NAME;
        }
        // After a cancellation the pattern matches nothing.
        account.check()?;
        frame.hold_reservation(memory);
        merge_equal(frame, NameCollisionRule::MergedByKind, account)
    }
}

/// Rejects label values that are too long. Without a limit, a value that contains itself twice
/// would double with each call.
fn check_len(len: usize) -> Result<(), PromqlError> {
    if len <= VALUE_BYTES_MAX {
        Ok(())
    } else {
        Err(PromqlError::Execution(format!(
            "label value too long: {len} bytes, limit {VALUE_BYTES_MAX}"
        )))
    }
}

fn text(args: &[PlanNode], at: usize) -> &[u8] {
    match args.get(at).map(|arg| &arg.kind) {
        Some(PlanNodeKind::Text(text)) => text,
        _ => &[],
    }
}

/// Returns the name if the bytes are a valid label name.
fn label_name(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes)
        .ok()
        .filter(|name| !name.is_empty())
}

fn invalid_label_error(what: &str, text: &[u8]) -> PromqlError {
    PromqlError::Execution(format!("{what}: {}", String::from_utf8_lossy(text)))
}

/// Evaluates `sort`, `sort_desc`, `sort_by_label` and `sort_by_label_desc`. In a range
/// query they have no effect.
pub(crate) fn evaluate_sort(
    run: &mut EvalContext<'_>,
    node: &PlanNode,
    function: FunctionId,
    args: &[PlanNode],
    frame: Arc<SeriesFrame>,
    grid: StepGrid,
) -> Result<SeriesFrame, PromqlError> {
    // A range query with a single remaining step is still a range query.
    if grid.start != grid.end {
        run.notes
            .add(Annotation::sort_in_range_query(node.own_span()));
    }
    let by_value = matches!(function, FunctionId::Sort | FunctionId::SortDesc);
    let has_floats = |series: &usize| !by_value || frame.row(*series).has_floats();
    let account = run.account;
    let _order = account.reserve(frame.len() * size_of::<usize>())?;
    let mut order: Vec<usize> = (0..frame.len()).filter(has_floats).collect();
    if grid.count == 1 {
        let names: Vec<&str> = (1..args.len())
            .map(|at| std::str::from_utf8(text(args, at)).unwrap_or(""))
            .collect();
        let value = |series: usize| frame.row(series).values[0];
        match function {
            FunctionId::Sort => sort_indexes(&mut order, account, |a, b| {
                compare_values(value(a), value(b))
            }),
            FunctionId::SortDesc => sort_indexes(&mut order, account, |a, b| {
                let (a, b) = (value(a), value(b));
                a.is_nan().cmp(&b.is_nan()).then(compare_values(b, a))
            }),
            FunctionId::SortByLabel => sort_indexes(&mut order, account, |a, b| {
                compare_labels(&frame, &names, a, b)
            }),
            _ => sort_indexes(&mut order, account, |a, b| {
                compare_labels(&frame, &names, b, a)
            }),
        }?;
    }
    let _copied = account.reserve(frame.bytes())?;
    let mut sorted = frame.select(order, account)?;
    if by_value {
        sorted = sorted.without_histograms(account)?;
    }
    sorted.take_memory_of(frame, run.account)?;
    Ok(sorted)
}

/// Compares values in ascending order, NaN last, like the function `sort`.
pub(crate) fn compare_values(a: f64, b: f64) -> Ordering {
    let nan_last = a.is_nan().cmp(&b.is_nan());
    nan_last.then_with(|| a.partial_cmp(&b).unwrap_or(Ordering::Equal))
}

/// Compares series by the given labels in order, then by all labels.
fn compare_labels(frame: &SeriesFrame, names: &[&str], a: usize, b: usize) -> Ordering {
    let (a, b) = (&frame.labels(a), &frame.labels(b));
    for name in names {
        let order = compare(a.get(name), b.get(name));
        if order.is_ne() {
            return order;
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
        values.sort_by(|a, b| compare_values(*a, *b));
        assert_eq!(values[..3], [f64::NEG_INFINITY, 1.0, 2.0]);
        assert!(values[3].is_nan());
    }
}

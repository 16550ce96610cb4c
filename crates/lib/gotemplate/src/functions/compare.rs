//! Comparison functions. Values must have the same basic kind; integers of all types are
//! comparable.

use super::table::TemplateFunction;
use crate::format;
use crate::value::{BasicKind, TemplateValue};
use std::rc::Rc;

const BAD_TYPE: &str = "invalid type for comparison";

/// Implements `eq`, `ne`, `lt`, `le`, `gt` and `ge`. Returns Go's message for incompatible types.
pub(super) fn compare(
    function: TemplateFunction,
    arguments: &[TemplateValue],
) -> Result<bool, String> {
    let values: Vec<TemplateValue> = arguments
        .iter()
        .map(|value| value.clone().unwrap_interface())
        .collect();
    let Some((first, others)) = values.split_first() else {
        return Err("missing argument for comparison".to_owned());
    };
    match (function, others) {
        (_, []) => Err("missing argument for comparison".to_owned()),
        (TemplateFunction::Eq, others) => equals_any(first, others),
        (TemplateFunction::Ne, others) => equals_any(first, others).map(|equal| !equal),
        (TemplateFunction::Lt, [second, ..]) => is_less(first, second),
        (TemplateFunction::Ge, [second, ..]) => is_less(first, second).map(|less| !less),
        (TemplateFunction::Le, [second, ..]) => is_less_or_equal(first, second),
        (_, [second, ..]) => is_less_or_equal(first, second).map(|is| !is),
    }
}

fn incompatible<T>(a: &TemplateValue, b: &TemplateValue) -> Result<T, String> {
    let (a, b) = (a.type_name(), b.type_name());
    Err(format!("incompatible types for comparison: {a} and {b}"))
}

fn equals_any(first: &TemplateValue, others: &[TemplateValue]) -> Result<bool, String> {
    for other in others {
        if equal(first, other)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn equal(a: &TemplateValue, b: &TemplateValue) -> Result<bool, String> {
    Ok(match (a, b) {
        (TemplateValue::Bool(a), TemplateValue::Bool(b)) => a == b,
        (TemplateValue::Float(a), TemplateValue::Float(b)) => a == b,
        (TemplateValue::Complex(a, x), TemplateValue::Complex(b, y)) => a == b && x == y,
        (TemplateValue::Int(_, a), TemplateValue::Int(_, b)) => a == b,
        (
            TemplateValue::String(a) | TemplateValue::Html(a),
            TemplateValue::String(b) | TemplateValue::Html(b),
        ) => a == b,
        _ if a.basic_kind() != b.basic_kind() && a.is_valid() && b.is_valid() => {
            return incompatible(a, b);
        }
        _ if a.basic_kind() != BasicKind::Other || b.basic_kind() != BasicKind::Other => false,
        _ => return equal_others(a, b),
    })
}

/// Compares values that are not numbers, strings or booleans: nil, or types that Go can compare.
/// Other types are an error.
fn equal_others(a: &TemplateValue, b: &TemplateValue) -> Result<bool, String> {
    if a.is_nil() || b.is_nil() {
        return Ok(a.is_nil() == b.is_nil());
    }
    Ok(match (a, b) {
        (TemplateValue::Sample(Some(a)), TemplateValue::Sample(Some(b))) => Rc::ptr_eq(a, b),
        (TemplateValue::Time(a), TemplateValue::Time(b)) => a == b,
        (TemplateValue::Histogram(a), TemplateValue::Histogram(b)) => Rc::ptr_eq(a, b),
        (
            _,
            TemplateValue::Strings(_)
            | TemplateValue::Params(_)
            | TemplateValue::Texts(_)
            | TemplateValue::Args(_)
            | TemplateValue::Floats(_)
            | TemplateValue::Query(_),
        ) => {
            let (shown, name) = (format_bounded(b), b.type_name());
            return Err(format!("non-comparable type {shown}: {name}"));
        }
        _ => false,
    })
}

/// Returns the value formatted with `%s`, or `...` if that is too long.
fn format_bounded(value: &TemplateValue) -> String {
    const BYTES_MAX: usize = 4 << 10;
    match format::printf(b"%s", std::slice::from_ref(value), BYTES_MAX) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(format::OutputTooLong) => "...".to_owned(),
    }
}

fn is_less(a: &TemplateValue, b: &TemplateValue) -> Result<bool, String> {
    if a.basic_kind() == BasicKind::Other || b.basic_kind() == BasicKind::Other {
        return Err(BAD_TYPE.to_owned());
    }
    Ok(match (a, b) {
        (TemplateValue::Float(a), TemplateValue::Float(b)) => a < b,
        (TemplateValue::Int(_, a), TemplateValue::Int(_, b)) => a < b,
        (
            TemplateValue::String(a) | TemplateValue::Html(a),
            TemplateValue::String(b) | TemplateValue::Html(b),
        ) => a < b,
        _ if a.basic_kind() == b.basic_kind() => return Err(BAD_TYPE.to_owned()),
        _ => return incompatible(a, b),
    })
}

fn is_less_or_equal(a: &TemplateValue, b: &TemplateValue) -> Result<bool, String> {
    Ok(is_less(a, b)? || equal(a, b)?)
}

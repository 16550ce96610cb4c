//! Comparison functions. Values must have the same basic kind; integers of all types are
//! comparable.

use super::table::Function;
use crate::template::format;
use crate::template::value::{Basic, Value};
use std::rc::Rc;

const BAD_TYPE: &str = "invalid type for comparison";

/// Implements `eq`, `ne`, `lt`, `le`, `gt` and `ge`. Returns Go's message for incompatible types.
pub(super) fn compare(function: Function, arguments: &[Value]) -> Result<bool, String> {
    let values: Vec<Value> = arguments
        .iter()
        .map(|value| value.clone().inside())
        .collect();
    let Some((first, others)) = values.split_first() else {
        return Err("missing argument for comparison".to_owned());
    };
    match (function, others) {
        (_, []) => Err("missing argument for comparison".to_owned()),
        (Function::Eq, others) => equals_any(first, others),
        (Function::Ne, others) => equals_any(first, others).map(|equal| !equal),
        (Function::Lt, [second, ..]) => less(first, second),
        (Function::Ge, [second, ..]) => less(first, second).map(|less| !less),
        (Function::Le, [second, ..]) => less_or_equal(first, second),
        (_, [second, ..]) => less_or_equal(first, second).map(|is| !is),
    }
}

fn incompatible<T>(a: &Value, b: &Value) -> Result<T, String> {
    let (a, b) = (a.type_name(), b.type_name());
    Err(format!("incompatible types for comparison: {a} and {b}"))
}

fn equals_any(first: &Value, others: &[Value]) -> Result<bool, String> {
    for other in others {
        if equal(first, other)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn equal(a: &Value, b: &Value) -> Result<bool, String> {
    Ok(match (a, b) {
        (Value::Bool(a), Value::Bool(b)) => a == b,
        (Value::Float(a), Value::Float(b)) => a == b,
        (Value::Complex(a, x), Value::Complex(b, y)) => a == b && x == y,
        (Value::Int(_, a), Value::Int(_, b)) => a == b,
        (Value::String(a) | Value::Html(a), Value::String(b) | Value::Html(b)) => a == b,
        _ if a.basic() != b.basic() && a.is_valid() && b.is_valid() => return incompatible(a, b),
        _ if a.basic() != Basic::Other || b.basic() != Basic::Other => false,
        _ => return equal_others(a, b),
    })
}

/// Compares values that are not numbers, strings or booleans: nil, or types that Go can compare.
/// Other types are an error.
fn equal_others(a: &Value, b: &Value) -> Result<bool, String> {
    if a.is_nil() || b.is_nil() {
        return Ok(a.is_nil() == b.is_nil());
    }
    Ok(match (a, b) {
        (Value::Sample(Some(a)), Value::Sample(Some(b))) => Rc::ptr_eq(a, b),
        (Value::Time(a), Value::Time(b)) => a == b,
        (Value::Histogram(a), Value::Histogram(b)) => Rc::ptr_eq(a, b),
        (
            _,
            Value::Strings(_)
            | Value::Params(_)
            | Value::Texts(_)
            | Value::Args(_)
            | Value::Floats(_)
            | Value::Query(_),
        ) => {
            let (shown, name) = (shown(b), b.type_name());
            return Err(format!("non-comparable type {shown}: {name}"));
        }
        _ => false,
    })
}

/// Returns the value formatted with `%s`, or `...` if that is too long.
fn shown(value: &Value) -> String {
    const BYTES_MAX: usize = 4 << 10;
    match format::printf(b"%s", std::slice::from_ref(value), BYTES_MAX) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(format::TooLong) => "...".to_owned(),
    }
}

fn less(a: &Value, b: &Value) -> Result<bool, String> {
    if a.basic() == Basic::Other || b.basic() == Basic::Other {
        return Err(BAD_TYPE.to_owned());
    }
    Ok(match (a, b) {
        (Value::Float(a), Value::Float(b)) => a < b,
        (Value::Int(_, a), Value::Int(_, b)) => a < b,
        (Value::String(a) | Value::Html(a), Value::String(b) | Value::Html(b)) => a < b,
        _ if a.basic() == b.basic() => return Err(BAD_TYPE.to_owned()),
        _ => return incompatible(a, b),
    })
}

fn less_or_equal(a: &Value, b: &Value) -> Result<bool, String> {
    Ok(less(a, b)? || equal(a, b)?)
}

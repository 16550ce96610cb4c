//! Go's built-in functions for values of any type: `not`, `len`, `index`, `slice` and `call`.

use super::table::{Called, Function};
use crate::template::value::{IntType, Value};

/// Calls one of these functions with arguments that match its signature.
pub(super) fn call(function: Function, arguments: &[Value]) -> Called {
    let Some((first, rest)) = arguments.split_first() else {
        return Ok(Value::Invalid);
    };
    match function {
        Function::Not => Ok(Value::Bool(!first.clone().inside().is_true())),
        Function::Len => length(first),
        Function::Index => index(first, rest),
        _ => slice(first, rest),
    }
}

/// Implements `call`, which always fails because templates have no function values.
pub(super) fn call_value(arguments: &[Value], callee: &str) -> Called {
    let value = arguments
        .first()
        .cloned()
        .unwrap_or(Value::Invalid)
        .inside();
    match value.is_valid() {
        true => Err(format!(
            "non-function {callee} of type {}",
            value.type_name()
        )),
        false => Err("call of nil".to_owned()),
    }
}

fn length(value: &Value) -> Called {
    let (value, is_nil) = value.clone().indirect();
    if is_nil {
        return Err("len of nil pointer".to_owned());
    }
    match len(&value) {
        Some(len) => Ok(Value::int(len)),
        // Go fails differently for an untyped nil here: it has no type to report.
        None if !value.is_valid() => {
            Err("reflect: call of reflect.Value.Type on zero Value".into())
        }
        None => Err(format!("len of type {}", type_behind(&value))),
    }
}

fn len(value: &Value) -> Option<usize> {
    Some(match value {
        Value::String(text) | Value::Html(text) => text.len(),
        Value::Strings(map) => map.len(),
        Value::Params(map) => map.len(),
        Value::Texts(texts) => texts.len(),
        Value::Args(map) => map.len(),
        Value::Floats(floats) => floats.len(),
        Value::Query(query) => query.len(),
        _ => return None,
    })
}

/// Returns the type name of the value or, for a pointer, of its target.
fn type_behind(value: &Value) -> String {
    let name = value.type_name();
    name.strip_prefix('*').unwrap_or(&name).to_owned()
}

/// Converts an index argument to a position in a sequence of `len` elements. The end is a valid
/// position.
fn place(index: &Value, len: usize) -> Result<usize, String> {
    let index = index.clone().inside();
    match index {
        Value::Int(_, place) => match usize::try_from(place) {
            Ok(at) if at <= len => Ok(at),
            _ => Err(format!("index out of range: {place}")),
        },
        Value::Invalid => Err("cannot index slice/array with nil".to_owned()),
        _ => Err(format!(
            "cannot index slice/array with type {}",
            index.type_name()
        )),
    }
}

fn index(item: &Value, indexes: &[Value]) -> Called {
    let mut item = item.clone().inside();
    if !item.is_valid() {
        return Err("index of untyped nil".to_owned());
    }
    for index in indexes {
        let (inside, is_nil) = item.indirect();
        if is_nil {
            return Err("index of nil pointer".to_owned());
        }
        item = index_once(&inside, &index.clone().inside())?;
    }
    Ok(item)
}

fn index_once(item: &Value, index: &Value) -> Called {
    if let Value::Strings(_) | Value::Params(_) | Value::Args(_) = item {
        return match index {
            Value::String(key) => Ok(item.entry(key)),
            Value::Invalid => Err("value is nil; should be of type string".to_owned()),
            _ => {
                let name = index.type_name();
                Err(format!("value has type {name}; should be string"))
            }
        };
    }
    let Some(len) = len(item) else {
        return Err(format!("can't index item of type {}", type_behind(item)));
    };
    let at = place(index, len)?;
    let (kind, value) = match item {
        Value::String(text) | Value::Html(text) => {
            let byte = text
                .get(at)
                .map(|b| Value::Int(IntType::Byte, i64::from(*b)));
            ("string", byte)
        }
        Value::Floats(floats) => ("slice", floats.get(at).map(|float| Value::Float(*float))),
        Value::Texts(texts) => ("slice", texts.get(at).cloned().map(Value::String)),
        Value::Query(query) => (
            "slice",
            query.get(at).map(|sample| Value::Sample(Some(sample))),
        ),
        _ => ("", None),
    };
    value.ok_or_else(|| format!("reflect: {kind} index out of range"))
}

fn slice(item: &Value, indexes: &[Value]) -> Called {
    let item = item.clone().inside();
    if !item.is_valid() {
        return Err("slice of untyped nil".to_owned());
    }
    let (item, is_nil) = item.indirect();
    if is_nil {
        return Err("slice of nil pointer".to_owned());
    }
    if indexes.len() > 3 {
        return Err(format!("too many slice indexes: {}", indexes.len()));
    }
    let (len, capacity) = match &item {
        Value::String(_) | Value::Html(_) if indexes.len() == 3 => {
            return Err("cannot 3-index slice a string".to_owned());
        }
        Value::String(text) | Value::Html(text) => (text.len(), text.len()),
        Value::Floats(floats) => (floats.len(), floats.len()),
        Value::Texts(texts) => (texts.len(), texts.len()),
        Value::Query(query) => (query.len(), query.capacity()),
        _ => return Err(format!("can't slice item of type {}", type_behind(&item))),
    };
    let mut places = [0, len, capacity];
    for (at, index) in indexes.iter().enumerate() {
        places[at] = place(index, capacity)?;
    }
    let [start, end, most] = places;
    if start > end {
        return Err(format!("invalid slice index: {start} > {end}"));
    }
    if end > most {
        return Err(format!("invalid slice index: {end} > {most}"));
    }
    Ok(match item {
        Value::String(text) => Value::string(&text[start..end]),
        Value::Html(text) => Value::Html(text[start..end].into()),
        Value::Floats(floats) => Value::Floats(floats[start..end].into()),
        Value::Texts(texts) => Value::Texts(texts[start..end].into()),
        Value::Query(query) => Value::Query(query.part(start, end, most)),
        item => item,
    })
}

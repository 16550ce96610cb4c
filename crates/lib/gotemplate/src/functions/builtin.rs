//! Go's built-in functions for values of any type: `not`, `len`, `index`, `slice` and `call`.

use super::table::{Called, TemplateFunction};
use crate::value::{GoIntType, TemplateValue};

/// Calls one of these functions with arguments that match its signature.
pub(super) fn call(function: TemplateFunction, arguments: &[TemplateValue]) -> Called {
    let Some((first, rest)) = arguments.split_first() else {
        return Ok(TemplateValue::Invalid);
    };
    match function {
        TemplateFunction::Not => Ok(TemplateValue::Bool(
            !first.clone().unwrap_interface().is_true(),
        )),
        TemplateFunction::Len => length(first),
        TemplateFunction::Index => index(first, rest),
        _ => slice(first, rest),
    }
}

/// Implements `call`, which always fails because templates have no function values.
pub(super) fn call_value(arguments: &[TemplateValue], callee: &str) -> Called {
    let value = arguments
        .first()
        .cloned()
        .unwrap_or(TemplateValue::Invalid)
        .unwrap_interface();
    if value.is_valid() {
        Err(format!(
            "non-function {callee} of type {}",
            value.type_name()
        ))
    } else {
        Err("call of nil".to_owned())
    }
}

fn length(value: &TemplateValue) -> Called {
    let (value, is_nil) = value.clone().indirect();
    if is_nil {
        return Err("len of nil pointer".to_owned());
    }
    match len(&value) {
        Some(len) => Ok(TemplateValue::int(len)),
        // Go fails differently for an untyped nil here: it has no type to report.
        None if !value.is_valid() => {
            Err("reflect: call of reflect.Value.Type on zero Value".into())
        }
        None => Err(format!("len of type {}", target_type_name(&value))),
    }
}

fn len(value: &TemplateValue) -> Option<usize> {
    Some(match value {
        TemplateValue::String(text) | TemplateValue::Html(text) => text.len(),
        TemplateValue::Strings(map) => map.len(),
        TemplateValue::Params(map) => map.len(),
        TemplateValue::Texts(texts) => texts.len(),
        TemplateValue::Args(args) => args.entries().len(),
        TemplateValue::Floats(floats) => floats.len(),
        TemplateValue::Query(query) => query.len(),
        _ => return None,
    })
}

/// Returns the type name of the value or, for a pointer, of its target.
fn target_type_name(value: &TemplateValue) -> String {
    let name = value.type_name();
    name.strip_prefix('*').unwrap_or(&name).to_owned()
}

/// Converts an index argument to a position in a sequence of `len` elements. The end is a valid
/// position.
fn place(index: &TemplateValue, len: usize) -> Result<usize, String> {
    let index = index.clone().unwrap_interface();
    match index {
        TemplateValue::Int(_, place) => match usize::try_from(place) {
            Ok(at) if at <= len => Ok(at),
            _ => Err(format!("index out of range: {place}")),
        },
        TemplateValue::Invalid => Err("cannot index slice/array with nil".to_owned()),
        _ => Err(format!(
            "cannot index slice/array with type {}",
            index.type_name()
        )),
    }
}

fn index(item: &TemplateValue, indexes: &[TemplateValue]) -> Called {
    let mut item = item.clone().unwrap_interface();
    if !item.is_valid() {
        return Err("index of untyped nil".to_owned());
    }
    for index in indexes {
        let (inside, is_nil) = item.indirect();
        if is_nil {
            return Err("index of nil pointer".to_owned());
        }
        item = index_once(&inside, &index.clone().unwrap_interface())?;
    }
    Ok(item)
}

fn index_once(item: &TemplateValue, index: &TemplateValue) -> Called {
    if let TemplateValue::Strings(_) | TemplateValue::Params(_) | TemplateValue::Args(_) = item {
        return match index {
            TemplateValue::String(key) => Ok(item.map_entry(key)),
            TemplateValue::Invalid => Err("value is nil; should be of type string".to_owned()),
            _ => {
                let name = index.type_name();
                Err(format!("value has type {name}; should be string"))
            }
        };
    }
    let Some(len) = len(item) else {
        return Err(format!(
            "can't index item of type {}",
            target_type_name(item)
        ));
    };
    let at = place(index, len)?;
    let (kind, value) = match item {
        TemplateValue::String(text) | TemplateValue::Html(text) => {
            let byte = text
                .get(at)
                .map(|b| TemplateValue::Int(GoIntType::Byte, i64::from(*b)));
            ("string", byte)
        }
        TemplateValue::Floats(floats) => (
            "slice",
            floats.get(at).map(|float| TemplateValue::Float(*float)),
        ),
        TemplateValue::Texts(texts) => ("slice", texts.get(at).cloned().map(TemplateValue::String)),
        TemplateValue::Query(query) => (
            "slice",
            query
                .get(at)
                .map(|sample| TemplateValue::Sample(Some(sample))),
        ),
        _ => ("", None),
    };
    value.ok_or_else(|| format!("reflect: {kind} index out of range"))
}

fn slice(item: &TemplateValue, indexes: &[TemplateValue]) -> Called {
    let item = item.clone().unwrap_interface();
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
        TemplateValue::String(_) | TemplateValue::Html(_) if indexes.len() == 3 => {
            return Err("cannot 3-index slice a string".to_owned());
        }
        TemplateValue::String(text) | TemplateValue::Html(text) => (text.len(), text.len()),
        TemplateValue::Floats(floats) => (floats.len(), floats.len()),
        TemplateValue::Texts(texts) => (texts.len(), texts.len()),
        TemplateValue::Query(query) => (query.len(), query.capacity()),
        _ => {
            return Err(format!(
                "can't slice item of type {}",
                target_type_name(&item)
            ));
        }
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
        TemplateValue::String(text) => TemplateValue::string(&text[start..end]),
        TemplateValue::Html(text) => TemplateValue::Html(text[start..end].into()),
        TemplateValue::Floats(floats) => TemplateValue::Floats(floats[start..end].into()),
        TemplateValue::Texts(texts) => TemplateValue::Texts(texts[start..end].into()),
        TemplateValue::Query(query) => TemplateValue::Query(query.part(start, end, most)),
        item => item,
    })
}

//! Conversion of a JSON tree to serde types, by the rules of Go's `encoding/json`.
//!
//! - A key sets the field of that name, or else the first field whose name differs only in case.
//! - Of duplicate keys the last one takes effect; objects under duplicate keys are merged.
//! - `null` is the zero value of every type.
//! - Numbers and strings are not converted to each other.

use super::text::JsonTree;
use serde::de::value::{MapDeserializer, SeqDeserializer, StrDeserializer, StringDeserializer};
use serde::de::{Deserializer, Error, IntoDeserializer, Unexpected, Visitor};
use serde::forward_to_deserialize_any;
use std::fmt;

/// A value does not have the expected type; contains the message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct JsonTypeError(String);

impl fmt::Display for JsonTypeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for JsonTypeError {}

impl Error for JsonTypeError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        JsonTypeError(message.to_string())
    }
}

impl IntoDeserializer<'_, JsonTypeError> for JsonTree {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl JsonTree {
    fn type_mismatch_error(&self, expected: &dyn serde::de::Expected) -> JsonTypeError {
        let found = match self {
            JsonTree::Null => Unexpected::Unit,
            JsonTree::Bool(is_on) => Unexpected::Bool(*is_on),
            JsonTree::Number(digits) => {
                return JsonTypeError(format!(
                    "invalid value: number {digits}, expected {expected}"
                ));
            }
            JsonTree::Text(text) => Unexpected::Str(text),
            JsonTree::List(_) => Unexpected::Seq,
            JsonTree::Object(_) => Unexpected::Map,
        };
        JsonTypeError::invalid_type(found, expected)
    }

    fn visit_number<'de, V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, JsonTypeError> {
        let JsonTree::Number(digits) = &self else {
            return Err(self.type_mismatch_error(&visitor));
        };
        if let Ok(number) = digits.parse::<i64>() {
            return visitor.visit_i64(number);
        }
        if let Ok(number) = digits.parse::<u64>() {
            return visitor.visit_u64(number);
        }
        match digits.parse::<f64>() {
            Ok(number) if number.is_finite() => visitor.visit_f64(number),
            _ => Err(self.type_mismatch_error(&visitor)),
        }
    }
}

/// Generates the `Deserializer` methods of the integer and float types.
macro_rules! deserialize_numbers {
    ($($method:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, JsonTypeError> {
            match self {
                JsonTree::Null => visitor.visit_u64(0),
                value => value.visit_number(visitor),
            }
        }
    )*};
}

impl<'de> Deserializer<'de> for JsonTree {
    type Error = JsonTypeError;

    deserialize_numbers! {
        deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_u8
        deserialize_u16 deserialize_u32 deserialize_u64 deserialize_f32 deserialize_f64
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, JsonTypeError> {
        match self {
            JsonTree::Null => visitor.visit_unit(),
            JsonTree::Bool(is_on) => visitor.visit_bool(is_on),
            JsonTree::Number(_) => self.visit_number(visitor),
            JsonTree::Text(text) => visitor.visit_string(text),
            JsonTree::List(items) => visitor.visit_seq(SeqDeserializer::new(items.into_iter())),
            JsonTree::Object(entries) => {
                visitor.visit_map(MapDeserializer::new(entries.into_iter()))
            }
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, JsonTypeError> {
        match self {
            JsonTree::Null => visitor.visit_bool(false),
            JsonTree::Bool(is_on) => visitor.visit_bool(is_on),
            value => Err(value.type_mismatch_error(&visitor)),
        }
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, JsonTypeError> {
        match self {
            JsonTree::Null => visitor.visit_str(""),
            JsonTree::Text(text) => visitor.visit_string(text),
            value => Err(value.type_mismatch_error(&visitor)),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, JsonTypeError> {
        self.deserialize_str(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, JsonTypeError> {
        match self {
            JsonTree::Null => visitor.visit_none(),
            value => visitor.visit_some(value),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, JsonTypeError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, JsonTypeError> {
        match self {
            JsonTree::Null => JsonTree::List(Vec::new()).deserialize_any(visitor),
            JsonTree::List(_) => self.deserialize_any(visitor),
            value => Err(value.type_mismatch_error(&visitor)),
        }
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, JsonTypeError> {
        match self {
            JsonTree::Null => JsonTree::Object(Vec::new()).deserialize_any(visitor),
            JsonTree::Object(_) => self.deserialize_any(visitor),
            value => Err(value.type_mismatch_error(&visitor)),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, JsonTypeError> {
        match self {
            JsonTree::Object(entries) => {
                JsonTree::Object(rename_to_fields(entries, fields)).deserialize_any(visitor)
            }
            value => value.deserialize_map(visitor),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, JsonTypeError> {
        match self {
            JsonTree::Text(text) => {
                let name: StringDeserializer<JsonTypeError> = text.into_deserializer();
                visitor.visit_enum(name)
            }
            JsonTree::Null => {
                let name: StrDeserializer<'_, JsonTypeError> = "".into_deserializer();
                visitor.visit_enum(name)
            }
            value => Err(value.type_mismatch_error(&visitor)),
        }
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(
        self,
        visitor: V,
    ) -> Result<V::Value, JsonTypeError> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        i128 u128 char bytes byte_buf unit unit_struct tuple tuple_struct identifier
    }
}

/// Renames entries to the fields that their keys match, and merges duplicates, so that each field
/// occurs once.
fn rename_to_fields(entries: Vec<(String, JsonTree)>, fields: &[&str]) -> Vec<(String, JsonTree)> {
    let mut found: Vec<(String, JsonTree)> = Vec::new();
    for (key, value) in entries {
        let name = find_field(&key, fields).map_or(key, str::to_owned);
        match found.iter_mut().find(|(known, _)| *known == name) {
            Some((_, earlier)) => replace_value(earlier, value),
            None => found.push((name, value)),
        }
    }
    found
}

/// Returns the field that a key matches, or `None` for an unknown key.
fn find_field<'f>(key: &str, fields: &[&'f str]) -> Option<&'f str> {
    let exact = fields.iter().find(|name| **name == key);
    let folded = || fields.iter().find(|name| is_equal_folded(name, key));
    exact.or_else(folded).copied()
}

/// Returns whether two names differ only in case. As in Go, the Kelvin sign equals `k` and the long
/// s equals `s`.
fn is_equal_folded(one: &str, other: &str) -> bool {
    let fold = |c: char| c.to_uppercase().flat_map(char::to_lowercase);
    one.chars().flat_map(fold).eq(other.chars().flat_map(fold))
}

/// Overwrites an earlier value with the value of a duplicate key. Objects are merged, and `null`
/// does not overwrite scalars.
fn replace_value(earlier: &mut JsonTree, value: JsonTree) {
    match (earlier, value) {
        (JsonTree::Object(entries), JsonTree::Object(more)) => entries.extend(more),
        (JsonTree::Bool(_) | JsonTree::Number(_) | JsonTree::Text(_), JsonTree::Null) => {}
        (earlier, value) => *earlier = value,
    }
}

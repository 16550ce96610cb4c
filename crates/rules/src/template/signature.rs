//! Parameter types of functions and methods.

use super::value::{IntType, Query, Value};

/// Type of a parameter in Go's terms. The interpreter converts arguments to it or fails with Go's
/// message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Parameter {
    /// Accepts any value (`interface {}`).
    Any,
    /// Accepts any value and keeps interfaces (`reflect.Value`).
    Reflect,
    String,
    Query,
    Sample,
    Duration,
    Time,
}

/// Parameter types of a function: a fixed list, and the type of further arguments if it is
/// variadic.
#[derive(Clone, Copy, Debug)]
pub(super) struct Signature {
    pub fixed: &'static [Parameter],
    /// Type of further arguments of a variadic function.
    pub more: Option<Parameter>,
}

impl Signature {
    /// Returns the signature of a function with exactly these parameters and no variadic ones.
    pub const fn fixed(fixed: &'static [Parameter]) -> Self {
        Self { fixed, more: None }
    }

    /// Returns the type of the parameter at `index`; `None` if there is none.
    pub fn parameter(&self, index: usize) -> Option<Parameter> {
        self.fixed.get(index).copied().or(self.more)
    }
}

impl Parameter {
    /// Returns the name of the type in Go, for error messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Any => "interface {}",
            Self::Reflect => "reflect.Value",
            Self::String => "string",
            Self::Query => "template.queryResult",
            Self::Sample => "*template.sample",
            Self::Duration => "time.Duration",
            Self::Time => "time.Time",
        }
    }

    /// Returns the nil value of the type; `None` if the type has no nil.
    pub fn nil(self) -> Option<Value> {
        match self {
            Self::Any => Some(Value::Interface(None)),
            Self::Reflect => Some(Value::Invalid),
            Self::Query => Some(Value::Query(Query::nil())),
            Self::Sample => Some(Value::Sample(None)),
            Self::String | Self::Duration | Self::Time => None,
        }
    }

    /// Returns whether the value can be passed without conversion.
    pub fn takes(self, value: &Value) -> bool {
        match self {
            Self::Any | Self::Reflect => true,
            Self::String => matches!(value, Value::String(_)),
            Self::Query => matches!(value, Value::Query(_)),
            Self::Sample => matches!(value, Value::Sample(_)),
            Self::Duration => matches!(value, Value::Int(IntType::Duration, _)),
            Self::Time => matches!(value, Value::Time(_)),
        }
    }
}

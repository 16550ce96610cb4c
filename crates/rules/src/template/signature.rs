//! What functions and methods take.

use super::value::{IntType, Query, Value};

/// The type of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Parameter {
    /// `interface {}`
    Any,
    /// `reflect.Value`: anything, an interface as such.
    Reflect,
    String,
    Query,
    Sample,
    Duration,
    Time,
}

/// What a function takes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Signature {
    pub fixed: &'static [Parameter],
    /// The type of any more.
    pub more: Option<Parameter>,
}

impl Signature {
    /// These and no more.
    pub const fn fixed(fixed: &'static [Parameter]) -> Self {
        Self { fixed, more: None }
    }

    /// The type of the parameter at `index`.
    pub fn parameter(&self, index: usize) -> Option<Parameter> {
        self.fixed.get(index).copied().or(self.more)
    }
}

impl Parameter {
    /// Its name in Go.
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

    /// The nil of the type, if it has one.
    pub fn nil(self) -> Option<Value> {
        match self {
            Self::Any => Some(Value::Interface(None)),
            Self::Reflect => Some(Value::Invalid),
            Self::Query => Some(Value::Query(Query::nil())),
            Self::Sample => Some(Value::Sample(None)),
            Self::String | Self::Duration | Self::Time => None,
        }
    }

    /// Whether a value is of the type as it is.
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

//! Parameter types of functions and methods.

use super::value::{GoIntType, QuerySlice, TemplateValue};

/// Type of a parameter in Go's terms. The interpreter converts arguments to it or fails with Go's
/// message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ParameterType {
    /// Accepts any value (`interface {}`).
    Any,
    /// Accepts any value and keeps interfaces (`reflect.TemplateValue`).
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
pub(super) struct FunctionSignature {
    pub fixed: &'static [ParameterType],
    /// Type of further arguments of a variadic function.
    pub more: Option<ParameterType>,
}

impl FunctionSignature {
    /// Returns the signature of a function with exactly these parameters and no variadic ones.
    pub const fn fixed(fixed: &'static [ParameterType]) -> Self {
        Self { fixed, more: None }
    }

    /// Returns the type of the parameter at `index`; `None` if there is none.
    pub fn parameter(&self, index: usize) -> Option<ParameterType> {
        self.fixed.get(index).copied().or(self.more)
    }
}

impl ParameterType {
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
    pub fn nil(self) -> Option<TemplateValue> {
        match self {
            Self::Any => Some(TemplateValue::Interface(None)),
            Self::Reflect => Some(TemplateValue::Invalid),
            Self::Query => Some(TemplateValue::Query(QuerySlice::nil())),
            Self::Sample => Some(TemplateValue::Sample(None)),
            Self::String | Self::Duration | Self::Time => None,
        }
    }

    /// Returns whether the value can be passed without conversion.
    pub fn takes(self, value: &TemplateValue) -> bool {
        match self {
            Self::Any | Self::Reflect => true,
            Self::String => matches!(value, TemplateValue::String(_)),
            Self::Query => matches!(value, TemplateValue::Query(_)),
            Self::Sample => matches!(value, TemplateValue::Sample(_)),
            Self::Duration => matches!(value, TemplateValue::Int(GoIntType::Duration, _)),
            Self::Time => matches!(value, TemplateValue::Time(_)),
        }
    }
}

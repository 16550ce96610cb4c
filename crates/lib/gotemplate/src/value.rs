//! Values of a template, as Go's reflection would see them.
//!
//! Invariant: an interface value remains wrapped until Go would unwrap it, because errors contain
//! the type that Go sees. Strings are bytes, as in Go.

use super::input::{QueriedSample, TemplateSampleValue};
use super::time::GoTime;
use firn_model::histogram::Histogram;
use firn_model::labels::Labels;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// A Go string: immutable bytes, shared between values, which need not be valid UTF-8.
pub(super) type Bytes = Rc<[u8]>;

/// Go types that are represented by an integer. They differ in their printed form and their
/// methods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GoIntType {
    Int,
    Int32,
    Int64,
    Byte,
    Duration,
    Month,
    Weekday,
}

/// A value with its Go type. Cheap to clone: large values are shared by reference counting.
#[derive(Clone, Debug)]
pub(super) enum TemplateValue {
    /// No value: a missing field of nil, or an untyped nil.
    Invalid,
    /// `interface {}`, empty or with a value that is not an interface.
    Interface(Option<Box<TemplateValue>>),
    Bool(bool),
    Int(GoIntType, i64),
    Float(f64),
    Complex(f64, f64),
    String(Bytes),
    /// Safe HTML (`template.HTML`), the result of `safeHtml`.
    Html(Bytes),
    /// `map[string]string`
    Strings(Rc<BTreeMap<Bytes, Bytes>>),
    /// `url.Values`, the parameters of a console page.
    Params(Rc<BTreeMap<Bytes, Rc<[Bytes]>>>),
    /// `[]string`; nil if empty.
    Texts(Rc<[Bytes]>),
    /// `map[string]interface {}`, the result of `args`.
    Args(Rc<NamedArgs>),
    /// `[]float64`, the buckets of a histogram.
    Floats(Rc<[f64]>),
    Query(QuerySlice),
    /// `*template.sample`, a pointer to a sample; `None` is nil.
    Sample(Option<Rc<TemplateSample>>),
    /// The top-level structure that is passed to the template.
    Data(Rc<TemplateData>),
    Time(GoTime),
    /// A pointer to a time or a duration.
    Pointer(Box<TemplateValue>),
    /// A pointer to a histogram.
    Histogram(Rc<Histogram>),
}

/// One sample of a query result, shared by all slices of the result.
#[derive(Debug)]
pub(super) struct TemplateSample {
    pub labels: Rc<BTreeMap<Bytes, Bytes>>,
    /// A float or a histogram.
    pub value: TemplateValue,
}

/// Named arguments, the result of the function `args`. Their nesting is limited by
/// [`NamedArgs::HEIGHT_MAX`].
#[derive(Debug)]
pub(super) struct NamedArgs {
    entries: BTreeMap<Bytes, TemplateValue>,
    /// Nesting depth of such values.
    height: usize,
}

impl NamedArgs {
    /// Maximum nesting depth, because these values are traversed and dropped recursively.
    pub const HEIGHT_MAX: usize = 100;

    /// Creates a map of these entries; `None` if they are nested too deeply.
    pub fn new(entries: BTreeMap<Bytes, TemplateValue>) -> Option<Self> {
        let height = |value: &TemplateValue| match value {
            TemplateValue::Args(args) => args.height,
            TemplateValue::Interface(Some(inside)) => match &**inside {
                TemplateValue::Args(args) => args.height,
                _ => 0,
            },
            _ => 0,
        };
        let height = 1 + entries.values().map(height).max().unwrap_or(0);
        (height <= Self::HEIGHT_MAX).then_some(Self { entries, height })
    }

    /// Returns the arguments by name.
    pub fn entries(&self) -> &BTreeMap<Bytes, TemplateValue> {
        &self.entries
    }
}

/// The structure that is passed to a template as its data, with Go's type name for error messages.
#[derive(Debug)]
pub(super) struct TemplateData {
    pub type_name: &'static str,
    pub fields: Vec<(&'static str, TemplateValue)>,
}

impl TemplateData {
    /// Returns the field of that name; `None` if there is none.
    pub fn field(&self, name: &str) -> Option<TemplateValue> {
        let found = self.fields.iter().find(|(known, _)| *known == name)?;
        Some(found.1.clone())
    }
}

/// A slice of a query result. Slices share their samples, as in Go: sorting one of them changes the
/// order in all.
#[derive(Clone, Debug)]
pub(super) struct QuerySlice {
    samples: Rc<RefCell<Vec<Rc<TemplateSample>>>>,
    start: usize,
    len: usize,
    capacity: usize,
    is_nil: bool,
}

impl QuerySlice {
    /// Creates a slice of all `samples`, with its capacity equal to its length.
    pub fn new(samples: Vec<Rc<TemplateSample>>) -> Self {
        Self {
            start: 0,
            len: samples.len(),
            capacity: samples.len(),
            samples: Rc::new(RefCell::new(samples)),
            is_nil: false,
        }
    }

    /// Creates an empty slice that is nil: the value of `nil` as a query result.
    pub fn nil() -> Self {
        Self {
            is_nil: true,
            ..Self::new(Vec::new())
        }
    }

    pub fn is_nil(&self) -> bool {
        self.is_nil
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn capacity(&self) -> usize {
        self.capacity
    }

    pub fn get(&self, index: usize) -> Option<Rc<TemplateSample>> {
        let is_inside = index < self.len;
        is_inside.then(|| self.samples.borrow().get(self.start + index).cloned())?
    }

    /// Returns the slice from `start` to `end` with the given capacity. All are relative to this
    /// slice and within its capacity.
    pub fn part(&self, start: usize, end: usize, capacity: usize) -> Self {
        Self {
            samples: Rc::clone(&self.samples),
            start: self.start + start,
            len: end - start,
            capacity: capacity - start,
            is_nil: self.is_nil,
        }
    }

    /// Sorts the samples by the value of `label`. The sort is stable.
    pub fn sort_by(&self, label: &[u8]) {
        let mut samples = self.samples.borrow_mut();
        let value =
            |sample: &Rc<TemplateSample>| sample.labels.get(label).cloned().unwrap_or_default();
        if let Some(part) = samples.get_mut(self.start..self.start + self.len) {
            part.sort_by_cached_key(value);
        }
    }
}

impl TemplateSample {
    /// Converts a sample of a query result to its form in templates.
    pub fn from_queried(queried: &QueriedSample) -> Self {
        Self {
            labels: labels_to_strings(&queried.labels),
            value: TemplateValue::from_sample_value(&queried.value),
        }
    }
}

/// Converts labels to a map of strings, the form in which templates access them.
pub(super) fn labels_to_strings(labels: &Labels) -> Rc<BTreeMap<Bytes, Bytes>> {
    let pair = |(name, value): (&str, &[u8])| (name.as_bytes().into(), value.into());
    Rc::new(labels.iter().map(pair).collect())
}

/// Basic kind of a value, as Go's comparison functions distinguish it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BasicKind {
    Bool,
    Complex,
    Float,
    Int,
    String,
    Uint,
    Other,
}

impl TemplateValue {
    pub fn int(value: usize) -> Self {
        Self::Int(GoIntType::Int, value as i64)
    }

    pub fn string(bytes: impl Into<Bytes>) -> Self {
        Self::String(bytes.into())
    }

    /// Wraps `value` in an interface, unless it already is one. An invalid value becomes an empty
    /// interface.
    pub fn wrap_interface(value: TemplateValue) -> Self {
        match value {
            Self::Interface(_) => value,
            Self::Invalid => Self::Interface(None),
            _ => Self::Interface(Some(Box::new(value))),
        }
    }

    /// Unwraps an interface; returns other values unchanged. An empty interface becomes an invalid
    /// value.
    pub fn unwrap_interface(self) -> Self {
        match self {
            Self::Interface(Some(value)) => *value,
            Self::Interface(None) => Self::Invalid,
            value => value,
        }
    }

    /// Follows interfaces and pointers to their target. Returns the target, and whether it is nil.
    pub fn indirect(self) -> (Self, bool) {
        match self {
            Self::Interface(Some(value)) => value.indirect(),
            Self::Pointer(value) => (*value, false),
            Self::Interface(None) | Self::Sample(None) => (self, true),
            value => (value, false),
        }
    }

    pub fn is_valid(&self) -> bool {
        !matches!(self, Self::Invalid)
    }

    pub fn is_nil(&self) -> bool {
        match self {
            Self::Invalid | Self::Interface(None) | Self::Sample(None) => true,
            Self::Query(query) => query.is_nil(),
            Self::Texts(texts) => texts.is_empty(),
            _ => false,
        }
    }

    /// Returns whether the value is true in a condition: not the zero value of its type.
    pub fn is_true(&self) -> bool {
        match self {
            Self::Invalid | Self::Interface(None) | Self::Sample(None) => false,
            Self::Bool(value) => *value,
            Self::Int(_, value) => *value != 0,
            Self::Float(value) => *value != 0.0,
            Self::Complex(real, imaginary) => *real != 0.0 || *imaginary != 0.0,
            Self::String(text) | Self::Html(text) => !text.is_empty(),
            Self::Strings(map) => !map.is_empty(),
            Self::Params(map) => !map.is_empty(),
            Self::Texts(texts) => !texts.is_empty(),
            Self::Args(args) => !args.entries().is_empty(),
            Self::Floats(floats) => !floats.is_empty(),
            Self::Query(query) => query.len() > 0,
            _ => true,
        }
    }

    pub fn basic_kind(&self) -> BasicKind {
        match self {
            Self::Bool(_) => BasicKind::Bool,
            Self::Int(GoIntType::Byte, _) => BasicKind::Uint,
            Self::Int(..) => BasicKind::Int,
            Self::Float(_) => BasicKind::Float,
            Self::Complex(..) => BasicKind::Complex,
            Self::String(_) | Self::Html(_) => BasicKind::String,
            _ => BasicKind::Other,
        }
    }

    /// Returns the Go name of the value's type, as error messages and `%T` show it.
    pub fn type_name(&self) -> String {
        let name = match self {
            Self::Invalid => "<nil>",
            Self::Interface(_) => "interface {}",
            Self::Bool(_) => "bool",
            Self::Int(int, _) => int.name(),
            Self::Float(_) => "float64",
            Self::Complex(..) => "complex128",
            Self::String(_) => "string",
            Self::Html(_) => "template.HTML",
            Self::Strings(_) => "map[string]string",
            Self::Args(_) => "map[string]interface {}",
            Self::Floats(_) => "[]float64",
            Self::Query(_) => "template.queryResult",
            Self::Params(_) => "url.Values",
            Self::Texts(_) => "[]string",
            Self::Sample(_) => "*template.sample",
            Self::Data(data) => data.type_name,
            Self::Time(_) => "time.Time",
            Self::Pointer(value) => return format!("*{}", value.type_name()),
            Self::Histogram(_) => "*histogram.FloatHistogram",
        };
        name.to_owned()
    }

    /// Returns the entry of a map; the zero value of the element type if there is none.
    pub fn map_entry(&self, key: &[u8]) -> Self {
        match self {
            Self::Strings(map) => Self::String(map.get(key).cloned().unwrap_or_default()),
            Self::Params(map) => Self::Texts(map.get(key).cloned().unwrap_or_else(|| Rc::new([]))),
            Self::Args(args) => args
                .entries()
                .get(key)
                .map_or(Self::Interface(None), |value| {
                    Self::wrap_interface(value.clone())
                }),
            _ => Self::Invalid,
        }
    }

    fn from_sample_value(value: &TemplateSampleValue) -> Self {
        match value {
            TemplateSampleValue::Float(float) => Self::Float(*float),
            TemplateSampleValue::Histogram(histogram) => {
                Self::Histogram(Rc::new(histogram.as_ref().clone()))
            }
        }
    }
}

impl From<&TemplateSampleValue> for TemplateValue {
    fn from(value: &TemplateSampleValue) -> Self {
        Self::from_sample_value(value)
    }
}

impl GoIntType {
    pub fn name(self) -> &'static str {
        match self {
            Self::Int => "int",
            Self::Int32 => "int32",
            Self::Int64 => "int64",
            Self::Byte => "uint8",
            Self::Duration => "time.Duration",
            Self::Month => "time.Month",
            Self::Weekday => "time.Weekday",
        }
    }
}

//! Values of a template: what Go's reflection would find in them.
//!
//! Invariant: an interface keeps that it is one until Go would look inside, because errors name the
//! type that Go sees. Strings are bytes, as in Go.

use super::input::{QueriedSample, SampleValue};
use super::time::Time;
use firn_model::histogram::Histogram;
use firn_model::labels::Labels;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// A string.
pub(super) type Bytes = Rc<[u8]>;

/// Types with integers in them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IntType {
    Int,
    Int32,
    Int64,
    Byte,
    Duration,
    Month,
    Weekday,
}

/// A value.
#[derive(Clone, Debug)]
pub(super) enum Value {
    /// Nothing at all: a field of nothing, an untyped nil.
    Invalid,
    /// `interface {}`, with or without something inside, which is no interface.
    Interface(Option<Box<Value>>),
    Bool(bool),
    Int(IntType, i64),
    Float(f64),
    Complex(f64, f64),
    String(Bytes),
    /// What `safeHtml` gives.
    Html(Bytes),
    /// `map[string]string`
    Strings(Rc<BTreeMap<Bytes, Bytes>>),
    /// `url.Values`
    Params(Rc<BTreeMap<Bytes, Rc<[Bytes]>>>),
    /// `[]string`; nil if empty.
    Texts(Rc<[Bytes]>),
    /// `map[string]interface {}`
    Args(Rc<Args>),
    /// `[]float64`
    Floats(Rc<[f64]>),
    Query(Query),
    /// A pointer to a sample; nil if none.
    Sample(Option<Rc<Sample>>),
    /// What the template is given.
    Data(Rc<Data>),
    Time(Time),
    /// A pointer to a time or a duration.
    Pointer(Box<Value>),
    /// A pointer to a histogram.
    Histogram(Rc<Histogram>),
}

/// One sample of a query.
#[derive(Debug)]
pub(super) struct Sample {
    pub labels: Rc<BTreeMap<Bytes, Bytes>>,
    /// A float or a histogram.
    pub value: Value,
}

/// Values by names, as `args` makes them.
#[derive(Debug)]
pub(super) struct Args {
    entries: BTreeMap<Bytes, Value>,
    /// How deep such values are within such values.
    height: usize,
}

impl Args {
    /// The most values within values: they are walked, and dropped, by recursion.
    pub const HEIGHT_MAX: usize = 100;

    /// These entries, if they are not too deep.
    pub fn new(entries: BTreeMap<Bytes, Value>) -> Option<Self> {
        let height = |value: &Value| match value {
            Value::Args(args) => args.height,
            Value::Interface(Some(inside)) => match &**inside {
                Value::Args(args) => args.height,
                _ => 0,
            },
            _ => 0,
        };
        let height = 1 + entries.values().map(height).max().unwrap_or(0);
        (height <= Self::HEIGHT_MAX).then_some(Self { entries, height })
    }
}

impl std::ops::Deref for Args {
    type Target = BTreeMap<Bytes, Value>;

    fn deref(&self) -> &Self::Target {
        &self.entries
    }
}

/// The structure that a template is given.
#[derive(Debug)]
pub(super) struct Data {
    pub type_name: &'static str,
    pub fields: Vec<(&'static str, Value)>,
}

impl Data {
    /// The field of that name.
    pub fn field(&self, name: &str) -> Option<Value> {
        let found = self.fields.iter().find(|(known, _)| *known == name)?;
        Some(found.1.clone())
    }
}

/// A part of a query's samples. Parts share them: sorting one is seen in all.
#[derive(Clone, Debug)]
pub(super) struct Query {
    samples: Rc<RefCell<Vec<Rc<Sample>>>>,
    start: usize,
    len: usize,
    capacity: usize,
    is_nil: bool,
}

impl Query {
    /// All of `samples`.
    pub fn new(samples: Vec<Rc<Sample>>) -> Self {
        Self {
            start: 0,
            len: samples.len(),
            capacity: samples.len(),
            samples: Rc::new(RefCell::new(samples)),
            is_nil: false,
        }
    }

    /// No samples, where nil was given.
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

    pub fn get(&self, index: usize) -> Option<Rc<Sample>> {
        let is_inside = index < self.len;
        is_inside.then(|| self.samples.borrow().get(self.start + index).cloned())?
    }

    /// From `start` to `end`, with room up to `capacity`; all within this one's capacity.
    pub fn part(&self, start: usize, end: usize, capacity: usize) -> Self {
        Self {
            samples: Rc::clone(&self.samples),
            start: self.start + start,
            len: end - start,
            capacity: capacity - start,
            is_nil: self.is_nil,
        }
    }

    /// Sorts the samples by the value of `label`; equal ones stay as they are.
    pub fn sort_by(&self, label: &[u8]) {
        let mut samples = self.samples.borrow_mut();
        let value = |sample: &Rc<Sample>| sample.labels.get(label).cloned().unwrap_or_default();
        if let Some(part) = samples.get_mut(self.start..self.start + self.len) {
            part.sort_by_cached_key(value);
        }
    }
}

impl Sample {
    /// The form in which templates see what a query gave.
    pub fn of(queried: &QueriedSample) -> Self {
        Self {
            labels: strings(&queried.labels),
            value: Value::of_sample(&queried.value),
        }
    }
}

/// Labels as a map of strings.
pub(super) fn strings(labels: &Labels) -> Rc<BTreeMap<Bytes, Bytes>> {
    let pair = |(name, value): (&str, &[u8])| (name.as_bytes().into(), value.into());
    Rc::new(labels.iter().map(pair).collect())
}

/// What comparisons know of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Basic {
    Bool,
    Complex,
    Float,
    Int,
    String,
    Uint,
    Other,
}

impl Value {
    pub fn int(value: usize) -> Self {
        Self::Int(IntType::Int, value as i64)
    }

    pub fn string(bytes: impl Into<Bytes>) -> Self {
        Self::String(bytes.into())
    }

    /// `value` as an interface holds it.
    pub fn boxed(value: Value) -> Self {
        match value {
            Self::Interface(_) => value,
            Self::Invalid => Self::Interface(None),
            _ => Self::Interface(Some(Box::new(value))),
        }
    }

    /// What an interface holds; anything else as it is.
    pub fn inside(self) -> Self {
        match self {
            Self::Interface(Some(value)) => *value,
            Self::Interface(None) => Self::Invalid,
            value => value,
        }
    }

    /// What interfaces and pointers lead to, and whether they end in nil.
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

    /// Whether it is not the zero of its type.
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
            Self::Args(map) => !map.is_empty(),
            Self::Floats(floats) => !floats.is_empty(),
            Self::Query(query) => query.len() > 0,
            _ => true,
        }
    }

    pub fn basic(&self) -> Basic {
        match self {
            Self::Bool(_) => Basic::Bool,
            Self::Int(IntType::Byte, _) => Basic::Uint,
            Self::Int(..) => Basic::Int,
            Self::Float(_) => Basic::Float,
            Self::Complex(..) => Basic::Complex,
            Self::String(_) | Self::Html(_) => Basic::String,
            _ => Basic::Other,
        }
    }

    /// The name of its type.
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

    /// The entry of a map; the zero of its type if there is none.
    pub fn entry(&self, key: &[u8]) -> Self {
        match self {
            Self::Strings(map) => Self::String(map.get(key).cloned().unwrap_or_default()),
            Self::Params(map) => Self::Texts(map.get(key).cloned().unwrap_or_else(|| Rc::new([]))),
            Self::Args(map) => map
                .get(key)
                .map_or(Self::Interface(None), |value| Self::boxed(value.clone())),
            _ => Self::Invalid,
        }
    }

    fn of_sample(value: &SampleValue) -> Self {
        match value {
            SampleValue::Float(float) => Self::Float(*float),
            SampleValue::Histogram(histogram) => {
                Self::Histogram(Rc::new(histogram.as_ref().clone()))
            }
        }
    }
}

impl From<&SampleValue> for Value {
    fn from(value: &SampleValue) -> Self {
        Self::of_sample(value)
    }
}

impl IntType {
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

//! Evaluates fields of structures, keys of maps, methods, and chains of them.

use super::method::Method;
use super::{Run, Walked};
use crate::template::tree::{Operand, Place, Term};
use crate::template::value::{IntType, Value};
use std::rc::Rc;

impl<'t> Run<'t, '_> {
    /// Evaluates a command of the form `.A.B arguments`, starting from the value of the dot.
    pub(super) fn field_word(
        &mut self,
        dot: &Value,
        word: &'t Operand,
        fields: &'t [String],
        words: &'t [Operand],
        last: Option<Value>,
    ) -> Walked<Value> {
        self.at(Place::Operand(word));
        self.fields(dot, dot.clone(), fields, words, last)
    }

    /// Evaluates a command of the form `(pipeline).A.B arguments`, starting from the result of the
    /// pipeline.
    pub(super) fn chain(
        &mut self,
        dot: &Value,
        word: &'t Operand,
        of: &'t Operand,
        fields: &'t [String],
        words: &'t [Operand],
        last: Option<Value>,
    ) -> Walked<Value> {
        self.at(Place::Operand(of));
        let receiver = match &of.term {
            Term::Pipe(pipe) => self.deeper_pipe(dot, pipe)?,
            Term::Identifier(name) => {
                self.function(dot, of, name, Place::Operand(of), &[], None)?
            }
            _ => return self.fail(format!("indirection through explicit nil in {word}")),
        };
        self.fields(dot, receiver, fields, words, last)
    }

    /// Evaluates a command of the form `$x.A.B arguments`, starting from the value of the variable.
    pub(super) fn variable_word(
        &mut self,
        dot: &Value,
        word: &'t Operand,
        name: &str,
        fields: &'t [String],
        words: &'t [Operand],
        last: Option<Value>,
    ) -> Walked<Value> {
        self.at(Place::Operand(word));
        let value = self.variable(name)?;
        if fields.is_empty() {
            self.no_function(words, last.as_ref())?;
            return Ok(value);
        }
        self.fields(dot, value, fields, words, last)
    }

    fn fields(
        &mut self,
        dot: &Value,
        mut receiver: Value,
        fields: &'t [String],
        words: &'t [Operand],
        last: Option<Value>,
    ) -> Walked<Value> {
        let Some((name, before)) = fields.split_last() else {
            return Ok(receiver);
        };
        for field in before {
            receiver = self.field(dot, receiver, field, &[], None)?;
        }
        self.field(dot, receiver, name, words, last)
    }

    fn field(
        &mut self,
        dot: &Value,
        receiver: Value,
        name: &str,
        words: &'t [Operand],
        last: Option<Value>,
    ) -> Walked<Value> {
        if !receiver.is_valid() {
            return Ok(Value::Invalid);
        }
        let type_name = receiver.type_name();
        let (receiver, is_nil) = receiver.indirect();
        if is_nil && matches!(receiver, Value::Interface(_)) {
            return self.fail(format!("nil pointer evaluating {type_name}.{name}"));
        }
        if let Some(method) = Method::of(&receiver, name) {
            return self.method(dot, &receiver, (method, name), words, last);
        }
        let has_arguments = words.len() > 1 || last.is_some();
        if let Value::Strings(_) | Value::Params(_) | Value::Args(_) = receiver {
            if has_arguments {
                return self.fail(format!("{name} is not a method but has arguments"));
            }
            return Ok(receiver.entry(name.as_bytes()));
        }
        if is_nil && matches!(name, "Labels" | "Value") {
            return self.fail(format!("nil pointer evaluating {type_name}.{name}"));
        }
        match member(&receiver, name) {
            Some(_) if has_arguments => self.fail(format!(
                "{name} has arguments but cannot be invoked as function"
            )),
            Some(value) => Ok(value),
            None => self.fail(format!("can't evaluate field {name} in type {type_name}")),
        }
    }
}

/// Returns the field of a structure; `None` if the type has no such field.
fn member(receiver: &Value, name: &str) -> Option<Value> {
    Some(match (receiver, name) {
        (Value::Sample(Some(sample)), "Labels") => Value::Strings(Rc::clone(&sample.labels)),
        (Value::Sample(Some(sample)), "Value") => Value::boxed(sample.value.clone()),
        (Value::Data(data), name) => return data.field(name),
        (Value::Histogram(histogram), name) => {
            let counts = histogram.counts.to_floats();
            match name {
                "Count" => Value::Float(counts.count),
                "Sum" => Value::Float(histogram.sum),
                "ZeroCount" => Value::Float(counts.zero_count),
                "ZeroThreshold" => Value::Float(histogram.zero_threshold),
                "Schema" => Value::Int(IntType::Int32, i64::from(histogram.schema)),
                "PositiveBuckets" => Value::Floats(counts.positive.into()),
                "NegativeBuckets" => Value::Floats(counts.negative.into()),
                "CustomValues" => Value::Floats(histogram.custom_values.clone().into()),
                _ => return None,
            }
        }
        _ => return None,
    })
}

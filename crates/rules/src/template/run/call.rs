//! Calls functions and methods, and converts arguments to the types of their parameters.

use super::method::Method;
use super::{Run, Walked};
use crate::template::functions::{Call, Function};
use crate::template::signature::{Parameter, Signature};
use crate::template::tree::{Operand, Place, Term};
use crate::template::value::{IntType, Sample, Value};
use firn_model::quote::quote;
use std::rc::Rc;

impl<'t> Run<'t, '_> {
    /// Calls a function after converting its arguments. Errors of the function itself refer to
    /// `place`.
    pub(super) fn function(
        &mut self,
        dot: &Value,
        word: &'t Operand,
        name: &str,
        place: Place<'t>,
        words: &'t [Operand],
        last: Option<Value>,
    ) -> Walked<Value> {
        self.at(Place::Operand(word));
        self.step()?;
        let Some(function) = Function::of(name) else {
            return self.fail(format!(
                "{} is not a defined function",
                quote(name.as_bytes())
            ));
        };
        let words = words.get(1..).unwrap_or_default();
        let signature = function.signature();
        self.check_count(name, &signature, words.len(), last.is_some())?;
        if matches!(function, Function::And | Function::Or) {
            return self.and_or(dot, function == Function::Or, words, last);
        }
        let callee = match (words.first(), &last) {
            (Some(word), _) => word.to_string(),
            (None, Some(Value::String(text))) => String::from_utf8_lossy(text).into_owned(),
            (None, Some(value)) => format!("<{} Value>", value.type_name()),
            (None, None) => String::new(),
        };
        let arguments = self.arguments(dot, &signature, words, last)?;
        if function == Function::Query {
            self.queries += 1;
            if self.queries > self.limits.queries_max {
                self.at(place);
                let most = self.limits.queries_max;
                return self.fail(format!("more than {most} queries"));
            }
        }
        let result = match function {
            Function::Tmpl => self.page_part(&arguments)?,
            _ => function.call(Call {
                arguments: &arguments,
                callee: &callee,
                around: self.around,
                query: self.query,
                bytes_max: self.limits.output_bytes_max,
            }),
        };
        match result {
            Ok(value) => {
                self.made(made_bytes(&value))?;
                Ok(value)
            }
            Err(message) => {
                self.at(place);
                self.fail(format!("error calling {name}: {message}"))
            }
        }
    }

    /// Calls a method of `receiver` with the arguments of the command.
    pub(super) fn method(
        &mut self,
        dot: &Value,
        receiver: &Value,
        (method, name): (Method, &str),
        words: &'t [Operand],
        last: Option<Value>,
    ) -> Walked<Value> {
        let words = words.get(1..).unwrap_or_default();
        let signature = method.signature();
        self.check_count(name, &signature, words.len(), last.is_some())?;
        let arguments = self.arguments(dot, &signature, words, last)?;
        let value = method.call(receiver, &arguments);
        self.made(made_bytes(&value))?;
        Ok(value)
    }

    fn check_count(
        &self,
        name: &str,
        signature: &Signature,
        words: usize,
        has_last: bool,
    ) -> Walked<()> {
        let (want, got) = (signature.fixed.len(), words + usize::from(has_last));
        match signature.more {
            Some(_) if got < want => self.fail(format!(
                "wrong number of args for {name}: want at least {want} got {words}"
            )),
            None if got != want => self.fail(format!(
                "wrong number of args for {name}: want {want} got {got}"
            )),
            _ => Ok(()),
        }
    }

    /// Evaluates `and` or `or`, which stop at the first argument that decides the result.
    fn and_or(
        &mut self,
        dot: &Value,
        is_or: bool,
        words: &'t [Operand],
        last: Option<Value>,
    ) -> Walked<Value> {
        let mut value = Value::Invalid;
        for word in words {
            value = self.argument(dot, Parameter::Reflect, word)?;
            if value.clone().inside().is_true() == is_or {
                return Ok(value);
            }
        }
        Ok(last.unwrap_or(value))
    }

    fn arguments(
        &mut self,
        dot: &Value,
        signature: &Signature,
        words: &'t [Operand],
        last: Option<Value>,
    ) -> Walked<Vec<Value>> {
        let mut arguments = Vec::with_capacity(words.len() + 1);
        for word in words {
            if let Some(parameter) = signature.parameter(arguments.len()) {
                arguments.push(self.argument(dot, parameter, word)?);
            }
        }
        if let Some(value) = last
            && let Some(parameter) = signature.parameter(arguments.len())
        {
            arguments.push(self.validated(value, parameter)?);
        }
        Ok(arguments)
    }

    fn argument(&mut self, dot: &Value, parameter: Parameter, word: &'t Operand) -> Walked<Value> {
        self.at(Place::Operand(word));
        let value = match &word.term {
            Term::Dot => dot.clone(),
            Term::Nil => {
                return match parameter.nil() {
                    Some(nil) => Ok(nil),
                    None => self.fail(format!("cannot assign nil to {}", parameter.name())),
                };
            }
            Term::Field(fields) => self.field_word(dot, word, fields, &[], None)?,
            Term::Variable { name, fields } => {
                self.variable_word(dot, word, name, fields, &[], None)?
            }
            Term::Pipe(pipe) => self.deeper_pipe(dot, pipe)?,
            Term::Identifier(name) => {
                self.function(dot, word, name, Place::Operand(word), &[], None)?
            }
            Term::Chain { of, fields } => self.chain(dot, word, of, fields, &[], None)?,
            Term::Bool(_) | Term::Number(_) | Term::String { .. } => {
                return self.literal_argument(parameter, word);
            }
        };
        self.validated(value, parameter)
    }

    fn literal_argument(&mut self, parameter: Parameter, word: &'t Operand) -> Walked<Value> {
        match (parameter, &word.term) {
            (Parameter::Any | Parameter::Reflect, _) => self.literal(word),
            (Parameter::String, Term::String { text, .. }) => Ok(Value::String(Rc::clone(text))),
            (Parameter::String, _) => self.fail(format!("expected string; found {word}")),
            (Parameter::Duration, Term::Number(number)) if number.int.is_some() => Ok(Value::Int(
                IntType::Duration,
                number.int.unwrap_or_default(),
            )),
            (Parameter::Duration, _) => self.fail(format!("expected integer; found {word}")),
            (Parameter::Query | Parameter::Sample | Parameter::Time, _) => self.fail(format!(
                "can't handle {word} for arg of type {}",
                parameter.name()
            )),
        }
    }

    /// Converts `value` to the type of the parameter, or fails with Go's message.
    fn validated(&self, value: Value, parameter: Parameter) -> Walked<Value> {
        if !value.is_valid() {
            return match parameter.nil() {
                Some(nil) => Ok(nil),
                None => self.fail(format!("invalid value; expected {}", parameter.name())),
            };
        }
        if parameter.takes(&value) {
            return Ok(value);
        }
        let value = match value {
            Value::Interface(Some(inside)) => *inside,
            value => value,
        };
        match value {
            value if parameter.takes(&value) => Ok(value),
            Value::Pointer(inside) if parameter.takes(&inside) => Ok(*inside),
            value => self.fail(format!(
                "wrong type for value; expected {}; got {}",
                parameter.name(),
                value.type_name()
            )),
        }
    }
}

/// Returns the memory that a result occupies, in bytes. Samples of a query do not share their
/// labels.
fn made_bytes(value: &Value) -> usize {
    let sample = |sample: &Sample| {
        let label = |(name, value): (&Rc<[u8]>, &Rc<[u8]>)| name.len() + value.len();
        size_of::<Sample>() + sample.labels.iter().map(label).sum::<usize>()
    };
    match value {
        Value::String(text) | Value::Html(text) => text.len(),
        Value::Query(query) => {
            let samples = (0..query.len()).filter_map(|index| query.get(index));
            samples.map(|each| sample(&each)).sum()
        }
        Value::Args(map) => map.len() * size_of::<Value>(),
        _ => 0,
    }
}

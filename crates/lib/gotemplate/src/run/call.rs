//! Calls functions and methods, and converts arguments to the types of their parameters.

use super::method::TemplateMethod;
use super::{TemplateRun, Walked};
use crate::functions::{TemplateCall, TemplateFunction};
use crate::signature::{FunctionSignature, ParameterType};
use crate::tree::{TemplateErrorNode, TemplateOperand, TemplateTerm};
use crate::value::{GoIntType, TemplateSample, TemplateValue};
use firn_model::quote::quote;
use std::rc::Rc;

impl<'t> TemplateRun<'t, '_> {
    /// Calls a function after converting its arguments. Errors of the function itself refer to
    /// `place`.
    pub(super) fn call_function(
        &mut self,
        dot: &TemplateValue,
        word: &'t TemplateOperand,
        name: &str,
        place: TemplateErrorNode<'t>,
        words: &'t [TemplateOperand],
        last: Option<TemplateValue>,
    ) -> Walked<TemplateValue> {
        self.set_place(TemplateErrorNode::Operand(word));
        self.count_step()?;
        let Some(function) = TemplateFunction::from_name(name) else {
            return self.fail(format!(
                "{} is not a defined function",
                quote(name.as_bytes())
            ));
        };
        let words = words.get(1..).unwrap_or_default();
        let signature = function.signature();
        self.check_count(name, &signature, words.len(), last.is_some())?;
        if matches!(function, TemplateFunction::And | TemplateFunction::Or) {
            return self.evaluate_and_or(dot, function == TemplateFunction::Or, words, last);
        }
        let callee = match (words.first(), &last) {
            (Some(word), _) => word.to_string(),
            (None, Some(TemplateValue::String(text))) => String::from_utf8_lossy(text).into_owned(),
            (None, Some(value)) => format!("<{} Value>", value.type_name()),
            (None, None) => String::new(),
        };
        let arguments = self.evaluate_arguments(dot, &signature, words, last)?;
        if function == TemplateFunction::Query {
            self.queries += 1;
            if self.queries > self.limits.queries_max {
                self.set_place(place);
                let most = self.limits.queries_max;
                return self.fail(format!("more than {most} queries"));
            }
        }
        let result = match function {
            TemplateFunction::Tmpl => self.execute_tmpl(&arguments)?,
            _ => function.call(TemplateCall {
                arguments: &arguments,
                callee: &callee,
                around: self.around,
                query: self.query,
                bytes_max: self.limits.output_bytes_max,
            }),
        };
        match result {
            Ok(value) => {
                self.count_bytes(result_bytes(&value))?;
                Ok(value)
            }
            Err(message) => {
                self.set_place(place);
                self.fail(format!("error calling {name}: {message}"))
            }
        }
    }

    /// Calls a method of `receiver` with the arguments of the command.
    pub(super) fn call_method(
        &mut self,
        dot: &TemplateValue,
        receiver: &TemplateValue,
        method: TemplateMethod,
        name: &str,
        words: &'t [TemplateOperand],
        last: Option<TemplateValue>,
    ) -> Walked<TemplateValue> {
        let words = words.get(1..).unwrap_or_default();
        let signature = method.signature();
        self.check_count(name, &signature, words.len(), last.is_some())?;
        let arguments = self.evaluate_arguments(dot, &signature, words, last)?;
        let value = method.call(receiver, &arguments);
        self.count_bytes(result_bytes(&value))?;
        Ok(value)
    }

    fn check_count(
        &self,
        name: &str,
        signature: &FunctionSignature,
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
    fn evaluate_and_or(
        &mut self,
        dot: &TemplateValue,
        is_or: bool,
        words: &'t [TemplateOperand],
        last: Option<TemplateValue>,
    ) -> Walked<TemplateValue> {
        let mut value = TemplateValue::Invalid;
        for word in words {
            value = self.evaluate_argument(dot, ParameterType::Reflect, word)?;
            if value.clone().unwrap_interface().is_true() == is_or {
                return Ok(value);
            }
        }
        Ok(last.unwrap_or(value))
    }

    fn evaluate_arguments(
        &mut self,
        dot: &TemplateValue,
        signature: &FunctionSignature,
        words: &'t [TemplateOperand],
        last: Option<TemplateValue>,
    ) -> Walked<Vec<TemplateValue>> {
        let mut arguments = Vec::with_capacity(words.len() + 1);
        for word in words {
            if let Some(parameter) = signature.parameter(arguments.len()) {
                arguments.push(self.evaluate_argument(dot, parameter, word)?);
            }
        }
        if let Some(value) = last
            && let Some(parameter) = signature.parameter(arguments.len())
        {
            arguments.push(self.convert_argument(value, parameter)?);
        }
        Ok(arguments)
    }

    fn evaluate_argument(
        &mut self,
        dot: &TemplateValue,
        parameter: ParameterType,
        word: &'t TemplateOperand,
    ) -> Walked<TemplateValue> {
        self.set_place(TemplateErrorNode::Operand(word));
        let value = match &word.term {
            TemplateTerm::Dot => dot.clone(),
            TemplateTerm::Nil => {
                return match parameter.nil() {
                    Some(nil) => Ok(nil),
                    None => self.fail(format!("cannot assign nil to {}", parameter.name())),
                };
            }
            TemplateTerm::Field(fields) => {
                self.evaluate_field_command(dot, word, fields, &[], None)?
            }
            TemplateTerm::Variable { name, fields } => {
                self.evaluate_variable_command(dot, word, name, fields, &[], None)?
            }
            TemplateTerm::Pipe(pipe) => self.evaluate_nested_pipe(dot, pipe)?,
            TemplateTerm::Identifier(name) => {
                self.call_function(dot, word, name, TemplateErrorNode::Operand(word), &[], None)?
            }
            TemplateTerm::Chain { of, fields } => {
                self.evaluate_chain(dot, word, of, fields, &[], None)?
            }
            TemplateTerm::Bool(_) | TemplateTerm::Number(_) | TemplateTerm::String { .. } => {
                return self.evaluate_literal_argument(parameter, word);
            }
        };
        self.convert_argument(value, parameter)
    }

    fn evaluate_literal_argument(
        &mut self,
        parameter: ParameterType,
        word: &'t TemplateOperand,
    ) -> Walked<TemplateValue> {
        match (parameter, &word.term) {
            (ParameterType::Any | ParameterType::Reflect, _) => self.evaluate_literal(word),
            (ParameterType::String, TemplateTerm::String { text, .. }) => {
                Ok(TemplateValue::String(Rc::clone(text)))
            }
            (ParameterType::String, _) => self.fail(format!("expected string; found {word}")),
            (ParameterType::Duration, TemplateTerm::Number(number)) if number.int.is_some() => Ok(
                TemplateValue::Int(GoIntType::Duration, number.int.unwrap_or_default()),
            ),
            (ParameterType::Duration, _) => self.fail(format!("expected integer; found {word}")),
            (ParameterType::Query | ParameterType::Sample | ParameterType::Time, _) => self.fail(
                format!("can't handle {word} for arg of type {}", parameter.name()),
            ),
        }
    }

    /// Converts `value` to the type of the parameter, or fails with Go's message.
    fn convert_argument(
        &self,
        value: TemplateValue,
        parameter: ParameterType,
    ) -> Walked<TemplateValue> {
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
            TemplateValue::Interface(Some(inside)) => *inside,
            value => value,
        };
        match value {
            value if parameter.takes(&value) => Ok(value),
            TemplateValue::Pointer(inside) if parameter.takes(&inside) => Ok(*inside),
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
fn result_bytes(value: &TemplateValue) -> usize {
    let sample = |sample: &TemplateSample| {
        let label = |(name, value): (&Rc<[u8]>, &Rc<[u8]>)| name.len() + value.len();
        size_of::<TemplateSample>() + sample.labels.iter().map(label).sum::<usize>()
    };
    match value {
        TemplateValue::String(text) | TemplateValue::Html(text) => text.len(),
        TemplateValue::Query(query) => {
            let samples = (0..query.len()).filter_map(|index| query.get(index));
            samples.map(|each| sample(&each)).sum()
        }
        TemplateValue::Args(args) => args.entries().len() * size_of::<TemplateValue>(),
        _ => 0,
    }
}

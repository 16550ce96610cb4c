//! Evaluates fields of structures, keys of maps, methods, and chains of them.

use super::method::TemplateMethod;
use super::{TemplateRun, Walked};
use crate::tree::{TemplateErrorNode, TemplateOperand, TemplateTerm};
use crate::value::{GoIntType, TemplateValue};
use std::rc::Rc;

impl<'t> TemplateRun<'t, '_> {
    /// Evaluates a command of the form `.A.B arguments`, starting from the value of the dot.
    pub(super) fn evaluate_field_command(
        &mut self,
        dot: &TemplateValue,
        word: &'t TemplateOperand,
        fields: &'t [String],
        words: &'t [TemplateOperand],
        last: Option<TemplateValue>,
    ) -> Walked<TemplateValue> {
        self.set_place(TemplateErrorNode::Operand(word));
        self.evaluate_fields(dot, dot.clone(), fields, words, last)
    }

    /// Evaluates a command of the form `(pipeline).A.B arguments`, starting from the result of the
    /// pipeline.
    pub(super) fn evaluate_chain(
        &mut self,
        dot: &TemplateValue,
        word: &'t TemplateOperand,
        of: &'t TemplateOperand,
        fields: &'t [String],
        words: &'t [TemplateOperand],
        last: Option<TemplateValue>,
    ) -> Walked<TemplateValue> {
        self.set_place(TemplateErrorNode::Operand(of));
        let receiver = match &of.term {
            TemplateTerm::Pipe(pipe) => self.evaluate_nested_pipe(dot, pipe)?,
            TemplateTerm::Identifier(name) => {
                self.call_function(dot, of, name, TemplateErrorNode::Operand(of), &[], None)?
            }
            _ => return self.fail(format!("indirection through explicit nil in {word}")),
        };
        self.evaluate_fields(dot, receiver, fields, words, last)
    }

    /// Evaluates a command of the form `$x.A.B arguments`, starting from the value of the variable.
    pub(super) fn evaluate_variable_command(
        &mut self,
        dot: &TemplateValue,
        word: &'t TemplateOperand,
        name: &str,
        fields: &'t [String],
        words: &'t [TemplateOperand],
        last: Option<TemplateValue>,
    ) -> Walked<TemplateValue> {
        self.set_place(TemplateErrorNode::Operand(word));
        let value = self.variable(name)?;
        if fields.is_empty() {
            self.no_function(words, last.as_ref())?;
            return Ok(value);
        }
        self.evaluate_fields(dot, value, fields, words, last)
    }

    fn evaluate_fields(
        &mut self,
        dot: &TemplateValue,
        mut receiver: TemplateValue,
        fields: &'t [String],
        words: &'t [TemplateOperand],
        last: Option<TemplateValue>,
    ) -> Walked<TemplateValue> {
        let Some((name, before)) = fields.split_last() else {
            return Ok(receiver);
        };
        for field in before {
            receiver = self.evaluate_field(dot, receiver, field, &[], None)?;
        }
        self.evaluate_field(dot, receiver, name, words, last)
    }

    fn evaluate_field(
        &mut self,
        dot: &TemplateValue,
        receiver: TemplateValue,
        name: &str,
        words: &'t [TemplateOperand],
        last: Option<TemplateValue>,
    ) -> Walked<TemplateValue> {
        if !receiver.is_valid() {
            return Ok(TemplateValue::Invalid);
        }
        let type_name = receiver.type_name();
        let (receiver, is_nil) = receiver.indirect();
        if is_nil && matches!(receiver, TemplateValue::Interface(_)) {
            return self.fail(format!("nil pointer evaluating {type_name}.{name}"));
        }
        if let Some(method) = TemplateMethod::from_name(&receiver, name) {
            return self.call_method(dot, &receiver, method, name, words, last);
        }
        let has_arguments = words.len() > 1 || last.is_some();
        if let TemplateValue::Strings(_) | TemplateValue::Params(_) | TemplateValue::Args(_) =
            receiver
        {
            if has_arguments {
                return self.fail(format!("{name} is not a method but has arguments"));
            }
            return Ok(receiver.map_entry(name.as_bytes()));
        }
        if is_nil && matches!(name, "Labels" | "Value") {
            return self.fail(format!("nil pointer evaluating {type_name}.{name}"));
        }
        match struct_field(&receiver, name) {
            Some(_) if has_arguments => self.fail(format!(
                "{name} has arguments but cannot be invoked as function"
            )),
            Some(value) => Ok(value),
            None => self.fail(format!("can't evaluate field {name} in type {type_name}")),
        }
    }
}

/// Returns the field of a structure; `None` if the type has no such field.
fn struct_field(receiver: &TemplateValue, name: &str) -> Option<TemplateValue> {
    Some(match (receiver, name) {
        (TemplateValue::Sample(Some(sample)), "Labels") => {
            TemplateValue::Strings(Rc::clone(&sample.labels))
        }
        (TemplateValue::Sample(Some(sample)), "Value") => {
            TemplateValue::wrap_interface(sample.value.clone())
        }
        (TemplateValue::Data(data), name) => return data.field(name),
        (TemplateValue::Histogram(histogram), name) => {
            let counts = histogram.counts.to_floats();
            match name {
                "Count" => TemplateValue::Float(counts.count),
                "Sum" => TemplateValue::Float(histogram.sum),
                "ZeroCount" => TemplateValue::Float(counts.zero_count),
                "ZeroThreshold" => TemplateValue::Float(histogram.zero_threshold),
                "Schema" => TemplateValue::Int(GoIntType::Int32, i64::from(histogram.schema)),
                "PositiveBuckets" => TemplateValue::Floats(counts.positive.into()),
                "NegativeBuckets" => TemplateValue::Floats(counts.negative.into()),
                "CustomValues" => TemplateValue::Floats(histogram.custom_values.clone().into()),
                _ => return None,
            }
        }
        _ => return None,
    })
}

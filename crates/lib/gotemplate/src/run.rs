//! Executes the trees of a template and writes the output.
//!
//! Invariant: an error names the node that was visited last, in Go's order. Every step and every
//! byte of a function result counts towards the limits. Follows Go's `text/template/exec.go`.

mod call;
mod elements;
mod field;
mod method;

use super::format;
use super::input::{QueryFn, TemplateEnvironment, TemplateLimits};
use super::tree::{
    BranchKind, List, ParsedTemplate, STACK_ADDED_BYTES, STACK_LEFT_BYTES, TemplateBranch,
    TemplateCommand, TemplateDefinition, TemplateErrorNode, TemplateFile, TemplateNode,
    TemplateOperand, TemplatePipeline, TemplateTerm,
};
use super::value::TemplateValue;
use elements::elements;
use firn_model::quote::quote;
use std::rc::Rc;

/// Reason for leaving the current body early: an error, or a statement that leaves the iteration of
/// a loop.
#[derive(Debug)]
pub(super) enum BodyExit {
    Error(String),
    Break,
    Continue,
}

pub(super) type Walked<T> = Result<T, BodyExit>;

/// State of one execution: variables, output, position and the amounts that count towards the
/// limits. It exists for one call of [`run`].
pub(super) struct TemplateRun<'t, 'q> {
    source: ParsedTemplate<'t>,
    /// Name of the definition that is executed, for error messages.
    definition: &'t str,
    file: Option<&'t TemplateFile>,
    place: Option<TemplateErrorNode<'t>>,
    variables: Vec<(&'t str, TemplateValue)>,
    depth: usize,
    out: Vec<u8>,
    steps: usize,
    made_bytes: usize,
    queries: usize,
    around: &'q TemplateEnvironment<'q>,
    query: &'q mut QueryFn<'q>,
    limits: &'q TemplateLimits,
}

/// Executes the template with `dot` as its data. Returns the output or Go's error message.
pub(super) fn run(
    source: ParsedTemplate<'_>,
    dot: TemplateValue,
    around: &TemplateEnvironment<'_>,
    query: &mut QueryFn<'_>,
    limits: &TemplateLimits,
) -> Result<Vec<u8>, String> {
    let Some(root) = source.definitions.get(source.name) else {
        return Err(format!(
            "template: no template {}",
            quote(source.name.as_bytes())
        ));
    };
    let mut run = TemplateRun {
        source,
        definition: source.name,
        file: Some(&root.file),
        place: None,
        variables: vec![("$", dot.clone())],
        depth: 0,
        out: Vec::new(),
        steps: 0,
        made_bytes: 0,
        queries: 0,
        around,
        query: &mut |text, time| query(text, time),
        limits,
    };
    match run.execute_list(&dot, &root.list) {
        Ok(()) => Ok(run.out),
        Err(BodyExit::Error(message)) => Err(message),
        // The parser rejects both outside of loops.
        Err(BodyExit::Break | BodyExit::Continue) => Ok(run.out),
    }
}

impl<'t> TemplateRun<'t, '_> {
    fn set_place(&mut self, place: TemplateErrorNode<'t>) {
        self.place = Some(place);
    }

    /// Returns an error with the position of the node that was visited last.
    fn fail<T>(&self, message: impl std::fmt::Display) -> Walked<T> {
        let (Some(place), Some(file)) = (&self.place, self.file) else {
            return Err(BodyExit::Error(format!(
                "template: {}: {message}",
                self.definition
            )));
        };
        Err(BodyExit::Error(format!(
            "template: {}: executing {} at <{place}>: {message}",
            file.location(place.position()),
            quote(self.definition.as_bytes()),
        )))
    }

    fn count_step(&mut self) -> Walked<()> {
        self.steps += 1;
        if let Err(e) = self.limits.cancel.check() {
            return self.fail(e.message);
        }
        if self.steps > self.limits.steps_max {
            self.fail(format!("more than {} steps", self.limits.steps_max))
        } else {
            Ok(())
        }
    }

    /// Counts bytes of a function result. Fails if the limit is exceeded.
    fn count_bytes(&mut self, bytes: usize) -> Walked<()> {
        self.made_bytes = self.made_bytes.saturating_add(bytes);
        if self.made_bytes > self.limits.made_bytes_max {
            let most = self.limits.made_bytes_max;
            self.fail(format!("more than {most} bytes made by functions"))
        } else {
            Ok(())
        }
    }

    fn write(&mut self, bytes: &[u8]) -> Walked<()> {
        if self.out.len() + bytes.len() > self.limits.output_bytes_max {
            let most = self.limits.output_bytes_max;
            return self.fail(format!("output is longer than {most} bytes"));
        }
        self.out.extend_from_slice(bytes);
        Ok(())
    }

    fn execute_list(&mut self, dot: &TemplateValue, list: &'t List) -> Walked<()> {
        list.iter()
            .try_for_each(|node| self.execute_node(dot, node))
    }

    fn execute_node(&mut self, dot: &TemplateValue, node: &'t TemplateNode) -> Walked<()> {
        self.set_place(TemplateErrorNode::Node(node));
        self.count_step()?;
        match node {
            TemplateNode::Text { text, .. } => self.write(text.as_bytes()),
            TemplateNode::Action { pipe, .. } => {
                let value = self.evaluate_pipe(dot, pipe)?;
                if pipe.variables.is_empty() {
                    self.print(node, &value)
                } else {
                    Ok(())
                }
            }
            TemplateNode::Branch(branch) => {
                let mark = self.variables.len();
                let walked = stacker::maybe_grow(STACK_LEFT_BYTES, STACK_ADDED_BYTES, || {
                    match branch.kind {
                        BranchKind::Range => self.execute_range(dot, branch),
                        BranchKind::If | BranchKind::With => self.execute_if_or_with(dot, branch),
                    }
                });
                self.variables.truncate(mark);
                walked
            }
            TemplateNode::Template { name, pipe, .. } => {
                self.execute_template(dot, name, pipe.as_ref())
            }
            TemplateNode::Break { .. } => Err(BodyExit::Break),
            TemplateNode::Continue { .. } => Err(BodyExit::Continue),
        }
    }

    fn execute_if_or_with(
        &mut self,
        dot: &TemplateValue,
        branch: &'t TemplateBranch,
    ) -> Walked<()> {
        let value = self.evaluate_pipe(dot, &branch.pipe)?;
        match (
            value.clone().unwrap_interface().is_true(),
            &branch.else_list,
        ) {
            (true, _) if branch.kind == BranchKind::With => self.execute_list(&value, &branch.list),
            (true, _) => self.execute_list(dot, &branch.list),
            (false, Some(list)) => self.execute_list(dot, list),
            (false, None) => Ok(()),
        }
    }

    fn execute_range(&mut self, dot: &TemplateValue, branch: &'t TemplateBranch) -> Walked<()> {
        let (value, _) = self.evaluate_pipe(dot, &branch.pipe)?.indirect();
        if matches!(value, TemplateValue::Int(..)) && branch.pipe.variables.len() > 1 {
            let shown = self.format_value(&value)?;
            return self.fail(format!(
                "can't use {shown} to iterate over more than one variable"
            ));
        }
        let Some(elements) = elements(&value) else {
            let shown = self.format_value(&value)?;
            return self.fail(format!("range can't iterate over {shown}"));
        };
        match (self.iterate(branch, elements)?, &branch.else_list) {
            (false, Some(list)) => self.execute_list(dot, list),
            _ => Ok(()),
        }
    }

    /// Executes the body for each element. Returns whether there was at least one; if not, the
    /// caller executes the `else` body.
    fn iterate(
        &mut self,
        branch: &'t TemplateBranch,
        elements: impl Iterator<Item = (TemplateValue, TemplateValue)>,
    ) -> Walked<bool> {
        let mark = self.variables.len();
        let mut any = false;
        for (index, element) in elements {
            any = true;
            self.count_step()?;
            self.set_range_variables(branch, index, &element)?;
            let walked = self.execute_list(&element, &branch.list);
            self.variables.truncate(mark);
            match walked {
                Ok(()) | Err(BodyExit::Continue) => {}
                Err(BodyExit::Break) => break,
                Err(stop) => return Err(stop),
            }
        }
        Ok(any)
    }

    fn set_range_variables(
        &mut self,
        branch: &'t TemplateBranch,
        index: TemplateValue,
        element: &TemplateValue,
    ) -> Walked<()> {
        let names = &branch.pipe.variables;
        if branch.pipe.is_assign {
            return match &names[..] {
                [key, value] => {
                    self.assign(key, index)?;
                    self.assign(value, element.clone())
                }
                [value] => self.assign(value, element.clone()),
                _ => Ok(()),
            };
        }
        // The variables were declared by the pipeline, with the element on top of the index.
        let top = self.variables.len();
        if !names.is_empty() {
            self.variables[top - 1].1 = element.clone();
        }
        if names.len() > 1 {
            self.variables[top - 2].1 = index;
        }
        Ok(())
    }

    fn execute_template(
        &mut self,
        dot: &TemplateValue,
        name: &'t str,
        pipe: Option<&'t TemplatePipeline>,
    ) -> Walked<()> {
        let Some(definition) = self.source.definitions.get(name) else {
            let name = quote(name.as_bytes());
            return self.fail(format!("template {name} not defined"));
        };
        self.check_depth()?;
        let dot = match pipe {
            Some(pipe) => self.evaluate_pipe(dot, pipe)?,
            None => TemplateValue::Invalid,
        };
        self.execute_definition(name, definition, dot)
    }

    fn check_depth(&self) -> Walked<()> {
        let most = self.limits.depth_max;
        if self.depth == most {
            self.fail(format!("exceeded maximum template depth ({most})"))
        } else {
            Ok(())
        }
    }

    fn execute_definition(
        &mut self,
        name: &'t str,
        of: &'t TemplateDefinition,
        dot: TemplateValue,
    ) -> Walked<()> {
        let outer = (self.definition, self.file, self.place);
        let variables = std::mem::replace(&mut self.variables, vec![("$", dot.clone())]);
        self.definition = name;
        self.file = Some(&of.file);
        self.depth += 1;
        let walked = stacker::maybe_grow(STACK_LEFT_BYTES, STACK_ADDED_BYTES, || {
            self.execute_list(&dot, &of.list)
        });
        (self.definition, self.file, self.place) = outer;
        self.depth -= 1;
        self.variables = variables;
        walked
    }

    /// Implements `tmpl`: executes a definition and returns its output as safe HTML. The inner
    /// error is a message of the function itself.
    fn execute_tmpl(
        &mut self,
        arguments: &[TemplateValue],
    ) -> Walked<Result<TemplateValue, String>> {
        let [TemplateValue::String(name), dot] = arguments else {
            return Ok(Ok(TemplateValue::Invalid));
        };
        let name = String::from_utf8_lossy(name);
        if let Some(why) = self.source.refused.get(&*name) {
            return Ok(Err(why.clone()));
        }
        let Some((name, definition)) = self.source.definitions.get_key_value(&*name) else {
            let name = quote(name.as_bytes());
            return Ok(Err(format!("html/template: {name} is undefined")));
        };
        self.check_depth()?;
        let outer = std::mem::take(&mut self.out);
        let walked = self.execute_definition(name, definition, dot.clone().unwrap_interface());
        let made = std::mem::replace(&mut self.out, outer);
        match walked {
            Err(BodyExit::Error(message)) => Ok(Err(message)),
            _ => Ok(Ok(TemplateValue::Html(made.into()))),
        }
    }

    /// Evaluates a pipeline, unwraps an interface, and sets or declares its variables.
    fn evaluate_pipe(
        &mut self,
        dot: &TemplateValue,
        pipe: &'t TemplatePipeline,
    ) -> Walked<TemplateValue> {
        self.set_place(TemplateErrorNode::Pipe(pipe));
        let mut value = None;
        for command in &pipe.commands {
            value = Some(
                self.evaluate_command(dot, command, value)?
                    .unwrap_interface(),
            );
        }
        let value = value.unwrap_or(TemplateValue::Invalid);
        for name in &pipe.variables {
            if pipe.is_assign {
                self.assign(name, value.clone())?
            } else {
                self.variables.push((name, value.clone()))
            }
        }
        Ok(value)
    }

    fn assign(&mut self, name: &str, value: TemplateValue) -> Walked<()> {
        match self.variables.iter_mut().rev().find(|(n, _)| *n == name) {
            Some(variable) => {
                variable.1 = value;
                Ok(())
            }
            None => self.fail(format!("undefined variable: {name}")),
        }
    }

    fn variable(&self, name: &str) -> Walked<TemplateValue> {
        match self.variables.iter().rev().find(|(n, _)| *n == name) {
            Some((_, value)) => Ok(value.clone()),
            None => self.fail(format!("undefined variable: {name}")),
        }
    }

    /// Evaluates a command. `last` is the result of the preceding command in the pipeline.
    fn evaluate_command(
        &mut self,
        dot: &TemplateValue,
        command: &'t TemplateCommand,
        last: Option<TemplateValue>,
    ) -> Walked<TemplateValue> {
        let first = &command.words[0];
        let words = &command.words[..];
        match &first.term {
            TemplateTerm::Field(fields) => {
                self.evaluate_field_command(dot, first, fields, words, last)
            }
            TemplateTerm::Chain { of, fields } => {
                self.evaluate_chain(dot, first, of, fields, words, last)
            }
            TemplateTerm::Identifier(name) => self.call_function(
                dot,
                first,
                name,
                TemplateErrorNode::Command(command),
                words,
                last,
            ),
            TemplateTerm::Pipe(pipe) => {
                self.no_function(words, last.as_ref())?;
                self.evaluate_nested_pipe(dot, pipe)
            }
            TemplateTerm::Variable { name, fields } => {
                self.evaluate_variable_command(dot, first, name, fields, words, last)
            }
            term => {
                self.set_place(TemplateErrorNode::Operand(first));
                self.no_function(words, last.as_ref())?;
                match term {
                    TemplateTerm::Nil => self.fail("nil is not a command"),
                    TemplateTerm::Dot => Ok(dot.clone()),
                    _ => self.evaluate_literal(first),
                }
            }
        }
    }

    fn evaluate_nested_pipe(
        &mut self,
        dot: &TemplateValue,
        pipe: &'t TemplatePipeline,
    ) -> Walked<TemplateValue> {
        stacker::maybe_grow(STACK_LEFT_BYTES, STACK_ADDED_BYTES, || {
            self.evaluate_pipe(dot, pipe)
        })
    }

    fn no_function(&self, words: &[TemplateOperand], last: Option<&TemplateValue>) -> Walked<()> {
        match (words, last) {
            ([] | [_], None) => Ok(()),
            ([first, ..], _) => self.fail(format!("can't give argument to non-function {first}")),
            ([], Some(_)) => self.fail("can't give argument to non-function"),
        }
    }

    /// Evaluates a literal where no specific type is expected. Like in Go, an integer that
    /// overflows is an error.
    fn evaluate_literal(&mut self, word: &'t TemplateOperand) -> Walked<TemplateValue> {
        self.set_place(TemplateErrorNode::Operand(word));
        match &word.term {
            TemplateTerm::Bool(value) => Ok(TemplateValue::Bool(*value)),
            TemplateTerm::String { text, .. } => Ok(TemplateValue::String(Rc::clone(text))),
            TemplateTerm::Number(number) => match (number.complex, number.float, number.int) {
                (Some((real, imaginary)), ..) => Ok(TemplateValue::Complex(real, imaginary)),
                (None, Some(float), _) if number.is_written_as_float() => {
                    Ok(TemplateValue::Float(float))
                }
                (None, _, Some(int)) => Ok(TemplateValue::Int(super::value::GoIntType::Int, int)),
                _ => self.fail(format!("{} overflows int", number.text)),
            },
            _ => self.fail(format!(
                "can't evaluate command {}",
                quote(word.to_string().as_bytes())
            )),
        }
    }

    fn print(&mut self, node: &'t TemplateNode, value: &TemplateValue) -> Walked<()> {
        self.set_place(TemplateErrorNode::Node(node));
        let text = self.format_output(std::slice::from_ref(value))?;
        self.write(&text)
    }

    /// Formats a value with `%v`, for error messages. Fails if the text exceeds the output limit.
    fn format_value(&self, value: &TemplateValue) -> Walked<String> {
        let printed = format::print(std::slice::from_ref(value), self.limits.output_bytes_max);
        match printed {
            Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
            Err(format::OutputTooLong) => self.too_long(),
        }
    }

    fn too_long<T>(&self) -> Walked<T> {
        let most = self.limits.output_bytes_max;
        self.fail(format!("text is longer than {most} bytes"))
    }

    /// Formats values like the output of an action: an invalid value as `<no value>`, and the
    /// target of a pointer instead of the pointer.
    fn format_output(&self, values: &[TemplateValue]) -> Walked<Vec<u8>> {
        match format::print_plain(values, self.limits.output_bytes_max) {
            Ok(bytes) => Ok(bytes),
            Err(format::OutputTooLong) => self.too_long(),
        }
    }
}

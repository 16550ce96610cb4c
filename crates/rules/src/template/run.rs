//! Executes the trees of a template and writes the output.
//!
//! Invariant: an error names the node that was visited last, in Go's order. Every step and every
//! byte of a function result counts towards the limits. Follows Go's `text/template/exec.go`.

mod call;
mod field;
mod method;

use super::format;
use super::input::{Around, Limits, QueryFn};
use super::tree::{
    Branch, BranchKind, Command, Definition, Definitions, File, List, Node, Operand, Pipe, Place,
    STACK_ADDED_BYTES, STACK_LEFT_BYTES, Term,
};
use super::value::Value;
use firn_model::quote::quote;
use std::collections::BTreeMap;
use std::rc::Rc;

/// A parsed template and all definitions that it may call, ready for execution.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source<'t> {
    pub name: &'t str,
    pub definitions: &'t Definitions,
    /// Definitions that cannot be included in a page, by name, with their error messages.
    pub refused: &'t BTreeMap<String, String>,
}

/// Reason for leaving the current body early: an error, or a statement that leaves the iteration of
/// a loop.
#[derive(Debug)]
pub(super) enum Stop {
    Error(String),
    Break,
    Continue,
}

pub(super) type Walked<T> = Result<T, Stop>;

/// State of one execution: variables, output, position and the amounts that count towards the
/// limits. It exists for one call of [`run`].
pub(super) struct Run<'t, 'q> {
    source: Source<'t>,
    /// Name of the definition that is executed, for error messages.
    definition: &'t str,
    file: Option<&'t File>,
    place: Option<Place<'t>>,
    variables: Vec<(&'t str, Value)>,
    depth: usize,
    out: Vec<u8>,
    steps: usize,
    made_bytes: usize,
    queries: usize,
    around: &'q Around<'q>,
    query: &'q mut QueryFn<'q>,
    limits: &'q Limits,
}

/// Executes the template with `dot` as its data. Returns the output or Go's error message.
pub(super) fn run(
    source: Source<'_>,
    dot: Value,
    around: &Around<'_>,
    query: &mut QueryFn<'_>,
    limits: &Limits,
) -> Result<Vec<u8>, String> {
    let Some(root) = source.definitions.get(source.name) else {
        return Err(format!(
            "template: no template {}",
            quote(source.name.as_bytes())
        ));
    };
    let mut run = Run {
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
    match run.list(&dot, &root.list) {
        Ok(()) => Ok(run.out),
        Err(Stop::Error(message)) => Err(message),
        // The parser rejects both outside of loops.
        Err(Stop::Break | Stop::Continue) => Ok(run.out),
    }
}

impl<'t> Run<'t, '_> {
    fn at(&mut self, place: Place<'t>) {
        self.place = Some(place);
    }

    /// Returns an error with the position of the node that was visited last.
    fn fail<T>(&self, message: impl std::fmt::Display) -> Walked<T> {
        let (Some(place), Some(file)) = (&self.place, self.file) else {
            return Err(Stop::Error(format!(
                "template: {}: {message}",
                self.definition
            )));
        };
        Err(Stop::Error(format!(
            "template: {}: executing {} at <{place}>: {message}",
            file.location(place.position()),
            quote(self.definition.as_bytes()),
        )))
    }

    fn step(&mut self) -> Walked<()> {
        self.steps += 1;
        if let Err(e) = self.limits.cancel.check() {
            return self.fail(e.message);
        }
        match self.steps > self.limits.steps_max {
            true => self.fail(format!("more than {} steps", self.limits.steps_max)),
            false => Ok(()),
        }
    }

    /// Counts bytes of a function result. Fails if the limit is exceeded.
    fn made(&mut self, bytes: usize) -> Walked<()> {
        self.made_bytes = self.made_bytes.saturating_add(bytes);
        match self.made_bytes > self.limits.made_bytes_max {
            true => {
                let most = self.limits.made_bytes_max;
                self.fail(format!("more than {most} bytes made by functions"))
            }
            false => Ok(()),
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

    fn list(&mut self, dot: &Value, list: &'t List) -> Walked<()> {
        list.iter().try_for_each(|node| self.node(dot, node))
    }

    fn node(&mut self, dot: &Value, node: &'t Node) -> Walked<()> {
        self.at(Place::Node(node));
        self.step()?;
        match node {
            Node::Text { text, .. } => self.write(text.as_bytes()),
            Node::Action { pipe, .. } => {
                let value = self.pipe(dot, pipe)?;
                match pipe.variables.is_empty() {
                    true => self.print(node, &value),
                    false => Ok(()),
                }
            }
            Node::Branch(branch) => {
                let mark = self.variables.len();
                let walked = stacker::maybe_grow(STACK_LEFT_BYTES, STACK_ADDED_BYTES, || {
                    match branch.kind {
                        BranchKind::Range => self.range(dot, branch),
                        BranchKind::If | BranchKind::With => self.if_or_with(dot, branch),
                    }
                });
                self.variables.truncate(mark);
                walked
            }
            Node::Template { name, pipe, .. } => self.template(dot, name, pipe.as_ref()),
            Node::Break { .. } => Err(Stop::Break),
            Node::Continue { .. } => Err(Stop::Continue),
        }
    }

    fn if_or_with(&mut self, dot: &Value, branch: &'t Branch) -> Walked<()> {
        let value = self.pipe(dot, &branch.pipe)?;
        match (value.clone().inside().is_true(), &branch.else_list) {
            (true, _) if branch.kind == BranchKind::With => self.list(&value, &branch.list),
            (true, _) => self.list(dot, &branch.list),
            (false, Some(list)) => self.list(dot, list),
            (false, None) => Ok(()),
        }
    }

    fn range(&mut self, dot: &Value, branch: &'t Branch) -> Walked<()> {
        let (value, _) = self.pipe(dot, &branch.pipe)?.indirect();
        if matches!(value, Value::Int(..)) && branch.pipe.variables.len() > 1 {
            let shown = self.shown(&value)?;
            return self.fail(format!(
                "can't use {shown} to iterate over more than one variable"
            ));
        }
        let Some(elements) = elements(&value) else {
            let shown = self.shown(&value)?;
            return self.fail(format!("range can't iterate over {shown}"));
        };
        match (self.iterate(branch, elements)?, &branch.else_list) {
            (false, Some(list)) => self.list(dot, list),
            _ => Ok(()),
        }
    }

    /// Executes the body for each element. Returns whether there was at least one; if not, the
    /// caller executes the `else` body.
    fn iterate(
        &mut self,
        branch: &'t Branch,
        elements: impl Iterator<Item = (Value, Value)>,
    ) -> Walked<bool> {
        let mark = self.variables.len();
        let mut any = false;
        for (index, element) in elements {
            any = true;
            self.step()?;
            self.set_range_variables(branch, index, &element)?;
            let walked = self.list(&element, &branch.list);
            self.variables.truncate(mark);
            match walked {
                Ok(()) | Err(Stop::Continue) => {}
                Err(Stop::Break) => break,
                Err(stop) => return Err(stop),
            }
        }
        Ok(any)
    }

    fn set_range_variables(
        &mut self,
        branch: &'t Branch,
        index: Value,
        element: &Value,
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

    fn template(&mut self, dot: &Value, name: &'t str, pipe: Option<&'t Pipe>) -> Walked<()> {
        let Some(definition) = self.source.definitions.get(name) else {
            let name = quote(name.as_bytes());
            return self.fail(format!("template {name} not defined"));
        };
        self.check_depth()?;
        let dot = match pipe {
            Some(pipe) => self.pipe(dot, pipe)?,
            None => Value::Invalid,
        };
        self.definition(name, definition, dot)
    }

    fn check_depth(&self) -> Walked<()> {
        let most = self.limits.depth_max;
        match self.depth == most {
            true => self.fail(format!("exceeded maximum template depth ({most})")),
            false => Ok(()),
        }
    }

    fn definition(&mut self, name: &'t str, of: &'t Definition, dot: Value) -> Walked<()> {
        let outer = (self.definition, self.file, self.place);
        let variables = std::mem::replace(&mut self.variables, vec![("$", dot.clone())]);
        self.definition = name;
        self.file = Some(&of.file);
        self.depth += 1;
        let walked = stacker::maybe_grow(STACK_LEFT_BYTES, STACK_ADDED_BYTES, || {
            self.list(&dot, &of.list)
        });
        (self.definition, self.file, self.place) = outer;
        self.depth -= 1;
        self.variables = variables;
        walked
    }

    /// Implements `tmpl`: executes a definition and returns its output as safe HTML. The inner
    /// error is a message of the function itself.
    fn page_part(&mut self, arguments: &[Value]) -> Walked<Result<Value, String>> {
        let [Value::String(name), dot] = arguments else {
            return Ok(Ok(Value::Invalid));
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
        let walked = self.definition(name, definition, dot.clone().inside());
        let made = std::mem::replace(&mut self.out, outer);
        match walked {
            Err(Stop::Error(message)) => Ok(Err(message)),
            _ => Ok(Ok(Value::Html(made.into()))),
        }
    }

    /// Evaluates a pipeline, unwraps an interface, and sets or declares its variables.
    fn pipe(&mut self, dot: &Value, pipe: &'t Pipe) -> Walked<Value> {
        self.at(Place::Pipe(pipe));
        let mut value = None;
        for command in &pipe.commands {
            value = Some(self.command(dot, command, value)?.inside());
        }
        let value = value.unwrap_or(Value::Invalid);
        for name in &pipe.variables {
            match pipe.is_assign {
                true => self.assign(name, value.clone())?,
                false => self.variables.push((name, value.clone())),
            }
        }
        Ok(value)
    }

    fn assign(&mut self, name: &str, value: Value) -> Walked<()> {
        match self.variables.iter_mut().rev().find(|(n, _)| *n == name) {
            Some(variable) => {
                variable.1 = value;
                Ok(())
            }
            None => self.fail(format!("undefined variable: {name}")),
        }
    }

    fn variable(&self, name: &str) -> Walked<Value> {
        match self.variables.iter().rev().find(|(n, _)| *n == name) {
            Some((_, value)) => Ok(value.clone()),
            None => self.fail(format!("undefined variable: {name}")),
        }
    }

    /// Evaluates a command. `last` is the result of the preceding command in the pipeline.
    fn command(&mut self, dot: &Value, command: &'t Command, last: Option<Value>) -> Walked<Value> {
        let first = &command.words[0];
        let words = &command.words[..];
        match &first.term {
            Term::Field(fields) => self.field_word(dot, first, fields, words, last),
            Term::Chain { of, fields } => self.chain(dot, first, of, fields, words, last),
            Term::Identifier(name) => {
                self.function(dot, first, name, Place::Command(command), words, last)
            }
            Term::Pipe(pipe) => {
                self.no_function(words, last.as_ref())?;
                self.deeper_pipe(dot, pipe)
            }
            Term::Variable { name, fields } => {
                self.variable_word(dot, first, name, fields, words, last)
            }
            term => {
                self.at(Place::Operand(first));
                self.no_function(words, last.as_ref())?;
                match term {
                    Term::Nil => self.fail("nil is not a command"),
                    Term::Dot => Ok(dot.clone()),
                    _ => self.literal(first),
                }
            }
        }
    }

    fn deeper_pipe(&mut self, dot: &Value, pipe: &'t Pipe) -> Walked<Value> {
        stacker::maybe_grow(STACK_LEFT_BYTES, STACK_ADDED_BYTES, || self.pipe(dot, pipe))
    }

    fn no_function(&self, words: &[Operand], last: Option<&Value>) -> Walked<()> {
        match (words, last) {
            ([] | [_], None) => Ok(()),
            ([first, ..], _) => self.fail(format!("can't give argument to non-function {first}")),
            ([], Some(_)) => self.fail("can't give argument to non-function"),
        }
    }

    /// Evaluates a literal where no specific type is expected. Like in Go, an integer that
    /// overflows is an error.
    fn literal(&mut self, word: &'t Operand) -> Walked<Value> {
        self.at(Place::Operand(word));
        match &word.term {
            Term::Bool(value) => Ok(Value::Bool(*value)),
            Term::String { text, .. } => Ok(Value::String(Rc::clone(text))),
            Term::Number(number) => match (number.complex, number.float, number.int) {
                (Some((real, imaginary)), ..) => Ok(Value::Complex(real, imaginary)),
                (None, Some(float), _) if number.is_written_as_float() => Ok(Value::Float(float)),
                (None, _, Some(int)) => Ok(Value::Int(super::value::IntType::Int, int)),
                _ => self.fail(format!("{} overflows int", number.text)),
            },
            _ => self.fail(format!(
                "can't evaluate command {}",
                quote(word.to_string().as_bytes())
            )),
        }
    }

    fn print(&mut self, node: &'t Node, value: &Value) -> Walked<()> {
        self.at(Place::Node(node));
        let text = self.printed(std::slice::from_ref(value))?;
        self.write(&text)
    }

    /// Formats a value with `%v`, for error messages. Fails if the text exceeds the output limit.
    fn shown(&self, value: &Value) -> Walked<String> {
        let printed = format::print(std::slice::from_ref(value), self.limits.output_bytes_max);
        match printed {
            Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
            Err(format::TooLong) => self.too_long(),
        }
    }

    fn too_long<T>(&self) -> Walked<T> {
        let most = self.limits.output_bytes_max;
        self.fail(format!("text is longer than {most} bytes"))
    }

    /// Formats values like the output of an action: an invalid value as `<no value>`, and the
    /// target of a pointer instead of the pointer.
    fn printed(&self, values: &[Value]) -> Walked<Vec<u8>> {
        match format::print_plain(values, self.limits.output_bytes_max) {
            Ok(bytes) => Ok(bytes),
            Err(format::TooLong) => self.too_long(),
        }
    }
}

/// Returns the elements for a loop over `value`, with their indices or keys; `None` if the type
/// cannot be iterated.
fn elements<'v>(value: &'v Value) -> Option<Box<dyn Iterator<Item = (Value, Value)> + 'v>> {
    fn numbered<'v>(
        values: impl Iterator<Item = Value> + 'v,
    ) -> Box<dyn Iterator<Item = (Value, Value)> + 'v> {
        Box::new(values.enumerate().map(|(i, value)| (Value::int(i), value)))
    }
    let key = |key: &Rc<[u8]>| Value::String(Rc::clone(key));
    Some(match value {
        Value::Int(int, count) => {
            let element = |index| (Value::Invalid, Value::Int(*int, index));
            Box::new((0..*count).map(element))
        }
        Value::Query(query) => {
            let sample = |index| Some(Value::Sample(Some(query.get(index)?)));
            numbered((0..query.len()).map_while(sample))
        }
        Value::Floats(floats) => numbered(floats.iter().copied().map(Value::Float)),
        Value::Texts(texts) => numbered(texts.iter().cloned().map(Value::String)),
        Value::Params(map) => {
            let texts = |texts: &Rc<[_]>| Value::Texts(Rc::clone(texts));
            Box::new(map.iter().map(move |(k, v)| (key(k), texts(v))))
        }
        Value::Strings(map) => Box::new(map.iter().map(move |(k, v)| (key(k), key(v)))),
        Value::Args(map) => Box::new(
            map.iter()
                .map(move |(k, v)| (key(k), Value::boxed(v.clone()))),
        ),
        Value::Invalid => Box::new(std::iter::empty()),
        _ => return None,
    })
}

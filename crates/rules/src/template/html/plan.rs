//! Follows all branches and definitions of a page, and appends to each action the escapers of its
//! context.
//!
//! Invariant: branches of a condition end in one context, as do the iterations of a loop. A
//! recursive definition ends in its start context, or in a context that it maps to itself. The work
//! is bounded by a number of nodes. Unlike Go, which assumes that a recursive call ends in the
//! start context, each call continues from the end context of the definition.

use super::context::{Context, Delim, State, UrlPart};
use super::escaper::Escaper;
use super::pipeline::{PREDEFINED, function, with_escapers};
use super::text;
use crate::template::tree::{
    Branch, BranchKind, Definition, Definitions, File, List, Node, Pipe, STACK_ADDED_BYTES,
    STACK_LEFT_BYTES,
};
use firn_model::quote::quote;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::rc::Rc;

/// Maximum number of visited nodes. A node counts once per context, and twice per enclosing loop.
/// Typical pages have a few thousand. The limit takes about 100 ms and 20 MB.
const NODES_MAX: usize = 100_000;

/// Length of literal text that counts as one additional node, in bytes.
const NODE_BYTES: usize = 64;

/// The planned definitions of a page, created by [`escape`] before the page is executed. The plan
/// contains no values.
#[derive(Debug)]
pub(in crate::template) struct Escaped {
    /// Definitions for each context in which they are called, by derived name.
    pub definitions: Definitions,
    /// Error messages of definitions that cannot be included in a page, by name.
    pub refused: BTreeMap<String, String>,
}

/// Error of the planning, without the name of the definition in which it occurred.
#[derive(Debug)]
struct Refusal {
    /// File, line and column of the error.
    location: Option<String>,
    line: Option<usize>,
    description: String,
}

impl Refusal {
    fn new(description: impl Into<String>) -> Self {
        Self {
            location: None,
            line: None,
            description: description.into(),
        }
    }

    fn at(file: &File, position: usize, description: String) -> Self {
        Self {
            location: Some(file.location(position)),
            line: None,
            description,
        }
    }

    /// Adds the line of a loop to an error in its second iteration.
    fn in_loop(self, line: usize, when: &str) -> Self {
        Self {
            line: Some(line),
            description: format!("{when}: {}", self.description),
            ..self
        }
    }

    /// Returns Go's error message for an error in the definition `name`.
    fn text(&self, name: &str) -> String {
        let description = &self.description;
        match (&self.location, self.line) {
            (Some(location), _) => format!("html/template:{location}: {description}"),
            (None, Some(line)) => format!("html/template:{name}:{line}: {description}"),
            (None, None) => format!("html/template:{name}: {description}"),
        }
    }
}

type Planned<T> = Result<T, Refusal>;

/// Results within one definition. They are merged into the enclosing layer, or dropped if an
/// assumption about recursion was wrong.
#[derive(Debug, Default)]
struct Layer {
    /// End context of each definition, by derived name.
    ends: HashMap<String, Context>,
    made: Definitions,
    called: HashSet<String>,
}

/// Contexts in which `break` and `continue` leave the body of a loop; they must match the end of
/// the body.
#[derive(Debug, Default)]
struct Loop {
    /// Each with the position of its statement.
    breaks: Vec<(Context, usize)>,
    continues: Vec<(Context, usize)>,
}

struct Planner<'d> {
    read: &'d Definitions,
    layers: Vec<Layer>,
    loops: Vec<Loop>,
    nodes_left: usize,
}

/// Plans the page `name` and its definitions. Other definitions are planned for use in HTML text;
/// their errors are only reported when they are called.
pub(in crate::template) fn escape(name: &str, read: &Definitions) -> Result<Escaped, String> {
    let mut planner = Planner {
        read,
        layers: vec![Layer::default()],
        loops: Vec::new(),
        nodes_left: NODES_MAX,
    };
    planner.part(name).map_err(|refusal| refusal.text(name))?;
    let mut refused = BTreeMap::new();
    for other in read.keys() {
        planner.layers.push(Layer::default());
        let planned = planner.part(other);
        let layer = planner.layers.pop().unwrap_or_default();
        match planned {
            Ok(()) => planner.merge(layer),
            Err(refusal) => drop(refused.insert(other.clone(), refusal.text(other))),
        }
    }
    let definitions = planner.layers.pop().unwrap_or_default().made;
    Ok(Escaped {
        definitions,
        refused,
    })
}

impl Planner<'_> {
    /// Plans a definition that starts and must end in HTML text.
    fn part(&mut self, name: &str) -> Planned<()> {
        let (end, _) = self.definition(&Context::default(), name, None)?;
        match end.state {
            State::Text => Ok(()),
            _ => Err(Refusal::new(format!("ends in a non-text context: {end}"))),
        }
    }

    fn top(&mut self) -> Option<&mut Layer> {
        self.layers.last_mut()
    }

    fn merge(&mut self, layer: Layer) {
        if let Some(top) = self.top() {
            top.ends.extend(layer.ends);
            top.made.extend(layer.made);
            top.called.extend(layer.called);
        }
    }

    fn count(&mut self, nodes: usize) -> Planned<()> {
        match self.nodes_left.checked_sub(nodes) {
            Some(left) => {
                self.nodes_left = left;
                Ok(())
            }
            None => {
                let what = format!("more than {NODES_MAX} nodes in all places");
                Err(Refusal::new(what))
            }
        }
    }

    /// Returns the end context of the definition `name` that starts in `start`, and its derived
    /// name. `from` is the position of the call, for errors.
    fn definition(
        &mut self,
        start: &Context,
        name: &str,
        from: Option<(&File, usize)>,
    ) -> Planned<(Context, String)> {
        let own_name = start.name_of(name);
        if let Some(top) = self.top() {
            top.called.insert(own_name.clone());
        }
        let end = self.layers.iter().rev().find_map(|l| l.ends.get(&own_name));
        if let Some(end) = end {
            return Ok((end.clone(), own_name));
        }
        let Some(definition) = self.read.get(name) else {
            let description = format!("no such template {}", quote(name.as_bytes()));
            return Err(match from {
                Some((file, position)) => Refusal::at(file, position, description),
                None => Refusal::new(description),
            });
        };
        let end = self.end_of(start, definition, &own_name)?;
        if let Some(top) = self.top() {
            top.ends.insert(own_name.clone(), end.clone());
        }
        Ok((end, own_name))
    }

    fn end_of(&mut self, start: &Context, of: &Definition, own_name: &str) -> Planned<Context> {
        let (end, is_sure) = self.body(start, of, own_name)?;
        if is_sure {
            return Ok(end);
        }
        let (again, is_sure) = self.body(&end, of, own_name)?;
        if is_sure {
            return Ok(again);
        }
        let description = format!("cannot compute output context for template {own_name}");
        Err(Refusal::at(&of.file, position_of(&of.list), description))
    }

    /// Plans a body. Returns its end context, and whether that is certain: recursive calls are
    /// assumed to end in their start context.
    fn body(
        &mut self,
        start: &Context,
        of: &Definition,
        own_name: &str,
    ) -> Planned<(Context, bool)> {
        if let Some(top) = self.top() {
            top.ends.insert(own_name.to_owned(), start.clone());
        }
        self.layers.push(Layer::default());
        let loops = std::mem::take(&mut self.loops);
        let planned = self.list(start.clone(), &of.list, &of.file);
        self.loops = loops;
        let mut layer = self.layers.pop().unwrap_or_default();
        let (list, end) = planned?;
        let is_sure = !layer.called.contains(own_name) || end == *start;
        if is_sure {
            let definition = Definition {
                file: Rc::clone(&of.file),
                list: Rc::new(list),
            };
            layer.made.insert(own_name.to_owned(), definition);
            self.merge(layer);
        }
        Ok((end, is_sure))
    }

    fn list(&mut self, start: Context, list: &List, file: &File) -> Planned<(List, Context)> {
        let mut context = start;
        let mut planned = List::with_capacity(list.len());
        for node in list {
            let (node, next) = self.node(context, node, file)?;
            planned.push(node);
            context = next;
            if context.state == State::Dead {
                break;
            }
        }
        Ok((planned, context))
    }

    fn node(&mut self, context: Context, node: &Node, file: &File) -> Planned<(Node, Context)> {
        self.count(1)?;
        Ok(match node {
            Node::Text { position, text } => {
                self.count(text.len() / NODE_BYTES)?;
                let (context, text) = text::plan(context, text).map_err(Refusal::new)?;
                let position = *position;
                (Node::Text { position, text }, context)
            }
            Node::Action { position, pipe } => action(context, *position, pipe, file)?,
            Node::Branch(branch) => {
                stacker::maybe_grow(STACK_LEFT_BYTES, STACK_ADDED_BYTES, || {
                    self.branch(context, branch, file)
                })?
            }
            Node::Template {
                position,
                name,
                pipe,
            } => {
                let from = Some((file, *position));
                let (end, name) = stacker::maybe_grow(STACK_LEFT_BYTES, STACK_ADDED_BYTES, || {
                    self.definition(&context, name, from)
                })?;
                let (position, pipe) = (*position, pipe.clone());
                let node = Node::Template {
                    position,
                    name,
                    pipe,
                };
                (node, end)
            }
            Node::Break { position } => {
                if let Some(around) = self.loops.last_mut() {
                    around.breaks.push((context, *position));
                }
                let position = *position;
                (Node::Break { position }, Context::of(State::Dead))
            }
            Node::Continue { position } => {
                if let Some(around) = self.loops.last_mut() {
                    around.continues.push((context, *position));
                }
                let position = *position;
                (Node::Continue { position }, Context::of(State::Dead))
            }
        })
    }

    fn branch(
        &mut self,
        context: Context,
        branch: &Branch,
        file: &File,
    ) -> Planned<(Node, Context)> {
        let (list, mut end) = match branch.kind {
            BranchKind::Range => self.turns(&context, branch, file)?,
            BranchKind::If | BranchKind::With => self.list(context.clone(), &branch.list, file)?,
        };
        let (else_list, else_end) = match &branch.else_list {
            Some(list) => {
                let (list, end) = self.list(context, list, file)?;
                (Some(list), end)
            }
            None => (None, context),
        };
        end = join(&end, &else_end, branch.kind, (file, branch.position))?;
        let node = Node::Branch(Box::new(Branch {
            kind: branch.kind,
            position: branch.position,
            pipe: branch.pipe.clone(),
            list,
            else_list,
        }));
        Ok((node, end))
    }

    /// Plans the body of a loop for its first iteration, and checks that a second iteration ends in
    /// the same context.
    fn turns(&mut self, start: &Context, branch: &Branch, file: &File) -> Planned<(List, Context)> {
        self.loops.push(Loop::default());
        let planned = self.list(start.clone(), &branch.list, file);
        let ends = self.loops.pop().unwrap_or_default();
        let (list, end) = planned?;
        let end = join_ends(end, &ends, file)?;
        // Results of the second iteration are only checked, then dropped.
        self.loops.push(Loop::default());
        self.layers.push(Layer::default());
        let again = self.list(end.clone(), &branch.list, file);
        self.layers.pop();
        let ends = self.loops.pop().unwrap_or_default();
        let joined = again
            .and_then(|(_, again)| join(&end, &again, BranchKind::Range, (file, branch.position)));
        let line = file.line(branch.position);
        let end = joined.map_err(|refusal| refusal.in_loop(line, "on range loop re-entry"))?;
        Ok((list, join_ends(end, &ends, file)?))
    }
}

/// Returns the position of the first node of a body, for error messages; zero if the body is empty.
fn position_of(list: &List) -> usize {
    match list.first() {
        Some(node) => crate::template::tree::Place::Node(node).position(),
        None => 0,
    }
}

fn join(a: &Context, b: &Context, kind: BranchKind, at: (&File, usize)) -> Planned<Context> {
    a.join(b).ok_or_else(|| {
        let name = kind.name();
        let description = format!("{{{{{name}}}}} branches end in different contexts: {a}, {b}");
        Refusal::at(at.0, at.1, description)
    })
}

fn join_ends(mut end: Context, ends: &Loop, file: &File) -> Planned<Context> {
    let breaks = ends.breaks.iter().map(|e| (e, "at range loop break"));
    let continues = ends.continues.iter().map(|e| (e, "at range loop continue"));
    for ((context, position), when) in breaks.chain(continues) {
        let joined = join(&end, context, BranchKind::Range, (file, *position));
        end = joined.map_err(|refusal| refusal.in_loop(file.line(*position), when))?;
    }
    Ok(end)
}

/// Plans an action: appends the escapers of its context. Assignments are unchanged, because they
/// write nothing.
fn action(context: Context, position: usize, pipe: &Pipe, file: &File) -> Planned<(Node, Context)> {
    if !pipe.variables.is_empty() {
        let pipe = pipe.clone();
        return Ok((Node::Action { position, pipe }, context));
    }
    let mut context = context.nudged();
    check_predefined(&context, position, pipe, file)?;
    let mut escapers = match context.state {
        State::Url
        | State::CssDoubleQuoted
        | State::CssSingleQuoted
        | State::CssDoubleQuotedUrl
        | State::CssSingleQuotedUrl
        | State::CssUrl => url_escapers(&context).ok_or_else(|| {
            let description =
                format!("{{{{{pipe}}}}} appears in an ambiguous context within a URL");
            Refusal::at(file, position, description)
        })?,
        state => escaper_of(state).into_iter().collect(),
    };
    match context.state {
        State::Js => context.js_slash = super::context::JsSlash::Division,
        State::Tag => context.state = State::AttrName,
        _ => {}
    }
    escapers.extend(match context.delim {
        Delim::None => None,
        Delim::SpaceOrTagEnd => Some(Escaper::NoSpace),
        Delim::DoubleQuote | Delim::SingleQuote => Some(Escaper::Attr),
    });
    let pipe = with_escapers(pipe, &escapers);
    Ok((Node::Action { position, pipe }, context))
}

/// Rejects `html` and `urlquery` if a following command or the context would undo them.
fn check_predefined(context: &Context, position: usize, pipe: &Pipe, file: &File) -> Planned<()> {
    let is_bare = context.state == State::Attr && context.delim == Delim::SpaceOrTagEnd;
    let last = pipe.commands.len().saturating_sub(1);
    for (index, command) in pipe.commands.iter().enumerate() {
        let Some(name) = function(command).filter(|name| PREDEFINED.contains(name)) else {
            continue;
        };
        if index < last || is_bare && name == "html" {
            let name = quote(name.as_bytes());
            let description = format!("predefined escaper {name} disallowed in template");
            return Err(Refusal::at(file, position, description));
        }
    }
    Ok(())
}

/// Returns the escapers for a part of a URL; `None` if the part is ambiguous.
fn url_escapers(context: &Context) -> Option<Vec<Escaper>> {
    let is_text = matches!(
        context.state,
        State::CssDoubleQuoted | State::CssSingleQuoted
    );
    let normalizer = match is_text {
        true => Escaper::Css,
        false => Escaper::UrlNormalizer,
    };
    match context.url_part {
        UrlPart::None => Some(vec![Escaper::UrlFilter, normalizer]),
        UrlPart::PreQuery => Some(vec![normalizer]),
        UrlPart::QueryOrFragment => Some(vec![Escaper::Url]),
        UrlPart::Unknown => None,
    }
}

/// Returns the escaper for a state outside of URLs. The escaper of the attribute delimiter is
/// applied after it.
fn escaper_of(state: State) -> Option<Escaper> {
    Some(match state {
        State::Text => Escaper::Html,
        State::RcData => Escaper::RcData,
        State::Tag | State::AttrName => Escaper::HtmlName,
        State::SrcSet => Escaper::SrcSet,
        State::MetaContentUrl => Escaper::UrlFilter,
        State::Js => Escaper::JsValue,
        State::JsDoubleQuoted | State::JsSingleQuoted => Escaper::JsText,
        State::JsTemplate => Escaper::JsTemplate,
        State::JsRegexp => Escaper::JsRegexp,
        State::Css => Escaper::CssValue,
        state if state.is_comment() => Escaper::Comment,
        _ => return None,
    })
}

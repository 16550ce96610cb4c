//! Follows all branches of a page and its definitions, and gives each action the escapers of its
//! place.
//!
//! Invariant: branches meet in one context, and so do the turns of a loop; a definition that calls
//! itself ends as it begins, or as it ends if it begins so. Work is bounded by a number of nodes.
//! Unlike Go, which takes a definition's end to be its start when it is called again, each call
//! goes on where the definition ends.

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

/// Nodes that are looked at, each as often as there are places of it; nested loops double that.
/// Pages of people have some thousand. They are looked at in some 100 ms, and take some 20 MB.
const NODES_MAX: usize = 100_000;

/// Bytes of text that count as a node more.
const NODE_BYTES: usize = 64;

/// What a page is made of.
#[derive(Debug)]
pub(in crate::template) struct Escaped {
    /// The definitions, each for the places that it is called from.
    pub definitions: Definitions,
    /// Why those of these names are no parts of a page.
    pub refused: BTreeMap<String, String>,
}

/// Why there is no plan.
#[derive(Debug)]
struct Refusal {
    /// The file, line and column that it is about.
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

    /// The same, met in a loop.
    fn in_loop(self, line: usize, when: &str) -> Self {
        Self {
            line: Some(line),
            description: format!("{when}: {}", self.description),
            ..self
        }
    }

    /// What Go says where it is met in the definition `name`.
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

/// What was found out within one definition; dropped if an assumption proves wrong.
#[derive(Debug, Default)]
struct Layer {
    /// The context behind each definition, by its name for its start.
    ends: HashMap<String, Context>,
    made: Definitions,
    called: HashSet<String>,
}

/// The ends of turns of a loop before its end.
#[derive(Debug, Default)]
struct Loop {
    /// Each with the position of what ends it.
    breaks: Vec<(Context, usize)>,
    continues: Vec<(Context, usize)>,
}

struct Planner<'d> {
    read: &'d Definitions,
    layers: Vec<Layer>,
    loops: Vec<Loop>,
    nodes_left: usize,
}

/// Plans the page `name` of the definitions that were read, and all others as parts of a page.
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
    /// A definition that stands in ordinary text.
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

    /// The context behind the definition `name` that begins in `start`, and its name for that;
    /// `from` is where it is called.
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

    /// The context behind a body, and whether that is sure: what calls itself was taken to end as
    /// it begins.
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

    /// The body of a loop, planned for its first turn, if the next ones can follow it.
    fn turns(&mut self, start: &Context, branch: &Branch, file: &File) -> Planned<(List, Context)> {
        self.loops.push(Loop::default());
        let planned = self.list(start.clone(), &branch.list, file);
        let ends = self.loops.pop().unwrap_or_default();
        let (list, end) = planned?;
        let end = join_ends(end, &ends, file)?;
        // What is found out in the second turn is of no use.
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

/// Where the first node of a body stands.
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

/// An action with the escapers of its place.
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

/// Refuses `html` and `urlquery` where something follows that would undo them.
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

/// The escapers of a part of a URL; `None` if which part is not known.
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

/// The escaper of a place that is no part of a URL; that of a value's delimiter comes behind it.
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

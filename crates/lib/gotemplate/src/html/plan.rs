//! Follows all branches and definitions of a page, and appends to each action the escapers of its
//! context.
//!
//! Invariant: branches of a condition end in one context, as do the iterations of a loop. A
//! recursive definition ends in its start context, or in a context that it maps to itself. The work
//! is bounded by a number of nodes. Unlike Go, which assumes that a recursive call ends in the
//! start context, each call continues from the end context of the definition.

mod refusal;

use super::context::{AttributeDelimiter, HtmlContext, HtmlState, UrlPart};
use super::escaper::HtmlEscaper;
use super::pipeline::{PREDEFINED, function, with_escapers};
use super::text;
use crate::tree::{
    BranchKind, Definitions, List, STACK_ADDED_BYTES, STACK_LEFT_BYTES, TemplateBranch,
    TemplateDefinition, TemplateFile, TemplateNode, TemplatePipeline,
};
use firn_model::quote::quote;
use refusal::EscapeRefusal;
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
pub(crate) struct EscapedTemplate {
    /// Definitions for each context in which they are called, by derived name.
    pub definitions: Definitions,
    /// Error messages of definitions that cannot be included in a page, by name.
    pub refused: BTreeMap<String, String>,
}

type Planned<T> = Result<T, EscapeRefusal>;

/// Results within one definition. They are merged into the enclosing layer, or dropped if an
/// assumption about recursion was wrong.
#[derive(Debug, Default)]
struct EscapePlanLayer {
    /// End context of each definition, by derived name.
    ends: HashMap<String, HtmlContext>,
    made: Definitions,
    called: HashSet<String>,
}

/// Contexts in which `break` and `continue` leave the body of a loop; they must match the end of
/// the body.
#[derive(Debug, Default)]
struct EscapePlanLoop {
    /// Each with the position of its statement.
    breaks: Vec<(HtmlContext, usize)>,
    continues: Vec<(HtmlContext, usize)>,
}

struct EscapePlanner<'d> {
    read: &'d Definitions,
    layers: Vec<EscapePlanLayer>,
    loops: Vec<EscapePlanLoop>,
    nodes_left: usize,
}

/// Plans the page `name` and its definitions. Other definitions are planned for use in HTML text;
/// their errors are only reported when they are called.
pub(crate) fn escape(name: &str, read: &Definitions) -> Result<EscapedTemplate, String> {
    let mut planner = EscapePlanner {
        read,
        layers: vec![EscapePlanLayer::default()],
        loops: Vec::new(),
        nodes_left: NODES_MAX,
    };
    planner
        .plan_part(name)
        .map_err(|refusal| refusal.text(name))?;
    let mut refused = BTreeMap::new();
    for other in read.keys() {
        planner.layers.push(EscapePlanLayer::default());
        let planned = planner.plan_part(other);
        let layer = planner.layers.pop().unwrap_or_default();
        match planned {
            Ok(()) => planner.merge(layer),
            Err(refusal) => drop(refused.insert(other.clone(), refusal.text(other))),
        }
    }
    let definitions = planner.layers.pop().unwrap_or_default().made;
    Ok(EscapedTemplate {
        definitions,
        refused,
    })
}

impl EscapePlanner<'_> {
    /// Plans a definition that starts and must end in HTML text.
    fn plan_part(&mut self, name: &str) -> Planned<()> {
        let (end, _) = self.plan_definition(&HtmlContext::default(), name, None)?;
        match end.state {
            HtmlState::Text => Ok(()),
            _ => Err(EscapeRefusal::new(format!(
                "ends in a non-text context: {end}"
            ))),
        }
    }

    fn top(&mut self) -> Option<&mut EscapePlanLayer> {
        self.layers.last_mut()
    }

    fn merge(&mut self, layer: EscapePlanLayer) {
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
                Err(EscapeRefusal::new(what))
            }
        }
    }

    /// Returns the end context of the definition `name` that starts in `start`, and its derived
    /// name. `from` is the position of the call, for errors.
    fn plan_definition(
        &mut self,
        start: &HtmlContext,
        name: &str,
        from: Option<(&TemplateFile, usize)>,
    ) -> Planned<(HtmlContext, String)> {
        let own_name = start.derived_name(name);
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
                Some((file, position)) => EscapeRefusal::at_position(file, position, description),
                None => EscapeRefusal::new(description),
            });
        };
        let end = self.plan_end(start, definition, &own_name)?;
        if let Some(top) = self.top() {
            top.ends.insert(own_name.clone(), end.clone());
        }
        Ok((end, own_name))
    }

    fn plan_end(
        &mut self,
        start: &HtmlContext,
        of: &TemplateDefinition,
        own_name: &str,
    ) -> Planned<HtmlContext> {
        let (end, is_sure) = self.plan_body(start, of, own_name)?;
        if is_sure {
            return Ok(end);
        }
        let (again, is_sure) = self.plan_body(&end, of, own_name)?;
        if is_sure {
            return Ok(again);
        }
        let description = format!("cannot compute output context for template {own_name}");
        Err(EscapeRefusal::at_position(
            &of.file,
            first_position(&of.list),
            description,
        ))
    }

    /// Plans a body. Returns its end context, and whether that is certain: recursive calls are
    /// assumed to end in their start context.
    fn plan_body(
        &mut self,
        start: &HtmlContext,
        of: &TemplateDefinition,
        own_name: &str,
    ) -> Planned<(HtmlContext, bool)> {
        if let Some(top) = self.top() {
            top.ends.insert(own_name.to_owned(), start.clone());
        }
        self.layers.push(EscapePlanLayer::default());
        let loops = std::mem::take(&mut self.loops);
        let planned = self.plan_list(start.clone(), &of.list, &of.file);
        self.loops = loops;
        let mut layer = self.layers.pop().unwrap_or_default();
        let (list, end) = planned?;
        let is_sure = !layer.called.contains(own_name) || end == *start;
        if is_sure {
            let definition = TemplateDefinition {
                file: Rc::clone(&of.file),
                list: Rc::new(list),
            };
            layer.made.insert(own_name.to_owned(), definition);
            self.merge(layer);
        }
        Ok((end, is_sure))
    }

    fn plan_list(
        &mut self,
        start: HtmlContext,
        list: &List,
        file: &TemplateFile,
    ) -> Planned<(List, HtmlContext)> {
        let mut context = start;
        let mut planned = List::with_capacity(list.len());
        for node in list {
            let (node, next) = self.plan_node(context, node, file)?;
            planned.push(node);
            context = next;
            if context.state == HtmlState::Dead {
                break;
            }
        }
        Ok((planned, context))
    }

    fn plan_node(
        &mut self,
        context: HtmlContext,
        node: &TemplateNode,
        file: &TemplateFile,
    ) -> Planned<(TemplateNode, HtmlContext)> {
        self.count(1)?;
        Ok(match node {
            TemplateNode::Text { position, text } => {
                self.count(text.len() / NODE_BYTES)?;
                let (context, text) = text::plan_text(context, text).map_err(EscapeRefusal::new)?;
                let position = *position;
                (TemplateNode::Text { position, text }, context)
            }
            TemplateNode::Action { position, pipe } => plan_action(context, *position, pipe, file)?,
            TemplateNode::Branch(branch) => {
                stacker::maybe_grow(STACK_LEFT_BYTES, STACK_ADDED_BYTES, || {
                    self.plan_branch(context, branch, file)
                })?
            }
            TemplateNode::Template {
                position,
                name,
                pipe,
            } => {
                let from = Some((file, *position));
                let (end, name) = stacker::maybe_grow(STACK_LEFT_BYTES, STACK_ADDED_BYTES, || {
                    self.plan_definition(&context, name, from)
                })?;
                let (position, pipe) = (*position, pipe.clone());
                let node = TemplateNode::Template {
                    position,
                    name,
                    pipe,
                };
                (node, end)
            }
            TemplateNode::Break { position } => {
                if let Some(around) = self.loops.last_mut() {
                    around.breaks.push((context, *position));
                }
                let position = *position;
                (
                    TemplateNode::Break { position },
                    HtmlContext::from_state(HtmlState::Dead),
                )
            }
            TemplateNode::Continue { position } => {
                if let Some(around) = self.loops.last_mut() {
                    around.continues.push((context, *position));
                }
                let position = *position;
                (
                    TemplateNode::Continue { position },
                    HtmlContext::from_state(HtmlState::Dead),
                )
            }
        })
    }

    fn plan_branch(
        &mut self,
        context: HtmlContext,
        branch: &TemplateBranch,
        file: &TemplateFile,
    ) -> Planned<(TemplateNode, HtmlContext)> {
        let (list, mut end) = match branch.kind {
            BranchKind::Range => self.plan_loop_body(&context, branch, file)?,
            BranchKind::If | BranchKind::With => {
                self.plan_list(context.clone(), &branch.list, file)?
            }
        };
        let (else_list, else_end) = match &branch.else_list {
            Some(list) => {
                let (list, end) = self.plan_list(context, list, file)?;
                (Some(list), end)
            }
            None => (None, context),
        };
        end = join(&end, &else_end, branch.kind, (file, branch.position))?;
        let node = TemplateNode::Branch(Box::new(TemplateBranch {
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
    fn plan_loop_body(
        &mut self,
        start: &HtmlContext,
        branch: &TemplateBranch,
        file: &TemplateFile,
    ) -> Planned<(List, HtmlContext)> {
        self.loops.push(EscapePlanLoop::default());
        let planned = self.plan_list(start.clone(), &branch.list, file);
        let ends = self.loops.pop().unwrap_or_default();
        let (list, end) = planned?;
        let end = join_ends(end, &ends, file)?;
        // Results of the second iteration are only checked, then dropped.
        self.loops.push(EscapePlanLoop::default());
        self.layers.push(EscapePlanLayer::default());
        let again = self.plan_list(end.clone(), &branch.list, file);
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
fn first_position(list: &List) -> usize {
    match list.first() {
        Some(node) => crate::tree::TemplateErrorNode::Node(node).position(),
        None => 0,
    }
}

fn join(
    a: &HtmlContext,
    b: &HtmlContext,
    kind: BranchKind,
    at: (&TemplateFile, usize),
) -> Planned<HtmlContext> {
    a.join(b).ok_or_else(|| {
        let name = kind.name();
        let description = format!("{{{{{name}}}}} branches end in different contexts: {a}, {b}");
        EscapeRefusal::at_position(at.0, at.1, description)
    })
}

fn join_ends(
    mut end: HtmlContext,
    ends: &EscapePlanLoop,
    file: &TemplateFile,
) -> Planned<HtmlContext> {
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
fn plan_action(
    context: HtmlContext,
    position: usize,
    pipe: &TemplatePipeline,
    file: &TemplateFile,
) -> Planned<(TemplateNode, HtmlContext)> {
    if !pipe.variables.is_empty() {
        let pipe = pipe.clone();
        return Ok((TemplateNode::Action { position, pipe }, context));
    }
    let mut context = context.nudge();
    check_predefined(&context, position, pipe, file)?;
    let mut escapers = match context.state {
        HtmlState::Url
        | HtmlState::CssDoubleQuoted
        | HtmlState::CssSingleQuoted
        | HtmlState::CssDoubleQuotedUrl
        | HtmlState::CssSingleQuotedUrl
        | HtmlState::CssUrl => url_escapers(&context).ok_or_else(|| {
            let description =
                format!("{{{{{pipe}}}}} appears in an ambiguous context within a URL");
            EscapeRefusal::at_position(file, position, description)
        })?,
        state => escaper_for_state(state).into_iter().collect(),
    };
    match context.state {
        HtmlState::Js => context.js_slash = super::context::JsSlash::Division,
        HtmlState::Tag => context.state = HtmlState::AttrName,
        _ => {}
    }
    escapers.extend(match context.delim {
        AttributeDelimiter::None => None,
        AttributeDelimiter::SpaceOrTagEnd => Some(HtmlEscaper::NoSpace),
        AttributeDelimiter::DoubleQuote | AttributeDelimiter::SingleQuote => {
            Some(HtmlEscaper::Attr)
        }
    });
    let pipe = with_escapers(pipe, &escapers);
    Ok((TemplateNode::Action { position, pipe }, context))
}

/// Rejects `html` and `urlquery` if a following command or the context would undo them.
fn check_predefined(
    context: &HtmlContext,
    position: usize,
    pipe: &TemplatePipeline,
    file: &TemplateFile,
) -> Planned<()> {
    let is_bare =
        context.state == HtmlState::Attr && context.delim == AttributeDelimiter::SpaceOrTagEnd;
    let last = pipe.commands.len().saturating_sub(1);
    for (index, command) in pipe.commands.iter().enumerate() {
        let Some(name) = function(command).filter(|name| PREDEFINED.contains(name)) else {
            continue;
        };
        if index < last || is_bare && name == "html" {
            let name = quote(name.as_bytes());
            let description = format!("predefined escaper {name} disallowed in template");
            return Err(EscapeRefusal::at_position(file, position, description));
        }
    }
    Ok(())
}

/// Returns the escapers for a part of a URL; `None` if the part is ambiguous.
fn url_escapers(context: &HtmlContext) -> Option<Vec<HtmlEscaper>> {
    let is_text = matches!(
        context.state,
        HtmlState::CssDoubleQuoted | HtmlState::CssSingleQuoted
    );
    let normalizer = if is_text {
        HtmlEscaper::Css
    } else {
        HtmlEscaper::UrlNormalizer
    };
    match context.url_part {
        UrlPart::None => Some(vec![HtmlEscaper::UrlFilter, normalizer]),
        UrlPart::PreQuery => Some(vec![normalizer]),
        UrlPart::QueryOrFragment => Some(vec![HtmlEscaper::Url]),
        UrlPart::Unknown => None,
    }
}

/// Returns the escaper for a state outside of URLs. The escaper of the attribute delimiter is
/// applied after it.
fn escaper_for_state(state: HtmlState) -> Option<HtmlEscaper> {
    Some(match state {
        HtmlState::Text => HtmlEscaper::Html,
        HtmlState::RcData => HtmlEscaper::RcData,
        HtmlState::Tag | HtmlState::AttrName => HtmlEscaper::HtmlName,
        HtmlState::SrcSet => HtmlEscaper::SrcSet,
        HtmlState::MetaContentUrl => HtmlEscaper::UrlFilter,
        HtmlState::Js => HtmlEscaper::JsValue,
        HtmlState::JsDoubleQuoted | HtmlState::JsSingleQuoted => HtmlEscaper::JsText,
        HtmlState::JsTemplate => HtmlEscaper::JsTemplate,
        HtmlState::JsRegexp => HtmlEscaper::JsRegexp,
        HtmlState::Css => HtmlEscaper::CssValue,
        state if state.is_comment() => HtmlEscaper::Comment,
        _ => return None,
    })
}

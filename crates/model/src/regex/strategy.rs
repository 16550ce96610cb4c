//! How a value is compared with a pattern: by the cheapest means that the tree allows.
//!
//! Most patterns in dashboards are a literal, an alternation of literals, or literals with `.*`
//! between or around them. Those need no automaton, and the first two can be looked up in an index.

mod glob;
mod values;

use super::engine::{Bounds, Engine};
use super::stepper::Stepper;
use super::tree::Node;
use crate::error::Error;
use crate::value_set::ValueSet;
use glob::Glob;
use regex_syntax::hir::Look;
use std::sync::OnceLock;

/// The way in which values are compared.
#[derive(Debug)]
pub(super) enum Strategy {
    /// These values match and no others.
    Set(ValueSet),
    /// Literals with anything between.
    Glob(Glob),
    /// Whatever an automaton says.
    Automaton(Box<Automaton>),
}

/// A tree, and the engine that was made of it.
#[derive(Debug)]
pub(super) struct Automaton {
    tree: Node,
    matches_empty: bool,
    /// What all matching values start with.
    prefix: Vec<u8>,
    bounds: OnceLock<Bounds>,
    engine: OnceLock<Engine>,
}

impl Strategy {
    /// The cheapest way for `tree`.
    pub fn new(tree: Node) -> Self {
        if let Some(values) = values::of(&tree) {
            return Strategy::Set(values);
        }
        let mut parts = Vec::new();
        flatten(&tree, &mut parts);
        let parts = without_edge_looks(&parts);
        if let Some(glob) = Glob::new(parts) {
            return Strategy::Glob(glob);
        }
        let mut prefix = Vec::new();
        for part in parts {
            if !literal_prefix(part, &mut prefix) {
                break;
            }
        }
        Strategy::Automaton(Box::new(Automaton {
            matches_empty: tree.matches_empty(),
            prefix,
            tree,
            bounds: OnceLock::new(),
            engine: OnceLock::new(),
        }))
    }

    /// Whether `value` matches.
    pub fn is_match(&self, value: &[u8]) -> bool {
        match self {
            Strategy::Set(values) => values.contains(value),
            Strategy::Glob(glob) => glob.is_match(value),
            Strategy::Automaton(automaton) => automaton.is_match(value),
        }
    }

    /// The automaton, of a pattern that needs one.
    pub fn automaton(&self) -> Option<&Automaton> {
        match self {
            Strategy::Automaton(automaton) => Some(automaton),
            _ => None,
        }
    }

    /// All values that match, if they can be listed.
    pub fn literal_set(&self) -> Option<&ValueSet> {
        match self {
            Strategy::Set(values) => Some(values),
            _ => None,
        }
    }

    /// What all matching values start with, as far as it is known.
    pub fn prefix(&self) -> &[u8] {
        match self {
            Strategy::Set(values) => values.shared_prefix(),
            Strategy::Glob(glob) => glob.prefix(),
            Strategy::Automaton(automaton) => &automaton.prefix,
        }
    }

    /// Whether it is known that every value matches.
    pub fn matches_everything(&self) -> bool {
        matches!(self, Strategy::Glob(glob) if glob.chars_of_any_text() == Some(0))
    }

    /// Whether it is known that every value but the empty one matches.
    pub fn matches_any_non_empty(&self) -> bool {
        matches!(self, Strategy::Glob(glob) if glob.chars_of_any_text() == Some(1))
    }
}

impl Automaton {
    /// Sets what the engine may use, unless that was done before.
    pub fn bind(&self, bounds: &Bounds) {
        self.bounds.get_or_init(|| bounds.clone());
    }

    /// Makes the engine if there is none yet; fails if it may not take what it needs, or has failed
    /// since.
    pub fn ready(&self) -> Result<&Engine, Error> {
        let engine = match self.engine.get() {
            Some(engine) => engine,
            None => {
                let bounds = self.bounds.get_or_init(Bounds::none);
                let engine = Engine::new(&self.tree, bounds)?;
                self.engine.get_or_init(|| engine)
            }
        };
        engine.check()?;
        Ok(engine)
    }

    /// See [`crate::regex::Regex::stepper`].
    pub fn stepper(&self, bytes_max: usize) -> Option<Stepper> {
        match self.ready().ok()? {
            Engine::Automaton { bounds, .. } => Stepper::new(&self.tree, bytes_max, bounds),
            Engine::Walker(_) => None,
        }
    }

    /// Whether `value` matches; nothing but the empty value does if the engine fails.
    fn is_match(&self, value: &[u8]) -> bool {
        match value {
            [] => self.matches_empty,
            _ => self.ready().is_ok_and(|engine| engine.is_match(value)),
        }
    }
}

/// The parts of `node` one behind the other, groups and nested sequences dissolved.
fn flatten<'t>(node: &'t Node, into: &mut Vec<&'t Node>) {
    match node {
        Node::Empty => {}
        Node::Capture(node, _) => flatten(node, into),
        Node::Concat(nodes) => nodes.iter().for_each(|n| flatten(n, into)),
        _ => into.push(node),
    }
}

/// The parts without a `^` in front and a `$` behind, which ask for nothing in an anchored pattern.
fn without_edge_looks<'p, 't>(mut parts: &'p [&'t Node]) -> &'p [&'t Node] {
    while let [Node::Look(Look::Start | Look::StartLF), rest @ ..] = parts {
        parts = rest;
    }
    while let [rest @ .., Node::Look(Look::End | Look::EndLF)] = parts {
        parts = rest;
    }
    parts
}

/// Appends what every match of `node` starts with; returns whether that is all of the match.
fn literal_prefix(node: &Node, into: &mut Vec<u8>) -> bool {
    match node {
        Node::Empty => true,
        Node::Literal(text) => {
            into.extend_from_slice(text.as_bytes());
            true
        }
        Node::Capture(node, _) => literal_prefix(node, into),
        Node::Concat(nodes) => nodes.iter().all(|n| literal_prefix(n, into)),
        Node::Repeat(node, repeat) if repeat.min > 0 => {
            literal_prefix(node, into);
            false
        }
        Node::Alternation(nodes) => {
            into.extend_from_slice(&shared_prefix(nodes));
            false
        }
        _ => false,
    }
}

fn shared_prefix(nodes: &[Node]) -> Vec<u8> {
    let mut shared: Option<Vec<u8>> = None;
    for node in nodes {
        let mut prefix = Vec::new();
        literal_prefix(node, &mut prefix);
        if let Some(shared) = &shared {
            prefix.truncate(common_prefix_bytes(&prefix, shared));
        }
        if prefix.is_empty() {
            return prefix;
        }
        shared = Some(prefix);
    }
    shared.unwrap_or_default()
}

fn common_prefix_bytes(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

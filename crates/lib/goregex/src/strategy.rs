//! Matches values with the cheapest method that the syntax tree permits.
//!
//! Most patterns in dashboards are a literal, an alternation of literals, or literals with `.*`
//! between or around them. These need no automaton, and the first two can be looked up in an index.

mod glob;
mod values;

use super::engine::RegexEngine;
use super::stepper::RegexStepper;
use super::tree::RegexNode;
use crate::limits::{RegexError, RegexLimits, UnlimitedRegex};
use crate::value_set::ValueSet;
use glob::LiteralGlob;
use regex_syntax::hir::Look;
use std::sync::{Arc, OnceLock};

/// The method by which values are matched, selected when the pattern is parsed.
#[derive(Debug)]
pub(super) enum RegexStrategy {
    /// Exactly these values match, which a binary search finds.
    Set(ValueSet),
    /// Literals with arbitrary text between them, matched by substring searches.
    Glob(LiteralGlob),
    /// Values are matched by an automaton, which is built on first use.
    Automaton(Box<RegexAutomaton>),
}

/// A syntax tree, and the engine that is created from it.
#[derive(Debug)]
pub(super) struct RegexAutomaton {
    tree: RegexNode,
    matches_empty: bool,
    /// The common prefix of all matching values, possibly empty.
    prefix: Vec<u8>,
    limits: OnceLock<Arc<dyn RegexLimits>>,
    engine: OnceLock<RegexEngine>,
}

impl RegexStrategy {
    /// Selects the cheapest method for `tree`, and computes the common prefix.
    pub fn new(tree: RegexNode) -> Self {
        if let Some(values) = values::list_values(&tree) {
            return RegexStrategy::Set(values);
        }
        let mut parts = Vec::new();
        flatten(&tree, &mut parts);
        let parts = strip_edge_looks(&parts);
        if let Some(glob) = LiteralGlob::new(parts) {
            return RegexStrategy::Glob(glob);
        }
        let mut prefix = Vec::new();
        for part in parts {
            if !append_literal_prefix(part, &mut prefix) {
                break;
            }
        }
        RegexStrategy::Automaton(Box::new(RegexAutomaton {
            matches_empty: tree.matches_empty(),
            prefix,
            tree,
            limits: OnceLock::new(),
            engine: OnceLock::new(),
        }))
    }

    /// Returns whether the whole `value` matches.
    pub fn is_match(&self, value: &[u8]) -> bool {
        match self {
            RegexStrategy::Set(values) => values.contains(value),
            RegexStrategy::Glob(glob) => glob.is_match(value),
            RegexStrategy::Automaton(automaton) => automaton.is_match(value),
        }
    }

    /// Returns the automaton, or `None` if the pattern needs none.
    pub fn automaton(&self) -> Option<&RegexAutomaton> {
        match self {
            RegexStrategy::Automaton(automaton) => Some(automaton),
            _ => None,
        }
    }

    /// Returns all matching values, if they can be listed.
    pub fn literal_set(&self) -> Option<&ValueSet> {
        match self {
            RegexStrategy::Set(values) => Some(values),
            _ => None,
        }
    }

    /// Returns the common prefix of all matching values, as far as it can be determined.
    pub fn prefix(&self) -> &[u8] {
        match self {
            RegexStrategy::Set(values) => values.common_prefix(),
            RegexStrategy::Glob(glob) => glob.prefix(),
            RegexStrategy::Automaton(automaton) => &automaton.prefix,
        }
    }

    /// Returns true if every value certainly matches, including the empty one.
    pub fn matches_everything(&self) -> bool {
        matches!(self, RegexStrategy::Glob(glob) if glob.chars_of_any_text() == Some(0))
    }

    /// Returns true if exactly the non-empty values certainly match.
    pub fn matches_any_non_empty(&self) -> bool {
        matches!(self, RegexStrategy::Glob(glob) if glob.chars_of_any_text() == Some(1))
    }
}

impl RegexAutomaton {
    /// Sets the limits of the engine, unless they were set before.
    pub fn bind(&self, limits: Arc<dyn RegexLimits>) {
        self.limits.get_or_init(|| limits);
    }

    /// Creates the engine if there is none yet. Fails if the memory cannot be reserved, or if the
    /// engine has failed in the meantime.
    pub fn build_engine(&self) -> Result<&RegexEngine, RegexError> {
        let engine = match self.engine.get() {
            Some(engine) => engine,
            None => {
                let limits = self.limits.get_or_init(|| Arc::new(UnlimitedRegex));
                let engine = RegexEngine::new(&self.tree, limits)?;
                self.engine.get_or_init(|| engine)
            }
        };
        engine.check()?;
        Ok(engine)
    }

    /// Returns an automaton for many sorted values; see [`crate::Regex::stepper`].
    pub fn stepper(&self, bytes_max: usize) -> Option<RegexStepper> {
        match self.build_engine().ok()? {
            RegexEngine::Automaton { limits, .. } => {
                RegexStepper::new(&self.tree, bytes_max, limits)
            }
            RegexEngine::Walker(_) => None,
        }
    }

    /// Returns whether `value` matches. If the engine fails, at most the empty value matches.
    fn is_match(&self, value: &[u8]) -> bool {
        match value {
            [] => self.matches_empty,
            _ => self
                .build_engine()
                .is_ok_and(|engine| engine.is_match(value)),
        }
    }
}

/// Appends the parts of `node` in order. Groups and nested concatenations are flattened.
fn flatten<'t>(node: &'t RegexNode, into: &mut Vec<&'t RegexNode>) {
    match node {
        RegexNode::Empty => {}
        RegexNode::Capture(node, _) => flatten(node, into),
        RegexNode::Concat(nodes) => nodes.iter().for_each(|n| flatten(n, into)),
        _ => into.push(node),
    }
}

/// Removes `^` at the start and `$` at the end, which have no effect in an anchored pattern.
fn strip_edge_looks<'p, 't>(mut parts: &'p [&'t RegexNode]) -> &'p [&'t RegexNode] {
    while let [RegexNode::Look(Look::Start | Look::StartLF), rest @ ..] = parts {
        parts = rest;
    }
    while let [rest @ .., RegexNode::Look(Look::End | Look::EndLF)] = parts {
        parts = rest;
    }
    parts
}

/// Appends the common prefix of all matches of `node`. Returns whether this is the complete match.
fn append_literal_prefix(node: &RegexNode, into: &mut Vec<u8>) -> bool {
    match node {
        RegexNode::Empty => true,
        RegexNode::Literal(text) => {
            into.extend_from_slice(text.as_bytes());
            true
        }
        RegexNode::Capture(node, _) => append_literal_prefix(node, into),
        RegexNode::Concat(nodes) => nodes.iter().all(|n| append_literal_prefix(n, into)),
        RegexNode::Repeat(node, repeat) if repeat.min > 0 => {
            append_literal_prefix(node, into);
            false
        }
        RegexNode::Alternation(nodes) => {
            into.extend_from_slice(&shared_prefix(nodes));
            false
        }
        _ => false,
    }
}

fn shared_prefix(nodes: &[RegexNode]) -> Vec<u8> {
    let mut shared: Option<Vec<u8>> = None;
    for node in nodes {
        let mut prefix = Vec::new();
        append_literal_prefix(node, &mut prefix);
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

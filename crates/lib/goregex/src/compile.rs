//! Compiles a syntax tree to an automaton.

use super::engine::{AUTOMATON_BYTES_MAX, REMEMBERED_BYTES_MAX};
use super::tree::{CaptureGroup, RegexNode, RegexRepeat};
use regex_automata::meta::{Config, Regex};
use regex_automata::nfa::thompson::{self, WhichCaptures};
use regex_syntax::hir::{self, Class, Dot, Hir, Look};

/// The error for an automaton that would need more than [`AUTOMATON_BYTES_MAX`]. This is the only
/// possible failure of compiling a tree.
#[derive(Debug)]
pub(super) struct AutomatonTooLarge;

/// Compiles an automaton that only determines whether a value matches.
pub(super) fn compile_without_captures(tree: &RegexNode) -> Result<Regex, AutomatonTooLarge> {
    build(&translate(tree, false), false)
}

/// Compiles an automaton that also returns the matches of groups.
pub(super) fn compile_with_captures(tree: &RegexNode) -> Result<Regex, AutomatonTooLarge> {
    build(&translate(tree, true), true)
}

/// Compiles an automaton that finds matches anywhere in a value and returns the matches of groups.
pub(super) fn compile_search(tree: &RegexNode) -> Result<Regex, AutomatonTooLarge> {
    let translation = HirTranslator {
        captures: true,
        has_word_look: tree.has_word_look(),
    };
    build(&translation.translate_node(tree), true)
}

/// Returns the expression that must match the whole value, without groups.
pub(super) fn anchor(tree: &RegexNode) -> Hir {
    translate(tree, false)
}

/// Returns the configuration of an automaton with a size limit of `bytes_max`.
pub(super) fn size_limits(bytes_max: usize) -> thompson::Config {
    thompson::Config::new()
        .utf8(false)
        .nfa_size_limit(Some(bytes_max))
}

fn translate(tree: &RegexNode, captures: bool) -> Hir {
    let translation = HirTranslator {
        captures,
        has_word_look: tree.has_word_look(),
    };
    Hir::concat(vec![
        Hir::look(Look::Start),
        translation.translate_node(tree),
        Hir::look(Look::End),
    ])
}

fn build(hir: &Hir, captures: bool) -> Result<Regex, AutomatonTooLarge> {
    let config = Config::new()
        .utf8_empty(false)
        .nfa_size_limit(Some(AUTOMATON_BYTES_MAX))
        .hybrid_cache_capacity(REMEMBERED_BYTES_MAX)
        .which_captures(if captures {
            WhichCaptures::All
        } else {
            WhichCaptures::Implicit
        });
    Regex::builder()
        .configure(config)
        .build_from_hir(hir)
        .map_err(|_| AutomatonTooLarge)
}

struct HirTranslator {
    captures: bool,
    has_word_look: bool,
}

impl HirTranslator {
    fn translate_node(&self, node: &RegexNode) -> Hir {
        match node {
            RegexNode::Empty => Hir::empty(),
            RegexNode::Literal(text) => Hir::literal(text.as_bytes()),
            RegexNode::Class(class) => Hir::class(Class::Unicode(class.to_flat_set())),
            RegexNode::AnyChar => Hir::dot(Dot::AnyChar),
            RegexNode::Look(look) => Hir::look(*look),
            RegexNode::Repeat(node, repeat) => self.translate_repeat(node, *repeat),
            RegexNode::Capture(node, group) => self.translate_capture(node, group),
            RegexNode::Concat(nodes) => Hir::concat(self.translate_nodes(nodes)),
            RegexNode::Alternation(nodes) => Hir::alternation(self.translate_nodes(nodes)),
        }
    }

    fn translate_nodes(&self, nodes: &[RegexNode]) -> Vec<Hir> {
        nodes.iter().map(|n| self.translate_node(n)).collect()
    }

    /// Translates a repetition. `.*` is translated to arbitrary bytes: its neighbours end and start
    /// at character boundaries anyway, the automaton is smaller, and invalid UTF-8 matches as in
    /// Go. If the tree has word boundaries, this is not possible, because one could then match
    /// inside a character.
    fn translate_repeat(&self, node: &RegexNode, repeat: RegexRepeat) -> Hir {
        let RegexRepeat { min, max, greedy } = repeat;
        let any_bytes = matches!(node, RegexNode::AnyChar) && (min, max) == (0, None);
        let sub = if any_bytes && !self.has_word_look {
            Hir::dot(Dot::AnyByte)
        } else {
            self.translate_node(node)
        };
        let sub = Box::new(sub);
        Hir::repetition(hir::Repetition {
            min,
            max,
            greedy,
            sub,
        })
    }

    fn translate_capture(&self, node: &RegexNode, group: &CaptureGroup) -> Hir {
        let sub = self.translate_node(node);
        if !self.captures {
            return sub;
        }
        // Names are not passed on: Go permits several groups with the same name, unlike the
        // automata.
        Hir::capture(hir::Capture {
            index: group.index,
            name: None,
            sub: Box::new(sub),
        })
    }
}

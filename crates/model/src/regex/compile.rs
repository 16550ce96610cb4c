//! Compiles a syntax tree to an automaton.

use super::engine::{AUTOMATON_BYTES_MAX, REMEMBERED_BYTES_MAX};
use super::tree::{Group, Node, Repeat};
use regex_automata::meta::{Config, Regex};
use regex_automata::nfa::thompson::{self, WhichCaptures};
use regex_syntax::hir::{self, Class, Dot, Hir, Look};

/// The error for an automaton that would need more than [`AUTOMATON_BYTES_MAX`]. This is the only
/// possible failure of compiling a tree.
#[derive(Debug)]
pub(super) struct TooLarge;

/// Compiles an automaton that only determines whether a value matches.
pub(super) fn without_captures(tree: &Node) -> Result<Regex, TooLarge> {
    build(&translate(tree, false), false)
}

/// Compiles an automaton that also returns the matches of groups.
pub(super) fn with_captures(tree: &Node) -> Result<Regex, TooLarge> {
    build(&translate(tree, true), true)
}

/// Compiles an automaton that finds matches anywhere in a value and returns the matches of groups.
pub(super) fn anywhere(tree: &Node) -> Result<Regex, TooLarge> {
    let translation = Translation {
        captures: true,
        has_word_look: tree.has_word_look(),
    };
    build(&translation.node(tree), true)
}

/// Returns the expression that must match the whole value, without groups.
pub(super) fn anchored(tree: &Node) -> Hir {
    translate(tree, false)
}

/// Returns the configuration of an automaton with a size limit of `bytes_max`.
pub(super) fn limits(bytes_max: usize) -> thompson::Config {
    thompson::Config::new()
        .utf8(false)
        .nfa_size_limit(Some(bytes_max))
}

fn translate(tree: &Node, captures: bool) -> Hir {
    let translation = Translation {
        captures,
        has_word_look: tree.has_word_look(),
    };
    Hir::concat(vec![
        Hir::look(Look::Start),
        translation.node(tree),
        Hir::look(Look::End),
    ])
}

fn build(hir: &Hir, captures: bool) -> Result<Regex, TooLarge> {
    let config = Config::new()
        .utf8_empty(false)
        .nfa_size_limit(Some(AUTOMATON_BYTES_MAX))
        .hybrid_cache_capacity(REMEMBERED_BYTES_MAX)
        .which_captures(match captures {
            true => WhichCaptures::All,
            false => WhichCaptures::Implicit,
        });
    Regex::builder()
        .configure(config)
        .build_from_hir(hir)
        .map_err(|_| TooLarge)
}

struct Translation {
    captures: bool,
    has_word_look: bool,
}

impl Translation {
    fn node(&self, node: &Node) -> Hir {
        match node {
            Node::Empty => Hir::empty(),
            Node::Literal(text) => Hir::literal(text.as_bytes()),
            Node::Class(class) => Hir::class(Class::Unicode(class.flat())),
            Node::AnyChar => Hir::dot(Dot::AnyChar),
            Node::Look(look) => Hir::look(*look),
            Node::Repeat(node, repeat) => self.repeat(node, *repeat),
            Node::Capture(node, group) => self.capture(node, group),
            Node::Concat(nodes) => Hir::concat(self.nodes(nodes)),
            Node::Alternation(nodes) => Hir::alternation(self.nodes(nodes)),
        }
    }

    fn nodes(&self, nodes: &[Node]) -> Vec<Hir> {
        nodes.iter().map(|n| self.node(n)).collect()
    }

    /// Translates a repetition. `.*` is translated to arbitrary bytes: its neighbours end and start
    /// at character boundaries anyway, the automaton is smaller, and invalid UTF-8 matches as in
    /// Go. If the tree has word boundaries, this is not possible, because one could then match
    /// inside a character.
    fn repeat(&self, node: &Node, repeat: Repeat) -> Hir {
        let Repeat { min, max, greedy } = repeat;
        let any_bytes = matches!(node, Node::AnyChar) && (min, max) == (0, None);
        let sub = match any_bytes && !self.has_word_look {
            true => Hir::dot(Dot::AnyByte),
            false => self.node(node),
        };
        let sub = Box::new(sub);
        Hir::repetition(hir::Repetition {
            min,
            max,
            greedy,
            sub,
        })
    }

    fn capture(&self, node: &Node, group: &Group) -> Hir {
        let sub = self.node(node);
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

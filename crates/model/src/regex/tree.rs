//! The syntax tree of a pattern.
//!
//! Invariant: a tree is at most [`HEIGHT_MAX`] deep, so that what walks it may recurse; a class
//! that holds every character is [`Node::AnyChar`], one that holds a single one a literal.

use regex_syntax::hir::{ClassUnicode, Look};

/// The deepest tree. Go stops at 1,000; the automata's compiler recurses several frames a level
/// and must fit in the 2 MiB stack of a thread, also without optimisation.
pub(super) const HEIGHT_MAX: usize = 500;

/// A part of a pattern.
#[derive(Clone, Debug)]
pub(super) enum Node {
    /// Matches the empty string.
    Empty,
    /// This text; not empty.
    Literal(String),
    /// One of these characters; may be none at all.
    Class(ClassUnicode),
    /// Any character, newlines included.
    AnyChar,
    /// A place between characters.
    Look(Look),
    /// A part repeated.
    Repeat(Box<Node>, Repeat),
    /// A numbered group.
    Capture(Box<Node>, Group),
    /// Parts one behind the other.
    Concat(Vec<Node>),
    /// One of several, the first that fits.
    Alternation(Vec<Node>),
}

/// How often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Repeat {
    /// At least.
    pub min: u32,
    /// At most; `None` is without bound.
    pub max: Option<u32>,
    /// Whether more is preferred to less.
    pub greedy: bool,
}

/// A group's number and name.
#[derive(Clone, Debug)]
pub(super) struct Group {
    /// Counted from 1 by opening parentheses.
    pub index: u32,
    /// `(?P<name>...)`
    pub name: Option<String>,
}

impl Node {
    /// The node for a class: a literal or [`Node::AnyChar`] where it comes to that.
    pub fn class(class: ClassUnicode) -> Self {
        match class.ranges() {
            [r] if r.start() == r.end() => Node::Literal(r.start().into()),
            [r] if r.start() == '\0' && r.end() == char::MAX => Node::AnyChar,
            _ => Node::Class(class),
        }
    }

    /// The parts one behind the other.
    pub fn concat(mut parts: Vec<Node>) -> Self {
        match parts.len() {
            0 => Node::Empty,
            1 => parts.swap_remove(0),
            _ => Node::Concat(parts),
        }
    }

    /// One of `parts`, of which there is at least one.
    pub fn alternation(mut parts: Vec<Node>) -> Self {
        match parts.len() {
            1 => parts.swap_remove(0),
            _ => Node::Alternation(parts),
        }
    }

    /// Whether the tree asks for a word boundary or its absence.
    pub fn has_word_look(&self) -> bool {
        match self {
            Node::Look(look) => matches!(look, Look::WordAscii | Look::WordAsciiNegate),
            Node::Repeat(node, _) | Node::Capture(node, _) => node.has_word_look(),
            Node::Concat(nodes) | Node::Alternation(nodes) => nodes.iter().any(Node::has_word_look),
            _ => false,
        }
    }

    /// Collects the names of groups with their numbers, in the order of the numbers.
    pub fn capture_names(&self, into: &mut Vec<(String, usize)>) {
        match self {
            Node::Capture(node, group) => {
                if let Some(name) = &group.name {
                    into.push((name.clone(), group.index as usize));
                }
                node.capture_names(into);
            }
            Node::Repeat(node, _) => node.capture_names(into),
            Node::Concat(nodes) | Node::Alternation(nodes) => {
                nodes.iter().for_each(|n| n.capture_names(into));
            }
            _ => {}
        }
    }
}

//! The syntax tree of a pattern.
//!
//! Invariant: a tree is at most [`HEIGHT_MAX`] deep, so that what walks it may recurse; a class
//! that holds every character is [`Node::AnyChar`], one that holds a single one a literal, unless
//! it has tables.

use super::class::Class;
use regex_syntax::hir::Look;

/// The deepest tree: Go's number.
pub(super) const HEIGHT_MAX: usize = 1000;

/// A part of a pattern.
#[derive(Clone, Debug)]
pub(super) enum Node {
    /// Matches the empty string.
    Empty,
    /// This text; not empty.
    Literal(String),
    /// One of these characters; may be none at all.
    Class(Box<Class>),
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
    pub fn class(class: Class) -> Self {
        match class.plain().map(|ranges| ranges.ranges()) {
            Some([r]) if r.start() == r.end() => Node::Literal(r.start().into()),
            Some([r]) if r.start() == '\0' && r.end() == char::MAX => Node::AnyChar,
            _ => Node::Class(Box::new(class)),
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

    /// How deep the tree is.
    pub fn height(&self) -> usize {
        1 + match self {
            Node::Repeat(node, _) | Node::Capture(node, _) => node.height(),
            Node::Concat(nodes) | Node::Alternation(nodes) => {
                nodes.iter().map(Node::height).max().unwrap_or(0)
            }
            _ => 0,
        }
    }

    /// Whether the empty value matches.
    pub fn matches_empty(&self) -> bool {
        self.takes_nothing(|look| look != Look::WordAscii)
    }

    /// Whether there may be a place at which it matches without a character.
    pub fn may_take_nothing(&self) -> bool {
        self.takes_nothing(|_| true)
    }

    fn takes_nothing(&self, holds: fn(Look) -> bool) -> bool {
        match self {
            Node::Empty => true,
            Node::Literal(_) | Node::Class(_) | Node::AnyChar => false,
            Node::Look(look) => holds(*look),
            Node::Repeat(node, repeat) => repeat.min == 0 || node.takes_nothing(holds),
            Node::Capture(node, _) => node.takes_nothing(holds),
            Node::Concat(nodes) => nodes.iter().all(|node| node.takes_nothing(holds)),
            Node::Alternation(nodes) => nodes.iter().any(|node| node.takes_nothing(holds)),
        }
    }

    /// How many ranges its classes have, each as often as it may come in turn.
    pub fn ranges_count(&self) -> usize {
        match self {
            Node::Class(class) => class.ranges_count(),
            Node::Capture(node, _) => node.ranges_count(),
            Node::Repeat(node, Repeat { min, max, .. }) => {
                let times = max.unwrap_or(*min).max(1) as usize;
                node.ranges_count().saturating_mul(times)
            }
            Node::Concat(nodes) | Node::Alternation(nodes) => {
                let counts = nodes.iter().map(Node::ranges_count);
                counts.fold(0, usize::saturating_add)
            }
            _ => 0,
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

    /// The number of the last group.
    pub fn groups_count(&self) -> usize {
        match self {
            Node::Capture(node, group) => node.groups_count().max(group.index as usize),
            Node::Repeat(node, _) => node.groups_count(),
            Node::Concat(nodes) | Node::Alternation(nodes) => {
                nodes.iter().map(Node::groups_count).max().unwrap_or(0)
            }
            _ => 0,
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

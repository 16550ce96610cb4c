//! The syntax tree of a pattern.
//!
//! Invariants: the height of a tree is at most [`HEIGHT_MAX`], so functions may recurse over it. A
//! class that contains every character is a [`Node::AnyChar`], and a class of a single character is
//! a literal, unless it has tables.

use super::class::Class;
use regex_syntax::hir::Look;

/// The maximum height of a tree, which is the limit of Go.
pub(super) const HEIGHT_MAX: usize = 1000;

/// A node of the syntax tree: a part of a pattern.
#[derive(Clone, Debug)]
pub(super) enum Node {
    /// Matches only the empty string.
    Empty,
    /// Matches exactly this text, which is not empty.
    Literal(String),
    /// Matches one of these characters. The class may be empty.
    Class(Box<Class>),
    /// Matches any character, including newlines; a `.` with the flag `s`.
    AnyChar,
    /// Matches an empty string at certain positions, such as `^` or `\b`.
    Look(Look),
    /// A repetition of a part, such as `x*` or `x{2,5}`.
    Repeat(Box<Node>, Repeat),
    /// A numbered group, whose match can be returned.
    Capture(Box<Node>, Group),
    /// A concatenation of parts, which match one after another.
    Concat(Vec<Node>),
    /// An alternation: the first part that matches is preferred.
    Alternation(Vec<Node>),
}

/// The minimum and maximum count of a repetition, and its preference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Repeat {
    /// The minimum number of repetitions, zero for `*` and `?`.
    pub min: u32,
    /// The maximum number of repetitions, or `None` if there is no limit.
    pub max: Option<u32>,
    /// True if more repetitions are preferred to fewer, as by default.
    pub greedy: bool,
}

/// The number and the name of a capturing group.
#[derive(Clone, Debug)]
pub(super) struct Group {
    /// The number of the group, counted from 1 in order of opening parentheses.
    pub index: u32,
    /// The name of a group `(?P<name>...)`, if it has one.
    pub name: Option<String>,
}

impl Node {
    /// Creates the node of a class, which is a literal or [`Node::AnyChar`] if it is equivalent.
    pub fn class(class: Class) -> Self {
        match class.plain().map(|ranges| ranges.ranges()) {
            Some([r]) if r.start() == r.end() => Node::Literal(r.start().into()),
            Some([r]) if r.start() == '\0' && r.end() == char::MAX => Node::AnyChar,
            _ => Node::Class(Box::new(class)),
        }
    }

    /// Creates a concatenation of the parts, or a simpler node for fewer than two.
    pub fn concat(mut parts: Vec<Node>) -> Self {
        match parts.len() {
            0 => Node::Empty,
            1 => parts.swap_remove(0),
            _ => Node::Concat(parts),
        }
    }

    /// Creates an alternation of `parts`, of which there must be at least one.
    pub fn alternation(mut parts: Vec<Node>) -> Self {
        match parts.len() {
            1 => parts.swap_remove(0),
            _ => Node::Alternation(parts),
        }
    }

    /// Returns the height of the tree, at least one. Recursive.
    pub fn height(&self) -> usize {
        1 + match self {
            Node::Repeat(node, _) | Node::Capture(node, _) => node.height(),
            Node::Concat(nodes) | Node::Alternation(nodes) => {
                nodes.iter().map(Node::height).max().unwrap_or(0)
            }
            _ => 0,
        }
    }

    /// Returns whether the pattern matches the empty value.
    pub fn matches_empty(&self) -> bool {
        self.takes_nothing(|look| look != Look::WordAscii)
    }

    /// Returns whether the node can match an empty string at some position.
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

    /// Returns the number of ranges in all classes. Those in repetitions are multiplied by the
    /// count.
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

    /// Returns whether the tree contains a word boundary or its negation.
    pub fn has_word_look(&self) -> bool {
        match self {
            Node::Look(look) => matches!(look, Look::WordAscii | Look::WordAsciiNegate),
            Node::Repeat(node, _) | Node::Capture(node, _) => node.has_word_look(),
            Node::Concat(nodes) | Node::Alternation(nodes) => nodes.iter().any(Node::has_word_look),
            _ => false,
        }
    }

    /// Returns the number of the last group, which is the number of groups.
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

    /// Appends the names of groups with their numbers, in order of the numbers.
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

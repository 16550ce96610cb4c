//! The syntax tree of a pattern.
//!
//! Invariants: the height of a tree is at most [`HEIGHT_MAX`], so functions may recurse over it. A
//! class that contains every character is a [`RegexNode::AnyChar`], and a class of a single
//! character is a literal, unless it has tables.

use super::class::CharClass;
use regex_syntax::hir::Look;

/// The maximum height of a tree, which is the limit of Go.
pub(super) const HEIGHT_MAX: usize = 1000;

/// A node of the syntax tree: a part of a pattern.
#[derive(Clone, Debug)]
pub(super) enum RegexNode {
    /// Matches only the empty string.
    Empty,
    /// Matches exactly this text, which is not empty.
    Literal(String),
    /// Matches one of these characters. The class may be empty.
    Class(Box<CharClass>),
    /// Matches any character, including newlines; a `.` with the flag `s`.
    AnyChar,
    /// Matches an empty string at certain positions, such as `^` or `\b`.
    Look(Look),
    /// A repetition of a part, such as `x*` or `x{2,5}`.
    Repeat(Box<RegexNode>, RegexRepeat),
    /// A numbered group, whose match can be returned.
    Capture(Box<RegexNode>, CaptureGroup),
    /// A concatenation of parts, which match one after another.
    Concat(Vec<RegexNode>),
    /// An alternation: the first part that matches is preferred.
    Alternation(Vec<RegexNode>),
}

/// The minimum and maximum count of a repetition, and its preference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RegexRepeat {
    /// The minimum number of repetitions, zero for `*` and `?`.
    pub min: u32,
    /// The maximum number of repetitions, or `None` if there is no limit.
    pub max: Option<u32>,
    /// True if more repetitions are preferred to fewer, as by default.
    pub greedy: bool,
}

/// The number and the name of a capturing group.
#[derive(Clone, Debug)]
pub(super) struct CaptureGroup {
    /// The number of the group, counted from 1 in order of opening parentheses.
    pub index: u32,
    /// The name of a group `(?P<name>...)`, if it has one.
    pub name: Option<String>,
}

impl RegexNode {
    /// Creates the node of a class, which is a literal or [`RegexNode::AnyChar`] if it is
    /// equivalent.
    pub fn class(class: CharClass) -> Self {
        match class.plain_ranges().map(|ranges| ranges.ranges()) {
            Some([r]) if r.start() == r.end() => RegexNode::Literal(r.start().into()),
            Some([r]) if r.start() == '\0' && r.end() == char::MAX => RegexNode::AnyChar,
            _ => RegexNode::Class(Box::new(class)),
        }
    }

    /// Creates a concatenation of the parts, or a simpler node for fewer than two.
    pub fn concat(mut parts: Vec<RegexNode>) -> Self {
        match parts.len() {
            0 => RegexNode::Empty,
            1 => parts.swap_remove(0),
            _ => RegexNode::Concat(parts),
        }
    }

    /// Creates an alternation of `parts`, of which there must be at least one.
    pub fn alternation(mut parts: Vec<RegexNode>) -> Self {
        match parts.len() {
            1 => parts.swap_remove(0),
            _ => RegexNode::Alternation(parts),
        }
    }

    /// Returns the height of the tree, at least one. Recursive.
    pub fn height(&self) -> usize {
        1 + match self {
            RegexNode::Repeat(node, _) | RegexNode::Capture(node, _) => node.height(),
            RegexNode::Concat(nodes) | RegexNode::Alternation(nodes) => {
                nodes.iter().map(RegexNode::height).max().unwrap_or(0)
            }
            _ => 0,
        }
    }

    /// Returns whether the pattern matches the empty value.
    pub fn matches_empty(&self) -> bool {
        self.is_nullable(|look| look != Look::WordAscii)
    }

    /// Returns whether the node can match an empty string at some position.
    pub fn can_match_empty(&self) -> bool {
        self.is_nullable(|_| true)
    }

    fn is_nullable(&self, holds: fn(Look) -> bool) -> bool {
        match self {
            RegexNode::Empty => true,
            RegexNode::Literal(_) | RegexNode::Class(_) | RegexNode::AnyChar => false,
            RegexNode::Look(look) => holds(*look),
            RegexNode::Repeat(node, repeat) => repeat.min == 0 || node.is_nullable(holds),
            RegexNode::Capture(node, _) => node.is_nullable(holds),
            RegexNode::Concat(nodes) => nodes.iter().all(|node| node.is_nullable(holds)),
            RegexNode::Alternation(nodes) => nodes.iter().any(|node| node.is_nullable(holds)),
        }
    }

    /// Returns the number of ranges in all classes. Those in repetitions are multiplied by the
    /// count.
    pub fn ranges_count(&self) -> usize {
        match self {
            RegexNode::Class(class) => class.ranges_count(),
            RegexNode::Capture(node, _) => node.ranges_count(),
            RegexNode::Repeat(node, RegexRepeat { min, max, .. }) => {
                let times = max.unwrap_or(*min).max(1) as usize;
                node.ranges_count().saturating_mul(times)
            }
            RegexNode::Concat(nodes) | RegexNode::Alternation(nodes) => {
                let counts = nodes.iter().map(RegexNode::ranges_count);
                counts.fold(0, usize::saturating_add)
            }
            _ => 0,
        }
    }

    /// Returns whether the tree contains a word boundary or its negation.
    pub fn has_word_look(&self) -> bool {
        match self {
            RegexNode::Look(look) => matches!(look, Look::WordAscii | Look::WordAsciiNegate),
            RegexNode::Repeat(node, _) | RegexNode::Capture(node, _) => node.has_word_look(),
            RegexNode::Concat(nodes) | RegexNode::Alternation(nodes) => {
                nodes.iter().any(RegexNode::has_word_look)
            }
            _ => false,
        }
    }

    /// Returns the number of the last group, which is the number of groups.
    pub fn groups_count(&self) -> usize {
        match self {
            RegexNode::Capture(node, group) => node.groups_count().max(group.index as usize),
            RegexNode::Repeat(node, _) => node.groups_count(),
            RegexNode::Concat(nodes) | RegexNode::Alternation(nodes) => {
                nodes.iter().map(RegexNode::groups_count).max().unwrap_or(0)
            }
            _ => 0,
        }
    }

    /// Appends the names of groups with their numbers, in order of the numbers.
    pub fn append_capture_names(&self, into: &mut Vec<(String, usize)>) {
        match self {
            RegexNode::Capture(node, group) => {
                if let Some(name) = &group.name {
                    into.push((name.clone(), group.index as usize));
                }
                node.append_capture_names(into);
            }
            RegexNode::Repeat(node, _) => node.append_capture_names(into),
            RegexNode::Concat(nodes) | RegexNode::Alternation(nodes) => {
                nodes.iter().for_each(|n| n.append_capture_names(into));
            }
            _ => {}
        }
    }
}

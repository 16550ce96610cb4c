//! Programs over characters, used if an automaton would be too large.
//!
//! As in Go, a character class takes one instruction, regardless of its size. `\pL{1000}` therefore
//! has a thousand instructions of eight bytes, which share one class. The number of instructions
//! can be computed before the program is created: see [`len`].
//!
//! Invariant: the loop of `x*` never contains an empty match. If `x` can match the empty string,
//! the loop is compiled as `(x+)?`.

use super::class::CharClass;
use super::tree::{RegexNode, RegexRepeat};
use regex_syntax::hir::Look;
use std::collections::HashMap;

/// An instruction. The next one follows, except after [`RegexInstruction::Jump`] and
/// [`RegexInstruction::Match`].
#[derive(Clone, Copy, Debug)]
pub(super) enum RegexInstruction {
    /// Matches exactly this character.
    Char(char),
    /// Matches any character, including newlines.
    Any,
    /// Matches a character of the class with this index.
    Class(u32),
    /// Matches at a position between characters, such as a word boundary.
    Look(Look),
    /// Continues with the next instruction; if that fails, with this one.
    Try(u32),
    /// Continues with this instruction; if that fails, with the next one.
    Prefer(u32),
    /// Continues with the instruction at this index.
    Jump(u32),
    /// Records the position as the group bound with this index.
    Save(u32),
    /// The whole pattern has matched up to this position.
    Match,
}

/// The instructions of a program and the classes that they refer to.
#[derive(Debug)]
pub(super) struct RegexProgram {
    pub insts: Vec<RegexInstruction>,
    classes: Vec<CharClass>,
}

/// Returns the number of instructions for `tree`, which is an upper limit.
pub(super) fn len(tree: &RegexNode) -> u64 {
    body_len(tree).saturating_add(1)
}

fn body_len(node: &RegexNode) -> u64 {
    match node {
        RegexNode::Empty => 0,
        RegexNode::Literal(text) => text.chars().count() as u64,
        RegexNode::Class(_) | RegexNode::AnyChar | RegexNode::Look(_) => 1,
        RegexNode::Capture(node, _) => body_len(node).saturating_add(2),
        RegexNode::Concat(nodes) => sum(nodes),
        RegexNode::Alternation(nodes) => sum(nodes).saturating_add(2 * (nodes.len() as u64 - 1)),
        RegexNode::Repeat(node, repeat) => {
            let once = body_len(node);
            let copies = match repeat.max {
                Some(max) => once.saturating_add(1).saturating_mul(u64::from(max)),
                None => once.saturating_mul(u64::from(repeat.min.max(1))),
            };
            copies.saturating_add(3)
        }
    }
}

fn sum(nodes: &[RegexNode]) -> u64 {
    let lens = nodes.iter().map(body_len);
    lens.fold(0, u64::saturating_add)
}

impl RegexProgram {
    /// Compiles `tree`. With `captures`, the program records the bounds of groups.
    pub fn new(tree: &RegexNode, captures: bool) -> Self {
        let mut compiler = RegexCompiler {
            insts: Vec::with_capacity(len(tree) as usize),
            classes: Vec::new(),
            numbers: HashMap::new(),
            captures,
        };
        compiler.compile_node(tree);
        compiler.insts.push(RegexInstruction::Match);
        Self {
            insts: compiler.insts,
            classes: compiler.classes.into_iter().cloned().collect(),
        }
    }

    /// Returns whether the instruction matches the character `c`.
    pub fn can_match(&self, inst: RegexInstruction, c: char) -> bool {
        match inst {
            RegexInstruction::Char(own) => own == c,
            RegexInstruction::Any => true,
            RegexInstruction::Class(class) => self.classes[class as usize].contains(c),
            _ => false,
        }
    }
}

struct RegexCompiler<'t> {
    insts: Vec<RegexInstruction>,
    classes: Vec<&'t CharClass>,
    /// The indexes of classes by their address in the tree, because repetitions compile the same
    /// node several times.
    numbers: HashMap<*const CharClass, u32>,
    captures: bool,
}

impl<'t> RegexCompiler<'t> {
    fn next_index(&self) -> u32 {
        self.insts.len() as u32
    }

    /// Adds a placeholder for an instruction that is set later.
    fn push_placeholder(&mut self) -> usize {
        self.insts.push(RegexInstruction::Match);
        self.insts.len() - 1
    }

    fn compile_node(&mut self, node: &'t RegexNode) {
        match node {
            RegexNode::Empty => {}
            RegexNode::Literal(text) => self.insts.extend(text.chars().map(RegexInstruction::Char)),
            RegexNode::Class(class) => self.add_class(class),
            RegexNode::AnyChar => self.insts.push(RegexInstruction::Any),
            RegexNode::Look(look) => self.insts.push(RegexInstruction::Look(*look)),
            RegexNode::Repeat(node, repeat) => self.compile_repeat(node, *repeat),
            RegexNode::Capture(node, group) if self.captures => {
                self.insts.push(RegexInstruction::Save(2 * group.index));
                self.compile_node(node);
                self.insts.push(RegexInstruction::Save(2 * group.index + 1));
            }
            RegexNode::Capture(node, _) => self.compile_node(node),
            RegexNode::Concat(nodes) => nodes.iter().for_each(|node| self.compile_node(node)),
            RegexNode::Alternation(nodes) => self.compile_alternation(nodes),
        }
    }

    fn add_class(&mut self, class: &'t CharClass) {
        let number = *self.numbers.entry(class).or_insert_with(|| {
            self.classes.push(class);
            self.classes.len() as u32 - 1
        });
        self.insts.push(RegexInstruction::Class(number));
    }

    fn compile_alternation(&mut self, nodes: &'t [RegexNode]) {
        let Some((last, others)) = nodes.split_last() else {
            return;
        };
        let mut ends = Vec::with_capacity(others.len());
        for node in others {
            let choice = self.push_placeholder();
            self.compile_node(node);
            ends.push(self.push_placeholder());
            self.insts[choice] = RegexInstruction::Try(self.next_index());
        }
        self.compile_node(last);
        for end in ends {
            self.insts[end] = RegexInstruction::Jump(self.next_index());
        }
    }

    fn compile_repeat(&mut self, node: &'t RegexNode, repeat: RegexRepeat) {
        let RegexRepeat { min, max, greedy } = repeat;
        for _ in 1..min {
            self.compile_node(node);
        }
        match max {
            None if min > 0 => self.compile_plus(node, greedy),
            None if node.can_match_empty() => {
                let choice = self.push_placeholder();
                self.compile_plus(node, greedy);
                self.insts[choice] = branch_past(greedy, self.next_index());
            }
            None => {
                let choice = self.push_placeholder();
                self.compile_node(node);
                self.insts.push(RegexInstruction::Jump(choice as u32));
                self.insts[choice] = branch_past(greedy, self.next_index());
            }
            Some(max) => {
                if min > 0 {
                    self.compile_node(node);
                }
                let mut choices = Vec::new();
                for _ in min..max {
                    choices.push(self.push_placeholder());
                    self.compile_node(node);
                }
                for choice in choices {
                    self.insts[choice] = branch_past(greedy, self.next_index());
                }
            }
        }
    }

    /// Compiles the repetition `x+`, whose loop jumps back to its start.
    fn compile_plus(&mut self, node: &'t RegexNode, greedy: bool) {
        let start = self.next_index();
        self.compile_node(node);
        self.insts.push(if greedy {
            RegexInstruction::Prefer(start)
        } else {
            RegexInstruction::Try(start)
        });
    }
}

/// Returns the instruction before an optional part that ends at `end`.
fn branch_past(greedy: bool, end: u32) -> RegexInstruction {
    if greedy {
        RegexInstruction::Try(end)
    } else {
        RegexInstruction::Prefer(end)
    }
}

/// The kind of character on one side of a position in a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum NeighborCharKind {
    /// No character: the value starts or ends at this position.
    Edge,
    /// A newline character, which `^` and `$` consider in multi-line mode.
    Newline,
    /// A word character: a letter, a digit or an underscore.
    Word,
    /// Any other character, which matters for no assertion.
    Other,
}

impl NeighborCharKind {
    /// Returns the kind of the character `c`.
    pub fn from_char(c: char) -> Self {
        match c {
            '\n' => Self::Newline,
            '_' => Self::Word,
            c if c.is_ascii_alphanumeric() => Self::Word,
            _ => Self::Other,
        }
    }

    /// Returns whether the assertion `look` holds between `before` and `behind`.
    pub fn is_satisfied(look: Look, before: Self, behind: Self) -> bool {
        let is_boundary = (before == Self::Word) != (behind == Self::Word);
        match look {
            Look::Start => before == Self::Edge,
            Look::End => behind == Self::Edge,
            Look::StartLF => matches!(before, Self::Edge | Self::Newline),
            Look::EndLF => matches!(behind, Self::Edge | Self::Newline),
            Look::WordAscii => is_boundary,
            Look::WordAsciiNegate => !is_boundary,
            // The parser creates no other kinds.
            _ => false,
        }
    }
}

/// Returns the first character of `bytes` and its length. As in Go, an invalid byte counts as one
/// character.
pub(super) fn first_char(bytes: &[u8]) -> Option<(char, usize)> {
    let first = *bytes.first()?;
    if first.is_ascii() {
        return Some((first.into(), 1));
    }
    let of_length = |length: usize| {
        let text = std::str::from_utf8(bytes.get(..length)?).ok()?;
        Some((text.chars().next()?, length))
    };
    let whole = (2..=4).find_map(of_length);
    Some(whole.unwrap_or((char::REPLACEMENT_CHARACTER, 1)))
}

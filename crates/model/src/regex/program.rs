//! Programs over characters, used if an automaton would be too large.
//!
//! As in Go, a character class takes one instruction, regardless of its size. `\pL{1000}` therefore
//! has a thousand instructions of eight bytes, which share one class. The number of instructions
//! can be computed before the program is created: see [`len`].
//!
//! Invariant: the loop of `x*` never contains an empty match. If `x` can match the empty string,
//! the loop is compiled as `(x+)?`.

use super::class::Class;
use super::tree::{Node, Repeat};
use regex_syntax::hir::Look;
use std::collections::HashMap;

/// An instruction. The next one follows, except after [`Inst::Jump`] and [`Inst::Match`].
#[derive(Clone, Copy, Debug)]
pub(super) enum Inst {
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
pub(super) struct Program {
    pub insts: Vec<Inst>,
    classes: Vec<Class>,
}

/// Returns the number of instructions for `tree`, which is an upper limit.
pub(super) fn len(tree: &Node) -> u64 {
    body_len(tree).saturating_add(1)
}

fn body_len(node: &Node) -> u64 {
    match node {
        Node::Empty => 0,
        Node::Literal(text) => text.chars().count() as u64,
        Node::Class(_) | Node::AnyChar | Node::Look(_) => 1,
        Node::Capture(node, _) => body_len(node).saturating_add(2),
        Node::Concat(nodes) => sum(nodes),
        Node::Alternation(nodes) => sum(nodes).saturating_add(2 * (nodes.len() as u64 - 1)),
        Node::Repeat(node, repeat) => {
            let once = body_len(node);
            let copies = match repeat.max {
                Some(max) => once.saturating_add(1).saturating_mul(u64::from(max)),
                None => once.saturating_mul(u64::from(repeat.min.max(1))),
            };
            copies.saturating_add(3)
        }
    }
}

fn sum(nodes: &[Node]) -> u64 {
    let lens = nodes.iter().map(body_len);
    lens.fold(0, u64::saturating_add)
}

impl Program {
    /// Compiles `tree`. With `captures`, the program records the bounds of groups.
    pub fn new(tree: &Node, captures: bool) -> Self {
        let mut compiler = Compiler {
            insts: Vec::with_capacity(len(tree) as usize),
            classes: Vec::new(),
            numbers: HashMap::new(),
            captures,
        };
        compiler.node(tree);
        compiler.insts.push(Inst::Match);
        Self {
            insts: compiler.insts,
            classes: compiler.classes.into_iter().cloned().collect(),
        }
    }

    /// Returns whether the instruction matches the character `c`.
    pub fn takes(&self, inst: Inst, c: char) -> bool {
        match inst {
            Inst::Char(own) => own == c,
            Inst::Any => true,
            Inst::Class(class) => self.classes[class as usize].contains(c),
            _ => false,
        }
    }
}

struct Compiler<'t> {
    insts: Vec<Inst>,
    classes: Vec<&'t Class>,
    /// The indexes of classes by their address in the tree, because repetitions compile the same
    /// node several times.
    numbers: HashMap<*const Class, u32>,
    captures: bool,
}

impl<'t> Compiler<'t> {
    fn here(&self) -> u32 {
        self.insts.len() as u32
    }

    /// Adds a placeholder for an instruction that is set later.
    fn hole(&mut self) -> usize {
        self.insts.push(Inst::Match);
        self.insts.len() - 1
    }

    fn node(&mut self, node: &'t Node) {
        match node {
            Node::Empty => {}
            Node::Literal(text) => self.insts.extend(text.chars().map(Inst::Char)),
            Node::Class(class) => self.class(class),
            Node::AnyChar => self.insts.push(Inst::Any),
            Node::Look(look) => self.insts.push(Inst::Look(*look)),
            Node::Repeat(node, repeat) => self.repeat(node, *repeat),
            Node::Capture(node, group) if self.captures => {
                self.insts.push(Inst::Save(2 * group.index));
                self.node(node);
                self.insts.push(Inst::Save(2 * group.index + 1));
            }
            Node::Capture(node, _) => self.node(node),
            Node::Concat(nodes) => nodes.iter().for_each(|node| self.node(node)),
            Node::Alternation(nodes) => self.alternation(nodes),
        }
    }

    fn class(&mut self, class: &'t Class) {
        let number = *self.numbers.entry(class).or_insert_with(|| {
            self.classes.push(class);
            self.classes.len() as u32 - 1
        });
        self.insts.push(Inst::Class(number));
    }

    fn alternation(&mut self, nodes: &'t [Node]) {
        let Some((last, others)) = nodes.split_last() else {
            return;
        };
        let mut ends = Vec::with_capacity(others.len());
        for node in others {
            let choice = self.hole();
            self.node(node);
            ends.push(self.hole());
            self.insts[choice] = Inst::Try(self.here());
        }
        self.node(last);
        for end in ends {
            self.insts[end] = Inst::Jump(self.here());
        }
    }

    fn repeat(&mut self, node: &'t Node, repeat: Repeat) {
        let Repeat { min, max, greedy } = repeat;
        for _ in 1..min {
            self.node(node);
        }
        match max {
            None if min > 0 => self.plus(node, greedy),
            None if node.may_take_nothing() => {
                let choice = self.hole();
                self.plus(node, greedy);
                self.insts[choice] = skip(greedy, self.here());
            }
            None => {
                let choice = self.hole();
                self.node(node);
                self.insts.push(Inst::Jump(choice as u32));
                self.insts[choice] = skip(greedy, self.here());
            }
            Some(max) => {
                if min > 0 {
                    self.node(node);
                }
                let mut choices = Vec::new();
                for _ in min..max {
                    choices.push(self.hole());
                    self.node(node);
                }
                for choice in choices {
                    self.insts[choice] = skip(greedy, self.here());
                }
            }
        }
    }

    /// Compiles the repetition `x+`, whose loop jumps back to its start.
    fn plus(&mut self, node: &'t Node, greedy: bool) {
        let start = self.here();
        self.node(node);
        self.insts.push(match greedy {
            true => Inst::Prefer(start),
            false => Inst::Try(start),
        });
    }
}

/// Returns the instruction before an optional part that ends at `end`.
fn skip(greedy: bool, end: u32) -> Inst {
    match greedy {
        true => Inst::Try(end),
        false => Inst::Prefer(end),
    }
}

/// The kind of character on one side of a position in a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Side {
    /// No character: the value starts or ends at this position.
    Edge,
    /// A newline character, which `^` and `$` consider in multi-line mode.
    Newline,
    /// A word character: a letter, a digit or an underscore.
    Word,
    /// Any other character, which matters for no assertion.
    Other,
}

impl Side {
    /// Returns the kind of the character `c`.
    pub fn of(c: char) -> Self {
        match c {
            '\n' => Self::Newline,
            '_' => Self::Word,
            c if c.is_ascii_alphanumeric() => Self::Word,
            _ => Self::Other,
        }
    }

    /// Returns whether the assertion `look` holds between `before` and `behind`.
    pub fn holds(look: Look, before: Self, behind: Self) -> bool {
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

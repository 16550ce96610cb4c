//! Reads a pattern as Go's `regexp/syntax` does with its flags `Perl | DotNL`.
//!
//! The parser keeps its open groups on a stack of its own, so that no text makes it recurse, and
//! counts what the tree takes as it grows. Facts of the language (what is an error, which part of
//! the text an error shows) follow Go 1.26.

mod atom;

use super::TREE_BYTES_MAX;
use super::class::ClassMembers;
use super::tree::{Group, HEIGHT_MAX, Node, Repeat};

/// Go's text for a pattern beyond its limits.
pub(super) const TOO_LARGE: &str = "expression too large";

/// The most that a counted repetition may ask for, nested ones multiplied.
const REPEAT_MAX: u32 = 1000;

/// What a node takes besides its text and ranges: the node, its heap blocks, and its copy in the
/// form that the automata's compiler reads.
pub(super) const NODE_BYTES: usize = 192;

/// What a range of a class takes, in the same two forms.
const RANGE_BYTES: usize = 16;

/// Why a pattern is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SyntaxError<'p> {
    /// Go's text for the error.
    pub code: &'static str,
    /// The part of the pattern that Go shows.
    pub expression: &'p str,
}

type Parsed<'p, T> = Result<T, SyntaxError<'p>>;

fn fail<'p, T>(code: &'static str, expression: &'p str) -> Parsed<'p, T> {
    Err(SyntaxError { code, expression })
}

/// The tree of `pattern`.
pub(super) fn parse(pattern: &str) -> Parsed<'_, Node> {
    let mut parser = Parser::new(pattern);
    while let Some(next) = parser.peek() {
        parser.token(next)?;
    }
    parser.finish()
}

#[derive(Clone, Copy, Debug)]
struct Flags {
    fold_case: bool,
    multi_line: bool,
    dot_matches_newline: bool,
    swap_greed: bool,
}

/// A node with the height of its tree.
type Item = (Node, usize);

/// A group that is still open; the bottom one is the whole pattern.
#[derive(Debug)]
struct Frame {
    group: Option<Group>,
    flags_outside: Flags,
    branches: Vec<Item>,
    items: Vec<Item>,
    /// Literal characters behind the last item.
    text: String,
}

#[derive(Debug)]
struct Parser<'p> {
    pattern: &'p str,
    at: usize,
    flags: Flags,
    frames: Vec<Frame>,
    group_count: u32,
    tree_bytes: usize,
    /// Where the repetition operator just read starts: another one must not follow it.
    repeat_at: Option<usize>,
    /// Where the last `:]` of the pattern stands.
    named_class_end: Option<usize>,
}

impl<'p> Parser<'p> {
    fn new(pattern: &'p str) -> Self {
        let flags = Flags {
            fold_case: false,
            multi_line: false,
            dot_matches_newline: true,
            swap_greed: false,
        };
        Self {
            pattern,
            at: 0,
            flags,
            frames: vec![Frame::new(None, flags)],
            group_count: 0,
            tree_bytes: 0,
            repeat_at: None,
            named_class_end: pattern.rfind(":]"),
        }
    }

    fn rest(&self) -> &'p str {
        &self.pattern[self.at..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at += c.len_utf8();
        Some(c)
    }

    fn frame(&mut self) -> &mut Frame {
        self.frames
            .last_mut()
            .expect("the frame of the whole pattern stays until the end")
    }

    /// Reads what starts with `next`, which is not yet consumed.
    fn token(&mut self, next: char) -> Parsed<'p, ()> {
        let previous_repeat_at = self.repeat_at.take();
        match next {
            '(' if self.rest().starts_with("(?") => self.group_with_flags(),
            '(' => {
                self.at += 1;
                self.open_numbered(None)
            }
            '|' => {
                self.at += 1;
                let branch = self.frame().take_branch();
                self.frame().branches.push(branch);
                self.charge(NODE_BYTES)
            }
            ')' => {
                self.at += 1;
                self.close()
            }
            '*' => self.repeat_operator(0, None, 1, previous_repeat_at),
            '+' => self.repeat_operator(1, None, 1, previous_repeat_at),
            '?' => self.repeat_operator(0, Some(1), 1, previous_repeat_at),
            '{' => match counted_repeat(self.rest()) {
                Some(counted) => self.counted(counted, previous_repeat_at),
                None => self.literal_char(),
            },
            '[' | '.' | '^' | '$' | '\\' => self.atom(next),
            _ => self.literal_char(),
        }
    }

    fn literal_char(&mut self) -> Parsed<'p, ()> {
        match self.next() {
            Some(c) => self.push_char(c as u32),
            None => Ok(()),
        }
    }

    /// Adds a literal character in the cases that the flags ask for.
    fn push_char(&mut self, code_point: u32) -> Parsed<'p, ()> {
        let c = char::from_u32(code_point);
        let Some(c) = c.filter(|c| !self.flags.fold_case || !has_case(*c)) else {
            let mut members = ClassMembers::new(self.flags.fold_case);
            members.add_range(code_point, code_point);
            let class = members.finish(false);
            let ranges = class.ranges().len();
            return self.push(Node::class(class), ranges);
        };
        self.frame().text.push(c);
        self.charge(c.len_utf8())
    }

    /// Adds a node without parts; a class of `ranges` ranges, or none.
    fn push(&mut self, node: Node, ranges: usize) -> Parsed<'p, ()> {
        self.charge(NODE_BYTES + ranges * RANGE_BYTES)?;
        if let Node::Literal(text) = &node {
            self.frame().text.push_str(text);
            return Ok(());
        }
        self.frame().end_text();
        self.frame().items.push((node, 1));
        Ok(())
    }

    fn charge(&mut self, bytes: usize) -> Parsed<'p, ()> {
        self.tree_bytes += bytes;
        if self.tree_bytes > TREE_BYTES_MAX {
            return fail(TOO_LARGE, self.pattern);
        }
        Ok(())
    }

    fn open_numbered(&mut self, name: Option<String>) -> Parsed<'p, ()> {
        self.group_count += 1;
        let index = self.group_count;
        let outside = self.flags;
        self.open(Some(Group { index, name }), outside)
    }

    fn open(&mut self, group: Option<Group>, flags_outside: Flags) -> Parsed<'p, ()> {
        self.charge(2 * NODE_BYTES)?;
        self.frames.push(Frame::new(group, flags_outside));
        if self.frames.len() > HEIGHT_MAX {
            return fail("expression nests too deeply", self.pattern);
        }
        Ok(())
    }

    fn close(&mut self) -> Parsed<'p, ()> {
        let is_open = self.frames.len() > 1;
        let Some(frame) = self.frames.pop().filter(|_| is_open) else {
            return fail("unexpected )", self.pattern);
        };
        self.flags = frame.flags_outside;
        let (mut node, mut height) = frame.finish();
        if let Some(group) = node.1 {
            node.0 = Node::Capture(Box::new(node.0), group);
            height += 1;
        }
        self.check_height(height)?;
        self.frame().end_text();
        self.frame().items.push((node.0, height));
        Ok(())
    }

    fn check_height(&self, height: usize) -> Parsed<'p, ()> {
        if height > HEIGHT_MAX {
            return fail("expression nests too deeply", self.pattern);
        }
        Ok(())
    }

    fn finish(mut self) -> Parsed<'p, Node> {
        if self.frames.len() > 1 {
            return fail("missing closing )", self.pattern);
        }
        match self.frames.pop() {
            Some(frame) => {
                let ((node, _), height) = frame.finish();
                self.check_height(height)?;
                Ok(node)
            }
            None => Ok(Node::Empty),
        }
    }

    /// `{min}`, `{min,}` or `{min,max}`, which [`counted_repeat`] has read.
    fn counted(&mut self, counted: Counted, previous_at: Option<usize>) -> Parsed<'p, ()> {
        let Counted { min, max, bytes } = counted;
        let too_many = min > REPEAT_MAX || max.is_some_and(|max| max > REPEAT_MAX || min > max);
        if too_many {
            return fail("invalid repeat count", &self.rest()[..bytes]);
        }
        self.repeat_operator(min, max, bytes, previous_at)
    }

    /// Repeats the last item; the operator at hand is `bytes` long, a `?` behind it not counted.
    fn repeat_operator(
        &mut self,
        min: u32,
        max: Option<u32>,
        bytes: usize,
        previous_at: Option<usize>,
    ) -> Parsed<'p, ()> {
        let start = self.at;
        self.at += bytes;
        let lazy = self.rest().starts_with('?');
        self.at += usize::from(lazy);
        if let Some(previous_at) = previous_at {
            let both = &self.pattern[previous_at..self.at];
            return fail("invalid nested repetition operator", both);
        }
        let operator = &self.pattern[start..self.at];
        let Some((node, height)) = self.frame().take_last() else {
            return fail("missing argument to repetition operator", operator);
        };
        let greedy = lazy == self.flags.swap_greed;
        let repeat = Repeat { min, max, greedy };
        let node = Node::Repeat(Box::new(node), repeat);
        if (min >= 2 || max.is_some_and(|m| m >= 2)) && repeat_product(&node) > REPEAT_MAX {
            return fail("invalid repeat count", operator);
        }
        self.charge(NODE_BYTES)?;
        self.check_height(height + 1)?;
        self.frame().items.push((node, height + 1));
        self.repeat_at = Some(start);
        Ok(())
    }
}

impl Frame {
    fn new(group: Option<Group>, flags_outside: Flags) -> Self {
        Self {
            group,
            flags_outside,
            branches: Vec::new(),
            items: Vec::new(),
            text: String::new(),
        }
    }

    /// Turns the literal characters read into an item.
    fn end_text(&mut self) {
        if !self.text.is_empty() {
            let text = std::mem::take(&mut self.text);
            self.items.push((Node::Literal(text), 1));
        }
    }

    /// Takes away what a repetition operator applies to: the last character or item.
    fn take_last(&mut self) -> Option<Item> {
        match self.text.pop() {
            Some(c) => {
                self.end_text();
                Some((Node::Literal(c.into()), 1))
            }
            None => self.items.pop(),
        }
    }

    /// The items since the last `|`, one behind the other.
    fn take_branch(&mut self) -> Item {
        self.end_text();
        let items = std::mem::take(&mut self.items);
        let height = items.iter().map(|(_, h)| *h).max().unwrap_or(0);
        let levels = usize::from(items.len() != 1);
        let nodes = items.into_iter().map(|(n, _)| n).collect();
        (Node::concat(nodes), height + levels)
    }

    fn finish(mut self) -> ((Node, Option<Group>), usize) {
        let last = self.take_branch();
        self.branches.push(last);
        let height = self.branches.iter().map(|(_, h)| *h).max().unwrap_or(0);
        let levels = usize::from(self.branches.len() != 1);
        let nodes = self.branches.into_iter().map(|(n, _)| n).collect();
        ((Node::alternation(nodes), self.group), height + levels)
    }
}

/// Whether `c` has another case.
fn has_case(c: char) -> bool {
    match c {
        'a'..='z' | 'A'..='Z' => true,
        c if c.is_ascii() => false,
        _ => true,
    }
}

/// How often the innermost part may repeat: nested counts multiplied, as Go limits them.
fn repeat_product(node: &Node) -> u32 {
    match node {
        Node::Repeat(node, Repeat { min, max, .. }) => {
            let times = max.unwrap_or(*min);
            match (times, max) {
                (0, Some(_)) => 0,
                _ => repeat_product(node).saturating_mul(times.max(1)),
            }
        }
        Node::Capture(node, _) => repeat_product(node),
        Node::Concat(nodes) | Node::Alternation(nodes) => {
            nodes.iter().map(repeat_product).max().unwrap_or(1)
        }
        _ => 1,
    }
}

#[derive(Clone, Copy, Debug)]
struct Counted {
    min: u32,
    max: Option<u32>,
    bytes: usize,
}

/// Reads `{min}`, `{min,}` or `{min,max}`. Anything else after `{` makes it a literal, as in Go.
fn counted_repeat(text: &str) -> Option<Counted> {
    let (min, rest) = count(text.strip_prefix('{')?)?;
    let (max, rest) = match rest.strip_prefix(',') {
        None => (Some(min), rest),
        Some(rest) if rest.starts_with('}') => (None, rest),
        Some(rest) => count(rest).map(|(max, rest)| (Some(max), rest))?,
    };
    let rest = rest.strip_prefix('}')?;
    let bytes = text.len() - rest.len();
    Some(Counted { min, max, bytes })
}

/// A decimal number without leading zeros, and what follows it. One too large for the type is as
/// good as the largest.
fn count(text: &str) -> Option<(u32, &str)> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, rest) = text.split_at(digits);
    if number.is_empty() || number.len() > 1 && number.starts_with('0') {
        return None;
    }
    Some((number.parse().unwrap_or(u32::MAX), rest))
}

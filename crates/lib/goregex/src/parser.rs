//! Parses patterns like Go's `regexp/syntax` with the flags `Perl | DotNL`.
//!
//! The parser keeps its open groups on a stack of its own, so that no pattern makes it recurse. The
//! rules of the language (errors, the part of the pattern that an error contains, and limits)
//! follow Go 1.26. Limits are applied to the tree as it is written. Go first factors common
//! prefixes out of alternations and has tables of another version of Unicode, so for patterns very
//! close to a limit the result may differ.

mod atom;
mod item;

use super::class::CharClassBuilder;
use super::tree::{CaptureGroup, HEIGHT_MAX, RegexNode, RegexRepeat};
use item::{MOVED_MAX, RegexItem, join_items, join_texts, repeated_size};

/// Go's error text for a pattern that exceeds its limits.
const TOO_LARGE: &str = "expression too large";

/// Maximum number of instructions in Go's program: 128 MiB of 40 bytes each.
const SIZE_MAX: u64 = (128 << 20) / 40;

/// Maximum number of range bounds and literal characters in Go's tree: 128 MiB of 4 bytes each.
const RUNES_MAX: usize = (128 << 20) / 4;

/// Maximum count of a repetition. The counts of nested repetitions are multiplied.
const REPEAT_MAX: u32 = 1000;

/// The reason why a pattern is rejected, in the words of Go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RegexSyntaxError<'p> {
    /// Go's text for the kind of error.
    pub code: &'static str,
    /// The part of the pattern that Go's message contains.
    pub expression: &'p str,
}

type Parsed<'p, T> = Result<T, RegexSyntaxError<'p>>;

fn fail<'p, T>(code: &'static str, expression: &'p str) -> Parsed<'p, T> {
    Err(RegexSyntaxError { code, expression })
}

/// Parses `pattern` and returns its syntax tree, or the first error.
pub(super) fn parse(pattern: &str) -> Parsed<'_, RegexNode> {
    let mut parser = RegexParser::new(pattern);
    while let Some(next) = parser.peek() {
        parser.parse_token(next)?;
    }
    parser.finish()
}

#[derive(Clone, Copy, Debug)]
struct RegexFlags {
    fold_case: bool,
    multi_line: bool,
    dot_matches_newline: bool,
    swap_greed: bool,
}

/// A group that is still open. The first one is the whole pattern.
#[derive(Debug)]
struct RegexGroupFrame {
    group: Option<CaptureGroup>,
    flags_outside: RegexFlags,
    branches: Vec<RegexItem>,
    items: Vec<RegexItem>,
    /// The literal characters after the last item, which may become one item.
    text: String,
}

#[derive(Debug)]
struct RegexParser<'p> {
    pattern: &'p str,
    at: usize,
    flags: RegexFlags,
    frames: Vec<RegexGroupFrame>,
    group_count: u32,
    /// Number of nodes so far. A run of literal characters counts as one.
    nodes: u64,
    /// The product of the counts of all repetitions, limited by [`SIZE_MAX`].
    repeats: u64,
    /// Number of range bounds and literal characters so far.
    runes: usize,
    /// The position of the repetition operator that was just parsed. Another one must not follow
    /// it.
    repeat_at: Option<usize>,
    /// The position of the last `:]` in the pattern.
    named_class_end: Option<usize>,
}

impl<'p> RegexParser<'p> {
    fn new(pattern: &'p str) -> Self {
        let flags = RegexFlags {
            fold_case: false,
            multi_line: false,
            dot_matches_newline: true,
            swap_greed: false,
        };
        Self {
            pattern,
            at: 0,
            flags,
            frames: vec![RegexGroupFrame::new(None, flags)],
            group_count: 0,
            nodes: 0,
            repeats: 1,
            runes: 0,
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

    fn frame(&mut self) -> &mut RegexGroupFrame {
        self.frames
            .last_mut()
            .expect("the frame of the whole pattern stays until the end")
    }

    /// Parses the token that starts with `next`, which has not been consumed yet.
    fn parse_token(&mut self, next: char) -> Parsed<'p, ()> {
        let previous_repeat_at = self.repeat_at.take();
        match next {
            '(' if self.rest().starts_with("(?") => self.parse_group_with_flags(),
            '(' => {
                self.at += 1;
                self.open_numbered(None)
            }
            '|' => {
                self.at += 1;
                let branch = self.frame().take_branch();
                self.count_repeat(&branch.node)?;
                self.check(&branch)?;
                self.frame().branches.push(branch);
                Ok(())
            }
            ')' => {
                self.at += 1;
                self.close()
            }
            '*' => self.apply_repeat_operator(0, None, 1, previous_repeat_at),
            '+' => self.apply_repeat_operator(1, None, 1, previous_repeat_at),
            '?' => self.apply_repeat_operator(0, Some(1), 1, previous_repeat_at),
            '{' => match parse_counted_repeat(self.rest()) {
                Some(counted) => self.apply_counted_repeat(counted, previous_repeat_at),
                None => self.parse_literal_char(),
            },
            '[' | '.' | '^' | '$' | '\\' => self.parse_atom(next),
            _ => self.parse_literal_char(),
        }
    }

    fn parse_literal_char(&mut self) -> Parsed<'p, ()> {
        match self.next() {
            Some(c) => self.push_char(c as u32),
            None => Ok(()),
        }
    }

    /// Adds a literal character, with its other cases if the flags require them.
    fn push_char(&mut self, code_point: u32) -> Parsed<'p, ()> {
        let c = char::from_u32(code_point);
        let Some(c) = c.filter(|c| !self.flags.fold_case || !has_case(*c)) else {
            let mut members = CharClassBuilder::new(self.flags.fold_case);
            members.add_range(code_point, code_point);
            return self.push_class(members, false);
        };
        let is_first = self.frame().text.is_empty();
        self.nodes += u64::from(is_first);
        self.frame().text.push(c);
        self.count_runes(1)
    }

    /// Adds the class of `members`, or its complement if `negated` is set.
    fn push_class(&mut self, members: CharClassBuilder, negated: bool) -> Parsed<'p, ()> {
        let class = members.finish(negated);
        self.count_runes(2 * class.ranges_count())?;
        self.push(RegexNode::class(class))
    }

    /// Adds a node without children. Literals are merged with pending characters.
    fn push(&mut self, node: RegexNode) -> Parsed<'p, ()> {
        if let RegexNode::Literal(text) = &node {
            self.frame().text.push_str(text);
            return Ok(());
        }
        self.frame().end_text();
        let (height, size) = (1, 1);
        self.push_item(RegexItem { node, height, size })
    }

    fn push_item(&mut self, item: RegexItem) -> Parsed<'p, ()> {
        self.nodes += 1;
        self.check(&item)?;
        self.frame().items.push(item);
        Ok(())
    }

    fn count_runes(&mut self, runes: usize) -> Parsed<'p, ()> {
        self.runes += runes;
        if self.runes > RUNES_MAX {
            return fail(TOO_LARGE, self.pattern);
        }
        Ok(())
    }

    /// Counts the runes of a node that consists only of runes once more.
    fn count_repeat(&mut self, node: &RegexNode) -> Parsed<'p, ()> {
        match node {
            RegexNode::Literal(text) => self.count_runes(text.chars().count()),
            RegexNode::Class(class) => self.count_runes(2 * class.ranges_count()),
            _ => Ok(()),
        }
    }

    /// Checks the limits at the same places as Go, which considers sizes only if there may be too
    /// many instructions.
    fn check(&self, item: &RegexItem) -> Parsed<'p, ()> {
        let may_be_large = self.nodes >= SIZE_MAX / self.repeats;
        if may_be_large && item.size > SIZE_MAX {
            return fail(TOO_LARGE, self.pattern);
        }
        if item.height > HEIGHT_MAX {
            return fail("expression nests too deeply", self.pattern);
        }
        Ok(())
    }

    fn open_numbered(&mut self, name: Option<String>) -> Parsed<'p, ()> {
        self.group_count += 1;
        let index = self.group_count;
        let outside = self.flags;
        self.open(Some(CaptureGroup { index, name }), outside)
    }

    fn open(&mut self, group: Option<CaptureGroup>, flags_outside: RegexFlags) -> Parsed<'p, ()> {
        self.frames.push(RegexGroupFrame::new(group, flags_outside));
        Ok(())
    }

    fn close(&mut self) -> Parsed<'p, ()> {
        let is_open = self.frames.len() > 1;
        let Some(mut frame) = self.frames.pop().filter(|_| is_open) else {
            return fail("unexpected )", self.pattern);
        };
        self.flags = frame.flags_outside;
        let group = frame.group.take();
        let mut item = frame.finish();
        // Go counts the content of a branch, of an alternation and of a group again each time.
        self.count_repeat(&item.node)?;
        self.count_repeat(&item.node)?;
        if group.is_none() {
            self.count_repeat(&item.node)?;
        }
        if let Some(group) = group {
            item.node = RegexNode::Capture(Box::new(item.node), group);
            item.height += 1;
            item.size += 2;
        }
        self.frame().end_text();
        self.push_item(item)
    }

    fn finish(mut self) -> Parsed<'p, RegexNode> {
        if self.frames.len() > 1 {
            return fail("missing closing )", self.pattern);
        }
        match self.frames.pop() {
            Some(frame) => {
                let item = frame.finish();
                self.check(&item)?;
                Ok(item.node)
            }
            None => Ok(RegexNode::Empty),
        }
    }

    /// Applies a repetition of the form `{min}`, `{min,}` or `{min,max}` that
    /// [`parse_counted_repeat`] has parsed.
    fn apply_counted_repeat(
        &mut self,
        counted: RepeatCounts,
        previous_at: Option<usize>,
    ) -> Parsed<'p, ()> {
        let RepeatCounts { min, max, bytes } = counted;
        let too_many = min > REPEAT_MAX || max.is_some_and(|max| max > REPEAT_MAX || min > max);
        if too_many {
            return fail("invalid repeat count", &self.rest()[..bytes]);
        }
        self.apply_repeat_operator(min, max, bytes, previous_at)
    }

    /// Repeats the last item. The current operator has `bytes` bytes, without a following `?`.
    fn apply_repeat_operator(
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
        let Some(RegexItem { node, height, size }) = self.frame().take_last() else {
            return fail("missing argument to repetition operator", operator);
        };
        let greedy = lazy == self.flags.swap_greed;
        let repeat = RegexRepeat { min, max, greedy };
        let times = u64::from(max.unwrap_or(min)).max(1);
        self.repeats = self.repeats.saturating_mul(times).min(SIZE_MAX);
        let item = RegexItem {
            node: RegexNode::Repeat(Box::new(node), repeat),
            height: height + 1,
            size: repeated_size(size, repeat),
        };
        self.check(&item)?;
        if (min >= 2 || max.is_some_and(|m| m >= 2)) && repeat_product(&item.node) > REPEAT_MAX {
            return fail("invalid repeat count", operator);
        }
        self.push_item(item)?;
        self.repeat_at = Some(start);
        Ok(())
    }
}

impl RegexGroupFrame {
    fn new(group: Option<CaptureGroup>, flags_outside: RegexFlags) -> Self {
        Self {
            group,
            flags_outside,
            branches: Vec::new(),
            items: Vec::new(),
            text: String::new(),
        }
    }

    /// Converts the pending literal characters to an item, if there are any.
    fn end_text(&mut self) {
        if !self.text.is_empty() {
            let text = std::mem::take(&mut self.text);
            let size = text.chars().count() as u64;
            let node = RegexNode::Literal(text);
            self.items.push(RegexItem {
                node,
                height: 1,
                size,
            });
        }
    }

    /// Removes and returns the operand of a repetition operator: the last character or item.
    fn take_last(&mut self) -> Option<RegexItem> {
        match self.text.pop() {
            Some(c) => {
                self.end_text();
                Some(RegexItem {
                    node: RegexNode::Literal(c.into()),
                    height: 1,
                    size: 1,
                })
            }
            None => self.items.pop(),
        }
    }

    /// Removes and returns the items since the last `|` as a concatenation.
    fn take_branch(&mut self) -> RegexItem {
        self.end_text();
        let items = join_texts(std::mem::take(&mut self.items));
        let (mut item, nodes) = join_items(items, |node| match node {
            RegexNode::Concat(nodes) if nodes.len() <= MOVED_MAX => Ok(nodes),
            node => Err(node),
        });
        item.node = RegexNode::concat(nodes);
        item
    }

    fn finish(mut self) -> RegexItem {
        let last = self.take_branch();
        self.branches.push(last);
        let (mut item, nodes) = join_items(self.branches, |node| match node {
            RegexNode::Alternation(nodes) if nodes.len() <= MOVED_MAX => Ok(nodes),
            node => Err(node),
        });
        // Each item except the last needs an instruction that selects it.
        item.size += nodes.len() as u64 - 1;
        item.node = RegexNode::alternation(nodes);
        item
    }
}

/// Returns whether `c` may have another case; true for all characters that are not ASCII.
fn has_case(c: char) -> bool {
    match c {
        'a'..='z' | 'A'..='Z' => true,
        c if c.is_ascii() => false,
        _ => true,
    }
}

/// Returns the product of the counts of nested repetitions, which Go limits.
fn repeat_product(node: &RegexNode) -> u32 {
    match node {
        RegexNode::Repeat(node, RegexRepeat { min, max, .. }) => {
            let times = max.unwrap_or(*min);
            match (times, max) {
                (0, Some(_)) => 0,
                _ => repeat_product(node).saturating_mul(times.max(1)),
            }
        }
        RegexNode::Capture(node, _) => repeat_product(node),
        RegexNode::Concat(nodes) | RegexNode::Alternation(nodes) => {
            nodes.iter().map(repeat_product).max().unwrap_or(1)
        }
        _ => 1,
    }
}

#[derive(Clone, Copy, Debug)]
struct RepeatCounts {
    min: u32,
    max: Option<u32>,
    bytes: usize,
}

/// Parses `{min}`, `{min,}` or `{min,max}`. As in Go, a `{` followed by anything else is a literal.
fn parse_counted_repeat(text: &str) -> Option<RepeatCounts> {
    let (min, rest) = parse_count(text.strip_prefix('{')?)?;
    let (max, rest) = match rest.strip_prefix(',') {
        None => (Some(min), rest),
        Some(rest) if rest.starts_with('}') => (None, rest),
        Some(rest) => parse_count(rest).map(|(max, rest)| (Some(max), rest))?,
    };
    let rest = rest.strip_prefix('}')?;
    let bytes = text.len() - rest.len();
    Some(RepeatCounts { min, max, bytes })
}

/// Parses a decimal number without leading zeros. Returns it with the remaining text. A number that
/// is too large is replaced by the largest possible one.
fn parse_count(text: &str) -> Option<(u32, &str)> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, rest) = text.split_at(digits);
    if number.is_empty() || number.len() > 1 && number.starts_with('0') {
        return None;
    }
    Some((number.parse().unwrap_or(u32::MAX), rest))
}

//! Literals with anything between them: `api-.*`, `.*error.*`, `.+`, `a.*b.+c`.

use crate::regex::tree::{Node, Repeat};
use memchr::memmem::Finder;

/// A pattern that starts with `prefix`, ends with `suffix`, and holds `middles` in order between.
#[derive(Debug)]
pub(in crate::regex) struct Glob {
    prefix: Vec<u8>,
    middles: Vec<Middle>,
    /// Characters that must stand in front of the suffix.
    last_gap_chars: usize,
    suffix: Vec<u8>,
}

/// A literal behind a gap.
#[derive(Debug)]
struct Middle {
    gap_chars: usize,
    finder: Finder<'static>,
}

impl Glob {
    /// The glob of `parts`; `None` if they are anything but literals, `.*` and `.+`, or if there is
    /// no gap among them.
    pub fn new(parts: &[&Node]) -> Option<Self> {
        let mut texts = vec![Vec::new()];
        let mut gaps: Vec<usize> = Vec::new();
        for part in parts {
            match (part, gap_chars(part)) {
                (Node::Literal(text), _) => texts.last_mut()?.extend_from_slice(text.as_bytes()),
                (_, Some(chars)) if !gaps.is_empty() && texts.last()?.is_empty() => {
                    *gaps.last_mut()? += chars;
                }
                (_, Some(chars)) => {
                    gaps.push(chars);
                    texts.push(Vec::new());
                }
                _ => return None,
            }
        }
        let last_gap_chars = gaps.pop()?;
        let suffix = texts.pop()?;
        let mut texts = texts.into_iter();
        let prefix = texts.next()?;
        let middles = texts.zip(gaps).map(|(text, gap_chars)| Middle {
            gap_chars,
            finder: Finder::new(&text).into_owned(),
        });
        Some(Self {
            prefix,
            middles: middles.collect(),
            last_gap_chars,
            suffix,
        })
    }

    /// Whether `value` matches. The leftmost place of each literal leaves most to the others, so
    /// none is ever tried again.
    pub fn is_match(&self, value: &[u8]) -> bool {
        self.rest_matches(value).unwrap_or(false)
    }

    fn rest_matches(&self, value: &[u8]) -> Option<bool> {
        let mut rest = value.strip_prefix(&self.prefix[..])?;
        for middle in &self.middles {
            rest = skip_chars(rest, middle.gap_chars)?;
            let at = middle.finder.find(rest)?;
            rest = rest.get(at + middle.finder.needle().len()..)?;
        }
        Some(skip_chars(rest, self.last_gap_chars)?.ends_with(&self.suffix))
    }

    /// What matching values start with.
    pub fn prefix(&self) -> &[u8] {
        &self.prefix
    }

    /// If any text of so many characters or more matches: how many.
    pub fn chars_of_any_text(&self) -> Option<usize> {
        let has_text =
            !self.prefix.is_empty() || !self.suffix.is_empty() || !self.middles.is_empty();
        (!has_text).then_some(self.last_gap_chars)
    }
}

/// The least number of characters if `node` is `.*` or `.+` or the like.
fn gap_chars(node: &Node) -> Option<usize> {
    match node {
        Node::Capture(node, _) => gap_chars(node),
        Node::Repeat(node, Repeat { min, max: None, .. }) => {
            matches!(**node, Node::AnyChar).then_some(*min as usize)
        }
        _ => None,
    }
}

/// `bytes` without its first `count` characters; a byte that is not UTF-8 is one, as in Go.
fn skip_chars(mut bytes: &[u8], count: usize) -> Option<&[u8]> {
    for _ in 0..count {
        let is_char = |length: &usize| {
            let head = bytes.get(..*length);
            head.is_some_and(|head| std::str::from_utf8(head).is_ok())
        };
        let length = (1..=4).find(is_char).unwrap_or(1);
        bytes = bytes.get(length..)?;
    }
    Some(bytes)
}

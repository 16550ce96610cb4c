//! Literals with arbitrary text between them: `api-.*`, `.*error.*`, `.+`, `a.*b.+c`.

use crate::tree::{RegexNode, RegexRepeat};
use memchr::memmem::Finder;

/// A pattern that starts with `prefix`, ends with `suffix`, and contains `middles` in order between
/// them.
#[derive(Debug)]
pub(crate) struct LiteralGlob {
    prefix: Vec<u8>,
    middles: Vec<GlobLiteral>,
    /// Minimum number of characters between the last literal and the suffix.
    last_gap_chars: usize,
    suffix: Vec<u8>,
}

/// A literal after a gap with a minimum number of characters.
#[derive(Debug)]
struct GlobLiteral {
    gap_chars: usize,
    finder: Finder<'static>,
}

impl LiteralGlob {
    /// Creates the glob of `parts`. Returns `None` if they are not only literals, `.*` and `.+`, or
    /// if there is no gap.
    pub fn new(parts: &[&RegexNode]) -> Option<Self> {
        let mut texts = vec![Vec::new()];
        let mut gaps: Vec<usize> = Vec::new();
        for part in parts {
            match (part, gap_chars(part)) {
                (RegexNode::Literal(text), _) => {
                    texts.last_mut()?.extend_from_slice(text.as_bytes())
                }
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
        let middles = texts.zip(gaps).map(|(text, gap_chars)| GlobLiteral {
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

    /// Returns whether `value` matches. The leftmost position of each literal leaves the longest
    /// rest for the others, so no backtracking is necessary.
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

    /// Returns the prefix of all matching values, possibly empty.
    pub fn prefix(&self) -> &[u8] {
        &self.prefix
    }

    /// Returns the minimum number of characters, if all texts with at least this number match.
    pub fn chars_of_any_text(&self) -> Option<usize> {
        let has_text =
            !self.prefix.is_empty() || !self.suffix.is_empty() || !self.middles.is_empty();
        (!has_text).then_some(self.last_gap_chars)
    }
}

/// Returns the minimum number of characters if `node` is `.*`, `.+` or an equivalent.
fn gap_chars(node: &RegexNode) -> Option<usize> {
    match node {
        RegexNode::Capture(node, _) => gap_chars(node),
        RegexNode::Repeat(node, RegexRepeat { min, max: None, .. }) => {
            matches!(**node, RegexNode::AnyChar).then_some(*min as usize)
        }
        _ => None,
    }
}

/// Returns `bytes` without its first `count` characters. As in Go, an invalid byte counts as one
/// character.
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

//! Patterns that may match anywhere in a text, like those of Go's `regexp.Compile`, for the
//! functions of templates.
//!
//! Invariant: patterns whose automaton would need more than
//! [`AUTOMATON_BYTES_MAX`](super::engine::AUTOMATON_BYTES_MAX) are rejected, so that no template
//! uses more memory.

use super::engine::{AUTOMATON_BYTES_MAX, automaton_bytes_max};
use super::{Captures, compile, parse, program, text};
use crate::limits::{RegexError, RegexErrorKind};
use regex_automata::{Input, meta};

/// A pattern to search for. `.` does not match a newline, unless the pattern enables this.
#[derive(Debug)]
pub struct SearchRegex {
    automaton: meta::Regex,
    names: Vec<(String, usize)>,
}

impl SearchRegex {
    /// Parses and compiles `pattern`. Fails with [`RegexErrorKind::Syntax`] and the message of Go,
    /// or with [`RegexErrorKind::Memory`] if the pattern is too large.
    ///
    /// ```
    /// use firn_goregex::SearchRegex;
    /// let regex = SearchRegex::new(b"([a-z]+)-[0-9]").unwrap();
    /// assert!(regex.is_match(b"web-7.example"));
    /// assert_eq!(regex.replace_all(b"web-7 db-1", "$1", 100).unwrap(), b"web db");
    /// ```
    pub fn new(pattern: &[u8]) -> Result<Self, RegexError> {
        let plain = text(pattern)?;
        parse(plain)?;
        // By default the parser lets a dot match a newline.
        let tree = parse(&format!("(?-s:{plain})"))?;
        let mut names = Vec::new();
        tree.append_capture_names(&mut names);
        let is_small = automaton_bytes_max(&tree, program::len(&tree)).is_some();
        let automaton = if is_small {
            compile::compile_search(&tree).ok()
        } else {
            None
        };
        match automaton {
            Some(automaton) => Ok(Self { automaton, names }),
            None => {
                let message = format!("pattern needs more than {AUTOMATON_BYTES_MAX} bytes");
                Err(RegexError::new(RegexErrorKind::Memory, message))
            }
        }
    }

    /// Returns whether the pattern matches anywhere in `value`, without finding where.
    pub fn is_match(&self, value: &[u8]) -> bool {
        self.automaton.is_match(value)
    }

    /// Replaces all matches in `value` by `template`, in which `$1` and `${name}` refer to groups,
    /// like Go's `ReplaceAllString`. Returns `None` if the result exceeds `bytes_max`.
    pub fn replace_all(&self, value: &[u8], template: &str, bytes_max: usize) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        let (mut copied, mut from) = (0, 0);
        let mut found = self.automaton.create_captures();
        while from <= value.len() {
            let input = Input::new(value).range(from..);
            self.automaton.search_captures(&input, &mut found);
            let Some(matched) = found.get_match() else {
                break;
            };
            let (start, end) = (matched.start(), matched.end());
            out.extend_from_slice(&value[copied..start]);
            let group = |at| found.get_group(at).map(|span| span.range());
            let captures = Captures {
                value,
                groups: (0..found.group_len()).map(group).collect(),
                names: &self.names,
            };
            // An empty match directly after another match is ignored.
            if end > copied || start == 0 {
                if out.len() + captures.expanded_len(template) > bytes_max {
                    return None;
                }
                captures.expand(template, &mut out);
            }
            copied = end;
            from = if end > from {
                end
            } else {
                from + char_len(&value[from..])
            };
        }
        out.extend_from_slice(&value[copied..]);
        (out.len() <= bytes_max).then_some(out)
    }
}

/// Returns the length of the first character: one at the end and for invalid bytes.
fn char_len(bytes: &[u8]) -> usize {
    let first = bytes.utf8_chunks().next();
    first
        .and_then(|chunk| chunk.valid().chars().next())
        .map_or(1, char::len_utf8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_are_replaced_as_go_replaces_them() {
        for (pattern, value, template, expected) in [
            ("a", "banana", "o", "bonono"),
            ("a*", "baac", "x", "xbxcx"),
            ("", "ab", "-", "-a-b-"),
            ("^a", "aa", "b", "ba"),
            ("(?P<host>[^:]+):.*", "web-1:9100", "${host}", "web-1"),
            ("(.)(.)", "abcd", "$2$1", "badc"),
            ("(.)(.)", "abcd", "$2x$1", "ac"),
            (".", "a\nb", "x", "x\nx"),
            ("(?s).", "a\nb", "x", "xxx"),
            ("ü|x", "üx", "u", "uu"),
            ("b*", "üü", "-", "-ü-ü-"),
            (r"\bweb\b", "web webs web", "W", "W webs W"),
        ] {
            let regex = SearchRegex::new(pattern.as_bytes()).unwrap();
            let replaced = regex.replace_all(value.as_bytes(), template, 100).unwrap();
            let replaced = String::from_utf8(replaced).unwrap();
            assert_eq!(replaced, expected, "{pattern} in {value}");
        }
    }

    #[test]
    fn replacements_beyond_the_bound_are_refused() {
        let regex = SearchRegex::new(b"(a+)").unwrap();
        assert_eq!(regex.replace_all(&[b'a'; 50], "$1$1$1", 149), None);
        assert!(regex.replace_all(&[b'a'; 50], "$1$1$1", 150).is_some());
    }

    #[test]
    fn errors_are_those_of_go() {
        let error = |pattern: &[u8]| SearchRegex::new(pattern).unwrap_err();
        assert_eq!(
            error(b"(a").message,
            "error parsing regexp: missing closing ): `(a`"
        );
        assert_eq!(
            error(b"a)").message,
            "error parsing regexp: unexpected ): `a)`"
        );
        assert_eq!(error(br"\pL{1000}").kind, RegexErrorKind::Memory);
    }
}

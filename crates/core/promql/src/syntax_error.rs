//! Errors of the lexer, the parser and the type checker: a message and its position in the query
//! text.

/// An error in the query text. The first error ends the parse.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct QuerySyntaxError {
    at: usize,
    message: String,
}

impl QuerySyntaxError {
    /// Creates an error at byte offset `at` of the query text.
    pub(crate) fn new(at: usize, message: impl Into<String>) -> Self {
        Self {
            at,
            message: message.into(),
        }
    }

    /// Returns the message without the position and without `parse error`.
    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// Returns the complete message, `1:5: parse error: ...`. `text` must be the parsed text.
    pub(crate) fn render(&self, text: &str) -> String {
        format!("{}: parse error: {}", position(text, self.at), self.message)
    }
}

/// Returns `line:column` of a byte offset. Both are counted from one, columns in bytes.
pub fn position(text: &str, at: usize) -> String {
    if text.is_empty() {
        return "unknown position".into();
    }
    let before = &text.as_bytes()[..at.min(text.len())];
    let line = before.iter().filter(|b| **b == b'\n').count() + 1;
    let line_start = before
        .iter()
        .rposition(|b| *b == b'\n')
        .map_or(0, |i| i + 1);
    format!("{line}:{}", before.len() - line_start + 1)
}

//! What the lexer, the parser and the type checker refuse: a mistake and the place where it stands.

/// A mistake in a text. The first one ends the parse.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SyntaxError {
    at: usize,
    message: String,
}

impl SyntaxError {
    /// A mistake at byte `at` of the text.
    pub(crate) fn new(at: usize, message: impl Into<String>) -> Self {
        Self {
            at,
            message: message.into(),
        }
    }

    /// What is wrong, without the place.
    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// `1:5: parse error: ...`, of a mistake in `text`.
    pub(crate) fn render(&self, text: &str) -> String {
        format!("{}: parse error: {}", position(text, self.at), self.message)
    }
}

/// `line:column` of a byte, both counted from one, columns in bytes.
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

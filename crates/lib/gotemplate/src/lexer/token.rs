//! Tokens of a template. The printed form equals Go's, because error messages contain it.

use firn_model::quote::quote;

/// Kind of a token. Operators, literals and delimiters each have their own kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TemplateTokenKind {
    Error,
    Bool,
    Char,
    CharConstant,
    Complex,
    Assign,
    Declare,
    End,
    Field,
    Identifier,
    LeftDelim,
    LeftParen,
    Number,
    Pipe,
    RawString,
    RightDelim,
    RightParen,
    Space,
    String,
    Text,
    Variable,
    Dot,
    Keyword(TemplateKeyword),
}

/// Reserved words of the template language, which cannot be names of functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TemplateKeyword {
    Block,
    Break,
    Continue,
    Define,
    Else,
    End,
    If,
    Nil,
    Range,
    Template,
    With,
}

/// Returns the keyword that `word` is; `None` for names of functions, fields and variables.
pub(super) fn keyword(word: &str) -> Option<TemplateKeyword> {
    Some(match word {
        "block" => TemplateKeyword::Block,
        "break" => TemplateKeyword::Break,
        "continue" => TemplateKeyword::Continue,
        "define" => TemplateKeyword::Define,
        "else" => TemplateKeyword::Else,
        "end" => TemplateKeyword::End,
        "if" => TemplateKeyword::If,
        "nil" => TemplateKeyword::Nil,
        "range" => TemplateKeyword::Range,
        "template" => TemplateKeyword::Template,
        "with" => TemplateKeyword::With,
        _ => return None,
    })
}

/// A token with its position and line in the text. Its text is a copy of the source.
#[derive(Clone, Debug)]
pub(crate) struct TemplateToken {
    pub kind: TemplateTokenKind,
    pub position: usize,
    /// Text of the token, or the message of an error token.
    pub text: String,
    pub line: usize,
}

impl TemplateToken {
    /// Returns a placeholder for an unused slot of the look-ahead buffer.
    pub fn none() -> Self {
        Self {
            kind: TemplateTokenKind::End,
            position: 0,
            text: String::new(),
            line: 0,
        }
    }
}

impl std::fmt::Display for TemplateToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.kind {
            TemplateTokenKind::End => f.write_str("EOF"),
            TemplateTokenKind::Error => f.write_str(&self.text),
            TemplateTokenKind::Dot | TemplateTokenKind::Keyword(_) => write!(f, "<{}>", self.text),
            _ if self.text.len() > 10 => {
                let start: String = self.text.chars().take(10).collect();
                write!(f, "{}...", quote(start.as_bytes()))
            }
            _ => f.write_str(&quote(self.text.as_bytes())),
        }
    }
}

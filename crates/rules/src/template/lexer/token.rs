//! Tokens of a template. The printed form equals Go's, because error messages contain it.

use firn_model::quote::quote;

/// Kind of a token. Operators, literals and delimiters each have their own kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::template) enum Kind {
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
    Keyword(Keyword),
}

/// Reserved words of the template language, which cannot be names of functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::template) enum Keyword {
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
pub(super) fn keyword(word: &str) -> Option<Keyword> {
    Some(match word {
        "block" => Keyword::Block,
        "break" => Keyword::Break,
        "continue" => Keyword::Continue,
        "define" => Keyword::Define,
        "else" => Keyword::Else,
        "end" => Keyword::End,
        "if" => Keyword::If,
        "nil" => Keyword::Nil,
        "range" => Keyword::Range,
        "template" => Keyword::Template,
        "with" => Keyword::With,
        _ => return None,
    })
}

/// A token with its position and line in the text. Its text is a copy of the source.
#[derive(Clone, Debug)]
pub(in crate::template) struct Token {
    pub kind: Kind,
    pub position: usize,
    /// Text of the token, or the message of an error token.
    pub text: String,
    pub line: usize,
}

impl Token {
    /// Returns a placeholder for an unused slot of the look-ahead buffer.
    pub fn none() -> Self {
        Self {
            kind: Kind::End,
            position: 0,
            text: String::new(),
            line: 0,
        }
    }
}

impl std::fmt::Display for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.kind {
            Kind::End => f.write_str("EOF"),
            Kind::Error => f.write_str(&self.text),
            Kind::Dot | Kind::Keyword(_) => write!(f, "<{}>", self.text),
            _ if self.text.len() > 10 => {
                let start: String = self.text.chars().take(10).collect();
                write!(f, "{}...", quote(start.as_bytes()))
            }
            _ => f.write_str(&quote(self.text.as_bytes())),
        }
    }
}

//! Tokens, the keywords of the language, and the names of tokens in error messages.

use crate::ast::{AggregateOp, BinaryOp};
use crate::quote::quote;

/// A token and its position in the text: byte offsets, the end exclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) kind: TokenKind,
    pub(crate) start: usize,
    pub(crate) end: usize,
}

/// The kind of a token. Its text is taken from the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenKind {
    Eof,
    Comma,
    Colon,
    LeftParen,
    RightParen,
    LeftBrace,
    RightBrace,
    LeftBracket,
    RightBracket,
    /// The sign `=`: an equality matcher inside of braces.
    Assign,
    /// The sign `=~`: a matcher with a regular expression.
    EqualRegex,
    /// The sign `!~`: a negated matcher with a regular expression.
    NotEqualRegex,
    /// The sign `@` of the modifier that fixes the evaluation time.
    At,
    Number,
    Duration,
    /// A string literal, including its quotes. [`super::unquote`] returns its bytes.
    String,
    Identifier,
    /// An identifier that contains a colon. It can only be a metric name.
    MetricIdentifier,
    /// An infix operator. The token `!=` is also a matcher operator.
    Operator(BinaryOp),
    Aggregate(AggregateOp),
    Word(Word),
}

/// Keywords that are neither operators nor aggregations. Most of them can also be metric or label
/// names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    Anchored,
    Bool,
    By,
    End,
    Fill,
    FillLeft,
    FillRight,
    GroupLeft,
    GroupRight,
    Ignoring,
    MaxOf,
    MinOf,
    Offset,
    On,
    Range,
    Smoothed,
    Start,
    Step,
    Without,
}

impl Word {
    /// Returns whether the word is a marker of a time in the query, such as `start()`, or a
    /// function of durations.
    fn is_preprocessor(self) -> bool {
        matches!(
            self,
            Word::Start | Word::End | Word::Step | Word::Range | Word::MaxOf | Word::MinOf
        )
    }
}

/// Returns the token kind of the keyword `text`, regardless of its case, or `None` if it is not a
/// keyword.
pub(super) fn word_kind(text: &str) -> Option<TokenKind> {
    let lower = text.to_ascii_lowercase();
    if let Some(op) = AggregateOp::named(&lower) {
        return Some(TokenKind::Aggregate(op));
    }
    let kind = match lower.as_str() {
        "and" => TokenKind::Operator(BinaryOp::And),
        "or" => TokenKind::Operator(BinaryOp::Or),
        "unless" => TokenKind::Operator(BinaryOp::Unless),
        "atan2" => TokenKind::Operator(BinaryOp::Atan2),
        "inf" | "nan" => TokenKind::Number,
        "anchored" => TokenKind::Word(Word::Anchored),
        "bool" => TokenKind::Word(Word::Bool),
        "by" => TokenKind::Word(Word::By),
        "end" => TokenKind::Word(Word::End),
        "fill" => TokenKind::Word(Word::Fill),
        "fill_left" => TokenKind::Word(Word::FillLeft),
        "fill_right" => TokenKind::Word(Word::FillRight),
        "group_left" => TokenKind::Word(Word::GroupLeft),
        "group_right" => TokenKind::Word(Word::GroupRight),
        "ignoring" => TokenKind::Word(Word::Ignoring),
        "offset" => TokenKind::Word(Word::Offset),
        "on" => TokenKind::Word(Word::On),
        "smoothed" => TokenKind::Word(Word::Smoothed),
        "start" => TokenKind::Word(Word::Start),
        "without" => TokenKind::Word(Word::Without),
        other => TokenKind::Word(duration_word(other)?),
    };
    Some(kind)
}

/// Returns the keyword of a duration expression, or `None`. `lower` must be in lower case.
pub(super) fn duration_word(lower: &str) -> Option<Word> {
    match lower {
        "max_of" => Some(Word::MaxOf),
        "min_of" => Some(Word::MinOf),
        "range" => Some(Word::Range),
        "step" => Some(Word::Step),
        _ => None,
    }
}

impl TokenKind {
    /// Returns the description of a token with the text `text` for error messages.
    pub(crate) fn describe(self, text: &str) -> String {
        match self {
            TokenKind::Eof => "end of input".into(),
            TokenKind::Identifier => format!("identifier {}", quote(text.as_bytes())),
            TokenKind::MetricIdentifier => format!("metric identifier {}", quote(text.as_bytes())),
            TokenKind::Number => format!("number {}", shortened(text)),
            TokenKind::Duration => format!("duration {}", shortened(text)),
            TokenKind::String => format!("string {}", shortened(text)),
            TokenKind::Aggregate(_) => format!("<aggr:{text}>"),
            TokenKind::Operator(_)
            | TokenKind::EqualRegex
            | TokenKind::NotEqualRegex
            | TokenKind::At => format!("<op:{text}>"),
            TokenKind::Word(word) if !word.is_preprocessor() => format!("<{text}>"),
            _ => shortened(text),
        }
    }

    /// Returns whether the word can be a metric name outside of braces.
    pub(crate) fn is_metric_name(self) -> bool {
        match self {
            TokenKind::Identifier | TokenKind::MetricIdentifier | TokenKind::Aggregate(_) => true,
            TokenKind::Operator(op) => op.is_set(),
            TokenKind::Word(word) => !matches!(
                word,
                Word::Bool | Word::On | Word::Ignoring | Word::GroupLeft | Word::GroupRight
            ),
            _ => false,
        }
    }

    /// Returns whether the word can be a label name in a grouping. `without` cannot, as in
    /// Prometheus.
    pub(crate) fn is_grouping_label(self) -> bool {
        match self {
            TokenKind::Identifier | TokenKind::MetricIdentifier | TokenKind::Aggregate(_) => true,
            TokenKind::Operator(op) => op.is_set() || op == BinaryOp::Atan2,
            TokenKind::Word(word) => word != Word::Without,
            _ => false,
        }
    }

    /// Returns whether an expression can begin with this token.
    pub(crate) fn begins_expression(self) -> bool {
        match self {
            TokenKind::Number
            | TokenKind::Duration
            | TokenKind::String
            | TokenKind::LeftParen
            | TokenKind::LeftBrace => true,
            TokenKind::Operator(BinaryOp::Add | BinaryOp::Sub) => true,
            other => other.is_metric_name(),
        }
    }
}

/// Returns the text in quotes, shortened to ten characters.
fn shortened(text: &str) -> String {
    if text.len() <= 10 {
        return quote(text.as_bytes());
    }
    let cut = text.char_indices().nth(10).map_or(text.len(), |(i, _)| i);
    format!("{}...", quote(&text.as_bytes()[..cut]))
}

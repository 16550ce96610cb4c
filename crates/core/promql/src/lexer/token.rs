//! Tokens, the keywords of the language, and the names of tokens in error messages.

use crate::ast::{AggregateOp, BinaryOp};
use crate::quote::quote;

/// A token and its position in the text: byte offsets, the end exclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PromqlToken {
    pub(crate) kind: PromqlTokenKind,
    pub(crate) start: usize,
    pub(crate) end: usize,
}

/// The kind of a token. Its text is taken from the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PromqlTokenKind {
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
    Word(PromqlKeyword),
}

/// Keywords that are neither operators nor aggregations. Most of them can also be metric or label
/// names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PromqlKeyword {
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

impl PromqlKeyword {
    /// Returns whether the word is a marker of a time in the query, such as `start()`, or a
    /// function of durations.
    fn is_preprocessor(self) -> bool {
        matches!(
            self,
            PromqlKeyword::Start
                | PromqlKeyword::End
                | PromqlKeyword::Step
                | PromqlKeyword::Range
                | PromqlKeyword::MaxOf
                | PromqlKeyword::MinOf
        )
    }
}

/// Returns the token kind of the keyword `text`, regardless of its case, or `None` if it is not a
/// keyword.
pub(super) fn word_kind(text: &str) -> Option<PromqlTokenKind> {
    let lower = text.to_ascii_lowercase();
    if let Some(op) = AggregateOp::from_name(&lower) {
        return Some(PromqlTokenKind::Aggregate(op));
    }
    let kind = match lower.as_str() {
        "and" => PromqlTokenKind::Operator(BinaryOp::And),
        "or" => PromqlTokenKind::Operator(BinaryOp::Or),
        "unless" => PromqlTokenKind::Operator(BinaryOp::Unless),
        "atan2" => PromqlTokenKind::Operator(BinaryOp::Atan2),
        "inf" | "nan" => PromqlTokenKind::Number,
        "anchored" => PromqlTokenKind::Word(PromqlKeyword::Anchored),
        "bool" => PromqlTokenKind::Word(PromqlKeyword::Bool),
        "by" => PromqlTokenKind::Word(PromqlKeyword::By),
        "end" => PromqlTokenKind::Word(PromqlKeyword::End),
        "fill" => PromqlTokenKind::Word(PromqlKeyword::Fill),
        "fill_left" => PromqlTokenKind::Word(PromqlKeyword::FillLeft),
        "fill_right" => PromqlTokenKind::Word(PromqlKeyword::FillRight),
        "group_left" => PromqlTokenKind::Word(PromqlKeyword::GroupLeft),
        "group_right" => PromqlTokenKind::Word(PromqlKeyword::GroupRight),
        "ignoring" => PromqlTokenKind::Word(PromqlKeyword::Ignoring),
        "offset" => PromqlTokenKind::Word(PromqlKeyword::Offset),
        "on" => PromqlTokenKind::Word(PromqlKeyword::On),
        "smoothed" => PromqlTokenKind::Word(PromqlKeyword::Smoothed),
        "start" => PromqlTokenKind::Word(PromqlKeyword::Start),
        "without" => PromqlTokenKind::Word(PromqlKeyword::Without),
        other => PromqlTokenKind::Word(duration_word(other)?),
    };
    Some(kind)
}

/// Returns the keyword of a duration expression, or `None`. `lower` must be in lower case.
pub(super) fn duration_word(lower: &str) -> Option<PromqlKeyword> {
    match lower {
        "max_of" => Some(PromqlKeyword::MaxOf),
        "min_of" => Some(PromqlKeyword::MinOf),
        "range" => Some(PromqlKeyword::Range),
        "step" => Some(PromqlKeyword::Step),
        _ => None,
    }
}

impl PromqlTokenKind {
    /// Returns the description of a token with the text `text` for error messages.
    pub(crate) fn describe(self, text: &str) -> String {
        match self {
            PromqlTokenKind::Eof => "end of input".into(),
            PromqlTokenKind::Identifier => format!("identifier {}", quote(text.as_bytes())),
            PromqlTokenKind::MetricIdentifier => {
                format!("metric identifier {}", quote(text.as_bytes()))
            }
            PromqlTokenKind::Number => format!("number {}", shorten(text)),
            PromqlTokenKind::Duration => format!("duration {}", shorten(text)),
            PromqlTokenKind::String => format!("string {}", shorten(text)),
            PromqlTokenKind::Aggregate(_) => format!("<aggr:{text}>"),
            PromqlTokenKind::Operator(_)
            | PromqlTokenKind::EqualRegex
            | PromqlTokenKind::NotEqualRegex
            | PromqlTokenKind::At => format!("<op:{text}>"),
            PromqlTokenKind::Word(word) if !word.is_preprocessor() => format!("<{text}>"),
            _ => shorten(text),
        }
    }

    /// Returns whether the word can be a metric name outside of braces.
    pub(crate) fn is_metric_name(self) -> bool {
        match self {
            PromqlTokenKind::Identifier
            | PromqlTokenKind::MetricIdentifier
            | PromqlTokenKind::Aggregate(_) => true,
            PromqlTokenKind::Operator(op) => op.is_set(),
            PromqlTokenKind::Word(word) => !matches!(
                word,
                PromqlKeyword::Bool
                    | PromqlKeyword::On
                    | PromqlKeyword::Ignoring
                    | PromqlKeyword::GroupLeft
                    | PromqlKeyword::GroupRight
            ),
            _ => false,
        }
    }

    /// Returns whether the word can be a label name in a grouping. `without` cannot, as in
    /// Prometheus.
    pub(crate) fn is_grouping_label(self) -> bool {
        match self {
            PromqlTokenKind::Identifier
            | PromqlTokenKind::MetricIdentifier
            | PromqlTokenKind::Aggregate(_) => true,
            PromqlTokenKind::Operator(op) => op.is_set() || op == BinaryOp::Atan2,
            PromqlTokenKind::Word(word) => word != PromqlKeyword::Without,
            _ => false,
        }
    }

    /// Returns whether an expression can begin with this token.
    pub(crate) fn begins_expression(self) -> bool {
        match self {
            PromqlTokenKind::Number
            | PromqlTokenKind::Duration
            | PromqlTokenKind::String
            | PromqlTokenKind::LeftParen
            | PromqlTokenKind::LeftBrace => true,
            PromqlTokenKind::Operator(BinaryOp::Add | BinaryOp::Sub) => true,
            other => other.is_metric_name(),
        }
    }
}

/// Returns the text in quotes, shortened to ten characters.
fn shorten(text: &str) -> String {
    if text.len() <= 10 {
        return quote(text.as_bytes());
    }
    let cut = text.char_indices().nth(10).map_or(text.len(), |(i, _)| i);
    format!("{}...", quote(&text.as_bytes()[..cut]))
}

//! The table of template functions with their names and signatures.

use crate::template::html::Escaper;
use crate::template::signature::{Parameter, Signature};
use crate::template::value::Value;

/// Result of a function: a value, or Go's error message without the position, which the caller
/// adds.
pub(super) type Called = Result<Value, String>;

/// A function that templates may call. Implementations are in the neighbouring modules, grouped by
/// topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::template) enum Function {
    And,
    Call,
    Eq,
    Ge,
    Gt,
    Html,
    Index,
    Js,
    Le,
    Len,
    Lt,
    Ne,
    Not,
    Or,
    Print,
    Printf,
    Println,
    Slice,
    UrlQuery,
    Args,
    ExternalUrl,
    First,
    GraphLink,
    Humanize,
    Humanize1024,
    HumanizeDuration,
    HumanizePercentage,
    HumanizeTimestamp,
    Label,
    Match,
    Now,
    ParseDuration,
    PathPrefix,
    Query,
    ReReplaceAll,
    SafeHtml,
    SortByLabel,
    StripDomain,
    StripPort,
    StringValue,
    TableLink,
    Title,
    Tmpl,
    ToDuration,
    ToLower,
    ToTime,
    ToUpper,
    UrlQueryEscape,
    Value,
    /// Escapes a value for its context in a console page. Inserted by [`super::super::html`], not
    /// available to authors.
    Escape(Escaper),
}

/// All functions with the names under which templates call them.
const NAMES: [(&str, Function); 49] = [
    ("and", Function::And),
    ("call", Function::Call),
    ("eq", Function::Eq),
    ("ge", Function::Ge),
    ("gt", Function::Gt),
    ("html", Function::Html),
    ("index", Function::Index),
    ("js", Function::Js),
    ("le", Function::Le),
    ("len", Function::Len),
    ("lt", Function::Lt),
    ("ne", Function::Ne),
    ("not", Function::Not),
    ("or", Function::Or),
    ("print", Function::Print),
    ("printf", Function::Printf),
    ("println", Function::Println),
    ("slice", Function::Slice),
    ("urlquery", Function::UrlQuery),
    ("args", Function::Args),
    ("externalURL", Function::ExternalUrl),
    ("first", Function::First),
    ("graphLink", Function::GraphLink),
    ("humanize", Function::Humanize),
    ("humanize1024", Function::Humanize1024),
    ("humanizeDuration", Function::HumanizeDuration),
    ("humanizePercentage", Function::HumanizePercentage),
    ("humanizeTimestamp", Function::HumanizeTimestamp),
    ("label", Function::Label),
    ("match", Function::Match),
    ("now", Function::Now),
    ("parseDuration", Function::ParseDuration),
    ("pathPrefix", Function::PathPrefix),
    ("query", Function::Query),
    ("reReplaceAll", Function::ReReplaceAll),
    ("safeHtml", Function::SafeHtml),
    ("sortByLabel", Function::SortByLabel),
    ("stripDomain", Function::StripDomain),
    ("stripPort", Function::StripPort),
    ("strvalue", Function::StringValue),
    ("tableLink", Function::TableLink),
    ("title", Function::Title),
    ("tmpl", Function::Tmpl),
    ("toDuration", Function::ToDuration),
    ("toLower", Function::ToLower),
    ("toTime", Function::ToTime),
    ("toUpper", Function::ToUpper),
    ("urlQueryEscape", Function::UrlQueryEscape),
    ("value", Function::Value),
];

impl Function {
    /// Returns the function called `name`, including the internal escapers; `None` if there is
    /// none.
    pub fn of(name: &str) -> Option<Self> {
        match NAMES.iter().find(|(n, _)| *n == name) {
            Some((_, function)) => Some(*function),
            None => Escaper::of(name).map(Self::Escape),
        }
    }

    /// Returns the parameter types of the function, to which the interpreter converts the
    /// arguments.
    pub fn signature(self) -> Signature {
        use Parameter::{Any, Query, Reflect, Sample, String};
        let more = |fixed, more| Signature {
            fixed,
            more: Some(more),
        };
        match self {
            Self::And | Self::Or | Self::Eq | Self::Index | Self::Slice | Self::Call => {
                more(&[Reflect], Reflect)
            }
            Self::Html | Self::Js | Self::UrlQuery | Self::Print | Self::Println | Self::Args => {
                more(&[], Any)
            }
            Self::Escape(_) => more(&[], Any),
            Self::Tmpl => Signature::fixed(&[String, Any]),
            Self::Printf => more(&[String], Any),
            Self::Not | Self::Len => Signature::fixed(&[Reflect]),
            Self::Ne | Self::Lt | Self::Le | Self::Gt | Self::Ge => {
                Signature::fixed(&[Reflect, Reflect])
            }
            Self::Humanize
            | Self::Humanize1024
            | Self::HumanizeDuration
            | Self::HumanizePercentage
            | Self::HumanizeTimestamp
            | Self::ToTime
            | Self::ToDuration => Signature::fixed(&[Any]),
            Self::Now | Self::PathPrefix | Self::ExternalUrl => Signature::fixed(&[]),
            Self::First => Signature::fixed(&[Query]),
            Self::SortByLabel => Signature::fixed(&[String, Query]),
            Self::Label => Signature::fixed(&[String, Sample]),
            Self::Value | Self::StringValue => Signature::fixed(&[Sample]),
            Self::ReReplaceAll => Signature::fixed(&[String, String, String]),
            Self::Match => Signature::fixed(&[String, String]),
            Self::Query
            | Self::GraphLink
            | Self::TableLink
            | Self::ParseDuration
            | Self::SafeHtml
            | Self::StripDomain
            | Self::StripPort
            | Self::Title
            | Self::ToLower
            | Self::ToUpper
            | Self::UrlQueryEscape => Signature::fixed(&[String]),
        }
    }
}

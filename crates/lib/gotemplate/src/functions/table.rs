//! The table of template functions with their names and signatures.

use crate::html::HtmlEscaper;
use crate::signature::{FunctionSignature, ParameterType};
use crate::value::TemplateValue;

/// Result of a function: a value, or Go's error message without the position, which the caller
/// adds.
pub(super) type Called = Result<TemplateValue, String>;

/// A function that templates may call. Implementations are in the neighbouring modules, grouped by
/// topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TemplateFunction {
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
    /// Escapes a value for its context in a console page. Inserted by
    /// [`super::super::escape_html`], not available to authors.
    Escape(HtmlEscaper),
}

/// All functions with the names under which templates call them.
const NAMES: [(&str, TemplateFunction); 49] = [
    ("and", TemplateFunction::And),
    ("call", TemplateFunction::Call),
    ("eq", TemplateFunction::Eq),
    ("ge", TemplateFunction::Ge),
    ("gt", TemplateFunction::Gt),
    ("html", TemplateFunction::Html),
    ("index", TemplateFunction::Index),
    ("js", TemplateFunction::Js),
    ("le", TemplateFunction::Le),
    ("len", TemplateFunction::Len),
    ("lt", TemplateFunction::Lt),
    ("ne", TemplateFunction::Ne),
    ("not", TemplateFunction::Not),
    ("or", TemplateFunction::Or),
    ("print", TemplateFunction::Print),
    ("printf", TemplateFunction::Printf),
    ("println", TemplateFunction::Println),
    ("slice", TemplateFunction::Slice),
    ("urlquery", TemplateFunction::UrlQuery),
    ("args", TemplateFunction::Args),
    ("externalURL", TemplateFunction::ExternalUrl),
    ("first", TemplateFunction::First),
    ("graphLink", TemplateFunction::GraphLink),
    ("humanize", TemplateFunction::Humanize),
    ("humanize1024", TemplateFunction::Humanize1024),
    ("humanizeDuration", TemplateFunction::HumanizeDuration),
    ("humanizePercentage", TemplateFunction::HumanizePercentage),
    ("humanizeTimestamp", TemplateFunction::HumanizeTimestamp),
    ("label", TemplateFunction::Label),
    ("match", TemplateFunction::Match),
    ("now", TemplateFunction::Now),
    ("parseDuration", TemplateFunction::ParseDuration),
    ("pathPrefix", TemplateFunction::PathPrefix),
    ("query", TemplateFunction::Query),
    ("reReplaceAll", TemplateFunction::ReReplaceAll),
    ("safeHtml", TemplateFunction::SafeHtml),
    ("sortByLabel", TemplateFunction::SortByLabel),
    ("stripDomain", TemplateFunction::StripDomain),
    ("stripPort", TemplateFunction::StripPort),
    ("strvalue", TemplateFunction::StringValue),
    ("tableLink", TemplateFunction::TableLink),
    ("title", TemplateFunction::Title),
    ("tmpl", TemplateFunction::Tmpl),
    ("toDuration", TemplateFunction::ToDuration),
    ("toLower", TemplateFunction::ToLower),
    ("toTime", TemplateFunction::ToTime),
    ("toUpper", TemplateFunction::ToUpper),
    ("urlQueryEscape", TemplateFunction::UrlQueryEscape),
    ("value", TemplateFunction::Value),
];

impl TemplateFunction {
    /// Returns the function called `name`, including the internal escapers; `None` if there is
    /// none.
    pub fn from_name(name: &str) -> Option<Self> {
        match NAMES.iter().find(|(n, _)| *n == name) {
            Some((_, function)) => Some(*function),
            None => HtmlEscaper::from_name(name).map(Self::Escape),
        }
    }

    /// Returns the parameter types of the function, to which the interpreter converts the
    /// arguments.
    pub fn signature(self) -> FunctionSignature {
        use ParameterType::{Any, Query, Reflect, Sample, String};
        let more = |fixed, more| FunctionSignature {
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
            Self::Tmpl => FunctionSignature::fixed(&[String, Any]),
            Self::Printf => more(&[String], Any),
            Self::Not | Self::Len => FunctionSignature::fixed(&[Reflect]),
            Self::Ne | Self::Lt | Self::Le | Self::Gt | Self::Ge => {
                FunctionSignature::fixed(&[Reflect, Reflect])
            }
            Self::Humanize
            | Self::Humanize1024
            | Self::HumanizeDuration
            | Self::HumanizePercentage
            | Self::HumanizeTimestamp
            | Self::ToTime
            | Self::ToDuration => FunctionSignature::fixed(&[Any]),
            Self::Now | Self::PathPrefix | Self::ExternalUrl => FunctionSignature::fixed(&[]),
            Self::First => FunctionSignature::fixed(&[Query]),
            Self::SortByLabel => FunctionSignature::fixed(&[String, Query]),
            Self::Label => FunctionSignature::fixed(&[String, Sample]),
            Self::Value | Self::StringValue => FunctionSignature::fixed(&[Sample]),
            Self::ReReplaceAll => FunctionSignature::fixed(&[String, String, String]),
            Self::Match => FunctionSignature::fixed(&[String, String]),
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
            | Self::UrlQueryEscape => FunctionSignature::fixed(&[String]),
        }
    }
}

//! Escapers for console pages. An escaped value cannot leave its context or change the behaviour of
//! the page.
//!
//! Invariant: output of `safeHtml` is inserted unchanged only where HTML is valid, and treated as
//! text everywhere else. Escapers fail only if the text is too long. An unsafe value is replaced by
//! [`text::FAILSAFE`], for which authors can search.

mod markup;
mod script;
mod style;
mod text;
mod url;

use crate::template::format::TooLong;
use crate::template::value::Value;
use text::{Text, text_of};

/// An escaper that the planner inserts into actions. Authors of templates cannot call it, but
/// errors may contain its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::template) enum Escaper {
    Attr,
    Comment,
    Css,
    CssValue,
    HtmlName,
    Html,
    JsRegexp,
    JsText,
    JsTemplate,
    JsValue,
    NoSpace,
    RcData,
    SrcSet,
    Url,
    UrlFilter,
    UrlNormalizer,
    /// Formats all arguments as one text without escaping it.
    Arguments,
}

const ALL: [Escaper; 17] = [
    Escaper::Attr,
    Escaper::Comment,
    Escaper::Css,
    Escaper::CssValue,
    Escaper::HtmlName,
    Escaper::Html,
    Escaper::JsRegexp,
    Escaper::JsText,
    Escaper::JsTemplate,
    Escaper::JsValue,
    Escaper::NoSpace,
    Escaper::RcData,
    Escaper::SrcSet,
    Escaper::Url,
    Escaper::UrlFilter,
    Escaper::UrlNormalizer,
    Escaper::Arguments,
];

impl Escaper {
    /// Returns the escaper with the internal name `name`.
    pub fn of(name: &str) -> Option<Self> {
        ALL.into_iter().find(|escaper| escaper.name() == name)
    }

    /// Returns the internal name in Go, which error messages contain.
    pub fn name(self) -> &'static str {
        match self {
            Self::Attr => "_html_template_attrescaper",
            Self::Comment => "_html_template_commentescaper",
            Self::Css => "_html_template_cssescaper",
            Self::CssValue => "_html_template_cssvaluefilter",
            Self::HtmlName => "_html_template_htmlnamefilter",
            Self::Html => "_html_template_htmlescaper",
            Self::JsRegexp => "_html_template_jsregexpescaper",
            Self::JsText => "_html_template_jsstrescaper",
            Self::JsTemplate => "_html_template_jstmpllitescaper",
            Self::JsValue => "_html_template_jsvalescaper",
            Self::NoSpace => "_html_template_nospaceescaper",
            Self::RcData => "_html_template_rcdataescaper",
            Self::SrcSet => "_html_template_srcsetescaper",
            Self::Url => "_html_template_urlescaper",
            Self::UrlFilter => "_html_template_urlfilter",
            Self::UrlNormalizer => "_html_template_urlnormalizer",
            Self::Arguments => "_eval_args_",
        }
    }

    /// Returns whether the output of this escaper needs no further escaping by `next`.
    pub fn covers(self, next: Self) -> bool {
        match self {
            Self::Comment => matches!(next, Self::Attr | Self::Html),
            Self::Css | Self::JsRegexp | Self::JsText | Self::JsTemplate => next == Self::Attr,
            Self::Url => next == Self::UrlNormalizer,
            _ => false,
        }
    }

    /// Formats and escapes `arguments`. Fails if the unescaped text is longer than `bytes_max`.
    pub fn apply(self, arguments: &[Value], bytes_max: usize) -> Result<Value, String> {
        let result = match self {
            Self::Comment => Ok(Vec::new()),
            Self::JsValue => script::value(arguments, bytes_max),
            _ => text_of(arguments, bytes_max).map(|text| self.escaped(&text)),
        };
        match result {
            Ok(bytes) => Ok(Value::string(bytes)),
            Err(TooLong) => Err(format!("text is longer than {bytes_max} bytes")),
        }
    }

    fn escaped(self, text: &Text) -> Vec<u8> {
        let bytes = &text.bytes;
        match self {
            Self::Attr => markup::attr(text),
            Self::Html if text.is_markup => bytes.clone(),
            Self::Html => markup::html(bytes),
            Self::RcData => markup::rc_data(text),
            Self::NoSpace => markup::no_space(text),
            Self::HtmlName => markup::name(bytes),
            Self::Css => style::escaped(bytes),
            Self::CssValue => style::value(bytes),
            Self::JsText => script::text(bytes),
            Self::JsTemplate => script::template(bytes),
            Self::JsRegexp => script::regexp(bytes),
            Self::SrcSet => url::source_set(bytes),
            Self::Url => url::escaped(bytes),
            Self::UrlFilter => url::filtered(bytes),
            Self::UrlNormalizer => url::normalized(bytes),
            Self::Arguments | Self::Comment | Self::JsValue => bytes.clone(),
        }
    }
}

//! Escapers for console pages. An escaped value cannot leave its context or change the behaviour of
//! the page.
//!
//! Invariant: output of `safeHtml` is inserted unchanged only where HTML is valid, and treated as
//! text everywhere else. Escapers fail only if the text is too long. An unsafe value is replaced by
//! [`escape_string::FAILSAFE`], for which authors can search.

mod markup;
mod script;
mod style;
mod text;
mod url;

use crate::format::OutputTooLong;
use crate::value::TemplateValue;
use text::{EscaperText, format_arguments};

/// An escaper that the planner inserts into actions. Authors of templates cannot call it, but
/// errors may contain its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HtmlEscaper {
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

const ALL: [HtmlEscaper; 17] = [
    HtmlEscaper::Attr,
    HtmlEscaper::Comment,
    HtmlEscaper::Css,
    HtmlEscaper::CssValue,
    HtmlEscaper::HtmlName,
    HtmlEscaper::Html,
    HtmlEscaper::JsRegexp,
    HtmlEscaper::JsText,
    HtmlEscaper::JsTemplate,
    HtmlEscaper::JsValue,
    HtmlEscaper::NoSpace,
    HtmlEscaper::RcData,
    HtmlEscaper::SrcSet,
    HtmlEscaper::Url,
    HtmlEscaper::UrlFilter,
    HtmlEscaper::UrlNormalizer,
    HtmlEscaper::Arguments,
];

impl HtmlEscaper {
    /// Returns the escaper with the internal name `name`.
    pub fn from_name(name: &str) -> Option<Self> {
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
    pub fn apply(
        self,
        arguments: &[TemplateValue],
        bytes_max: usize,
    ) -> Result<TemplateValue, String> {
        let result = match self {
            Self::Comment => Ok(Vec::new()),
            Self::JsValue => script::encode_value(arguments, bytes_max),
            _ => format_arguments(arguments, bytes_max).map(|text| self.escape(&text)),
        };
        match result {
            Ok(bytes) => Ok(TemplateValue::string(bytes)),
            Err(OutputTooLong) => Err(format!("text is longer than {bytes_max} bytes")),
        }
    }

    fn escape(self, text: &EscaperText) -> Vec<u8> {
        let bytes = &text.bytes;
        match self {
            Self::Attr => markup::escape_attr(text),
            Self::Html if text.is_markup => bytes.clone(),
            Self::Html => markup::escape_html(bytes),
            Self::RcData => markup::escape_rc_data(text),
            Self::NoSpace => markup::escape_unquoted(text),
            Self::HtmlName => markup::filter_attr_name(bytes),
            Self::Css => style::escape_string(bytes),
            Self::CssValue => style::filter_value(bytes),
            Self::JsText => script::escape_string(bytes),
            Self::JsTemplate => script::escape_template(bytes),
            Self::JsRegexp => script::escape_regexp(bytes),
            Self::SrcSet => url::escape_source_set(bytes),
            Self::Url => url::escape_component(bytes),
            Self::UrlFilter => url::filter_url(bytes),
            Self::UrlNormalizer => url::normalize_url(bytes),
            Self::Arguments | Self::Comment | Self::JsValue => bytes.clone(),
        }
    }
}

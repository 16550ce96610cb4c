//! The functions that templates may call: names, signatures and implementations.

mod builtin;
mod compare;
mod hosts;
mod numbers;
mod table;

pub(super) use table::TemplateFunction;

use super::escape;
use super::format::{self, OutputTooLong};
use super::input::{QueryFn, TemplateEnvironment};
use super::value::{Bytes, NamedArgs, TemplateSample, TemplateValue};
use firn_goregex::SearchRegex;
use firn_model::quote::quote;
use std::rc::Rc;
use table::Called;

/// Arguments and environment of a function call. Created by the interpreter after the arguments
/// were converted to their types.
pub(super) struct TemplateCall<'c, 'q> {
    /// Arguments, already checked against the signature of the function.
    pub arguments: &'c [TemplateValue],
    /// Source text of the first argument, for error messages.
    pub callee: &'c str,
    pub around: &'c TemplateEnvironment<'q>,
    pub query: &'c mut QueryFn<'q>,
    /// Maximum length of a string result in bytes.
    pub bytes_max: usize,
}

impl TemplateFunction {
    /// Calls the function with converted arguments. Returns its result, or Go's error message
    /// without a position.
    pub fn call(self, call: TemplateCall<'_, '_>) -> Called {
        let arguments = call.arguments;
        match self {
            Self::Eq | Self::Ne | Self::Lt | Self::Le | Self::Gt | Self::Ge => {
                compare::compare(self, arguments).map(TemplateValue::Bool)
            }
            Self::And | Self::Or | Self::Not | Self::Index | Self::Slice | Self::Len => {
                builtin::call(self, arguments)
            }
            Self::Call => builtin::call_value(arguments, call.callee),
            Self::Html | Self::Js | Self::UrlQuery => {
                let text = plain(arguments, call.bytes_max)?;
                Ok(TemplateValue::string(match self {
                    Self::Html => escape::escape_html(&text),
                    Self::Js => escape::escape_js(&text),
                    _ => escape::escape_url_query(&text),
                }))
            }
            Self::Print => string(format::print(arguments, call.bytes_max)),
            Self::Println => string(format::println(arguments, call.bytes_max)),
            Self::Printf => match arguments.split_first() {
                Some((TemplateValue::String(format), rest)) => {
                    string(format::printf(format, rest, call.bytes_max))
                }
                _ => Ok(TemplateValue::Invalid),
            },
            Self::Escape(escaper) => escaper.apply(arguments, call.bytes_max),
            Self::Args => args(arguments),
            Self::Now => Ok(TemplateValue::Float(call.around.time as f64 / 1000.0)),
            Self::PathPrefix => Ok(TemplateValue::string(call.around.path_prefix.as_bytes())),
            Self::ExternalUrl => Ok(TemplateValue::string(call.around.external_url.as_bytes())),
            Self::Humanize
            | Self::Humanize1024
            | Self::HumanizeDuration
            | Self::HumanizePercentage
            | Self::HumanizeTimestamp
            | Self::ToTime
            | Self::ToDuration => match arguments.first() {
                Some(argument) => numbers::call(self, argument),
                None => Ok(TemplateValue::Invalid),
            },
            Self::First | Self::SortByLabel | Self::Label | Self::Value | Self::StringValue => {
                call_on_samples(self, arguments)
            }
            _ => self.call_on_texts(call),
        }
    }

    /// Calls a function whose arguments are all strings. Missing arguments are treated as empty.
    fn call_on_texts(self, call: TemplateCall<'_, '_>) -> Called {
        let text = |index: usize| match call.arguments.get(index) {
            Some(TemplateValue::String(text)) => Rc::clone(text),
            _ => Bytes::default(),
        };
        let first = text(0);
        Ok(match self {
            Self::Query => {
                let text = String::from_utf8_lossy(&first);
                let samples = (call.query)(&text, call.around.time)?;
                let samples = samples
                    .iter()
                    .map(|sample| Rc::new(TemplateSample::from_queried(sample)));
                TemplateValue::Query(super::value::QuerySlice::new(samples.collect()))
            }
            Self::ReReplaceAll => {
                let regex = must_compile(&first)?;
                let replacement = text(1);
                let replacement = String::from_utf8_lossy(&replacement);
                let replaced = regex.replace_all(&text(2), &replacement, call.bytes_max);
                TemplateValue::string(replaced.ok_or_else(|| too_long(call.bytes_max))?)
            }
            Self::Match => {
                let regex = SearchRegex::new(&first).map_err(|e| e.message)?;
                TemplateValue::Bool(regex.is_match(&text(1)))
            }
            Self::SafeHtml => TemplateValue::Html(first),
            Self::Title => TemplateValue::string(escape::to_title(&first)),
            Self::ToUpper => TemplateValue::string(escape::to_upper(&first)),
            Self::ToLower => TemplateValue::string(escape::to_lower(&first)),
            Self::UrlQueryEscape => TemplateValue::string(escape::escape_url_query(&first)),
            Self::GraphLink => TemplateValue::string(link(&first, "0")),
            Self::TableLink => TemplateValue::string(link(&first, "1")),
            Self::StripPort => TemplateValue::string(hosts::strip_port(&first)),
            Self::StripDomain => TemplateValue::string(hosts::strip_domain(&first)),
            Self::ParseDuration => TemplateValue::Float(numbers::parse_duration(&first)?),
            _ => TemplateValue::Invalid,
        })
    }
}

fn too_long(bytes_max: usize) -> String {
    format!("text is longer than {bytes_max} bytes")
}

fn string(printed: Result<Vec<u8>, OutputTooLong>) -> Called {
    match printed {
        Ok(bytes) => Ok(TemplateValue::string(bytes)),
        Err(OutputTooLong) => Err("text is too long".to_owned()),
    }
}

/// Formats the arguments like the output of an action, up to a maximum length in bytes.
fn plain(arguments: &[TemplateValue], bytes_max: usize) -> Result<Vec<u8>, String> {
    format::print_plain(arguments, bytes_max).map_err(|OutputTooLong| too_long(bytes_max))
}

/// Returns a map with the keys `arg0`, `arg1`, …, for passing several values to a template.
fn args(arguments: &[TemplateValue]) -> Called {
    let named = |(index, value): (usize, &TemplateValue)| {
        let name: Bytes = format!("arg{index}").into_bytes().into();
        let value = match value.clone().unwrap_interface() {
            TemplateValue::Invalid => TemplateValue::Interface(None),
            value => value,
        };
        (name, value)
    };
    let entries = arguments.iter().enumerate().map(named).collect();
    match NamedArgs::new(entries) {
        Some(args) => Ok(TemplateValue::Args(Rc::new(args))),
        None => {
            let most = NamedArgs::HEIGHT_MAX;
            Err(format!("more than {most} values within values"))
        }
    }
}

fn link(expression: &[u8], tab: &str) -> Vec<u8> {
    let escaped = escape::escape_url_query(expression);
    [
        b"/graph?g0.expr=",
        &escaped[..],
        b"&g0.tab=",
        tab.as_bytes(),
    ]
    .concat()
}

/// Compiles a regular expression, or returns Go's error message of `regexp.MustCompile`.
fn must_compile(pattern: &[u8]) -> Result<SearchRegex, String> {
    SearchRegex::new(pattern).map_err(|e| {
        let quoted = if format::can_back_quote(pattern) {
            format!("`{}`", String::from_utf8_lossy(pattern))
        } else {
            quote(pattern)
        };
        format!("regexp: Compile({quoted}): {}", e.message)
    })
}

/// Calls a function on samples or query results. Access to a nil sample fails like in Go.
fn call_on_samples(function: TemplateFunction, arguments: &[TemplateValue]) -> Called {
    /// Go's message for access to a field of a nil pointer.
    const NIL: &str = "runtime error: invalid memory address or nil pointer dereference";
    Ok(match (function, arguments) {
        (TemplateFunction::First, [TemplateValue::Query(query)]) => match query.get(0) {
            Some(sample) => TemplateValue::Sample(Some(sample)),
            None => return Err("first() called on vector with no elements".to_owned()),
        },
        (
            TemplateFunction::SortByLabel,
            [TemplateValue::String(label), TemplateValue::Query(query)],
        ) => {
            query.sort_by(label);
            TemplateValue::Query(query.clone())
        }
        (
            TemplateFunction::Label,
            [
                TemplateValue::String(label),
                TemplateValue::Sample(Some(sample)),
            ],
        ) => TemplateValue::String(sample.labels.get(label).cloned().unwrap_or_default()),
        (TemplateFunction::Value, [TemplateValue::Sample(Some(sample))]) => {
            TemplateValue::wrap_interface(sample.value.clone())
        }
        (TemplateFunction::StringValue, [TemplateValue::Sample(Some(sample))]) => {
            let value = sample.labels.get(&b"__value__"[..]);
            TemplateValue::String(value.cloned().unwrap_or_default())
        }
        _ => return Err(NIL.to_owned()),
    })
}

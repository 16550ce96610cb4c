//! The functions that templates may call: names, signatures and implementations.

mod builtin;
mod compare;
mod hosts;
mod numbers;
mod table;

pub(super) use table::Function;

use super::escape;
use super::format::{self, TooLong};
use super::input::{Around, QueryFn};
use super::value::{Args, Bytes, Sample, Value};
use firn_model::quote::quote;
use firn_model::regex::SearchRegex;
use std::rc::Rc;
use table::Called;

/// Arguments and environment of a function call. Created by the interpreter after the arguments
/// were converted to their types.
pub(super) struct Call<'c, 'q> {
    /// Arguments, already checked against the signature of the function.
    pub arguments: &'c [Value],
    /// Source text of the first argument, for error messages.
    pub callee: &'c str,
    pub around: &'c Around<'q>,
    pub query: &'c mut QueryFn<'q>,
    /// Maximum length of a string result in bytes.
    pub bytes_max: usize,
}

impl Function {
    /// Calls the function with converted arguments. Returns its result, or Go's error message
    /// without a position.
    pub fn call(self, call: Call<'_, '_>) -> Called {
        let arguments = call.arguments;
        match self {
            Self::Eq | Self::Ne | Self::Lt | Self::Le | Self::Gt | Self::Ge => {
                compare::compare(self, arguments).map(Value::Bool)
            }
            Self::And | Self::Or | Self::Not | Self::Index | Self::Slice | Self::Len => {
                builtin::call(self, arguments)
            }
            Self::Call => builtin::call_value(arguments, call.callee),
            Self::Html | Self::Js | Self::UrlQuery => {
                let text = plain(arguments, call.bytes_max)?;
                Ok(Value::string(match self {
                    Self::Html => escape::html(&text),
                    Self::Js => escape::js(&text),
                    _ => escape::url_query(&text),
                }))
            }
            Self::Print => string(format::print(arguments, call.bytes_max)),
            Self::Println => string(format::println(arguments, call.bytes_max)),
            Self::Printf => match arguments.split_first() {
                Some((Value::String(format), rest)) => {
                    string(format::printf(format, rest, call.bytes_max))
                }
                _ => Ok(Value::Invalid),
            },
            Self::Escape(escaper) => escaper.apply(arguments, call.bytes_max),
            Self::Args => args(arguments),
            Self::Now => Ok(Value::Float(call.around.time as f64 / 1000.0)),
            Self::PathPrefix => Ok(Value::string(call.around.path_prefix.as_bytes())),
            Self::ExternalUrl => Ok(Value::string(call.around.external_url.as_bytes())),
            Self::Humanize
            | Self::Humanize1024
            | Self::HumanizeDuration
            | Self::HumanizePercentage
            | Self::HumanizeTimestamp
            | Self::ToTime
            | Self::ToDuration => match arguments.first() {
                Some(argument) => numbers::call(self, argument),
                None => Ok(Value::Invalid),
            },
            Self::First | Self::SortByLabel | Self::Label | Self::Value | Self::StringValue => {
                of_samples(self, arguments)
            }
            _ => self.of_texts(call),
        }
    }

    /// Calls a function whose arguments are all strings. Missing arguments are treated as empty.
    fn of_texts(self, call: Call<'_, '_>) -> Called {
        let text = |index: usize| match call.arguments.get(index) {
            Some(Value::String(text)) => Rc::clone(text),
            _ => Bytes::default(),
        };
        let first = text(0);
        Ok(match self {
            Self::Query => {
                let text = String::from_utf8_lossy(&first);
                let samples = (call.query)(&text, call.around.time)?;
                let samples = samples.iter().map(|sample| Rc::new(Sample::of(sample)));
                Value::Query(super::value::Query::new(samples.collect()))
            }
            Self::ReReplaceAll => {
                let regex = must_compile(&first)?;
                let replacement = text(1);
                let replacement = String::from_utf8_lossy(&replacement);
                let replaced = regex.replace_all(&text(2), &replacement, call.bytes_max);
                Value::string(replaced.ok_or_else(|| too_long(call.bytes_max))?)
            }
            Self::Match => {
                let regex = SearchRegex::new(&first).map_err(|e| e.message)?;
                Value::Bool(regex.is_match(&text(1)))
            }
            Self::SafeHtml => Value::Html(first),
            Self::Title => Value::string(escape::title(&first)),
            Self::ToUpper => Value::string(escape::to_upper(&first)),
            Self::ToLower => Value::string(escape::to_lower(&first)),
            Self::UrlQueryEscape => Value::string(escape::url_query(&first)),
            Self::GraphLink => Value::string(link(&first, "0")),
            Self::TableLink => Value::string(link(&first, "1")),
            Self::StripPort => Value::string(hosts::strip_port(&first)),
            Self::StripDomain => Value::string(hosts::strip_domain(&first)),
            Self::ParseDuration => Value::Float(numbers::parse_duration(&first)?),
            _ => Value::Invalid,
        })
    }
}

fn too_long(bytes_max: usize) -> String {
    format!("text is longer than {bytes_max} bytes")
}

fn string(printed: Result<Vec<u8>, TooLong>) -> Called {
    match printed {
        Ok(bytes) => Ok(Value::string(bytes)),
        Err(TooLong) => Err("text is too long".to_owned()),
    }
}

/// Formats the arguments like the output of an action, up to a maximum length in bytes.
fn plain(arguments: &[Value], bytes_max: usize) -> Result<Vec<u8>, String> {
    format::print_plain(arguments, bytes_max).map_err(|TooLong| too_long(bytes_max))
}

/// Returns a map with the keys `arg0`, `arg1`, …, for passing several values to a template.
fn args(arguments: &[Value]) -> Called {
    let named = |(index, value): (usize, &Value)| {
        let name: Bytes = format!("arg{index}").into_bytes().into();
        let value = match value.clone().inside() {
            Value::Invalid => Value::Interface(None),
            value => value,
        };
        (name, value)
    };
    let entries = arguments.iter().enumerate().map(named).collect();
    match Args::new(entries) {
        Some(args) => Ok(Value::Args(Rc::new(args))),
        None => {
            let most = Args::HEIGHT_MAX;
            Err(format!("more than {most} values within values"))
        }
    }
}

fn link(expression: &[u8], tab: &str) -> Vec<u8> {
    let escaped = escape::url_query(expression);
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
        let quoted = match format::can_back_quote(pattern) {
            true => format!("`{}`", String::from_utf8_lossy(pattern)),
            false => quote(pattern),
        };
        format!("regexp: Compile({quoted}): {}", e.message)
    })
}

/// Calls a function on samples or query results. Access to a nil sample fails like in Go.
fn of_samples(function: Function, arguments: &[Value]) -> Called {
    /// Go's message for access to a field of a nil pointer.
    const NIL: &str = "runtime error: invalid memory address or nil pointer dereference";
    Ok(match (function, arguments) {
        (Function::First, [Value::Query(query)]) => match query.get(0) {
            Some(sample) => Value::Sample(Some(sample)),
            None => return Err("first() called on vector with no elements".to_owned()),
        },
        (Function::SortByLabel, [Value::String(label), Value::Query(query)]) => {
            query.sort_by(label);
            Value::Query(query.clone())
        }
        (Function::Label, [Value::String(label), Value::Sample(Some(sample))]) => {
            Value::String(sample.labels.get(label).cloned().unwrap_or_default())
        }
        (Function::Value, [Value::Sample(Some(sample))]) => Value::boxed(sample.value.clone()),
        (Function::StringValue, [Value::Sample(Some(sample))]) => {
            let value = sample.labels.get(&b"__value__"[..]);
            Value::String(value.cloned().unwrap_or_default())
        }
        _ => return Err(NIL.to_owned()),
    })
}

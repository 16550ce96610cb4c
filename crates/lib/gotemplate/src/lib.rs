//! Templates with the syntax and semantics of Go's `text/template` and `html/template`, and with
//! the functions that Prometheus adds to them.
//!
//! [`expand`] expands a label or an annotation of an alert, and [`expand_console`] renders a
//! console page, in which each value is escaped for its context.
//!
//! ```
//! use firn_gotemplate::{AlertData, TemplateLimits, TemplateSampleValue, expand};
//! use firn_model::labels::Labels;
//!
//! let labels = Labels::from_pairs([("instance", "web-1:9100")]);
//! let data = AlertData {
//!     alert: "DiskFull",
//!     labels: &labels,
//!     value: TemplateSampleValue::Float(0.915),
//!     external_labels: &Labels::default(),
//!     external_url: "http://localhost:9090",
//!     path_prefix: "",
//!     time: 1_700_000_000_000,
//! };
//! let text = "{{ $labels.instance | stripPort }} is at {{ $value | humanizePercentage }}";
//! let mut no_query = |_: &str, _| Err("no store".to_owned());
//! let text = expand(text, &data, &mut no_query, &TemplateLimits::default())?;
//! assert_eq!(text, "web-1 is at 91.5%");
//! # Ok::<(), firn_gotemplate::TemplateError>(())
//! ```
//!
//! ```text
//! text -- lexer --> tokens -- parser --> trees -- run --> text
//!                        consoles: trees -- html --^ |- functions: Go's and Prometheus's
//!                                                    |- format: Go's fmt
//!                                                    `- queries, through a callback
//! ```
//!
//! Pure: queries run through a callback and the time is an input. Output and errors, including
//! their positions, are identical to upstream's; the tests replay answers recorded from it.
//!
//! Invariant: every template terminates. Steps, output, allocated bytes, queries and depth are
//! bounded by [`TemplateLimits`]. Only the methods in `run/method.rs` are available.
//!
//! The crate has no reflection: values are those of alerts and console pages, not any type of the
//! caller. Labels, histograms and the cancel flag are those of [`firn_model`].

mod escape;
mod format;
mod functions;
mod html;
mod input;
mod lexer;
mod number;
mod parser;
mod run;
mod signature;
#[cfg(test)]
mod tests;
mod time;
mod tree;
mod value;

pub use input::{
    AlertData, ConsoleRequest, QueriedSample, QueryFn, TemplateLimits, TemplateSampleValue,
};

use firn_model::labels::Labels;
use input::TemplateEnvironment;
use parser::TemplateKind;
use std::collections::BTreeMap;
use std::rc::Rc;
use tree::{Definitions, TemplateFile, define_all};
use value::{Bytes, TemplateData, TemplateValue, labels_to_strings};

/// Text before each alert template. It declares short names for the data of the alert. Positions in
/// errors include it, as in upstream.
const PREAMBLE: &str = "{{$labels := .Labels}}{{$externalLabels := .ExternalLabels}}\
                        {{$externalURL := .ExternalURL}}{{$value := .Value}}";

/// Text before each console template, with short names for the data of the page.
const CONSOLE_PREAMBLE: &str = "{{$rawParams := .RawParams }}{{$params := .Params}}\
                                {{$path := .Path}}{{$externalLabels := .ExternalLabels}}";

/// Go type of the data of an alert template, for error messages.
const ALERT_TYPE: &str = "struct { Labels map[string]string; ExternalLabels map[string]string; \
                          ExternalURL string; Value interface {} }";

/// Go type of the data of a console template, for error messages.
const CONSOLE_TYPE: &str = "struct { RawParams url.Values; Params map[string]string; \
                            Path string; ExternalLabels map[string]string }";

/// Error of a template. The messages are upstream's and include the name of the template and the
/// position.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// The text is not a valid template.
    #[error("error parsing template {name}: {message}")]
    Parse {
        /// Internal name of the template, with the prefix `__alert_` or `__console_`.
        name: String,
        /// Go's parse error, including the name of the template and the line.
        message: String,
    },
    /// A library of console templates cannot be parsed.
    #[error("error parsing template files for {name}: {message}")]
    Library {
        /// Internal name of the console template.
        name: String,
        /// Go's parse error with the line, or the reason why the library cannot be read.
        message: String,
    },
    /// The execution failed or exceeded a limit.
    #[error("error executing template {name}: {message}")]
    Execution {
        /// Internal name of the template.
        name: String,
        /// Go's execution error, including the name of the template and the position.
        message: String,
    },
}

/// Expands `text`, a label or an annotation of an alert. Invalid UTF-8, which only `slice` and `\x`
/// can produce, becomes the replacement character.
pub fn expand(
    text: &str,
    data: &AlertData<'_>,
    query: &mut QueryFn<'_>,
    limits: &TemplateLimits,
) -> Result<String, TemplateError> {
    let name = alert_template_name(data.alert);
    let mut definitions = Definitions::new();
    parse_into(TemplateKind::Alert, &name, PREAMBLE, text, &mut definitions).map_err(
        |message| TemplateError::Parse {
            name: name.clone(),
            message,
        },
    )?;
    let around = TemplateEnvironment {
        external_url: data.external_url,
        path_prefix: data.path_prefix,
        time: data.time,
    };
    let source = tree::ParsedTemplate {
        name: &name,
        definitions: &definitions,
        refused: &BTreeMap::new(),
    };
    match run::run(source, alert_data(data), &around, query, limits) {
        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Err(message) => Err(TemplateError::Execution { name, message }),
    }
}

/// Renders a console page. Each value is escaped for its context in the HTML document. Returns
/// bytes, which need not be valid UTF-8.
pub fn expand_console(
    console: &ConsoleRequest<'_>,
    query: &mut QueryFn<'_>,
    limits: &TemplateLimits,
) -> Result<Vec<u8>, TemplateError> {
    let name = console_name(console.path);
    let mut read_definitions = Definitions::new();
    let mut read = |name: &str, preamble, text| {
        parse_into(
            TemplateKind::Console,
            name,
            preamble,
            text,
            &mut read_definitions,
        )
    };
    read(&name, CONSOLE_PREAMBLE, console.text).map_err(|message| TemplateError::Parse {
        name: name.clone(),
        message,
    })?;
    for (library, text) in console.libraries {
        read(library, "", text).map_err(|message| TemplateError::Library {
            name: name.clone(),
            message,
        })?;
    }
    let around = TemplateEnvironment {
        external_url: console.external_url,
        path_prefix: console.path_prefix,
        time: console.time,
    };
    let made = html::escape(&name, &read_definitions).and_then(|escaped| {
        let source = tree::ParsedTemplate {
            name: &name,
            definitions: &escaped.definitions,
            refused: &escaped.refused,
        };
        run::run(source, console_data(console), &around, query, limits)
    });
    made.map_err(|message| TemplateError::Execution { name, message })
}

/// Returns the text that replaces the output of a failed template, as in upstream: the error in
/// angle brackets.
pub fn error_text(error: &TemplateError) -> String {
    format!("<error expanding template: {error}>")
}

/// Checks that `text` can be parsed as a template of the rule `alert`, for the validation of rule
/// files. The error message contains the line.
pub fn check(alert: &str, text: &str) -> Result<(), String> {
    let mut definitions = Definitions::new();
    let name = alert_template_name(alert);
    parse_into(TemplateKind::Alert, &name, PREAMBLE, text, &mut definitions)
}

/// Escapes text for the query of a URL, like Go's `url.QueryEscape` and the template function
/// `urlquery`.
pub fn url_query_escape(text: &str) -> String {
    String::from_utf8_lossy(&escape::escape_url_query(text.as_bytes())).into_owned()
}

/// Returns the internal name of the template for a console page, which errors contain.
pub fn console_name(path: &str) -> String {
    format!("__console_{path}")
}

fn alert_template_name(alert: &str) -> String {
    format!("__alert_{alert}")
}

/// Parses a text after its preamble and adds its templates to `definitions`. The error is Go's
/// message.
fn parse_into(
    kind: TemplateKind,
    name: &str,
    preamble: &str,
    text: &str,
    definitions: &mut Definitions,
) -> Result<(), String> {
    let text = format!("{preamble}{text}");
    let bodies = parser::parse(kind, name, &text)?;
    let name = name.to_owned();
    define_all(definitions, &Rc::new(TemplateFile { name, text }), bodies);
    Ok(())
}

fn alert_data(data: &AlertData<'_>) -> TemplateValue {
    let text = |text: &str| TemplateValue::string(text.as_bytes());
    TemplateValue::Data(Rc::new(TemplateData {
        type_name: ALERT_TYPE,
        fields: vec![
            ("Labels", labels_to_map(data.labels)),
            ("ExternalLabels", labels_to_map(data.external_labels)),
            ("ExternalURL", text(data.external_url)),
            (
                "Value",
                TemplateValue::wrap_interface(TemplateValue::from(&data.value)),
            ),
        ],
    }))
}

fn console_data(console: &ConsoleRequest<'_>) -> TemplateValue {
    let mut lists: BTreeMap<Bytes, Vec<Bytes>> = BTreeMap::new();
    for (name, value) in console.params {
        let list = lists.entry(name.as_bytes().into()).or_default();
        list.push(value.as_bytes().into());
    }
    let first = |(name, list): (&Bytes, &Vec<Bytes>)| Some((name.clone(), list.first()?.clone()));
    let firsts = lists.iter().filter_map(first).collect();
    let all = lists.into_iter().map(|(name, list)| (name, list.into()));
    let path = console.path.trim_start_matches('/');
    TemplateValue::Data(Rc::new(TemplateData {
        type_name: CONSOLE_TYPE,
        fields: vec![
            ("RawParams", TemplateValue::Params(Rc::new(all.collect()))),
            ("Params", TemplateValue::Strings(Rc::new(firsts))),
            ("Path", TemplateValue::string(path.as_bytes())),
            ("ExternalLabels", labels_to_map(console.external_labels)),
        ],
    }))
}

fn labels_to_map(labels: &Labels) -> TemplateValue {
    TemplateValue::Strings(labels_to_strings(labels))
}

//! Templates of labels, annotations and pages: Go's `text/template` and `html/template` with
//! Prometheus's functions.
//!
//! ```text
//! text -- lexer --> tokens -- parser --> trees -- run --> text
//!                           of a page: -- html --^ |- functions: Go's and Prometheus's
//!                                                  |- format: Go's fmt
//!                                                  `- queries, by a callback
//! ```
//!
//! Pure: queries go through a callback, time comes in. What a template gives and its errors, their
//! positions included, are upstream's; `template/tests` replays answers recorded from it.
//!
//! Invariant: whatever the text, a template ends: steps, output, bytes made, queries and height are
//! bounded, see [`Limits`]. Of methods those exist that the types of `run/method.rs` list.

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

pub use input::{AlertData, Console, Limits, QueriedSample, QueryFn, SampleValue};

use firn_model::labels::Labels;
use input::Around;
use parser::TemplateKind;
use std::collections::BTreeMap;
use std::rc::Rc;
use tree::{Definitions, File, define_all};
use value::{Bytes, Data, Value, strings};

/// What stands before each template of an alert, so that its data have short names. Positions in
/// errors count it, as upstream's do.
const PREAMBLE: &str = "{{$labels := .Labels}}{{$externalLabels := .ExternalLabels}}\
                        {{$externalURL := .ExternalURL}}{{$value := .Value}}";

/// The same for a page.
const CONSOLE_PREAMBLE: &str = "{{$rawParams := .RawParams }}{{$params := .Params}}\
                                {{$path := .Path}}{{$externalLabels := .ExternalLabels}}";

/// The type of an alert's data.
const ALERT_TYPE: &str = "struct { Labels map[string]string; ExternalLabels map[string]string; \
                          ExternalURL string; Value interface {} }";

/// The type of a page's data.
const CONSOLE_TYPE: &str = "struct { RawParams url.Values; Params map[string]string; \
                            Path string; ExternalLabels map[string]string }";

/// Why a template gave nothing; the texts are upstream's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// The text is no template.
    #[error("error parsing template {name}: {message}")]
    Parse {
        /// The name of the template.
        name: String,
        /// What is wrong, with the line.
        message: String,
    },
    /// A library cannot be read.
    #[error("error parsing template files for {name}: {message}")]
    Library {
        /// The name of the template.
        name: String,
        /// What is wrong, with the line.
        message: String,
    },
    /// It failed, or did too much.
    #[error("error executing template {name}: {message}")]
    Execution {
        /// The name of the template.
        name: String,
        /// What failed, with the position.
        message: String,
    },
}

/// Expands `text`, a label or an annotation of an alert. Bytes that are not UTF-8, which only
/// `slice` and `\x` make, become the replacement character.
pub fn expand(
    text: &str,
    data: &AlertData<'_>,
    query: &mut QueryFn<'_>,
    limits: &Limits,
) -> Result<String, TemplateError> {
    let name = name_of(data.alert);
    let mut definitions = Definitions::new();
    read(TemplateKind::Alert, &name, PREAMBLE, text, &mut definitions).map_err(|message| {
        TemplateError::Parse {
            name: name.clone(),
            message,
        }
    })?;
    let around = Around {
        external_url: data.external_url,
        path_prefix: data.path_prefix,
        time: data.time,
    };
    let source = run::Source {
        name: &name,
        definitions: &definitions,
        refused: &BTreeMap::new(),
    };
    match run::run(source, alert_data(data), &around, query, limits) {
        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Err(message) => Err(TemplateError::Execution { name, message }),
    }
}

/// Makes a page, each value in it escaped for the place where it stands.
pub fn expand_console(
    console: &Console<'_>,
    query: &mut QueryFn<'_>,
    limits: &Limits,
) -> Result<Vec<u8>, TemplateError> {
    let name = console_name(console.path);
    let mut read_definitions = Definitions::new();
    let mut read = |name: &str, preamble, text| {
        read(
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
    let around = Around {
        external_url: console.external_url,
        path_prefix: console.path_prefix,
        time: console.time,
    };
    let made = html::escape(&name, &read_definitions).and_then(|escaped| {
        let source = run::Source {
            name: &name,
            definitions: &escaped.definitions,
            refused: &escaped.refused,
        };
        run::run(source, console_data(console), &around, query, limits)
    });
    made.map_err(|message| TemplateError::Execution { name, message })
}

/// What stands in the place of a template that failed, as upstream shows it.
pub fn error_text(error: &TemplateError) -> String {
    format!("<error expanding template: {error}>")
}

/// Whether `text` can be read as a template of the rule `alert`, as a check of rule files does;
/// the message has the line.
pub fn check(alert: &str, text: &str) -> Result<(), String> {
    let mut definitions = Definitions::new();
    let name = name_of(alert);
    read(TemplateKind::Alert, &name, PREAMBLE, text, &mut definitions)
}

/// Text within the query of a URL, as the function of this name escapes it.
pub(crate) fn url_query_escape(text: &str) -> String {
    String::from_utf8_lossy(&escape::url_query(text.as_bytes())).into_owned()
}

/// The name of the template that a page is made of.
pub fn console_name(path: &str) -> String {
    format!("__console_{path}")
}

fn name_of(alert: &str) -> String {
    format!("__alert_{alert}")
}

/// Adds what a text defines.
fn read(
    kind: TemplateKind,
    name: &str,
    preamble: &str,
    text: &str,
    definitions: &mut Definitions,
) -> Result<(), String> {
    let text = format!("{preamble}{text}");
    let bodies = parser::parse(kind, name, &text)?;
    let name = name.to_owned();
    define_all(definitions, &Rc::new(File { name, text }), bodies);
    Ok(())
}

fn alert_data(data: &AlertData<'_>) -> Value {
    let text = |text: &str| Value::string(text.as_bytes());
    Value::Data(Rc::new(Data {
        type_name: ALERT_TYPE,
        fields: vec![
            ("Labels", map_of(data.labels)),
            ("ExternalLabels", map_of(data.external_labels)),
            ("ExternalURL", text(data.external_url)),
            ("Value", Value::boxed(Value::from(&data.value))),
        ],
    }))
}

fn console_data(console: &Console<'_>) -> Value {
    let mut lists: BTreeMap<Bytes, Vec<Bytes>> = BTreeMap::new();
    for (name, value) in console.params {
        let list = lists.entry(name.as_bytes().into()).or_default();
        list.push(value.as_bytes().into());
    }
    let first = |(name, list): (&Bytes, &Vec<Bytes>)| Some((name.clone(), list.first()?.clone()));
    let firsts = lists.iter().filter_map(first).collect();
    let all = lists.into_iter().map(|(name, list)| (name, list.into()));
    let path = console.path.trim_start_matches('/');
    Value::Data(Rc::new(Data {
        type_name: CONSOLE_TYPE,
        fields: vec![
            ("RawParams", Value::Params(Rc::new(all.collect()))),
            ("Params", Value::Strings(Rc::new(firsts))),
            ("Path", Value::string(path.as_bytes())),
            ("ExternalLabels", map_of(console.external_labels)),
        ],
    }))
}

fn map_of(labels: &Labels) -> Value {
    Value::Strings(strings(labels))
}

//! Templates of labels and annotations: Go's `text/template` with Prometheus's functions.
//!
//! ```text
//! text -- lexer --> tokens -- parser --> trees -- run --> text
//!                                                  |- functions: Go's and Prometheus's
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

pub use input::{AlertData, Limits, QueriedSample, QueryFn, SampleValue};

/// What stands before each template of an alert, so that its data have short names. Positions in
/// errors count it, as upstream's do.
const PREAMBLE: &str = "{{$labels := .Labels}}{{$externalLabels := .ExternalLabels}}\
                        {{$externalURL := .ExternalURL}}{{$value := .Value}}";

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
    let text = format!("{PREAMBLE}{text}");
    let definitions = parser::parse(&name, &text).map_err(|message| TemplateError::Parse {
        name: name.clone(),
        message,
    })?;
    let source = run::Source {
        name: &name,
        text: &text,
        definitions: &definitions,
    };
    match run::run(source, data, query, limits) {
        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Err(message) => Err(TemplateError::Execution { name, message }),
    }
}

/// What stands in the place of a template that failed, as upstream shows it.
pub fn error_text(error: &TemplateError) -> String {
    format!("<error expanding template: {error}>")
}

/// Whether `text` can be read as a template of the rule `alert`, as a check of rule files does;
/// the message has the line.
pub fn check(alert: &str, text: &str) -> Result<(), String> {
    let text = format!("{PREAMBLE}{text}");
    parser::parse(&name_of(alert), &text).map(drop)
}

/// Text within the query of a URL, as the function of this name escapes it.
pub(crate) fn url_query_escape(text: &str) -> String {
    String::from_utf8_lossy(&escape::url_query(text.as_bytes())).into_owned()
}

fn name_of(alert: &str) -> String {
    format!("__alert_{alert}")
}

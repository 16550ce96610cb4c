//! The error of the exposition parsers, and helpers that format it with an excerpt of the body.

use super::lex::{ExpositionScanner, ExpositionToken};
use firn_model::error::{Error, ErrorKind};
use firn_model::quote::quote;
use std::ops::Range;

/// Largest excerpt of a body in an error text, in bytes. Upstream prints the whole line up to the
/// error, which may be the whole body if a quote is not closed.
const SHOWN_BYTES_MAX: usize = 4 << 10;

/// The reason why a body was rejected, in the wording of Prometheus. It fails the whole scrape.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ParseError {
    message: String,
}

impl ParseError {
    pub(super) fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
        }
    }
}

impl From<ParseError> for Error {
    fn from(error: ParseError) -> Self {
        Error::new(ErrorKind::Invalid, error.message)
    }
}

/// Returns the error for a `token` where `expected` was required, on the line that begins at offset
/// `line`.
#[cold]
pub(super) fn unexpected(
    scanner: &ExpositionScanner<'_>,
    line: usize,
    expected: &str,
    token: ExpositionToken,
) -> ParseError {
    let Range { start, end } = scanner.span();
    let got = quote_excerpt(scanner, start..end + 1);
    let token = quote(token.name().as_bytes());
    let line = quote_excerpt(scanner, line..end + 1);
    ParseError::new(format!(
        "{expected}, got {got} ({token}) while parsing: {line}"
    ))
}

/// Returns the error `what` for the line that begins at offset `line`.
#[cold]
pub(super) fn while_parsing(
    scanner: &ExpositionScanner<'_>,
    line: usize,
    what: &str,
) -> ParseError {
    let line = quote_excerpt(scanner, line..scanner.at);
    ParseError::new(format!("{what} while parsing: {line}"))
}

/// Returns a quoted excerpt of the body, cut to [`SHOWN_BYTES_MAX`]. The excerpt ends with dots if
/// it was cut.
pub(super) fn quote_excerpt(scanner: &ExpositionScanner<'_>, range: Range<usize>) -> String {
    let bytes = scanner.bytes(range);
    match bytes.get(..SHOWN_BYTES_MAX) {
        Some(cut) if cut.len() < bytes.len() => format!("{}...", quote(cut)),
        _ => quote(&bytes),
    }
}

//! Why an exposition was refused.

use super::lex::{Scanner, Token};
use firn_model::error::{Error, ErrorKind};
use firn_model::quote::quote;
use std::ops::Range;

/// How much of an exposition an error shows. Upstream shows all that it has read of a line, which
/// may be the whole of a body whose quotes do not close.
const SHOWN_BYTES_MAX: usize = 4 << 10;

/// Why an exposition was refused, in Prometheus's words.
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

/// A token came that was not `expected`, on the line that began at `line`.
#[cold]
pub(super) fn unexpected(
    scanner: &Scanner<'_>,
    line: usize,
    expected: &str,
    token: Token,
) -> ParseError {
    let Range { start, end } = scanner.span();
    let got = shown(scanner, start..end + 1);
    let token = quote(token.name().as_bytes());
    let line = shown(scanner, line..end + 1);
    ParseError::new(format!(
        "{expected}, got {got} ({token}) while parsing: {line}"
    ))
}

/// `what` is wrong on the line that began at `line`.
#[cold]
pub(super) fn while_parsing(scanner: &Scanner<'_>, line: usize, what: &str) -> ParseError {
    let line = shown(scanner, line..scanner.at);
    ParseError::new(format!("{what} while parsing: {line}"))
}

/// A part of the exposition in quotes.
pub(super) fn shown(scanner: &Scanner<'_>, range: Range<usize>) -> String {
    let bytes = scanner.bytes(range);
    match bytes.get(..SHOWN_BYTES_MAX) {
        Some(cut) if cut.len() < bytes.len() => format!("{}...", quote(cut)),
        _ => quote(&bytes),
    }
}

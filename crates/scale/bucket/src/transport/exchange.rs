//! The record of one request and its response, which the transport fills and the caller reads.
//!
//! `object_store` reports a conflict (409) and an existing object (412) with the same error, and
//! hides whether a request was sent. A creation needs both.

use firn_model::sync::lock;
use hyper::StatusCode;
use std::error::Error;
use std::fmt;
use std::sync::{Arc, Mutex};

/// Maximum number of characters of an error message of a store.
const MESSAGE_CHARS_MAX: usize = 300;

tokio::task_local! {
    /// The exchange of the deletion that a task sends. Only objects are deleted, never credentials.
    static DELETION: Exchange;
}

/// How a request ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ExchangeAnswer {
    /// The server returned a response.
    Status {
        status: u16,
        /// Error code of S3, such as `SlowDown`; empty if there is none.
        code: String,
        /// Error message of the store; empty if there is none.
        message: String,
    },
    /// There was no connection, so that nothing was sent.
    Unsent(String),
    /// The request may have been sent, and the response is lost.
    Lost(String),
}

impl ExchangeAnswer {
    /// Creates the answer for a response with this error document, which need not be one.
    pub(crate) fn status(status: StatusCode, document: &[u8]) -> Self {
        let text = String::from_utf8_lossy(document);
        Self::Status {
            status: status.as_u16(),
            code: element(&text, "Code"),
            message: element(&text, "Message"),
        }
    }
}

impl fmt::Display for ExchangeAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ExchangeAnswer::Status {
                status,
                code,
                message,
            } => {
                write!(f, "status {status}")?;
                if !code.is_empty() {
                    write!(f, " {code}")?;
                }
                if !message.is_empty() {
                    write!(f, ": {message}")?;
                }
                Ok(())
            }
            ExchangeAnswer::Unsent(reason) => write!(f, "no connection: {reason}"),
            ExchangeAnswer::Lost(reason) => write!(f, "connection lost: {reason}"),
        }
    }
}

/// The record of a request. Clones share it. It travels with the request as an extension.
#[derive(Clone, Debug)]
pub(crate) struct Exchange(Arc<ExchangeRecord>);

#[derive(Debug)]
struct ExchangeRecord {
    body_bytes_max: usize,
    answer: Mutex<Option<ExchangeAnswer>>,
}

impl Exchange {
    /// Creates the record of a request whose response has at most `body_bytes_max` bytes.
    pub(crate) fn new(body_bytes_max: usize) -> Self {
        Self(Arc::new(ExchangeRecord {
            body_bytes_max,
            answer: Mutex::new(None),
        }))
    }

    /// Runs the deletion `request`, whose exchange is this one. `object_store` lets no extension
    /// travel with a deletion, but sends it from the task that starts it.
    pub(crate) async fn of_deletion<F: Future>(&self, request: F) -> F::Output {
        DELETION.scope(self.clone(), request).await
    }

    /// Returns the exchange of the deletion that this task sends.
    pub(super) fn current_deletion() -> Option<Self> {
        DELETION.try_with(Self::clone).ok()
    }

    pub(super) fn body_bytes_max(&self) -> usize {
        self.0.body_bytes_max
    }

    pub(super) fn answered(&self, answer: ExchangeAnswer) {
        *lock(&self.0.answer) = Some(answer);
    }

    /// Returns how the request ended. `None` if it did not start, since there were no credentials.
    pub(crate) fn answer(&self) -> Option<ExchangeAnswer> {
        lock(&self.0.answer).clone()
    }
}

/// Returns the text of the innermost cause, which is the most specific one.
pub(super) fn reason(error: &dyn Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    printable(&error.to_string())
}

/// Returns the text of the first element `name` of an XML document, or an empty one.
fn element(document: &str, name: &str) -> String {
    let open = format!("<{name}>");
    let found = document.split_once(&open).map(|(_, rest)| rest);
    let text = found.and_then(|rest| rest.split('<').next());
    printable(text.unwrap_or_default())
}

fn printable(text: &str) -> String {
    let shown = text.chars().filter(|c| !c.is_control());
    shown.take(MESSAGE_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_shows_code_and_message_and_nothing_else() {
        let check = |status: u16, document: &str, expected: &str| {
            let status = StatusCode::from_u16(status).unwrap();
            let answer = ExchangeAnswer::status(status, document.as_bytes());
            assert_eq!(answer.to_string(), expected);
        };
        let document = "<?xml?><Error><Code>SignatureDoesNotMatch</Code><Message>It\ndiffers\
                        </Message><CanonicalRequest>x-amz-security-token:hidden</CanonicalRequest>";
        check(403, document, "status 403 SignatureDoesNotMatch: Itdiffers");
        check(502, "<html>Bad gateway</html>", "status 502");
        check(500, "", "status 500");
        check(400, "<Code>A", "status 400 A");
        let long = format!("<Message>{}</Message>", "x".repeat(999));
        check(400, &long, &format!("status 400: {}", "x".repeat(300)));
        let answer = ExchangeAnswer::status(StatusCode::BAD_GATEWAY, b"\xff<Code>\xfe</Code>");
        assert_eq!(answer.to_string(), "status 502 \u{fffd}");
    }
}

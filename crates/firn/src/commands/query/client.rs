//! Prometheus's HTTP API as the subcommands ask it: the `data` of an answer, or its error.

use crate::commands::client::{Answer, Client, Params, Unanswered};
use serde_json::Value;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// The server refused: error type and text.
    #[error("{kind}: {message}")]
    Api {
        /// `bad_data`, `execution`, ...
        kind: String,
        /// The text.
        message: String,
    },
    /// The answer is not the API's.
    #[error("{url}: status {status}: not an answer of the Prometheus API: {body:?}")]
    Foreign {
        /// What was asked.
        url: String,
        /// The HTTP status.
        status: u16,
        /// The start of the body.
        body: String,
    },
    /// There is no answer.
    #[error(transparent)]
    Unanswered(#[from] Unanswered),
}

/// Sends `params` as a form; returns the answer's `data`.
pub fn post(client: &Client, path: &str, params: &Params<'_>) -> Result<Value, ApiError> {
    data_of(client.post_form(path, params)?)
}

/// Sends `params` in the URL; returns the answer's `data`.
pub fn get(client: &Client, path: &str, params: &Params<'_>) -> Result<Value, ApiError> {
    data_of(client.get(path, params)?)
}

fn data_of(answer: Answer) -> Result<Value, ApiError> {
    let Ok(mut document) = serde_json::from_slice::<Value>(&answer.body) else {
        let body = String::from_utf8_lossy(&answer.body);
        return Err(ApiError::Foreign {
            url: answer.url,
            status: answer.status.as_u16(),
            body: body.chars().take(200).collect(),
        });
    };
    if document["status"] == "success" {
        return Ok(document["data"].take());
    }
    let text = |name: &str| document[name].as_str().unwrap_or_default().to_owned();
    Err(ApiError::Api {
        kind: text("errorType"),
        message: text("error"),
    })
}

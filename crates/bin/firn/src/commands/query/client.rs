//! Requests of the subcommands to Prometheus's HTTP API. Returns the `data` of a response, or its
//! error.

use crate::commands::client::{CommandClient, CommandClientError, CommandResponse, Params};
use serde_json::Value;

/// Error of a request to the API: a server error, a foreign response, or no response at all.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// The server responded with an error of the API.
    #[error("{kind}: {message}")]
    Api {
        /// Error type of the API, such as `bad_data` or `execution`.
        kind: String,
        /// Error text of the API.
        message: String,
    },
    /// The response is not one of the Prometheus API.
    #[error("{url}: status {status}: not an answer of the Prometheus API: {body:?}")]
    Foreign {
        /// URL of the request.
        url: String,
        /// HTTP status of the response.
        status: u16,
        /// Start of the response body, for the user.
        body: String,
    },
    /// The server did not respond at all.
    #[error(transparent)]
    Unanswered(#[from] CommandClientError),
}

/// Sends `params` as a form and returns the `data` of the response.
pub fn post(client: &CommandClient, path: &str, params: &Params<'_>) -> Result<Value, ApiError> {
    data_of(client.post_form(path, params)?)
}

/// Sends `params` in the URL and returns the `data` of the response.
pub fn get(client: &CommandClient, path: &str, params: &Params<'_>) -> Result<Value, ApiError> {
    data_of(client.get(path, params)?)
}

fn data_of(answer: CommandResponse) -> Result<Value, ApiError> {
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

//! A small blocking client of Prometheus's HTTP API.

use serde_json::Value;
use std::time::Duration;

/// Names and values of a request's parameters.
pub type Params<'a> = Vec<(&'a str, String)>;

/// The longest wait for an answer, as in promtool.
const TIMEOUT: Duration = Duration::from_secs(120);

/// The largest answer that is read: more than any terminal or script will take.
const ANSWER_BYTES_MAX: u64 = 1 << 30;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
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
    /// No connection, no HTTP, no end in time.
    #[error("{url}: {error}")]
    Transport {
        /// What was asked.
        url: String,
        /// Why.
        error: Box<ureq::Error>,
    },
}

/// Talks to one server.
pub struct Client<'a> {
    agent: ureq::Agent,
    base: String,
    headers: &'a [(String, String)],
}

impl<'a> Client<'a> {
    /// A client of `server`, a URL whose scheme may be left out; sends `headers` with every
    /// request.
    pub fn new(server: &str, headers: &'a [(String, String)]) -> Self {
        let scheme = if server.contains("://") {
            ""
        } else {
            "http://"
        };
        let config = ureq::Agent::config_builder()
            .timeout_global(Some(TIMEOUT))
            .http_status_as_error(false)
            .build();
        Self {
            agent: config.into(),
            base: format!("{scheme}{}", server.trim_end_matches('/')),
            headers,
        }
    }

    /// Sends `params` as a form; returns the answer's `data`.
    pub fn post(&self, path: &str, params: &Params<'_>) -> Result<Value, ClientError> {
        let url = format!("{}{path}", self.base);
        let mut request = self.agent.post(&url);
        for (name, value) in self.headers {
            request = request.header(name, value);
        }
        let form = params.iter().map(|(name, value)| (*name, value.as_str()));
        read_answer(url, request.send_form(form))
    }

    /// Sends `params` in the URL; returns the answer's `data`.
    pub fn get(&self, path: &str, params: &Params<'_>) -> Result<Value, ClientError> {
        let url = format!("{}{path}", self.base);
        let mut request = self.agent.get(&url);
        for (name, value) in self.headers {
            request = request.header(name, value);
        }
        let pairs = params.iter().map(|(name, value)| (*name, value.as_str()));
        read_answer(url, request.query_pairs(pairs).call())
    }
}

type Response = Result<ureq::http::Response<ureq::Body>, ureq::Error>;

fn read_answer(url: String, response: Response) -> Result<Value, ClientError> {
    let (status, body) = match response.and_then(read_body) {
        Ok(answer) => answer,
        Err(error) => {
            let error = Box::new(error);
            return Err(ClientError::Transport { url, error });
        }
    };
    let Ok(mut answer) = serde_json::from_str::<Value>(&body) else {
        let body = body.chars().take(200).collect();
        return Err(ClientError::Foreign { url, status, body });
    };
    if answer["status"] == "success" {
        return Ok(answer["data"].take());
    }
    let text = |name: &str| answer[name].as_str().unwrap_or_default().to_owned();
    Err(ClientError::Api {
        kind: text("errorType"),
        message: text("error"),
    })
}

fn read_body(mut response: ureq::http::Response<ureq::Body>) -> Result<(u16, String), ureq::Error> {
    let status = response.status().as_u16();
    let reader = response.body_mut().with_config().limit(ANSWER_BYTES_MAX);
    Ok((status, reader.lossy_utf8(true).read_to_string()?))
}

/// `text` as a segment of a URL's path.
pub fn escape(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                out.push(byte as char);
            }
            _ => out += &format!("%{byte:02X}"),
        }
    }
    out
}

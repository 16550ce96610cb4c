//! Client of the HTTP API of a Prometheus-compatible system.
//!
//! It sends queries and metadata requests below `/api/v1` and returns their responses unparsed or
//! as JSON. Comparing responses is left to the callers.

use crate::error::MirrorError;
use firn_model::sample::TimestampMs;
use serde_json::{Value, json};
use std::io::Read;
use std::time::Duration;
use ureq::tls::TlsConfig;

/// Default timeout of a request, including the reading of its response.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(150);

/// Maximum number of idle connections that are kept for reuse: one per thread that sends requests
/// concurrently. By default ureq keeps three and opens a new connection for every other request.
const IDLE_CONNECTIONS_MAX: usize = 256;

/// A request about a PromQL expression: an instant query, a range query, or a request about its
/// text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExpressionRequest {
    /// Instant query: evaluates the expression at one time, through `/api/v1/query`.
    Instant {
        /// The PromQL expression, as sent to the system.
        expression: String,
        /// Evaluation time in milliseconds since the epoch.
        time_ms: TimestampMs,
    },
    /// Range query: evaluates the expression at every step of a range.
    Range {
        /// The PromQL expression, as sent to the system.
        expression: String,
        /// Time of the first step in milliseconds since the epoch.
        start_ms: TimestampMs,
        /// Inclusive upper bound of the steps in milliseconds since the epoch.
        end_ms: TimestampMs,
        /// Time between two steps in milliseconds, which must be positive.
        step_ms: i64,
    },
    /// Request about the expression itself, for which the system reads no data.
    Text {
        /// Whether to request the syntax tree or the formatted text.
        form: ExpressionForm,
        /// The PromQL expression, as sent to the system.
        expression: String,
    },
}

/// The form in which a system returns a parsed expression: as a tree or as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpressionForm {
    /// The syntax tree as JSON, which is the answer of `/api/v1/parse_query`.
    Parsed,
    /// The formatted text with line breaks, which is the answer of `/api/v1/format_query`.
    Formatted,
}

impl ExpressionForm {
    /// Both forms, in the order in which they are requested.
    pub const ALL: [ExpressionForm; 2] = [ExpressionForm::Parsed, ExpressionForm::Formatted];

    /// Returns the path below `/api/v1` of the endpoint that returns this form.
    pub fn endpoint(self) -> &'static str {
        match self {
            ExpressionForm::Parsed => "parse_query",
            ExpressionForm::Formatted => "format_query",
        }
    }
}

impl ExpressionRequest {
    /// Returns the PromQL expression, whichever kind of request this is.
    pub fn expression(&self) -> &str {
        match self {
            ExpressionRequest::Instant { expression, .. }
            | ExpressionRequest::Range { expression, .. }
            | ExpressionRequest::Text { expression, .. } => expression,
        }
    }

    /// Returns the path of the endpoint below `/api/v1` and the request's parameters, with times in
    /// seconds.
    pub fn request(&self) -> (&'static str, Vec<(&'static str, String)>) {
        match self {
            ExpressionRequest::Instant {
                expression,
                time_ms,
            } => (
                "query",
                vec![("query", expression.clone()), ("time", seconds(*time_ms))],
            ),
            ExpressionRequest::Range {
                expression,
                start_ms,
                end_ms,
                step_ms,
            } => (
                "query_range",
                vec![
                    ("query", expression.clone()),
                    ("start", seconds(*start_ms)),
                    ("end", seconds(*end_ms)),
                    ("step", seconds(*step_ms)),
                ],
            ),
            ExpressionRequest::Text { form, expression } => {
                (form.endpoint(), vec![("query", expression.clone())])
            }
        }
    }

    /// Encodes the request as the JSON object that files of recorded answers contain.
    pub fn to_json(&self) -> Value {
        let (endpoint, params) = self.request();
        let mut out = json!({ "endpoint": endpoint });
        for (name, value) in params {
            out[name] = Value::String(value);
        }
        out
    }

    /// Decodes a request that [`ExpressionRequest::to_json`] encoded; returns `None` if `value` is
    /// malformed.
    pub fn from_json(value: &Value) -> Option<Self> {
        let expression = value["query"].as_str()?.to_owned();
        let ms = |name: &str| milliseconds(value[name].as_str()?);
        match value["endpoint"].as_str()? {
            "query" => Some(ExpressionRequest::Instant {
                expression,
                time_ms: ms("time")?,
            }),
            "query_range" => Some(ExpressionRequest::Range {
                expression,
                start_ms: ms("start")?,
                end_ms: ms("end")?,
                step_ms: ms("step")?,
            }),
            endpoint => {
                let form = ExpressionForm::ALL
                    .into_iter()
                    .find(|form| form.endpoint() == endpoint)?;
                Some(ExpressionRequest::Text { form, expression })
            }
        }
    }
}

/// Prints the expression followed by its times in seconds, for messages about differences.
impl std::fmt::Display for ExpressionRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ExpressionRequest::Instant {
                expression,
                time_ms,
            } => write!(f, "{expression}  at {}", seconds(*time_ms)),
            ExpressionRequest::Range {
                expression,
                start_ms,
                end_ms,
                step_ms,
            } => write!(
                f,
                "{expression}  from {} to {} step {}",
                seconds(*start_ms),
                seconds(*end_ms),
                seconds(*step_ms)
            ),
            ExpressionRequest::Text { form, expression } => {
                write!(f, "{expression}  {}", form.endpoint())
            }
        }
    }
}

/// Formats milliseconds as the API expects times: seconds with three decimals.
pub fn seconds(ms: i64) -> String {
    let sign = if ms < 0 { "-" } else { "" };
    let ms = ms.unsigned_abs();
    format!("{sign}{}.{:03}", ms / 1000, ms % 1000)
}

fn milliseconds(seconds: &str) -> Option<i64> {
    let (whole, decimals) = seconds.split_once('.')?;
    format!("{whole}{decimals}").parse().ok()
}

/// Returns the path of the label values endpoint for `name`, which may be any UTF-8 text and is
/// escaped.
pub fn label_values(name: &str) -> String {
    let mut segment = String::new();
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                segment.push(byte as char);
            }
            _ => segment += &format!("%{byte:02X}"),
        }
    }
    format!("label/{segment}/values")
}

/// Maximum total length of parameter values that are sent in the URL. Longer ones are sent as a
/// form, which every endpoint except that of label values accepts.
const QUERY_BYTES_MAX: usize = 6 * 1024;

/// Limits of a client, and the headers and TLS settings that it uses for each request. The default
/// has a generous timeout and no limit of the length.
#[derive(Clone, Debug)]
pub struct SystemClientOptions {
    /// Timeout of a request, including the reading of its whole response.
    pub timeout: Duration,
    /// Maximum length of an uncompressed response body in bytes.
    pub answer_bytes_max: u64,
    /// Whether redirects are followed instead of being returned to the caller.
    pub follows_redirects: bool,
    /// Names and values of the headers that are added to every request.
    pub headers: Vec<(String, String)>,
    /// Root certificates that are trusted, and the client certificate, for https.
    pub tls: TlsConfig,
}

impl Default for SystemClientOptions {
    fn default() -> Self {
        Self {
            timeout: ANSWER_TIMEOUT,
            answer_bytes_max: u64::MAX - 1,
            follows_redirects: true,
            headers: Vec::new(),
            tls: TlsConfig::default(),
        }
    }
}

/// The response to a request, whatever its status. It is read completely before it is returned.
#[derive(Clone, Debug, PartialEq)]
pub struct SystemReply {
    /// The HTTP status code of the response.
    pub status: u16,
    /// The `Location` header, which a redirect contains that was not followed.
    pub location: Option<String>,
    /// The complete body after decompression, limited by [`SystemClientOptions::answer_bytes_max`].
    pub body: Vec<u8>,
}

/// A client of one system, which reuses its connections. Requests may be sent from several threads.
#[derive(Clone, Debug)]
pub struct SystemClient {
    agent: ureq::Agent,
    base: String,
    /// Query parameters of the base URL, which are added to every request.
    query: String,
    bounds: SystemClientOptions,
}

impl SystemClient {
    /// Creates a client with default limits for the system at `base`, such as
    /// `http://127.0.0.1:9090`.
    pub fn new(base: &str) -> Self {
        Self::within(base, SystemClientOptions::default())
    }

    /// Creates a client with the limits in `bounds`. Query parameters in `base`, as in
    /// `http://host/prefix?nocache=1`, are added to every request.
    pub fn within(base: &str, bounds: SystemClientOptions) -> Self {
        let redirects = if bounds.follows_redirects { 10 } else { 0 };
        let config = ureq::Agent::config_builder()
            .timeout_global(Some(bounds.timeout))
            .max_redirects(redirects)
            .max_idle_connections(IDLE_CONNECTIONS_MAX)
            .max_idle_connections_per_host(IDLE_CONNECTIONS_MAX)
            .tls_config(bounds.tls.clone())
            .http_status_as_error(false)
            .build();
        let (base, query) = base.split_once('?').unwrap_or((base, ""));
        Self {
            agent: config.into(),
            base: base.trim_end_matches('/').to_owned(),
            query: query.to_owned(),
            bounds,
        }
    }

    /// Returns the URL of an endpoint below `/api/v1`, including the query parameters of the base
    /// URL.
    pub fn url(&self, endpoint: &str) -> String {
        let mark = if self.query.is_empty() { "" } else { "?" };
        format!("{}/api/v1/{endpoint}{mark}{}", self.base, self.query)
    }

    /// Requests an endpoint below `/api/v1` and returns the complete uncompressed body, whatever
    /// the status. Fails if there is no response or if it exceeds the limits.
    pub fn get(&self, endpoint: &str, params: &[(&str, String)]) -> Result<Vec<u8>, MirrorError> {
        self.fetch(endpoint, params).map(|reply| reply.body)
    }

    /// Requests an endpoint like [`SystemClient::get`] and returns the status and the redirect as
    /// well.
    pub fn fetch(
        &self,
        endpoint: &str,
        params: &[(&str, String)],
    ) -> Result<SystemReply, MirrorError> {
        let url = self.url(endpoint);
        let bytes: usize = params.iter().map(|(_, value)| value.len()).sum();
        let answer = if bytes > QUERY_BYTES_MAX && !endpoint.ends_with("/values") {
            self.with_headers(self.agent.post(&url))
                .send_form(params.iter().map(|(name, value)| (*name, value.as_str())))
        } else {
            let pairs = params.iter().map(|(name, value)| (*name, value.as_str()));
            self.with_headers(self.agent.get(&url))
                .query_pairs(pairs)
                .call()
        };
        let answer = answer.map_err(MirrorError::transport(&url))?;
        self.read(&url, answer)
    }

    fn with_headers<B>(&self, request: ureq::RequestBuilder<B>) -> ureq::RequestBuilder<B> {
        let headers = self.bounds.headers.iter();
        let request = request.header("Accept-Encoding", "identity");
        headers.fold(request, |request, (name, value)| {
            request.header(name, value)
        })
    }

    fn read(
        &self,
        url: &str,
        answer: ureq::http::Response<ureq::Body>,
    ) -> Result<SystemReply, MirrorError> {
        let location = answer.headers().get("location");
        let location = location.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
        let status = answer.status().as_u16();
        let max = self.bounds.answer_bytes_max;
        let whole = answer.into_body().into_with_config().limit(u64::MAX);
        let mut body = Vec::new();
        let read = whole.reader().take(max + 1).read_to_end(&mut body);
        read.map_err(|e| MirrorError::transport(url)(ureq::Error::from(e)))?;
        if body.len() as u64 > max {
            return Err(MirrorError::Answer {
                url: url.to_owned(),
                what: format!("the answer is too long: limit {max} bytes"),
            });
        }
        Ok(SystemReply {
            status,
            location,
            body,
        })
    }

    /// Requests an endpoint and parses its body as JSON. API errors are returned like any other
    /// response.
    pub fn json(&self, endpoint: &str, params: &[(&str, String)]) -> Result<Value, MirrorError> {
        let body = self.get(endpoint, params)?;
        serde_json::from_slice(&body).map_err(|_| MirrorError::Answer {
            url: self.url(endpoint),
            what: format!("not JSON: {}", String::from_utf8_lossy(&body).trim()),
        })
    }

    /// Sends a query and returns the JSON response, which may be an API error. A response about the
    /// text of an expression is returned as a string if it is not JSON: Prometheus cannot encode a
    /// syntax tree that contains a NaN.
    pub fn send_query(&self, ask: &ExpressionRequest) -> Result<Value, MirrorError> {
        let (endpoint, params) = ask.request();
        if !matches!(ask, ExpressionRequest::Text { .. }) {
            return self.json(endpoint, &params);
        }
        let body = self.get(endpoint, &params)?;
        let text = || String::from_utf8_lossy(&body).into_owned();
        Ok(serde_json::from_slice(&body).unwrap_or_else(|_| Value::String(text())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_name_is_escaped_in_a_path() {
        assert_eq!(label_values("a_b.c"), "label/a_b.c/values");
        assert_eq!(label_values("ä/b c"), "label/%C3%A4%2Fb%20c/values");
    }

    #[test]
    fn time_as_seconds_reads_back_equal() {
        let cases = [
            (0, "0.000"),
            (1_700_000_000_417, "1700000000.417"),
            (-1, "-0.001"),
            (-86_401_500, "-86401.500"),
        ];
        for (ms, text) in cases {
            assert_eq!(seconds(ms), text);
            assert_eq!(milliseconds(text), Some(ms), "{text}");
        }
    }
}

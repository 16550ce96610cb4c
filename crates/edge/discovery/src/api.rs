//! HTTP API client used by discovery mechanisms: reads whole responses up to a size limit and
//! checks their status.

use super::json;
use firn_http_client::{
    BodyLimit, DecodedBody, HttpClient, HttpSettings, RequestSigner, ResponseBody, USER_AGENT,
    read_body, status_text,
};
use firn_model::error::{Error, ErrorKind};
use hyper::body::Bytes;
use hyper::header::{HeaderMap, HeaderValue, USER_AGENT as AGENT};
use hyper::{Response, StatusCode, Uri};
use serde::de::DeserializeOwned;
use std::any::Any;
use std::sync::Arc;
use tokio::task::spawn_blocking;

/// Maximum length, in characters, of an error response's body that is included in an error message.
const SHOWN_BYTES_MAX: usize = 300;

/// HTTP client for a discovery API, with an upper limit on the size of each response body.
#[derive(Debug)]
pub(super) struct ApiClient {
    client: HttpClient,
    bytes_max: u64,
}

/// HTTP response whose body has been read completely; its status may be any code.
#[derive(Debug)]
pub(super) struct ApiResponse {
    pub(super) status: StatusCode,
    /// Status with the reason that the server sent.
    pub(super) status_text: String,
    pub(super) headers: HeaderMap,
    pub(super) body: DecodedBody,
}

impl ApiClient {
    pub(super) fn new(settings: &HttpSettings, bytes_max: u64) -> Self {
        Self {
            client: HttpClient::new(settings.clone()),
            bytes_max,
        }
    }

    /// Creates a client like [`Self::new`] whose requests are signed by `signer`.
    pub(super) fn with_signer(
        settings: &HttpSettings,
        bytes_max: u64,
        signer: Arc<dyn RequestSigner>,
    ) -> Self {
        Self {
            client: HttpClient::new(settings.clone()).with_signer(Some(signer)),
            bytes_max,
        }
    }

    /// Sends a GET request to `url` and returns as soon as the response head has arrived, so that
    /// the caller can stream the body.
    pub(super) async fn open_stream(
        &self,
        url: &str,
        headers: &HeaderMap,
    ) -> Result<Response<ResponseBody>, Error> {
        self.client
            .get(&parse_uri(url)?, &add_user_agent(headers))
            .await
    }

    /// Sends a GET request to `url` and reads the whole response. Responses of any status are `Ok`.
    pub(super) async fn get(&self, url: &str, headers: &HeaderMap) -> Result<ApiResponse, Error> {
        let response = self.open_stream(url, headers).await?;
        ApiResponse::read_response(response, self.bytes_max).await
    }

    /// Sends a POST request with `body` to `url` and reads the whole response. Responses of any
    /// status are `Ok`.
    pub(super) async fn post(
        &self,
        url: &str,
        headers: &HeaderMap,
        body: Bytes,
    ) -> Result<ApiResponse, Error> {
        let headers = add_user_agent(headers);
        let response = self.client.post(&parse_uri(url)?, &headers, body).await?;
        ApiResponse::read_response(response, self.bytes_max).await
    }

    /// Sends a GET request to `url` and decodes the response body as JSON. Fails if the status is
    /// not 2xx.
    pub(super) async fn get_json<T>(&self, url: &str) -> Result<T, Error>
    where
        T: DeserializeOwned + Send + 'static,
    {
        self.get_success(url, &HeaderMap::new())
            .await?
            .decode_json()
            .await
    }
}

impl ApiResponse {
    /// Reads a response completely. Fails if its body exceeds the limit of `bytes_max` bytes.
    pub(super) async fn read_response(
        response: Response<ResponseBody>,
        bytes_max: u64,
    ) -> Result<Self, Error> {
        let (status, headers) = (response.status(), response.headers().clone());
        let status_text = status_text(&response);
        let body = read_body(response, BodyLimit::from_bytes_max(bytes_max)).await?;
        Ok(Self {
            status,
            status_text,
            headers,
            body,
        })
    }

    /// Returns the response if its status is 2xx, otherwise an error with the status and the
    /// beginning of the body.
    pub(super) fn require_success(self) -> Result<Self, Error> {
        if self.status.is_success() {
            return Ok(self);
        }
        let text = String::from_utf8_lossy(&self.body.bytes);
        let shown: String = text.trim().chars().take(SHOWN_BYTES_MAX).collect();
        let colon = if shown.is_empty() { "" } else { ": " };
        let status = self.status_text;
        Err(invalid_response_error(format!(
            "server returned HTTP status {status}{colon}{shown}"
        )))
    }

    /// Decodes the body as JSON on a blocking thread. Fails if it is malformed or does not match
    /// the type `T`.
    pub(super) async fn decode_json<T>(self) -> Result<T, Error>
    where
        T: DeserializeOwned + Send + 'static,
    {
        let read = decode_on_blocking_thread(self.body.bytes, decode_any_json::<T>).await?;
        let read = read.downcast::<T>();
        Ok(*read.expect("decode_any_json returns the type that it is instantiated with"))
    }

    /// Returns the body as text. Fails if it is not valid UTF-8.
    pub(super) fn text(&self) -> Result<&str, Error> {
        std::str::from_utf8(&self.body.bytes)
            .map_err(|e| invalid_response_error(format!("cannot read the answer: {e}")))
    }

    /// Returns the value of the header `name`, or an empty string if the header is missing or not
    /// ASCII text.
    pub(super) fn header(&self, name: &str) -> &str {
        let value = self.headers.get(name);
        value.and_then(|value| value.to_str().ok()).unwrap_or("")
    }
}

/// Type-erased value that a blocking task returns; the caller downcasts it.
pub(super) type AnyValue = Box<dyn Any + Send>;

/// Decodes a body on a blocking thread, because decoding a long list would occupy an async worker
/// for too long. Value types are erased, so that the compiler instantiates the runtime's task code
/// once instead of once per type.
async fn decode_on_blocking_thread(
    bytes: Vec<u8>,
    read: fn(&[u8]) -> Result<AnyValue, String>,
) -> Result<AnyValue, Error> {
    let reading = spawn_blocking(move || read(&bytes));
    let read = reading
        .await
        .map_err(|e| invalid_response_error(e.to_string()))?;
    read.map_err(|e| invalid_response_error(format!("cannot read the answer: {e}")))
}

fn decode_any_json<T>(bytes: &[u8]) -> Result<AnyValue, String>
where
    T: DeserializeOwned + Send + 'static,
{
    Ok(Box::new(json::from_slice::<T>(bytes)?))
}

/// Creates an error of kind `Invalid` for a response that cannot be used.
pub(super) fn invalid_response_error(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Invalid, message.into())
}

/// Converts a text from the config to a header value. Fails if the text contains bytes that are not
/// allowed in headers.
pub(super) fn parse_header_value(text: &str) -> Result<HeaderValue, Error> {
    HeaderValue::from_str(text)
        .map_err(|_| invalid_response_error(format!("not fit for a header: {text:?}")))
}

fn parse_uri(url: &str) -> Result<Uri, Error> {
    url.parse()
        .map_err(|e| invalid_response_error(format!("{url:?}: {e}")))
}

fn add_user_agent(headers: &HeaderMap) -> HeaderMap {
    let mut headers = headers.clone();
    headers.insert(AGENT, HeaderValue::from_static(USER_AGENT));
    headers
}

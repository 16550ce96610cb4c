//! An HTTP API that a discovery asks: answers read as a whole, bounded, checked.

use super::json;
use firn_http_client::{
    Body, BodyLimit, HttpClient, HttpSettings, ResponseBody, Sign, USER_AGENT, read_body,
};
use firn_model::error::{Error, ErrorKind};
use hyper::body::Bytes;
use hyper::header::{HeaderMap, HeaderValue, USER_AGENT as AGENT};
use hyper::{Response, StatusCode, Uri};
use serde::de::DeserializeOwned;
use std::any::Any;
use std::sync::Arc;
use tokio::task::spawn_blocking;

/// Bytes of an error's text that are shown.
const SHOWN_BYTES_MAX: usize = 300;

/// A client, and the most that an answer to it may have.
#[derive(Debug)]
pub(super) struct Api {
    client: HttpClient,
    bytes_max: u64,
}

/// An answer.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Body,
}

impl Api {
    pub(super) fn new(settings: &HttpSettings, bytes_max: u64) -> Self {
        Self {
            client: HttpClient::new(settings.clone()),
            bytes_max,
        }
    }

    /// The same, with `signer` signing what is asked.
    pub(super) fn signed(settings: &HttpSettings, bytes_max: u64, signer: Arc<dyn Sign>) -> Self {
        Self {
            client: HttpClient::new(settings.clone()).signed_by(Some(signer)),
            bytes_max,
        }
    }

    /// Asks for `url`, and returns when the head of the answer is there.
    pub(super) async fn open(
        &self,
        url: &str,
        headers: &HeaderMap,
    ) -> Result<Response<ResponseBody>, Error> {
        self.client.get(&uri(url)?, &with_agent(headers)).await
    }

    /// Asks for `url`. Any status is an answer.
    pub(super) async fn get(&self, url: &str, headers: &HeaderMap) -> Result<Answer, Error> {
        let response = self.open(url, headers).await?;
        Answer::read(response, self.bytes_max).await
    }

    /// Sends a body to `url`. Any status is an answer.
    pub(super) async fn post(
        &self,
        url: &str,
        headers: &HeaderMap,
        body: Bytes,
    ) -> Result<Answer, Error> {
        let headers = with_agent(headers);
        let response = self.client.post(&uri(url)?, &headers, body).await?;
        Answer::read(response, self.bytes_max).await
    }

    /// The JSON behind `url`, whose status must say that all is well.
    pub(super) async fn json<T>(&self, url: &str) -> Result<T, Error>
    where
        T: DeserializeOwned + Send + 'static,
    {
        self.good(url, &HeaderMap::new()).await?.json().await
    }
}

impl Answer {
    /// Reads a response whose body may have fewer than `bytes_max` bytes.
    pub(super) async fn read(
        response: Response<ResponseBody>,
        bytes_max: u64,
    ) -> Result<Self, Error> {
        let (status, headers) = (response.status(), response.headers().clone());
        let body = read_body(response, BodyLimit::bytes(bytes_max)).await?;
        Ok(Self {
            status,
            headers,
            body,
        })
    }

    /// The answer, if its status is one of success.
    pub(super) fn good(self) -> Result<Self, Error> {
        if self.status.is_success() {
            return Ok(self);
        }
        let text = String::from_utf8_lossy(&self.body.bytes);
        let shown: String = text.trim().chars().take(SHOWN_BYTES_MAX).collect();
        let colon = if shown.is_empty() { "" } else { ": " };
        let status = self.status;
        Err(wrong(format!(
            "server returned HTTP status {status}{colon}{shown}"
        )))
    }

    /// The body read as JSON.
    pub(super) async fn json<T>(self) -> Result<T, Error>
    where
        T: DeserializeOwned + Send + 'static,
    {
        let read = read_aside(self.body.bytes, read_json::<T>).await?;
        let read = read.downcast::<T>();
        Ok(*read.expect("read_json returns the type that it is instantiated with"))
    }

    /// The body as text.
    pub(super) fn text(&self) -> Result<&str, Error> {
        std::str::from_utf8(&self.body.bytes)
            .map_err(|e| wrong(format!("cannot read the answer: {e}")))
    }

    /// The header `name`, empty if there is none that is text.
    pub(super) fn header(&self, name: &str) -> &str {
        let value = self.headers.get(name);
        value.and_then(|value| value.to_str().ok()).unwrap_or("")
    }
}

/// A value of any type that a task may return.
pub(super) type AnyValue = Box<dyn Any + Send>;

/// Reads a body on a thread that may block: a long list takes longer than an async worker may be
/// held. The types of values are erased here, so that the runtime's task is compiled once and not
/// for each of them.
async fn read_aside(
    bytes: Vec<u8>,
    read: fn(&[u8]) -> Result<AnyValue, String>,
) -> Result<AnyValue, Error> {
    let reading = spawn_blocking(move || read(&bytes));
    let read = reading.await.map_err(|e| wrong(e.to_string()))?;
    read.map_err(|e| wrong(format!("cannot read the answer: {e}")))
}

fn read_json<T>(bytes: &[u8]) -> Result<AnyValue, String>
where
    T: DeserializeOwned + Send + 'static,
{
    Ok(Box::new(json::from_slice::<T>(bytes)?))
}

/// What is wrong with an answer.
pub(super) fn wrong(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Invalid, message.into())
}

/// A header's value made of a text of the config.
pub(super) fn header_value(text: &str) -> Result<HeaderValue, Error> {
    HeaderValue::from_str(text).map_err(|_| wrong(format!("not fit for a header: {text:?}")))
}

fn uri(url: &str) -> Result<Uri, Error> {
    url.parse().map_err(|e| wrong(format!("{url:?}: {e}")))
}

fn with_agent(headers: &HeaderMap) -> HeaderMap {
    let mut headers = headers.clone();
    headers.insert(AGENT, HeaderValue::from_static(USER_AGENT));
    headers
}

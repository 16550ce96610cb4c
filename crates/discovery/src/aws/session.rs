//! Signed requests to one AWS service, with the credentials of one refresh.

use super::credentials::{Credentials, form};
use super::request::{add_signature, add_signature_of_get};
use super::sign::Scope;
use crate::api::{Answer, Api, header_value};
use crate::json::answers;
use firn_model::env::Clock;
use firn_model::error::Error;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::sync::Arc;

const FORM: &str = "application/x-www-form-urlencoded; charset=utf-8";
const JSON: &str = "application/x-amz-json-1.1";

/// Header that names the operation of a request to a JSON API.
const OPERATION: &str = "x-amz-target";

/// An AWS service endpoint, with the credentials for its requests. Cheap to clone.
#[derive(Clone)]
pub(super) struct Session {
    pub(super) api: Arc<Api>,
    pub(super) keys: Credentials,
    pub(super) region: String,
    /// Base URL of the service, without a trailing slash.
    pub(super) endpoint: String,
    /// Name of the service in signatures.
    pub(super) service: &'static str,
    pub(super) clock: Arc<dyn Clock>,
}

answers! {
    /// A resource tag; the letter case of its field names depends on the service.
    pub(super) struct Tag {
        pub(super) key: Option<String>,
        pub(super) value: Option<String>,
    }
}

impl Session {
    fn scope(&self) -> Scope<'_> {
        Scope {
            region: &self.region,
            service: self.service,
            now_ms: self.clock.now_ms(),
        }
    }

    /// Sends a signed POST request with `body` of content type `kind`. Fails if the status is not
    /// 2xx.
    async fn post(
        &self,
        mut headers: HeaderMap,
        kind: &'static str,
        body: String,
    ) -> Result<Answer, Error> {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        let url = format!("{}/", self.endpoint);
        add_signature(&mut headers, &url, &body, &self.keys, &self.scope())?;
        self.api.post(&url, &headers, body.into()).await?.good()
    }

    /// Calls an operation of a query API with the form parameters `pairs` and returns the XML
    /// response.
    pub(super) async fn query(&self, pairs: &[(&str, &str)]) -> Result<String, Error> {
        let answer = self.post(HeaderMap::new(), FORM, form(pairs)).await?;
        Ok(answer.text()?.to_owned())
    }

    /// Calls an operation of a JSON API and decodes its response.
    pub(super) async fn json<T>(&self, operation: &str, body: &Value) -> Result<T, Error>
    where
        T: DeserializeOwned + Send + 'static,
    {
        let mut headers = HeaderMap::new();
        headers.insert(OPERATION, header_value(operation)?);
        let answer = self.post(headers, JSON, body.to_string()).await?;
        answer.json().await
    }

    /// Sends a signed GET request and decodes the JSON response. `path` begins with a slash.
    pub(super) async fn get<T>(&self, path: &str) -> Result<T, Error>
    where
        T: DeserializeOwned + Send + 'static,
    {
        let url = format!("{}{path}", self.endpoint);
        let mut headers = HeaderMap::new();
        add_signature_of_get(&mut headers, &url, &self.keys, &self.scope())?;
        self.api.get(&url, &headers).await?.good()?.json().await
    }
}

//! Signed requests to one AWS service, with the credentials of one refresh.

use super::credentials::{AwsCredentials, encode_form};
use super::request::{sign_get, sign_post};
use super::sign::SigV4Scope;
use crate::api::{ApiClient, ApiResponse, parse_header_value};
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
pub(super) struct AwsSession {
    pub(super) api: Arc<ApiClient>,
    pub(super) keys: AwsCredentials,
    pub(super) region: String,
    /// Base URL of the service, without a trailing slash.
    pub(super) endpoint: String,
    /// Name of the service in signatures.
    pub(super) service: &'static str,
    pub(super) clock: Arc<dyn Clock>,
}

answers! {
    /// A resource tag; the letter case of its field names depends on the service.
    pub(super) struct AwsTag {
        pub(super) key: Option<String>,
        pub(super) value: Option<String>,
    }
}

impl AwsSession {
    fn signature_scope(&self) -> SigV4Scope<'_> {
        SigV4Scope {
            region: &self.region,
            service: self.service,
            now_ms: self.clock.now_ms(),
        }
    }

    /// Sends a signed POST request with `body` of content type `kind`. Fails if the status is not
    /// 2xx.
    async fn send_post(
        &self,
        mut headers: HeaderMap,
        kind: &'static str,
        body: String,
    ) -> Result<ApiResponse, Error> {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        let url = format!("{}/", self.endpoint);
        sign_post(
            &mut headers,
            &url,
            &body,
            &self.keys,
            &self.signature_scope(),
        )?;
        self.api
            .post(&url, &headers, body.into())
            .await?
            .require_success()
    }

    /// Calls an operation of a query API with the form parameters `pairs` and returns the XML
    /// response.
    pub(super) async fn call_query_api(&self, pairs: &[(&str, &str)]) -> Result<String, Error> {
        let answer = self
            .send_post(HeaderMap::new(), FORM, encode_form(pairs))
            .await?;
        Ok(answer.text()?.to_owned())
    }

    /// Calls an operation of a JSON API and decodes its response.
    pub(super) async fn call_json_api<T>(&self, operation: &str, body: &Value) -> Result<T, Error>
    where
        T: DeserializeOwned + Send + 'static,
    {
        let mut headers = HeaderMap::new();
        headers.insert(OPERATION, parse_header_value(operation)?);
        let answer = self.send_post(headers, JSON, body.to_string()).await?;
        answer.decode_json().await
    }

    /// Sends a signed GET request and decodes the JSON response. `path` begins with a slash.
    pub(super) async fn get_json<T>(&self, path: &str) -> Result<T, Error>
    where
        T: DeserializeOwned + Send + 'static,
    {
        let url = format!("{}{path}", self.endpoint);
        let mut headers = HeaderMap::new();
        sign_get(&mut headers, &url, &self.keys, &self.signature_scope())?;
        self.api
            .get(&url, &headers)
            .await?
            .require_success()?
            .decode_json()
            .await
    }
}

//! Discovery from an HTTP server that returns a JSON list of target groups.

use crate::api::{ApiClient, invalid_response_error};
use crate::discover::Refresh;
use crate::group::{TargetGroup, check_groups};
use firn_http_client::HttpSettings;
use firn_model::error::Error;
use hyper::StatusCode;
use hyper::header::{ACCEPT, HeaderMap, HeaderName, HeaderValue};
use std::time::Duration;

/// Label with the URL of the server.
const URL: &str = "__meta_url";

const REFRESH_HEADER: HeaderName = HeaderName::from_static("x-prometheus-refresh-interval-seconds");

/// Discovery that requests the target groups of one HTTP server at an interval.
#[derive(Debug)]
pub(super) struct HttpDiscovery {
    url: String,
    refresh: Duration,
    api: ApiClient,
}

impl HttpDiscovery {
    pub(super) fn new(url: &str, refresh: Duration, client: &HttpSettings, bytes_max: u64) -> Self {
        Self {
            url: url.to_owned(),
            refresh,
            api: ApiClient::new(client, bytes_max),
        }
    }
}

impl Refresh for HttpDiscovery {
    fn interval(&self) -> Duration {
        self.refresh
    }

    fn name(&self) -> String {
        self.url.clone()
    }

    async fn refresh(&mut self) -> Result<Vec<TargetGroup>, Error> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        let seconds = self.refresh.as_secs_f64().to_string();
        if let Ok(seconds) = HeaderValue::from_str(&seconds) {
            headers.insert(REFRESH_HEADER, seconds);
        }
        let answer = self.api.get(&self.url, &headers).await?;
        if answer.status != StatusCode::OK {
            let status = answer.status_text;
            return Err(invalid_response_error(format!(
                "server returned HTTP status {status}"
            )));
        }
        if !is_json(&answer.body.content_type) {
            let kind = &answer.body.content_type;
            return Err(invalid_response_error(format!(
                "unsupported content type {kind:?}"
            )));
        }
        let mut groups =
            check_groups(answer.decode_json().await?).map_err(invalid_response_error)?;
        for group in &mut groups {
            group.labels.insert(URL.into(), self.url.clone());
        }
        Ok(groups)
    }
}

/// Returns whether a content type is JSON, in UTF-8 if it names a charset.
pub(super) fn is_json(content_type: &str) -> bool {
    let lower = content_type.trim().to_ascii_lowercase();
    let Some(rest) = lower.strip_prefix("application/json") else {
        return false;
    };
    let charset = rest.strip_prefix(';').map(str::trim_start);
    rest.is_empty() || matches!(charset, Some("charset=utf-8" | "charset=\"utf-8\""))
}

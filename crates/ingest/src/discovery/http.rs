//! Targets from an HTTP server that answers with a JSON list of groups.

use super::group::Group;
use super::published::Published;
use crate::client::{BodyLimit, HttpClient, HttpSettings, USER_AGENT, read_body};
use firn_model::error::{Error, ErrorKind};
use hyper::header::{ACCEPT, HeaderMap, HeaderName, HeaderValue, USER_AGENT as AGENT};
use hyper::{StatusCode, Uri};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tracing::warn;

/// The label that names the server.
const URL: &str = "__meta_url";

const REFRESH_HEADER: HeaderName = HeaderName::from_static("x-prometheus-refresh-interval-seconds");

/// A server and how to ask it.
#[derive(Debug)]
pub(super) struct Source {
    url: String,
    refresh: Duration,
    client: HttpClient,
    bytes_max: u64,
}

impl Source {
    pub(super) fn new(url: &str, refresh: Duration, client: HttpSettings, bytes_max: u64) -> Self {
        Self {
            url: url.to_owned(),
            refresh,
            client: HttpClient::new(client),
            bytes_max,
        }
    }

    /// Asks once.
    pub(super) async fn groups(&self) -> Result<Vec<Group>, Error> {
        let uri: Uri = self
            .url
            .parse()
            .map_err(|e| invalid(format!("{:?}: {e}", self.url)))?;
        let mut headers = HeaderMap::new();
        headers.insert(AGENT, HeaderValue::from_static(USER_AGENT));
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        let seconds = self.refresh.as_secs_f64().to_string();
        if let Ok(seconds) = HeaderValue::from_str(&seconds) {
            headers.insert(REFRESH_HEADER, seconds);
        }
        let response = self.client.get(&uri, &headers).await?;
        let status = response.status();
        if status != StatusCode::OK {
            return Err(invalid(format!("server returned HTTP status {status}")));
        }
        let body = read_body(response, BodyLimit::bytes(self.bytes_max)).await?;
        if !is_json(&body.content_type) {
            let message = format!("unsupported content type {:?}", body.content_type);
            return Err(invalid(message));
        }
        // A long list takes longer than an async worker may be held.
        let reading = spawn_blocking(move || serde_json::from_slice(&body.bytes));
        let read = reading.await.map_err(|e| invalid(e.to_string()))?;
        let mut groups: Vec<Group> = read.map_err(|e| invalid(e.to_string()))?;
        for group in &mut groups {
            group.labels.insert(URL.into(), self.url.clone());
        }
        Ok(groups)
    }
}

/// JSON, in UTF-8 if the charset is named.
fn is_json(content_type: &str) -> bool {
    let lower = content_type.trim().to_ascii_lowercase();
    let Some(rest) = lower.strip_prefix("application/json") else {
        return false;
    };
    let charset = rest.strip_prefix(';').map(str::trim_start);
    rest.is_empty() || matches!(charset, Some("charset=utf-8" | "charset=\"utf-8\""))
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::Invalid, message)
}

/// Asks again and again until the task is aborted.
pub(super) async fn run(source: Source, to: Arc<Published>) {
    let mut ticks = interval(source.refresh);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        match timeout(source.refresh, source.groups()).await {
            Ok(Ok(groups)) => to.publish(groups),
            Ok(Err(e)) => warn!(url = source.url, error = %e, "cannot refresh targets"),
            Err(_) => warn!(url = source.url, "no answer to the refresh of targets"),
        }
    }
}

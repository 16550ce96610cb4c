//! Discovery from an HTTP server that returns a JSON list of target groups.

use crate::api::{ApiClient, invalid_response_error};
use crate::discover::Refresh;
use crate::group::{TargetGroup, check_groups};
use crate::provider::{
    DiscoveryMechanism, DiscoveryProvider, DiscoverySettings, DiscoveryStarter, DiscoveryTask,
    ReadResult,
};
use crate::section_values::{check_http_url, refresh_interval};
use firn_config_schema::read;
use firn_config_schema::schema::{ConfigKey, ConfigValueShape as Shape, key};
use firn_http_client::HttpSettings;
use firn_http_client::http_config::{HTTP_CLIENT, http};
use firn_model::error::Error;
use firn_yaml::YamlNode;
use hyper::StatusCode;
use hyper::header::{ACCEPT, HeaderMap, HeaderName, HeaderValue};
use std::path::Path;
use std::time::Duration;

/// Label with the URL of the server.
const URL: &str = "__meta_url";

const REFRESH_HEADER: HeaderName = HeaderName::from_static("x-prometheus-refresh-interval-seconds");

/// The provider of `http_sd_configs`.
pub(super) const PROVIDER: DiscoveryProvider = DiscoveryProvider::new(
    "http_sd_configs",
    &Shape::Section(&[HTTP_CLIENT, KEYS]),
    read_entry,
)
.printed_with_defaults();

const KEYS: &[ConfigKey] = &[
    key("refresh_interval", Shape::Duration).or("1m"),
    key("url", Shape::Url).always(""),
];

/// An entry of `http_sd_configs`: a URL that returns target groups in JSON.
#[derive(Clone, Debug, PartialEq)]
pub struct HttpDiscoverySettings {
    /// The `url` key: URL that returns the target groups.
    pub url: String,
    /// The `refresh_interval` key: time between two requests.
    pub refresh: Duration,
    /// Settings of the HTTP client that calls the server.
    pub client: HttpSettings,
}

impl DiscoveryMechanism for HttpDiscoverySettings {
    fn mechanism(&self) -> &'static str {
        "http"
    }

    fn start(&self, starter: &DiscoveryStarter) -> DiscoveryTask {
        starter.refresh(HttpDiscovery::new(self, starter.bytes_max))
    }
}

fn read_entry(node: &YamlNode, dir: &Path) -> ReadResult {
    let url = read::text(node, "url").unwrap_or_default();
    check_http_url(node, url)?;
    Ok(DiscoverySettings::provided(HttpDiscoverySettings {
        url: url.to_owned(),
        refresh: refresh_interval(node, 60),
        client: http(node, dir)?,
    }))
}

/// Discovery that requests the target groups of one HTTP server at an interval.
#[derive(Debug)]
pub(super) struct HttpDiscovery {
    url: String,
    refresh: Duration,
    api: ApiClient,
}

impl HttpDiscovery {
    pub(super) fn new(settings: &HttpDiscoverySettings, bytes_max: u64) -> Self {
        Self {
            url: settings.url.clone(),
            refresh: settings.refresh,
            api: ApiClient::new(&settings.client, bytes_max),
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

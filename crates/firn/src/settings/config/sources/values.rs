//! Values that sections of several discoveries have.

use crate::settings::config::{go_url, read};
use firn_ingest::discovery::Filter;
use firn_model::yaml::{Node, YamlError};
use std::time::Duration;

/// Holds a URL to what `http_sd_configs` takes.
pub fn check_http_url(node: &Node, url: &str) -> Result<(), YamlError> {
    if url.is_empty() {
        return Err(node.error("URL is missing"));
    }
    let url = go_url::parse(url).map_err(|e| node.error(e))?;
    if !matches!(url.scheme.to_ascii_lowercase().as_str(), "http" | "https") {
        return Err(node.error("URL scheme must be 'http' or 'https'"));
    }
    match url.host {
        "" => Err(node.error("host is missing in URL")),
        _ => Ok(()),
    }
}

/// The time from one question to the next, or its default in seconds.
pub fn refresh(node: &Node, seconds: u64) -> Duration {
    read::duration(node, "refresh_interval").unwrap_or(Duration::from_secs(seconds))
}

/// `filters`, of Docker and AWS.
pub fn filters(node: &Node) -> Vec<Filter> {
    let list = node.get("filters").map_or(&[][..], Node::items).iter();
    list.map(|filter| Filter {
        name: read::string(filter, "name"),
        values: read::texts(filter, "values").unwrap_or_default(),
    })
    .collect()
}

/// Whether a URL says how and where; fails if it is none.
pub fn has_scheme_and_host(node: &Node, url: &str) -> Result<bool, YamlError> {
    let url = go_url::parse(url).map_err(|e| node.error(e))?;
    Ok(!url.scheme.is_empty() && !url.host.is_empty())
}

//! Values that sections of several discoveries have.

use crate::settings::config::read;
use firn_ingest::discovery::Filter;
use firn_model::yaml::{Node, YamlError};
use std::time::Duration;

/// Holds a URL to what `http_sd_configs` takes.
pub fn check_http_url(node: &Node, url: &str) -> Result<(), YamlError> {
    let message = match url.split_once("://") {
        _ if url.is_empty() => "URL is missing",
        Some(("http" | "https", rest)) => match rest.split(['/', '?', '#']).next() {
            None | Some("") => "host is missing in URL",
            Some(_) => return Ok(()),
        },
        _ => "URL scheme must be 'http' or 'https'",
    };
    Err(node.error(message))
}

/// The integer of `key`, or its default.
pub fn integer(node: &Node, key: &str, default: i64) -> i64 {
    let text = read::text(node, key);
    text.and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// The text of `key`, or its default; one that is there and empty is empty.
pub fn string(node: &Node, key: &str, default: &str) -> String {
    read::text(node, key).unwrap_or(default).to_owned()
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

/// Whether a URL says how and where.
pub fn has_scheme_and_host(url: &str) -> bool {
    let parts = url.split_once("://");
    parts.is_some_and(|(scheme, rest)| {
        let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
        !scheme.is_empty() && !host.is_empty()
    })
}

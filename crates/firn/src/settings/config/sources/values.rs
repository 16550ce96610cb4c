//! Values that sections of several discoveries have.

use crate::settings::config::http::is_set;
use crate::settings::config::{go_url, read};
use firn_discovery::Filter;
use firn_http_client::Secret;
use firn_model::yaml::{Node, YamlError};
use std::path::Path;
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

/// Asks for texts; each stands beside what upstream says if it is missing.
pub fn require(node: &Node, keys: &[(&str, &str)]) -> Result<(), YamlError> {
    for (key, message) in keys {
        if !is_set(node, key) {
            return Err(node.error(*message));
        }
    }
    Ok(())
}

/// Asks for a list that is not empty.
pub fn require_list(node: &Node, key: &str, message: String) -> Result<(), YamlError> {
    match read::texts(node, key).is_some_and(|list| !list.is_empty()) {
        true => Ok(()),
        false => Err(node.error(message)),
    }
}

/// Whether the time from one question to the next, if it is set, is one.
pub fn has_interval(node: &Node) -> bool {
    let default = Duration::from_secs(60);
    !read::duration_or(node, "refresh_interval", default).is_zero()
}

/// A secret in the config or, if there is none, in a file.
pub fn secret(node: &Node, key: &str, dir: &Path) -> Option<Secret> {
    let inline = read::text(node, key).filter(|text| !text.is_empty());
    let inline = inline.map(|text| Secret::Inline(text.to_owned()));
    inline.or_else(|| read::path(node, &format!("{key}_file"), dir).map(Secret::File))
}

/// A secret whose key has been checked to be there.
pub fn inline_secret(node: &Node, key: &str) -> Secret {
    Secret::Inline(read::string(node, key))
}

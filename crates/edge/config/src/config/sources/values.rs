//! Readers and checks of values that sections of several discoveries contain.

use crate::config::go_url;
use crate::config::read::{self, is_set};
use firn_discovery::DockerFilter;
use firn_http_client::Secret;
use firn_yaml::{YamlError, YamlNode};
use std::path::Path;
use std::time::Duration;

/// Validates a URL like `http_sd_configs` does: an http or https URL with a host.
pub fn check_http_url(node: &YamlNode, url: &str) -> Result<(), YamlError> {
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

/// Returns the refresh interval of the section, or the default of `seconds`.
pub fn refresh(node: &YamlNode, seconds: u64) -> Duration {
    read::duration(node, "refresh_interval").unwrap_or(Duration::from_secs(seconds))
}

/// Reads the list `filters` of Docker and AWS discoveries; each has a name and values.
pub fn filters(node: &YamlNode) -> Vec<DockerFilter> {
    let list = node.get("filters").map_or(&[][..], YamlNode::items).iter();
    list.map(|filter| DockerFilter {
        name: read::string(filter, "name"),
        values: read::texts(filter, "values").unwrap_or_default(),
    })
    .collect()
}

/// Returns whether a URL has a scheme and a host. Fails if it cannot be parsed.
pub fn has_scheme_and_host(node: &YamlNode, url: &str) -> Result<bool, YamlError> {
    let url = go_url::parse(url).map_err(|e| node.error(e))?;
    Ok(!url.scheme.is_empty() && !url.host.is_empty())
}

/// Requires keys with texts. Each key is paired with upstream's error if it is missing.
pub fn require(node: &YamlNode, keys: &[(&str, &str)]) -> Result<(), YamlError> {
    for (key, message) in keys {
        if !is_set(node, key) {
            return Err(node.error(*message));
        }
    }
    Ok(())
}

/// Requires that `key` is a list with at least one item. `message` is the error otherwise.
pub fn require_list(node: &YamlNode, key: &str, message: String) -> Result<(), YamlError> {
    if read::texts(node, key).is_some_and(|list| !list.is_empty()) {
        Ok(())
    } else {
        Err(node.error(message))
    }
}

/// Returns whether the refresh interval is unset or not zero.
pub fn has_interval(node: &YamlNode) -> bool {
    let default = Duration::from_secs(60);
    !read::duration_or(node, "refresh_interval", default).is_zero()
}

/// Returns a secret from the config, else from a file.
pub fn secret(node: &YamlNode, key: &str, dir: &Path) -> Option<Secret> {
    let inline = read::text(node, key).filter(|text| !text.is_empty());
    let inline = inline.map(|text| Secret::Inline(text.to_owned()));
    inline.or_else(|| read::path(node, &format!("{key}_file"), dir).map(Secret::File))
}

/// Returns the secret of a key whose presence was validated before.
pub fn inline_secret(node: &YamlNode, key: &str) -> Secret {
    Secret::Inline(read::string(node, key))
}

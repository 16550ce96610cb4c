//! Readers and checks of values that config sections of several discoveries contain.

use firn_config_schema::go_url;
use firn_config_schema::read::{self, is_set};
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

/// Returns `refresh_interval`, or `seconds` if the key is missing, null or zero.
pub fn refresh_interval(node: &YamlNode, seconds: u64) -> Duration {
    read::duration(node, "refresh_interval").unwrap_or(Duration::from_secs(seconds))
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
pub fn is_interval_valid(node: &YamlNode) -> bool {
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

/// Reads `secret_key` or its file. Exactly one of them must be set.
pub fn secret_key(node: &YamlNode, dir: &Path) -> Result<Secret, YamlError> {
    let what = match (is_set(node, "secret_key"), is_set(node, "secret_key_file")) {
        (true, true) => "at most one of",
        _ => "one of",
    };
    let wrong = || {
        node.error(format!(
            "{what} secret_key & secret_key_file must be configured"
        ))
    };
    match secret(node, "secret_key", dir) {
        Some(secret) if what == "one of" => Ok(secret),
        _ => Err(wrong()),
    }
}

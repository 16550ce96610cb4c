//! Checks and client settings that `remote_write` and `remote_read` share, with the errors of
//! upstream.

use super::http::{http, is_reserved};
use super::read::{self, is_set};
use super::signing::{check_azuread, check_sigv4};
use firn_http_client::{AuthMethod, HeaderValueSource, HttpSettings, Secret};
use firn_yaml::{YamlError, YamlNode};
use std::path::Path;
use std::time::Duration;

/// Upstream's defaults of `queue_config`, for the checks of partly set sections.
const MAX_SHARDS: i64 = 50;
const MAX_SAMPLES_PER_SEND: i64 = 2000;
const CAPACITY: i64 = 10_000;
const MIN_BACKOFF: Duration = Duration::from_millis(30);
const MAX_BACKOFF: Duration = Duration::from_secs(5);

/// Allowed values of `protobuf_message`, one per version of the protocol.
const MESSAGES: [&str; 2] = ["prometheus.WriteRequest", "io.prometheus.write.v2.Request"];

/// Authentication methods, of which a receiver may have at most one.
const WAYS: [&str; 6] = [
    "basic_auth",
    "authorization",
    "oauth2",
    "sigv4",
    "azuread",
    "google_iam",
];

/// Validates a receiver of `remote_write`: URL, headers, message, authentication and queue.
pub fn check_write(node: &YamlNode) -> Result<(), YamlError> {
    require_url(node, "remote_write")?;
    check_headers(node, AUTHORIZATION)?;
    let message = read::string_or(node, "protobuf_message", MESSAGES[0]);
    if !MESSAGES.contains(&message.as_str()) {
        return Err(node.error(format!(
            "invalid protobuf_message value: unknown type for remote write protobuf message \
             {message}, supported: {}",
            MESSAGES.join(", ")
        )));
    }
    check_queue(node)?;
    let given = |key: &str| node.get(key).filter(|section| !section.is_null());
    if let Some(section) = given("sigv4") {
        check_sigv4(section)?;
    }
    if let Some(section) = given("azuread") {
        check_azuread(section)?;
    }
    // A bearer token is the deprecated form of `authorization`.
    let has_bearer = is_set(node, "bearer_token") || is_set(node, "bearer_token_file");
    let is_given = |way: &&str| given(way).is_some() || *way == "authorization" && has_bearer;
    let ways: Vec<&str> = WAYS.into_iter().filter(is_given).collect();
    match ways.len() {
        0 | 1 => Ok(()),
        _ => Err(node.error(format!(
            "at most one of basic_auth, authorization, oauth2, sigv4, azuread or google_iam must \
             be configured. Currently configured: [{}]",
            ways.join(" ")
        ))),
    }
}

/// Validates a server of `remote_read`: its URL and its headers.
pub fn check_read(node: &YamlNode) -> Result<(), YamlError> {
    require_url(node, "remote_read")?;
    check_headers(node, AUTHORIZATION)
}

/// Returns the client settings of a remote in a config in the folder `dir`, with its `headers` and
/// with the `user` of its URL.
pub fn client(
    node: &YamlNode,
    user: Option<(String, String)>,
    dir: &Path,
) -> Result<HttpSettings, YamlError> {
    let mut settings = http(node, dir)?;
    if let (AuthMethod::None, Some((user, password))) = (&settings.auth, user) {
        settings.auth = AuthMethod::Basic {
            username: Some(Secret::Inline(user)),
            password: Some(Secret::Inline(password)),
        };
    }
    for entry in read::entries(node.get("headers")) {
        let value = entry.node.text().unwrap_or_default().to_owned();
        let values = vec![HeaderValueSource::Plain(value)];
        settings.headers.insert(entry.key.clone(), values);
    }
    Ok(settings)
}

/// Rejects duplicate names in a list of remotes. Several remotes may have no name.
pub fn check_names(list: &[YamlNode], what: &str) -> Result<(), YamlError> {
    for (i, node) in list.iter().enumerate() {
        let name = read::string(node, "name");
        let is_known = |other: &YamlNode| read::string(other, "name") == name;
        if !name.is_empty() && list[..i].iter().any(is_known) {
            let message = format!("found multiple {what} configs with job name {name:?}");
            return Err(node.error(message));
        }
    }
    Ok(())
}

fn require_url(node: &YamlNode, section: &str) -> Result<(), YamlError> {
    // An empty text counts as a URL upstream, although it is useless.
    match read::text(node, "url") {
        Some(_) => Ok(()),
        None => Err(node.error(format!("url for {section} is empty"))),
    }
}

/// Error for the header `Authorization` among the headers of a remote.
const AUTHORIZATION: &str = "authorization header must be changed via the basic_auth, \
                                   authorization, oauth2, sigv4, azuread or google_iam parameter";

/// Validates the `headers` of a section. `authorization` is the error for the header
/// `Authorization`.
pub fn check_headers(node: &YamlNode, authorization: &str) -> Result<(), YamlError> {
    for entry in read::entries(node.get("headers")) {
        let name = entry.key.to_ascii_lowercase();
        if name == "authorization" {
            return Err(entry.node.error(authorization));
        }
        // This header is reserved only for scrapes.
        if is_reserved(&name) && name != "x-prometheus-scrape-timeout-seconds" {
            let message = format!("{} is a reserved header. It must not be changed", entry.key);
            return Err(entry.node.error(message));
        }
    }
    Ok(())
}

fn check_queue(node: &YamlNode) -> Result<(), YamlError> {
    let Some(queue) = node.get("queue_config") else {
        return Ok(());
    };
    if queue.is_null() {
        // Upstream treats an empty section as a section of zeros.
        return Err(queue.error("remote write queue max_shards must be positive"));
    }
    let count = |key, default| read::integer_or(queue, key, default);
    let time = |key, default| read::duration_or(queue, key, default);
    let (min, max) = (count("min_shards", 1), count("max_shards", MAX_SHARDS));
    let message = if max <= 0 {
        "max_shards must be positive"
    } else if min <= 0 {
        "min_shards must be positive"
    } else if min > max {
        "min_shards must not be greater than max_shards"
    } else if count("max_samples_per_send", MAX_SAMPLES_PER_SEND) <= 0 {
        "max_samples_per_send must be positive"
    } else if count("capacity", CAPACITY) <= 0 {
        "capacity must be positive"
    } else if time("max_backoff", MAX_BACKOFF) < time("min_backoff", MIN_BACKOFF) {
        "max_backoff must not be less than min_backoff"
    } else {
        return Ok(());
    };
    Err(queue.error(format!("remote write queue {message}")))
}

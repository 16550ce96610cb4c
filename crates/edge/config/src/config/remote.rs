//! Checks and client settings that `remote_write` and `remote_read` share, with the errors of
//! upstream.

use super::signing::{check_azuread, check_sigv4};
use firn_config_schema::section::ConfigSection;
use firn_http_client::http_config::{http, is_reserved};
use firn_http_client::{AuthMethod, HeaderValueSource, HttpSettings, Secret};
use firn_yaml::YamlError;

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
pub fn check_write(section: ConfigSection<'_>) -> Result<(), YamlError> {
    require_url(section, "remote_write")?;
    check_headers(section, AUTHORIZATION)?;
    let message = section.text_or_empty("protobuf_message");
    if !MESSAGES.contains(&message) {
        return Err(section.error(format!(
            "invalid protobuf_message value: unknown type for remote write protobuf message \
             {message}, supported: {}",
            MESSAGES.join(", ")
        )));
    }
    // Upstream treats a queue that is null as a section of zeros.
    if let Some(queue) = section.get("queue_config").filter(|queue| queue.is_null()) {
        return Err(queue.error("remote write queue max_shards must be positive"));
    }
    check_queue(section.section("queue_config"))?;
    let given = |key: &str| section.section(key).if_set();
    if let Some(signing) = given("sigv4") {
        check_sigv4(signing.node())?;
    }
    if let Some(signing) = given("azuread") {
        check_azuread(signing.node())?;
    }
    // A bearer token is the deprecated form of `authorization`.
    let is_set = |key| section.text_if_set(key).is_some();
    let has_bearer = is_set("bearer_token") || is_set("bearer_token_file");
    let is_given = |way: &&str| given(way).is_some() || *way == "authorization" && has_bearer;
    let ways: Vec<&str> = WAYS.into_iter().filter(is_given).collect();
    match ways.len() {
        0 | 1 => Ok(()),
        _ => Err(section.error(format!(
            "at most one of basic_auth, authorization, oauth2, sigv4, azuread or google_iam must \
             be configured. Currently configured: [{}]",
            ways.join(" ")
        ))),
    }
}

/// Validates a server of `remote_read`: its URL and its headers.
pub fn check_read(section: ConfigSection<'_>) -> Result<(), YamlError> {
    require_url(section, "remote_read")?;
    check_headers(section, AUTHORIZATION)
}

/// Returns the client settings of a remote, with its `headers` and with the `user` of its URL.
pub fn client(
    section: ConfigSection<'_>,
    user: Option<(String, String)>,
) -> Result<HttpSettings, YamlError> {
    let mut settings = http(section.node(), section.dir())?;
    if let (AuthMethod::None, Some((user, password))) = (&settings.auth, user) {
        settings.auth = AuthMethod::Basic {
            username: Some(Secret::Inline(user)),
            password: Some(Secret::Inline(password)),
        };
    }
    for entry in section.entries("headers") {
        let value = entry.node.text().unwrap_or_default().to_owned();
        let values = vec![HeaderValueSource::Plain(value)];
        settings.headers.insert(entry.key.clone(), values);
    }
    Ok(settings)
}

/// Rejects duplicate names in a list of remotes. Several remotes may have no name.
pub fn check_names(list: &[ConfigSection<'_>], what: &str) -> Result<(), YamlError> {
    for (i, section) in list.iter().enumerate() {
        let name = section.text("name");
        let is_known = |other: &ConfigSection<'_>| other.text("name") == name;
        if !name.is_empty() && list[..i].iter().any(is_known) {
            let message = format!("found multiple {what} configs with job name {name:?}");
            return Err(section.error(message));
        }
    }
    Ok(())
}

fn require_url(section: ConfigSection<'_>, name: &str) -> Result<(), YamlError> {
    // An empty text counts as a URL upstream, although it is useless.
    match section.get("url").filter(|url| !url.is_null()) {
        Some(_) => Ok(()),
        None => Err(section.error(format!("url for {name} is empty"))),
    }
}

/// Error for the header `Authorization` among the headers of a remote.
const AUTHORIZATION: &str = "authorization header must be changed via the basic_auth, \
                                   authorization, oauth2, sigv4, azuread or google_iam parameter";

/// Validates the `headers` of a section. `authorization` is the error for the header
/// `Authorization`.
pub fn check_headers(section: ConfigSection<'_>, authorization: &str) -> Result<(), YamlError> {
    for entry in section.entries("headers") {
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

fn check_queue(queue: ConfigSection<'_>) -> Result<(), YamlError> {
    let (min, max) = (
        queue.integer_or_zero("min_shards"),
        queue.integer_or_zero("max_shards"),
    );
    let message = if max <= 0 {
        "max_shards must be positive"
    } else if min <= 0 {
        "min_shards must be positive"
    } else if min > max {
        "min_shards must not be greater than max_shards"
    } else if queue.integer_or_zero("max_samples_per_send") <= 0 {
        "max_samples_per_send must be positive"
    } else if queue.integer_or_zero("capacity") <= 0 {
        "capacity must be positive"
    } else if queue.duration_or_zero("max_backoff") < queue.duration_or_zero("min_backoff") {
        "max_backoff must not be less than min_backoff"
    } else {
        return Ok(());
    };
    Err(queue.error(format!("remote write queue {message}")))
}

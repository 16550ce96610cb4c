//! The file of `--web.config.file`: exporter-toolkit's web configuration.
//!
//! Keys, checks, their order and their texts equal those of the toolkit and of Go's YAML library,
//! so that `firn check web-config` prints the same as promtool. [`WebConfig::warnings`] lists the
//! settings that Go supports and ring does not.
//!
//! Invariant: a server can use a file that passed these checks, unless its certificates are
//! invalid.

mod hash;
mod strict;
mod tls;

pub use tls::{TlsInput, TlsSection};

use firn_http_client::named_files;
use firn_model::access::RequestRateLimit;
use firn_yaml::YamlNode;
use hash::BcryptHashError;
use http::{HeaderName, HeaderValue};
use std::path::Path;
use strict::StrictValueReader;

/// Headers that may be set, with the values that they may have; none is any.
const HEADERS: [(&str, &[&str]); 5] = [
    ("Strict-Transport-Security", &[]),
    ("X-Content-Type-Options", &["nosniff"]),
    ("X-Frame-Options", &["deny", "sameorigin"]),
    ("X-XSS-Protection", &[]),
    ("Content-Security-Policy", &[]),
];

/// Why a file cannot be served with, in the toolkit's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct WebConfigError(String);

impl From<String> for WebConfigError {
    fn from(message: String) -> Self {
        Self(message)
    }
}

/// The contents of a web config file. It has no `Debug`, because it contains hashes and maybe a
/// key.
#[derive(Clone, PartialEq)]
pub struct WebConfig {
    /// `tls_server_config`, if something in it is set.
    pub tls: Option<TlsSection>,
    /// `http_server_config.headers`
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// `basic_auth_users`: names and hashes.
    pub users: Vec<(String, String)>,
    /// `rate_limit`
    pub rate_limit: Option<RequestRateLimit>,
    /// Settings that Firn cannot apply, one warning each.
    pub warnings: Vec<String>,
}

/// Reads the file. Certificates are looked at by [`TlsSection::load`].
pub fn read(file: &Path) -> Result<WebConfig, WebConfigError> {
    let text = match named_files::read(file) {
        Ok(bytes) => match firn_yaml::decode(&bytes) {
            Ok(text) => text.into_owned(),
            Err(e) => return Err(WebConfigError(format!("yaml: {}", e.message))),
        },
        Err(e) => return Err(WebConfigError(go_error("open", file, &e))),
    };
    Ok(parse(&text, file.parent().unwrap_or(Path::new("")))?)
}

/// Checks a file as `promtool check web-config` does.
pub fn check(file: &Path) -> Result<WebConfig, WebConfigError> {
    let config = read(file)?;
    if let Some(tls) = &config.tls {
        tls.load()?.server_config()?;
    }
    Ok(config)
}

/// Checks the text of a file in `dir`.
fn parse(text: &str, dir: &Path) -> Result<WebConfig, String> {
    let root = firn_yaml::parse(text)
        .map_err(|e| format!("yaml: line {}: {}", e.place.line, e.message))?;
    let mut strict = StrictValueReader::default();
    let mut warnings = Vec::new();
    let mut tls = None;
    let mut http = HttpServerSection::default();
    let (mut users, mut rate) = (Vec::new(), None);
    let fields = [
        "tls_server_config",
        "http_server_config",
        "rate_limit",
        "basic_auth_users",
    ];
    for (key, node) in strict.fields(root.as_ref(), "web.Config", &fields) {
        match key {
            "tls_server_config" => tls = Some(tls::read(node, dir, &mut strict, &mut warnings)?),
            "http_server_config" => http = read_http(node, &mut strict),
            "rate_limit" => rate = read_rate(node, &mut strict),
            _ => users = strict.map(node, "map[string]config.Secret"),
        }
    }
    strict.finish()?;
    let headers = checked_headers(http.headers)?;
    for (name, hash) in &users {
        // The toolkit does not say whose it is.
        hash::check(hash).map_err(|e| match e {
            BcryptHashError::CostTooHigh(_) => format!("user {name:?}: {e}"),
            e => e.to_string(),
        })?;
    }
    let tls = tls.and_then(|tls| tls.enabled(http.http2));
    Ok(WebConfig {
        tls: tls.transpose()?,
        headers,
        users,
        rate_limit: rate,
        warnings,
    })
}

/// `http_server_config`
struct HttpServerSection {
    http2: bool,
    headers: Vec<(String, String)>,
}

impl Default for HttpServerSection {
    fn default() -> Self {
        Self {
            http2: true,
            headers: Vec::new(),
        }
    }
}

fn read_http(node: &YamlNode, strict: &mut StrictValueReader) -> HttpServerSection {
    let mut http = HttpServerSection::default();
    for (key, node) in strict.fields(Some(node), "web.HTTPConfig", &["http2", "headers"]) {
        match key {
            "http2" => http.http2 = strict.flag(node).unwrap_or(true),
            _ => http.headers = strict.map(node, "map[string]string"),
        }
    }
    http
}

fn read_rate(node: &YamlNode, strict: &mut StrictValueReader) -> Option<RequestRateLimit> {
    let (mut interval, mut burst) = (None, 0);
    for (key, node) in strict.fields(Some(node), "web.RateLimiterConfig", &["burst", "interval"]) {
        match key {
            "burst" => burst = strict.integer(node).unwrap_or(0),
            _ => interval = strict.duration(node),
        }
    }
    // No interval is no limit; less than no burst is none.
    let interval = interval.filter(|interval| !interval.is_zero())?;
    Some(RequestRateLimit {
        interval,
        burst: u64::try_from(burst).unwrap_or(0),
    })
}

fn checked_headers(
    headers: Vec<(String, String)>,
) -> Result<Vec<(HeaderName, HeaderValue)>, String> {
    let mut checked = Vec::with_capacity(headers.len());
    for (name, value) in headers {
        let Some((_, values)) = HEADERS.iter().find(|(known, _)| *known == name) else {
            return Err(format!("HTTP header {name:?} can not be configured"));
        };
        if !values.is_empty() && !values.contains(&value.as_str()) {
            let values = values.iter().map(|v| format!("{v:?}")).collect::<Vec<_>>();
            return Err(format!(
                "invalid value for {name}. Expected one of: [{}], but got: {value:?}",
                values.join(" ")
            ));
        }
        let value = HeaderValue::from_str(&value)
            .map_err(|_| format!("invalid value for {name}: {value:?}"))?;
        let name = HeaderName::from_bytes(name.as_bytes())
            .map_err(|_| format!("HTTP header {name:?} can not be configured"))?;
        checked.push((name, value));
    }
    Ok(checked)
}

/// An error about a file as Go words it.
fn go_error(action: &str, file: &Path, error: &std::io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut chars = text.chars();
    let first = chars.next().map(|c| c.to_ascii_lowercase());
    let text: String = first.into_iter().chain(chars).collect();
    // Opening a folder works.
    let action = match error.kind() {
        std::io::ErrorKind::IsADirectory => "read",
        _ => action,
    };
    format!("{action} {}: {text}", file.display())
}

#[cfg(test)]
mod tests;

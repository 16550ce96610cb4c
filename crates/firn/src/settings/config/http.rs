//! `http_config`: how a job, a discovery or a token server is reached.
//!
//! Checks and their words are those of Prometheus's library for HTTP clients; files are taken from
//! the folder of the config.

use super::read::{entries, flag, path, string, text, texts};
use firn_ingest::client::{
    Auth, HeaderValueSource, HttpSettings, OAuth2Settings, ProxySettings, Secret, TlsSettings,
    TlsVersion,
};
use firn_model::yaml::{Node, YamlError};
use std::collections::BTreeMap;
use std::path::Path;

/// Headers that belong to the protocol and not to the user, in lower case.
const RESERVED_HEADERS: [&str; 18] = [
    "authorization",
    "host",
    "content-encoding",
    "content-length",
    "content-type",
    "user-agent",
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "www-authenticate",
    "accept-encoding",
    "x-prometheus-remote-write-version",
    "x-prometheus-remote-read-version",
    "x-prometheus-scrape-timeout-seconds",
    "x-amz-date",
    "x-amz-security-token",
    "x-amz-content-sha256",
];

/// The grant that is not supported: it needs signatures of our own.
const JWT_BEARER: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";

/// The client of the section `node`, in which its keys stand beside others.
pub fn http(node: &Node, dir: &Path) -> Result<HttpSettings, YamlError> {
    Ok(HttpSettings {
        auth: auth(node, dir)?,
        tls: tls(node.get("tls_config"), dir)?,
        proxy: proxy(node)?,
        follow_redirects: flag(node, "follow_redirects").unwrap_or(true),
        enable_http2: flag(node, "enable_http2").unwrap_or(true),
        headers: headers(node, dir)?,
    })
}

/// The secret under `key`, or in the file under `<key>_file`.
fn secret(
    node: &Node,
    key: &str,
    dir: &Path,
    at_most_one: &str,
) -> Result<Option<Secret>, YamlError> {
    if let Some(reference) = node
        .get(&format!("{key}_ref"))
        .filter(|r| r.text().is_some())
    {
        return Err(reference.error("cannot use secret ref without manager"));
    }
    let inline = text(node, key).filter(|text| !text.is_empty());
    match (inline, path(node, &format!("{key}_file"), dir)) {
        (Some(_), Some(_)) => Err(node.error(at_most_one)),
        (Some(text), None) => Ok(Some(Secret::Inline(text.to_owned()))),
        (None, file) => Ok(file.map(Secret::File)),
    }
}

fn auth(node: &Node, dir: &Path) -> Result<Auth, YamlError> {
    let section = |key: &str| node.get(key).filter(|section| !section.is_null());
    let bearer = secret(
        node,
        "bearer_token",
        dir,
        "at most one of bearer_token & bearer_token_file must be configured",
    )?;
    let (basic, oauth2) = (section("basic_auth"), section("oauth2"));
    let authorization = section("authorization");
    if bearer.is_some() && (basic.is_some() || oauth2.is_some()) {
        return Err(node.error(
            "at most one of basic_auth, oauth2, bearer_token & bearer_token_file must be \
             configured",
        ));
    }
    if bearer.is_some() && authorization.is_some() {
        return Err(
            node.error("authorization is not compatible with bearer_token & bearer_token_file")
        );
    }
    match (basic, authorization, oauth2) {
        (Some(basic), None, None) => basic_auth(basic, dir),
        (None, Some(authorization), None) => credentials(authorization, dir),
        (None, None, Some(oauth2)) => oauth2_settings(oauth2, dir),
        (None, None, None) => Ok(match bearer {
            None => Auth::None,
            bearer => Auth::Credentials {
                scheme: "Bearer".into(),
                credentials: bearer,
            },
        }),
        _ => {
            Err(node.error("at most one of basic_auth, oauth2 & authorization must be configured"))
        }
    }
}

fn basic_auth(node: &Node, dir: &Path) -> Result<Auth, YamlError> {
    let one = |what: &str| {
        format!("at most one of basic_auth {what}, {what}_file & {what}_ref must be configured")
    };
    Ok(Auth::Basic {
        username: secret(node, "username", dir, &one("username"))?,
        password: secret(node, "password", dir, &one("password"))?,
    })
}

fn credentials(node: &Node, dir: &Path) -> Result<Auth, YamlError> {
    let scheme = match text(node, "type").unwrap_or_default().trim() {
        "" => "Bearer".to_owned(),
        scheme => scheme.to_owned(),
    };
    if scheme.eq_ignore_ascii_case("basic") {
        return Err(
            node.error("authorization type cannot be set to \"basic\", use \"basic_auth\" instead")
        );
    }
    let credentials = secret(
        node,
        "credentials",
        dir,
        "at most one of authorization credentials & credentials_file must be configured",
    )?;
    Ok(Auth::Credentials {
        scheme,
        credentials,
    })
}

fn oauth2_settings(node: &Node, dir: &Path) -> Result<Auth, YamlError> {
    for key in ["client_id", "token_url"] {
        if text(node, key).is_none_or(str::is_empty) {
            return Err(node.error(format!("oauth2 {key} must be configured")));
        }
    }
    if text(node, "grant_type") == Some(JWT_BEARER) {
        return Err(node.error(format!("oauth2 grant_type {JWT_BEARER} is not supported")));
    }
    let client_secret = secret(
        node,
        "client_secret",
        dir,
        "at most one of oauth2 client_secret, client_secret_file & client_secret_ref must be \
         configured using grant-type=client_credentials",
    )?;
    Ok(Auth::OAuth2(Box::new(OAuth2Settings {
        client_id: string(node, "client_id"),
        client_secret,
        scopes: texts(node, "scopes").unwrap_or_default(),
        token_url: string(node, "token_url"),
        endpoint_params: entries(node.get("endpoint_params"))
            .iter()
            .map(|e| (e.key.clone(), e.node.text().unwrap_or_default().to_owned()))
            .collect(),
        tls: tls(node.get("tls_config"), dir)?,
        proxy: proxy(node)?,
    })))
}

fn tls(node: Option<&Node>, dir: &Path) -> Result<TlsSettings, YamlError> {
    let Some(node) = node.filter(|node| !node.is_null()) else {
        return Ok(TlsSettings::default());
    };
    let settings = TlsSettings {
        ca: secret(
            node,
            "ca",
            dir,
            "at most one of ca, ca_file & ca_ref must be configured",
        )?,
        cert: secret(
            node,
            "cert",
            dir,
            "at most one of cert, cert_file & cert_ref must be configured",
        )?,
        key: secret(
            node,
            "key",
            dir,
            "at most one of key and key_file must be configured",
        )?,
        server_name: string(node, "server_name"),
        insecure_skip_verify: flag(node, "insecure_skip_verify").unwrap_or(false),
        min_version: tls_version(node, "min_version"),
        max_version: tls_version(node, "max_version"),
    };
    let what = match (&settings.cert, &settings.key) {
        (Some(_), None) => "key or key_file must be configured when a client certificate",
        (None, Some(_)) => "cert or cert_file must be configured when a client key",
        _ => return check_versions(node, settings),
    };
    Err(node.error(format!("exactly one of {what} is configured")))
}

fn check_versions(node: &Node, settings: TlsSettings) -> Result<TlsSettings, YamlError> {
    let max = text(node, "max_version");
    if let (Some(min), Some(max)) = (text(node, "min_version"), max)
        && max < min
    {
        return Err(node.error(
            "tls_config.max_version must be greater than or equal to tls_config.min_version if \
             both are specified",
        ));
    }
    match max {
        Some("TLS10" | "TLS11") => {
            Err(node
                .error("tls_config.max_version: TLS 1.2 is the oldest version that Firn speaks"))
        }
        _ => Ok(settings),
    }
}

fn tls_version(node: &Node, key: &str) -> Option<TlsVersion> {
    Some(match text(node, key)? {
        "TLS13" => TlsVersion::V13,
        _ => TlsVersion::V12,
    })
}

fn proxy(node: &Node) -> Result<ProxySettings, YamlError> {
    let settings = ProxySettings {
        url: text(node, "proxy_url")
            .filter(|url| !url.is_empty())
            .map(str::to_owned),
        no_proxy: string(node, "no_proxy"),
        is_from_environment: flag(node, "proxy_from_environment").unwrap_or(false),
        connect_headers: entries(node.get("proxy_connect_header"))
            .iter()
            .map(|e| {
                let values = e.node.items().iter().filter_map(Node::text);
                (e.key.clone(), values.map(str::to_owned).collect())
            })
            .collect(),
    };
    let (has_url, from_environment) = (settings.url.is_some(), settings.is_from_environment);
    let has_no_proxy = !settings.no_proxy.is_empty();
    let message = if !settings.connect_headers.is_empty() && !has_url && !from_environment {
        "if proxy_connect_header is configured, proxy_url or proxy_from_environment must also be \
         configured"
    } else if from_environment && has_url {
        "if proxy_from_environment is configured, proxy_url must not be configured"
    } else if from_environment && has_no_proxy {
        "if proxy_from_environment is configured, no_proxy must not be configured"
    } else if !has_url && has_no_proxy {
        "if no_proxy is configured, proxy_url must also be configured"
    } else {
        return Ok(settings);
    };
    Err(node.error(message))
}

fn headers(node: &Node, dir: &Path) -> Result<BTreeMap<String, Vec<HeaderValueSource>>, YamlError> {
    let mut headers = BTreeMap::new();
    for entry in entries(node.get("http_headers")) {
        let lower = entry.key.to_ascii_lowercase();
        if is_reserved(&lower) {
            let name = canonical_header(&entry.key);
            let message = format!("setting header {name:?} is not allowed");
            return Err(entry.node.error(message));
        }
        let list = |key: &str| texts(&entry.node, key).unwrap_or_default().into_iter();
        let plain = list("values").map(HeaderValueSource::Plain);
        let secrets = list("secrets").map(|s| HeaderValueSource::Secret(Secret::Inline(s)));
        let files = list("files").map(|f| HeaderValueSource::Secret(Secret::File(dir.join(f))));
        headers.insert(
            entry.key.clone(),
            plain.chain(secrets).chain(files).collect(),
        );
    }
    Ok(headers)
}

/// Whether a header, by its name in lower case, belongs to the protocol and not to the user.
pub fn is_reserved(lower: &str) -> bool {
    RESERVED_HEADERS.contains(&lower)
}

/// A header's name as Go writes it: each word with a capital.
fn canonical_header(name: &str) -> String {
    let words = name.split('-').map(|word| {
        let (first, rest) = word.split_at(word.chars().next().map_or(0, char::len_utf8));
        first.to_ascii_uppercase() + &rest.to_ascii_lowercase()
    });
    words.collect::<Vec<_>>().join("-")
}

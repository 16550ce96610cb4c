//! Client settings in a config (`http_config`): of a job, a discovery or a token server.
//!
//! The checks and errors are those of Prometheus's HTTP client library. File paths are relative to
//! the folder of the config.

mod keys;

pub use keys::{HTTP_CLIENT, PROXY, TLS, WRITE_CLIENT};

use crate::{
    AssertionSettings, AuthMethod, ClientTlsSettings, ClientTlsVersion, HeaderValueSource,
    HttpSettings, OAuth2Settings, ProxySettings, Secret, SigningAlgorithm,
};
use firn_config_schema::read::{entries, flag_or, is_set, path, string, text, texts};
use firn_yaml::scalar::{YamlScalar, interpret_scalar};
use firn_yaml::{YamlError, YamlNode};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::path::Path;

/// Headers, in lower case, that users cannot set because the protocol or another key sets them.
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

/// OAuth 2 grant type that exchanges a signed assertion for a token.
const JWT_BEARER: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";

/// Reads the client settings of the section `node`, which may contain other keys too.
pub fn http(node: &YamlNode, dir: &Path) -> Result<HttpSettings, YamlError> {
    Ok(HttpSettings {
        auth: auth(node, dir)?,
        tls: tls(node.get("tls_config"), dir)?,
        proxy: proxy(node)?,
        follow_redirects: flag_or(node, "follow_redirects", true),
        enable_http2: flag_or(node, "enable_http2", true),
        headers: headers(node, dir)?,
    })
}

/// Returns the secret of `key`, or of the file in `<key>_file`. A secret manager's reference in
/// `<key>_ref` counts as no secret, because Firn has no such manager.
fn secret(
    node: &YamlNode,
    key: &str,
    dir: &Path,
    at_most_one: &str,
) -> Result<Option<Secret>, YamlError> {
    let (file, reference) = (format!("{key}_file"), format!("{key}_ref"));
    let keys = [key, &file, &reference];
    if keys.iter().filter(|key| is_set(node, key)).count() > 1 {
        return Err(node.error(at_most_one));
    }
    let inline = text(node, key).filter(|text| !text.is_empty());
    let inline = inline.map(|text| Secret::Inline(text.to_owned()));
    Ok(inline.or_else(|| path(node, &file, dir).map(Secret::File)))
}

fn auth(node: &YamlNode, dir: &Path) -> Result<AuthMethod, YamlError> {
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
            None => AuthMethod::None,
            bearer => AuthMethod::Credentials {
                scheme: "Bearer".into(),
                credentials: bearer,
            },
        }),
        _ => {
            Err(node.error("at most one of basic_auth, oauth2 & authorization must be configured"))
        }
    }
}

fn basic_auth(node: &YamlNode, dir: &Path) -> Result<AuthMethod, YamlError> {
    let one = |what: &str| {
        format!("at most one of basic_auth {what}, {what}_file & {what}_ref must be configured")
    };
    Ok(AuthMethod::Basic {
        username: secret(node, "username", dir, &one("username"))?,
        password: secret(node, "password", dir, &one("password"))?,
    })
}

fn credentials(node: &YamlNode, dir: &Path) -> Result<AuthMethod, YamlError> {
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
    Ok(AuthMethod::Credentials {
        scheme,
        credentials,
    })
}

fn oauth2_settings(node: &YamlNode, dir: &Path) -> Result<AuthMethod, YamlError> {
    for key in ["client_id", "token_url"] {
        if !is_set(node, key) {
            return Err(node.error(format!("oauth2 {key} must be configured")));
        }
    }
    let (client_secret, assertion) = match text(node, "grant_type") {
        Some(JWT_BEARER) => (None, Some(assertion(node, dir)?)),
        _ => {
            let message = "at most one of oauth2 client_secret, client_secret_file & \
                           client_secret_ref must be configured using \
                           grant-type=client_credentials";
            (secret(node, "client_secret", dir, message)?, None)
        }
    };
    Ok(AuthMethod::OAuth2(Box::new(OAuth2Settings {
        client_id: string(node, "client_id"),
        client_secret,
        assertion,
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

/// Reads the settings of the signed assertion that is exchanged for a token.
fn assertion(node: &YamlNode, dir: &Path) -> Result<AssertionSettings, YamlError> {
    let message = format!(
        "at most one of oauth2 client_certificate_key, client_certificate_key_file & \
         client_certificate_key_ref must be configured using grant-type={JWT_BEARER}"
    );
    let algorithm = match text(node, "signature_algorithm") {
        None | Some("" | "RS256") => SigningAlgorithm::Rs256,
        Some("RS384") => SigningAlgorithm::Rs384,
        Some("RS512") => SigningAlgorithm::Rs512,
        Some(_) => {
            return Err(node.error("valid signature algorithms are RS256, RS384 and RS512"));
        }
    };
    Ok(AssertionSettings {
        key: secret(node, "client_certificate_key", dir, &message)?,
        key_id: string(node, "client_certificate_key_id"),
        algorithm,
        issuer: string(node, "iss"),
        audience: string(node, "audience"),
        claims: match node.get("claims") {
            Some(claims) if !claims.is_null() => json_of(claims),
            _ => Value::Object(Map::new()),
        },
    })
}

/// Converts a YAML tree into a JSON value, for the claims of an assertion.
fn json_of(node: &YamlNode) -> Value {
    match &node.value {
        firn_yaml::YamlValue::List(items) => items.iter().map(json_of).collect(),
        firn_yaml::YamlValue::Map(entries) => {
            let pairs = entries.iter().map(|e| (e.key.clone(), json_of(&e.node)));
            Value::Object(pairs.collect())
        }
        firn_yaml::YamlValue::Scalar { text, .. } => match interpret_scalar(node) {
            None | Some(YamlScalar::Null) => Value::Null,
            Some(YamlScalar::Bool(value)) => value.into(),
            Some(YamlScalar::Whole(value)) => match i64::try_from(value) {
                Ok(value) => value.into(),
                Err(_) => (value as f64).into(),
            },
            Some(YamlScalar::Number(value)) => value.into(),
            Some(YamlScalar::Text) => text.as_str().into(),
        },
    }
}

/// Reads the TLS settings of a client, or returns the defaults if there is no section.
pub fn tls(node: Option<&YamlNode>, dir: &Path) -> Result<ClientTlsSettings, YamlError> {
    let Some(node) = node.filter(|node| !node.is_null()) else {
        return Ok(ClientTlsSettings::default());
    };
    let of = |key: &str, at_most_one: &str| secret(node, key, dir, at_most_one);
    let settings = ClientTlsSettings {
        ca: of(
            "ca",
            "at most one of ca, ca_file & ca_ref must be configured",
        )?,
        cert: of(
            "cert",
            "at most one of cert, cert_file & cert_ref must be configured",
        )?,
        key: of("key", "at most one of key and key_file must be configured")?,
        server_name: string(node, "server_name"),
        insecure_skip_verify: flag_or(node, "insecure_skip_verify", false),
        min_version: tls_version(node, "min_version"),
        max_version: tls_version(node, "max_version"),
    };
    let has = |secret: &Option<Secret>, reference| secret.is_some() || is_set(node, reference);
    let what = match (
        has(&settings.cert, "cert_ref"),
        has(&settings.key, "key_ref"),
    ) {
        (true, false) => "key or key_file must be configured when a client certificate",
        (false, true) => "cert or cert_file must be configured when a client key",
        _ => return Ok(settings),
    };
    Err(node.error(format!("exactly one of {what} is configured")))
}

fn tls_version(node: &YamlNode, key: &str) -> Option<ClientTlsVersion> {
    Some(match text(node, key).filter(|text| !text.is_empty())? {
        "TLS13" => ClientTlsVersion::V13,
        _ => ClientTlsVersion::V12,
    })
}

fn proxy(node: &YamlNode) -> Result<ProxySettings, YamlError> {
    let settings = ProxySettings {
        url: text(node, "proxy_url")
            .filter(|url| !url.is_empty())
            .map(str::to_owned),
        no_proxy: string(node, "no_proxy"),
        is_from_environment: flag_or(node, "proxy_from_environment", false),
        connect_headers: entries(node.get("proxy_connect_header"))
            .iter()
            .map(|e| {
                let values = e.node.items().iter().filter_map(YamlNode::text);
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
    } else if text(node, "proxy_url").is_none() && has_no_proxy {
        "if no_proxy is configured, proxy_url must also be configured"
    } else {
        return Ok(settings);
    };
    Err(node.error(message))
}

fn headers(
    node: &YamlNode,
    dir: &Path,
) -> Result<BTreeMap<String, Vec<HeaderValueSource>>, YamlError> {
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

/// Returns whether users cannot set a header, given its name in lower case.
pub fn is_reserved(lower: &str) -> bool {
    RESERVED_HEADERS.contains(&lower)
}

/// Returns a header name as Go writes it: each word capitalized.
fn canonical_header(name: &str) -> String {
    let words = name.split('-').map(|word| {
        let (first, rest) = word.split_at(word.chars().next().map_or(0, char::len_utf8));
        first.to_ascii_uppercase() + &rest.to_ascii_lowercase()
    });
    words.collect::<Vec<_>>().join("-")
}

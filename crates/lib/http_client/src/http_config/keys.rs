//! Table of the keys of an HTTP client in a config, with their shapes.
//!
//! Follows Prometheus's library for HTTP clients.

use ConfigValueShape::{Any, Bool, List, Map, Secret, Section, Text, TlsVersion, Url};
use firn_config_schema::schema::{ConfigKey, ConfigValueShape, TEXTS, key};

/// Keys of every HTTP client of Prometheus, inline in its section. [`PROXY`] has the others.
pub const HTTP_CLIENT: &[ConfigKey] = &[
    key("basic_auth", Section(&[BASIC_AUTH])),
    key("authorization", Section(&[AUTHORIZATION])),
    key("oauth2", Section(&[OAUTH2, PROXY])),
    key("bearer_token", Secret),
    key("bearer_token_file", Text),
    key("tls_config", TLS),
    key("follow_redirects", Bool),
    key("enable_http2", Bool),
    key(
        "http_headers",
        Map(&Section(&[&[
            key("values", TEXTS),
            key("secrets", List(&Secret)),
            key("files", TEXTS),
        ]])),
    ),
];

/// Keys for the proxy of an HTTP client, inline in its section.
pub const PROXY: &[ConfigKey] = &[
    key("proxy_url", Url),
    key("no_proxy", Text),
    key("proxy_from_environment", Bool),
    key("proxy_connect_header", Map(&List(&Secret))),
];

const BASIC_AUTH: &[ConfigKey] = &[
    key("username", Text),
    key("username_file", Text),
    key("username_ref", Text).ignored(),
    key("password", Secret),
    key("password_file", Text),
    key("password_ref", Text).ignored(),
];

const AUTHORIZATION: &[ConfigKey] = &[
    key("type", Text),
    key("credentials", Secret),
    key("credentials_file", Text),
    key("credentials_ref", Text).ignored(),
];

const OAUTH2: &[ConfigKey] = &[
    key("client_id", Text),
    key("client_secret", Secret),
    key("client_secret_file", Text),
    key("client_secret_ref", Text).ignored(),
    key("client_certificate_key_id", Text),
    key("client_certificate_key", Secret),
    key("client_certificate_key_file", Text),
    key("client_certificate_key_ref", Text).ignored(),
    key("grant_type", Text),
    key("signature_algorithm", Text),
    key("iss", Text),
    key("audience", Text),
    key("claims", Map(&Any)),
    key("scopes", TEXTS),
    key("token_url", Text),
    key("endpoint_params", Map(&Text)),
    key("tls_config", TLS),
];

/// Shape of the TLS settings of a client, `tls_config`.
pub const TLS: ConfigValueShape = Section(&[&[
    key("ca", Text),
    key("cert", Text),
    key("key", Secret),
    key("ca_file", Text),
    key("cert_file", Text),
    key("key_file", Text),
    key("ca_ref", Text).ignored(),
    key("cert_ref", Text).ignored(),
    key("key_ref", Text).ignored(),
    key("server_name", Text),
    key("insecure_skip_verify", Bool),
    key("min_version", TlsVersion),
    key("max_version", TlsVersion),
]]);

//! Table of the keys of an HTTP client in a config, which several sections contain inline.
//!
//! Follows Prometheus's library for HTTP clients.

use ConfigValueShape::{Any, Bool, List, Map, Path, Secret, Section, Text, TlsVersion, Url};
use firn_config_schema::schema::{ConfigKey, ConfigValueShape, KeyPrinting, PATHS, TEXTS, key};

/// Keys of every HTTP client of Prometheus, inline in its section. HTTP/2 is enabled by default.
pub const HTTP_CLIENT: &[ConfigKey] = &client("true");

/// Keys of the HTTP client of `remote_write`, which Prometheus prints without HTTP/2 by default.
pub const WRITE_CLIENT: &[ConfigKey] = &client("false");

/// Returns the keys of a client with the given default of `enable_http2`.
const fn client(enable_http2: &'static str) -> [ConfigKey; 13] {
    [
        key("basic_auth", Section(&[BASIC_AUTH])),
        key("authorization", Section(&[AUTHORIZATION])),
        key("oauth2", Section(&[OAUTH2, PROXY])),
        // Printed as `authorization`.
        key("bearer_token", Secret).printed(KeyPrinting::Never),
        key("bearer_token_file", Path).printed(KeyPrinting::Never),
        key("tls_config", TLS),
        key("follow_redirects", Bool).always("true"),
        key("enable_http2", Bool).always(enable_http2),
        PROXY[0],
        PROXY[1],
        PROXY[2],
        PROXY[3],
        key("http_headers", Map(&HEADERS)),
    ]
}

/// Keys for the proxy of an HTTP client, inline in its section and part of [`HTTP_CLIENT`].
pub const PROXY: &[ConfigKey] = &[
    key("proxy_url", Url),
    key("no_proxy", Text),
    key("proxy_from_environment", Bool),
    key("proxy_connect_header", Map(&List(&Secret))),
];

const HEADERS: ConfigValueShape = Section(&[&[
    key("values", TEXTS),
    key("secrets", List(&Secret)),
    key("files", PATHS),
]]);

const BASIC_AUTH: &[ConfigKey] = &[
    key("username", Text),
    key("username_file", Path),
    key("username_ref", Text).ignored(),
    key("password", Secret),
    key("password_file", Path),
    key("password_ref", Text).ignored(),
];

const AUTHORIZATION: &[ConfigKey] = &[
    key("type", Text).or("Bearer"),
    key("credentials", Secret),
    key("credentials_file", Path),
    key("credentials_ref", Text).ignored(),
];

const OAUTH2: &[ConfigKey] = &[
    key("client_id", Text),
    key("client_secret", Secret),
    key("client_secret_file", Path),
    key("client_secret_ref", Text).ignored(),
    key("client_certificate_key_id", Text),
    key("client_certificate_key", Secret),
    key("client_certificate_key_file", Path),
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
    key("ca_file", Path),
    key("cert_file", Path),
    key("key_file", Path),
    key("ca_ref", Text).ignored(),
    key("cert_ref", Text).ignored(),
    key("key_ref", Text).ignored(),
    key("server_name", Text),
    key("insecure_skip_verify", Bool).always("false"),
    key("min_version", TlsVersion),
    key("max_version", TlsVersion),
]]);

//! Table of the printed fields of HTTP clients, which several sections contain inline.

use firn_config_schema::printed::PrintedFieldKind::{
    Flag, ListMap, Loaded, MapOf, Path, Paths, Pointer, Text, TextMap, Texts,
};
use firn_config_schema::printed::{PrintedField, always, field, with};

/// Fields of every HTTP client, inline in its section. HTTP/2 is enabled by default.
pub const CLIENT: &[PrintedField] = &client("true");

/// Fields of the HTTP client of `remote_write`, which does not use HTTP/2 by default.
pub const WRITE_CLIENT: &[PrintedField] = &client("false");

/// Returns the fields of a client with the given default of `enable_http2`.
const fn client(enable_http2: &'static str) -> [PrintedField; 11] {
    [
        BASIC_AUTH,
        AUTHORIZATION,
        OAUTH2,
        CLIENT_TLS,
        always("follow_redirects", Flag, "true"),
        always("enable_http2", Flag, enable_http2),
        PROXY_URL,
        NO_PROXY,
        PROXY_FROM_ENVIRONMENT,
        PROXY_HEADER,
        HEADERS,
    ]
}

const BASIC_AUTH: PrintedField = field(
    "basic_auth",
    Pointer(&[&[
        field("username", Text),
        field("username_file", Path),
        field("username_ref", Text),
        field("password", Text),
        field("password_file", Path),
        field("password_ref", Text),
    ]]),
);

const AUTHORIZATION: PrintedField = field(
    "authorization",
    Pointer(&[&[
        with("type", Text, "Bearer"),
        field("credentials", Text),
        field("credentials_file", Path),
        field("credentials_ref", Text),
    ]]),
);

const OAUTH2: PrintedField = field(
    "oauth2",
    Pointer(&[&[
        field("client_id", Text),
        field("client_secret", Text),
        field("client_secret_file", Path),
        field("client_secret_ref", Text),
        field("client_certificate_key_id", Text),
        field("client_certificate_key", Text),
        field("client_certificate_key_file", Path),
        field("client_certificate_key_ref", Text),
        field("grant_type", Text),
        field("signature_algorithm", Text),
        field("iss", Text),
        field("audience", Text),
        field("claims", Loaded),
        field("scopes", Texts),
        field("token_url", Text),
        field("endpoint_params", TextMap),
        CLIENT_TLS,
        PROXY_URL,
        NO_PROXY,
        PROXY_FROM_ENVIRONMENT,
        PROXY_HEADER,
    ]]),
);

const CLIENT_TLS: PrintedField = field("tls_config", Pointer(&[TLS]));
const PROXY_URL: PrintedField = field("proxy_url", Text);
const NO_PROXY: PrintedField = field("no_proxy", Text);
const PROXY_FROM_ENVIRONMENT: PrintedField = field("proxy_from_environment", Flag);
const PROXY_HEADER: PrintedField = field("proxy_connect_header", ListMap);

const HEADERS: PrintedField = field(
    "http_headers",
    MapOf(&[&[
        field("values", Texts),
        field("secrets", Texts),
        field("files", Paths),
    ]]),
);

/// Fields of the TLS settings of a client, `tls_config`.
pub const TLS: &[PrintedField] = &[
    field("ca", Text),
    field("cert", Text),
    field("key", Text),
    field("ca_file", Path),
    field("cert_file", Path),
    field("key_file", Path),
    field("ca_ref", Text),
    field("cert_ref", Text),
    field("key_ref", Text),
    field("server_name", Text),
    always("insecure_skip_verify", Flag, "false"),
    field("min_version", Text),
    field("max_version", Text),
];

//! Settings of HTTP clients, as configured by Prometheus's `http_config`. `Debug` output does not
//! contain secrets.

use super::assertion::SigningAlgorithm;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

/// A secret text, either in the config or in a file that is read at each use.
#[derive(Clone, PartialEq, Eq)]
pub enum Secret {
    /// Secret contained in the config.
    Inline(String),
    /// Path of a file with the secret.
    File(PathBuf),
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Secret::Inline(_) => f.write_str("<secret>"),
            Secret::File(path) => write!(f, "{}", path.display()),
        }
    }
}

/// Settings of an HTTP client, as read from a config entry: authentication, TLS, proxies and
/// redirects.
#[derive(Clone, Debug, PartialEq)]
pub struct HttpSettings {
    /// Authentication of requests. Its headers are sent only to the requested host and its
    /// subdomains.
    pub auth: AuthMethod,
    /// The `tls_config` key: TLS settings of connections to servers, and to proxies that use TLS.
    pub tls: ClientTlsSettings,
    /// Proxy settings, from the keys `proxy_url`, `no_proxy` and related ones.
    pub proxy: ProxySettings,
    /// The `follow_redirects` key: follow redirects, up to ten requests in total (default: true).
    pub follow_redirects: bool,
    /// The `enable_http2` key: offer HTTP/2 in TLS handshakes (default: true).
    pub enable_http2: bool,
    /// The `http_headers` key: additional headers by name, sent only to trusted hosts like
    /// credentials.
    pub headers: BTreeMap<String, Vec<HeaderValueSource>>,
}

impl Default for HttpSettings {
    fn default() -> Self {
        Self {
            auth: AuthMethod::None,
            tls: ClientTlsSettings::default(),
            proxy: ProxySettings::default(),
            follow_redirects: true,
            enable_http2: true,
            headers: BTreeMap::new(),
        }
    }
}

/// A header value in the config, which may be secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeaderValueSource {
    /// A value that is not secret, so that the config can be shown with it.
    Plain(String),
    /// A value that must not be shown, from the config or from a file.
    Secret(Secret),
}

/// How a client authenticates its requests; the methods exclude each other.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum AuthMethod {
    /// No authentication, which is the default.
    #[default]
    None,
    /// The `basic_auth` key: user and password, sent in the `Authorization` header.
    Basic {
        /// The `username` or `username_file` key: name of the user; missing for an empty name.
        username: Option<Secret>,
        /// The `password` or `password_file` key: password of the user; missing for an empty one.
        password: Option<Secret>,
    },
    /// The `authorization` key, or its older form `bearer_token`: a fixed `Authorization` header.
    Credentials {
        /// The `type` key: authentication scheme, the first word of the header, such as `Bearer`.
        scheme: String,
        /// The `credentials` or `credentials_file` key: text after the scheme in the header.
        credentials: Option<Secret>,
    },
    /// The `oauth2` key: access tokens that the client requests from a token server.
    OAuth2(Box<OAuth2Settings>),
    /// Tokens that a program prints, as configured under `exec` in a kubeconfig.
    Exec(Box<ExecSettings>),
}

/// A program that prints credentials, as configured under `exec` in a kubeconfig.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecSettings {
    /// The `command` key: path of the program. A name without a slash is searched for in `PATH`.
    pub command: PathBuf,
    /// The `args` key: arguments with which the program is started.
    pub args: Vec<String>,
    /// The `env` key: variables added to the environment of this process.
    pub env: Vec<(String, String)>,
    /// The `apiVersion` key: API version that is passed to the program in `KUBERNETES_EXEC_INFO`.
    pub api_version: String,
    /// The `installHint` key: instructions that the error contains if the program cannot be
    /// started.
    pub install_hint: Option<String>,
}

/// The `oauth2` key: OAuth 2.0 client credentials, with a secret or a signed assertion.
#[derive(Clone, Debug, PartialEq)]
pub struct OAuth2Settings {
    /// The `client_id` key: id of the client at the token server.
    pub client_id: String,
    /// The `client_secret` or `client_secret_file` key: secret of the client, unless an assertion
    /// is used.
    pub client_secret: Option<Secret>,
    /// Signed assertion that replaces the secret, if the `grant_type` key selects it.
    pub assertion: Option<AssertionSettings>,
    /// The `scopes` key: requested scopes of the tokens, sent as a list separated by spaces.
    pub scopes: Vec<String>,
    /// The `token_url` key: URL to which token requests are posted.
    pub token_url: String,
    /// The `endpoint_params` key: additional form parameters of token requests. `grant_type`
    /// replaces the default.
    pub endpoint_params: BTreeMap<String, String>,
    /// The `tls_config` key: TLS settings of connections to the token server.
    pub tls: ClientTlsSettings,
    /// Proxy settings for connections to the token server.
    pub proxy: ProxySettings,
}

/// Settings of a signed assertion, with which tokens are requested.
#[derive(Clone, Debug, PartialEq)]
pub struct AssertionSettings {
    /// The `client_certificate_key` or `client_certificate_key_file` key: private RSA key in PEM.
    pub key: Option<Secret>,
    /// The `client_certificate_key_id` key: id of the key in the header of the assertion.
    pub key_id: String,
    /// The `signature_algorithm` key: RSA signature algorithm of the assertion (default: RS256).
    pub algorithm: SigningAlgorithm,
    /// The `iss` key: issuer in the assertion. If empty, the client id.
    pub issuer: String,
    /// The `audience` key: audience in the assertion. If empty, the URL of the token server.
    pub audience: String,
    /// The `claims` key: object with additional claims, which replace standard claims of the same
    /// name.
    pub claims: Value,
}

/// A TLS version that a client supports, as a limit for negotiation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ClientTlsVersion {
    /// TLS 1.2; also replaces the unsupported versions 1.0 and 1.1.
    V12,
    /// TLS 1.3, the newest version.
    V13,
}

/// The `tls_config` key: TLS settings of a client. Files are read again for each request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClientTlsSettings {
    /// The `ca` or `ca_file` key: trusted CA certificates, instead of those of the system.
    pub ca: Option<Secret>,
    /// The `cert` or `cert_file` key: client certificate in PEM, followed by its intermediates.
    pub cert: Option<Secret>,
    /// The `key` or `key_file` key: private key of the client certificate in PEM.
    pub key: Option<Secret>,
    /// The `server_name` key: name that the server's certificate must contain, instead of that in
    /// the URL.
    pub server_name: String,
    /// The `insecure_skip_verify` key: accept any server certificate without verifying it (default:
    /// false).
    pub insecure_skip_verify: bool,
    /// The `min_version` key: lowest accepted TLS version (default: TLS 1.2).
    pub min_version: Option<ClientTlsVersion>,
    /// The `max_version` key: highest accepted TLS version (default: TLS 1.3).
    pub max_version: Option<ClientTlsVersion>,
}

/// Settings of the proxy between this client and the server. The default uses no proxy.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProxySettings {
    /// The `proxy_url` key: URL of the proxy for all requests, which may contain credentials.
    pub url: Option<String>,
    /// The `no_proxy` key: comma-separated hosts and networks that are reached directly.
    pub no_proxy: String,
    /// The `proxy_from_environment` key: use the proxies in `HTTP_PROXY`, `HTTPS_PROXY` and
    /// `NO_PROXY`.
    pub is_from_environment: bool,
    /// The `proxy_connect_header` key: headers of CONNECT requests to the proxy, by name.
    pub connect_headers: BTreeMap<String, Vec<String>>,
}

//! What a config says about reaching HTTP servers: Prometheus's `http_config`.
//!
//! Secrets never show in `Debug`.

use super::assertion::SigningAlgorithm;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

/// A text that must not be shown, in the config or in a file that is read at each use.
#[derive(Clone, PartialEq, Eq)]
pub enum Secret {
    /// In the config.
    Inline(String),
    /// In a file.
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

/// How HTTP servers are reached.
#[derive(Clone, Debug, PartialEq)]
pub struct HttpSettings {
    /// The credentials.
    pub auth: Auth,
    /// `tls_config`
    pub tls: TlsSettings,
    /// Proxies.
    pub proxy: ProxySettings,
    /// `follow_redirects`
    pub follow_redirects: bool,
    /// `enable_http2`
    pub enable_http2: bool,
    /// `http_headers`, by name.
    pub headers: BTreeMap<String, Vec<HeaderValueSource>>,
}

impl Default for HttpSettings {
    fn default() -> Self {
        Self {
            auth: Auth::None,
            tls: TlsSettings::default(),
            proxy: ProxySettings::default(),
            follow_redirects: true,
            enable_http2: true,
            headers: BTreeMap::new(),
        }
    }
}

/// A value of a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeaderValueSource {
    /// In the config, for everybody to see.
    Plain(String),
    /// A secret.
    Secret(Secret),
}

/// How a client authenticates.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Auth {
    /// Not at all.
    #[default]
    None,
    /// `basic_auth`
    Basic {
        /// `username` or `username_file`
        username: Option<Secret>,
        /// `password` or `password_file`
        password: Option<Secret>,
    },
    /// `authorization`, and `bearer_token`, which is an older way to write it.
    Credentials {
        /// `type`
        scheme: String,
        /// `credentials` or `credentials_file`
        credentials: Option<Secret>,
    },
    /// `oauth2`
    OAuth2(Box<OAuth2Settings>),
    /// Tokens that a program gives: `exec` of a kubeconfig.
    Exec(Box<ExecSettings>),
}

/// A program that prints credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecSettings {
    /// `command`
    pub command: PathBuf,
    /// `args`
    pub args: Vec<String>,
    /// `env`, beside those of this process.
    pub env: Vec<(String, String)>,
    /// `apiVersion`, which the program is told.
    pub api_version: String,
    /// `installHint`: what to do where the program is missing.
    pub install_hint: Option<String>,
}

/// OAuth 2.0 for clients that act for themselves: tokens for a secret, or for a signed statement.
#[derive(Clone, Debug, PartialEq)]
pub struct OAuth2Settings {
    /// `client_id`
    pub client_id: String,
    /// `client_secret` or `client_secret_file`
    pub client_secret: Option<Secret>,
    /// What is asked with instead of a secret, if `grant_type` says so.
    pub assertion: Option<Assertion>,
    /// `scopes`
    pub scopes: Vec<String>,
    /// `token_url`
    pub token_url: String,
    /// `endpoint_params`
    pub endpoint_params: BTreeMap<String, String>,
    /// `tls_config` of the token server.
    pub tls: TlsSettings,
    /// Proxies of the token server.
    pub proxy: ProxySettings,
}

/// A signed statement that is good for a token.
#[derive(Clone, Debug, PartialEq)]
pub struct Assertion {
    /// `client_certificate_key` or `client_certificate_key_file`: a private key as PEM.
    pub key: Option<Secret>,
    /// `client_certificate_key_id`
    pub key_id: String,
    /// `signature_algorithm`
    pub algorithm: SigningAlgorithm,
    /// `iss`; the client's id if it is empty.
    pub issuer: String,
    /// `audience`; the token server's URL if it is empty.
    pub audience: String,
    /// `claims`: an object of further ones.
    pub claims: Value,
}

/// Versions of TLS that a client can speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TlsVersion {
    /// 1.2, and what was asked for as 1.0 or 1.1.
    V12,
    /// 1.3.
    V13,
}

/// `tls_config`
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TlsSettings {
    /// `ca` or `ca_file`: the authorities to trust, instead of the system's.
    pub ca: Option<Secret>,
    /// `cert` or `cert_file`
    pub cert: Option<Secret>,
    /// `key` or `key_file`
    pub key: Option<Secret>,
    /// `server_name`: the name that the server must prove, instead of that in the URL.
    pub server_name: String,
    /// `insecure_skip_verify`
    pub insecure_skip_verify: bool,
    /// `min_version`
    pub min_version: Option<TlsVersion>,
    /// `max_version`
    pub max_version: Option<TlsVersion>,
}

/// Proxies between us and the server.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProxySettings {
    /// `proxy_url`
    pub url: Option<String>,
    /// `no_proxy`: hosts that are reached directly.
    pub no_proxy: String,
    /// `proxy_from_environment`
    pub is_from_environment: bool,
    /// `proxy_connect_header`: what a proxy is told in a CONNECT request.
    pub connect_headers: BTreeMap<String, Vec<String>>,
}

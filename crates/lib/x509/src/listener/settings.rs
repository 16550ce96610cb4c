//! TLS settings of a web config: the names that exporter-toolkit accepts, and their counterparts in
//! ring.

use rustls::SupportedCipherSuite;
use rustls::crypto::SupportedKxGroup;
use rustls::crypto::ring::{self, kx_group as groups};

/// A TLS version. Versions before 1.2 are valid in a config, but not supported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ServerTlsVersion {
    /// TLS 1.0, which Firn does not support.
    V10,
    /// TLS 1.1, which Firn does not support.
    V11,
    /// TLS 1.2, the oldest supported version.
    V12,
    /// TLS 1.3, the newest version.
    V13,
}

impl ServerTlsVersion {
    /// Returns the version with this name, such as `TLS12`, or `None` for another name.
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "TLS10" => Self::V10,
            "TLS11" => Self::V11,
            "TLS12" => Self::V12,
            "TLS13" => Self::V13,
            _ => return None,
        })
    }
}

/// A cipher suite, identified by its name in Go's TLS package.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CipherSuite(&'static str);

/// Cipher suites that Go considers secure. ring supports none of the CBC suites.
const CIPHERS: [&str; 13] = [
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
];

impl CipherSuite {
    /// Returns the cipher suite with this name, or `None` if Go has no secure suite of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        let found = CIPHERS.iter().find(|known| **known == name);
        found.map(|known| Self(known))
    }

    /// Returns the name of the suite in Go's notation, as in configs.
    pub fn name(&self) -> &'static str {
        self.0
    }

    /// Returns whether ring supports this suite, so that it can be used.
    pub fn is_supported(&self) -> bool {
        self.suite().is_some()
    }

    /// Returns the rustls suite of this name, or `None` if ring does not support it.
    pub(super) fn suite(&self) -> Option<SupportedCipherSuite> {
        // rustls uses another name prefix for the suites of TLS 1.3.
        let name = |suite: &SupportedCipherSuite| {
            let name = suite.suite().as_str().unwrap_or_default();
            name.replacen("TLS13_", "TLS_", 1)
        };
        let all = ring::ALL_CIPHER_SUITES.iter();
        all.copied().find(|suite| name(suite) == self.0)
    }
}

/// An elliptic curve for the key exchange, identified by its name in exporter-toolkit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyExchangeCurve {
    /// `CurveP256`: the NIST curve P-256.
    P256,
    /// `CurveP384`: the NIST curve P-384.
    P384,
    /// `CurveP521`: the NIST curve P-521, which ring does not support.
    P521,
    /// `X25519`: Diffie-Hellman on Curve25519.
    X25519,
}

impl KeyExchangeCurve {
    /// Returns the curve with this name, or `None` for another name.
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "CurveP256" => Self::P256,
            "CurveP384" => Self::P384,
            "CurveP521" => Self::P521,
            "X25519" => Self::X25519,
            _ => return None,
        })
    }

    /// Returns whether ring supports this curve, so that it can be used.
    pub fn is_supported(&self) -> bool {
        *self != Self::P521
    }

    /// Returns the key exchange group of ring, or `None` if the curve is not supported.
    pub(super) fn group(&self) -> Option<&'static dyn SupportedKxGroup> {
        Some(match self {
            Self::P256 => groups::SECP256R1,
            Self::P384 => groups::SECP384R1,
            Self::X25519 => groups::X25519,
            Self::P521 => return None,
        })
    }
}

/// Policy for client certificates, with the names of Go's `tls.ClientAuthType`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientAuthPolicy {
    /// Request no certificate from clients; the default.
    #[default]
    NoClientCert,
    /// Request a certificate, but accept clients without one. It is not verified.
    RequestClientCert,
    /// Require a certificate from clients. It is not verified.
    RequireAnyClientCert,
    /// Request a certificate and verify it against the CAs if the client sends one.
    VerifyClientCertIfGiven,
    /// Require a certificate and verify it against the CAs.
    RequireAndVerifyClientCert,
}

impl ClientAuthPolicy {
    /// Returns the policy with this name. An empty name is the default.
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "" | "NoClientCert" => Self::NoClientCert,
            "RequestClientCert" => Self::RequestClientCert,
            "RequireAnyClientCert" | "RequireClientCert" => Self::RequireAnyClientCert,
            "VerifyClientCertIfGiven" => Self::VerifyClientCertIfGiven,
            "RequireAndVerifyClientCert" => Self::RequireAndVerifyClientCert,
            _ => return None,
        })
    }
}

/// TLS settings of the listener, as read from the section `tls_server_config` of the web config.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerTlsSettings {
    /// The `min_version` key: lowest TLS version that clients may use.
    pub min_version: ServerTlsVersion,
    /// The `max_version` key: highest TLS version that clients may use.
    pub max_version: ServerTlsVersion,
    /// The `cipher_suites` key: suites for TLS 1.2; empty for all.
    pub ciphers: Vec<CipherSuite>,
    /// The `curve_preferences` key: curves for the key exchange; empty for all.
    pub curves: Vec<KeyExchangeCurve>,
    /// The `prefer_server_cipher_suites` key: select suites in the server's order of preference.
    pub prefers_server_ciphers: bool,
    /// The `client_auth_type` key: whether clients must present a certificate, and whether it is
    /// verified.
    pub client_auth: ClientAuthPolicy,
    /// The `client_allowed_sans` key: names of which a client certificate must contain at least
    /// one.
    pub client_sans: Option<Vec<String>>,
    /// The `http_server_config.http2` key: offer HTTP/2 in addition to HTTP/1.1.
    pub http2: bool,
}

/// Contents of the PEM files. Not shown in debug output, because they include the private key.
#[derive(Clone, PartialEq, Eq)]
pub struct TlsFileContents {
    /// The server certificate, followed by its intermediate certificates.
    pub cert: Vec<u8>,
    /// Private key of the server certificate, which must belong to the first certificate.
    pub key: Vec<u8>,
    /// CA certificates for clients; `None` for those of the system.
    pub client_ca: Option<Vec<u8>>,
}

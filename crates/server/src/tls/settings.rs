//! What a web config may say of TLS: names as exporter-toolkit knows them, and what ring has of
//! what they name.

use rustls::SupportedCipherSuite;
use rustls::crypto::SupportedKxGroup;
use rustls::crypto::ring::{self, kx_group as groups};

/// A version of TLS. Older ones than 1.2 can be named, and are not spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TlsVersion {
    /// TLS 1.0, which Firn does not speak.
    V10,
    /// TLS 1.1, which Firn does not speak.
    V11,
    /// TLS 1.2.
    V12,
    /// TLS 1.3.
    V13,
}

impl TlsVersion {
    /// The version of that name.
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "TLS10" => Self::V10,
            "TLS11" => Self::V11,
            "TLS12" => Self::V12,
            "TLS13" => Self::V13,
            _ => return None,
        })
    }
}

/// A cipher suite by the name that Go knows it by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cipher(&'static str);

/// The suites that Go thinks secure. ring has none of those with CBC.
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

impl Cipher {
    /// The suite of that name.
    pub fn named(name: &str) -> Option<Self> {
        let found = CIPHERS.iter().find(|known| **known == name);
        found.map(|known| Self(known))
    }

    /// Its name.
    pub fn name(&self) -> &'static str {
        self.0
    }

    /// Whether it can be spoken.
    pub fn is_supported(&self) -> bool {
        self.suite().is_some()
    }

    /// ring's suite.
    pub(super) fn suite(&self) -> Option<SupportedCipherSuite> {
        // Those of TLS 1.3 have another prefix there.
        let name = |suite: &SupportedCipherSuite| {
            let name = suite.suite().as_str().unwrap_or_default();
            name.replacen("TLS13_", "TLS_", 1)
        };
        let all = ring::ALL_CIPHER_SUITES.iter();
        all.copied().find(|suite| name(suite) == self.0)
    }
}

/// An elliptic curve of the key exchange by the name that exporter-toolkit knows it by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Curve {
    /// `CurveP256`
    P256,
    /// `CurveP384`
    P384,
    /// `CurveP521`, which ring does not have.
    P521,
    /// `X25519`
    X25519,
}

impl Curve {
    /// The curve of that name.
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "CurveP256" => Self::P256,
            "CurveP384" => Self::P384,
            "CurveP521" => Self::P521,
            "X25519" => Self::X25519,
            _ => return None,
        })
    }

    /// Whether it can be spoken.
    pub fn is_supported(&self) -> bool {
        *self != Self::P521
    }

    /// ring's group.
    pub(super) fn group(&self) -> Option<&'static dyn SupportedKxGroup> {
        Some(match self {
            Self::P256 => groups::SECP256R1,
            Self::P384 => groups::SECP384R1,
            Self::X25519 => groups::X25519,
            Self::P521 => return None,
        })
    }
}

/// What is asked of clients, by Go's names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientAuth {
    /// No certificate.
    #[default]
    NoClientCert,
    /// One, if they have it; whatever it says.
    RequestClientCert,
    /// One; whatever it says.
    RequireAnyClientCert,
    /// One of the authorities', if they have it.
    VerifyClientCertIfGiven,
    /// One of the authorities'.
    RequireAndVerifyClientCert,
}

impl ClientAuth {
    /// The policy of that name; the empty one is the default.
    pub fn named(name: &str) -> Option<Self> {
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

/// How TLS is spoken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsSettings {
    /// `min_version`
    pub min_version: TlsVersion,
    /// `max_version`
    pub max_version: TlsVersion,
    /// `cipher_suites`, for TLS 1.2; empty for all.
    pub ciphers: Vec<Cipher>,
    /// `curve_preferences`; empty for all.
    pub curves: Vec<Curve>,
    /// `prefer_server_cipher_suites`
    pub prefers_server_ciphers: bool,
    /// `client_auth_type`
    pub client_auth: ClientAuth,
    /// `client_allowed_sans`: one of them must be among the names in a client's certificate.
    pub client_sans: Option<Vec<String>>,
    /// `http_server_config.http2`
    pub http2: bool,
}

/// The PEM that TLS needs. Not shown: it has a key.
#[derive(Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate, with those between it and its authority.
    pub cert: Vec<u8>,
    /// Its key.
    pub key: Vec<u8>,
    /// Authorities of clients; the system's if there are none.
    pub client_ca: Option<Vec<u8>>,
}

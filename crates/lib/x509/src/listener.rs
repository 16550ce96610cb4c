//! TLS of a listener, by rustls with ring: converts the TLS section of a web config to a rustls
//! configuration.
//!
//! ```text
//! names (settings) + PEM (files) -> server_config
//!                                   ` client: verification of client certificates
//! ```
//!
//! Invariant: a built configuration is complete: the key belongs to the certificate, and at least
//! one cipher suite remains. As in Go, CA certificates that cannot be parsed are skipped. Error
//! texts are those of Prometheus's exporter-toolkit and of Go's TLS package, which users recognize.
//!
//! Reading files and detecting their changes is left to the callers.

mod client;
mod settings;

pub use rustls::server::ServerConfig;
pub use settings::{
    CipherSuite, ClientAuthPolicy, KeyExchangeCurve, ListenerTlsSettings, ServerTlsVersion,
    TlsFileContents,
};

use crate::CertificatePool;
use crate::key_pair::parse_certified_key;
use rustls::crypto::{CryptoProvider, ring};
use rustls::sign::SingleCertAndKey;
use rustls::version::{TLS12, TLS13};
use std::sync::Arc;

/// Name of HTTP/2 among the application protocols (ALPN), which is offered before HTTP/1.1.
pub const HTTP2: &[u8] = b"h2";
const HTTP1: &[u8] = b"http/1.1";

/// Reasons why no TLS configuration can be built; the texts are shown to the user.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TlsError {
    /// The certificate or its key cannot be used.
    #[error("failed to load X509KeyPair: {0}")]
    KeyPair(String),
    /// Client CAs are configured, but no certificates are requested from clients.
    #[error("client CA's have been configured without a Client Auth Policy")]
    NoPolicy,
    /// The settings leave no TLS version, cipher suite or curve.
    #[error("{0}")]
    NothingLeft(String),
}

/// Builds the rustls configuration from the settings and the contents of the PEM files.
/// `system_roots` returns the authorities of the system, for clients whose authority is not named.
pub fn server_config(
    settings: &ListenerTlsSettings,
    files: &TlsFileContents,
    system_roots: impl FnOnce() -> CertificatePool,
) -> Result<Arc<ServerConfig>, TlsError> {
    if files.client_ca.is_some() && settings.client_auth == ClientAuthPolicy::NoClientCert {
        return Err(TlsError::NoPolicy);
    }
    let provider = Arc::new(provider(settings)?);
    let key = parse_certified_key(&files.cert, &files.key).map_err(TlsError::KeyPair)?;
    let versions: Vec<_> = [
        (ServerTlsVersion::V13, &TLS13),
        (ServerTlsVersion::V12, &TLS12),
    ]
    .into_iter()
    .filter(|(version, _)| (settings.min_version..=settings.max_version).contains(version))
    .map(|(_, version)| version)
    .collect();
    let builder = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&versions)
        .map_err(|e| TlsError::NothingLeft(format!("no TLS version can be used: {e}")))?;
    let builder = match client::verifier(settings, files, system_roots) {
        Some(verifier) => builder.with_client_cert_verifier(verifier),
        None => builder.with_no_client_auth(),
    };
    let mut config = builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(key)));
    config.ignore_client_order = settings.prefers_server_ciphers;
    config.alpn_protocols = vec![HTTP1.to_vec()];
    if settings.http2 {
        config.alpn_protocols.insert(0, HTTP2.to_vec());
    }
    Ok(Arc::new(config))
}

/// Returns the ring provider, restricted to the configured cipher suites and curves.
fn provider(settings: &ListenerTlsSettings) -> Result<CryptoProvider, TlsError> {
    let all = ring::default_provider();
    if settings.ciphers.is_empty() && settings.curves.is_empty() {
        return Ok(all);
    }
    let mut provider = all.clone();
    if !settings.ciphers.is_empty() {
        // As in Go, the list applies to TLS 1.2 only and cannot remove suites of TLS 1.3.
        let v13 = all.cipher_suites.iter().filter(|s| s.tls13().is_some());
        let listed = settings.ciphers.iter().filter_map(CipherSuite::suite);
        let v12 = listed.filter(|suite| suite.tls13().is_none());
        provider.cipher_suites = v13.copied().chain(v12).collect();
    }
    if !settings.curves.is_empty() {
        provider.kx_groups = settings
            .curves
            .iter()
            .filter_map(KeyExchangeCurve::group)
            .collect();
        if provider.kx_groups.is_empty() {
            let why = "no supported curve in curve_preferences: CurveP256, CurveP384 and X25519 \
                 are supported";
            return Err(TlsError::NothingLeft(why.into()));
        }
    }
    Ok(provider)
}

//! TLS between nodes: certificates of both sides, verified by the rules of [`firn_x509`].

use crate::options::PeerTls;
use firn_x509::CertificatePool;
use firn_x509::handshake::ServerCertificateVerifier;
use firn_x509::key_pair::parse_certified_key;
use firn_x509::listener::{
    ClientAuthPolicy, HTTP2, ListenerTlsSettings, ServerTlsVersion, TlsFileContents, server_config,
};
use rustls::ClientConfig;
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::sign::SingleCertAndKey;
use std::sync::Arc;

/// Builds the configuration of a server. Errors are texts for the user.
pub(crate) fn build_server_config(tls: &PeerTls) -> Result<Arc<ServerConfig>, String> {
    check_authorities(tls)?;
    let settings = ListenerTlsSettings {
        min_version: ServerTlsVersion::V12,
        max_version: ServerTlsVersion::V13,
        ciphers: Vec::new(),
        curves: Vec::new(),
        prefers_server_ciphers: false,
        client_auth: ClientAuthPolicy::RequireAndVerifyClientCert,
        client_sans: None,
        http2: true,
    };
    let files = TlsFileContents {
        cert: tls.cert.clone(),
        key: tls.key.clone(),
        client_ca: Some(tls.ca.clone()),
    };
    let config = server_config(&settings, &files, CertificatePool::default);
    config.map_err(|e| e.to_string())
}

/// Builds the configuration of a client. Errors are texts for the user.
pub(crate) fn build_client_config(tls: &PeerTls) -> Result<Arc<ClientConfig>, String> {
    let roots = check_authorities(tls)?;
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|e| e.to_string())?;
    let verifier = ServerCertificateVerifier {
        roots: Some(Arc::new(roots)),
        server_name: None,
    };
    let pair = parse_certified_key(&tls.cert, &tls.key)
        .map_err(|e| format!("unable to use the certificate and key of the node: {e}"))?;
    let mut config = builder
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_client_cert_resolver(Arc::new(SingleCertAndKey::from(pair)));
    config.alpn_protocols = vec![HTTP2.to_vec()];
    Ok(Arc::new(config))
}

fn check_authorities(tls: &PeerTls) -> Result<CertificatePool, String> {
    let pool = CertificatePool::from_pem(&tls.ca);
    if pool.is_empty() {
        return Err(
            "unable to use the CA certificates of the peers: no certificate in them".into(),
        );
    }
    Ok(pool)
}

//! TLS configuration of a client, built from its settings for rustls. The crate `firn-x509`
//! verifies server certificates.

use super::secret::read_bytes;
use super::settings::{ClientTlsSettings, ClientTlsVersion};
use firn_x509::CertificatePool;
use firn_x509::handshake::ServerCertificateVerifier;
use firn_x509::key_pair::parse_certified_key;
use hyper_rustls::{DefaultServerNameResolver, FixedServerNameResolver, ResolveServerName};
use rustls::ClientConfig;
use rustls::crypto::ring;
use rustls::pki_types::ServerName;
use rustls::sign::SingleCertAndKey;
use rustls::version::{TLS12, TLS13};
use std::sync::{Arc, OnceLock};

/// CA certificates, client certificate and key, as read from the config or from files.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ClientTlsMaterial {
    ca: Option<Vec<u8>>,
    cert: Option<Vec<u8>>,
    key: Option<Vec<u8>>,
}

impl ClientTlsMaterial {
    /// Reads the certificates and keys. Errors are texts for the user.
    pub(super) async fn read(settings: &ClientTlsSettings) -> Result<Self, String> {
        let mut read = [None, None, None];
        let parts = [
            (&settings.ca, "CA cert"),
            (&settings.cert, "specified client cert"),
            (&settings.key, "specified client key"),
        ];
        for (into, (secret, what)) in read.iter_mut().zip(parts) {
            if let Some(secret) = secret {
                let bytes = read_bytes(secret).await;
                *into = Some(bytes.map_err(|e| format!("unable to read {what}: {e}"))?);
            }
        }
        let [ca, cert, key] = read;
        Ok(Self { ca, cert, key })
    }
}

/// Returns the resolver of the name that the server's certificate must contain.
pub(super) fn build_server_name_resolver(
    settings: &ClientTlsSettings,
) -> Result<Arc<dyn ResolveServerName + Send + Sync>, String> {
    if settings.server_name.is_empty() {
        return Ok(Arc::new(DefaultServerNameResolver::default()));
    }
    let name = settings.server_name.as_str();
    let bare = name.strip_prefix('[').and_then(|n| n.strip_suffix(']'));
    let name = ServerName::try_from(bare.unwrap_or(name).to_owned())
        .map_err(|e| format!("tls_config.server_name {name:?}: {e}"))?;
    Ok(Arc::new(FixedServerNameResolver::new(name)))
}

/// Builds the rustls configuration of a client. Errors are texts for the user.
pub(super) fn build_config(
    settings: &ClientTlsSettings,
    material: &ClientTlsMaterial,
    enable_http2: bool,
) -> Result<Arc<ClientConfig>, String> {
    let provider = Arc::new(ring::default_provider());
    let min = settings.min_version.unwrap_or(ClientTlsVersion::V12);
    let max = settings.max_version.unwrap_or(ClientTlsVersion::V13);
    if max < min {
        return Err(
            "tls_config.max_version must be greater than or equal to tls_config.min_version if \
             both are specified"
                .into(),
        );
    }
    let versions: Vec<_> = [
        (ClientTlsVersion::V13, &TLS13),
        (ClientTlsVersion::V12, &TLS12),
    ]
    .into_iter()
    .filter(|(version, _)| (min..=max).contains(version))
    .map(|(_, version)| version)
    .collect();
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&versions)
        .map_err(|e| e.to_string())?;
    let check = ServerCertificateVerifier {
        roots: if settings.insecure_skip_verify {
            None
        } else {
            Some(load_roots(material)?)
        },
        server_name: Some(settings.server_name.clone()).filter(|name| !name.is_empty()),
    };
    let builder = builder
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(check));
    let mut config = match (&material.cert, &material.key) {
        (Some(cert), Some(key)) => {
            let pair = parse_certified_key(cert, key)
                .map_err(|e| format!("unable to use specified client cert & key: {e}"))?;
            builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(pair)))
        }
        _ => builder.with_no_client_auth(),
    };
    if enable_http2 {
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    }
    Ok(Arc::new(config))
}

/// Returns the trusted certificates: the configured ones, or those of the system, which are read
/// once.
fn load_roots(material: &ClientTlsMaterial) -> Result<Arc<CertificatePool>, String> {
    static SYSTEM: OnceLock<Arc<CertificatePool>> = OnceLock::new();
    let Some(ca) = &material.ca else {
        return Ok(SYSTEM.get_or_init(|| Arc::new(load_system_roots())).clone());
    };
    let pool = CertificatePool::from_pem(ca);
    if pool.is_empty() {
        Err("unable to use specified CA cert: no certificate in it".into())
    } else {
        Ok(Arc::new(pool))
    }
}

/// Reads the authorities that the system trusts.
pub fn load_system_roots() -> CertificatePool {
    // Certificates that cannot be parsed are not trusted; handshakes that need them fail.
    CertificatePool::from_parsable_der(rustls_native_certs::load_native_certs().certs)
}

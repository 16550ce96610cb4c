//! TLS as a config asks for it, by rustls.

use super::secret::bytes_of;
use super::settings::{TlsSettings, TlsVersion};
use hyper_rustls::{DefaultServerNameResolver, FixedServerNameResolver, ResolveServerName};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use std::sync::{Arc, OnceLock};

/// Certificates and keys, read from where the settings say.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Material {
    ca: Option<Vec<u8>>,
    cert: Option<Vec<u8>>,
    key: Option<Vec<u8>>,
}

impl Material {
    /// Reads the files; fails with what to tell the user.
    pub(super) async fn read(settings: &TlsSettings) -> Result<Self, String> {
        let mut read = [None, None, None];
        let parts = [
            (&settings.ca, "CA cert"),
            (&settings.cert, "specified client cert"),
            (&settings.key, "specified client key"),
        ];
        for (into, (secret, what)) in read.iter_mut().zip(parts) {
            if let Some(secret) = secret {
                let bytes = bytes_of(secret).await;
                *into = Some(bytes.map_err(|e| format!("unable to read {what}: {e}"))?);
            }
        }
        let [ca, cert, key] = read;
        Ok(Self { ca, cert, key })
    }
}

/// The names that the certificate of the other end must prove.
pub(super) fn server_names(
    settings: &TlsSettings,
) -> Result<Arc<dyn ResolveServerName + Send + Sync>, String> {
    if settings.server_name.is_empty() {
        return Ok(Arc::new(DefaultServerNameResolver::default()));
    }
    let name = ServerName::try_from(settings.server_name.clone())
        .map_err(|e| format!("server_name {:?}: {e}", settings.server_name))?;
    Ok(Arc::new(FixedServerNameResolver::new(name)))
}

/// The configuration of a client; fails with what to tell the user.
pub(super) fn config(
    settings: &TlsSettings,
    material: &Material,
    enable_http2: bool,
) -> Result<Arc<ClientConfig>, String> {
    let provider = Arc::new(ring::default_provider());
    let min = settings.min_version.unwrap_or(TlsVersion::V12);
    let max = settings.max_version.unwrap_or(TlsVersion::V13);
    if max < min {
        return Err(
            "tls_config.max_version must be greater than or equal to tls_config.min_version if \
             both are specified"
                .into(),
        );
    }
    let versions: Vec<_> = [(TlsVersion::V13, &TLS13), (TlsVersion::V12, &TLS12)]
        .into_iter()
        .filter(|(version, _)| (min..=max).contains(version))
        .map(|(_, version)| version)
        .collect();
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&versions)
        .map_err(|e| e.to_string())?;
    let builder = match settings.insecure_skip_verify {
        true => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Unverified(provider))),
        false => builder.with_root_certificates(roots(material)?),
    };
    let mut config = match (&material.cert, &material.key) {
        (Some(cert), Some(key)) => {
            let unusable = |e: String| format!("unable to use specified client cert & key: {e}");
            let chain = certificates(cert).map_err(unusable)?;
            let key = PrivateKeyDer::from_pem_slice(key).map_err(|e| unusable(e.to_string()))?;
            builder
                .with_client_auth_cert(chain, key)
                .map_err(|e| unusable(e.to_string()))?
        }
        _ => builder.with_no_client_auth(),
    };
    if enable_http2 {
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    }
    Ok(Arc::new(config))
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    CertificateDer::pem_slice_iter(pem)
        .collect::<Result<_, _>>()
        .map_err(|e| e.to_string())
}

/// The authorities to trust: the given ones, or the system's, which are read once.
fn roots(material: &Material) -> Result<Arc<RootCertStore>, String> {
    static SYSTEM: OnceLock<Arc<RootCertStore>> = OnceLock::new();
    let Some(ca) = &material.ca else {
        return Ok(SYSTEM.get_or_init(system_roots).clone());
    };
    let mut store = RootCertStore::empty();
    let (added, _) = store.add_parsable_certificates(certificates(ca)?);
    match added {
        0 => Err("unable to use specified CA cert: no certificate in it".into()),
        _ => Ok(Arc::new(store)),
    }
}

fn system_roots() -> Arc<RootCertStore> {
    let mut store = RootCertStore::empty();
    // What cannot be read cannot be trusted; a handshake that needs it says so.
    store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    Arc::new(store)
}

/// Trusts everybody, because the config says so.
#[derive(Debug)]
struct Unverified(Arc<CryptoProvider>);

impl ServerCertVerifier for Unverified {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, cert, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, cert, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

//! TLS between nodes: certificates of both sides, verified by the rules of [`firn_x509`].
//!
//! The files are read again for each handshake, so that renewed certificates need no restart.
//! Invariant: a handshake uses files that fit together. While they do not, because they are being
//! replaced, the previous ones stay in use.

use crate::options::PeerTls;
use firn_x509::CertificatePool;
use firn_x509::handshake::ServerCertificateVerifier;
use firn_x509::key_pair::parse_certified_key;
use firn_x509::listener::{
    ClientAuthPolicy, HTTP2, ListenerTlsSettings, ServerTlsVersion, TlsFileContents, server_config,
};
use rustls::crypto::ring;
use rustls::sign::SingleCertAndKey;
use rustls::{ClientConfig, ServerConfig};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// The files of a node, and the configurations that were built from their last usable contents.
pub(crate) struct RenewedPeerTls {
    paths: PeerTls,
    loaded: Mutex<LoadedPeerTls>,
}

#[derive(Clone)]
struct LoadedPeerTls {
    contents: PeerTlsContents,
    configs: PeerTlsConfigs,
}

/// The configurations of handshakes: of accepted connections, and of those to peers.
#[derive(Clone)]
pub(crate) struct PeerTlsConfigs {
    pub(crate) server: Arc<ServerConfig>,
    pub(crate) client: Arc<ClientConfig>,
}

/// The contents of PEM files.
#[derive(Clone, PartialEq)]
struct PeerTlsContents {
    cert: Vec<u8>,
    key: Vec<u8>,
    ca: Vec<u8>,
}

impl RenewedPeerTls {
    /// Reads the files. Errors are texts for the user.
    pub(crate) fn open(paths: &PeerTls) -> Result<Arc<Self>, String> {
        let loaded = LoadedPeerTls::build(PeerTlsContents::read(paths)?)?;
        Ok(Arc::new(Self {
            paths: paths.clone(),
            loaded: Mutex::new(loaded),
        }))
    }

    /// Reads the files again on a thread that may block, and returns the newest usable
    /// configurations.
    pub(crate) async fn load_current(self: &Arc<Self>) -> PeerTlsConfigs {
        let files = self.clone();
        let reading = tokio::task::spawn_blocking(move || files.reload());
        // The runtime ends.
        reading
            .await
            .unwrap_or_else(|_| self.lock().configs.clone())
    }

    fn reload(&self) -> PeerTlsConfigs {
        let previous = self.lock().clone();
        let loaded = match PeerTlsContents::read(&self.paths) {
            Ok(contents) if contents == previous.contents => return previous.configs,
            Ok(contents) => LoadedPeerTls::build(contents),
            Err(error) => Err(error),
        };
        match loaded {
            Ok(loaded) => {
                tracing::info!("the certificates for peers were renewed");
                *self.lock() = loaded.clone();
                loaded.configs
            }
            Err(error) => {
                tracing::warn!(%error, "the previous certificates for peers stay in use");
                previous.configs
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, LoadedPeerTls> {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PeerTlsContents {
    fn read(paths: &PeerTls) -> Result<Self, String> {
        let read = |path: &Path| {
            let error = |e| format!("read {}: {e}", path.display());
            std::fs::read(path).map_err(error)
        };
        Ok(Self {
            cert: read(&paths.cert_file)?,
            key: read(&paths.key_file)?,
            ca: read(&paths.ca_file)?,
        })
    }
}

impl LoadedPeerTls {
    fn build(contents: PeerTlsContents) -> Result<Self, String> {
        let roots = CertificatePool::from_pem(&contents.ca);
        if roots.is_empty() {
            return Err(
                "unable to use the CA certificates of the peers: no certificate in them".into(),
            );
        }
        let configs = PeerTlsConfigs {
            server: build_server_config(&contents)?,
            client: build_client_config(&contents, roots)?,
        };
        Ok(Self { contents, configs })
    }
}

fn build_server_config(contents: &PeerTlsContents) -> Result<Arc<ServerConfig>, String> {
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
        cert: contents.cert.clone(),
        key: contents.key.clone(),
        client_ca: Some(contents.ca.clone()),
    };
    let config = server_config(&settings, &files, CertificatePool::default);
    config.map_err(|e| e.to_string())
}

fn build_client_config(
    contents: &PeerTlsContents,
    roots: CertificatePool,
) -> Result<Arc<ClientConfig>, String> {
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|e| e.to_string())?;
    let verifier = ServerCertificateVerifier {
        roots: Some(Arc::new(roots)),
        server_name: None,
    };
    let pair = parse_certified_key(&contents.cert, &contents.key)
        .map_err(|e| format!("unable to use the certificate and key of the node: {e}"))?;
    let mut config = builder
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_client_cert_resolver(Arc::new(SingleCertAndKey::from(pair)));
    config.alpn_protocols = vec![HTTP2.to_vec()];
    Ok(Arc::new(config))
}

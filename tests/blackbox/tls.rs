//! A certificate authority, its certificates, and raw TLS clients.

use crate::raw::{Ask, Reply};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, SanType};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Timeout that is long enough for a machine that stalls.
const PATIENCE: Duration = Duration::from_secs(20);

/// A certificate authority that tests trust.
pub struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its key, as PEM.
#[derive(Clone)]
pub struct Pair {
    pub cert: String,
    pub key: String,
}

impl Authority {
    /// Creates a new authority.
    pub fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self {
            pem: params.self_signed(&key).unwrap().pem(),
            issuer: Issuer::new(params, key),
        }
    }

    /// Issues a certificate with these names.
    pub fn pair(&self, names: Vec<SanType>) -> Pair {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.subject_alt_names = names;
        let cert = params.signed_by(&key, &self.issuer).unwrap();
        Pair {
            cert: cert.pem(),
            key: key.serialize_pem(),
        }
    }

    /// Issues a server certificate for `localhost`.
    pub fn server(&self) -> Pair {
        self.pair(vec![SanType::DnsName("localhost".try_into().unwrap())])
    }

    /// Returns the authority's own certificate.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// Returns the configuration of a client that trusts this authority, has the certificate `own`
    /// and offers `protocols`.
    pub fn client(&self, own: Option<&Pair>, protocols: &[&[u8]]) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        let pem = self.pem.as_bytes();
        roots
            .add(CertificateDer::from_pem_slice(pem).unwrap())
            .unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match own {
            None => builder.with_no_client_auth(),
            Some(pair) => {
                let chain = vec![CertificateDer::from_pem_slice(pair.cert.as_bytes()).unwrap()];
                let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).unwrap();
                builder.with_client_auth_cert(chain, key).unwrap()
            }
        };
        // Each connection must use the certificate of its time.
        config.resumption = rustls::client::Resumption::disabled();
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        Arc::new(config)
    }
}

impl Pair {
    /// Writes certificate and key to files in `dir`.
    pub fn write(&self, dir: &Path, name: &str) {
        std::fs::write(dir.join(format!("{name}.crt")), &self.cert).unwrap();
        std::fs::write(dir.join(format!("{name}.key")), &self.key).unwrap();
    }

    /// Returns the certificate as DER.
    pub fn der(&self) -> CertificateDer<'static> {
        CertificateDer::from_pem_slice(self.cert.as_bytes()).unwrap()
    }
}

/// A TLS connection.
pub type Tls = StreamOwned<ClientConnection, TcpStream>;

/// Connects to the server at `address` and completes the handshake.
pub fn connect(config: &Arc<ClientConfig>, address: &str) -> std::io::Result<Tls> {
    let mut tcp = TcpStream::connect(address)?;
    tcp.set_read_timeout(Some(PATIENCE))?;
    tcp.set_write_timeout(Some(PATIENCE))?;
    let name = ServerName::try_from("localhost").unwrap();
    let mut client = ClientConnection::new(config.clone(), name).unwrap();
    while client.is_handshaking() {
        client.complete_io(&mut tcp)?;
    }
    Ok(StreamOwned::new(client, tcp))
}

/// Sends a request over a new connection.
pub fn send(config: &Arc<ClientConfig>, address: &str, ask: &Ask) -> std::io::Result<Reply> {
    let mut stream = connect(config, address)?;
    ask.send_over(&mut stream)
}

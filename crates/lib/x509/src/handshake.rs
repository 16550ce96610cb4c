//! Certificates in TLS handshakes: a server certificate verifier for rustls, and the verification
//! of the peer's signature, by the rules of Go's `crypto/tls`.
//!
//! Invariant: even a peer whose certificate is not verified must send certificates that can be
//! parsed, with RSA keys of at most [`RSA_BITS_MAX`] bits, and must prove possession of the key of
//! the first certificate.

use super::key::{EllipticCurve, PublicKey, Sha2Hash, SignatureKind};
use super::{
    CertificatePool, CertificatePurpose, CertificateRejection, CertificateTrust,
    MalformedCertificate, X509Certificate, verify,
};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, DigitallySignedStruct, Error, OtherError, SignatureScheme};
use std::io;
use std::sync::Arc;

/// Maximum size in bits of an RSA key in a peer's certificates.
pub const RSA_BITS_MAX: usize = 8192;

/// Signature schemes that a peer may use, in order of preference.
pub const SCHEMES: [SignatureScheme; 10] = [
    SignatureScheme::RSA_PSS_SHA256,
    SignatureScheme::ECDSA_NISTP256_SHA256,
    SignatureScheme::ED25519,
    SignatureScheme::RSA_PSS_SHA384,
    SignatureScheme::RSA_PSS_SHA512,
    SignatureScheme::RSA_PKCS1_SHA256,
    SignatureScheme::RSA_PKCS1_SHA384,
    SignatureScheme::RSA_PKCS1_SHA512,
    SignatureScheme::ECDSA_NISTP384_SHA384,
    SignatureScheme::ECDSA_NISTP521_SHA512,
];

/// Why a peer's certificates are rejected, with the error text of Go.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PeerRejection {
    /// A certificate of a server cannot be parsed.
    #[error("tls: failed to parse certificate from server: {0}")]
    MalformedOfServer(MalformedCertificate),
    /// A certificate of a client cannot be parsed.
    #[error("tls: failed to parse client certificate: {0}")]
    MalformedOfClient(MalformedCertificate),
    /// An RSA key exceeds [`RSA_BITS_MAX`] bits.
    #[error("tls: {0} sent certificate containing RSA key larger than {RSA_BITS_MAX} bits")]
    LargeKey(CertificatePurpose),
    /// The key of the first certificate cannot sign handshakes.
    #[error("tls: {0}'s certificate contains an unsupported type of public key: {1}")]
    UselessKey(CertificatePurpose, &'static str),
    /// The certificate is not trusted, for the contained reason.
    #[error("tls: failed to verify certificate: {0}")]
    Untrusted(#[from] CertificateRejection),
    /// The signature of the handshake is invalid for the first certificate's key.
    #[error("tls: invalid signature by the peer's certificate: {0}")]
    WrongSignature(String),
}

impl From<PeerRejection> for Error {
    fn from(why: PeerRejection) -> Self {
        let why = OtherError(Arc::new(why));
        Self::InvalidCertificate(CertificateError::Other(why))
    }
}

/// Returns the reason in a handshake error that was caused by the peer's certificates. The text of
/// a rustls error would contain internal type names.
pub fn certificate_reason(error: &(dyn std::error::Error + 'static)) -> Option<String> {
    let mut error = error;
    while let Some(inner) = error
        .downcast_ref::<io::Error>()
        .and_then(io::Error::get_ref)
    {
        error = inner;
    }
    match error.downcast_ref::<Error>()? {
        Error::InvalidCertificate(CertificateError::Other(why)) => Some(why.to_string()),
        _ => None,
    }
}

/// Parsed certificates that a peer sent in a handshake: the leaf and possible intermediates.
#[derive(Clone, Debug)]
pub struct PeerCertificates {
    purpose: CertificatePurpose,
    leaf: X509Certificate,
    intermediates: CertificatePool,
}

impl PeerCertificates {
    /// Parses the certificates of a server or client and checks the sizes of their keys.
    pub fn read(
        purpose: CertificatePurpose,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
    ) -> Result<Self, PeerRejection> {
        let malformed = match purpose {
            CertificatePurpose::Server => PeerRejection::MalformedOfServer,
            CertificatePurpose::Client => PeerRejection::MalformedOfClient,
        };
        let peer = Self {
            purpose,
            leaf: X509Certificate::parse(leaf).map_err(malformed)?,
            intermediates: CertificatePool::from_der(intermediates).map_err(malformed)?,
        };
        if peer.has_large_key() {
            Err(PeerRejection::LargeKey(purpose))
        } else {
            Ok(peer)
        }
    }

    fn has_large_key(&self) -> bool {
        let all = self.intermediates.all().iter().chain([&self.leaf]);
        let mut sizes = all.filter_map(|certificate| certificate.key.rsa_bits());
        sizes.any(|bits| bits > RSA_BITS_MAX)
    }

    /// Verifies the first certificate against `roots`, and that it is valid for `host` if given.
    pub fn check(
        &self,
        roots: &CertificatePool,
        host: Option<&str>,
        now: UnixTime,
    ) -> Result<(), CertificateRejection> {
        let trust = CertificateTrust {
            roots,
            intermediates: &self.intermediates,
            host,
            purpose: self.purpose,
            now: i64::try_from(now.as_secs()).unwrap_or(i64::MAX),
        };
        verify(&self.leaf, &trust)
    }

    /// Checks that the key of the first certificate can sign handshakes.
    pub fn check_key(&self) -> Result<(), PeerRejection> {
        match &self.leaf.key {
            PublicKey::Useless(kind) => Err(PeerRejection::UselessKey(self.purpose, kind)),
            PublicKey::Unknown => Err(PeerRejection::UselessKey(self.purpose, "<nil>")),
            _ => Ok(()),
        }
    }

    /// Returns the first certificate, which identifies the peer.
    pub fn leaf(&self) -> &X509Certificate {
        &self.leaf
    }
}

/// Server certificate verifier of a TLS client, by the rules of Go instead of webpki.
#[derive(Debug)]
pub struct ServerCertificateVerifier {
    /// Trusted certificates; `None` if any certificate is accepted.
    pub roots: Option<Arc<CertificatePool>>,
    /// Name that the certificate must be valid for, instead of the host that the client connects
    /// to.
    pub server_name: Option<String>,
}

impl ServerCertVerifier for ServerCertificateVerifier {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let peer = PeerCertificates::read(CertificatePurpose::Server, leaf, intermediates)?;
        if let Some(roots) = &self.roots {
            let host = match &self.server_name {
                Some(name) => name.clone(),
                None => name.to_str().into_owned(),
            };
            let checked = peer.check(roots, Some(&host), now);
            checked.map_err(PeerRejection::from)?;
        }
        peer.check_key()?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        check_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        check_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        SCHEMES.to_vec()
    }
}

/// Verifies the peer's signature in TLS 1.2, where an ECDSA scheme defines the hash but not the
/// curve.
pub fn check_tls12_signature(
    message: &[u8],
    certificate: &CertificateDer<'_>,
    signature: &DigitallySignedStruct,
) -> Result<HandshakeSignatureValid, Error> {
    check_signature(message, certificate, signature, false)
}

/// Verifies the peer's signature in TLS 1.3, where an ECDSA scheme defines hash and curve.
pub fn check_tls13_signature(
    message: &[u8],
    certificate: &CertificateDer<'_>,
    signature: &DigitallySignedStruct,
) -> Result<HandshakeSignatureValid, Error> {
    check_signature(message, certificate, signature, true)
}

fn check_signature(
    message: &[u8],
    certificate: &CertificateDer<'_>,
    signature: &DigitallySignedStruct,
    is_tls13: bool,
) -> Result<HandshakeSignatureValid, Error> {
    let refused = |why: String| Error::from(PeerRejection::WrongSignature(why));
    let certificate = X509Certificate::parse(certificate).map_err(|e| refused(e.to_string()))?;
    let scheme = signature.scheme;
    let unsupported = || refused(format!("unsupported algorithm {scheme:?}"));
    let (kind, curve) = scheme_parts(scheme).ok_or_else(unsupported)?;
    if is_tls13 {
        let is_old = matches!(kind, SignatureKind::Rsa(_));
        let is_of_curve = match (&certificate.key, curve) {
            (PublicKey::Ecdsa(own, _), Some(named)) => *own == named,
            _ => true,
        };
        if is_old || !is_of_curve {
            return Err(unsupported());
        }
    }
    let checked = certificate.key.check(kind, message, signature.signature());
    checked.map_err(|e| refused(e.to_string()))?;
    Ok(HandshakeSignatureValid::assertion())
}

/// Returns the algorithm of a signature scheme, and the curve that it requires in TLS 1.3.
fn scheme_parts(scheme: SignatureScheme) -> Option<(SignatureKind, Option<EllipticCurve>)> {
    use SignatureKind::{Ecdsa, Ed25519, Rsa, RsaPss};
    Some(match scheme {
        SignatureScheme::RSA_PSS_SHA256 => (RsaPss(Sha2Hash::Sha256), None),
        SignatureScheme::RSA_PSS_SHA384 => (RsaPss(Sha2Hash::Sha384), None),
        SignatureScheme::RSA_PSS_SHA512 => (RsaPss(Sha2Hash::Sha512), None),
        SignatureScheme::RSA_PKCS1_SHA256 => (Rsa(Sha2Hash::Sha256), None),
        SignatureScheme::RSA_PKCS1_SHA384 => (Rsa(Sha2Hash::Sha384), None),
        SignatureScheme::RSA_PKCS1_SHA512 => (Rsa(Sha2Hash::Sha512), None),
        SignatureScheme::ECDSA_NISTP256_SHA256 => {
            (Ecdsa(Sha2Hash::Sha256), Some(EllipticCurve::P256))
        }
        SignatureScheme::ECDSA_NISTP384_SHA384 => {
            (Ecdsa(Sha2Hash::Sha384), Some(EllipticCurve::P384))
        }
        SignatureScheme::ECDSA_NISTP521_SHA512 => {
            (Ecdsa(Sha2Hash::Sha512), Some(EllipticCurve::P521))
        }
        SignatureScheme::ED25519 => (Ed25519, None),
        _ => return None,
    })
}

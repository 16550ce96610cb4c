//! Verification of client certificates: trusted by `client_ca_file` or the system, or any
//! certificate, optionally restricted to names in `client_allowed_sans`.

use super::settings::{ClientAuthPolicy, ListenerTlsSettings, TlsFileContents};
use crate::handshake::{
    PeerCertificates, PeerRejection, SCHEMES, check_tls12_signature, check_tls13_signature,
};
use crate::{AlternativeNames, CertificatePool, CertificatePurpose};
use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError, SignatureScheme,
};
use std::net::IpAddr;
use std::sync::Arc;

/// Maximum total size, in bytes, of the CA subjects in a certificate request.
const HINT_BYTES_MAX: usize = 60 << 10;

/// Creates the verifier of client certificates. Returns `None` if the policy requests no
/// certificates.
pub(super) fn verifier(
    settings: &ListenerTlsSettings,
    files: &TlsFileContents,
    system_roots: impl FnOnce() -> CertificatePool,
) -> Option<Arc<dyn ClientCertVerifier>> {
    use ClientAuthPolicy::{
        NoClientCert, RequestClientCert, RequireAndVerifyClientCert, RequireAnyClientCert,
        VerifyClientCertIfGiven,
    };
    let (is_required, is_verified) = match settings.client_auth {
        NoClientCert => return None,
        RequestClientCert => (false, false),
        RequireAnyClientCert => (true, false),
        VerifyClientCertIfGiven => (false, true),
        RequireAndVerifyClientCert => (true, true),
    };
    let given = files.client_ca.as_deref().map(CertificatePool::from_pem);
    Some(Arc::new(ClientCertificateVerifier {
        // A client without a certificate cannot have an allowed name.
        is_required: is_required || settings.client_sans.is_some(),
        hints: given.as_ref().map(hints).unwrap_or_default(),
        roots: is_verified.then(|| given.unwrap_or_else(system_roots)),
        names: settings.client_sans.clone(),
    }))
}

/// Returns the subjects of the CAs, which help clients to select a certificate. Returns an empty
/// list if they exceed the size limit.
fn hints(authorities: &CertificatePool) -> Vec<DistinguishedName> {
    let bytes: usize = authorities
        .subjects()
        .map(|subject| subject.len() + 2)
        .sum();
    if bytes > HINT_BYTES_MAX {
        Vec::new()
    } else {
        authorities
            .subjects()
            .map(|subject| DistinguishedName::from(subject.to_vec()))
            .collect()
    }
}

#[derive(Debug)]
struct ClientCertificateVerifier {
    is_required: bool,
    hints: Vec<DistinguishedName>,
    /// Trusted CA certificates; `None` if any certificate is accepted.
    roots: Option<CertificatePool>,
    /// Names of which the certificate must contain at least one.
    names: Option<Vec<String>>,
}

impl ClientCertVerifier for ClientCertificateVerifier {
    fn client_auth_mandatory(&self) -> bool {
        self.is_required
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.hints
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let peer = PeerCertificates::read(CertificatePurpose::Client, end_entity, intermediates)?;
        if let Some(roots) = &self.roots {
            let checked = peer.check(roots, None, now);
            checked.map_err(PeerRejection::from)?;
        }
        peer.check_key()?;
        let Some(allowed) = &self.names else {
            return Ok(ClientCertVerified::assertion());
        };
        let found = texts(peer.leaf().names());
        if found.iter().any(|name| allowed.contains(name)) {
            return Ok(ClientCertVerified::assertion());
        }
        let why = OtherError(Arc::new(NameNotAllowed(found)));
        Err(Error::InvalidCertificate(CertificateError::Other(why)))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        check_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        check_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        SCHEMES.to_vec()
    }
}

/// Error for a trusted certificate that contains none of the allowed names.
#[derive(Debug, thiserror::Error)]
#[error("could not find allowed SANs in client cert, found: {0:?}")]
struct NameNotAllowed(Vec<String>);

/// Returns all subject alternative names of a certificate: DNS names, mail addresses, URIs and IP
/// addresses.
fn texts(names: &AlternativeNames) -> Vec<String> {
    let texts = [&names.dns, &names.emails, &names.uris]
        .into_iter()
        .flatten();
    let addresses = names.ips.iter().map(IpAddr::to_string);
    texts.cloned().chain(addresses).collect()
}

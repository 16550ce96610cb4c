//! Which certificates of clients are taken: those of the authorities, or any, and among them those
//! with a name of a list.

use super::settings::{ClientAuth, TlsFiles, TlsSettings};
use super::{TlsError, certificates};
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError, RootCertStore,
    SignatureScheme,
};
use std::net::IpAddr;
use std::sync::Arc;
use x509_parser::extensions::GeneralName;

/// What checks certificates of clients; none if they are asked for none.
pub(super) fn verifier(
    settings: &TlsSettings,
    files: &TlsFiles,
    provider: Arc<CryptoProvider>,
) -> Result<Option<Arc<dyn ClientCertVerifier>>, TlsError> {
    use ClientAuth::{
        NoClientCert, RequestClientCert, RequireAndVerifyClientCert, RequireAnyClientCert,
        VerifyClientCertIfGiven,
    };
    let (is_required, is_verified) = match settings.client_auth {
        NoClientCert => return Ok(None),
        RequestClientCert => (false, false),
        RequireAnyClientCert => (true, false),
        VerifyClientCertIfGiven => (false, true),
        RequireAndVerifyClientCert => (true, true),
    };
    let algorithms = provider.signature_verification_algorithms;
    let chain = match is_verified {
        true => {
            let roots = Arc::new(authorities(files)?);
            let built = WebPkiClientVerifier::builder_with_provider(roots, provider).build();
            Some(built.map_err(|e| TlsError::Authorities(e.to_string()))?)
        }
        false => None,
    };
    Ok(Some(Arc::new(Check {
        // A client without a certificate has none of the names.
        is_required: is_required || settings.client_sans.is_some(),
        chain,
        names: settings.client_sans.clone(),
        algorithms,
    })))
}

/// The given authorities, or the system's.
fn authorities(files: &TlsFiles) -> Result<RootCertStore, TlsError> {
    let mut store = RootCertStore::empty();
    let certificates = match &files.client_ca {
        Some(pem) => certificates(pem).map_err(TlsError::Authorities)?,
        None => rustls_native_certs::load_native_certs().certs,
    };
    store.add_parsable_certificates(certificates);
    Ok(store)
}

#[derive(Debug)]
struct Check {
    is_required: bool,
    /// Follows the chain to an authority; none where any certificate will do.
    chain: Option<Arc<dyn ClientCertVerifier>>,
    /// One of these must stand in the certificate.
    names: Option<Vec<String>>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ClientCertVerifier for Check {
    fn client_auth_mandatory(&self) -> bool {
        self.is_required
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        match &self.chain {
            Some(chain) => chain.root_hint_subjects(),
            None => &[],
        }
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        if let Some(chain) = &self.chain {
            chain.verify_client_cert(end_entity, intermediates, now)?;
        }
        let Some(allowed) = &self.names else {
            return Ok(ClientCertVerified::assertion());
        };
        let refused = |why: NameRefused| {
            let other = OtherError(Arc::new(why));
            Err(Error::InvalidCertificate(CertificateError::Other(other)))
        };
        match names(end_entity) {
            Ok(found) if found.iter().any(|name| allowed.contains(name)) => {
                Ok(ClientCertVerified::assertion())
            }
            Ok(_) => refused(NameRefused::NotAllowed(allowed.clone())),
            Err(why) => refused(NameRefused::Unreadable(why)),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// Why a client with a sound certificate is turned away.
#[derive(Debug, thiserror::Error)]
enum NameRefused {
    #[error("could not find allowed SANs in client cert, found: {0:?}")]
    NotAllowed(Vec<String>),
    #[error("error parsing client certificate: {0}")]
    Unreadable(String),
}

/// All subject alternative names of a certificate: hosts, mail addresses, addresses and URIs.
fn names(certificate: &CertificateDer<'_>) -> Result<Vec<String>, String> {
    let (_, parsed) =
        x509_parser::parse_x509_certificate(certificate).map_err(|e| e.to_string())?;
    let names = parsed
        .subject_alternative_name()
        .map_err(|e| e.to_string())?;
    let Some(names) = names else {
        return Ok(Vec::new());
    };
    Ok(names.value.general_names.iter().filter_map(text).collect())
}

fn text(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(text) | GeneralName::RFC822Name(text) | GeneralName::URI(text) => {
            Some((*text).to_owned())
        }
        GeneralName::IPAddress(bytes) => {
            let v4 = <[u8; 4]>::try_from(*bytes).map(IpAddr::from);
            let v6 = || <[u8; 16]>::try_from(*bytes).map(IpAddr::from);
            Some(v4.or_else(|_| v6()).ok()?.to_string())
        }
        _ => None,
    }
}

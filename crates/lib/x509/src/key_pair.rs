//! The own certificate and private key, parsed from two PEM texts like Go's `tls.X509KeyPair`.
//!
//! Invariant: the key belongs to the first certificate.

use super::X509Certificate;
use super::key::PublicKey;
use super::pem::PemBlocks;
use super::signers::parse_signing_key;
use rustls::SignatureAlgorithm;
use rustls::pki_types::CertificateDer;
use rustls::sign::CertifiedKey;

/// Parses a certificate chain and the private key of its first certificate. Fails with Go's text.
pub fn parse_certified_key(certificate_pem: &[u8], key_pem: &[u8]) -> Result<CertifiedKey, String> {
    let chain = parse_chain(certificate_pem)?;
    let key = find_private_key(key_pem)?;
    let leaf = chain.first().map_or(&[][..], AsRef::as_ref);
    let leaf = X509Certificate::parse(leaf).map_err(|e| e.to_string())?;
    let key = parse_signing_key(&key)?;
    let kind = match &leaf.key {
        PublicKey::Rsa(_) => SignatureAlgorithm::RSA,
        PublicKey::Ecdsa(..) => SignatureAlgorithm::ECDSA,
        PublicKey::Ed25519(_) => SignatureAlgorithm::ED25519,
        PublicKey::Useless(_) | PublicKey::Unknown => {
            return Err("tls: unknown public key algorithm".to_owned());
        }
    };
    if key.algorithm() != kind {
        return Err("tls: private key type does not match public key type".to_owned());
    }
    match key.public_key() {
        Some(own) if own.as_ref() == leaf.key_info => Ok(CertifiedKey::new(chain, key)),
        _ => Err("tls: private key does not match public key".to_owned()),
    }
}

fn parse_chain(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let (mut chain, mut skipped) = (Vec::new(), Vec::new());
    for block in PemBlocks(pem) {
        match block.label.as_str() {
            "CERTIFICATE" => chain.push(CertificateDer::from(block.der)),
            _ => skipped.push(block.label),
        }
    }
    if !chain.is_empty() {
        return Ok(chain);
    }
    Err(match &skipped[..] {
        [] => "tls: failed to find any PEM data in certificate input".to_owned(),
        [one] if one.ends_with("PRIVATE KEY") => {
            "tls: failed to find certificate PEM data in certificate input, but did find a \
             private key; PEM inputs may have been switched"
                .to_owned()
        }
        _ => format!(
            "tls: failed to find \"CERTIFICATE\" PEM block in certificate input after skipping \
             PEM blocks of the following types: [{}]",
            skipped.join(" ")
        ),
    })
}

/// Returns the first private key in DER. Skips blocks before it, such as `EC PARAMETERS`.
fn find_private_key(pem: &[u8]) -> Result<Vec<u8>, String> {
    let mut skipped = Vec::new();
    for block in PemBlocks(pem) {
        if block.label == "PRIVATE KEY" || block.label.ends_with(" PRIVATE KEY") {
            return Ok(block.der);
        }
        skipped.push(block.label);
    }
    Err(match &skipped[..] {
        [] => "tls: failed to find any PEM data in key input".to_owned(),
        [one] if one == "CERTIFICATE" => {
            "tls: found a certificate rather than a key in the PEM for the private key".to_owned()
        }
        _ => format!(
            "tls: failed to find PEM block with type ending in \"PRIVATE KEY\" in key input \
             after skipping PEM blocks of the following types: [{}]",
            skipped.join(" ")
        ),
    })
}

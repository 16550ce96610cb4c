//! In-memory handshakes with every kind of key: the keys and certificates in `pairs.jsonl` sign as
//! server and as client, and both sides verify the signatures.

use firn_x509::handshake::{
    PeerCertificates, SCHEMES, ServerCertificateVerifier, certificate_reason,
    check_tls12_signature, check_tls13_signature,
};
use firn_x509::key_pair::parse_certified_key;
use firn_x509::{CertificatePool, CertificatePurpose};
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::version::{TLS12, TLS13};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, DistinguishedName, Error, ServerConfig,
    ServerConnection, SignatureScheme, SupportedProtocolVersion,
};
use serde_json::Value;
use std::sync::Arc;

/// Verifier that accepts any client that possesses the key of its certificate.
#[derive(Debug)]
struct AnyClient;

impl ClientCertVerifier for AnyClient {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        leaf: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        PeerCertificates::read(CertificatePurpose::Client, leaf, others)?.check_key()?;
        Ok(ClientCertVerified::assertion())
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

/// Performs a handshake. Returns the error of the side that fails first.
fn shake(
    version: &'static SupportedProtocolVersion,
    pair: CertifiedKey,
    check: ServerCertificateVerifier,
) -> Result<(), Error> {
    let pair = Arc::new(SingleCertAndKey::from(pair));
    let provider = Arc::new(ring::default_provider());
    let server = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[version])?
        .with_client_cert_verifier(Arc::new(AnyClient))
        .with_cert_resolver(pair.clone());
    let client = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[version])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(check))
        .with_client_cert_resolver(pair);
    let name = ServerName::try_from("localhost").expect("a name");
    let mut client = ClientConnection::new(Arc::new(client), name)?;
    let mut server = ServerConnection::new(Arc::new(server))?;
    while client.is_handshaking() || server.is_handshaking() {
        let mut bytes = Vec::new();
        client.write_tls(&mut bytes).expect("memory");
        server.read_tls(&mut &bytes[..]).expect("memory");
        server.process_new_packets()?;
        bytes.clear();
        server.write_tls(&mut bytes).expect("memory");
        client.read_tls(&mut &bytes[..]).expect("memory");
        client.process_new_packets()?;
    }
    Ok(())
}

fn any_server() -> ServerCertificateVerifier {
    ServerCertificateVerifier {
        roots: None,
        server_name: None,
    }
}

fn valid_pairs() -> Vec<[String; 3]> {
    let lines = include_str!("pairs.jsonl").lines();
    let cases = lines.map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let valid = cases.filter(|case| case["verdict"] == "");
    let field = |case: &Value, key: &str| case[key].as_str().expect("a text").to_owned();
    let fields = |case| ["name", "cert", "key"].map(|key| field(&case, key));
    // Only the first certificate in these files is valid.
    let sound = valid
        .map(fields)
        .filter(|[name, ..]| !name.contains("behind the first"));
    sound.collect()
}

#[test]
fn every_kind_of_key_signs_handshakes() {
    let pairs = valid_pairs();
    assert!(pairs.len() > 15, "{}", pairs.len());
    for [name, cert, key] in pairs {
        for version in [&TLS12, &TLS13] {
            let pair = parse_certified_key(cert.as_bytes(), key.as_bytes()).expect("a pair");
            let shaken = shake(version, pair, any_server());
            assert_eq!(shaken, Ok(()), "{name} {version:?}");
        }
    }
}

#[test]
fn refusal_is_reported_with_its_text() {
    let [_, cert, key] = valid_pairs().swap_remove(0);
    let check = ServerCertificateVerifier {
        roots: Some(Arc::new(CertificatePool::from_pem(cert.as_bytes()))),
        server_name: Some("other".to_owned()),
    };
    let pair = parse_certified_key(cert.as_bytes(), key.as_bytes()).expect("a pair");
    let error = shake(&TLS13, pair, check).expect_err("another name");
    let nested = std::io::Error::other(std::io::Error::other(error));
    let reason = certificate_reason(&nested).expect("a reason");
    let expected = "tls: failed to verify certificate: x509: certificate is valid for localhost, \
         not other";
    assert_eq!(reason, expected);
}

#[test]
fn signature_by_another_key_is_refused() {
    let pairs = valid_pairs();
    let find = |wanted: &str| {
        let [_, cert, key] = pairs
            .iter()
            .find(|[name, ..]| name == wanted)
            .expect(wanted);
        parse_certified_key(cert.as_bytes(), key.as_bytes()).expect("a pair")
    };
    for (shown, signing) in [
        ("P-256, PKCS #8", "P-384, PKCS #8"),
        ("P-521, PKCS #8", "P-384, PKCS #8"),
        ("Ed25519", "P-256, PKCS #8"),
        ("RSA of 1024 bits", "RSA, PKCS #8"),
        ("RSA, PKCS #8", "RSA of 1024 bits"),
    ] {
        for version in [&TLS12, &TLS13] {
            let forged = CertifiedKey::new(find(shown).cert, find(signing).key);
            let error = shake(version, forged, any_server()).expect_err(shown);
            let reason = certificate_reason(&error).unwrap_or(error.to_string());
            // In TLS 1.2 the cipher suite defines the kind of key.
            let is_refused = reason.contains("invalid signature by the peer's certificate")
                || reason.contains("SigningAlgMismatch");
            assert!(is_refused, "{shown} {version:?}: {reason}");
        }
    }
}

//! Signed statements about who asks (JSON web tokens, RFC 7519), by RSA: what a token server takes
//! instead of a secret (RFC 7523).

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{RSA_PKCS1_SHA256, RSA_PKCS1_SHA384, RSA_PKCS1_SHA512, RsaKeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use serde_json::{Value, json};

/// The hash that is signed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SigningAlgorithm {
    /// SHA-256
    #[default]
    Rs256,
    /// SHA-384
    Rs384,
    /// SHA-512
    Rs512,
}

/// Signs `claims` with the private key `pem`, which the server knows as `key_id`; fails with what
/// to tell the user.
pub(crate) fn sign(
    claims: &Value,
    pem: &[u8],
    key_id: &str,
    algorithm: SigningAlgorithm,
) -> Result<String, String> {
    let (name, padding): (_, &'static dyn ring::signature::RsaEncoding) = match algorithm {
        SigningAlgorithm::Rs256 => ("RS256", &RSA_PKCS1_SHA256),
        SigningAlgorithm::Rs384 => ("RS384", &RSA_PKCS1_SHA384),
        SigningAlgorithm::Rs512 => ("RS512", &RSA_PKCS1_SHA512),
    };
    let mut head = json!({"alg": name, "typ": "JWT"});
    if !key_id.is_empty() {
        head["kid"] = key_id.into();
    }
    let encode = |bytes: &[u8]| BASE64_URL_SAFE_NO_PAD.encode(bytes);
    let (head, body) = (head.to_string(), claims.to_string());
    let text = format!("{}.{}", encode(head.as_bytes()), encode(body.as_bytes()));
    let key = key_pair(pem)?;
    let mut signature = vec![0; key.public().modulus_len()];
    key.sign(
        padding,
        &SystemRandom::new(),
        text.as_bytes(),
        &mut signature,
    )
    .map_err(|_| "the private key does not sign".to_owned())?;
    Ok(format!("{text}.{}", encode(&signature)))
}

fn key_pair(pem: &[u8]) -> Result<RsaKeyPair, String> {
    let key = PrivateKeyDer::from_pem_slice(pem).map_err(|e| format!("no private key: {e}"))?;
    let pair = match &key {
        PrivateKeyDer::Pkcs1(der) => RsaKeyPair::from_der(der.secret_pkcs1_der()),
        PrivateKeyDer::Pkcs8(der) => RsaKeyPair::from_pkcs8(der.secret_pkcs8_der()),
        _ => return Err("not a private key of RSA".into()),
    };
    pair.map_err(|e| format!("not a private key of RSA: {e}"))
}

//! Signed JSON web tokens (RFC 7519) with RSA keys, which a token server accepts as client
//! assertions instead of a secret (RFC 7523).

use super::private_key;
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{
    RSA_PKCS1_SHA256, RSA_PKCS1_SHA384, RSA_PKCS1_SHA512, RsaEncoding, RsaKeyPair,
};
use serde_json::{Value, json};

/// RSA signature algorithm of an assertion, with the hash that it uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SigningAlgorithm {
    /// `RS256`: RSA with SHA-256, the default.
    #[default]
    Rs256,
    /// `RS384`: RSA with SHA-384.
    Rs384,
    /// `RS512`: RSA with SHA-512.
    Rs512,
}

/// Signs `claims` with the private key `pem`, whose id at the server is `key_id` (empty for none).
/// Errors are texts for the user.
pub fn sign(
    claims: &Value,
    pem: &[u8],
    key_id: &str,
    algorithm: SigningAlgorithm,
) -> Result<String, String> {
    let (name, padding): (_, &'static dyn RsaEncoding) = match algorithm {
        SigningAlgorithm::Rs256 => ("RS256", &RSA_PKCS1_SHA256),
        SigningAlgorithm::Rs384 => ("RS384", &RSA_PKCS1_SHA384),
        SigningAlgorithm::Rs512 => ("RS512", &RSA_PKCS1_SHA512),
    };
    let mut head = json!({"alg": name, "typ": "JWT"});
    if !key_id.is_empty() {
        head["kid"] = key_id.into();
    }
    sign_jwt(&head, claims, &private_key::decode_pem(pem, "")?, padding)
}

/// Encodes `claims` with the header `head` as a JSON web token, signed by `key`.
pub fn sign_jwt(
    head: &Value,
    claims: &Value,
    key: &RsaKeyPair,
    padding: &'static dyn RsaEncoding,
) -> Result<String, String> {
    let encode = |bytes: &[u8]| BASE64_URL_SAFE_NO_PAD.encode(bytes);
    let (head, body) = (head.to_string(), claims.to_string());
    let text = format!("{}.{}", encode(head.as_bytes()), encode(body.as_bytes()));
    let signature = sign_rsa(text.as_bytes(), key, padding)?;
    Ok(format!("{text}.{}", encode(&signature)))
}

/// Returns the RSA signature of `text` by `key`, with the given padding and hash.
pub fn sign_rsa(
    text: &[u8],
    key: &RsaKeyPair,
    padding: &'static dyn RsaEncoding,
) -> Result<Vec<u8>, String> {
    let mut signature = vec![0; key.public().modulus_len()];
    key.sign(padding, &SystemRandom::new(), text, &mut signature)
        .map_err(|_| "the private key does not sign".to_owned())?;
    Ok(signature)
}

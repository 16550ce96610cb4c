//! Signed statements about who asks (JSON web tokens, RFC 7519), by RSA: what a token server takes
//! instead of a secret (RFC 7523).

use super::private_key;
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{
    RSA_PKCS1_SHA256, RSA_PKCS1_SHA384, RSA_PKCS1_SHA512, RsaEncoding, RsaKeyPair,
};
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
    signed(&head, claims, &private_key::of_pem(pem, "")?, padding)
}

/// The statement `claims` under `head`, signed by `key`.
pub fn signed(
    head: &Value,
    claims: &Value,
    key: &RsaKeyPair,
    padding: &'static dyn RsaEncoding,
) -> Result<String, String> {
    let encode = |bytes: &[u8]| BASE64_URL_SAFE_NO_PAD.encode(bytes);
    let (head, body) = (head.to_string(), claims.to_string());
    let text = format!("{}.{}", encode(head.as_bytes()), encode(body.as_bytes()));
    let signature = signature(text.as_bytes(), key, padding)?;
    Ok(format!("{text}.{}", encode(&signature)))
}

/// The signature of `text` by `key`.
pub fn signature(
    text: &[u8],
    key: &RsaKeyPair,
    padding: &'static dyn RsaEncoding,
) -> Result<Vec<u8>, String> {
    let mut signature = vec![0; key.public().modulus_len()];
    key.sign(padding, &SystemRandom::new(), text, &mut signature)
        .map_err(|_| "the private key does not sign".to_owned())?;
    Ok(signature)
}

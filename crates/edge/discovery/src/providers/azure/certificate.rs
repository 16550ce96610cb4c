//! Certificates with which an application authenticates at Microsoft Entra ID, and the client
//! assertions (JWT) signed with their keys.
//!
//! Invariant: the input is a file of the administrator with arbitrary content. The result is a key
//! with its certificate, or an error that names the missing part.
//!
//! The formats follow Microsoft's documentation of certificate credentials and the Azure SDK for
//! Go, which upstream uses: PS256 signatures, and SHA-256 thumbprints in plain base64.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use firn_http_client::{PrivateKeyBlock, key_of_der, sign_jwt};
use p12_keystore::Pkcs12Archive;
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom, SystemRandom};
use ring::signature::{RSA_PSS_SHA256, RsaKeyPair};
use serde_json::json;
use x509_parser::parse_x509_certificate;

/// Lifetime of a client assertion in seconds, the same as in Microsoft's libraries.
const STATEMENT_SECONDS: i64 = 600;

/// An RSA private key with its certificate and the remaining certificates of the file, which
/// usually are its chain.
pub(super) struct AzureClientCertificate {
    key: RsaKeyPair,
    /// Certificates in DER. The first one belongs to the key.
    chain: Vec<Vec<u8>>,
}

impl std::fmt::Debug for AzureClientCertificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Certificate").finish_non_exhaustive()
    }
}

impl AzureClientCertificate {
    /// Reads certificates and exactly one RSA key from `data`. The format is PEM if there is no
    /// password and `data` contains a PEM block, otherwise PKCS #12.
    pub(super) fn parse_certificate(data: &[u8], password: &str) -> Result<Self, String> {
        let blocks = if password.is_empty() {
            PrivateKeyBlock::parse_all(data).unwrap_or_default()
        } else {
            Vec::new()
        };
        if blocks.is_empty() {
            Self::from_pkcs12(data, password)
        } else {
            Self::from_pem_blocks(&blocks)
        }
    }

    fn from_pem_blocks(blocks: &[PrivateKeyBlock]) -> Result<Self, String> {
        let certs = blocks.iter().filter(|block| block.label == "CERTIFICATE");
        let certs = certs.map(|block| block.der.clone()).collect();
        let is_key = |block: &&PrivateKeyBlock| {
            block.label == "PRIVATE KEY" || block.label == "RSA PRIVATE KEY"
        };
        let keys: Vec<&PrivateKeyBlock> = blocks.iter().filter(is_key).collect();
        match keys[..] {
            [] => Err("found no private key".to_owned()),
            [key] => Self::from_key_and_chain(key.decode_key("")?, certs),
            _ => Err("certData contains multiple private keys".to_owned()),
        }
    }

    fn from_pkcs12(data: &[u8], password: &str) -> Result<Self, String> {
        let archive = Pkcs12Archive::from_pkcs12(data, password).map_err(|e| e.to_string())?;
        let certs = archive.certs.iter().map(|bag| bag.cert.as_der().to_vec());
        match &archive.keys[..] {
            [] => Err("found no private key".to_owned()),
            [bag] => Self::from_key_and_chain(key_of_der(bag.key.as_der())?, certs.collect()),
            _ => Err("certData contains multiple private keys".to_owned()),
        }
    }

    /// Pairs the key with its certificate, which is moved to the front of the chain. Fails if no
    /// certificate matches the key.
    fn from_key_and_chain(key: RsaKeyPair, mut chain: Vec<Vec<u8>>) -> Result<Self, String> {
        if chain.is_empty() {
            return Err("found no certificate".to_owned());
        }
        let is_of_key = |der: &Vec<u8>| {
            let parsed = parse_x509_certificate(der);
            parsed.is_ok_and(|(_, cert)| {
                cert.public_key().subject_public_key.data[..] == *key.public().as_ref()
            })
        };
        let own = chain.iter().position(is_of_key);
        let own = chain.remove(own.ok_or("key doesn't match any certificate")?);
        chain.insert(0, own);
        Ok(Self { key, chain })
    }

    /// Returns a signed assertion with which `client` requests a token at `audience`. `now` is in
    /// Unix seconds; with `sends_chain` the header contains the whole certificate chain.
    pub(super) fn sign_assertion(
        &self,
        client: &str,
        audience: &str,
        now: i64,
        sends_chain: bool,
    ) -> Result<String, String> {
        let own = self.chain.first().map(Vec::as_slice).unwrap_or_default();
        let thumbprint = BASE64_STANDARD.encode(digest(&SHA256, own));
        let mut head = json!({"alg": "PS256", "typ": "JWT", "x5t#S256": thumbprint});
        if sends_chain {
            let chain = self.chain.iter().map(|der| BASE64_STANDARD.encode(der));
            head["x5c"] = chain.collect();
        }
        let claims = json!({
            "aud": audience,
            "exp": now + STATEMENT_SECONDS,
            "iss": client,
            "jti": random_uuid()?,
            "nbf": now,
            "sub": client,
        });
        sign_jwt(&head, &claims, &self.key, &RSA_PSS_SHA256)
    }
}

/// Returns a random UUID (RFC 9562, version 4), which makes each assertion unique.
fn random_uuid() -> Result<String, String> {
    let mut bytes = [0; 16];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| "the operating system provides no random numbers".to_owned())?;
    let number = u128::from_be_bytes(bytes) & !(0xf << 76) & !(0x3 << 62) | 0x4 << 76 | 0x2 << 62;
    let digits = format!("{number:032x}");
    let parts = [0..8, 8..12, 12..16, 16..20, 20..32].map(|part| &digits[part]);
    Ok(parts.join("-"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::prelude::BASE64_URL_SAFE_NO_PAD;
    use ring::signature::{RSA_PSS_2048_8192_SHA256, UnparsedPublicKey};
    use serde_json::Value;

    const KEY: &str = include_str!("../../../../../lib/http_client/src/tests/keys/pkcs1.pem");
    const LEAF: &str = include_str!("../../../../../lib/http_client/src/tests/keys/leaf.pem");
    const OTHER: &str = include_str!("../../../../../lib/http_client/src/tests/keys/other.pem");
    const MODERN: &[u8] =
        include_bytes!("../../../../../lib/http_client/src/tests/keys/modern.pfx");
    const LEGACY: &[u8] =
        include_bytes!("../../../../../lib/http_client/src/tests/keys/legacy.pfx");

    #[test]
    fn certificate_is_found_in_pem_and_pkcs12_and_what_is_missing_is_told() {
        let whole = format!("{OTHER}{LEAF}\n{KEY}");
        let (two_keys, alone) = (format!("{whole}{KEY}"), format!("{OTHER}{KEY}"));
        let leaf = PrivateKeyBlock::parse_all(LEAF.as_bytes())
            .unwrap()
            .remove(0)
            .der;
        for (data, password, want) in [
            (whole.as_bytes(), "", Ok(2)),
            (MODERN, "secret", Ok(2)),
            (LEGACY, "", Ok(2)),
            (MODERN, "other", Err("")),
            (two_keys.as_bytes(), "", Err("multiple private keys")),
            (KEY.as_bytes(), "", Err("found no certificate")),
            (LEAF.as_bytes(), "", Err("found no private key")),
            (alone.as_bytes(), "", Err("doesn't match any certificate")),
            (whole.as_bytes(), "secret", Err("")),
            (b"", "", Err("")),
        ] {
            match (
                AzureClientCertificate::parse_certificate(data, password),
                want,
            ) {
                (Ok(read), Ok(count)) => {
                    assert_eq!((&read.chain[0], read.chain.len()), (&leaf, count));
                }
                (Err(told), Err(why)) => assert!(told.contains(why), "{told}, expected {why}"),
                (told, want) => panic!("{told:?}, expected {want:?}"),
            }
        }
    }

    #[test]
    fn statement_is_signed_by_the_key_of_the_certificate_that_it_names() {
        let whole = format!("{OTHER}{LEAF}{KEY}");
        let certificate = AzureClientCertificate::parse_certificate(whole.as_bytes(), "").unwrap();
        for sends_chain in [false, true] {
            let statement = certificate.sign_assertion("c", "https://a/token", 1_000, sends_chain);
            let statement = statement.unwrap();
            let parts: Vec<&str> = statement.split('.').collect();
            let bytes = |at: usize| BASE64_URL_SAFE_NO_PAD.decode(parts[at]).unwrap();
            let [head, claims] = [0, 1].map(|at| serde_json::from_slice::<Value>(&bytes(at)));
            let (head, claims) = (head.unwrap(), claims.unwrap());
            let leaf = &certificate.chain[0];
            let thumbprint = BASE64_STANDARD.encode(digest(&SHA256, leaf));
            assert_eq!(head["x5t#S256"], thumbprint.as_str());
            assert_eq!(
                (&head["alg"], &head["typ"]),
                (&json!("PS256"), &json!("JWT"))
            );
            let chain = head["x5c"].as_array().map(Vec::len);
            assert_eq!(chain, sends_chain.then_some(2));
            for (key, want) in [
                ("aud", json!("https://a/token")),
                ("iss", json!("c")),
                ("sub", json!("c")),
                ("nbf", json!(1_000)),
                ("exp", json!(1_600)),
            ] {
                assert_eq!(claims[key], want);
            }
            let unique = claims["jti"].as_str().unwrap();
            assert_eq!((unique.len(), &unique[14..15]), (36, "4"));
            let key = certificate.key.public().as_ref();
            let key = UnparsedPublicKey::new(&RSA_PSS_2048_8192_SHA256, key);
            let text = format!("{}.{}", parts[0], parts[1]);
            key.verify(text.as_bytes(), &bytes(2)).unwrap();
        }
    }
}

//! RSA private keys in the PEM formats of OpenSSL: unencrypted, encrypted as PKCS #8, or in the
//! traditional encrypted format (`DEK-Info`).
//!
//! Source: RFC 7468, RFC 1421 4.6, RFC 5958, and OpenSSL's `EVP_BytesToKey` for traditional keys.

use aes::{Aes128, Aes192, Aes256};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use cbc::Decryptor;
use cbc::cipher::block_padding::Pkcs7;
use cbc::cipher::{BlockModeDecrypt, KeyIvInit};
use des::TdesEde3;
use md5::{Digest, Md5};
use pkcs8::EncryptedPrivateKeyInfoRef;
use ring::signature::RsaKeyPair;

/// One block of a PEM file, with its label and decoded content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrivateKeyBlock {
    /// Label of the block, such as `RSA PRIVATE KEY`.
    pub label: String,
    /// Value of `DEK-Info` if the block has traditional encryption.
    cipher: Option<String>,
    /// Decoded content of the block.
    pub der: Vec<u8>,
}

impl PrivateKeyBlock {
    /// Returns all blocks of `text` in order; text between them is ignored. Fails if a block has no
    /// end or is not valid base64.
    pub fn parse_all(text: &[u8]) -> Result<Vec<Self>, String> {
        let text = String::from_utf8_lossy(text);
        let mut lines = text.lines().map(str::trim);
        let mut blocks = Vec::new();
        while let Some(line) = lines.next() {
            let Some(label) = marker_label(line, "-----BEGIN ") else {
                continue;
            };
            let (mut cipher, mut body) = (None, String::new());
            loop {
                let line = lines.next().ok_or_else(|| format!("{label}: no end"))?;
                if marker_label(line, "-----END ") == Some(label) {
                    break;
                }
                match line.split_once(':') {
                    Some(("DEK-Info", value)) => cipher = Some(value.trim().to_owned()),
                    Some(_) => {}
                    None => body.push_str(line),
                }
            }
            let der = BASE64_STANDARD.decode(&body);
            blocks.push(Self {
                label: label.to_owned(),
                cipher,
                der: der.map_err(|e| format!("{label}: {e}"))?,
            });
        }
        Ok(blocks)
    }

    /// Decodes the key in the block. Encrypted keys are decrypted with `passphrase`.
    pub fn decode_key(&self, passphrase: &str) -> Result<RsaKeyPair, String> {
        if let Some(cipher) = &self.cipher {
            return decode_der(&decrypt(cipher, &self.der, passphrase.as_bytes())?);
        }
        if self.label == "ENCRYPTED PRIVATE KEY" {
            let sealed = EncryptedPrivateKeyInfoRef::try_from(&self.der[..]);
            let sealed = sealed.map_err(|e| format!("encrypted private key: {e}"))?;
            let opened = sealed.decrypt(passphrase);
            let opened = opened.map_err(|e| format!("decrypt private key: {e}"))?;
            return decode_der(opened.as_bytes());
        }
        decode_der(&self.der)
    }

    /// Returns whether the block contains a private key of any format.
    pub fn is_key(&self) -> bool {
        self.label.ends_with("PRIVATE KEY")
    }
}

/// Returns the label in a line that marks the beginning or end of a block.
fn marker_label<'l>(line: &'l str, mark: &str) -> Option<&'l str> {
    line.strip_prefix(mark)?.strip_suffix("-----")
}

/// Decodes the first private key in a PEM text. Encrypted keys are decrypted with `passphrase`.
pub fn decode_pem(pem: &[u8], passphrase: &str) -> Result<RsaKeyPair, String> {
    let blocks = PrivateKeyBlock::parse_all(pem).map_err(|e| format!("no private key: {e}"))?;
    let key = blocks.iter().find(|block| block.is_key());
    key.ok_or("no private key: no items found")?
        .decode_key(passphrase)
}

/// Decodes an RSA key in DER, as PKCS #8 or PKCS #1.
pub fn decode_der(der: &[u8]) -> Result<RsaKeyPair, String> {
    let pair = RsaKeyPair::from_pkcs8(der).or_else(|_| RsaKeyPair::from_der(der));
    pair.map_err(|e| format!("not a private key of RSA: {e}"))
}

/// Decrypts data with the cipher and initialization vector in a `DEK-Info` value.
fn decrypt(cipher: &str, sealed: &[u8], passphrase: &[u8]) -> Result<Vec<u8>, String> {
    let (name, iv) = cipher.split_once(',').ok_or("DEK-Info without a vector")?;
    let iv = decode_hex(iv.trim()).ok_or("DEK-Info without a vector")?;
    let open = match name.trim() {
        "AES-128-CBC" => decrypt_cbc::<Decryptor<Aes128>>,
        "AES-192-CBC" => decrypt_cbc::<Decryptor<Aes192>>,
        "AES-256-CBC" => decrypt_cbc::<Decryptor<Aes256>>,
        "DES-EDE3-CBC" => decrypt_cbc::<Decryptor<TdesEde3>>,
        other => return Err(format!("private key is encrypted by {other}")),
    };
    open(sealed, passphrase, &iv).ok_or("decrypt private key: wrong passphrase".to_owned())
}

fn decrypt_cbc<D: KeyIvInit + BlockModeDecrypt>(
    sealed: &[u8],
    passphrase: &[u8],
    iv: &[u8],
) -> Option<Vec<u8>> {
    let key = derive_key(passphrase, iv.get(..8)?, D::key_size());
    let decryptor = D::new_from_slices(&key, iv).ok()?;
    decryptor.decrypt_padded_vec::<Pkcs7>(sealed).ok()
}

/// Derives a key of `bytes` bytes with `EVP_BytesToKey`: a chain of MD5 hashes, each over the
/// previous hash, the passphrase and the salt.
fn derive_key(passphrase: &[u8], salt: &[u8], bytes: usize) -> Vec<u8> {
    let mut key = Vec::new();
    let mut last = Vec::new();
    while key.len() < bytes {
        let hash = Md5::new().chain_update(&last).chain_update(passphrase);
        last = hash.chain_update(salt).finalize().to_vec();
        key.extend_from_slice(&last);
    }
    key.truncate(bytes);
    key
}

fn decode_hex(text: &str) -> Option<Vec<u8>> {
    let is_hex = text.len().is_multiple_of(2) && text.bytes().all(|c| c.is_ascii_hexdigit());
    let byte = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).ok();
    is_hex.then(|| (0..text.len()).step_by(2).map(byte).collect())?
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same key in each format that OpenSSL writes; the passphrase is `secret`.
    const FORMS: [&str; 6] = [
        include_str!("tests/keys/pkcs1.pem"),
        include_str!("tests/keys/pkcs8.pem"),
        include_str!("tests/keys/pkcs8-aes256.pem"),
        include_str!("tests/keys/pkcs8-3des.pem"),
        include_str!("tests/keys/pkcs1-aes128.pem"),
        include_str!("tests/keys/pkcs1-3des.pem"),
    ];

    #[test]
    fn key_is_the_same_in_all_forms_and_closed_to_a_wrong_passphrase() {
        let plain = decode_pem(FORMS[0].as_bytes(), "").unwrap();
        for (at, form) in FORMS.iter().enumerate() {
            let key = decode_pem(form.as_bytes(), "secret").unwrap();
            assert_eq!(key.public().as_ref(), plain.public().as_ref(), "{at}");
            let wrong = decode_pem(form.as_bytes(), "other");
            assert_eq!(wrong.is_ok(), at < 2, "{at}");
        }
    }

    #[test]
    fn what_is_no_key_is_told() {
        let cases = [
            ("", "no items found"),
            ("-----BEGIN RSA PRIVATE KEY-----\nAAAA", "no end"),
            (
                "-----BEGIN RSA PRIVATE KEY-----\n*\n-----END RSA PRIVATE KEY-----",
                "RSA PRIVATE KEY: Invalid",
            ),
            (
                "-----BEGIN RSA PRIVATE KEY-----\nAAAA\n-----END RSA PRIVATE KEY-----",
                "not a private key of RSA",
            ),
            (
                "-----BEGIN RSA PRIVATE KEY-----\nDEK-Info: RC4,00\n\nAAAA\n\
                 -----END RSA PRIVATE KEY-----",
                "encrypted by RC4",
            ),
            (
                "-----BEGIN RSA PRIVATE KEY-----\nDEK-Info: AES-128-CBC,zz\n\nAAAA\n\
                 -----END RSA PRIVATE KEY-----",
                "without a vector",
            ),
        ];
        for (text, why) in cases {
            let told = decode_pem(text.as_bytes(), "secret").unwrap_err();
            assert!(told.contains(why), "{told}, expected {why}");
        }
    }
}

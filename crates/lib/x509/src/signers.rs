//! Private keys that sign TLS handshakes, by ring, or by RustCrypto for keys that ring does not
//! support: P-521, and RSA below 2048 or above 4096 bits.

use p521::ecdsa::signature::hazmat::PrehashSigner;
use p521::pkcs8::{DecodePrivateKey, EncodePrivateKey, EncodePublicKey};
use ring::rand::{SecureRandom, SystemRandom};
use rsa::pkcs1::DecodeRsaPrivateKey;
use rsa::rand_core::{TryCryptoRng, TryRng};
use rsa::traits::PublicKeyParts;
use rsa::{Pkcs1v15Sign, PrivateKey, Pss};
use rustls::crypto::ring::sign::any_supported_type;
use rustls::pki_types::{
    PrivateKeyDer, PrivatePkcs1KeyDer, PrivatePkcs8KeyDer, PrivateSec1KeyDer,
    SubjectPublicKeyInfoDer,
};
use rustls::sign::{Signer, SigningKey};
use rustls::{Error, SignatureAlgorithm, SignatureScheme};
use sha2::{Digest, Sha256, Sha384, Sha512};
use std::sync::Arc;

/// RSA signature schemes with the minimum size in bytes of the modulus for each.
const RSA_SCHEMES: [(SignatureScheme, usize); 6] = [
    (SignatureScheme::RSA_PSS_SHA256, 66),
    (SignatureScheme::RSA_PSS_SHA384, 98),
    (SignatureScheme::RSA_PSS_SHA512, 130),
    (SignatureScheme::RSA_PKCS1_SHA256, 62),
    (SignatureScheme::RSA_PKCS1_SHA384, 78),
    (SignatureScheme::RSA_PKCS1_SHA512, 94),
];

const RSA_BITS_MIN: usize = 1024;

/// Parses a private key in DER, as PKCS #1, PKCS #8 or SEC 1.
pub(crate) fn parse_signing_key(der: &[u8]) -> Result<Arc<dyn SigningKey>, String> {
    let forms = [
        PrivateKeyDer::from(PrivatePkcs1KeyDer::from(der)),
        PrivateKeyDer::from(PrivatePkcs8KeyDer::from(der)),
        PrivateKeyDer::from(PrivateSec1KeyDer::from(der)),
    ];
    if let Some(key) = forms.iter().find_map(|form| any_supported_type(form).ok()) {
        return Ok(key);
    }
    if let Some(key) = parse_ecdsa_key(der) {
        return Ok(key);
    }
    let rsa = PrivateKey::from_pkcs1_der(der).or_else(|_| PrivateKey::from_pkcs8_der(der));
    match rsa {
        Ok(key) => RsaSigningKey::new(key).map(|key| Arc::new(key) as _),
        Err(_) => Err("tls: failed to parse private key".to_owned()),
    }
}

/// Parses a P-521 key, or a key of another curve without its public half, which ring requires.
fn parse_ecdsa_key(der: &[u8]) -> Option<Arc<dyn SigningKey>> {
    let p521 = p521::SecretKey::from_pkcs8_der(der);
    if let Ok(key) = p521.or_else(|_| p521::SecretKey::from_sec1_der(der)) {
        let public = key.public_key().to_public_key_der().ok()?;
        return Some(Arc::new(P521SigningKey {
            key: Arc::new(key.into()),
            public: public.as_bytes().to_vec(),
        }));
    }
    macro_rules! completed {
        ($curve:ident) => {{
            let key = $curve::SecretKey::from_pkcs8_der(der);
            let key = key.or_else(|_| $curve::SecretKey::from_sec1_der(der));
            key.ok().and_then(|key| key.to_pkcs8_der().ok())
        }};
    }
    let whole = completed!(p256).or_else(|| completed!(p384))?;
    let whole = PrivatePkcs8KeyDer::from(whole.as_bytes());
    any_supported_type(&PrivateKeyDer::from(whole)).ok()
}

/// Returns the first scheme in the peer's list that is also in `own`.
fn preferred_scheme(
    own: &[SignatureScheme],
    offered: &[SignatureScheme],
) -> Option<SignatureScheme> {
    offered.iter().copied().find(|scheme| own.contains(scheme))
}

fn signing_error(_: impl std::fmt::Display) -> Error {
    Error::General("signing failed".to_owned())
}

/// A P-521 private key, which signs with RustCrypto because ring does not support the curve.
#[derive(Debug)]
struct P521SigningKey {
    key: Arc<p521::ecdsa::SigningKey>,
    public: Vec<u8>,
}

impl SigningKey for P521SigningKey {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        preferred_scheme(&[SignatureScheme::ECDSA_NISTP521_SHA512], offered)?;
        Some(Box::new(P521Signer(self.key.clone())))
    }

    fn public_key(&self) -> Option<SubjectPublicKeyInfoDer<'_>> {
        Some(SubjectPublicKeyInfoDer::from(&self.public[..]))
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        SignatureAlgorithm::ECDSA
    }
}

#[derive(Debug)]
struct P521Signer(Arc<p521::ecdsa::SigningKey>);

impl Signer for P521Signer {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, Error> {
        let hash = Sha512::digest(message);
        let signature: p521::ecdsa::Signature =
            self.0.sign_prehash(&hash).map_err(signing_error)?;
        Ok(signature.to_der().as_bytes().to_vec())
    }

    fn scheme(&self) -> SignatureScheme {
        SignatureScheme::ECDSA_NISTP521_SHA512
    }
}

/// An RSA private key of a size that ring does not support, which signs with RustCrypto.
#[derive(Debug)]
struct RsaSigningKey {
    key: Arc<PrivateKey>,
    public: Vec<u8>,
    schemes: Vec<SignatureScheme>,
}

impl RsaSigningKey {
    fn new(key: PrivateKey) -> Result<Self, String> {
        let bits = key.n().bit_width_vartime() as usize;
        if bits < RSA_BITS_MIN {
            return Err(format!(
                "crypto/rsa: {bits}-bit keys are insecure \
                 (see https://go.dev/pkg/crypto/rsa#hdr-Minimum_key_size)"
            ));
        }
        let public = key.to_public_key().to_public_key_der();
        let public = public.map_err(|e| format!("tls: failed to parse private key: {e}"))?;
        let has_room = |(scheme, bytes): &(_, usize)| (key.size() >= *bytes).then_some(*scheme);
        let schemes = RSA_SCHEMES.iter().filter_map(has_room).collect();
        Ok(Self {
            public: public.as_bytes().to_vec(),
            schemes,
            key: Arc::new(key),
        })
    }
}

impl SigningKey for RsaSigningKey {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        let scheme = preferred_scheme(&self.schemes, offered)?;
        let key = self.key.clone();
        Some(Box::new(RsaSigner { key, scheme }))
    }

    fn public_key(&self) -> Option<SubjectPublicKeyInfoDer<'_>> {
        Some(SubjectPublicKeyInfoDer::from(&self.public[..]))
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        SignatureAlgorithm::RSA
    }
}

#[derive(Debug)]
struct RsaSigner {
    key: Arc<PrivateKey>,
    scheme: SignatureScheme,
}

impl RsaSigner {
    fn sign_padded(
        &self,
        padding: impl rsa::traits::SignatureScheme,
        hash: &[u8],
    ) -> Result<Vec<u8>, Error> {
        let mut random = SystemRandomness(SystemRandom::new());
        let signature = self.key.sign_with_rng(&mut random, padding, hash);
        signature.map_err(signing_error)
    }
}

impl Signer for RsaSigner {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, Error> {
        let (sha256, sha384) = (Sha256::digest(message), Sha384::digest(message));
        let sha512 = Sha512::digest(message);
        match self.scheme {
            SignatureScheme::RSA_PSS_SHA256 => self.sign_padded(Pss::<Sha256>::new(), &sha256),
            SignatureScheme::RSA_PSS_SHA384 => self.sign_padded(Pss::<Sha384>::new(), &sha384),
            SignatureScheme::RSA_PSS_SHA512 => self.sign_padded(Pss::<Sha512>::new(), &sha512),
            SignatureScheme::RSA_PKCS1_SHA256 => {
                self.sign_padded(Pkcs1v15Sign::new::<Sha256>(), &sha256)
            }
            SignatureScheme::RSA_PKCS1_SHA384 => {
                self.sign_padded(Pkcs1v15Sign::new::<Sha384>(), &sha384)
            }
            _ => self.sign_padded(Pkcs1v15Sign::new::<Sha512>(), &sha512),
        }
    }

    fn scheme(&self) -> SignatureScheme {
        self.scheme
    }
}

/// The system's random number generator in ring, adapted to RustCrypto.
struct SystemRandomness(SystemRandom);

/// Error for a system that provides no random numbers.
#[derive(Debug, thiserror::Error)]
#[error("no randomness from the system")]
struct RandomnessError;

impl TryRng for SystemRandomness {
    type Error = RandomnessError;

    fn try_next_u32(&mut self) -> Result<u32, RandomnessError> {
        let mut bytes = [0; 4];
        self.try_fill_bytes(&mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }

    fn try_next_u64(&mut self) -> Result<u64, RandomnessError> {
        let mut bytes = [0; 8];
        self.try_fill_bytes(&mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), RandomnessError> {
        self.0.fill(bytes).map_err(|_| RandomnessError)
    }
}

impl TryCryptoRng for SystemRandomness {}

//! Public keys of certificates, and the verification of signatures with them.
//!
//! ring verifies the algorithms that it supports; RustCrypto verifies RSA keys of other sizes,
//! P-521, and ECDSA with SHA-512. Invariant: a signature is verified only with an algorithm of the
//! key's kind, and hashes older than SHA-256 are rejected, as in Go.

use super::certificate::AlgorithmIdentifier;
use super::der::{self, DerReader, INTEGER, SEQUENCE};
use p256::ecdsa::signature::hazmat::PrehashVerifier;
use ring::digest;
use ring::signature::{self as by_ring, UnparsedPublicKey, VerificationAlgorithm};
use rsa::{BoxedUint, Pkcs1v15Sign, Pss, PublicKey as RsaPublic};
use sha2::{Sha256, Sha384, Sha512};

/// Encoded NULL, the required parameters of an RSA key.
const NULL: &[u8] = &[5, 0];

/// Encoded object identifiers and prefixes of them: 1.2.840.113549.1.1, 1.2.840.10045.4 and others.
const PKCS1: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1];
const ECDSA_SHA2: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3];
const ECDSA_SHA1: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 1];
const DSA_SHA1: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x38, 4, 3];
const ISO_RSA_SHA1: &[u8] = &[0x2b, 0x0e, 3, 2, 0x1d];
const SHA2: &[u8] = &[0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2];
const ED25519: &[u8] = &[0x2b, 0x65, 0x70];
const DSA: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x38, 4, 1];
const ECDSA: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1];
const P224: &[u8] = &[0x2b, 0x81, 4, 0, 0x21];
const P256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7];
const P384: &[u8] = &[0x2b, 0x81, 4, 0, 0x22];
const P521: &[u8] = &[0x2b, 0x81, 4, 0, 0x23];

/// Limits on the size of an RSA modulus in bits. Go rejects smaller keys; larger ones would take
/// seconds to verify.
const RSA_BITS_MIN: usize = 1024;
const RSA_BITS_MAX: usize = 16 << 10;

/// Sizes of RSA keys in bits that ring supports.
const RSA_BITS_OF_RING: std::ops::RangeInclusive<usize> = 2048..=8192;

/// A hash function of the SHA-2 family, the only ones that signatures may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sha2Hash {
    Sha256,
    Sha384,
    Sha512,
}

/// Algorithm of a signature, including its hash, as named in certificates and handshakes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SignatureKind {
    Rsa(Sha2Hash),
    RsaPss(Sha2Hash),
    Ecdsa(Sha2Hash),
    Ed25519,
    /// An algorithm with a broken hash, by its name in Go.
    Insecure(&'static str),
    Unsupported,
}

/// An elliptic curve for ECDSA that ring or RustCrypto supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EllipticCurve {
    P256,
    P384,
    P521,
}

/// A parsed public key of a certificate, by the kind of its algorithm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PublicKey {
    Rsa(RsaKey),
    Ecdsa(EllipticCurve, Vec<u8>),
    Ed25519(Vec<u8>),
    /// A key of a kind that Go parses but that TLS does not use, with its name.
    Useless(&'static str),
    Unknown,
}

/// RSA modulus and exponent, big-endian without leading zeros.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RsaKey {
    modulus: Vec<u8>,
    exponent: Vec<u8>,
}

/// Why a signature is rejected, with the error text of Go.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SignatureRejection {
    #[error("x509: cannot verify signature: insecure algorithm {0}")]
    Insecure(&'static str),
    #[error("x509: cannot verify signature: algorithm unimplemented")]
    Unsupported,
    #[error("x509: signature algorithm specifies another kind of public key")]
    OtherKind,
    #[error(
        "crypto/rsa: {0}-bit keys are insecure \
         (see https://go.dev/pkg/crypto/rsa#hdr-Minimum_key_size)"
    )]
    SmallKey(usize),
    #[error("RSA key too large: {0} bits, limit {RSA_BITS_MAX}")]
    LargeKey(usize),
    #[error("crypto/rsa: public modulus or exponent is invalid")]
    BadKey,
    #[error("{0}")]
    Wrong(&'static str),
}

impl Sha2Hash {
    fn digest(self, message: &[u8]) -> digest::Digest {
        let algorithm = match self {
            Self::Sha256 => &digest::SHA256,
            Self::Sha384 => &digest::SHA384,
            Self::Sha512 => &digest::SHA512,
        };
        digest::digest(algorithm, message)
    }

    fn read(der: DerReader<'_>) -> Option<Self> {
        let id = AlgorithmIdentifier::read(der).ok()?;
        let has_parameters = !id.parameters.is_empty() && id.parameters != NULL;
        match id.oid.strip_prefix(SHA2)? {
            [1] if !has_parameters => Some(Self::Sha256),
            [2] if !has_parameters => Some(Self::Sha384),
            [3] if !has_parameters => Some(Self::Sha512),
            _ => None,
        }
    }

    /// Returns the size in bytes of the hash, which is also the salt size of PSS.
    const fn bytes(self) -> usize {
        match self {
            Self::Sha256 => 32,
            Self::Sha384 => 48,
            Self::Sha512 => 64,
        }
    }
}

impl SignatureKind {
    pub(crate) fn read(id: AlgorithmIdentifier<'_>) -> Self {
        if id.oid == ED25519 && id.parameters.is_empty() {
            return Self::Ed25519;
        }
        if let Some([number]) = id.oid.strip_prefix(PKCS1) {
            return match number {
                4 => Self::Insecure("MD5-RSA"),
                5 => Self::Insecure("SHA1-RSA"),
                10 => {
                    pss_hash(DerReader::new(id.parameters)).map_or(Self::Unsupported, Self::RsaPss)
                }
                11 => Self::Rsa(Sha2Hash::Sha256),
                12 => Self::Rsa(Sha2Hash::Sha384),
                13 => Self::Rsa(Sha2Hash::Sha512),
                _ => Self::Unsupported,
            };
        }
        match id.oid.strip_prefix(ECDSA_SHA2) {
            Some([2]) => return Self::Ecdsa(Sha2Hash::Sha256),
            Some([3]) => return Self::Ecdsa(Sha2Hash::Sha384),
            Some([4]) => return Self::Ecdsa(Sha2Hash::Sha512),
            _ => {}
        }
        match id.oid {
            ISO_RSA_SHA1 => Self::Insecure("SHA1-RSA"),
            ECDSA_SHA1 => Self::Insecure("ECDSA-SHA1"),
            DSA_SHA1 => Self::Insecure("DSA-SHA1"),
            _ => Self::Unsupported,
        }
    }
}

/// Parses the parameters of RSASSA-PSS. Returns their hash if it is used everywhere and the salt
/// has the same size.
fn pss_hash(mut parameters: DerReader<'_>) -> Option<Sha2Hash> {
    let mut fields = parameters.open(SEQUENCE)?;
    let mut hash = fields.open(der::constructed_tag(0))?;
    let hash = Sha2Hash::read(hash.open(SEQUENCE)?)?;
    let mut mask = fields.open(der::constructed_tag(1))?;
    let mask = AlgorithmIdentifier::read(mask.open(SEQUENCE)?).ok()?;
    let mask_hash = Sha2Hash::read(DerReader::new(mask.parameters).open(SEQUENCE)?)?;
    let is_mask = mask.oid.strip_prefix(PKCS1) == Some(&[8]);
    let salt_bytes = fields
        .open(der::constructed_tag(2))?
        .read_small_integer(INTEGER)?;
    let trailer = match fields.read_optional(der::constructed_tag(3))? {
        Some(mut trailer) => trailer.read_small_integer(INTEGER)?,
        None => 1,
    };
    let is_salt = usize::try_from(salt_bytes) == Ok(hash.bytes());
    (is_mask && mask_hash == hash && is_salt && trailer == 1).then_some(hash)
}

impl EllipticCurve {
    fn from_oid(oid: &[u8]) -> Option<Self> {
        Some(match oid {
            P256 => Self::P256,
            P384 => Self::P384,
            P521 => Self::P521,
            _ => return None,
        })
    }

    fn has_point(self, point: &[u8]) -> bool {
        match self {
            Self::P256 => p256::ecdsa::VerifyingKey::from_sec1_bytes(point).is_ok(),
            Self::P384 => p384::ecdsa::VerifyingKey::from_sec1_bytes(point).is_ok(),
            Self::P521 => p521::ecdsa::VerifyingKey::from_sec1_bytes(point).is_ok(),
        }
    }

    /// Returns the algorithm of ring, or `None` if ring does not support the combination.
    fn ring_algorithm(self, hash: Sha2Hash) -> Option<&'static dyn VerificationAlgorithm> {
        Some(match (self, hash) {
            (Self::P256, Sha2Hash::Sha256) => &by_ring::ECDSA_P256_SHA256_ASN1,
            (Self::P256, Sha2Hash::Sha384) => &by_ring::ECDSA_P256_SHA384_ASN1,
            (Self::P384, Sha2Hash::Sha256) => &by_ring::ECDSA_P384_SHA256_ASN1,
            (Self::P384, Sha2Hash::Sha384) => &by_ring::ECDSA_P384_SHA384_ASN1,
            _ => return None,
        })
    }
}

impl PublicKey {
    /// Parses a public key. Keys of supported kinds must be well-formed; others are unknown.
    pub(crate) fn read(
        algorithm: AlgorithmIdentifier<'_>,
        bytes: &[u8],
    ) -> Result<Self, &'static str> {
        let has_parameters = !algorithm.parameters.is_empty();
        let oid = algorithm.oid;
        match oid {
            _ if oid.strip_prefix(PKCS1) == Some(&[1]) => match algorithm.parameters {
                NULL => RsaKey::read(DerReader::new(bytes)).map(Self::Rsa),
                _ => Err("RSA key missing NULL parameters"),
            },
            ECDSA => parse_ecdsa_key(DerReader::new(algorithm.parameters), bytes),
            ED25519 if has_parameters => Err("Ed25519 key encoded with illegal parameters"),
            ED25519 if bytes.len() != 32 => Err("wrong Ed25519 public key size"),
            ED25519 => Ok(Self::Ed25519(bytes.to_vec())),
            DSA => check_dsa_key(DerReader::new(algorithm.parameters), DerReader::new(bytes)),
            _ => Ok(Self::Unknown),
        }
    }

    pub(crate) fn is_unknown(&self) -> bool {
        *self == Self::Unknown
    }

    /// Returns the size of the modulus in bits for an RSA key.
    pub(crate) fn rsa_bits(&self) -> Option<usize> {
        match self {
            Self::Rsa(key) => Some(key.bits()),
            _ => None,
        }
    }

    /// Verifies the signature of a message. Fails if the signature algorithm does not belong to the
    /// key's kind.
    pub(crate) fn check(
        &self,
        kind: SignatureKind,
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), SignatureRejection> {
        match (kind, self) {
            (SignatureKind::Insecure(name), _) => Err(SignatureRejection::Insecure(name)),
            (SignatureKind::Unsupported, _) | (_, Self::Useless(_) | Self::Unknown) => {
                Err(SignatureRejection::Unsupported)
            }
            (SignatureKind::Rsa(hash), Self::Rsa(key)) => key.check_pkcs1(hash, message, signature),
            (SignatureKind::RsaPss(hash), Self::Rsa(key)) => {
                key.check_pss(hash, message, signature)
            }
            (SignatureKind::Ecdsa(hash), Self::Ecdsa(curve, point)) => {
                let key = EcdsaVerifier {
                    curve: *curve,
                    hash,
                    point,
                };
                key.check(message, signature)
            }
            (SignatureKind::Ed25519, Self::Ed25519(key)) => {
                let key = UnparsedPublicKey::new(&by_ring::ED25519, key);
                let checked = key.verify(message, signature);
                checked.map_err(|_| SignatureRejection::Wrong("x509: Ed25519 verification failure"))
            }
            _ => Err(SignatureRejection::OtherKind),
        }
    }
}

fn parse_ecdsa_key(mut parameters: DerReader<'_>, point: &[u8]) -> Result<PublicKey, &'static str> {
    const UNCOMPRESSED: u8 = 4;
    let oid = parameters.read_oid().ok_or("invalid ECDSA parameters")?;
    if oid == P224 {
        return Ok(PublicKey::Useless("ECDSA P-224, use P-256"));
    }
    let curve = EllipticCurve::from_oid(oid).ok_or("unsupported elliptic curve")?;
    if point.first() == Some(&UNCOMPRESSED) && curve.has_point(point) {
        Ok(PublicKey::Ecdsa(curve, point.to_vec()))
    } else {
        Err("invalid ECDSA public key")
    }
}

fn check_dsa_key(
    mut parameters: DerReader<'_>,
    mut key: DerReader<'_>,
) -> Result<PublicKey, &'static str> {
    let mut read = || {
        let mut fields = parameters.open(SEQUENCE)?;
        fields.read_positive_integer()?;
        fields.read_positive_integer()?;
        fields.read_positive_integer()?;
        key.read_positive_integer()
    };
    read().ok_or("invalid DSA public key")?;
    Ok(PublicKey::Useless("DSA"))
}

impl RsaKey {
    fn read(mut der: DerReader<'_>) -> Result<Self, &'static str> {
        let mut fields = der.open(SEQUENCE).ok_or("invalid RSA public key")?;
        let modulus = fields
            .read_positive_integer()
            .ok_or("invalid RSA modulus")?;
        let exponent = fields
            .read_positive_integer()
            .filter(|e| e.len() <= size_of::<u64>());
        let exponent = exponent.filter(|e| e.len() < 8 || e.first() < Some(&0x80));
        Ok(Self {
            modulus: modulus.to_vec(),
            exponent: exponent.ok_or("invalid RSA public exponent")?.to_vec(),
        })
    }

    fn bits(&self) -> usize {
        let zeros = self
            .modulus
            .first()
            .map_or(0, |first| first.leading_zeros());
        (8 * self.modulus.len()).saturating_sub(zeros as usize)
    }

    /// Checks the key for sizes and exponents that Go rejects.
    fn check_size(&self) -> Result<(), SignatureRejection> {
        const EXPONENT_BYTES_MAX: usize = 4;
        let is_odd = |bytes: &[u8]| bytes.last().is_some_and(|last| last % 2 == 1);
        let bits = self.bits();
        if bits < RSA_BITS_MIN {
            return Err(SignatureRejection::SmallKey(bits));
        }
        if bits > RSA_BITS_MAX {
            return Err(SignatureRejection::LargeKey(bits));
        }
        let exponent = &self.exponent;
        let is_large = exponent.len() > EXPONENT_BYTES_MAX
            || exponent.len() == EXPONENT_BYTES_MAX && exponent.first() >= Some(&0x80);
        if is_odd(&self.modulus) && is_odd(exponent) && *exponent != [1] && !is_large {
            Ok(())
        } else {
            Err(SignatureRejection::BadKey)
        }
    }

    fn check_pkcs1(
        &self,
        hash: Sha2Hash,
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), SignatureRejection> {
        self.check_size()?;
        let algorithm = match hash {
            Sha2Hash::Sha256 => &by_ring::RSA_PKCS1_2048_8192_SHA256,
            Sha2Hash::Sha384 => &by_ring::RSA_PKCS1_2048_8192_SHA384,
            Sha2Hash::Sha512 => &by_ring::RSA_PKCS1_2048_8192_SHA512,
        };
        if RSA_BITS_OF_RING.contains(&self.bits()) {
            return self.check_by_ring(algorithm, message, signature);
        }
        let scheme = match hash {
            Sha2Hash::Sha256 => Pkcs1v15Sign::new::<Sha256>(),
            Sha2Hash::Sha384 => Pkcs1v15Sign::new::<Sha384>(),
            Sha2Hash::Sha512 => Pkcs1v15Sign::new::<Sha512>(),
        };
        self.check_hashed(scheme, &hash.digest(message), signature)
    }

    fn check_pss(
        &self,
        hash: Sha2Hash,
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), SignatureRejection> {
        self.check_size()?;
        let algorithm = match hash {
            Sha2Hash::Sha256 => &by_ring::RSA_PSS_2048_8192_SHA256,
            Sha2Hash::Sha384 => &by_ring::RSA_PSS_2048_8192_SHA384,
            Sha2Hash::Sha512 => &by_ring::RSA_PSS_2048_8192_SHA512,
        };
        if RSA_BITS_OF_RING.contains(&self.bits()) {
            return self.check_by_ring(algorithm, message, signature);
        }
        let hashed = hash.digest(message);
        match hash {
            Sha2Hash::Sha256 => self.check_hashed(Pss::<Sha256>::new(), &hashed, signature),
            Sha2Hash::Sha384 => self.check_hashed(Pss::<Sha384>::new(), &hashed, signature),
            Sha2Hash::Sha512 => self.check_hashed(Pss::<Sha512>::new(), &hashed, signature),
        }
    }

    fn check_by_ring(
        &self,
        algorithm: &'static by_ring::RsaParameters,
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), SignatureRejection> {
        let key = by_ring::RsaPublicKeyComponents {
            n: &self.modulus,
            e: &self.exponent,
        };
        let checked = key.verify(algorithm, message, signature);
        checked.map_err(|_| SignatureRejection::Wrong("crypto/rsa: verification error"))
    }

    /// Verifies a signature with RustCrypto, for key sizes that ring does not support.
    fn check_hashed(
        &self,
        scheme: impl rsa::traits::SignatureScheme,
        hashed: &digest::Digest,
        signature: &[u8],
    ) -> Result<(), SignatureRejection> {
        let modulus = BoxedUint::from_be_slice_vartime(&self.modulus);
        let exponent = BoxedUint::from_be_slice_vartime(&self.exponent);
        let key = RsaPublic::new_with_size_limits(modulus, exponent, RSA_BITS_MIN..=RSA_BITS_MAX);
        let key = key.map_err(|_| SignatureRejection::BadKey)?;
        let checked = key.verify(scheme, hashed.as_ref(), signature);
        checked.map_err(|_| SignatureRejection::Wrong("crypto/rsa: verification error"))
    }
}

/// An ECDSA verification with the curve and point of the key, and a hash.
struct EcdsaVerifier<'k> {
    curve: EllipticCurve,
    hash: Sha2Hash,
    point: &'k [u8],
}

impl EcdsaVerifier<'_> {
    fn check(&self, message: &[u8], signature: &[u8]) -> Result<(), SignatureRejection> {
        let is_right = match self.curve.ring_algorithm(self.hash) {
            Some(algorithm) => {
                let key = UnparsedPublicKey::new(algorithm, self.point);
                key.verify(message, signature).is_ok()
            }
            None => self.is_right(self.hash.digest(message).as_ref(), signature),
        };
        is_right.then_some(()).ok_or(SignatureRejection::Wrong(
            "x509: ECDSA verification failure",
        ))
    }

    fn is_right(&self, hash: &[u8], signature: &[u8]) -> bool {
        macro_rules! is_right {
            ($curve:ident) => {{
                let key = $curve::ecdsa::VerifyingKey::from_sec1_bytes(self.point);
                let signature = $curve::ecdsa::Signature::from_der(signature);
                match (key, signature) {
                    (Ok(key), Ok(signature)) => key.verify_prehash(hash, &signature).is_ok(),
                    _ => false,
                }
            }};
        }
        match self.curve {
            EllipticCurve::P256 => is_right!(p256),
            EllipticCurve::P384 => is_right!(p384),
            EllipticCurve::P521 => is_right!(p521),
        }
    }
}

//! Parser of X.509 certificates that is as strict as Go's `x509.ParseCertificate`.
//!
//! Invariant: each parsed field is valid by itself: strings match their alphabet, and extensions
//! are unique. Certificates that Go cannot parse return [`MalformedCertificate`] with Go's text.

use super::der::{self, BitString, DerReader, INTEGER, OID, SEQUENCE, SET};
use super::extensions::CertificateExtensions;
use super::key::{PublicKey, SignatureKind};
use super::validity::CertificateValidity;

/// Highest valid certificate version.
const VERSION_MAX: i64 = 3;

const COMMON_NAME: &[u8] = &[0x55, 4, 3];
const ORGANIZATION: &[u8] = &[0x55, 4, 10];

/// Error for bytes that are not a valid certificate; contains Go's text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("x509: {0}")]
pub struct MalformedCertificate(pub String);

impl From<&str> for MalformedCertificate {
    fn from(reason: &str) -> Self {
        Self(reason.to_owned())
    }
}

/// A parsed certificate, with the encoded fields that verification needs.
#[derive(Clone, Debug)]
pub struct X509Certificate {
    pub(crate) raw: Vec<u8>,
    /// The signed part of the certificate (`tbsCertificate`).
    pub(crate) signed: Vec<u8>,
    pub(crate) signature_kind: SignatureKind,
    pub(crate) signature: Vec<u8>,
    /// Version of the certificate, from 1 to 3.
    pub(crate) version: i64,
    pub(crate) issuer: Vec<u8>,
    pub(crate) subject: CertificateSubject,
    pub(crate) validity: CertificateValidity,
    /// The encoded public key with its algorithm (`SubjectPublicKeyInfo`).
    pub(crate) key_info: Vec<u8>,
    pub(crate) key: PublicKey,
    pub(crate) extensions: CertificateExtensions,
}

/// The encoded subject, and the parts of it that appear in error texts.
#[derive(Clone, Debug, Default)]
pub(crate) struct CertificateSubject {
    pub raw: Vec<u8>,
    pub common_name: String,
    pub organization: Option<String>,
}

impl X509Certificate {
    /// Parses a certificate in DER. Trailing bytes are an error.
    pub fn parse(bytes: &[u8]) -> Result<Self, MalformedCertificate> {
        let mut outer = DerReader::new(bytes);
        let whole = outer.read_whole(SEQUENCE);
        let whole = whole.ok_or("malformed certificate")?;
        let mut body = DerReader::new(whole.content);
        let to_be_signed = body.read_whole(SEQUENCE);
        let to_be_signed = to_be_signed.ok_or("malformed tbs certificate")?;
        let mut fields = DerReader::new(to_be_signed.content);
        let version = parse_version(&mut fields)?;
        let serial = fields
            .read_integer(INTEGER)
            .ok_or("malformed serial number")?;
        if serial.first().is_some_and(|b| *b >= 0x80) {
            return Err("negative serial number".into());
        }
        let inner = fields.read(SEQUENCE);
        let inner = inner.ok_or("malformed signature algorithm identifier")?;
        let named = body
            .read(SEQUENCE)
            .ok_or("malformed algorithm identifier")?;
        if inner != named {
            return Err("inner and outer signature algorithm identifiers don't match".into());
        }
        let signature_kind = SignatureKind::read(AlgorithmIdentifier::read(DerReader::new(inner))?);
        let issuer = parse_subject(&mut fields)?;
        let validity = fields.open(SEQUENCE).ok_or("malformed validity")?;
        let validity = CertificateValidity::read(validity)?;
        let subject = parse_subject(&mut fields)?;
        let key_info = fields.read_whole(SEQUENCE);
        let key_info = key_info.ok_or("malformed spki")?;
        let key = parse_key(DerReader::new(key_info.content))?;
        let extensions = parse_extensions(version, &mut fields)?;
        let signature = body.read_bits().ok_or("malformed signature")?;
        if !outer.is_empty() {
            return Err("trailing data".into());
        }
        Ok(Self {
            raw: whole.whole.to_vec(),
            signed: to_be_signed.whole.to_vec(),
            signature_kind,
            signature: signature.right_aligned(),
            version,
            issuer: issuer.raw,
            subject,
            validity,
            key_info: key_info.whole.to_vec(),
            key,
            extensions,
        })
    }

    /// Returns the subject alternative names, for which the certificate is valid.
    pub fn names(&self) -> &super::AlternativeNames {
        &self.extensions.names
    }

    /// Returns the name of the certificate in error texts: its common name, or else its
    /// organization.
    pub(crate) fn title(&self) -> &str {
        match &self.subject.organization {
            Some(organization) if self.subject.common_name.is_empty() => organization,
            _ => &self.subject.common_name,
        }
    }
}

/// Identifier of an algorithm with its encoded parameters, which are empty if missing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AlgorithmIdentifier<'d> {
    pub oid: &'d [u8],
    pub parameters: &'d [u8],
}

impl<'d> AlgorithmIdentifier<'d> {
    pub(crate) fn read(mut der: DerReader<'d>) -> Result<Self, &'static str> {
        let oid = der.read_oid().ok_or("malformed OID")?;
        let parameters = if der.is_empty() {
            &[][..]
        } else {
            der.read_any().ok_or("malformed parameters")?.whole
        };
        Ok(Self { oid, parameters })
    }
}

fn parse_version(fields: &mut DerReader<'_>) -> Result<i64, MalformedCertificate> {
    let given = fields
        .read_optional(der::constructed_tag(0))
        .ok_or("malformed version")?;
    let Some(mut given) = given else {
        return Ok(1);
    };
    let version = given.read_small_integer(INTEGER).filter(|v| *v >= 0);
    match version.filter(|_| given.is_empty()) {
        Some(version) if version < VERSION_MAX => Ok(version + 1),
        Some(_) => Err("invalid version".into()),
        None => Err("malformed version".into()),
    }
}

/// Parses a distinguished name. Keeps its encoding, common name and first organization.
fn parse_subject(fields: &mut DerReader<'_>) -> Result<CertificateSubject, MalformedCertificate> {
    let whole = fields.read_whole(SEQUENCE);
    let whole = whole.ok_or("malformed issuer")?;
    let mut subject = CertificateSubject {
        raw: whole.whole.to_vec(),
        ..Default::default()
    };
    let mut parts = DerReader::new(whole.content);
    while !parts.is_empty() {
        let mut set = parts.open(SET).ok_or("invalid RDNSequence")?;
        while !set.is_empty() {
            let attribute = set.open(SEQUENCE);
            let mut attribute = attribute.ok_or("invalid RDNSequence: invalid attribute")?;
            let kind = attribute.read_oid();
            let kind = kind.ok_or("invalid RDNSequence: invalid attribute type")?;
            let value = attribute.read_any();
            let value = value.ok_or("invalid RDNSequence: invalid attribute value")?;
            let text = decode_text(value.tag, value.content).map_err(|e| {
                MalformedCertificate(format!("invalid RDNSequence: invalid attribute value: {e}"))
            })?;
            match kind {
                COMMON_NAME => subject.common_name = text,
                ORGANIZATION if subject.organization.is_none() => {
                    subject.organization = Some(text);
                }
                _ => {}
            }
        }
    }
    Ok(subject)
}

/// Decodes a string of an ASN.1 type. Fails if it contains characters outside of the type's
/// alphabet.
fn decode_text(tag: u8, bytes: &[u8]) -> Result<String, &'static str> {
    let ascii = |is_allowed: fn(&u8) -> bool, refused| {
        if bytes.iter().all(is_allowed) {
            Ok(String::from_utf8_lossy(bytes).into_owned())
        } else {
            Err(refused)
        }
    };
    match tag {
        0x14 => Ok(bytes.iter().map(|b| char::from(*b)).collect()),
        0x13 => ascii(is_printable, "invalid PrintableString"),
        0x16 => ascii(u8::is_ascii, "invalid IA5String"),
        0x12 => ascii(
            |b| b.is_ascii_digit() || *b == b' ',
            "invalid NumericString",
        ),
        0x0c => match str::from_utf8(bytes) {
            Ok(text) => Ok(text.to_owned()),
            Err(_) => Err("invalid UTF-8 string"),
        },
        0x1e => decode_two_byte_text(bytes).ok_or("invalid BMPString"),
        _ => Err("unsupported string type"),
    }
}

/// Returns whether a PrintableString may contain `byte`. `*` and `&` are accepted, because real
/// certificates contain them.
fn is_printable(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || b"'()+,-./ :=?*&".contains(byte)
}

/// Decodes a BMPString: two bytes per character, without surrogates and noncharacters. A
/// terminating zero is removed.
fn decode_two_byte_text(bytes: &[u8]) -> Option<String> {
    let (units, rest) = bytes.as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    let units = units.strip_suffix(&[[0, 0]]).unwrap_or(units);
    let units = units.iter().map(|unit| u16::from_be_bytes(*unit));
    let one = |unit| match unit {
        0xfffe | 0xffff | 0xfdd0..=0xfdef => None,
        unit => char::from_u32(u32::from(unit)),
    };
    units.map(one).collect()
}

fn parse_key(mut der: DerReader<'_>) -> Result<PublicKey, MalformedCertificate> {
    let algorithm = der.open(SEQUENCE);
    let algorithm = algorithm.ok_or("malformed public key algorithm identifier")?;
    let algorithm = AlgorithmIdentifier::read(algorithm)?;
    let bits: BitString<'_> = der.read_bits().ok_or("malformed subjectPublicKey")?;
    Ok(PublicKey::read(algorithm, &bits.right_aligned())?)
}

/// Parses the extensions, which only version 3 has. In version 1, anything may follow.
fn parse_extensions(
    version: i64,
    fields: &mut DerReader<'_>,
) -> Result<CertificateExtensions, MalformedCertificate> {
    if version == 1 {
        return Ok(CertificateExtensions::default());
    }
    let skipped = fields.read_optional(der::context_tag(1));
    skipped.ok_or("malformed issuerUniqueID")?;
    let skipped = fields.read_optional(der::context_tag(2));
    skipped.ok_or("malformed subjectUniqueID")?;
    if version < VERSION_MAX {
        return Ok(CertificateExtensions::default());
    }
    let given = fields.read_optional(der::constructed_tag(3));
    let Some(mut given) = given.ok_or("malformed extensions")? else {
        return Ok(CertificateExtensions::default());
    };
    let mut all = given.open(SEQUENCE).ok_or("malformed extensions")?;
    let mut found: Vec<CertificateExtension<'_>> = Vec::new();
    while !all.is_empty() {
        let one = all.open(SEQUENCE).ok_or("malformed extension")?;
        let one = CertificateExtension::read(one)?;
        if found.iter().any(|known| known.oid == one.oid) {
            let oid = format_oid(one.oid);
            let why = format!("certificate contains duplicate extension with OID \"{oid}\"");
            return Err(MalformedCertificate(why));
        }
        found.push(one);
    }
    CertificateExtensions::read(&found)
}

/// An extension with its object identifier, criticality and undecoded value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CertificateExtension<'d> {
    pub oid: &'d [u8],
    pub is_critical: bool,
    pub value: &'d [u8],
}

impl<'d> CertificateExtension<'d> {
    fn read(mut der: DerReader<'d>) -> Result<Self, &'static str> {
        let oid = der.read_oid().ok_or("malformed extension OID field")?;
        let is_critical = if der.has(der::BOOLEAN) {
            der.read_boolean()
        } else {
            Some(false)
        };
        let is_critical = is_critical.ok_or("malformed extension critical field")?;
        let value = der.read(der::OCTET_STRING);
        let value = value.ok_or("malformed extension value field")?;
        Ok(Self {
            oid,
            is_critical,
            value,
        })
    }
}

/// Formats an object identifier in dotted notation, such as `2.5.29.17`.
pub(crate) fn format_oid(oid: &[u8]) -> String {
    let mut arcs = Vec::new();
    let mut arc = 0u64;
    for byte in oid {
        arc = arc << 7 | u64::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            if arcs.is_empty() {
                arcs.extend([(arc / 40).min(2), arc - (arc / 40).min(2) * 40])
            } else {
                arcs.push(arc)
            }
            arc = 0;
        }
    }
    let arcs: Vec<_> = arcs.iter().map(u64::to_string).collect();
    arcs.join(".")
}

/// Reads an object identifier without checking its arcs, as Go does at these places.
pub(crate) fn read_raw_oid<'d>(der: &mut DerReader<'d>) -> Option<&'d [u8]> {
    der.read(OID)
}

//! Certificate extensions: parses those that Go evaluates, and records unknown critical ones.

use super::certificate::{CertificateExtension, MalformedCertificate, read_raw_oid};
use super::constraints::NameConstraints;
use super::der::{self, DerReader, INTEGER, OCTET_STRING, SEQUENCE};
use super::uri;
use std::net::IpAddr;

/// Bit of the key usage that permits signing certificates.
const CERTIFICATE_SIGN: usize = 5;

/// Number of defined key usage bits.
const KEY_USAGES: usize = 9;

const ANY_USAGE: &[u8] = &[0x55, 0x1d, 0x25, 0];
const SERVER_AUTH: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 3, 1];
const CLIENT_AUTH: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 3, 2];
const AUTHORITY_INFO_ACCESS: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 1, 1];

/// Contents of a certificate's extensions, as far as verification needs them.
#[derive(Clone, Debug, Default)]
pub(crate) struct CertificateExtensions {
    /// Whether a key usage is present that does not permit signing certificates.
    pub refuses_signing: bool,
    pub basic: Option<BasicConstraints>,
    /// The encoded extension of subject alternative names, if present.
    pub raw_names: Option<Vec<u8>>,
    pub names: AlternativeNames,
    pub usages: Option<ExtendedKeyUsages>,
    pub constraints: Option<NameConstraints>,
    pub policies: Vec<Vec<u8>>,
    /// Pairs of a policy of the issuer and the equivalent policy of the subject.
    pub policy_mappings: Vec<(Vec<u8>, Vec<u8>)>,
    pub require_explicit_policy: Option<i64>,
    pub inhibit_policy_mapping: Option<i64>,
    pub inhibit_any_policy: Option<i64>,
    pub authority_key_id: Vec<u8>,
    pub subject_key_id: Vec<u8>,
    pub has_unknown_critical: bool,
}

/// Whether the certificate belongs to a CA, and the maximum number of intermediates below it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BasicConstraints {
    pub is_ca: bool,
    pub path_length_max: Option<u64>,
}

/// Extended key usages that are relevant for TLS; others are ignored.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ExtendedKeyUsages {
    pub has_any: bool,
    pub has_server: bool,
    pub has_client: bool,
}

/// Subject alternative names, by kind and in the order of the certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AlternativeNames {
    /// DNS names, which may be wildcards.
    pub dns: Vec<String>,
    /// Mail addresses, as in the certificate.
    pub emails: Vec<String>,
    /// IP addresses of hosts.
    pub ips: Vec<IpAddr>,
    /// URIs, as in the certificate.
    pub uris: Vec<String>,
}

impl AlternativeNames {
    fn are_none(&self) -> bool {
        *self == Self::default()
    }
}

impl CertificateExtensions {
    pub(crate) fn read(all: &[CertificateExtension<'_>]) -> Result<Self, MalformedCertificate> {
        let mut found = Self::default();
        for extension in all {
            let is_known = match extension.oid {
                [0x55, 0x1d, number] => found.add(*number, extension)?,
                AUTHORITY_INFO_ACCESS => check_info_access(extension)?,
                _ => false,
            };
            found.has_unknown_critical |= extension.is_critical && !is_known;
        }
        Ok(found)
    }

    /// Parses the extension 2.5.29.`number`. Returns whether it is supported and can be enforced.
    fn add(
        &mut self,
        number: u8,
        extension: &CertificateExtension<'_>,
    ) -> Result<bool, MalformedCertificate> {
        let value = DerReader::new(extension.value);
        match number {
            14 => self.subject_key_id = parse_subject_key_id(extension)?,
            15 => self.refuses_signing = refuses_signing(value).ok_or("invalid key usage")?,
            17 => {
                self.raw_names = Some(extension.value.to_vec());
                self.names = parse_alternative_names(value)?;
                return Ok(!self.names.are_none());
            }
            19 => {
                self.basic =
                    Some(parse_basic_constraints(value).ok_or("invalid basic constraints")?)
            }
            30 => {
                let (constraints, is_known) = NameConstraints::read(value)?;
                self.constraints = Some(constraints);
                return Ok(is_known);
            }
            31 => check_distribution_points(value).ok_or("invalid CRL distribution point")?,
            32 => self.policies = parse_policies(value).ok_or("invalid certificate policies")?,
            33 => {
                let mappings = parse_policy_mappings(value);
                self.policy_mappings = mappings.ok_or("invalid policy mappings extension")?;
            }
            35 => self.authority_key_id = parse_authority_key_id(extension)?,
            36 => {
                let read = self.add_policy_constraints(value);
                read.ok_or("invalid policy constraints extension")?;
            }
            37 => self.usages = parse_usages(value).ok_or("invalid extended key usages")?,
            54 => {
                let mut value = value;
                let skipped = value.read_small_integer(INTEGER);
                let skipped = skipped.ok_or("invalid inhibit any policy extension")?;
                self.inhibit_any_policy = Some(skipped);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn add_policy_constraints(&mut self, mut value: DerReader<'_>) -> Option<()> {
        let mut fields = value.open(SEQUENCE)?;
        let mut number = |tag| {
            if fields.has(tag) {
                fields.read_small_integer(tag).map(Some)
            } else {
                Some(None)
            }
        };
        self.require_explicit_policy = number(der::context_tag(0))?;
        self.inhibit_policy_mapping = number(der::context_tag(1))?;
        Some(())
    }
}

fn parse_subject_key_id(extension: &CertificateExtension<'_>) -> Result<Vec<u8>, &'static str> {
    if extension.is_critical {
        return Err("subject key identifier incorrectly marked critical");
    }
    let id = DerReader::new(extension.value).read(OCTET_STRING);
    Ok(id.ok_or("invalid subject key identifier")?.to_vec())
}

fn parse_authority_key_id(extension: &CertificateExtension<'_>) -> Result<Vec<u8>, &'static str> {
    if extension.is_critical {
        return Err("authority key identifier incorrectly marked critical");
    }
    let id = DerReader::new(extension.value).open(SEQUENCE);
    let id = id.and_then(|mut fields| {
        if fields.has(der::context_tag(0)) {
            fields.read(der::context_tag(0))
        } else {
            Some(&[])
        }
    });
    Ok(id.ok_or("invalid authority key identifier")?.to_vec())
}

fn refuses_signing(mut value: DerReader<'_>) -> Option<bool> {
    let bits = value.read_bits()?;
    let is_set = (0..KEY_USAGES).any(|index| bits.has(index));
    Some(is_set && !bits.has(CERTIFICATE_SIGN))
}

fn parse_basic_constraints(mut value: DerReader<'_>) -> Option<BasicConstraints> {
    let mut fields = value.open(SEQUENCE)?;
    let is_ca = if fields.has(der::BOOLEAN) {
        fields.read_boolean()?
    } else {
        false
    };
    let path_length_max = if fields.has(INTEGER) {
        Some(u64::try_from(fields.read_small_integer(INTEGER)?).ok()?)
    } else {
        None
    };
    Some(BasicConstraints {
        is_ca,
        path_length_max,
    })
}

fn parse_alternative_names(
    mut value: DerReader<'_>,
) -> Result<AlternativeNames, MalformedCertificate> {
    let all = value.open(SEQUENCE);
    let mut all = all.ok_or("invalid subject alternative names")?;
    let mut names = AlternativeNames::default();
    while !all.is_empty() {
        let name = all.read_any().ok_or("invalid subject alternative name")?;
        const EMAIL: u8 = der::context_tag(1);
        const DNS: u8 = der::context_tag(2);
        const URI: u8 = der::context_tag(6);
        const IP: u8 = der::context_tag(7);
        match name.tag {
            EMAIL => {
                let text = decode_ascii(name.content);
                names
                    .emails
                    .push(text.ok_or("SAN rfc822Name is malformed")?);
            }
            DNS => {
                let text = decode_ascii(name.content);
                names.dns.push(text.ok_or("SAN dNSName is malformed")?);
            }
            URI => {
                let text = decode_ascii(name.content);
                let text = text.ok_or("SAN uniformResourceIdentifier is malformed")?;
                let host = uri::parse_host(&text);
                if !host.is_some_and(|host| uri::is_domain(&host, false)) {
                    return Err(MalformedCertificate(format!("cannot parse URI {text:?}")));
                }
                names.uris.push(text);
            }
            IP => {
                let address = decode_ip(name.content).ok_or_else(|| {
                    let bytes = name.content.len();
                    MalformedCertificate(format!("cannot parse IP address of length {bytes}"))
                })?;
                names.ips.push(address);
            }
            _ => {}
        }
    }
    Ok(names)
}

/// Decodes an ASCII string (IA5String). Returns `None` if it contains other bytes.
pub(crate) fn decode_ascii(bytes: &[u8]) -> Option<String> {
    let text = str::from_utf8(bytes).ok().filter(|text| text.is_ascii())?;
    Some(text.to_owned())
}

/// Decodes an IP address of 4 or 16 bytes. Returns `None` for other lengths.
pub(crate) fn decode_ip(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from))
        .ok()
}

/// Parses extended key usages. Returns an inner `None` for an empty list, which Go treats as a
/// missing extension.
fn parse_usages(mut value: DerReader<'_>) -> Option<Option<ExtendedKeyUsages>> {
    let mut all = value.open(SEQUENCE)?;
    if all.is_empty() {
        return Some(None);
    }
    let mut usages = ExtendedKeyUsages::default();
    while !all.is_empty() {
        match all.read_oid()? {
            ANY_USAGE => usages.has_any = true,
            SERVER_AUTH => usages.has_server = true,
            CLIENT_AUTH => usages.has_client = true,
            _ => {}
        }
    }
    Some(Some(usages))
}

fn parse_policies(mut value: DerReader<'_>) -> Option<Vec<Vec<u8>>> {
    let mut all = value.open(SEQUENCE)?;
    let mut seen = std::collections::BTreeSet::new();
    let mut policies = Vec::new();
    while !all.is_empty() {
        let oid = read_raw_oid(&mut all.open(SEQUENCE)?)?;
        if !seen.insert(oid) || !is_policy(oid) {
            return None;
        }
        policies.push(oid.to_vec());
    }
    Some(policies)
}

/// Returns whether all arcs are complete and minimal. Unlike in other object identifiers, they may
/// have any size.
fn is_policy(oid: &[u8]) -> bool {
    let is_complete = oid.last().is_some_and(|last| last & 0x80 == 0);
    let mut is_start = true;
    is_complete
        && oid.iter().all(|byte| {
            let is_padding = is_start && *byte == 0x80;
            is_start = byte & 0x80 == 0;
            !is_padding
        })
}

fn parse_policy_mappings(mut value: DerReader<'_>) -> Option<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut all = value.open(SEQUENCE)?;
    let mut mappings = Vec::new();
    while !all.is_empty() {
        let mut one = all.open(SEQUENCE)?;
        let issuer = read_raw_oid(&mut one)?.to_vec();
        mappings.push((issuer, read_raw_oid(&mut one)?.to_vec()));
    }
    Some(mappings)
}

/// Validates CRL distribution points, which are otherwise ignored.
fn check_distribution_points(mut value: DerReader<'_>) -> Option<()> {
    let mut points = value.open(SEQUENCE)?;
    while !points.is_empty() {
        let mut point = points.open(SEQUENCE)?;
        let Some(mut name) = point.read_optional(der::constructed_tag(0))? else {
            continue;
        };
        let mut full = name.open(der::constructed_tag(0))?;
        while full.has(der::context_tag(6)) {
            full.read(der::context_tag(6))?;
        }
    }
    Some(())
}

/// Validates the authority information access, which is otherwise ignored.
fn check_info_access(extension: &CertificateExtension<'_>) -> Result<bool, MalformedCertificate> {
    if extension.is_critical {
        return Err("authority info access incorrectly marked critical".into());
    }
    let well_formed = || {
        let mut all = DerReader::new(extension.value).open(SEQUENCE)?;
        while !all.is_empty() {
            let mut one = all.open(SEQUENCE)?;
            one.read_oid()?;
            if one.has(der::context_tag(6)) {
                one.read(der::context_tag(6))?;
            }
        }
        Some(true)
    };
    Ok(well_formed().ok_or("invalid authority info access")?)
}

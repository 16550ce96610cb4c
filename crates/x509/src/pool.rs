//! A set of certificates by subject: authorities that a config trusts, or intermediates.
//!
//! Invariant: no certificate is in it twice.

use super::pem::PemBlocks;
use super::{MalformedCertificate, X509Certificate};
use std::collections::{BTreeMap, BTreeSet};

/// A set of certificates.
#[derive(Clone, Debug, Default)]
pub struct CertificatePool {
    certificates: Vec<X509Certificate>,
    /// Indexes of the certificates with that subject, in their order.
    by_subject: BTreeMap<Vec<u8>, Vec<usize>>,
    raw: BTreeSet<Vec<u8>>,
}

impl CertificatePool {
    /// The certificates of a text. As in Go, blocks of other kinds, blocks with headers and
    /// certificates that cannot be parsed are skipped.
    pub fn of_pem(text: &[u8]) -> Self {
        let blocks = PemBlocks(text);
        let blocks = blocks.filter(|b| b.label == "CERTIFICATE" && !b.has_headers);
        Self::of_parsable(blocks.map(|block| block.der))
    }

    /// The certificates in DER that can be parsed.
    pub fn of_parsable(all: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Self {
        let mut pool = Self::default();
        for der in all {
            if let Ok(certificate) = X509Certificate::parse(der.as_ref()) {
                pool.add(certificate);
            }
        }
        pool
    }

    /// The certificates in DER, which must all be valid.
    pub fn of_der(
        all: impl IntoIterator<Item = impl AsRef<[u8]>>,
    ) -> Result<Self, MalformedCertificate> {
        let mut pool = Self::default();
        for der in all {
            pool.add(X509Certificate::parse(der.as_ref())?);
        }
        Ok(pool)
    }

    /// Adds a certificate, unless it is there.
    pub fn add(&mut self, certificate: X509Certificate) {
        if self.raw.insert(certificate.raw.clone()) {
            let index = self.certificates.len();
            let subject = certificate.subject.raw.clone();
            self.by_subject.entry(subject).or_default().push(index);
            self.certificates.push(certificate);
        }
    }

    /// The number of certificates.
    pub fn len(&self) -> usize {
        self.certificates.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.certificates.is_empty()
    }

    /// The subjects in DER, in the order of the certificates.
    pub fn subjects(&self) -> impl Iterator<Item = &[u8]> {
        self.certificates.iter().map(|c| &c.subject.raw[..])
    }

    /// All certificates, in their order.
    pub(crate) fn all(&self) -> &[X509Certificate] {
        &self.certificates
    }

    pub(crate) fn contains(&self, certificate: &X509Certificate) -> bool {
        self.raw.contains(&certificate.raw)
    }

    /// Certificates that may have signed `child`: those with its issuer's name. The ones with the
    /// key that it names come first.
    pub(crate) fn parents_of(&self, child: &X509Certificate) -> Vec<&X509Certificate> {
        let indexes = self.by_subject.get(&child.issuer);
        let indexes = indexes.map(Vec::as_slice).unwrap_or_default();
        let mut parents: Vec<_> = indexes
            .iter()
            .filter_map(|index| self.certificates.get(*index))
            .collect();
        let wanted = &child.extensions.authority_key_id;
        parents.sort_by_key(|parent| {
            let id = &parent.extensions.subject_key_id;
            match id == wanted {
                true => 0,
                false if id.is_empty() || wanted.is_empty() => 1,
                false => 2,
            }
        });
        parents
    }
}

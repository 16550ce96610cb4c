//! A set of certificates indexed by subject: trusted CAs, or intermediates.
//!
//! Invariant: each certificate is contained at most once.

use super::pem::PemBlocks;
use super::{MalformedCertificate, X509Certificate};
use std::collections::{BTreeMap, BTreeSet};

/// A set of distinct certificates, in the order in which they were added.
#[derive(Clone, Debug, Default)]
pub struct CertificatePool {
    certificates: Vec<X509Certificate>,
    /// Indexes of the certificates by subject, in order.
    by_subject: BTreeMap<Vec<u8>, Vec<usize>>,
    raw: BTreeSet<Vec<u8>>,
}

impl CertificatePool {
    /// Parses the certificates in a PEM text. As in Go, blocks of other kinds, blocks with headers
    /// and malformed certificates are skipped.
    pub fn from_pem(text: &[u8]) -> Self {
        let blocks = PemBlocks(text);
        let blocks = blocks.filter(|b| b.label == "CERTIFICATE" && !b.has_headers);
        Self::from_parsable_der(blocks.map(|block| block.der))
    }

    /// Parses certificates in DER and skips malformed ones, as Go does for the roots of the system.
    pub fn from_parsable_der(all: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Self {
        let mut pool = Self::default();
        for der in all {
            if let Ok(certificate) = X509Certificate::parse(der.as_ref()) {
                pool.add(certificate);
            }
        }
        pool
    }

    /// Parses certificates in DER. Fails if one of them is malformed.
    pub fn from_der(
        all: impl IntoIterator<Item = impl AsRef<[u8]>>,
    ) -> Result<Self, MalformedCertificate> {
        let mut pool = Self::default();
        for der in all {
            pool.add(X509Certificate::parse(der.as_ref())?);
        }
        Ok(pool)
    }

    /// Adds a certificate unless the set already contains it.
    pub fn add(&mut self, certificate: X509Certificate) {
        if self.raw.insert(certificate.raw.clone()) {
            let index = self.certificates.len();
            let subject = certificate.subject.raw.clone();
            self.by_subject.entry(subject).or_default().push(index);
            self.certificates.push(certificate);
        }
    }

    /// Returns the number of certificates.
    pub fn len(&self) -> usize {
        self.certificates.len()
    }

    /// Returns whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.certificates.is_empty()
    }

    /// Returns the subjects in DER, in the order of the certificates.
    pub fn subjects(&self) -> impl Iterator<Item = &[u8]> {
        self.certificates.iter().map(|c| &c.subject.raw[..])
    }

    /// Returns all certificates in order.
    pub(crate) fn all(&self) -> &[X509Certificate] {
        &self.certificates
    }

    pub(crate) fn contains(&self, certificate: &X509Certificate) -> bool {
        self.raw.contains(&certificate.raw)
    }

    /// Returns the certificates that may have signed `child`, that is, those whose subject is its
    /// issuer. Certificates with a matching key identifier precede the others.
    pub(crate) fn find_parents(&self, child: &X509Certificate) -> Vec<&X509Certificate> {
        let indexes = self.by_subject.get(&child.issuer);
        let indexes = indexes.map(Vec::as_slice).unwrap_or_default();
        let mut parents: Vec<_> = indexes
            .iter()
            .filter_map(|index| self.certificates.get(*index))
            .collect();
        let wanted = &child.extensions.authority_key_id;
        parents.sort_by_key(|parent| {
            let id = &parent.extensions.subject_key_id;
            if id == wanted {
                0
            } else if id.is_empty() || wanted.is_empty() {
                1
            } else {
                2
            }
        });
        parents
    }
}

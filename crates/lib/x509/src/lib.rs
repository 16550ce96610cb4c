//! Verification of TLS certificates by the rules of `crypto/x509` and `crypto/tls` in Go 1.26, so
//! that Firn accepts and rejects the same certificates as Prometheus.
//!
//! ```text
//! PEM -> pem -> X509Certificate -> CertificatePool (trusted) --.
//! handshake --> X509Certificate -> verify (leaf, intermediates) -> Ok or CertificateRejection
//!                                  ` host, constraints, policies: rules for names
//!                                  ` key: signatures, by ring or else RustCrypto
//! ```
//!
//! Invariants: this crate is synchronous and does no IO; the caller passes the time. The work is
//! limited to 100 signature checks and [`verify::COMPARISONS_MAX`] name comparisons per
//! certificate. No input causes a panic.
//!
//! [`handshake`], [`key_pair`] and [`listener`] connect this crate to rustls. Callers read files
//! and the root certificates of the system. `docs/compatibility/certificates.md` describes the
//! rules with examples.

mod certificate;
mod constraints;
mod der;
mod extensions;
pub mod handshake;
mod host;
mod key;
pub mod key_pair;
pub mod listener;
mod pem;
mod policies;
mod pool;
mod signers;
mod uri;
mod validity;
pub mod verify;

pub use certificate::{MalformedCertificate, X509Certificate};
pub use extensions::AlternativeNames;
pub use pool::CertificatePool;
pub use verify::{CertificatePurpose, CertificateRejection, CertificateTrust, verify};

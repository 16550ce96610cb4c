//! Certificates of TLS, judged by the rules of Go 1.26's `crypto/x509` and `crypto/tls`: Firn
//! accepts and rejects the certificates that Prometheus accepts and rejects.
//!
//! ```text
//! PEM -> pem -> X509Certificate -> CertificatePool (trusted) --.
//! handshake --> X509Certificate -> verify (leaf, intermediates) -> Ok or CertificateRefused
//!                                  ` host, constraints, policies: rules over names
//!                                  ` key: signatures, by ring or else RustCrypto
//! ```
//!
//! Invariants: everything here is synchronous and does no IO; the caller passes the time. Work is
//! bounded: at most 100 signature checks and [`verify::COMPARISONS_MAX`] comparisons of names for a
//! certificate. No input causes a panic.
//!
//! [`handshake`] and [`key_pair`] connect this to rustls. Reading files and the roots of the system
//! is left to the callers. The rules with examples are in `docs/compatibility/certificates.md`.

mod certificate;
mod constraints;
mod der;
mod extensions;
pub mod handshake;
mod host;
mod key;
pub mod key_pair;
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
pub use verify::{CertificateRefused, Purpose, Trust, verify};

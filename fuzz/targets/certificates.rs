//! Fuzzes certificates and PEM texts: nothing panics, and a pool has one subject per certificate.
//! Each certificate is verified with itself and others as roots and intermediates.

#![cfg_attr(fuzzing, no_main)]

use firn_x509::key_pair::parse_certified_key;
use firn_x509::{CertificatePool, CertificatePurpose, CertificateTrust, X509Certificate, verify};

/// A time at which most seeds are valid.
const NOW: i64 = 1_800_000_000;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    // Certificates in a row, as in a handshake.
    let mut rest = bytes;
    let mut chain = Vec::new();
    while let Some((length, after)) = rest.split_first_chunk::<2>() {
        let length = usize::from(u16::from_be_bytes(*length)).min(after.len());
        let (one, after) = after.split_at(length);
        chain.push(one);
        rest = after;
    }
    judge(&chain);
    judge(&[bytes]);
    let pool = CertificatePool::from_pem(bytes);
    assert_eq!(pool.subjects().count(), pool.len());
    // An error is as good as a pair.
    let _ = parse_certified_key(bytes, bytes);
});

fn judge(chain: &[&[u8]]) {
    let all = CertificatePool::from_parsable_der(chain);
    let Some(leaf) = chain
        .iter()
        .find_map(|der| X509Certificate::parse(der).ok())
    else {
        return;
    };
    let (none, last) = (CertificatePool::default(), chain.iter().rev().take(1));
    let last = CertificatePool::from_parsable_der(last);
    for (roots, intermediates) in [(&all, &none), (&last, &all)] {
        for purpose in [CertificatePurpose::Server, CertificatePurpose::Client] {
            let host = Some("localhost");
            let trust = CertificateTrust {
                roots,
                intermediates,
                host,
                purpose,
                now: NOW,
            };
            if verify(&leaf, &trust).is_ok() {
                assert!(!roots.is_empty());
            }
        }
    }
}

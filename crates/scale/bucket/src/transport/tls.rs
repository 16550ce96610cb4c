//! TLS configuration of connections to a store.

use crate::error::{BucketError, BucketFailure};
use firn_http_client::named_files;
use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use std::path::Path;
use std::sync::Arc;

/// Builds the configuration that trusts the authorities in `ca_file`, or those of the system. May
/// block. Fails with [`BucketFailure::Invalid`] if the file has no authority.
pub(crate) fn tls_config(ca_file: Option<&Path>) -> Result<Arc<ClientConfig>, BucketError> {
    let roots = match ca_file {
        Some(path) => roots_of(path)?,
        None => system_roots(),
    };
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|e| BucketError::new(BucketFailure::Invalid, format!("TLS: {e}")))?;
    Ok(Arc::new(
        builder.with_root_certificates(roots).with_no_client_auth(),
    ))
}

fn roots_of(path: &Path) -> Result<RootCertStore, BucketError> {
    let fail = |reason: String| {
        let text = format!("ca_file {}: {reason}", path.display());
        BucketError::new(BucketFailure::Invalid, text)
    };
    let pem = named_files::read(path).map_err(|e| fail(e.to_string()))?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let found = found.map_err(|e| fail(e.to_string()))?;
    let mut roots = RootCertStore::empty();
    for certificate in found {
        roots.add(certificate).map_err(|e| fail(e.to_string()))?;
    }
    if roots.is_empty() {
        return Err(fail("no certificate in it".into()));
    }
    Ok(roots)
}

fn system_roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    // Certificates that cannot be parsed are not trusted; handshakes that need them fail.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    roots
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_without_authorities_is_an_error_with_its_name() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let check = |content: &str, part: &str| {
            std::fs::write(file.path(), content).unwrap();
            let text = tls_config(Some(file.path())).unwrap_err().message;
            let name = file.path().display().to_string();
            assert!(text.contains(part) && text.contains(&name), "{text}");
        };
        check("", "no certificate in it");
        check(
            "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n",
            "",
        );
        check(
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
            "",
        );
        let missing = tls_config(Some(Path::new("/missing/ca")))
            .unwrap_err()
            .message;
        assert!(missing.starts_with("ca_file /missing/ca: "), "{missing}");
    }
}

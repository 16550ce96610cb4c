//! TLS settings of clients: the accepted certificate authorities and the client certificate.
//!
//! Invariant: if authorities are given, no others are trusted. Errors name the file that is
//! unusable.

use crate::error::MirrorError;
use std::path::{Path, PathBuf};
use ureq::tls::{Certificate, ClientCert, PemItem, PrivateKey, RootCerts, TlsConfig, parse_pem};

/// Paths of certificates and keys in PEM format, as given on the command line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsFilePaths {
    /// Trusted certificate authorities; if empty, the root certificates of Mozilla, which are
    /// compiled in.
    pub authorities: Vec<PathBuf>,
    /// Client certificate with its chain, and its private key.
    pub client: Option<(PathBuf, PathBuf)>,
}

impl TlsFilePaths {
    /// Reads the files and builds the TLS configuration. Fails with the path of the first unusable
    /// file.
    pub fn read(&self) -> Result<TlsConfig, MirrorError> {
        let mut config = TlsConfig::builder();
        if !self.authorities.is_empty() {
            let read = self.authorities.iter().map(|path| certificates(path));
            let all = read.collect::<Result<Vec<_>, _>>()?.concat();
            config = config.root_certs(RootCerts::new_with_certs(&all));
        }
        if let Some((chain, key)) = &self.client {
            let client = ClientCert::new_with_certs(&certificates(chain)?, private_key(key)?);
            config = config.client_cert(Some(client));
        }
        Ok(config.build())
    }
}

fn refuse<T>(path: &Path, why: impl std::fmt::Display) -> Result<T, MirrorError> {
    Err(MirrorError::Usage(format!("{}: {why}", path.display())))
}

fn items(path: &Path) -> Result<Vec<PemItem<'static>>, MirrorError> {
    let pem = std::fs::read(path).map_err(MirrorError::file("read", path))?;
    let read = parse_pem(&pem).collect::<Result<Vec<_>, _>>();
    read.or_else(|e| refuse(path, e))
}

fn certificates(path: &Path) -> Result<Vec<Certificate<'static>>, MirrorError> {
    let found = items(path)?.into_iter().filter_map(|item| match item {
        PemItem::Certificate(certificate) => Some(certificate),
        _ => None,
    });
    let found: Vec<_> = found.collect();
    if found.is_empty() {
        refuse(path, "no certificate in PEM in it")
    } else {
        Ok(found)
    }
}

fn private_key(path: &Path) -> Result<PrivateKey<'static>, MirrorError> {
    let mut keys = items(path)?.into_iter().filter_map(|item| match item {
        PemItem::PrivateKey(key) => Some(key),
        _ => None,
    });
    match keys.next() {
        Some(key) => Ok(key),
        None => refuse(path, "no private key in PEM in it"),
    }
}

//! Signatures of requests to Oracle's API by a user's key.
//!
//! The key is read anew for each request, as secrets of clients are: a refresh is some requests a
//! minute.

use super::OciSettings;
use crate::client::{Sign, Signing, ToSign, key_of_pem, reveal, signature};
use crate::discovery::api::{header_value, wrong};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use firn_model::env::Clock;
use firn_model::error::Error;
use hyper::HeaderMap;
use hyper::header::{AUTHORIZATION, DATE};
use ring::signature::RSA_PKCS1_SHA256;
use std::path::PathBuf;
use std::sync::Arc;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc2822;

/// See the module.
pub(super) struct Signer {
    key_id: String,
    key_file: PathBuf,
    passphrase: Option<crate::client::Secret>,
    clock: Arc<dyn Clock>,
}

impl Signer {
    pub(super) fn new(settings: &OciSettings, clock: Arc<dyn Clock>) -> Self {
        let (tenancy, user) = (&settings.tenancy, &settings.user);
        Self {
            key_id: format!("{tenancy}/{user}/{}", settings.fingerprint),
            key_file: settings.key_file.clone(),
            passphrase: settings.key_passphrase.clone(),
            clock,
        }
    }

    async fn headers(&self, request: ToSign<'_>) -> Result<HeaderMap, Error> {
        let file = self.key_file.display();
        let pem = tokio::fs::read(&self.key_file).await;
        let pem = pem.map_err(|e| wrong(format!("reading OCI key file {file}: {e}")))?;
        let passphrase = match &self.passphrase {
            Some(secret) => reveal(secret, "OCI key passphrase").await?,
            None => String::new(),
        };
        let key = key_of_pem(&pem, &passphrase).map_err(|e| wrong(format!("{file}: {e}")))?;
        let date = date(self.clock.now_ms())?;
        let uri = request.uri;
        let host = uri.authority().map_or("", |host| host.as_str());
        let target = uri.path_and_query().map_or("/", |target| target.as_str());
        let method = request.method.as_str().to_ascii_lowercase();
        let text = format!("date: {date}\n(request-target): {method} {target}\nhost: {host}");
        let signed = signature(text.as_bytes(), &key, &RSA_PKCS1_SHA256).map_err(wrong)?;
        let (id, signed) = (&self.key_id, BASE64_STANDARD.encode(signed));
        let value = format!(
            "Signature version=\"1\",headers=\"date (request-target) host\",keyId=\"{id}\",\
             algorithm=\"rsa-sha256\",signature=\"{signed}\""
        );
        let all = [
            (DATE, header_value(&date)?),
            (AUTHORIZATION, header_value(&value)?),
        ];
        Ok(HeaderMap::from_iter(all))
    }
}

/// A time as HTTP writes it.
fn date(now_ms: i64) -> Result<String, Error> {
    let time = OffsetDateTime::from_unix_timestamp(now_ms.div_euclid(1000));
    let text = time.ok().and_then(|time| time.format(&Rfc2822).ok());
    let text = text.ok_or_else(|| wrong(format!("no date: {now_ms}")))?;
    Ok(text.replace("+0000", "GMT"))
}

impl Sign for Signer {
    fn sign<'a>(&'a self, request: ToSign<'a>) -> Signing<'a> {
        Box::pin(self.headers(request))
    }
}

//! Signatures of requests to Oracle's API, with the key of a user or of the machine.
//!
//! The key file of a user is read for each request, like the secrets of HTTP clients. A refresh
//! sends only a few requests per minute.

use super::OciSettings;
use super::machine::Machine;
use crate::api::{header_value, wrong};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use firn_http_client::named_files::read_aside;
use firn_http_client::{Secret, Sign, Signing, ToSign, key_of_pem, reveal, signature};
use firn_model::env::Clock;
use firn_model::error::Error;
use hyper::HeaderMap;
use hyper::header::{AUTHORIZATION, DATE, HeaderValue};
use ring::signature::{RSA_PKCS1_SHA256, RsaKeyPair};
use std::path::PathBuf;
use std::sync::Arc;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc2822;

/// The identity with which requests are signed: a user from the config, or this machine.
enum Identity {
    User(User),
    Machine(Box<Machine>),
}

struct User {
    tenancy: String,
    key_id: String,
    key_file: PathBuf,
    passphrase: Option<Secret>,
}

/// Signs requests to Oracle's API with the identity in the settings.
pub(super) struct Signer {
    identity: Identity,
    clock: Arc<dyn Clock>,
}

impl Signer {
    pub(super) fn new(settings: &OciSettings, clock: Arc<dyn Clock>) -> Self {
        if settings.is_machine {
            let machine = Machine::new(&settings.client, clock.clone());
            return Self::of_machine(machine, clock);
        }
        let (tenancy, user) = (&settings.tenancy, &settings.user);
        let identity = Identity::User(User {
            tenancy: tenancy.clone(),
            key_id: format!("{tenancy}/{user}/{}", settings.fingerprint),
            key_file: settings.key_file.clone(),
            passphrase: settings.key_passphrase.clone(),
        });
        Self { identity, clock }
    }

    /// Creates a signer that authenticates as `machine`.
    pub(super) fn of_machine(machine: Machine, clock: Arc<dyn Clock>) -> Self {
        Self {
            identity: Identity::Machine(Box::new(machine)),
            clock,
        }
    }

    /// Returns the id of the tenancy to which the identity belongs.
    pub(super) async fn tenancy(&self) -> Result<String, Error> {
        match &self.identity {
            Identity::User(user) => Ok(user.tenancy.clone()),
            Identity::Machine(machine) => Ok(machine.session().await?.tenancy.clone()),
        }
    }

    async fn headers(&self, request: ToSign<'_>) -> Result<HeaderMap, Error> {
        let date = date(self.clock.now_ms())?;
        let uri = request.uri;
        let host = uri.authority().map_or("", |host| host.as_str());
        let target = uri.path_and_query().map_or("/", |target| target.as_str());
        let method = request.method.as_str().to_ascii_lowercase();
        let text = format!("date: {date}\n(request-target): {method} {target}\nhost: {host}");
        let names = "date (request-target) host";
        let value = match &self.identity {
            Identity::User(user) => {
                signature_header(&user.key_id, names, &text, &user.key().await?)?
            }
            Identity::Machine(machine) => {
                let session = machine.session().await?;
                signature_header(&session.key_id, names, &text, &session.key)?
            }
        };
        let all = [(DATE, header_value(&date)?), (AUTHORIZATION, value)];
        Ok(HeaderMap::from_iter(all))
    }
}

impl User {
    async fn key(&self) -> Result<RsaKeyPair, Error> {
        let file = self.key_file.display();
        let pem = read_aside(&self.key_file).await;
        let pem = pem.map_err(|e| wrong(format!("reading OCI key file {file}: {e}")))?;
        let passphrase = match &self.passphrase {
            Some(secret) => reveal(secret, "OCI key passphrase").await?,
            None => String::new(),
        };
        key_of_pem(&pem, &passphrase).map_err(|e| wrong(format!("{file}: {e}")))
    }
}

/// Builds the `Authorization` header with a signature of `text` by `key`. `names` lists the signed
/// headers, and `key_id` identifies the key to the server.
pub(super) fn signature_header(
    key_id: &str,
    names: &str,
    text: &str,
    key: &RsaKeyPair,
) -> Result<HeaderValue, Error> {
    let signed = signature(text.as_bytes(), key, &RSA_PKCS1_SHA256).map_err(wrong)?;
    let signed = BASE64_STANDARD.encode(signed);
    let mut value = header_value(&format!(
        "Signature version=\"1\",headers=\"{names}\",keyId=\"{key_id}\",\
         algorithm=\"rsa-sha256\",signature=\"{signed}\""
    ))
    .map_err(|_| wrong("the name of the key is not fit for a header"))?;
    value.set_sensitive(true);
    Ok(value)
}

/// Formats a time in the date format of HTTP headers, such as `Thu, 01 Jan 1970 00:00:00 GMT`.
pub(super) fn date(now_ms: i64) -> Result<String, Error> {
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

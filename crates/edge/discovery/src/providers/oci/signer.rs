//! Signatures of requests to Oracle's API, with the key of a user or of the machine.
//!
//! The key file of a user is read for each request, like the secrets of HTTP clients. A refresh
//! sends only a few requests per minute.

use super::OciSettings;
use super::machine::OciInstancePrincipal;
use crate::api::{invalid_response_error, parse_header_value};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use firn_http_client::named_files::read_async;
use firn_http_client::{
    RequestSigner, Secret, Signing, UnsignedRequest, key_of_pem, reveal, sign_rsa,
};
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
enum OciIdentity {
    User(OciUser),
    Machine(Box<OciInstancePrincipal>),
}

struct OciUser {
    tenancy: String,
    key_id: String,
    key_file: PathBuf,
    passphrase: Option<Secret>,
}

/// Signs requests to Oracle's API with the identity in the settings.
pub(super) struct OciSigner {
    identity: OciIdentity,
    clock: Arc<dyn Clock>,
}

impl OciSigner {
    pub(super) fn new(settings: &OciSettings, clock: Arc<dyn Clock>) -> Self {
        if settings.is_machine {
            let machine = OciInstancePrincipal::new(&settings.client, clock.clone());
            return Self::for_instance_principal(machine, clock);
        }
        let (tenancy, user) = (&settings.tenancy, &settings.user);
        let identity = OciIdentity::User(OciUser {
            tenancy: tenancy.clone(),
            key_id: format!("{tenancy}/{user}/{}", settings.fingerprint),
            key_file: settings.key_file.clone(),
            passphrase: settings.key_passphrase.clone(),
        });
        Self { identity, clock }
    }

    /// Creates a signer that authenticates as `machine`.
    pub(super) fn for_instance_principal(
        machine: OciInstancePrincipal,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            identity: OciIdentity::Machine(Box::new(machine)),
            clock,
        }
    }

    /// Returns the id of the tenancy to which the identity belongs.
    pub(super) async fn find_tenancy(&self) -> Result<String, Error> {
        match &self.identity {
            OciIdentity::User(user) => Ok(user.tenancy.clone()),
            OciIdentity::Machine(machine) => Ok(machine.current_session().await?.tenancy.clone()),
        }
    }

    async fn sign_headers(&self, request: UnsignedRequest<'_>) -> Result<HeaderMap, Error> {
        let date = format_date(self.clock.now_ms())?;
        let uri = request.uri;
        let host = uri.authority().map_or("", |host| host.as_str());
        let target = uri.path_and_query().map_or("/", |target| target.as_str());
        let method = request.method.as_str().to_ascii_lowercase();
        let text = format!("date: {date}\n(request-target): {method} {target}\nhost: {host}");
        let names = "date (request-target) host";
        let value = match &self.identity {
            OciIdentity::User(user) => {
                build_signature_header(&user.key_id, names, &text, &user.load_key().await?)?
            }
            OciIdentity::Machine(machine) => {
                let session = machine.current_session().await?;
                build_signature_header(&session.key_id, names, &text, &session.key)?
            }
        };
        let all = [(DATE, parse_header_value(&date)?), (AUTHORIZATION, value)];
        Ok(HeaderMap::from_iter(all))
    }
}

impl OciUser {
    async fn load_key(&self) -> Result<RsaKeyPair, Error> {
        let file = self.key_file.display();
        let pem = read_async(&self.key_file).await;
        let pem =
            pem.map_err(|e| invalid_response_error(format!("reading OCI key file {file}: {e}")))?;
        let passphrase = match &self.passphrase {
            Some(secret) => reveal(secret, "OCI key passphrase").await?,
            None => String::new(),
        };
        key_of_pem(&pem, &passphrase).map_err(|e| invalid_response_error(format!("{file}: {e}")))
    }
}

/// Builds the `Authorization` header with a signature of `text` by `key`. `names` lists the
/// signed headers, and `key_id` identifies the key to the server.
pub(super) fn build_signature_header(
    key_id: &str,
    names: &str,
    text: &str,
    key: &RsaKeyPair,
) -> Result<HeaderValue, Error> {
    let signed =
        sign_rsa(text.as_bytes(), key, &RSA_PKCS1_SHA256).map_err(invalid_response_error)?;
    let signed = BASE64_STANDARD.encode(signed);
    let mut value = parse_header_value(&format!(
        "Signature version=\"1\",headers=\"{names}\",keyId=\"{key_id}\",\
         algorithm=\"rsa-sha256\",signature=\"{signed}\""
    ))
    .map_err(|_| invalid_response_error("the name of the key is not fit for a header"))?;
    value.set_sensitive(true);
    Ok(value)
}

/// Formats a time in the date format of HTTP headers, such as `Thu, 01 Jan 1970 00:00:00 GMT`.
pub(super) fn format_date(now_ms: i64) -> Result<String, Error> {
    let time = OffsetDateTime::from_unix_timestamp(now_ms.div_euclid(1000));
    let text = time.ok().and_then(|time| time.format(&Rfc2822).ok());
    let text = text.ok_or_else(|| invalid_response_error(format!("no date: {now_ms}")))?;
    Ok(text.replace("+0000", "GMT"))
}

impl RequestSigner for OciSigner {
    fn sign<'a>(&'a self, request: UnsignedRequest<'a>) -> Signing<'a> {
        Box::pin(self.sign_headers(request))
    }
}

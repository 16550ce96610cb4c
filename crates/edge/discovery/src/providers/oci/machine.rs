//! Authentication as an OCI machine: `auth: instance_principal`.
//!
//! ```text
//! metadata service --> region, certificate, its key, the intermediate certificate
//! auth service     <-- request with the certificates, signed by the key --> token
//! requests         signed by the key, with the token as key id
//! ```
//!
//! A token is reused until five minutes before it expires. Each new token is requested with the
//! current certificates of the metadata service, since they are rotated.
//!
//! The protocol follows Oracle's SDK for Go, which upstream uses. The SDK generates a session key
//! for each token; here the token is bound to the key of the certificate.

use super::signer::{build_signature_header, format_date};
use crate::api::{ApiClient, invalid_response_error, parse_header_value};
use crate::environment::{Variables, process_environment};
use crate::json::{self, answers};
use base64::Engine;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use firn_http_client::{HttpSettings, PrivateKeyBlock, key_of_pem};
use firn_model::env::Clock;
use firn_model::error::Error;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, DATE, HeaderMap, HeaderName, HeaderValue};
use ring::digest::{SHA256, digest};
use ring::signature::RsaKeyPair;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::timeout;
use x509_parser::parse_x509_certificate;

/// Default base URL of the metadata service, and the environment variable that overrides it.
const METADATA: &str = "http://169.254.169.254/opc/v2";
const METADATA_VARIABLE: &str = "OCI_METADATA_BASE_URL";

/// Environment variable with the URL of another auth service.
const AUTH_VARIABLE: &str = "OCI_SDK_AUTH_CLIENT_REGION_URL";

/// Timeout of a request to the metadata service. Outside of OCI nothing answers at its address.
const METADATA_TIMEOUT: Duration = Duration::from_secs(5);

/// Path of the token endpoint of the auth service.
const TOKENS: &str = "/v1/x509";

/// Time before its expiry at which a token is replaced, in milliseconds.
const MARGIN_MS: i64 = 5 * 60 * 1000;

/// Prefix of the certificate's subject attribute that contains the tenancy id.
const TENANT: &str = "opc-tenant:";

/// Maximum size in bytes of a response of the metadata or auth service.
const BYTES_MAX: u64 = 1 << 20;

/// Requests session tokens for this machine and caches them; see the module documentation.
pub(super) struct OciInstancePrincipal {
    api: ApiClient,
    clock: Arc<dyn Clock>,
    variables: Variables,
    /// Cached session. Locked while a token is requested, so that concurrent requests share one.
    held: Mutex<Option<Arc<OciSession>>>,
}

/// Token and key that sign requests until the token expires.
pub(super) struct OciSession {
    /// Id of the tenancy that the machine belongs to.
    pub(super) tenancy: String,
    /// Key id of the signature, which contains the token.
    pub(super) key_id: String,
    /// Private key of the machine's certificate.
    pub(super) key: RsaKeyPair,
    end_ms: i64,
}

answers! {
    struct OciTokenResponse {
        token: String,
    }

    struct OciTokenClaims {
        exp: f64,
    }
}

/// The instance certificate of the machine, with its private key.
struct OciInstanceCertificate {
    certificate: Vec<u8>,
    tenancy: String,
    /// Public key in DER (`SubjectPublicKeyInfo`), as contained in the certificate.
    public_key: Vec<u8>,
    key: RsaKeyPair,
}

impl OciInstancePrincipal {
    pub(super) fn new(settings: &HttpSettings, clock: Arc<dyn Clock>) -> Self {
        Self::with_variables(settings, clock, process_environment())
    }

    /// Creates a machine identity like [`Self::new`] that reads environment variables from
    /// `variables`.
    pub(super) fn with_variables(
        settings: &HttpSettings,
        clock: Arc<dyn Clock>,
        variables: Variables,
    ) -> Self {
        Self {
            api: ApiClient::new(settings, BYTES_MAX),
            clock,
            variables,
            held: Mutex::default(),
        }
    }

    /// Returns the current session; begins a new one if there is none or it is about to expire.
    pub(super) async fn current_session(&self) -> Result<Arc<OciSession>, Error> {
        let now_ms = self.clock.now_ms();
        let mut held = self.held.lock().await;
        if let Some(session) = held.as_ref().filter(|session| now_ms < session.end_ms) {
            return Ok(session.clone());
        }
        let session = Arc::new(self.begin_session(now_ms).await?);
        *held = Some(session.clone());
        Ok(session)
    }

    async fn begin_session(&self, now_ms: i64) -> Result<OciSession, Error> {
        let region = self.get_metadata("/instance/region").await?;
        let leaf = self.get_metadata("/identity/cert.pem").await?;
        let key = self.get_metadata("/identity/key.pem").await?;
        let intermediate = self.get_metadata("/identity/intermediate.pem").await?;
        let leaf = OciInstanceCertificate::from_pem(&leaf, &key)?;
        let intermediate = first_certificate(&intermediate)?;
        let encode = |bytes: &[u8]| BASE64_STANDARD.encode(bytes);
        let body = json!({
            "certificate": encode(&leaf.certificate),
            "publicKey": encode(&leaf.public_key),
            "intermediateCertificates": [encode(&intermediate)],
            "fingerprintAlgorithm": "SHA256",
        });
        let token = self
            .request_token(&region, &leaf, body.to_string(), now_ms)
            .await?;
        let life_ms = token_expiry_ms(&token)? - now_ms;
        Ok(OciSession {
            // A token with a short lifetime is used for half of it.
            end_ms: now_ms + (life_ms - MARGIN_MS).max(life_ms / 2),
            key_id: format!("ST${token}"),
            tenancy: leaf.tenancy,
            key: leaf.key,
        })
    }

    fn read_variable(&self, name: &str) -> Option<String> {
        (self.variables)(name).filter(|value| !value.is_empty())
    }

    /// Reads `path` from the metadata service. Fails if it does not respond in time.
    async fn get_metadata(&self, path: &str) -> Result<String, Error> {
        let base = self.read_variable(METADATA_VARIABLE);
        let url = format!("{}{path}", base.as_deref().unwrap_or(METADATA));
        let oracle = HeaderValue::from_static("Bearer Oracle");
        let headers = HeaderMap::from_iter([(AUTHORIZATION, oracle)]);
        let asked = timeout(METADATA_TIMEOUT, self.api.get(&url, &headers)).await;
        let answer = asked.map_err(|_| invalid_response_error(format!("{url}: no answer")))?;
        let told = |e| invalid_response_error(format!("{url}: {e}"));
        let answer = answer.and_then(crate::api::ApiResponse::require_success);
        Ok(answer.map_err(told)?.text()?.to_owned())
    }

    /// Requests a token from the auth service. `body` contains the certificates of the machine.
    async fn request_token(
        &self,
        region: &str,
        leaf: &OciInstanceCertificate,
        body: String,
        now_ms: i64,
    ) -> Result<String, Error> {
        let base = self.read_variable(AUTH_VARIABLE).unwrap_or_else(|| {
            let (region, domain) = super::realms::resolve_region(region.trim());
            format!("https://auth.{region}.{domain}")
        });
        let url = format!("{base}{TOKENS}");
        let (date, sum) = (format_date(now_ms)?, digest(&SHA256, body.as_bytes()));
        let (length, sum) = (body.len(), BASE64_STANDARD.encode(sum));
        let text = format!(
            "date: {date}\n(request-target): post {TOKENS}\ncontent-length: {length}\n\
             content-type: application/json\nx-content-sha256: {sum}"
        );
        let names = "date (request-target) content-length content-type x-content-sha256";
        let print = digest(&SHA256, &leaf.certificate);
        let print = print.as_ref().iter().map(|byte| format!("{byte:02x}"));
        let print = print.collect::<Vec<String>>().join(":");
        let key_id = format!("{}/fed-x509-sha256/{print}", leaf.tenancy);
        let headers = HeaderMap::from_iter([
            (DATE, parse_header_value(&date)?),
            (CONTENT_TYPE, HeaderValue::from_static("application/json")),
            (
                HeaderName::from_static("x-content-sha256"),
                parse_header_value(&sum)?,
            ),
            (
                AUTHORIZATION,
                build_signature_header(&key_id, names, &text, &leaf.key)?,
            ),
        ]);
        let answer = self
            .api
            .post(&url, &headers, body.into())
            .await?
            .require_success()?;
        let granted: OciTokenResponse = answer.decode_json().await?;
        Ok(granted.token)
    }
}

impl OciInstanceCertificate {
    fn from_pem(certificate: &str, key: &str) -> Result<Self, Error> {
        let der = first_certificate(certificate)?;
        let unread = |e: String| invalid_response_error(format!("the machine's certificate: {e}"));
        let (_, parsed) = parse_x509_certificate(&der).map_err(|e| unread(e.to_string()))?;
        let tenancy = parsed.subject().iter_attributes().find_map(|name| {
            let tenancy = name.as_str().ok()?.strip_prefix(TENANT)?;
            Some(tenancy.to_owned())
        });
        let tenancy = tenancy.ok_or_else(|| unread("it names no tenancy".to_owned()))?;
        let public_key = parsed.public_key().raw.to_vec();
        Ok(Self {
            tenancy,
            public_key,
            key: key_of_pem(key.as_bytes(), "").map_err(unread)?,
            certificate: der,
        })
    }
}

/// Returns the first certificate in a PEM text, in DER.
fn first_certificate(pem: &str) -> Result<Vec<u8>, Error> {
    let blocks = PrivateKeyBlock::parse_all(pem.as_bytes()).map_err(invalid_response_error)?;
    let mut blocks = blocks.into_iter();
    let found = blocks.find(|block| block.label == "CERTIFICATE");
    Ok(found
        .ok_or_else(|| invalid_response_error("no certificate in the answer"))?
        .der)
}

/// Returns the expiry time of a token in milliseconds, from its `exp` claim.
fn token_expiry_ms(token: &str) -> Result<i64, Error> {
    let parts: Vec<&str> = token.split('.').collect();
    let [_, claims, _] = parts[..] else {
        return Err(invalid_response_error(
            "the token is no statement in three parts",
        ));
    };
    let claims = BASE64_URL_SAFE_NO_PAD.decode(claims.trim_end_matches('='));
    let claims = claims.map_err(|e| invalid_response_error(format!("the token: {e}")))?;
    let claims: OciTokenClaims = json::from_slice(&claims)
        .map_err(|e| invalid_response_error(format!("the claims of the token: {e}")))?;
    // The clamp keeps an arbitrary value far from the limits of the type.
    Ok((claims.exp * 1000.0).clamp(0.0, 1e15) as i64)
}

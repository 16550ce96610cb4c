//! Request signing for the `sigv4` key, used by clients outside of this crate to call services
//! behind AWS authentication.

use super::credentials::{AwsCredentialChain, AwsCredentials};
use super::settings::{AwsSettings, read_settings};
use super::sign::{Request, SigV4Headers, SigV4Scope};
use crate::api::{ApiClient, parse_header_value};
use crate::environment::process_environment;
use firn_config_schema::read;
use firn_http_client::http_config::http;
use firn_http_client::{RequestSigner, Signing, UnsignedRequest};
use firn_model::env::Clock;
use firn_model::error::Error;
use firn_yaml::{YamlError, YamlNode};
use hyper::HeaderMap;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderName};
use std::path::Path;
use std::sync::Arc;
use tokio::sync::Mutex;

/// Maximum size, in bytes, of a response with credentials.
const BYTES_MAX: u64 = 1 << 20;

/// Prometheus's default for `service_name`: Amazon's managed service for Prometheus.
const SERVICE: &str = "aps";

/// The `sigv4` key: how requests to a service behind AWS authentication are signed.
#[derive(Clone, Debug, PartialEq)]
pub struct SigV4Settings {
    /// Region and credential sources.
    pub keys: AwsSettings,
    /// The `service_name` key: name of the service in signatures.
    pub service: String,
}

impl SigV4Settings {
    /// Creates the signer that these settings describe, for use by an HTTP client.
    pub fn build_signer(&self, clock: Arc<dyn Clock>) -> Arc<dyn RequestSigner> {
        Arc::new(AwsSigner::new(&self.keys, &self.service, clock))
    }
}

/// Reads the section `sigv4` of `node`, if it is set.
pub fn read_sigv4(node: &YamlNode, dir: &Path) -> Result<Option<SigV4Settings>, YamlError> {
    let Some(section) = node.get("sigv4").filter(|section| !section.is_null()) else {
        return Ok(None);
    };
    let service = read::text(section, "service_name").filter(|name| !name.is_empty());
    Ok(Some(SigV4Settings {
        keys: read_settings(section, http(section, dir)?, 1),
        service: service.unwrap_or(SERVICE).to_owned(),
    }))
}

/// Signs requests with credentials from the settings, the environment or the instance metadata.
struct AwsSigner {
    service: String,
    api: ApiClient,
    clock: Arc<dyn Clock>,
    /// Locked while credentials are resolved, so that concurrent requests resolve them only once.
    keys: Mutex<SigV4Keys>,
}

struct SigV4Keys {
    chain: AwsCredentialChain,
    /// Region, cached after it has been resolved once.
    region: Option<String>,
}

impl AwsSigner {
    /// Creates a signer for `service`, with the region and credential sources of `settings`.
    fn new(settings: &AwsSettings, service: &str, clock: Arc<dyn Clock>) -> Self {
        let variables = process_environment();
        Self {
            service: service.to_owned(),
            api: ApiClient::new(&settings.client, BYTES_MAX),
            keys: Mutex::new(SigV4Keys {
                chain: AwsCredentialChain::new(settings, variables, clock.clone()),
                region: None,
            }),
            clock,
        }
    }

    async fn resolve_keys(&self) -> Result<(String, AwsCredentials), Error> {
        let mut keys = self.keys.lock().await;
        let region = match &keys.region {
            Some(region) => region.clone(),
            None => keys.chain.resolve_region(&self.api).await?,
        };
        keys.region = Some(region.clone());
        let credentials = keys.chain.get_credentials(&self.api, &region).await?;
        Ok((region, credentials))
    }

    async fn sign_headers(&self, request: UnsignedRequest<'_>) -> Result<HeaderMap, Error> {
        let (region, credentials) = self.resolve_keys().await?;
        let authority = request.uri.authority().map_or("", |a| a.as_str());
        let mut signing = vec![(HOST.as_str().to_owned(), authority.to_owned())];
        if let Some(kind) = request.headers.get(CONTENT_TYPE) {
            let kind = kind.to_str().unwrap_or_default().to_owned();
            signing.push((CONTENT_TYPE.as_str().to_owned(), kind));
        }
        let scope = SigV4Scope {
            region: &region,
            service: &self.service,
            now_ms: self.clock.now_ms(),
        };
        let whole = Request {
            method: request.method.as_str(),
            path: request.uri.path(),
            query: request.uri.query().unwrap_or_default(),
            body: request.body,
        };
        let signed = SigV4Headers::new(&whole, signing, &credentials, &scope);
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, parse_header_value(&signed.authorization)?);
        for (name, value) in signed.added {
            headers.insert(HeaderName::from_static(name), parse_header_value(&value)?);
        }
        Ok(headers)
    }
}

impl RequestSigner for AwsSigner {
    fn sign<'a>(&'a self, request: UnsignedRequest<'a>) -> Signing<'a> {
        Box::pin(self.sign_headers(request))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_http_client::HttpSettings;
    use firn_model::env::sim;
    use hyper::body::Bytes;
    use hyper::header::HeaderValue;
    use hyper::{Method, Uri};
    use std::time::Duration;

    #[tokio::test]
    async fn request_is_signed_for_region_and_service_of_the_settings() {
        let settings = AwsSettings {
            region: "eu-west-1".into(),
            endpoint: String::new(),
            access_key: "AKIDEXAMPLE".into(),
            secret_key: "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY".into(),
            profile: String::new(),
            role_arn: String::new(),
            external_id: String::new(),
            port: 0,
            filters: Vec::new(),
            clusters: Vec::new(),
            concurrency: 1,
            refresh: Duration::ZERO,
            client: HttpSettings::default(),
        };
        let signer = AwsSigner::new(&settings, "aps", sim::sim_env(1).env.clock.clone());
        let uri = Uri::from_static("https://a.example/workspaces/ws-1/api/v1/remote_write");
        let kind = HeaderValue::from_static("application/x-protobuf");
        let headers = HeaderMap::from_iter([(CONTENT_TYPE, kind)]);
        let of = async |body: &'static [u8]| {
            let body = Bytes::from_static(body);
            let signed = signer.sign(UnsignedRequest {
                method: &Method::POST,
                uri: &uri,
                headers: &headers,
                body: &body,
            });
            let signed = signed.await.unwrap();
            let text = signed[AUTHORIZATION].to_str().unwrap().to_owned();
            (text, signed.contains_key("x-amz-date"))
        };
        let (text, is_dated) = of(b"x").await;
        assert!(is_dated);
        for part in [
            "Credential=AKIDEXAMPLE/",
            "/eu-west-1/aps/aws4_request",
            "SignedHeaders=content-type;host;x-amz-date",
        ] {
            assert!(text.contains(part), "{text}");
        }
        assert_ne!(of(b"y").await.0, text, "the body is signed");
    }
}

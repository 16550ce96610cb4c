//! Targets from Amazon's clouds: instances of EC2 and of Lightsail.
//!
//! ```text
//! credentials -> request, signed -> answer -> next token -> request ..
//! ```
//!
//! Facts are from upstream's `discovery/aws`, from Amazon's APIs, and from the order in which its
//! SDK looks for credentials.

mod credentials;
mod ec2;
mod lightsail;
mod sign;
#[cfg(test)]
mod tests;

pub(super) use ec2::Ec2;
pub(super) use lightsail::Lightsail;

use super::api::{Answer, Api, header_value, wrong};
use super::docker::Filter;
use crate::client::HttpSettings;
use credentials::Chain;
use firn_model::env::Clock;
use firn_model::error::Error;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use sign::{Scope, Signed};
use std::sync::Arc;
use std::time::Duration;

/// One of `ec2_sd_configs` or `lightsail_sd_configs`
#[derive(Clone, PartialEq)]
pub struct AwsSettings {
    /// `region`; if it is empty, that of the environment or of this machine.
    pub region: String,
    /// `endpoint`
    pub endpoint: String,
    /// `access_key`
    pub access_key: String,
    /// `secret_key`
    pub secret_key: String,
    /// `profile`
    pub profile: String,
    /// `role_arn`
    pub role_arn: String,
    /// `external_id`
    pub external_id: String,
    /// `port`
    pub port: i64,
    /// `filters`, of EC2.
    pub filters: Vec<Filter>,
    /// `refresh_interval`
    pub refresh: Duration,
    /// How the API is reached.
    pub client: HttpSettings,
}

impl std::fmt::Debug for AwsSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AwsSettings")
            .field("region", &self.region)
            .field("endpoint", &self.endpoint)
            .field("filters", &self.filters)
            .finish_non_exhaustive()
    }
}

/// Reads a variable of the environment.
type Variables = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// One of Amazon's APIs, asked with signed requests.
struct Service {
    settings: AwsSettings,
    /// The name of the service in URLs and signatures.
    name: &'static str,
    api: Api,
    chain: Chain,
    clock: Arc<dyn Clock>,
}

impl Service {
    fn new(
        name: &'static str,
        settings: &AwsSettings,
        bytes_max: u64,
        clock: Arc<dyn Clock>,
        variables: Variables,
    ) -> Self {
        Self {
            api: Api::new(&settings.client, bytes_max),
            chain: Chain::new(settings, variables, clock.clone()),
            settings: settings.clone(),
            name,
            clock,
        }
    }

    /// Posts `body` with `headers` and a signature.
    async fn ask(
        &mut self,
        region: &str,
        mut headers: HeaderMap,
        content_type: &'static str,
        body: String,
    ) -> Result<Answer, Error> {
        let endpoint = match self.settings.endpoint.as_str() {
            "" => endpoint(self.name, region),
            endpoint => endpoint.trim_end_matches('/').to_owned(),
        };
        let credentials = self.chain.credentials(&self.api, region).await?;
        let scope = Scope {
            region,
            service: self.name,
            now_ms: self.clock.now_ms(),
        };
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        add_signature(&mut headers, &endpoint, &body, &credentials, &scope)?;
        let url = format!("{endpoint}/");
        let answer = self.api.post(&url, &headers, body.into()).await?;
        if !answer.status.is_success() {
            // Others may be at hand by now.
            self.chain.forget();
        }
        answer.good()
    }
}

/// Adds to `headers` the date and the signature of a POST of `body`.
fn add_signature(
    headers: &mut HeaderMap,
    endpoint: &str,
    body: &str,
    credentials: &credentials::Credentials,
    scope: &Scope<'_>,
) -> Result<(), Error> {
    let host = endpoint
        .split_once("://")
        .map_or(endpoint, |(_, rest)| rest);
    let host = host.split('/').next().unwrap_or_default();
    let mut signing: Vec<(String, String)> = vec![("host".into(), host.into())];
    for (name, value) in headers.iter() {
        let value = value.to_str().unwrap_or_default();
        signing.push((name.as_str().into(), value.into()));
    }
    let signed = Signed::new("POST", "", signing, body, credentials, scope);
    headers.insert(AUTHORIZATION, header_value(&signed.authorization)?);
    for (name, value) in signed.added {
        headers.insert(HeaderName::from_static(name), header_value(&value)?);
    }
    Ok(())
}

/// Where a service is in a region.
fn endpoint(service: &str, region: &str) -> String {
    let ending = if region.starts_with("cn-") { ".cn" } else { "" };
    format!("https://{service}.{region}.amazonaws.com{ending}")
}

/// What went wrong, behind `what`.
fn failed(what: &str, error: &Error) -> Error {
    wrong(format!("{what}: {error}"))
}

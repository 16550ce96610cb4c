//! One of Amazon's APIs.

use super::credentials::Chain;
use super::request::{add_signature, endpoint};
use super::settings::{AwsSettings, Variables};
use super::sign::Scope;
use crate::discovery::api::{Answer, Api};
use firn_model::env::Clock;
use firn_model::error::Error;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use std::sync::Arc;

/// One of Amazon's APIs, asked with signed requests.
pub(super) struct Service {
    pub(super) settings: AwsSettings,
    /// The name of the service in URLs and signatures.
    name: &'static str,
    pub(super) api: Api,
    pub(super) chain: Chain,
    clock: Arc<dyn Clock>,
}

impl Service {
    pub(super) fn new(
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
    pub(super) async fn ask(
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

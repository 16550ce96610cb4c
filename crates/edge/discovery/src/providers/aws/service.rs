//! State that a discovery keeps between refreshes to call one AWS service: settings, HTTP client
//! and credential chain.

use super::credentials::AwsCredentialChain;
use super::request::default_endpoint;
use super::session::AwsSession;
use super::settings::AwsSettings;
use crate::api::ApiClient;
use crate::environment::Variables;
use firn_model::env::Clock;
use firn_model::error::Error;
use std::sync::Arc;

/// Client of one AWS service, owned by a discovery. Creates a [`AwsSession`] for each refresh.
pub(super) struct AwsServiceClient {
    pub(super) settings: AwsSettings,
    /// Name of the service in endpoint URLs and signatures.
    name: &'static str,
    api: Arc<ApiClient>,
    chain: AwsCredentialChain,
    variables: Variables,
    clock: Arc<dyn Clock>,
}

impl AwsServiceClient {
    pub(super) fn new(
        name: &'static str,
        settings: &AwsSettings,
        bytes_max: u64,
        clock: Arc<dyn Clock>,
        variables: Variables,
    ) -> Self {
        Self {
            api: Arc::new(ApiClient::new(&settings.client, bytes_max)),
            chain: AwsCredentialChain::new(settings, variables.clone(), clock.clone()),
            settings: settings.clone(),
            name,
            variables,
            clock,
        }
    }

    /// Resolves region, credentials and endpoint for the requests of one refresh.
    pub(super) async fn open_session(&mut self) -> Result<AwsSession, Error> {
        let region = self.chain.resolve_region(&self.api).await?;
        let keys = self.chain.get_credentials(&self.api, &region).await?;
        let place = match self.settings.endpoint.as_str() {
            "" => resolve_endpoint(self.name, &region, &self.variables),
            place => place.trim_end_matches('/').to_owned(),
        };
        Ok(AwsSession {
            api: self.api.clone(),
            keys,
            region,
            endpoint: place,
            service: self.name,
            clock: self.clock.clone(),
        })
    }

    /// Passes the result of a refresh through. On failure, drops the cached credentials, since a
    /// retry may need new ones.
    pub(super) fn check_refresh<T>(&mut self, answer: Result<T, Error>) -> Result<T, Error> {
        if answer.is_err() {
            self.chain.clear_cache();
        }
        answer
    }
}

/// Returns the endpoint of a service whose endpoint is not in the config: from the environment,
/// else the default of AWS.
fn resolve_endpoint(name: &str, region: &str, variables: &Variables) -> String {
    let of_service = format!("AWS_ENDPOINT_URL_{}", name.to_ascii_uppercase());
    let named = [of_service.as_str(), "AWS_ENDPOINT_URL"]
        .into_iter()
        .filter_map(|variable| variables(variable))
        .find(|place| !place.is_empty());
    match named {
        Some(place) => place.trim_end_matches('/').to_owned(),
        None => default_endpoint(name, region),
    }
}

impl AwsSession {
    /// Returns a session for another service with the same credentials and region.
    pub(super) fn for_service(&self, name: &'static str, variables: &Variables) -> Self {
        Self {
            endpoint: resolve_endpoint(name, &self.region, variables),
            service: name,
            ..self.clone()
        }
    }
}

//! What a config says of one of Amazon's clouds.

use super::signer::AwsSigner;
use crate::client::{HttpSettings, Sign};
use crate::discovery::docker::Filter;
use firn_model::env::Clock;
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

/// `sigv4`: how requests to a service behind Amazon's gates are signed.
#[derive(Clone, Debug, PartialEq)]
pub struct SigV4Settings {
    /// Where the keys come from, and the region.
    pub keys: AwsSettings,
    /// `service_name`
    pub service: String,
}

impl SigV4Settings {
    /// What signs so.
    pub fn signer(&self, clock: Arc<dyn Clock>) -> Arc<dyn Sign> {
        Arc::new(AwsSigner::new(&self.keys, &self.service, clock))
    }
}

/// Reads a variable of the environment.
pub(super) type Variables = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

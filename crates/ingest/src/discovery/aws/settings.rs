//! What a config says of one of Amazon's clouds.

use crate::client::HttpSettings;
use crate::discovery::docker::Filter;
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
pub(in super::super) type Variables = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

//! What a config says of one of Amazon's clouds.

use crate::docker::Filter;
use firn_http_client::HttpSettings;
use std::time::Duration;

/// What the discoveries of Amazon's clouds have in common, and what some of them have.
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
    /// `filters`, of EC2 and RDS.
    pub filters: Vec<Filter>,
    /// `clusters`, of ECS, ElastiCache, MSK and RDS; empty for all.
    pub clusters: Vec<String>,
    /// `request_concurrency`, of the same: requests side by side.
    pub concurrency: usize,
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

//! Configuration of the AWS discoveries.

use crate::providers::docker::{DockerFilter, read_filters};
use firn_config_schema::read;
use firn_http_client::HttpSettings;
use firn_yaml::YamlNode;
use std::time::Duration;

/// Upstream's defaults for `port` and `refresh_interval` of all AWS discoveries.
pub(super) const PORT: i64 = 80;
pub(super) const REFRESH: Duration = Duration::from_secs(60);

/// Settings of an AWS discovery. Most keys apply to all AWS services, some only to those named at
/// the field.
#[derive(Clone, PartialEq)]
pub struct AwsSettings {
    /// The `region` key. If empty, the region is read from the environment or the instance
    /// metadata.
    pub region: String,
    /// The `endpoint` key: base URL of the service. If empty, the default endpoint of AWS is used.
    pub endpoint: String,
    /// The `access_key` key: id of the access key; empty to use other credential sources.
    pub access_key: String,
    /// The `secret_key` key: secret part of the access key; empty to use other credential sources.
    pub secret_key: String,
    /// The `profile` key: name of a profile in the AWS files; empty for that in the environment.
    pub profile: String,
    /// The `role_arn` key: ARN of the role to assume with the credentials; empty for none.
    pub role_arn: String,
    /// The `external_id` key: id that is passed when the role is assumed; empty for none.
    pub external_id: String,
    /// The `port` key: port in the addresses of all targets, which relabelling can replace.
    pub port: i64,
    /// The `filters` key (EC2 and RDS only): filters that the API applies to instances.
    pub filters: Vec<DockerFilter>,
    /// The `clusters` key (ECS, ElastiCache, MSK and RDS): ARNs to discover; empty for all
    /// clusters.
    pub clusters: Vec<String>,
    /// The `request_concurrency` key (same services): maximum number of concurrent requests.
    pub concurrency: usize,
    /// The `refresh_interval` key: time between two refreshes, and the timeout of one.
    pub refresh: Duration,
    /// Settings of the HTTP client that calls the API: credentials, TLS, proxies and redirects.
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

/// Reads the settings of `node`. `concurrency` is the default of `request_concurrency`.
pub(super) fn read_settings(
    node: &YamlNode,
    client: HttpSettings,
    concurrency: usize,
) -> AwsSettings {
    let side_by_side = read::integer_or(node, "request_concurrency", concurrency as i64);
    AwsSettings {
        region: read::string(node, "region"),
        endpoint: read::string(node, "endpoint"),
        access_key: read::string(node, "access_key"),
        secret_key: read::string(node, "secret_key"),
        profile: read::string(node, "profile"),
        role_arn: read::string(node, "role_arn"),
        external_id: read::string(node, "external_id"),
        port: read::integer_or(node, "port", PORT),
        filters: read_filters(node),
        clusters: read::texts(node, "clusters").unwrap_or_default(),
        concurrency: usize::try_from(side_by_side).unwrap_or(concurrency),
        refresh: read::duration(node, "refresh_interval").unwrap_or(REFRESH),
        client,
    }
}

//! Readers of discoveries of AWS: keys and checks.

use super::values::filters;
use crate::config::http::{http, tls};
use crate::config::read;
use firn_discovery::{AwsSettings, DiscoverySettings, SigV4Settings};
use firn_http_client::HttpSettings;
use firn_yaml::{YamlError, YamlNode};
use std::path::Path;
use std::time::Duration;

/// Prometheus's default for `service_name`: Amazon's managed service for Prometheus.
const SERVICE: &str = "aps";

/// Upstream's defaults for `port` and `refresh_interval` of all AWS discoveries.
const PORT: i64 = 80;
const REFRESH: Duration = Duration::from_secs(60);

/// Upstream's defaults for `request_concurrency` of the discoveries that use it.
const CONCURRENCY: usize = 10;
const ECS_CONCURRENCY: usize = 20;

/// Reads an entry of `ec2_sd_configs`, whose filters must have values.
pub fn ec2(node: &YamlNode, dir: &Path) -> Result<DiscoverySettings, YamlError> {
    let settings = settings(node, http(node, dir)?, 1);
    if settings
        .filters
        .iter()
        .any(|filter| filter.values.is_empty())
    {
        return Err(node.error("EC2 SD configuration filter values cannot be empty"));
    }
    Ok(DiscoverySettings::Ec2(Box::new(settings)))
}

/// Reads an entry of `lightsail_sd_configs`, all of whose keys are optional.
pub fn lightsail(node: &YamlNode, dir: &Path) -> Result<DiscoverySettings, YamlError> {
    let settings = settings(node, http(node, dir)?, 1);
    Ok(DiscoverySettings::Lightsail(Box::new(settings)))
}

/// Reads the section `sigv4` of `node`, if it is set.
pub fn sigv4(node: &YamlNode, dir: &Path) -> Result<Option<SigV4Settings>, YamlError> {
    let Some(section) = node.get("sigv4").filter(|section| !section.is_null()) else {
        return Ok(None);
    };
    let service = read::text(section, "service_name").filter(|name| !name.is_empty());
    Ok(Some(SigV4Settings {
        keys: settings(section, http(section, dir)?, 1),
        service: service.unwrap_or(SERVICE).to_owned(),
    }))
}

/// Reads an entry of `ecs_sd_configs`, all of whose keys are optional.
pub fn ecs(node: &YamlNode, dir: &Path) -> Result<DiscoverySettings, YamlError> {
    let settings = settings(node, http(node, dir)?, ECS_CONCURRENCY);
    Ok(DiscoverySettings::Ecs(Box::new(settings)))
}

/// Reads an entry of `elasticache_sd_configs`, all of whose keys are optional.
pub fn elasticache(node: &YamlNode, dir: &Path) -> Result<DiscoverySettings, YamlError> {
    let settings = settings(node, http(node, dir)?, CONCURRENCY);
    Ok(DiscoverySettings::ElastiCache(Box::new(settings)))
}

/// Reads an entry of `msk_sd_configs`, all of whose keys are optional.
pub fn msk(node: &YamlNode, dir: &Path) -> Result<DiscoverySettings, YamlError> {
    let settings = settings(node, http(node, dir)?, CONCURRENCY);
    Ok(DiscoverySettings::Msk(Box::new(settings)))
}

/// Reads an entry of `rds_sd_configs`, all of whose keys are optional.
pub fn rds(node: &YamlNode, dir: &Path) -> Result<DiscoverySettings, YamlError> {
    let settings = settings(node, http(node, dir)?, CONCURRENCY);
    Ok(DiscoverySettings::Rds(Box::new(settings)))
}

/// Reads an entry of `aws_sd_configs`: one of the other discoveries, chosen by its role. As
/// upstream, only the TLS settings of its HTTP client are validated. A zero interval or port is
/// replaced by the default of the role.
pub fn aws(node: &YamlNode, dir: &Path) -> Result<DiscoverySettings, YamlError> {
    let tls = tls(node.get("tls_config"), dir)?;
    let role = read::string(node, "role");
    let (make, concurrency): (fn(Box<AwsSettings>) -> DiscoverySettings, usize) =
        match role.as_str() {
            "ec2" => (DiscoverySettings::Ec2, 1),
            "ecs" => (DiscoverySettings::Ecs, ECS_CONCURRENCY),
            "elasticache" => (DiscoverySettings::ElastiCache, CONCURRENCY),
            "lightsail" => (DiscoverySettings::Lightsail, 1),
            "msk" => (DiscoverySettings::Msk, CONCURRENCY),
            "rds" => (DiscoverySettings::Rds, CONCURRENCY),
            role => return Err(node.error(format!("unknown AWS SD role {role:?}"))),
        };
    let client = http(node, dir).unwrap_or_else(|_| HttpSettings {
        tls,
        ..HttpSettings::default()
    });
    let mut settings = settings(node, client, concurrency);
    if settings.refresh.is_zero() {
        settings.refresh = REFRESH;
    }
    if settings.port == 0 {
        settings.port = PORT;
    }
    Ok(make(Box::new(settings)))
}

/// Reads the settings of `node`. `concurrency` is the default of `request_concurrency`.
fn settings(node: &YamlNode, client: HttpSettings, concurrency: usize) -> AwsSettings {
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
        filters: filters(node),
        clusters: read::texts(node, "clusters").unwrap_or_default(),
        concurrency: usize::try_from(side_by_side).unwrap_or(concurrency),
        refresh: read::duration(node, "refresh_interval").unwrap_or(REFRESH),
        client,
    }
}

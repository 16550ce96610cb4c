//! Discoveries of Amazon's clouds: keys and checks.

use super::values::filters;
use crate::settings::config::http::{http, tls};
use crate::settings::config::read;
use firn_discovery::{AwsSettings, DiscoverySettings, SigV4Settings};
use firn_http_client::HttpSettings;
use firn_model::yaml::{Node, YamlError};
use std::path::Path;
use std::time::Duration;

/// Prometheus's default for `service_name`: Amazon's service for Prometheus.
const SERVICE: &str = "aps";

/// Upstream's defaults for `port` and `refresh_interval`.
const PORT: i64 = 80;
const REFRESH: Duration = Duration::from_secs(60);

/// Upstream's defaults for `request_concurrency`.
const CONCURRENCY: usize = 10;
const ECS_CONCURRENCY: usize = 20;

/// One of `ec2_sd_configs`
pub fn ec2(node: &Node, dir: &Path) -> Result<DiscoverySettings, YamlError> {
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

/// One of `lightsail_sd_configs`
pub fn lightsail(node: &Node, dir: &Path) -> Result<DiscoverySettings, YamlError> {
    let settings = settings(node, http(node, dir)?, 1);
    Ok(DiscoverySettings::Lightsail(Box::new(settings)))
}

/// `sigv4` of `node`, if it is there.
pub fn sigv4(node: &Node, dir: &Path) -> Result<Option<SigV4Settings>, YamlError> {
    let Some(section) = node.get("sigv4").filter(|section| !section.is_null()) else {
        return Ok(None);
    };
    let service = read::text(section, "service_name").filter(|name| !name.is_empty());
    Ok(Some(SigV4Settings {
        keys: settings(section, http(section, dir)?, 1),
        service: service.unwrap_or(SERVICE).to_owned(),
    }))
}

/// One of `ecs_sd_configs`
pub fn ecs(node: &Node, dir: &Path) -> Result<DiscoverySettings, YamlError> {
    let settings = settings(node, http(node, dir)?, ECS_CONCURRENCY);
    Ok(DiscoverySettings::Ecs(Box::new(settings)))
}

/// One of `elasticache_sd_configs`
pub fn elasticache(node: &Node, dir: &Path) -> Result<DiscoverySettings, YamlError> {
    let settings = settings(node, http(node, dir)?, CONCURRENCY);
    Ok(DiscoverySettings::ElastiCache(Box::new(settings)))
}

/// One of `msk_sd_configs`
pub fn msk(node: &Node, dir: &Path) -> Result<DiscoverySettings, YamlError> {
    let settings = settings(node, http(node, dir)?, CONCURRENCY);
    Ok(DiscoverySettings::Msk(Box::new(settings)))
}

/// One of `rds_sd_configs`
pub fn rds(node: &Node, dir: &Path) -> Result<DiscoverySettings, YamlError> {
    let settings = settings(node, http(node, dir)?, CONCURRENCY);
    Ok(DiscoverySettings::Rds(Box::new(settings)))
}

/// One of `aws_sd_configs`: any of the others by its role. Upstream looks at the TLS of such a
/// section, and no further at how the service is reached. An interval or a port of zero is that of
/// the role.
pub fn aws(node: &Node, dir: &Path) -> Result<DiscoverySettings, YamlError> {
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

/// What `node` says; `concurrency` is the default for `request_concurrency`.
fn settings(node: &Node, client: HttpSettings, concurrency: usize) -> AwsSettings {
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

//! `ec2_sd_configs` and `lightsail_sd_configs`: keys and checks.

use super::values::{filters, refresh};
use crate::settings::config::http::http;
use crate::settings::config::read;
use firn_ingest::discovery::{AwsSettings, DiscoverySettings, SigV4Settings};
use firn_model::yaml::{Node, YamlError};
use std::path::Path;

/// Prometheus's default for `service_name`: Amazon's service for Prometheus.
const SERVICE: &str = "aps";

/// One of `ec2_sd_configs`
pub fn ec2(node: &Node, dir: &Path) -> Result<DiscoverySettings, YamlError> {
    let settings = settings(node, dir)?;
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
    Ok(DiscoverySettings::Lightsail(Box::new(settings(node, dir)?)))
}

/// `sigv4` of `node`, if it is there.
pub fn sigv4(node: &Node, dir: &Path) -> Result<Option<SigV4Settings>, YamlError> {
    let Some(section) = node.get("sigv4").filter(|section| !section.is_null()) else {
        return Ok(None);
    };
    let service = read::text(section, "service_name").filter(|name| !name.is_empty());
    Ok(Some(SigV4Settings {
        keys: settings(section, dir)?,
        service: service.unwrap_or(SERVICE).to_owned(),
    }))
}

fn settings(node: &Node, dir: &Path) -> Result<AwsSettings, YamlError> {
    Ok(AwsSettings {
        region: read::string(node, "region"),
        endpoint: read::string(node, "endpoint"),
        access_key: read::string(node, "access_key"),
        secret_key: read::string(node, "secret_key"),
        profile: read::string(node, "profile"),
        role_arn: read::string(node, "role_arn"),
        external_id: read::string(node, "external_id"),
        port: read::integer_or(node, "port", 80),
        filters: filters(node),
        refresh: refresh(node, 60),
        client: http(node, dir)?,
    })
}

//! `ec2_sd_configs` and `lightsail_sd_configs`: keys and checks.

use super::values::{filters, refresh};
use crate::settings::config::http::http;
use crate::settings::config::read;
use firn_ingest::discovery::{AwsSettings, DiscoverySettings};
use firn_model::yaml::{Node, YamlError};
use std::path::Path;

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

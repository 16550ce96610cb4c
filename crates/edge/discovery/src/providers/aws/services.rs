//! Services of AWS that have a discovery, each with its keys, its checks and the start of its task.

use super::ec2::Ec2Discovery;
use super::ecs::EcsDiscovery;
use super::elasticache::ElastiCacheDiscovery;
use super::lightsail::LightsailDiscovery;
use super::msk::MskDiscovery;
use super::rds::RdsDiscovery;
use super::settings::{AwsSettings, PORT, REFRESH, read_settings};
use crate::discover::Refresh;
use crate::provider::{
    DiscoveryMechanism, DiscoveryProvider, DiscoverySettings, DiscoveryStarter, DiscoveryTask,
    ReadResult,
};
use crate::providers::docker::FILTERS;
use firn_config_schema::read;
use firn_config_schema::schema::{ConfigKey, ConfigValueShape as Shape, TEXTS, key};
use firn_http_client::HttpSettings;
use firn_http_client::http_config::{HTTP_CLIENT, http, tls};
use firn_model::env::Clock;
use firn_yaml::YamlNode;
use std::path::Path;
use std::sync::Arc;

/// The provider of `aws_sd_configs`: one of the other providers, chosen by the role of an entry.
pub(in super::super) const BY_ROLE: DiscoveryProvider = DiscoveryProvider::new(
    "aws_sd_configs",
    &Shape::Section(&[CLIENT_KEYS, ROLE_KEYS, HTTP_CLIENT]),
    read_by_role,
);

/// The provider of `ec2_sd_configs`.
pub(in super::super) const EC2: DiscoveryProvider = DiscoveryProvider::new(
    "ec2_sd_configs",
    &Shape::Section(&[CLIENT_KEYS, EC2_KEYS, HTTP_CLIENT]),
    read_ec2,
);

/// The provider of `ecs_sd_configs`.
pub(in super::super) const ECS: DiscoveryProvider = DiscoveryProvider::new(
    "ecs_sd_configs",
    &Shape::Section(&[CLIENT_KEYS, CLUSTER_KEYS, HTTP_CLIENT]),
    |node, dir| read_service(node, dir, &ECS_SERVICE),
);

/// The provider of `elasticache_sd_configs`.
pub(in super::super) const ELASTICACHE: DiscoveryProvider = DiscoveryProvider::new(
    "elasticache_sd_configs",
    &Shape::Section(&[CLIENT_KEYS, CLUSTER_KEYS, HTTP_CLIENT]),
    |node, dir| read_service(node, dir, &ELASTICACHE_SERVICE),
);

/// The provider of `lightsail_sd_configs`.
pub(in super::super) const LIGHTSAIL: DiscoveryProvider = DiscoveryProvider::new(
    "lightsail_sd_configs",
    &Shape::Section(&[CLIENT_KEYS, HTTP_CLIENT]),
    |node, dir| read_service(node, dir, &LIGHTSAIL_SERVICE),
);

/// The provider of `msk_sd_configs`.
pub(in super::super) const MSK: DiscoveryProvider = DiscoveryProvider::new(
    "msk_sd_configs",
    &Shape::Section(&[CLIENT_KEYS, CLUSTER_KEYS, HTTP_CLIENT]),
    |node, dir| read_service(node, dir, &MSK_SERVICE),
);

/// The provider of `rds_sd_configs`.
pub(in super::super) const RDS: DiscoveryProvider = DiscoveryProvider::new(
    "rds_sd_configs",
    &Shape::Section(&[CLIENT_KEYS, CLUSTER_KEYS, EC2_KEYS, HTTP_CLIENT]),
    |node, dir| read_service(node, dir, &RDS_SERVICE),
);

/// Keys of the API client that all entries accept.
const CLIENT_KEYS: &[ConfigKey] = &[
    key("region", Shape::Text),
    key("endpoint", Shape::Text),
    key("access_key", Shape::Text),
    key("secret_key", Shape::Secret),
    key("profile", Shape::Text),
    key("role_arn", Shape::Text),
    key("external_id", Shape::Text),
    key("port", Shape::Integer),
    key("refresh_interval", Shape::Duration),
];

const ROLE_KEYS: &[ConfigKey] = &[
    key("role", Shape::Text),
    key("filters", FILTERS),
    key("clusters", TEXTS),
];

const EC2_KEYS: &[ConfigKey] = &[key("filters", FILTERS)];

const CLUSTER_KEYS: &[ConfigKey] = &[
    key("clusters", TEXTS),
    key("request_concurrency", Shape::Integer),
];

/// A service with a discovery: its role, its default concurrency, and the start of its task.
struct AwsService {
    /// Role in `aws_sd_configs`, and name of the mechanism in metrics.
    role: &'static str,
    /// Upstream's default for `request_concurrency`; 1 if the service does not use it.
    concurrency: usize,
    start: fn(&AwsSettings, &DiscoveryStarter) -> DiscoveryTask,
}

impl AwsService {
    fn with_settings(&'static self, settings: AwsSettings) -> DiscoverySettings {
        let service = self;
        DiscoverySettings::provided(AwsDiscoverySettings { service, settings })
    }
}

const SERVICES: [&AwsService; 6] = [
    &EC2_SERVICE,
    &ECS_SERVICE,
    &ELASTICACHE_SERVICE,
    &LIGHTSAIL_SERVICE,
    &MSK_SERVICE,
    &RDS_SERVICE,
];

static EC2_SERVICE: AwsService = AwsService {
    role: "ec2",
    concurrency: 1,
    start: |settings, starter| refresh(settings, starter, Ec2Discovery::new),
};

static ECS_SERVICE: AwsService = AwsService {
    role: "ecs",
    concurrency: 20,
    start: |settings, starter| refresh(settings, starter, EcsDiscovery::new),
};

static ELASTICACHE_SERVICE: AwsService = AwsService {
    role: "elasticache",
    concurrency: 10,
    start: |settings, starter| refresh(settings, starter, ElastiCacheDiscovery::new),
};

static LIGHTSAIL_SERVICE: AwsService = AwsService {
    role: "lightsail",
    concurrency: 1,
    start: |settings, starter| refresh(settings, starter, LightsailDiscovery::new),
};

static MSK_SERVICE: AwsService = AwsService {
    role: "msk",
    concurrency: 10,
    start: |settings, starter| refresh(settings, starter, MskDiscovery::new),
};

static RDS_SERVICE: AwsService = AwsService {
    role: "rds",
    concurrency: 10,
    start: |settings, starter| refresh(settings, starter, RdsDiscovery::new),
};

/// Starts the task of the service that `create` returns.
fn refresh<S: Refresh>(
    settings: &AwsSettings,
    starter: &DiscoveryStarter,
    create: fn(&AwsSettings, u64, Arc<dyn Clock>) -> S,
) -> DiscoveryTask {
    starter.refresh(create(settings, starter.bytes_max, starter.clock.clone()))
}

/// An entry of the list of a service, or of `aws_sd_configs` with the role of the service.
struct AwsDiscoverySettings {
    service: &'static AwsService,
    settings: AwsSettings,
}

impl PartialEq for AwsDiscoverySettings {
    fn eq(&self, other: &Self) -> bool {
        self.service.role == other.service.role && self.settings == other.settings
    }
}

impl std::fmt::Debug for AwsDiscoverySettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple(self.service.role)
            .field(&self.settings)
            .finish()
    }
}

impl DiscoveryMechanism for AwsDiscoverySettings {
    fn mechanism(&self) -> &'static str {
        self.service.role
    }

    fn start(&self, starter: &DiscoveryStarter) -> DiscoveryTask {
        (self.service.start)(&self.settings, starter)
    }
}

/// Reads an entry of the list of `service`, all of whose keys are optional.
fn read_service(node: &YamlNode, dir: &Path, service: &'static AwsService) -> ReadResult {
    let settings = read_settings(node, http(node, dir)?, service.concurrency);
    Ok(service.with_settings(settings))
}

/// Reads an entry of `ec2_sd_configs`, whose filters must have values.
fn read_ec2(node: &YamlNode, dir: &Path) -> ReadResult {
    let settings = read_settings(node, http(node, dir)?, EC2_SERVICE.concurrency);
    if settings
        .filters
        .iter()
        .any(|filter| filter.values.is_empty())
    {
        return Err(node.error("EC2 SD configuration filter values cannot be empty"));
    }
    Ok(EC2_SERVICE.with_settings(settings))
}

/// Reads an entry of `aws_sd_configs`. As upstream, only the TLS settings of its HTTP client are
/// validated. A zero interval or port is replaced by the default of the role.
fn read_by_role(node: &YamlNode, dir: &Path) -> ReadResult {
    let tls = tls(node.get("tls_config"), dir)?;
    let role = read::string(node, "role");
    let Some(service) = SERVICES.into_iter().find(|service| service.role == role) else {
        return Err(node.error(format!("unknown AWS SD role {role:?}")));
    };
    let client = http(node, dir).unwrap_or_else(|_| HttpSettings {
        tls,
        ..HttpSettings::default()
    });
    let mut settings = read_settings(node, client, service.concurrency);
    if settings.refresh.is_zero() {
        settings.refresh = REFRESH;
    }
    if settings.port == 0 {
        settings.port = PORT;
    }
    Ok(service.with_settings(settings))
}

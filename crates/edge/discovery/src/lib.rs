//! Service discovery: the sources of a job's targets.
//!
//! ```text
//! static_configs ---------------------------------> groups, once
//! polled: files, HTTP, DNS, clouds -- interval ---> groups
//! watched: Consul, Kubernetes, .. -- each change -> groups, at a limited rate
//! ```
//!
//! Each discovery is a task that owns a list of target groups and publishes it as a whole; a job
//! reads the latest list of each of its discoveries. The labels with the prefix `__meta_` are those
//! of Prometheus. The traits in `discover` separate polling and publishing from the individual
//! mechanisms.
//!
//! Invariant: a source that cannot be read keeps its last published list.

mod api;
mod discover;
mod environment;
mod group;
mod json;
mod meta;
mod metrics;
mod once;
mod pages;
mod parts;
mod providers;
mod published;
mod side_by_side;
#[cfg(test)]
mod stub;
#[cfg(test)]
mod tests;
mod tokens;
mod xml;
mod xmlrpc;

pub use group::{ReadYaml, TargetGroup, check_address, read_json_groups};
pub use metrics::{DiscoveryMetrics, DiscoveryOwner};
pub use providers::{
    AwsSettings, AzureAdSettings, AzureCloud, AzureIdentity, AzureSettings, ConsulSettings,
    ConsulToken, DigitalOceanRole, DigitalOceanSettings, DnsRecordType, DnsSettings, DockerFilter,
    DockerSettings, EurekaSettings, GceSettings, GoogleIamSettings, HetznerRole, HetznerSettings,
    IonosSettings, KubernetesAttachMetadata, KubernetesRole, KubernetesSelector,
    KubernetesSettings, KumaSettings, LinodeSettings, MarathonSettings, NomadSettings, OciSettings,
    OpenStackCredentials, OpenStackRole, OpenStackSettings, OutscaleSettings, OvhService,
    OvhSettings, PuppetDbSettings, ScalewayRole, ScalewaySettings, SigV4Settings, StackitSettings,
    SwarmRole, SwarmSettings, TritonRole, TritonSettings, UyuniSettings, VultrSettings,
    ZookeeperMember, ZookeeperSettings,
};

use firn_http_client::HttpSettings;
use firn_model::env::Clock;
use published::PublishedTargets;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// Settings of one discovery mechanism; each variant is an entry of the config.
#[derive(Clone, Debug, PartialEq)]
pub enum DiscoverySettings {
    /// The groups in `static_configs`, which never change.
    Static(Vec<TargetGroup>),
    /// An entry of `file_sd_configs`: files with target groups in JSON or YAML.
    File {
        /// The `files` key: paths of files, which may contain patterns.
        patterns: Vec<PathBuf>,
        /// The `refresh_interval` key: time between two complete reads.
        refresh: Duration,
    },
    /// An entry of `http_sd_configs`: a URL that returns target groups in JSON.
    Http {
        /// The `url` key: URL that returns the target groups.
        url: String,
        /// The `refresh_interval` key: time between two requests.
        refresh: Duration,
        /// Settings of the HTTP client that calls the server.
        client: Box<HttpSettings>,
    },
    /// An entry of `dns_sd_configs`: DNS names whose records become targets.
    Dns(DnsSettings),
    /// An entry of `consul_sd_configs`: service instances registered in Consul.
    Consul(Box<ConsulSettings>),
    /// An entry of `docker_sd_configs`: containers of a Docker engine.
    Docker(Box<DockerSettings>),
    /// An entry of `dockerswarm_sd_configs`: nodes, services or tasks of a Docker swarm.
    Swarm(Box<SwarmSettings>),
    /// An entry of `kubernetes_sd_configs`: objects of a Kubernetes cluster.
    Kubernetes(Box<KubernetesSettings>),
    /// An entry of `ec2_sd_configs`: instances of AWS EC2 in one region.
    Ec2(Box<AwsSettings>),
    /// An entry of `azure_sd_configs`: virtual machines of an Azure subscription.
    Azure(Box<AzureSettings>),
    /// An entry of `gce_sd_configs`: instances of Google Compute Engine in one zone.
    Gce(Box<GceSettings>),
    /// An entry of `ecs_sd_configs`: tasks of AWS ECS clusters.
    Ecs(Box<AwsSettings>),
    /// An entry of `elasticache_sd_configs`: serverless caches and cache nodes of AWS ElastiCache.
    ElastiCache(Box<AwsSettings>),
    /// An entry of `msk_sd_configs`: Kafka brokers and controllers of AWS MSK.
    Msk(Box<AwsSettings>),
    /// An entry of `rds_sd_configs`: database instances of AWS RDS clusters.
    Rds(Box<AwsSettings>),
    /// An entry of `lightsail_sd_configs`: instances of AWS Lightsail in one region.
    Lightsail(Box<AwsSettings>),
    /// An entry of `nomad_sd_configs`: service instances registered in Nomad.
    Nomad(Box<NomadSettings>),
    /// An entry of `eureka_sd_configs`: application instances registered in Eureka.
    Eureka(Box<EurekaSettings>),
    /// An entry of `hetzner_sd_configs`: cloud or dedicated servers of Hetzner.
    Hetzner(Box<HetznerSettings>),
    /// An entry of `digitalocean_sd_configs`: droplets or managed databases of DigitalOcean.
    DigitalOcean(Box<DigitalOceanSettings>),
    /// An entry of `ionos_sd_configs`: servers of an IONOS Cloud data centre.
    Ionos(Box<IonosSettings>),
    /// An entry of `kuma_sd_configs`: monitoring assignments of a Kuma control plane.
    Kuma(Box<KumaSettings>),
    /// An entry of `linode_sd_configs`: virtual machines of Linode.
    Linode(Box<LinodeSettings>),
    /// An entry of `oci_sd_configs`: compute instances of Oracle Cloud.
    Oci(Box<OciSettings>),
    /// An entry of `serverset_sd_configs` or `nerve_sd_configs`: members registered in ZooKeeper.
    Zookeeper(Box<ZookeeperSettings>),
    /// An entry of `marathon_sd_configs`: tasks of Marathon apps.
    Marathon(Box<MarathonSettings>),
    /// An entry of `openstack_sd_configs`: hypervisors, instances or load balancers of OpenStack.
    OpenStack(Box<OpenStackSettings>),
    /// An entry of `outscale_sd_configs`: virtual machines of Outscale.
    Outscale(Box<OutscaleSettings>),
    /// An entry of `ovhcloud_sd_configs`: virtual private or dedicated servers of OVHcloud.
    OvhCloud(Box<OvhSettings>),
    /// An entry of `puppetdb_sd_configs`: resources that a PuppetDB query returns.
    PuppetDb(Box<PuppetDbSettings>),
    /// An entry of `scaleway_sd_configs`: instances or bare metal servers of Scaleway.
    Scaleway(Box<ScalewaySettings>),
    /// An entry of `stackit_sd_configs`: servers of a STACKIT project.
    Stackit(Box<StackitSettings>),
    /// An entry of `triton_sd_configs`: containers or compute nodes of Triton.
    Triton(Box<TritonSettings>),
    /// An entry of `uyuni_sd_configs`: exporter endpoints of systems that Uyuni manages.
    Uyuni(Box<UyuniSettings>),
    /// An entry of `vultr_sd_configs`: instances of Vultr.
    Vultr(Box<VultrSettings>),
}

impl DiscoverySettings {
    /// Returns the name of the mechanism in metrics, which is the config key without `_sd_configs`.
    pub fn mechanism(&self) -> &'static str {
        match self {
            DiscoverySettings::Static(_) => "static",
            DiscoverySettings::File { .. } => "file",
            DiscoverySettings::Http { .. } => "http",
            DiscoverySettings::Dns(_) => "dns",
            DiscoverySettings::Consul(_) => "consul",
            DiscoverySettings::Docker(_) => "docker",
            DiscoverySettings::Swarm(_) => "dockerswarm",
            DiscoverySettings::Kubernetes(_) => "kubernetes",
            DiscoverySettings::Ec2(_) => "ec2",
            DiscoverySettings::Azure(_) => "azure",
            DiscoverySettings::Gce(_) => "gce",
            DiscoverySettings::Ecs(_) => "ecs",
            DiscoverySettings::ElastiCache(_) => "elasticache",
            DiscoverySettings::Msk(_) => "msk",
            DiscoverySettings::Rds(_) => "rds",
            DiscoverySettings::Lightsail(_) => "lightsail",
            DiscoverySettings::Nomad(_) => "nomad",
            DiscoverySettings::Eureka(_) => "eureka",
            DiscoverySettings::Hetzner(_) => "hetzner",
            DiscoverySettings::DigitalOcean(_) => "digitalocean",
            DiscoverySettings::Ionos(_) => "ionos",
            DiscoverySettings::Kuma(_) => "kuma",
            DiscoverySettings::Linode(_) => "linode",
            DiscoverySettings::Oci(_) => "oci",
            DiscoverySettings::Zookeeper(settings) => match settings.member {
                ZookeeperMember::Serverset => "serverset",
                ZookeeperMember::Nerve => "nerve",
            },
            DiscoverySettings::Marathon(_) => "marathon",
            DiscoverySettings::OpenStack(_) => "openstack",
            DiscoverySettings::Outscale(_) => "outscale",
            DiscoverySettings::OvhCloud(_) => "ovhcloud",
            DiscoverySettings::PuppetDb(_) => "puppetdb",
            DiscoverySettings::Scaleway(_) => "scaleway",
            DiscoverySettings::Stackit(_) => "stackit",
            DiscoverySettings::Triton(_) => "triton",
            DiscoverySettings::Uyuni(_) => "uyuni",
            DiscoverySettings::Vultr(_) => "vultr",
        }
    }
}

/// Dependencies and limits that all discoveries of a server share.
#[derive(Clone)]
pub struct DiscoveryContext {
    /// Function that decodes target groups from YAML files, provided by the binary.
    pub read_yaml: ReadYaml,
    /// Maximum size in bytes of a response or target file; larger ones are errors.
    pub bytes_max: u64,
    /// Clock for signatures, token expiry and the timestamps of published lists.
    pub clock: Arc<dyn Clock>,
    /// Metrics to which new discoveries are added.
    pub metrics: DiscoveryMetrics,
}

/// A running discovery; its task stops when this handle is dropped.
pub struct Discovery {
    published: Arc<PublishedTargets>,
    task: Option<JoinHandle<()>>,
}

impl Discovery {
    /// Starts a discovery that notifies `changed` of each new target list. Must be called inside a
    /// tokio runtime.
    pub fn start(
        settings: &DiscoverySettings,
        lent: &DiscoveryContext,
        owner: &DiscoveryOwner,
        changed: Arc<Notify>,
    ) -> Self {
        let published = Arc::new(PublishedTargets::new(changed, lent.clock.clone()));
        lent.metrics
            .add_running(settings.mechanism(), owner, &published);
        Self {
            task: providers::start_task(settings, lent, &published),
            published,
        }
    }

    /// Returns the latest published list, or `None` before the first one.
    pub fn groups(&self) -> Option<Arc<Vec<TargetGroup>>> {
        self.published.groups()
    }
}

impl fmt::Debug for Discovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Discovery").finish_non_exhaustive()
    }
}

impl Drop for Discovery {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

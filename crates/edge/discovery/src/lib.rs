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
mod aws;
mod azure;
#[cfg(test)]
mod cloud_tests;
mod consul;
mod digitalocean;
mod discover;
mod dns;
mod docker;
mod environment;
mod eureka;
mod file;
mod google;
mod group;
mod hetzner;
mod http;
mod ionos;
mod json;
mod kubernetes;
mod kuma;
mod linode;
#[cfg(test)]
mod manager_tests;
mod marathon;
mod meta;
mod metrics;
mod nomad;
mod oci;
mod once;
mod openstack;
mod outscale;
mod ovhcloud;
mod pages;
mod parts;
#[cfg(test)]
mod platform_tests;
mod published;
mod puppetdb;
mod scaleway;
mod side_by_side;
mod stackit;
#[cfg(test)]
mod stub;
#[cfg(test)]
mod tests;
mod tokens;
mod triton;
mod uyuni;
mod vultr;
mod xml;
mod xmlrpc;
mod zookeeper;

pub use aws::{AwsSettings, SigV4Settings};
pub use azure::{AzureAdSettings, AzureCloud, AzureIdentity, AzureSettings};
pub use consul::{ConsulSettings, ConsulToken};
pub use digitalocean::{DigitalOceanRole, DigitalOceanSettings};
pub use dns::{DnsRecordType, DnsSettings};
pub use docker::{DockerFilter, DockerSettings, SwarmRole, SwarmSettings};
pub use eureka::EurekaSettings;
pub use google::{GceSettings, GoogleIamSettings};
pub use group::{ReadYaml, TargetGroup, check_address, read_json_groups};
pub use hetzner::{HetznerRole, HetznerSettings};
pub use ionos::IonosSettings;
pub use kubernetes::{
    KubernetesAttachMetadata, KubernetesRole, KubernetesSelector, KubernetesSettings,
};
pub use kuma::KumaSettings;
pub use linode::LinodeSettings;
pub use marathon::MarathonSettings;
pub use metrics::{DiscoveryMetrics, DiscoveryOwner};
pub use nomad::NomadSettings;
pub use oci::OciSettings;
pub use openstack::{OpenStackCredentials, OpenStackRole, OpenStackSettings};
pub use outscale::OutscaleSettings;
pub use ovhcloud::{OvhService, OvhSettings};
pub use puppetdb::PuppetDbSettings;
pub use scaleway::{ScalewayRole, ScalewaySettings};
pub use stackit::StackitSettings;
pub use triton::{TritonRole, TritonSettings};
pub use uyuni::UyuniSettings;
pub use vultr::VultrSettings;
pub use zookeeper::{ZookeeperMember, ZookeeperSettings};

use discover::{BoxFuture, Discover, Refresh, RefreshTask};
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
            task: start_task(settings, lent, &published),
            published,
        }
    }

    /// Returns the latest published list, or `None` before the first one.
    pub fn groups(&self) -> Option<Arc<Vec<TargetGroup>>> {
        self.published.groups()
    }
}

/// Starts the task of a discovery. Static groups are published immediately and need no task.
fn start_task(
    settings: &DiscoverySettings,
    lent: &DiscoveryContext,
    published: &Arc<PublishedTargets>,
) -> Option<JoinHandle<()>> {
    let to = published.clone();
    let bytes_max = lent.bytes_max;
    use DiscoverySettings as Source;
    Some(match settings {
        Source::Static(groups) => {
            to.publish(groups.clone());
            return None;
        }
        Source::File { patterns, refresh } => {
            let files = file::TargetFiles::new(patterns.clone(), lent.read_yaml, bytes_max);
            let refresh = *refresh;
            spawn_discovery(file::FileDiscovery { files, refresh }, to)
        }
        Source::Http {
            url,
            refresh,
            client,
        } => spawn_refresh(
            http::HttpDiscovery::new(url, *refresh, client, bytes_max),
            to,
        ),
        Source::Dns(s) => spawn_refresh(dns::DnsDiscovery::new(s.clone(), to.clone()), to),
        Source::Consul(s) => {
            spawn_discovery(consul::ConsulDiscovery::new(s, bytes_max, to.clone()), to)
        }
        _ => start_platform_task(settings, lent, to),
    })
}

/// Starts the task of a discovery that queries the API of a platform.
fn start_platform_task(
    settings: &DiscoverySettings,
    lent: &DiscoveryContext,
    to: Arc<PublishedTargets>,
) -> JoinHandle<()> {
    let bytes_max = lent.bytes_max;
    let clock = || lent.clock.clone();
    use DiscoverySettings as Source;
    match settings {
        Source::Static(_)
        | Source::File { .. }
        | Source::Http { .. }
        | Source::Dns(_)
        | Source::Consul(_) => {
            unreachable!("started by start_task")
        }
        Source::Docker(s) => spawn_refresh(docker::DockerDiscovery::new(s, bytes_max), to),
        Source::Swarm(s) => spawn_refresh(docker::SwarmDiscovery::new(s, bytes_max), to),
        Source::Kubernetes(s) => {
            spawn_discovery(kubernetes::KubernetesDiscovery::new(s, bytes_max), to)
        }
        Source::Ec2(s) => spawn_refresh(aws::Ec2Discovery::new(s, bytes_max, clock()), to),
        Source::Azure(s) => spawn_refresh(azure::AzureDiscovery::new(s, bytes_max, clock()), to),
        Source::Gce(s) => spawn_refresh(google::GceDiscovery::new(s, bytes_max, clock()), to),
        Source::Ecs(s) => spawn_refresh(aws::EcsDiscovery::new(s, bytes_max, clock()), to),
        Source::ElastiCache(s) => {
            spawn_refresh(aws::ElastiCacheDiscovery::new(s, bytes_max, clock()), to)
        }
        Source::Msk(s) => spawn_refresh(aws::MskDiscovery::new(s, bytes_max, clock()), to),
        Source::Rds(s) => spawn_refresh(aws::RdsDiscovery::new(s, bytes_max, clock()), to),
        Source::Lightsail(s) => {
            spawn_refresh(aws::LightsailDiscovery::new(s, bytes_max, clock()), to)
        }
        Source::Nomad(s) => spawn_refresh(nomad::NomadDiscovery::new(s, bytes_max), to),
        Source::Eureka(s) => spawn_refresh(eureka::EurekaDiscovery::new(s, bytes_max), to),
        Source::Hetzner(s) => spawn_refresh(hetzner::HetznerDiscovery::new(s, bytes_max), to),
        Source::DigitalOcean(s) => {
            spawn_refresh(digitalocean::DigitalOceanDiscovery::new(s, bytes_max), to)
        }
        Source::Ionos(s) => spawn_refresh(ionos::IonosDiscovery::new(s, bytes_max), to),
        Source::Kuma(s) => spawn_refresh(kuma::KumaDiscovery::new(s, bytes_max), to),
        Source::Linode(s) => spawn_refresh(linode::LinodeDiscovery::new(s, bytes_max, clock()), to),
        Source::Oci(s) => spawn_refresh(oci::OciDiscovery::new(s, bytes_max, clock()), to),
        Source::Zookeeper(s) => {
            spawn_discovery(zookeeper::ZookeeperDiscovery::new(s, bytes_max), to)
        }
        Source::Marathon(s) => spawn_refresh(marathon::MarathonDiscovery::new(s, bytes_max), to),
        Source::OpenStack(s) => spawn_refresh(openstack::OpenStackDiscovery::new(s, bytes_max), to),
        Source::Outscale(s) => {
            spawn_refresh(outscale::OutscaleDiscovery::new(s, bytes_max, clock()), to)
        }
        Source::OvhCloud(s) => {
            spawn_refresh(ovhcloud::OvhDiscovery::new(s, bytes_max, clock()), to)
        }
        Source::PuppetDb(s) => spawn_refresh(puppetdb::PuppetDbDiscovery::new(s, bytes_max), to),
        Source::Scaleway(s) => spawn_refresh(scaleway::ScalewayDiscovery::new(s, bytes_max), to),
        Source::Stackit(s) => {
            spawn_refresh(stackit::StackitDiscovery::new(s, bytes_max, clock()), to)
        }
        Source::Triton(s) => spawn_refresh(triton::TritonDiscovery::new(s, bytes_max), to),
        Source::Uyuni(s) => spawn_refresh(uyuni::UyuniDiscovery::new(s, bytes_max, clock()), to),
        Source::Vultr(s) => spawn_refresh(vultr::VultrDiscovery::new(s, bytes_max), to),
    }
}

fn spawn_discovery(discovery: impl Discover, to: Arc<PublishedTargets>) -> JoinHandle<()> {
    let run: BoxFuture<'static, ()> = Box::pin(discovery.run(to));
    tokio::spawn(run)
}

fn spawn_refresh(source: impl Refresh, to: Arc<PublishedTargets>) -> JoinHandle<()> {
    spawn_discovery(RefreshTask::new(source), to)
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

//! The service discoveries, one module for each kind of source.

mod aws;
mod azure;
#[cfg(test)]
mod cloud_tests;
mod consul;
mod digitalocean;
mod dns;
mod docker;
mod eureka;
mod file;
mod google;
mod hetzner;
mod http;
mod ionos;
mod kubernetes;
mod kuma;
mod linode;
#[cfg(test)]
mod manager_tests;
mod marathon;
mod nomad;
mod oci;
mod openstack;
mod outscale;
mod ovhcloud;
#[cfg(test)]
mod platform_tests;
mod puppetdb;
mod scaleway;
mod stackit;
mod triton;
mod uyuni;
mod vultr;
mod zookeeper;

pub use aws::{AwsSettings, SigV4Settings};
pub use azure::{AzureAdSettings, AzureCloud, AzureIdentity, AzureSettings};
pub use consul::{ConsulSettings, ConsulToken};
pub use digitalocean::{DigitalOceanRole, DigitalOceanSettings};
pub use dns::{DnsRecordType, DnsSettings};
pub use docker::{DockerFilter, DockerSettings, SwarmRole, SwarmSettings};
pub use eureka::EurekaSettings;
pub use google::{GceSettings, GoogleIamSettings};
pub use hetzner::{HetznerRole, HetznerSettings};
pub use ionos::IonosSettings;
pub use kubernetes::{
    KubernetesAttachMetadata, KubernetesRole, KubernetesSelector, KubernetesSettings,
};
pub use kuma::KumaSettings;
pub use linode::LinodeSettings;
pub use marathon::MarathonSettings;
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

use crate::discover::{BoxFuture, Discover, Refresh, RefreshTask};
use crate::published::PublishedTargets;
use crate::{DiscoveryContext, DiscoverySettings};
use std::sync::Arc;
use tokio::task::JoinHandle;

/// Starts the task of a discovery. Static groups are published immediately and need no task.
pub(super) fn start_task(
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

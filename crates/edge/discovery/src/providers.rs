//! The registry of the service discoveries. A discovery is a module and its row in the table; the
//! config, its printed form, the features in the API and the start of tasks follow from the row.
//!
//! A module contains the table of keys, the reader of an entry, the settings type, and the task
//! that finds targets. Its errors have a row in `sections/tests.rs`, and its targets have tests
//! with the servers of `stub.rs`.
//!
//! All rows are discoveries of Prometheus 3.14. A discovery that Prometheus lacks also needs an
//! entry in `docs/differences.md`, because all other keys of Firn are below `firn`.

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

pub use aws::{AwsSettings, SigV4Settings, read_sigv4};
pub use azure::{AzureAdSettings, AzureCloud, AzureIdentity};
pub use google::GoogleIamSettings;

use crate::provider::DiscoveryProvider;

/// All providers, in the order in which a section is read: by the names of their lists.
pub(crate) const PROVIDERS: &[DiscoveryProvider] = &[
    aws::BY_ROLE,
    azure::PROVIDER,
    consul::PROVIDER,
    digitalocean::PROVIDER,
    dns::PROVIDER,
    docker::CONTAINERS,
    docker::SWARM,
    aws::EC2,
    aws::ECS,
    aws::ELASTICACHE,
    eureka::PROVIDER,
    file::PROVIDER,
    google::PROVIDER,
    hetzner::PROVIDER,
    http::PROVIDER,
    ionos::PROVIDER,
    kubernetes::PROVIDER,
    kuma::PROVIDER,
    aws::LIGHTSAIL,
    linode::PROVIDER,
    marathon::PROVIDER,
    aws::MSK,
    zookeeper::NERVE,
    nomad::PROVIDER,
    oci::PROVIDER,
    openstack::PROVIDER,
    outscale::PROVIDER,
    ovhcloud::PROVIDER,
    puppetdb::PROVIDER,
    aws::RDS,
    scaleway::PROVIDER,
    zookeeper::SERVERSET,
    stackit::PROVIDER,
    triton::PROVIDER,
    uyuni::PROVIDER,
    vultr::PROVIDER,
];

#[cfg(test)]
pub(crate) mod tested {
    //! Settings whose readers the tests of config sections check.

    pub use super::consul::{ConsulSettings, ConsulToken};
    pub use super::file::FileDiscoverySettings;
    pub use super::http::HttpDiscoverySettings;
    pub use super::oci::OciSettings;
    pub use super::zookeeper::{ZookeeperMember, ZookeeperSettings};
}

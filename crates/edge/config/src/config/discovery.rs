//! Table of the keys of Prometheus 3.14's service discoveries.
//!
//! Discoveries that Firn does not implement are marked as ignored. They are in the table so that a
//! config with them loads, and so that misspelled keys in them are found. The readers validate the
//! content of a section.

mod providers;

use super::http::{HTTP_CLIENT, PROXY};
use super::schema::{ConfigKey, ConfigValueShape};
use ConfigValueShape::{List, Section};
use providers::*;

const fn key(name: &'static str, shape: ConfigValueShape) -> ConfigKey {
    ConfigKey::new(name, shape)
}

/// Returns the names of all discoveries, each with whether Firn implements it.
pub fn providers() -> impl Iterator<Item = (&'static str, bool)> {
    let name = |key: &'static ConfigKey| {
        let key_name = key.name.strip_suffix("_sd_configs");
        key_name
            .or(key.name.strip_suffix("_configs"))
            .unwrap_or(key.name)
    };
    DISCOVERY
        .iter()
        .map(move |key| (name(key), !key.is_ignored))
}

/// Shape of a list of static target groups.
pub const GROUPS: ConfigValueShape = List(&Section(&[STATIC]));

/// Keys of all discoveries in a scrape job or an Alertmanager section.
pub const DISCOVERY: &[ConfigKey] = &[
    key("static_configs", GROUPS),
    key(
        "aws_sd_configs",
        List(&Section(&[AWS_CLIENT, AWS, HTTP_CLIENT, PROXY])),
    ),
    key(
        "azure_sd_configs",
        List(&Section(&[AZURE, HTTP_CLIENT, PROXY])),
    ),
    key(
        "consul_sd_configs",
        List(&Section(&[CONSUL, HTTP_CLIENT, PROXY])),
    ),
    key(
        "digitalocean_sd_configs",
        List(&Section(&[DIGITALOCEAN, HTTP_CLIENT, PROXY])),
    ),
    key(
        "docker_sd_configs",
        List(&Section(&[DOCKER, HTTP_CLIENT, PROXY])),
    ),
    key(
        "dockerswarm_sd_configs",
        List(&Section(&[DOCKERSWARM, HTTP_CLIENT, PROXY])),
    ),
    key("dns_sd_configs", List(&Section(&[DNS]))),
    key(
        "ec2_sd_configs",
        List(&Section(&[AWS_CLIENT, EC2, HTTP_CLIENT, PROXY])),
    ),
    key(
        "ecs_sd_configs",
        List(&Section(&[AWS_CLIENT, ECS, HTTP_CLIENT, PROXY])),
    ),
    key(
        "elasticache_sd_configs",
        List(&Section(&[AWS_CLIENT, ELASTICACHE, HTTP_CLIENT, PROXY])),
    ),
    key(
        "eureka_sd_configs",
        List(&Section(&[EUREKA, HTTP_CLIENT, PROXY])),
    ),
    key("file_sd_configs", List(&Section(&[FILE]))),
    key("gce_sd_configs", List(&Section(&[GCE]))),
    key(
        "hetzner_sd_configs",
        List(&Section(&[HETZNER, HTTP_CLIENT, PROXY])),
    ),
    key(
        "http_sd_configs",
        List(&Section(&[HTTP, HTTP_CLIENT, PROXY])),
    ),
    key(
        "ionos_sd_configs",
        List(&Section(&[IONOS, HTTP_CLIENT, PROXY])),
    ),
    key(
        "kubernetes_sd_configs",
        List(&Section(&[KUBERNETES, HTTP_CLIENT, PROXY])),
    ),
    key(
        "kuma_sd_configs",
        List(&Section(&[KUMA, HTTP_CLIENT, PROXY])),
    ),
    key(
        "lightsail_sd_configs",
        List(&Section(&[AWS_CLIENT, HTTP_CLIENT, PROXY])),
    ),
    key(
        "linode_sd_configs",
        List(&Section(&[LINODE, HTTP_CLIENT, PROXY])),
    ),
    key(
        "marathon_sd_configs",
        List(&Section(&[MARATHON, HTTP_CLIENT, PROXY])),
    ),
    key(
        "msk_sd_configs",
        List(&Section(&[AWS_CLIENT, MSK, HTTP_CLIENT, PROXY])),
    ),
    key("nerve_sd_configs", List(&Section(&[NERVE]))),
    key(
        "nomad_sd_configs",
        List(&Section(&[NOMAD, HTTP_CLIENT, PROXY])),
    ),
    key("oci_sd_configs", List(&Section(&[OCI, HTTP_CLIENT, PROXY]))),
    key("openstack_sd_configs", List(&Section(&[OPENSTACK]))),
    key(
        "outscale_sd_configs",
        List(&Section(&[OUTSCALE, HTTP_CLIENT, PROXY])),
    ),
    key("ovhcloud_sd_configs", List(&Section(&[OVHCLOUD]))),
    key(
        "puppetdb_sd_configs",
        List(&Section(&[PUPPETDB, HTTP_CLIENT, PROXY])),
    ),
    key(
        "rds_sd_configs",
        List(&Section(&[AWS_CLIENT, RDS, HTTP_CLIENT, PROXY])),
    ),
    key(
        "scaleway_sd_configs",
        List(&Section(&[SCALEWAY, HTTP_CLIENT, PROXY])),
    ),
    key("serverset_sd_configs", List(&Section(&[SERVERSET]))),
    key(
        "stackit_sd_configs",
        List(&Section(&[STACKIT, HTTP_CLIENT, PROXY])),
    ),
    key("triton_sd_configs", List(&Section(&[TRITON]))),
    key(
        "uyuni_sd_configs",
        List(&Section(&[UYUNI, HTTP_CLIENT, PROXY])),
    ),
    key(
        "vultr_sd_configs",
        List(&Section(&[VULTR, HTTP_CLIENT, PROXY])),
    ),
];

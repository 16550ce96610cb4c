//! An instance of a service in Consul, and the target that it makes.

use crate::group::{Group, or_default};
use crate::meta::{Meta, host_port, surrounded};
use serde::Deserialize;
use std::collections::BTreeMap;

/// The check by which a node is in maintenance.
const NODE_MAINTENANCE: &str = "_node_maintenance";

/// How the checks begin by which services are.
const SERVICE_MAINTENANCE: &str = "_service_maintenance:";

/// An entry of `/v1/health/service/NAME`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(super) struct Instance {
    node: Node,
    service: Service,
    #[serde(deserialize_with = "or_default")]
    checks: Vec<Check>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct Node {
    node: String,
    address: String,
    #[serde(deserialize_with = "or_default")]
    tagged_addresses: BTreeMap<String, String>,
    #[serde(deserialize_with = "or_default")]
    meta: BTreeMap<String, String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct Service {
    #[serde(rename = "ID")]
    id: String,
    address: String,
    port: i64,
    namespace: String,
    partition: String,
    #[serde(deserialize_with = "or_default")]
    tags: Vec<String>,
    #[serde(deserialize_with = "or_default")]
    meta: BTreeMap<String, String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct Check {
    #[serde(rename = "CheckID")]
    id: String,
    status: String,
}

/// What all instances of a service have in common.
pub(super) struct Tagging<'s> {
    pub(super) service: &'s str,
    pub(super) datacenter: &'s str,
    pub(super) separator: &'s str,
}

impl Instance {
    /// The target that this instance makes.
    pub(super) fn target(&self, tagging: &Tagging<'_>) -> Group {
        let (node, service) = (&self.node, &self.service);
        let mut meta = Meta::new("consul");
        meta.set("service", tagging.service);
        meta.set("dc", tagging.datacenter);
        meta.set("address", &node.address);
        meta.set("node", &node.node);
        meta.set("namespace", &service.namespace);
        meta.set("partition", &service.partition);
        meta.set("tags", surrounded(&service.tags, tagging.separator));
        meta.set("service_address", &service.address);
        meta.set("service_port", service.port.to_string());
        meta.set("service_id", &service.id);
        meta.set("health", self.health());
        meta.set_each("metadata_", &node.meta);
        meta.set_each("service_metadata_", &service.meta);
        meta.set_each("tagged_address_", &node.tagged_addresses);
        // A service may be registered by another node than the one that it is on.
        let host = match service.address.is_empty() {
            true => &node.address,
            false => &service.address,
        };
        meta.at(host_port(host, service.port))
    }

    /// The worst of all checks; empty if one has a status that there is not.
    fn health(&self) -> &'static str {
        let mut ranks = self.checks.iter().map(Check::rank);
        match ranks.try_fold(0, |worst: u8, rank| Some(worst.max(rank?))) {
            None => "",
            Some(0) => "passing",
            Some(1) => "warning",
            Some(2) => "critical",
            Some(_) => "maintenance",
        }
    }
}

impl Check {
    fn rank(&self) -> Option<u8> {
        if self.id == NODE_MAINTENANCE || self.id.starts_with(SERVICE_MAINTENANCE) {
            return Some(3);
        }
        match self.status.as_str() {
            "passing" => Some(0),
            "warning" => Some(1),
            "critical" => Some(2),
            _ => None,
        }
    }
}

//! Service instances in Consul's health responses, and their conversion to targets.

use crate::group::{TargetGroup, or_default};
use crate::meta::{MetaLabels, join_host_port, join_surrounded};
use serde::Deserialize;
use std::collections::BTreeMap;

/// Id of the check that marks a node as being in maintenance.
const NODE_MAINTENANCE: &str = "_node_maintenance";

/// Prefix of the ids of checks that mark a service as being in maintenance.
const SERVICE_MAINTENANCE: &str = "_service_maintenance:";

/// An entry of the response of `/v1/health/service/NAME`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(super) struct ConsulInstance {
    node: ConsulNode,
    service: ConsulService,
    #[serde(deserialize_with = "or_default")]
    checks: Vec<ConsulCheck>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct ConsulNode {
    node: String,
    address: String,
    #[serde(deserialize_with = "or_default")]
    tagged_addresses: BTreeMap<String, String>,
    #[serde(deserialize_with = "or_default")]
    meta: BTreeMap<String, String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct ConsulService {
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
struct ConsulCheck {
    #[serde(rename = "CheckID")]
    id: String,
    status: String,
}

/// Label values and settings that all instances of a service share.
pub(super) struct ConsulServiceContext<'s> {
    pub(super) service: &'s str,
    pub(super) datacenter: &'s str,
    pub(super) separator: &'s str,
}

impl ConsulInstance {
    /// Builds the target of this instance, with the labels of its node, service and checks.
    pub(super) fn build_target(&self, tagging: &ConsulServiceContext<'_>) -> TargetGroup {
        let (node, service) = (&self.node, &self.service);
        let mut meta = MetaLabels::new("consul");
        meta.set("service", tagging.service);
        meta.set("dc", tagging.datacenter);
        meta.set("address", &node.address);
        meta.set("node", &node.node);
        meta.set("namespace", &service.namespace);
        meta.set("partition", &service.partition);
        meta.set("tags", join_surrounded(&service.tags, tagging.separator));
        meta.set("service_address", &service.address);
        meta.set("service_port", service.port.to_string());
        meta.set("service_id", &service.id);
        meta.set("health", self.worst_status());
        meta.set_each("metadata_", &node.meta);
        meta.set_each("service_metadata_", &service.meta);
        meta.set_each("tagged_address_", &node.tagged_addresses);
        // The service address takes precedence, because a service may be registered by a node on
        // which it does not run.
        let host = if service.address.is_empty() {
            &node.address
        } else {
            &service.address
        };
        meta.into_target(join_host_port(host, service.port))
    }

    /// Returns the worst status of all checks, or an empty string if a check has an unknown status.
    fn worst_status(&self) -> &'static str {
        let mut ranks = self.checks.iter().map(ConsulCheck::status_rank);
        match ranks.try_fold(0, |worst: u8, rank| Some(worst.max(rank?))) {
            None => "",
            Some(0) => "passing",
            Some(1) => "warning",
            Some(2) => "critical",
            Some(_) => "maintenance",
        }
    }
}

impl ConsulCheck {
    fn status_rank(&self) -> Option<u8> {
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

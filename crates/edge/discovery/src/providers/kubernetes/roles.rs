//! Targets of the roles `node`, `push_service_targets` and `push_ingress_targets`.

use super::labels::{new_in_namespace, new_meta_labels, set_object, set_service};
use super::objects::{Ingress, IngressRule, KubernetesNode, KubernetesService};
use crate::group::TargetGroup;
use crate::meta::{MetaLabels, join_host_port, sanitize};
use std::collections::BTreeMap;
use tracing::warn;

/// Types of node addresses in order of preference.
const ADDRESSES: [&str; 6] = [
    "InternalIP",
    "InternalDNS",
    "ExternalIP",
    "ExternalDNS",
    "LegacyHostIP",
    "Hostname",
];

/// Builds the target of a node's kubelet. Returns `None` if the node has no address.
pub(super) fn build_node_target(node: &KubernetesNode) -> Option<TargetGroup> {
    let mut meta = new_meta_labels();
    meta.set("node_provider_id", &node.spec.provider_id);
    for condition in &node.status.conditions {
        let name = sanitize(&condition.kind.to_lowercase());
        let status = condition.status.to_lowercase();
        meta.set(&format!("node_condition_{name}"), status);
    }
    set_object(&mut meta, "node", &node.metadata);
    meta.set_instance(&node.metadata.name);
    let mut addresses: BTreeMap<&str, &str> = BTreeMap::new();
    for address in &node.status.addresses {
        addresses.entry(&address.kind).or_insert(&address.address);
    }
    for (kind, address) in &addresses {
        meta.set(&format!("node_address_{}", sanitize(kind)), *address);
    }
    let Some(address) = ADDRESSES.iter().find_map(|kind| addresses.get(kind)) else {
        warn!(node = node.metadata.name, "host address unknown");
        return None;
    };
    let port = node.status.daemon_endpoints.kubelet_endpoint.port;
    Some(meta.into_target(join_host_port(address, port)))
}

/// Appends a target for each port of a service. `more` contains labels of its namespace.
pub(super) fn push_service_targets(
    service: &KubernetesService,
    more: &MetaLabels,
    groups: &mut Vec<TargetGroup>,
) {
    let mut common = new_meta_labels();
    set_service(&mut common, service);
    common.merge(more);
    let spec = &service.spec;
    common.set("service_type", &spec.kind);
    match spec.kind.as_str() {
        "ExternalName" => common.set("service_external_name", &spec.external_name),
        _ => common.set("service_cluster_ip", &spec.cluster_ip),
    }
    if spec.kind == "LoadBalancer" {
        common.set("service_loadbalancer_ip", &spec.load_balancer_ip);
    }
    let (name, namespace) = (&service.metadata.name, &service.metadata.namespace);
    for port in &spec.ports {
        let mut meta = common.clone();
        meta.set("service_port_name", &port.name);
        meta.set("service_port_number", port.port.to_string());
        meta.set("service_port_protocol", &port.protocol);
        let host = format!("{name}.{namespace}.svc");
        groups.push(meta.into_target(join_host_port(&host, port.port)));
    }
}

/// Appends a target for each path of an ingress. `more` contains labels of its namespace.
pub(super) fn push_ingress_targets(
    ingress: &Ingress,
    more: &MetaLabels,
    groups: &mut Vec<TargetGroup>,
) {
    let mut common = new_in_namespace(&ingress.metadata.namespace);
    let spec = &ingress.spec;
    common.set(
        "ingress_class_name",
        spec.ingress_class_name.clone().unwrap_or_default(),
    );
    set_object(&mut common, "ingress", &ingress.metadata);
    common.merge(more);
    for rule in &spec.rules {
        let mut patterns = spec.tls.iter().flat_map(|tls| &tls.hosts);
        let scheme = if patterns.any(|pattern| matches_host(pattern, &rule.host)) {
            "https"
        } else {
            "http"
        };
        for path in list_paths(rule) {
            let mut meta = common.clone();
            meta.set("ingress_scheme", scheme);
            meta.set("ingress_host", &rule.host);
            meta.set("ingress_path", path);
            groups.push(meta.into_target(rule.host.as_str()));
        }
    }
}

fn list_paths(rule: &IngressRule) -> Vec<&str> {
    let Some(http) = &rule.http else {
        return vec!["/"];
    };
    let paths = http.paths.iter().map(|path| path.path.as_str());
    paths
        .map(|path| if path.is_empty() { "/" } else { path })
        .collect()
}

/// Returns whether a host matches a pattern such as `*.example.org`.
fn matches_host(pattern: &str, host: &str) -> bool {
    if pattern == host {
        return true;
    }
    let rests = (pattern.strip_prefix("*."), host.split_once('.'));
    matches!(rests, (Some(pattern), Some((_, host))) if pattern == host)
}

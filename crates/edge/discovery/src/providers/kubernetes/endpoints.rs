//! Targets of endpoints and endpoint slices, with the labels of their services, pods and nodes.

use super::labels::{new_in_namespace, new_meta_labels, set_object, set_service};
use super::objects::{
    EndpointAddress, EndpointPort, EndpointSlice, KubernetesEndpoint, KubernetesEndpoints,
    KubernetesNode, KubernetesPod, KubernetesService, ObjectRef, ServicePort,
};
use super::pods::{self, PodOwners, set_container, set_port};
use super::store::KubernetesStoreGuard;
use crate::group::TargetGroup;
use crate::meta::{MetaLabels, join_host_port, sanitize};
use tracing::warn;

/// Label with which a slice names its service.
const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// Annotation of an `KubernetesEndpoints` object that was truncated because of too many addresses.
const OVER_CAPACITY: &str = "endpoints.kubernetes.io/over-capacity";

/// Stores with the objects that endpoints refer to, locked while targets are built.
pub(super) struct EndpointRelatedObjects<'s> {
    pub(super) services: KubernetesStoreGuard<'s, KubernetesService>,
    pub(super) pods: KubernetesStoreGuard<'s, KubernetesPod>,
    /// Nodes, present only if the labels of nodes are attached to targets.
    pub(super) nodes: Option<KubernetesStoreGuard<'s, KubernetesNode>>,
    pub(super) owners: PodOwners<'s>,
}

/// Pods that endpoints refer to, each with its ports that already have a target.
type Seen<'p> = Vec<(&'p KubernetesPod, Vec<i64>)>;

impl EndpointRelatedObjects<'_> {
    /// Returns the pod that the target reference of an endpoint names.
    fn find_pod(&self, reference: Option<&ObjectRef>) -> Option<&KubernetesPod> {
        let reference = reference.filter(|reference| reference.kind == "Pod")?;
        let key = format!("{}/{}", reference.namespace, reference.name);
        self.pods.get(&key)
    }

    fn add_node_labels(&self, meta: &mut MetaLabels, name: Option<&str>) {
        if let (Some(nodes), Some(name)) = (&self.nodes, name) {
            meta.merge(&pods::find_node_labels(nodes, name));
        }
    }

    /// Adds the labels of a pod, and of the container that exposes `port`.
    fn add_pod_labels(
        &self,
        meta: &mut MetaLabels,
        pod: &KubernetesPod,
        port: Option<i64>,
        protocol: Option<&str>,
    ) {
        meta.merge(&self.owners.labels(pod));
        for (container, is_init) in pods::list_containers(pod) {
            let found = container
                .ports
                .iter()
                .find(|p| Some(p.container_port) == port);
            if let Some(found) = found {
                set_container(meta, container, is_init);
                set_port(meta, found, protocol.unwrap_or(&found.protocol));
            }
        }
    }

    fn push_other_ports(
        &self,
        seen: &Seen<'_>,
        common: &MetaLabels,
        groups: &mut Vec<TargetGroup>,
    ) {
        for (pod, ports) in seen {
            pods::push_other_ports(pod, ports, &self.owners, common, groups);
        }
    }
}

fn note_pod_port<'p>(seen: &mut Seen<'p>, pod: &'p KubernetesPod, port: Option<i64>) {
    let known = seen.iter_mut().find(|(known, _)| std::ptr::eq(*known, pod));
    match known {
        Some((_, ports)) => ports.extend(port),
        None => seen.push((pod, port.into_iter().collect())),
    }
}

/// Appends the targets of an `KubernetesEndpoints` object. `more` contains labels of its namespace.
pub(super) fn push_endpoints_targets(
    endpoints: &KubernetesEndpoints,
    around: &EndpointRelatedObjects<'_>,
    more: &MetaLabels,
    groups: &mut Vec<TargetGroup>,
) {
    let metadata = &endpoints.metadata;
    let mut common = new_in_namespace(&metadata.namespace);
    if let Some(service) = around.services.get(&metadata.object_key()) {
        set_service(&mut common, service);
    }
    set_object(&mut common, "endpoints", metadata);
    common.merge(more);
    if metadata.annotations.contains_key(OVER_CAPACITY) {
        warn!(
            endpoints = metadata.object_key(),
            "too many endpoints for one object, use \"role: endpointslice\" instead"
        );
    }
    let mut seen = Seen::new();
    for subset in &endpoints.subsets {
        for port in &subset.ports {
            let ready = subset.addresses.iter().map(|address| (address, "true"));
            let others = subset.not_ready_addresses.iter().map(|a| (a, "false"));
            for (address, ready) in ready.chain(others) {
                let mut meta = common.clone();
                meta.set("endpoint_ready", ready);
                set_address_labels(&mut meta, address, port, around);
                if let Some(pod) = around.find_pod(address.target_ref.as_ref()) {
                    around.add_pod_labels(&mut meta, pod, Some(port.port), Some(&port.protocol));
                    note_pod_port(&mut seen, pod, Some(port.port));
                }
                groups.push(meta.into_target(join_host_port(&address.ip, port.port)));
            }
        }
    }
    around.push_other_ports(&seen, &common, groups);
}

fn set_address_labels(
    meta: &mut MetaLabels,
    address: &EndpointAddress,
    port: &ServicePort,
    around: &EndpointRelatedObjects<'_>,
) {
    meta.set("endpoint_port_name", &port.name);
    meta.set("endpoint_port_protocol", &port.protocol);
    meta.set("endpoint_hostname", &address.hostname);
    if let Some(target) = &address.target_ref {
        meta.set("endpoint_address_target_kind", &target.kind);
        meta.set("endpoint_address_target_name", &target.name);
    }
    let node = address.node_name.as_deref();
    meta.set("endpoint_node_name", node.unwrap_or_default());
    let of_target = address.target_ref.as_ref().filter(|t| t.kind == "Node");
    around.add_node_labels(meta, node.or(of_target.map(|target| target.name.as_str())));
}

/// Appends the targets of an endpoint slice. `more` contains labels of its namespace.
pub(super) fn push_slice_targets(
    slice: &EndpointSlice,
    around: &EndpointRelatedObjects<'_>,
    more: &MetaLabels,
    groups: &mut Vec<TargetGroup>,
) {
    let metadata = &slice.metadata;
    let mut common = new_in_namespace(&metadata.namespace);
    common.set("endpointslice_address_type", &slice.address_type);
    set_object(&mut common, "endpointslice", metadata);
    let name = metadata.labels.get(SERVICE_NAME);
    let service = name.and_then(|name| {
        around
            .services
            .get(&format!("{}/{name}", metadata.namespace))
    });
    if let Some(service) = service {
        set_service(&mut common, service);
        if is_second_family(service, slice) {
            return;
        }
    }
    common.merge(more);
    let mut seen = Seen::new();
    for endpoint in &slice.endpoints {
        for port in &slice.ports {
            for address in &endpoint.addresses {
                let mut meta = common.clone();
                meta.merge(&build_endpoint_labels(endpoint, port));
                let target = endpoint.target_ref.as_ref();
                let node = match target.filter(|target| target.kind == "Node") {
                    Some(target) => Some(target.name.as_str()),
                    None => endpoint.node_name.as_deref(),
                };
                around.add_node_labels(&mut meta, node);
                if let Some(pod) = around.find_pod(target) {
                    around.add_pod_labels(&mut meta, pod, port.port, None);
                    note_pod_port(&mut seen, pod, port.port);
                }
                groups.push(meta.into_target(match port.port {
                    Some(port) => join_host_port(address, port),
                    None => address.clone(),
                }));
            }
        }
    }
    around.push_other_ports(&seen, &common, groups);
}

/// Returns whether a slice has the secondary address family of a dual-stack service. The slice of
/// the primary family contains the same endpoints.
fn is_second_family(service: &KubernetesService, slice: &EndpointSlice) -> bool {
    let policy = service.spec.ip_family_policy.as_deref();
    let is_dual = matches!(policy, Some("PreferDualStack" | "RequireDualStack"));
    let first = service.spec.ip_families.first();
    is_dual && first.is_some_and(|first| *first != slice.address_type)
}

fn build_endpoint_labels(endpoint: &KubernetesEndpoint, port: &EndpointPort) -> MetaLabels {
    let mut meta = new_meta_labels();
    let conditions = &endpoint.conditions;
    let flag = |flag: Option<bool>| flag.map(|flag| flag.to_string());
    for (name, value) in [
        ("port_name", port.name.clone()),
        ("port_protocol", port.protocol.clone()),
        ("port", port.port.map(|port| port.to_string())),
        ("port_app_protocol", port.app_protocol.clone()),
        ("endpoint_conditions_ready", flag(conditions.ready)),
        ("endpoint_conditions_serving", flag(conditions.serving)),
        (
            "endpoint_conditions_terminating",
            flag(conditions.terminating),
        ),
        ("endpoint_hostname", endpoint.hostname.clone()),
        ("endpoint_node_name", endpoint.node_name.clone()),
        ("endpoint_zone", endpoint.zone.clone()),
    ] {
        meta.set(&format!("endpointslice_{name}"), value.unwrap_or_default());
    }
    if let Some(target) = &endpoint.target_ref {
        meta.set("endpointslice_address_target_kind", &target.kind);
        meta.set("endpointslice_address_target_name", &target.name);
    }
    for (key, value) in &endpoint.deprecated_topology {
        let key = sanitize(key);
        meta.set(&format!("endpointslice_endpoint_topology_{key}"), value);
        meta.set(
            &format!("endpointslice_endpoint_topology_present_{key}"),
            "true",
        );
    }
    meta
}

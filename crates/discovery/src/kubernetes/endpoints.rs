//! Targets of endpoints and endpoint slices, with the labels of their services, pods and nodes.

use super::labels::{in_namespace, none, set_object, set_service};
use super::objects::{
    Endpoint, EndpointAddress, EndpointPort, EndpointSlice, Endpoints, Node, ObjectRef, Pod,
    Service, ServicePort,
};
use super::pods::{self, Owners, set_container, set_port};
use super::store::Held;
use crate::group::Group;
use crate::meta::{Meta, host_port, sanitize};
use tracing::warn;

/// Label with which a slice names its service.
const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// Annotation of an `Endpoints` object that was truncated because of too many addresses.
const OVER_CAPACITY: &str = "endpoints.kubernetes.io/over-capacity";

/// Stores with the objects that endpoints refer to, locked while targets are built.
pub(super) struct Around<'s> {
    pub(super) services: Held<'s, Service>,
    pub(super) pods: Held<'s, Pod>,
    /// Nodes, present only if the labels of nodes are attached to targets.
    pub(super) nodes: Option<Held<'s, Node>>,
    pub(super) owners: Owners<'s>,
}

/// Pods that endpoints refer to, each with its ports that already have a target.
type Seen<'p> = Vec<(&'p Pod, Vec<i64>)>;

impl Around<'_> {
    /// Returns the pod that the target reference of an endpoint names.
    fn pod(&self, reference: Option<&ObjectRef>) -> Option<&Pod> {
        let reference = reference.filter(|reference| reference.kind == "Pod")?;
        let key = format!("{}/{}", reference.namespace, reference.name);
        self.pods.get(&key)
    }

    fn set_node(&self, meta: &mut Meta, name: Option<&str>) {
        if let (Some(nodes), Some(name)) = (&self.nodes, name) {
            meta.merge(&pods::node_labels(nodes, name));
        }
    }

    /// Adds the labels of a pod, and of the container that exposes `port`.
    fn set_pod(&self, meta: &mut Meta, pod: &Pod, port: Option<i64>, protocol: Option<&str>) {
        meta.merge(&self.owners.labels(pod));
        for (container, is_init) in pods::containers(pod) {
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

    fn other_ports(&self, seen: &Seen<'_>, common: &Meta, groups: &mut Vec<Group>) {
        for (pod, ports) in seen {
            pods::other_ports(pod, ports, &self.owners, common, groups);
        }
    }
}

fn note<'p>(seen: &mut Seen<'p>, pod: &'p Pod, port: Option<i64>) {
    let known = seen.iter_mut().find(|(known, _)| std::ptr::eq(*known, pod));
    match known {
        Some((_, ports)) => ports.extend(port),
        None => seen.push((pod, port.into_iter().collect())),
    }
}

/// Appends the targets of an `Endpoints` object. `more` contains labels of its namespace.
pub(super) fn endpoints(
    endpoints: &Endpoints,
    around: &Around<'_>,
    more: &Meta,
    groups: &mut Vec<Group>,
) {
    let metadata = &endpoints.metadata;
    let mut common = in_namespace(&metadata.namespace);
    if let Some(service) = around.services.get(&metadata.key()) {
        set_service(&mut common, service);
    }
    set_object(&mut common, "endpoints", metadata);
    common.merge(more);
    if metadata.annotations.contains_key(OVER_CAPACITY) {
        warn!(
            endpoints = metadata.key(),
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
                set_address(&mut meta, address, port, around);
                if let Some(pod) = around.pod(address.target_ref.as_ref()) {
                    around.set_pod(&mut meta, pod, Some(port.port), Some(&port.protocol));
                    note(&mut seen, pod, Some(port.port));
                }
                groups.push(meta.at(host_port(&address.ip, port.port)));
            }
        }
    }
    around.other_ports(&seen, &common, groups);
}

fn set_address(
    meta: &mut Meta,
    address: &EndpointAddress,
    port: &ServicePort,
    around: &Around<'_>,
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
    around.set_node(meta, node.or(of_target.map(|target| target.name.as_str())));
}

/// Appends the targets of an endpoint slice. `more` contains labels of its namespace.
pub(super) fn slice(
    slice: &EndpointSlice,
    around: &Around<'_>,
    more: &Meta,
    groups: &mut Vec<Group>,
) {
    let metadata = &slice.metadata;
    let mut common = in_namespace(&metadata.namespace);
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
                meta.merge(&endpoint_labels(endpoint, port));
                let target = endpoint.target_ref.as_ref();
                let node = match target.filter(|target| target.kind == "Node") {
                    Some(target) => Some(target.name.as_str()),
                    None => endpoint.node_name.as_deref(),
                };
                around.set_node(&mut meta, node);
                if let Some(pod) = around.pod(target) {
                    around.set_pod(&mut meta, pod, port.port, None);
                    note(&mut seen, pod, port.port);
                }
                groups.push(meta.at(match port.port {
                    Some(port) => host_port(address, port),
                    None => address.clone(),
                }));
            }
        }
    }
    around.other_ports(&seen, &common, groups);
}

/// Returns whether a slice has the secondary address family of a dual-stack service. The slice of
/// the primary family contains the same endpoints.
fn is_second_family(service: &Service, slice: &EndpointSlice) -> bool {
    let policy = service.spec.ip_family_policy.as_deref();
    let is_dual = matches!(policy, Some("PreferDualStack" | "RequireDualStack"));
    let first = service.spec.ip_families.first();
    is_dual && first.is_some_and(|first| *first != slice.address_type)
}

fn endpoint_labels(endpoint: &Endpoint, port: &EndpointPort) -> Meta {
    let mut meta = none();
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

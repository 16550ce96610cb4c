//! Targets of pods, and the pod labels of targets that refer to pods.

use super::labels::{in_namespace, none, set_object};
use super::objects::{Container, ContainerPort, ContainerStatus, Job, Pod, ReplicaSet};
use super::settings::Attached;
use super::store::Held;
use crate::group::Group;
use crate::meta::{Meta, host_port};

/// Replica sets and jobs, in which the deployments and cron jobs of pods are looked up.
pub(super) struct Owners<'s> {
    pub(super) attached: Attached,
    pub(super) replica_sets: Held<'s, ReplicaSet>,
    pub(super) jobs: Held<'s, Job>,
}

impl Owners<'_> {
    /// Returns the labels of a pod, including those of its controllers.
    pub(super) fn labels(&self, pod: &Pod) -> Meta {
        let mut meta = none();
        let status = &pod.status;
        for (name, value) in [
            ("pod_ip", status.pod_ip.as_str()),
            ("pod_phase", &status.phase),
            ("pod_node_name", &pod.spec.node_name),
            ("pod_host_ip", &status.host_ip),
            ("pod_uid", &pod.metadata.uid),
        ] {
            meta.set(name, value);
        }
        let mut conditions = status.conditions.iter();
        let ready = conditions.find(|condition| condition.kind == "Ready");
        let ready = ready.map_or("unknown".to_owned(), |r| r.status.to_lowercase());
        meta.set("pod_ready", ready);
        set_object(&mut meta, "pod", &pod.metadata);
        self.set_controllers(&mut meta, pod);
        meta
    }

    fn set_controllers(&self, meta: &mut Meta, pod: &Pod) {
        let Some(controller) = pod.metadata.controller() else {
            return;
        };
        meta.set("pod_controller_kind", &controller.kind);
        meta.set("pod_controller_name", &controller.name);
        let key = format!("{}/{}", pod.metadata.namespace, controller.name);
        match controller.kind.as_str() {
            "ReplicaSet" if self.attached.deployment => {
                let set = self.replica_sets.get(&key);
                let owner = set.and_then(|set| set.metadata.controller());
                if let Some(owner) = owner.filter(|owner| owner.kind == "Deployment") {
                    meta.set("pod_deployment_name", &owner.name);
                }
            }
            "Job" => {
                if self.attached.job {
                    meta.set("pod_job_name", &controller.name);
                }
                let job = self.jobs.get(&key).filter(|_| self.attached.cronjob);
                let owner = job.and_then(|job| job.metadata.controller());
                if let Some(owner) = owner.filter(|owner| owner.kind == "CronJob") {
                    meta.set("pod_cronjob_name", &owner.name);
                }
            }
            _ => {}
        }
    }
}

/// Returns the containers of a pod, each with a flag that is true for init containers.
pub(super) fn containers(pod: &Pod) -> impl Iterator<Item = (&Container, bool)> {
    let usual = pod.spec.containers.iter().map(|c| (c, false));
    usual.chain(pod.spec.init_containers.iter().map(|c| (c, true)))
}

/// Adds the labels for the name, image and kind (init or not) of a container.
pub(super) fn set_container(meta: &mut Meta, container: &Container, is_init: bool) {
    meta.set("pod_container_name", &container.name);
    meta.set("pod_container_image", &container.image);
    meta.set("pod_container_init", is_init.to_string());
}

/// Adds the labels for the name, number and protocol of a container port.
pub(super) fn set_port(meta: &mut Meta, port: &ContainerPort, protocol: &str) {
    meta.set("pod_container_port_name", &port.name);
    meta.set("pod_container_port_number", port.container_port.to_string());
    meta.set("pod_container_port_protocol", protocol);
}

/// Appends the targets of a pod: one for each container port, or one for a container without ports.
pub(super) fn targets(pod: &Pod, owners: &Owners<'_>, more: &Meta, groups: &mut Vec<Group>) {
    let mut common = owners.labels(pod);
    common.merge(&in_namespace(&pod.metadata.namespace));
    common.merge(more);
    let ip = &pod.status.pod_ip;
    for (container, is_init) in containers(pod) {
        let statuses = match is_init {
            true => &pod.status.init_container_statuses,
            false => &pod.status.container_statuses,
        };
        let of_it = |status: &&ContainerStatus| status.name == container.name;
        let status = statuses.iter().find(of_it);
        let mut meta = common.clone();
        set_container(&mut meta, container, is_init);
        meta.set("pod_container_id", status.map_or("", |s| &s.container_id));
        if container.ports.is_empty() {
            // The address has no port, so relabelling must add it.
            groups.push(meta.at(ip.as_str()));
            continue;
        }
        for port in &container.ports {
            let mut meta = meta.clone();
            set_port(&mut meta, port, &port.protocol);
            groups.push(meta.at(host_port(ip, port.container_port)));
        }
    }
}

/// Appends targets for the ports of `pod` that are not in `seen`, that is, ports to which no
/// endpoint refers.
pub(super) fn other_ports(
    pod: &Pod,
    seen: &[i64],
    owners: &Owners<'_>,
    common: &Meta,
    groups: &mut Vec<Group>,
) {
    // A pod that is starting has no address yet.
    if pod.status.pod_ip.is_empty() {
        return;
    }
    for (container, is_init) in containers(pod) {
        for port in &container.ports {
            if seen.contains(&port.container_port) {
                continue;
            }
            let mut meta = common.clone();
            set_container(&mut meta, container, is_init);
            set_port(&mut meta, port, &port.protocol);
            meta.merge(&owners.labels(pod));
            groups.push(meta.at(host_port(&pod.status.pod_ip, port.container_port)));
        }
    }
}

/// Returns the labels of the node called `name`; empty if the store does not contain it.
pub(super) fn node_labels(nodes: &Held<'_, super::objects::Node>, name: &str) -> Meta {
    let mut meta = none();
    if let Some(node) = nodes.get(name) {
        set_object(&mut meta, "node", &node.metadata);
    }
    meta
}

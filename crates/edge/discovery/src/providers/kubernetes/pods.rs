//! Targets of pods, and the pod labels of targets that refer to pods.

use super::labels::{new_in_namespace, new_meta_labels, set_object};
use super::objects::{
    ContainerPort, KubernetesContainer, KubernetesContainerStatus, KubernetesJob, KubernetesPod,
    ReplicaSet,
};
use super::settings::KubernetesAttachMetadata;
use super::store::KubernetesStoreGuard;
use crate::group::TargetGroup;
use crate::meta::{MetaLabels, join_host_port};

/// Replica sets and jobs, in which the deployments and cron jobs of pods are looked up.
pub(super) struct PodOwners<'s> {
    pub(super) attached: KubernetesAttachMetadata,
    pub(super) replica_sets: KubernetesStoreGuard<'s, ReplicaSet>,
    pub(super) jobs: KubernetesStoreGuard<'s, KubernetesJob>,
}

impl PodOwners<'_> {
    /// Returns the labels of a pod, including those of its controllers.
    pub(super) fn labels(&self, pod: &KubernetesPod) -> MetaLabels {
        let mut meta = new_meta_labels();
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

    fn set_controllers(&self, meta: &mut MetaLabels, pod: &KubernetesPod) {
        let Some(controller) = pod.metadata.find_controller() else {
            return;
        };
        meta.set("pod_controller_kind", &controller.kind);
        meta.set("pod_controller_name", &controller.name);
        let key = format!("{}/{}", pod.metadata.namespace, controller.name);
        match controller.kind.as_str() {
            "ReplicaSet" if self.attached.deployment => {
                let set = self.replica_sets.get(&key);
                let owner = set.and_then(|set| set.metadata.find_controller());
                if let Some(owner) = owner.filter(|owner| owner.kind == "Deployment") {
                    meta.set("pod_deployment_name", &owner.name);
                }
            }
            "Job" => {
                if self.attached.job {
                    meta.set("pod_job_name", &controller.name);
                }
                let job = self.jobs.get(&key).filter(|_| self.attached.cronjob);
                let owner = job.and_then(|job| job.metadata.find_controller());
                if let Some(owner) = owner.filter(|owner| owner.kind == "CronJob") {
                    meta.set("pod_cronjob_name", &owner.name);
                }
            }
            _ => {}
        }
    }
}

/// Returns the containers of a pod, each with a flag that is true for init containers.
pub(super) fn list_containers(
    pod: &KubernetesPod,
) -> impl Iterator<Item = (&KubernetesContainer, bool)> {
    let usual = pod.spec.containers.iter().map(|c| (c, false));
    usual.chain(pod.spec.init_containers.iter().map(|c| (c, true)))
}

/// Adds the labels for the name, image and kind (init or not) of a container.
pub(super) fn set_container(meta: &mut MetaLabels, container: &KubernetesContainer, is_init: bool) {
    meta.set("pod_container_name", &container.name);
    meta.set("pod_container_image", &container.image);
    meta.set("pod_container_init", is_init.to_string());
}

/// Adds the labels for the name, number and protocol of a container port.
pub(super) fn set_port(meta: &mut MetaLabels, port: &ContainerPort, protocol: &str) {
    meta.set("pod_container_port_name", &port.name);
    meta.set("pod_container_port_number", port.container_port.to_string());
    meta.set("pod_container_port_protocol", protocol);
}

/// Appends the targets of a pod: one for each container port, or one for a container without ports.
pub(super) fn push_pod_targets(
    pod: &KubernetesPod,
    owners: &PodOwners<'_>,
    more: &MetaLabels,
    groups: &mut Vec<TargetGroup>,
) {
    let mut common = owners.labels(pod);
    common.merge(&new_in_namespace(&pod.metadata.namespace));
    common.merge(more);
    let ip = &pod.status.pod_ip;
    for (container, is_init) in list_containers(pod) {
        let statuses = if is_init {
            &pod.status.init_container_statuses
        } else {
            &pod.status.container_statuses
        };
        let of_it = |status: &&KubernetesContainerStatus| status.name == container.name;
        let status = statuses.iter().find(of_it);
        let mut meta = common.clone();
        set_container(&mut meta, container, is_init);
        meta.set("pod_container_id", status.map_or("", |s| &s.container_id));
        if container.ports.is_empty() {
            // The address has no port, so relabelling must add it.
            groups.push(meta.into_target(ip.as_str()));
            continue;
        }
        for port in &container.ports {
            let mut meta = meta.clone();
            set_port(&mut meta, port, &port.protocol);
            groups.push(meta.into_target(join_host_port(ip, port.container_port)));
        }
    }
}

/// Appends targets for the ports of `pod` that are not in `seen`, that is, ports to which no
/// endpoint refers.
pub(super) fn push_other_ports(
    pod: &KubernetesPod,
    seen: &[i64],
    owners: &PodOwners<'_>,
    common: &MetaLabels,
    groups: &mut Vec<TargetGroup>,
) {
    // A pod that is starting has no address yet.
    if pod.status.pod_ip.is_empty() {
        return;
    }
    for (container, is_init) in list_containers(pod) {
        for port in &container.ports {
            if seen.contains(&port.container_port) {
                continue;
            }
            let mut meta = common.clone();
            set_container(&mut meta, container, is_init);
            set_port(&mut meta, port, &port.protocol);
            meta.merge(&owners.labels(pod));
            groups.push(meta.into_target(join_host_port(&pod.status.pod_ip, port.container_port)));
        }
    }
}

/// Returns the labels of the node called `name`; empty if the store does not contain it.
pub(super) fn find_node_labels(
    nodes: &KubernetesStoreGuard<'_, super::objects::KubernetesNode>,
    name: &str,
) -> MetaLabels {
    let mut meta = new_meta_labels();
    if let Some(node) = nodes.get(name) {
        set_object(&mut meta, "node", &node.metadata);
    }
    meta
}

//! Builds a target from a task and the details of its cluster.

use super::{EcsAttachment, EcsCluster, EcsService, EcsTask, INTERFACE};
use crate::group::TargetGroup;
use crate::meta::{MetaLabels, join_host_port, sanitize};
use crate::providers::aws::session::AwsTag;
use std::collections::BTreeMap;

/// An EC2 instance on which tasks run, reduced to the fields that become labels.
#[derive(Default)]
pub(super) struct EcsHost {
    pub(super) private_ip: String,
    pub(super) public_ip: String,
    pub(super) subnet: String,
    pub(super) kind: String,
    pub(super) tags: BTreeMap<String, String>,
}

/// Everything except the tasks that the targets of one cluster are built from.
#[derive(Default)]
pub(super) struct EcsClusterDetails {
    pub(super) cluster: EcsCluster,
    pub(super) region: String,
    /// Services by service name, which is the suffix of a task's group.
    pub(super) services: BTreeMap<String, EcsService>,
    /// EC2 instance ids by the ARN of the container instance that runs on them.
    pub(super) instances: BTreeMap<String, String>,
    /// EC2 instances that run tasks, by instance id.
    pub(super) machines: BTreeMap<String, EcsHost>,
    /// Public IP addresses by the id of their network interface.
    pub(super) public_ips: BTreeMap<String, String>,
}

impl EcsAttachment {
    /// Returns the value of the detail `name`, or an empty string if there is none.
    pub(super) fn find_detail(&self, name: &str) -> &str {
        let found = self.details.iter().find(|detail| detail.name == name);
        found.map_or("", |detail| &detail.value)
    }
}

fn set_tags(meta: &mut MetaLabels, prefix: &str, tags: &[AwsTag]) {
    for tag in tags {
        if let (Some(key), Some(value)) = (&tag.key, &tag.value) {
            meta.set(&format!("{prefix}{}", sanitize(key)), value);
        }
    }
}

impl EcsTask {
    /// Returns the network interface attachment of a task with an address of its own (`awsvpc`
    /// mode).
    pub(super) fn find_interface(&self) -> Option<&EcsAttachment> {
        self.attachments.iter().find(|one| one.kind == INTERFACE)
    }

    /// Builds the target of a task. Returns `None` if the task has no IP address.
    pub(super) fn build_target(&self, parts: &EcsClusterDetails, port: i64) -> Option<TargetGroup> {
        let host = &self.container_instance_arn;
        let id = parts.instances.get(host).filter(|_| !host.is_empty());
        let machine = id.and_then(|id| parts.machines.get(id));
        let nowhere = EcsHost::default();
        let on = machine.unwrap_or(&nowhere);
        let (mode, ip, subnet, public) = match self.find_interface() {
            Some(own) => {
                let public = parts.public_ips.get(own.find_detail("networkInterfaceId"));
                let public = public.map_or("", String::as_str);
                let ip = own.find_detail("privateIPv4Address");
                ("awsvpc", ip, own.find_detail("subnetId"), public)
            }
            None => (
                "bridge",
                on.private_ip.as_str(),
                on.subnet.as_str(),
                on.public_ip.as_str(),
            ),
        };
        if ip.is_empty() {
            return None;
        }
        let mut meta = MetaLabels::new("ecs");
        meta.set_all([
            ("ip_address", ip),
            ("region", &parts.region),
            ("launch_type", &self.launch_type),
            ("health_status", &self.health_status),
            ("network_mode", mode),
            ("cluster_arn", &parts.cluster.cluster_arn),
            ("cluster", &parts.cluster.cluster_name),
            ("task_group", &self.group),
            ("task_arn", &self.task_arn),
            ("task_definition", &self.task_definition_arn),
            ("availability_zone", &self.availability_zone),
            ("desired_status", &self.desired_status),
            ("last_status", &self.last_status),
            ("subnet_id", subnet),
            ("container_instance_arn", host),
            ("ec2_instance_id", id.map_or("", String::as_str)),
            ("ec2_instance_type", &on.kind),
            ("ec2_instance_private_ip", &on.private_ip),
            ("ec2_instance_public_ip", &on.public_ip),
            ("public_ip", public),
            ("platform_family", &self.platform_family),
            ("platform_version", &self.platform_version),
        ]);
        set_tags(&mut meta, "tag_cluster_", &parts.cluster.tags);
        let service = self.group.strip_prefix("service:");
        if let Some(service) = service.and_then(|name| parts.services.get(name)) {
            meta.set("service", &service.service_name);
            meta.set("service_arn", &service.service_arn);
            meta.set("service_status", &service.status);
            set_tags(&mut meta, "tag_service_", &service.tags);
        }
        set_tags(&mut meta, "tag_task_", &self.tags);
        meta.set_each("tag_ec2_", &on.tags);
        Some(meta.into_target(join_host_port(ip, port)))
    }
}

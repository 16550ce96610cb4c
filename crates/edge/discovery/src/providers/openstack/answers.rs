//! Responses of OpenStack's services, and the targets that are built from them.

use crate::group::TargetGroup;
use crate::json::answers;
use crate::meta::{MetaLabels, join_host_port, sanitize};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use tracing::warn;

answers! {
    pub(super) struct OpenStackLink {
        rel: String,
        href: String,
    }

    pub(super) struct OpenStackHypervisorPage {
        hypervisors: Vec<OpenStackHypervisor>,
        #[serde(rename = "hypervisors_links")]
        links: Vec<OpenStackLink>,
    }

    pub(super) struct OpenStackHypervisor {
        id: Value,
        hypervisor_hostname: String,
        host_ip: String,
        status: String,
        state: String,
        hypervisor_type: String,
    }

    pub(super) struct OpenStackPortPage {
        ports: Vec<OpenStackPort>,
        #[serde(rename = "ports_links")]
        links: Vec<OpenStackLink>,
    }

    pub(super) struct OpenStackPort {
        pub(super) id: String,
        pub(super) device_id: String,
    }

    pub(super) struct OpenStackFloatingIpPage {
        floatingips: Vec<OpenStackFloatingIp>,
        #[serde(rename = "floatingips_links")]
        links: Vec<OpenStackLink>,
    }

    pub(super) struct OpenStackFloatingIp {
        pub(super) port_id: String,
        pub(super) fixed_ip_address: String,
        pub(super) floating_ip_address: String,
    }

    pub(super) struct OpenStackServerPage {
        servers: Vec<OpenStackServer>,
        #[serde(rename = "servers_links")]
        links: Vec<OpenStackLink>,
    }

    pub(super) struct OpenStackServer {
        id: String,
        status: String,
        name: String,
        tenant_id: String,
        user_id: String,
        flavor: Value,
        /// An object, or an empty text if the instance has no image.
        image: Value,
        metadata: BTreeMap<String, String>,
        addresses: BTreeMap<String, Value>,
    }

    pub(super) struct OpenStackLoadBalancerPage {
        loadbalancers: Vec<OpenStackLoadBalancer>,
        #[serde(rename = "loadbalancers_links")]
        links: Vec<OpenStackLink>,
    }

    pub(super) struct OpenStackLoadBalancer {
        pub(super) id: String,
        name: String,
        operating_status: String,
        provisioning_status: String,
        availability_zone: String,
        vip_address: String,
        pub(super) vip_port_id: String,
        provider: String,
        project_id: String,
        tags: Vec<String>,
    }

    pub(super) struct OpenStackListenerPage {
        listeners: Vec<OpenStackListener>,
        #[serde(rename = "listeners_links")]
        links: Vec<OpenStackLink>,
    }

    pub(super) struct OpenStackListener {
        pub(super) protocol: String,
        pub(super) protocol_port: i64,
        pub(super) loadbalancers: Vec<OpenStackLoadBalancerId>,
    }

    pub(super) struct OpenStackLoadBalancerId {
        pub(super) id: String,
    }
}

/// One page of a paginated list: its entries, and a link to the next page.
pub(super) trait OpenStackPage: DeserializeOwned + Send + 'static {
    type Entry: Send;

    /// Returns the URL of the next page, or `None` on the last page.
    fn next(&self) -> Option<String>;

    fn entries(self) -> Vec<Self::Entry>;
}

macro_rules! page {
    ($page:ident, $field:ident, $entry:ident) => {
        impl OpenStackPage for $page {
            type Entry = $entry;

            fn next(&self) -> Option<String> {
                // An empty page ends the list, even if it has a link to a next page.
                let mut links = self.links.iter().filter(|_| !self.$field.is_empty());
                let next = links.find(|link| link.rel == "next");
                next.map(|link| link.href.clone())
            }

            fn entries(self) -> Vec<$entry> {
                self.$field
            }
        }
    };
}

page!(OpenStackHypervisorPage, hypervisors, OpenStackHypervisor);
page!(OpenStackPortPage, ports, OpenStackPort);
page!(OpenStackFloatingIpPage, floatingips, OpenStackFloatingIp);
page!(OpenStackServerPage, servers, OpenStackServer);
page!(
    OpenStackLoadBalancerPage,
    loadbalancers,
    OpenStackLoadBalancer
);
page!(OpenStackListenerPage, listeners, OpenStackListener);

/// Floating IP addresses of instances, from which the label `public_ip` is set.
#[derive(Default)]
pub(super) struct OpenStackFloatingIpMap {
    /// Floating addresses by instance id and fixed address.
    floating: BTreeMap<(String, String), String>,
    /// All floating addresses, which do not become targets themselves.
    present: BTreeSet<String>,
}

impl OpenStackFloatingIpMap {
    /// Adds the floating address `ip` of an instance.
    pub(super) fn add_floating_ip(&mut self, instance: String, ip: OpenStackFloatingIp) {
        self.present.insert(ip.floating_ip_address.clone());
        self.floating
            .insert((instance, ip.fixed_ip_address), ip.floating_ip_address);
    }
}

impl OpenStackHypervisor {
    pub(super) fn build_target(&self, port: i64) -> TargetGroup {
        let mut meta = MetaLabels::new("openstack_hypervisor");
        // The id is a number before API version 2.53 and a UUID since.
        let id = match &self.id {
            Value::String(id) => id.clone(),
            Value::Null => String::new(),
            id => id.to_string(),
        };
        meta.set_all([
            ("id", id.as_str()),
            ("hostname", &self.hypervisor_hostname),
            ("host_ip", &self.host_ip),
            ("status", &self.status),
            ("state", &self.state),
            ("type", &self.hypervisor_type),
        ]);
        meta.into_target(join_host_port(&self.host_ip, port))
    }
}

impl OpenStackServer {
    /// Returns a target for each address of the instance, except floating addresses.
    pub(super) fn build_targets(
        &self,
        maps: &OpenStackFloatingIpMap,
        port: i64,
    ) -> Vec<TargetGroup> {
        // The field `original_name` exists since API version 2.47.
        let flavor = ["original_name", "id"].iter();
        let Some(flavor) = flavor.filter_map(|key| self.flavor[key].as_str()).next() else {
            warn!(
                instance = self.id,
                "flavor of the instance has neither name nor id"
            );
            return Vec::new();
        };
        let mut common = MetaLabels::new("openstack");
        common.set_all([
            ("instance_id", self.id.as_str()),
            ("instance_status", &self.status),
            ("instance_name", &self.name),
            ("project_id", &self.tenant_id),
            ("user_id", &self.user_id),
            ("instance_flavor", flavor),
            ("instance_image", self.image["id"].as_str().unwrap_or("")),
        ]);
        for (key, value) in &self.metadata {
            common.set(&format!("tag_{}", sanitize(key)), value);
        }
        let mut targets = Vec::new();
        for (pool, addresses) in &self.addresses {
            let addresses = addresses.as_array().into_iter().flatten();
            for address in addresses.filter_map(|address| address["addr"].as_str()) {
                if maps.present.contains(address) {
                    continue;
                }
                let mut meta = common.clone();
                meta.set("address_pool", pool);
                meta.set("private_ip", address);
                let key = (self.id.clone(), address.to_owned());
                if let Some(floating) = maps.floating.get(&key) {
                    meta.set("public_ip", floating);
                }
                targets.push(meta.into_target(join_host_port(address, port)));
            }
        }
        targets
    }
}

impl OpenStackLoadBalancer {
    pub(super) fn build_target(&self, floating: Option<&str>, port: i64) -> TargetGroup {
        let mut meta = MetaLabels::new("openstack");
        meta.set_all([
            ("loadbalancer_id", self.id.as_str()),
            ("loadbalancer_name", &self.name),
            ("loadbalancer_operating_status", &self.operating_status),
            (
                "loadbalancer_provisioning_status",
                &self.provisioning_status,
            ),
            ("loadbalancer_availability_zone", &self.availability_zone),
            ("loadbalancer_vip", &self.vip_address),
            ("loadbalancer_provider", &self.provider),
            ("project_id", &self.project_id),
            ("loadbalancer_tags", &self.tags.join(",")),
            ("loadbalancer_floating_ip", floating.unwrap_or("")),
        ]);
        meta.into_target(join_host_port(&self.vip_address, port))
    }
}
